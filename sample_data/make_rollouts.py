"""Trains a small NumPy policy on sums with the OlmoRL objective and records its rollouts as Parquet.

A prompt is "37+58=". The policy writes one character a token: column by column from the right, each column's sum with
its carry and ";", then the whole sum and the end token ".". So "15;9;95." is a right answer. It may write "?" at any
place: the environment then inserts the plain sum of the current column's two digits and ":", which helps but eats into
the length limit. "?15:15;?8:9;95." is right too. What the environment inserts has mask 0.

`python sample_data/make_rollouts.py` writes rollouts.parquet beside itself; README.md says what is in it.
"""

import argparse
import itertools
import os
import sys
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

STEPS = 40
SEED = 6
STEPS_PER_ROW_GROUP = 4
PROMPTS_PER_STEP = 16
GROUP_SIZE = 8
MINI_BATCHES = 4
MAX_TOKENS = 24
EPS_LOW = 0.2
EPS_HIGH = 0.272

HIDDEN = 128
LEARNING_RATE = 0.01
RAMP = 8  # updates over which the learning rate rises to its full value
POOL_SIZE = 400
DIGIT_SHARES = (0.1, 0.42, 0.4, 0.08)  # prompts with numbers of 1, 2, 3 and 4 digits
DEMONSTRATIONS = 1500
SLIP_SHARE = 0.4
ASK_SHARE = 0.4
WARM_UPDATES = 800
WARM_TOKENS = 256
WARM_LEARNING_RATE = 0.008

VOCABULARY = "0123456789;?."
NONE = 10  # stands for "no digit" in a feature that holds a digit
# Columns left, the column's two digits, the carry, the environment's reply and the carry, how many digits are written
# in this column, the last token, the digit to copy.
FEATURE_SIZES = (5, 11, 11, 2, 40, 3, 14, 11)
FEATURE_STARTS = np.cumsum((0, *FEATURE_SIZES[:-1]))

ROLLOUT_SCHEMA = pa.schema(
    {
        "step": pa.int64(),
        "prompt_id": pa.string(),
        "prompt": pa.string(),
        "answer_id": pa.string(),
        "answer": pa.string(),
        "reward": pa.float64(),
        "finish_reason": pa.string(),
        "logp_new": pa.list_(pa.float32()),
        "logp_old": pa.list_(pa.float32()),
        "logp_sampler": pa.list_(pa.float32()),
        "mask": pa.list_(pa.bool_()),
    }
)

Weights = list[np.ndarray]  # [embedding of the features, (sum of FEATURE_SIZES, H); output, (H, V)]


@dataclass(frozen=True)
class Task:
    """A sum to do: a + b, both of the same number of digits."""

    a: int
    b: int

    @property
    def columns(self) -> list[tuple[int, int]]:
        """The pairs of digits, the units first."""
        return [(int(x), int(y)) for x, y in zip(reversed(str(self.a)), reversed(str(self.b)), strict=True)]


@dataclass
class Answer:
    """An answer as it grows: T tokens, K of them the policy's own."""

    task: Task
    text: str = ""
    mask: list[bool] = field(default_factory=list)
    features: list[np.ndarray] = field(default_factory=list)
    logp_sampler: list[float] = field(default_factory=list)

    @property
    def done(self) -> bool:
        """Whether the end token came or the limit was met."""
        return self.text.endswith(".") or len(self.text) >= MAX_TOKENS

    @property
    def reward(self) -> float:
        """1 if what stands after the last ";" is the sum and the end token, else 0."""
        return float(self.text.rpartition(";")[2] == f"{self.task.a + self.task.b}.")

    @property
    def tokens(self) -> list[int]:
        """The policy's own tokens, (K,)."""
        return [VOCABULARY.index(token) for token in itertools.compress(self.text, self.mask)]

    def write(self, token: str) -> None:
        """Append the policy's token and, after "?", the environment's reply, cut at the limit."""
        column = self.text.count(";")
        digits = self.task.columns[column : column + 1]
        reply = f"{sum(map(sum, digits))}:" if token == "?" else ""
        self.text = (self.text + token + reply)[:MAX_TOKENS]
        self.mask = (self.mask + [True] + [False] * len(reply))[:MAX_TOKENS]

    def spread(self, values: list[float] | np.ndarray) -> list[float]:
        """Give the values (K,) of the policy's own tokens as (T,), with 0 where the environment wrote."""
        per_token = np.zeros(len(self.mask))
        per_token[self.mask] = values
        return per_token.tolist()


def join_columns(columns: list[str]) -> str:
    """Give the number made of each column's last digit, and of all digits of the last column; the units come first."""
    return "".join([column[-1:] if i else column for i, column in enumerate(reversed(columns))])


def context(task: Task, text: str) -> np.ndarray:
    """Give the features of an answer so far: int (8,), the rows of the embedding that they select."""
    *columns, current = [column.rpartition("?")[2] for column in text.split(";")]
    columns = [column.rpartition(":")[2] for column in columns]
    reply, _, written = current.rpartition(":")
    left = max(len(task.columns) - len(columns), 0)
    a, b = task.columns[len(columns)] if left else (NONE, NONE)
    carry = int(bool(columns) and len(columns[-1]) > 1)
    to_copy = "" if left else join_columns(columns)[len(written) : len(written) + 1]
    features = (
        left,
        a,
        b,
        carry,
        2 * int(reply or 19) + carry,
        min(len(written), 2),
        (VOCABULARY + ":").index(text[-1:] or ";"),
        int(to_copy or NONE),
    )
    return FEATURE_STARTS + features


def round_to_bfloat16(weights: Weights) -> Weights:
    """Round every weight to a nearest bfloat16 and give it as float64."""
    bits = [weight.astype(np.float32).view(np.uint32) for weight in weights]
    return [((b + np.uint32(0x8000)) & np.uint32(0xFFFF0000)).view(np.float32).astype(np.float64) for b in bits]


def forward(weights: Weights, features: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Give hidden = tanh(Σ embedding[features]), (K, H), and log softmax(hidden · output), (K, V)."""
    embedding, output = weights
    hidden = np.tanh(embedding[features].sum(axis=1))
    # einsum, not @: a threaded matrix product may add in another order from run to run.
    logits = np.einsum("kh,hv->kv", hidden, output)
    logits -= logits.max(axis=1, keepdims=True)
    return hidden, logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))


def token_logps(weights: Weights, features: np.ndarray, tokens: np.ndarray) -> np.ndarray:
    """Give log p(token | features), (K,)."""
    return forward(weights, features)[1][np.arange(len(tokens)), tokens]


def gradient(weights: Weights, features: np.ndarray, tokens: np.ndarray, factor: np.ndarray) -> Weights:
    """Give Σ factor · ∇ log p(token | features), the factors (K,) held constant."""
    hidden, logps = forward(weights, features)
    by_logit = -factor[:, None] * np.exp(logps)
    by_logit[np.arange(len(tokens)), tokens] += factor
    by_hidden = np.einsum("kv,hv->kh", by_logit, weights[1]) * (1.0 - hidden**2)
    selected = np.zeros((len(tokens), len(weights[0])))
    np.put_along_axis(selected, features, 1.0, axis=1)
    return [np.einsum("kf,kh->fh", selected, by_hidden), np.einsum("kh,kv->hv", hidden, by_logit)]


class Adam:
    """Adam up the gradient: w += lr · m̂ / (√v̂ + 1e-8), β = (0.9, 0.95), with lr rising linearly at first."""

    def __init__(self, weights: Weights, learning_rate: float) -> None:
        """Begin with moments of zero."""
        self.learning_rate = learning_rate
        self.updates = 0
        self.moments = [(np.zeros_like(weight), np.zeros_like(weight)) for weight in weights]

    def update(self, weights: Weights, gradients: Weights) -> None:
        """Change the weights in place."""
        self.updates += 1
        rate = self.learning_rate * min(self.updates / RAMP, 1.0)
        for weight, grad, (first, second) in zip(weights, gradients, self.moments, strict=True):
            first += 0.1 * (grad - first)
            second += 0.05 * (grad**2 - second)
            unbiased = first / (1.0 - 0.9**self.updates)
            weight += rate * unbiased / (np.sqrt(second / (1.0 - 0.95**self.updates)) + 1e-8)


def draw_task(rng: np.random.Generator) -> Task:
    """Draw a sum of two numbers of one to four digits."""
    digits = rng.choice([1, 2, 3, 4], p=DIGIT_SHARES)
    a, b = rng.integers(10 ** (digits - 1), 10**digits, size=2)
    return Task(int(a), int(b))


def demonstrate(task: Task, rng: np.random.Generator) -> Answer:
    """Write an answer that asks the environment in some columns, and in some is one off, up or down."""
    script, columns, carry = "", [], 0
    for a, b in task.columns:
        slip = int(rng.choice([-1, 0, 1], p=[SLIP_SHARE / 2, 1 - SLIP_SHARE, SLIP_SHARE / 2]))
        columns.append(str(max(a + b + carry + slip, 0)))
        script += ("?" if rng.random() < ASK_SHARE else "") + f"{columns[-1]};"
        carry = len(columns[-1]) - 1
    answer = Answer(task)
    for token in script + f"{join_columns(columns)}.":
        if not answer.done:
            answer.features.append(context(task, answer.text))
            answer.write(token)
    return answer


def warm_start(rng: np.random.Generator) -> Weights:
    """Draw weights and train them to imitate the faulty demonstrations."""
    weights = [rng.normal(0.0, 0.4, (sum(FEATURE_SIZES), HIDDEN)), rng.normal(0.0, 0.1, (HIDDEN, len(VOCABULARY)))]
    adam = Adam(weights, WARM_LEARNING_RATE)
    features, tokens = stack([demonstrate(draw_task(rng), rng) for _ in range(DEMONSTRATIONS)])
    factor = np.full(WARM_TOKENS, 1.0 / WARM_TOKENS)
    for _ in range(WARM_UPDATES):
        chosen = rng.choice(len(tokens), WARM_TOKENS, replace=False)
        adam.update(weights, gradient(weights, features[chosen], tokens[chosen], factor))
    return weights


def stack(answers: list[Answer]) -> tuple[np.ndarray, np.ndarray]:
    """Give the features (K, 8) and the tokens (K,) of the answers, end to end."""
    return np.concatenate([answer.features for answer in answers]), np.concatenate([a.tokens for a in answers])


def sample_answers(weights: Weights, tasks: list[Task], rng: np.random.Generator) -> list[Answer]:
    """Sample a group of answers to each task, at temperature 1, and note the log-probs that were sampled from."""
    answers = [Answer(task) for task in tasks for _ in range(GROUP_SIZE)]
    while growing := [answer for answer in answers if not answer.done]:
        features = np.stack([context(answer.task, answer.text) for answer in growing])
        logps = forward(weights, features)[1]
        below = np.cumsum(np.exp(logps), axis=1) < rng.random((len(growing), 1))
        # The sum of all probabilities may fall short of 1 by rounding, hence the minimum.
        tokens = np.minimum(below.sum(axis=1), len(VOCABULARY) - 1)
        for answer, row, logp, token in zip(growing, features, logps, tokens, strict=True):
            answer.features.append(row)
            answer.logp_sampler.append(logp[token])
            answer.write(VOCABULARY[token])
    return answers


def advantages(answers: list[Answer]) -> tuple[np.ndarray, np.ndarray]:
    """Give reward − mean of its group, (N,), and whether the group's rewards are not all identical, (N,)."""
    rewards = np.array([answer.reward for answer in answers]).reshape(-1, GROUP_SIZE)
    kept = rewards.max(axis=1) != rewards.min(axis=1)
    return (rewards - rewards.mean(axis=1, keepdims=True)).ravel(), np.repeat(kept, GROUP_SIZE)


def objective_factor(logp_new: np.ndarray, logp_old: np.ndarray, advantage: np.ndarray, kept: np.ndarray) -> np.ndarray:
    """Give the factors (K,) of ∇ logp_new in the gradient of the objective.

    The objective is Σ min(ρA, clip(ρ, 1 − 0.2, 1 + 0.272)·A) / n over the n real tokens of kept groups, with
    ρ = exp(logp_new − logp_old). As ∇ρ = ρ · ∇ logp_new, a factor is ρA / n, or 0 where the clipped term is the smaller.
    """
    ratio = np.exp(logp_new - logp_old)
    clipped = np.where(advantage > 0, ratio > 1 + EPS_HIGH, ratio < 1 - EPS_LOW)
    return np.where(kept & ~clipped, ratio * advantage, 0.0) / max(kept.sum(), 1)


def train_step(weights: Weights, adam: Adam, answers: list[Answer]) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Take the step's updates, one a mini-batch, and give each answer's logp_new and logp_old, (K,) each."""
    lengths = [len(answer.features) for answer in answers]
    advantage, kept = (np.repeat(values, lengths) for values in advantages(answers))
    features, tokens = stack(answers)
    bounds = np.cumsum([0, *lengths])
    batches = [slice(*ends) for ends in itertools.pairwise(bounds[:: len(answers) // MINI_BATCHES])]
    # The old log-probs batch by batch too, so that the first batch's new ones are the same to the last bit.
    logp_old = np.concatenate([token_logps(weights, features[batch], tokens[batch]) for batch in batches])
    logp_new = np.empty_like(logp_old)
    for batch in batches:
        logp_new[batch] = token_logps(weights, features[batch], tokens[batch])
        factor = objective_factor(logp_new[batch], logp_old[batch], advantage[batch], kept[batch])
        if kept[batch].any():
            adam.update(weights, gradient(weights, features[batch], tokens[batch], factor))
    return np.split(logp_new, bounds[1:-1]), np.split(logp_old, bounds[1:-1])


def as_row(answer_id: str, answer: Answer, logp_new: np.ndarray, logp_old: np.ndarray) -> dict:
    """Give the row of one answer, without its step."""
    return {
        "prompt_id": f"sum-{answer.task.a:04d}+{answer.task.b:04d}",
        "prompt": f"{answer.task.a}+{answer.task.b}=",
        "answer_id": answer_id,
        "answer": answer.text,
        "reward": answer.reward,
        "finish_reason": "stop" if answer.text.endswith(".") else "length",
        "logp_new": answer.spread(logp_new),
        "logp_old": answer.spread(logp_old),
        "logp_sampler": answer.spread(answer.logp_sampler),
        "mask": answer.mask,
    }


def make_rollouts(steps: int = STEPS, seed: int = SEED) -> pa.Table:
    """Train for some steps and give every answer; fewer steps give the first rows of more steps."""
    rng = np.random.default_rng(seed)
    weights = warm_start(rng)
    pool = list(dict.fromkeys(draw_task(rng) for _ in range(POOL_SIZE)))
    adam = Adam(weights, LEARNING_RATE)
    rows = []
    for step in range(steps):
        tasks = [pool[i] for i in rng.choice(len(pool), PROMPTS_PER_STEP, replace=False)]
        answers = sample_answers(round_to_bfloat16(weights), tasks, rng)
        ids = [f"s{step:03d}-p{i // GROUP_SIZE:02d}-a{i % GROUP_SIZE}" for i in range(len(answers))]
        logp_new, logp_old = train_step(weights, adam, answers)
        rows += [{"step": step} | as_row(*parts) for parts in zip(ids, answers, logp_new, logp_old, strict=True)]
    return pa.Table.from_pylist(rows, schema=ROLLOUT_SCHEMA)


def main() -> None:
    """Read the options, train, and write the file."""
    beside = os.path.join(os.path.dirname(os.path.abspath(__file__)), "rollouts.parquet")
    parser = argparse.ArgumentParser(description="Train a small policy on sums with OlmoRL and record its rollouts.")
    parser.add_argument("--steps", type=int, default=STEPS, help="training steps (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=SEED, help="seed of everything random (default: %(default)s)")
    parser.add_argument("-o", "--output", default=beside, help="file to write (default: rollouts.parquet beside this)")
    options = parser.parse_args()
    table = make_rollouts(options.steps, options.seed)
    row_group_size = STEPS_PER_ROW_GROUP * PROMPTS_PER_STEP * GROUP_SIZE
    pq.write_table(table, options.output, compression="zstd", row_group_size=row_group_size)
    sys.stdout.write(f"{table.num_rows} answers of {options.steps} steps written to {options.output}\n")


if __name__ == "__main__":
    main()
