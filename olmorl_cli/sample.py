"""Synthetic rollouts of any size, to try the commands and to measure with. Made up, but shaped like a run's."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

FLOATS = pa.list_(pa.float32())
SCHEMA = pa.schema(
    {
        "step": pa.int64(),
        "prompt_id": pa.string(),
        "prompt": pa.string(),
        "answer_id": pa.string(),
        "answer": pa.string(),
        "reward": pa.float64(),
        "finish_reason": pa.string(),
        "logp_new": FLOATS,
        "logp_old": FLOATS,
        "logp_sampler": FLOATS,
        "mask": pa.list_(pa.bool_()),
    }
)
BATCH_TOKENS = 5 << 19
"""Tokens in one batch, and so in one row group."""
LONGEST = 4
"""Answers are cut at this many times the mean length."""


@dataclass(frozen=True)
class Shape:
    """How much to make.

    Attributes:
        steps: training steps.
        prompts: prompts a step, each of them new.
        group_size: answers a prompt.
        tokens: mean tokens an answer.
        seed: of the random numbers; the same seed and shape give the same rollouts.
    """

    steps: int = 8
    prompts: int = 32
    group_size: int = 8
    tokens: int = 64
    seed: int = 0


def sample_batches(shape: Shape) -> Iterator[pa.RecordBatch]:
    """Rollouts in batches of `SCHEMA`, whole groups each, step by step.

    A prompt's chance of a right answer is drawn once and rises over the steps, so that some groups are all right and some
    all wrong; lengths are gamma distributed and cut; new log-probs drift from old ones, and those a little from the
    sampler's; in one answer of twenty a stretch of tokens (a tool's output) is masked.
    """
    groups_per_batch = max(1, BATCH_TOKENS // (shape.group_size * shape.tokens))
    for step in range(shape.steps):
        for first in range(0, shape.prompts, groups_per_batch):
            rng = np.random.default_rng([shape.seed, step, first])
            yield _batch(rng, shape, step, np.arange(first, min(first + groups_per_batch, shape.prompts)))


def _batch(rng: np.random.Generator, shape: Shape, step: int, prompts: npt.NDArray[np.int64]) -> pa.RecordBatch:
    groups, n = np.repeat(prompts, shape.group_size), prompts.size * shape.group_size
    progress = (step + 1) / max(shape.steps, 1)
    skill = np.repeat(rng.beta(0.7, 0.9, prompts.size), shape.group_size)
    reward = (rng.random(n) < skill ** (1.6 - progress)).astype(np.float64)
    longest = LONGEST * shape.tokens
    lengths = np.clip(np.rint(rng.gamma(2.0, shape.tokens / 2.0, n)), 1, longest).astype(np.int64)
    offsets = np.concatenate(([0], np.cumsum(lengths)))
    total = int(offsets[-1])

    old = -(rng.standard_exponential(total, dtype=np.float32) ** 2) * np.float32(0.35)
    drift = rng.standard_normal(total, dtype=np.float32) * np.repeat(rng.gamma(2.0, 0.04, n).astype(np.float32), lengths)
    new = np.minimum(old + drift, np.float32(0.0))
    sampler = np.minimum(old + rng.standard_normal(total, dtype=np.float32) * np.float32(0.01), np.float32(0.0))
    steps, answers = np.full(n, step), np.arange(n) % shape.group_size
    columns = [
        pa.array(steps),
        _names("p", groups + step * shape.prompts),
        _chosen("What is the next number?", "Simplify the fraction.", "How many pairs are there?", by=groups),
        _names("a", (groups + step * shape.prompts) * shape.group_size + answers),
        _chosen("I cannot tell.", "So the answer is 42.", by=reward.astype(np.int64)),
        pa.array(reward),
        _chosen("stop", "length", by=(lengths == longest).astype(np.int64)),
        *(pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(values)) for values in (new, old, sampler)),
        pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(_real(rng, offsets))),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def _real(rng: np.random.Generator, offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """True for every token but those of a stretch inside one answer of twenty."""
    real = np.ones(offsets[-1], dtype=np.bool_)
    edges = np.zeros(offsets[-1] + 1, dtype=np.int64)
    lengths = np.diff(offsets)
    chosen = np.flatnonzero((rng.random(lengths.size) < 0.05) & (lengths >= 8))
    np.add.at(edges, offsets[chosen] + lengths[chosen] // 4, 1)
    np.add.at(edges, offsets[chosen] + lengths[chosen] // 2, -1)
    real[np.cumsum(edges[:-1]) > 0] = False
    return real


def _names(letter: str, numbers: npt.NDArray[np.int64]) -> pa.Array:
    return pa.array(np.char.add(letter, np.char.zfill(numbers.astype(np.str_), 8)))


def _chosen(*words: str, by: npt.NDArray[np.int64]) -> pa.Array:
    return pa.array(words).take(pa.array(by % len(words)))
