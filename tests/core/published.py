"""Inputs and results of the trainers' own tests, and of runs of their functions, in the digits that are known."""

from math import exp, log
from typing import Any, NamedTuple

from tests.core.vectors import (
    GROUP_STD_1,
    NEMO_ADVANTAGES,
    NEMO_RL,
    NO_BOUNDS,
    OPEN_INSTRUCT,
    OPENRLHF,
    SEQUENCE_MEANS,
    SKYRL,
    SKYRL_ADVANTAGES,
    SLIME,
    TRL_ADVANTAGES,
    VERL,
    Columns,
    Settings,
    penalty,
    weight,
)


class Published(NamedTuple):
    """What a trainer's function gives for an input, in as many digits as are known.

    Attributes:
        source: trainer, version, file and function (or test).
        columns: the rollouts.
        settings: of the function.
        advantages: None for an answer that the source does not tell; None as a whole where it gives no advantages.
        objective: minus its loss.
        tolerance: |found - expected| <= tolerance · max(1, |expected|).
    """

    source: str
    columns: Columns
    settings: Settings
    advantages: list[float | None] | None = None
    objective: float | None = None
    tolerance: float = 1e-14


GROUPS = [[1, 0, 0, 0], [1, 1, 0, 0], [0, 1], [1, 2, 3, 4], [10, 0, 0, 0, 0, 0, 0, 0], [0.7]]
REWARDS: Columns = {
    "prompt_id": [f"g{n}" for n, rewards in enumerate(GROUPS) for _ in rewards],
    "reward": [float(reward) for rewards in GROUPS for reward in rewards],
}


def _groups(first: list[Any], second: float, third: float, fourth: list[Any], fifth: list[Any], lone: float) -> list[Any]:
    """Advantages of GROUPS, by what the answers of each group share: by sign, or in pairs."""
    return [
        *first[:1], *first[1:] * 3, second, second, -second, -second, -third, third,
        *(None if x is None else -x for x in reversed(fourth)), *fourth, *fifth[:1], *fifth[1:] * 7, lone,
    ]  # fmt: skip


def tokens(ratios: list[float], advantages: list[float], **columns: list[Any]) -> Columns:
    """An answer a token, of these ratios and advantages; `columns` replace log-probs."""
    number = len(ratios)
    lists = {"logp_new": [-1.0] * number, "logp_old": [-1.0 - log(ratio) for ratio in ratios]}
    return answers([[ratio] for ratio in ratios], advantages, **{k: [[v] for v in c] for k, c in (lists | columns).items()})


def answers(ratios: list[list[float]], advantages: list[float], **columns: list[Any]) -> Columns:
    """Answers of several tokens each, one group."""
    new = [[-1.0] * len(row) for row in ratios]
    old = [[-1.0 - log(ratio) for ratio in row] for row in ratios]
    return {
        "prompt_id": ["a"] * len(ratios), "advantage": advantages, "logp_new": new, "logp_old": old, **columns,
    }  # fmt: skip


def same(logps: list[float]) -> Columns:
    """New log-probs that are the old ones."""
    return {"logp_new": logps, "logp_old": logps}


RATIOS = [0.5, 0.8, 1.0, 1.272, 1.5, 3.0]
WEIGHTS = [0.25, 0.5, 1, 2, 4]
FULL: Columns = {
    "prompt_id": ["a", "a"],
    "advantage": [0.75, -0.25],
    "logp_new": [[-1, -0.5, -2.0], [-0.7, -1.2, -0.1]],
    "logp_old": [[-1.1, -0.9, -1.6], [-0.7, -1.0, -0.4]],
    "logp_sampler": [[-1.3, -1.8, -1.6], [-0.6, -1.0, -0.2]],
    "mask": [[1, 1, 1], [1, 1, 0]],
}
PREV = {"logp_new": [-1.0 + log(ratio) for ratio in (0.5, 1, 1.5)], "logp_old": [-1.0] * 3}
DRIFT = {"logp_old": [[-1.0, -1.5, -0.5]], "logp_new": [[-1.0, -1.5, -0.5]], "logp_sampler": [[-1.5, -1.0, -1.5]]}
OF_TESTS = {"zero_signal_groups": "kept", "eps_high": 0.2}
SUMMED = {**NO_BOUNDS, "aggregation": "token_sum"}

PUBLISHED = [
    # Advantages that the functions returned when they were run, in float32 but for open-instruct's.
    Published(
        OPEN_INSTRUCT + "data_loader.py: _data_preparation_loop, standard; run",
        REWARDS,
        {"scale": "group_std", "std_eps": 1e-8},
        _groups([1.7320508, -0.5773503], 0.99999998, 1, [0.4472136, 1.3416408], [2.6457513, -0.3779645], 0),
        tolerance=6e-8,
    ),
    Published(
        TRL_ADVANTAGES + "; run",
        REWARDS,
        {**GROUP_STD_1, "std_eps": 1e-4},
        _groups([1.4997001, -0.4999], 0.8658754, 0.7070068, [0.3872683, 1.1618049], [2.4748037, -0.3535434], 0),
        tolerance=2e-7,
    ),
    Published(
        VERL + "core_algos.py, and " + SKYRL_ADVANTAGES + "; run",
        REWARDS,
        {**GROUP_STD_1, "size_1": "raw"},
        _groups([1.499997, -0.499999], 0.8660239, 0.7071058, [0.387298, 1.1618942], [2.4748731, -0.3535533], 0.6999993),
        tolerance=2e-7,
    ),
    Published(
        NEMO_ADVANTAGES + "; run",
        REWARDS,
        {"center": "leave_one_out_mean", "scale": "leave_one_out_std", "ddof": 1, "zero_std": "skip"},
        _groups([1, -0.5773493], 1.1546985, 1, [None, 2.0], [10.0, -0.3779644], 0),
        tolerance=2e-6,
    ),
    Published(
        SKYRL + "ppo_utils.py, its test_ppo_utils.py: GRPO without std, RLOO",
        {"prompt_id": ["a", "a", "b", "b", "c"], "reward": [6.0, 3.0, 9.0, 12.0, 1.0]},
        {"center": "leave_one_out_mean"},
        [3, -3, -3, 3, 0],
    ),
    # Objectives of their own tests, minus the losses there.
    *(
        Published(
            OPEN_INSTRUCT + "grpo_utils.py: compute_grpo_loss; run",
            tokens(RATIOS, [advantage] * 6),
            {"zero_signal_groups": "kept"},
            objective=sum(terms) / 6,
        )
        for advantage, terms in (
            (1.0, [0.5, 0.8, 1.0, 1.272, 1.272, 1.272]),
            (-1.0, [-0.8, -0.8, -1.0, -1.272, -1.5, -3.0]),
        )
    ),
    *(
        Published(
            OPEN_INSTRUCT + "grpo_utils.py: compute_rho_correction, compute_grpo_loss; run",
            FULL,
            {"zero_signal_groups": "kept", **weight("truncate", cap=2.0), "aggregation": aggregation},
            objective=objective,
            tolerance=6e-8,
        )
        for aggregation, objective in (("token_mean", 0.5984484), ("sequence_mean_of_token_mean", 0.4627993))
    ),
    Published(
        OPEN_INSTRUCT + "test_olmo_core_train_modules.py: bounds of 0.2, the weight doubles the loss",
        tokens([1.5, 0.5, 1], [1.0] * 3, logp_sampler=[-1.0 - log(r) - log(2) for r in (1.5, 0.5, 1)]),
        {**OF_TESTS, **weight("truncate", cap=8.0)},
        objective=2 * (1.2 + 0.5 + 1) / 3,
    ),
    *(
        Published(
            OPEN_INSTRUCT + "test_olmo_core_train_modules.py: rho mask [0.5, 2], bounds inclusive",
            # The log-weights are logarithms to the last bit, so that their exponentials are the bounds.
            tokens([1.0] * 5, [1.0] * 5, **same([min(log(w), 0.0) for w in WEIGHTS]),
                   logp_sampler=[min(-log(w), 0.0) for w in WEIGHTS]),
            {**OF_TESTS, **weight(mode, low=0.5, cap=2.0)},
            objective=sum(weights) / 5,
        )
        for mode, weights in (("mask", [0, 0.5, 1, 2, 0]), ("truncate", [0.5, 0.5, 1, 2, 2]))
    ),
    Published(
        NEMO_RL + "loss/loss_functions.py, its test_loss_functions.py: clip",
        tokens([0.5, 1, 1.5], [1.0, -1.0, 2.0]),
        OF_TESTS,
        objective=(0.5 - 1 + 2.4) / 3,
    ),
    Published(
        NEMO_RL + "loss/loss_functions.py, its test_loss_functions.py: dual clip",
        tokens([0.5, 1, 10], [1.0, -1.0, -4.0]),
        {**OF_TESTS, "dual_clip": 3.0},
        objective=(0.5 - 1 - 12) / 3,
    ),
    *(
        Published(
            NEMO_RL + "loss/loss_functions.py, its test_loss_functions.py: importance weights",
            tokens([0.5, 1, 1.5], [1.0, -1.0, 2.0], **PREV, logp_sampler=[-0.5, -1.5, -0.8]),
            {**OF_TESTS, **weight("truncate", cap=cap)},
            objective=objective,
            tolerance=5e-5,
        )
        for cap, objective in ((10.0, 0.2065), (0.8, 0.4744))
    ),
    Published(
        NEMO_RL + "loss/loss_functions.py, its test_loss_functions.py: KL penalty 0.1",
        tokens([1.0] * 3, [0.0] * 3, **same([0.0, -1.0, -2.0]), logp_ref=[-1.0] * 3),
        {**OF_TESTS, **penalty("k3", 0.1)},
        objective=-0.1 * (exp(-1) + 0 + (exp(1) - 2)) / 3,
    ),
    Published(
        SLIME + "utils/ppo_utils.py, its test_policy_loss.py",
        tokens([2, 2, 0.5], [2.0, -2.0, 2.0]),
        {**OF_TESTS, "dual_clip": 1.5},
        objective=(2.4 - 3 + 1) / 3,
    ),
    *(
        Published(
            SLIME + "utils/ppo_utils.py, its test_cispo_loss.py",
            tokens(ratios, A, logp_new=NEW, logp_old=[x - log(r) for x, r in zip(NEW, ratios, strict=True)]),
            {"surrogate": "cispo", "zero_signal_groups": "kept", "eps_low": low, "eps_high": high},
            objective=sum(c * a * x for c, a, x in zip(clipped, A, NEW, strict=True)) / 4,
        )
        for A, NEW in [([1.0, -0.5, 2.0, -1.0], [-0.7, -1.2, -0.4, -2.1])]
        for low, high, ratios, clipped in (
            (0.2, 0.28, [1, 1.14, 1.56, 0.4], [1, 1.14, 1.28, 0.8]),
            (1.0, 4.0, [1, 3, 9, 0.4], [1, 3, 5, 0.4]),
        )
    ),
    *(
        Published(
            SKYRL + f"ppo_utils.py, its test_ppo_utils.py: {what}",
            answers(losses, [1.0] * len(losses), mask=mask, prompt_id=list(prompts)),
            {**NO_BOUNDS, **settings},
            objective=value,
        )
        for what, losses, mask, prompts, settings, value in (
            ("token_mean", [[1, 2, 3], [4, 5, 6]], [[1, 1, 0], [1, 1, 1]], "aa", {}, 18 / 5),
            ("sequence_mean", [[1, 2], [3, 4]], [[1, 1], [1, 0]], "aa", SEQUENCE_MEANS, (1.5 + 3) / 2),
            ("seq_mean_token_sum_norm, longest 10", [[2, 3], [9, 12]], [[1, 1], [1, 0]], "aa",
             {"aggregation": "sum_over_constant", "divisor": 2.0 * 10.0}, ((2 + 3) / 10 + 9 / 10) / 2),
            ("prompt_mean", [[1, 2], [3, 4], [5, 6], [7, 8]], [[1, 1], [1, 0], [1, 1], [1, 1]], "aabb",
             {"aggregation": "prompt_mean_of_token_mean"}, (2.0 + 6.5) / 2),
        )
    ),
    Published(
        SKYRL + "ppo_utils.py, its test_losses.py: dual clip",
        tokens([0.5, 1, 10], [1.0, -1.0, -4.0]),
        {**OF_TESTS, "dual_clip": 3.0, "aggregation": "token_sum"},
        objective=-12.5,
    ),
    *(
        Published(
            SKYRL + "off_policy_correction_utils.py, its test_off_policy_correction.py",
            answers([[1.0] * 3], [1.0], **DRIFT, **columns),
            {**SUMMED, **settings},
            objective=weights,
        )
        for columns, settings, weights in (
            ({}, weight("truncate", cap=2.0), exp(0.5) + exp(-0.5) + 2),
            ({}, weight("truncate", "sequence_product", cap=5.0), 3 * exp(1)),
            ({"mask": [[1, 0, 1]]}, weight("truncate", "sequence_product", cap=5.0), 2 * exp(1.5)),
        )
    ),
    Published(
        OPENRLHF + "models/loss.py, its test_loss_aggregation.py: token level",
        answers([[1, 2, 1], [3, 4, 5], [7, 1, 1]], [1.0] * 3, mask=[[1, 1, 0], [1, 1, 1], [1, 0, 0]]),
        NO_BOUNDS,
        objective=22 / 6,
    ),
    Published(
        OPENRLHF + "models/loss.py, its test_loss_aggregation.py: sequence level",
        answers([[1, 3, 9], [2, 4, 1], [8, 1, 1]], [1.0] * 3, mask=[[1, 1, 0], [1, 1, 0], [1, 0, 0]]),
        {**NO_BOUNDS, **SEQUENCE_MEANS},
        objective=(2 + 3 + 8) / 3,
    ),
    Published(
        OPENRLHF + "models/loss.py, its test_loss_aggregation.py: an answer all masked is in no divisor",
        answers([[1, 3], [5, 7]], [1.0] * 2, mask=[[1, 1], [0, 0]]),
        {**NO_BOUNDS, **SEQUENCE_MEANS},
        objective=2.0,
    ),
    Published(
        VERL + "core_algos.py: agg_loss, its test_loss_aggregation_on_cpu.py: token-sum, one rank",
        answers([[1, 2, 30], [4, 50, 6]], [1.0] * 2, mask=[[1, 1, 0], [1, 0, 1]]),
        SUMMED,
        objective=13.0,
    ),
]  # fmt: skip
