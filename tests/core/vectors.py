"""Small vectors of our own: what trainers' published definitions make of a few rollouts.

DEFINITIONS are settings that functions of a trainer have at a commit, read there; what they make of ROLLOUTS is worked out
by the slow reference, from the formulas. Settings have a recipe file's keys; what they leave out is OlmoRL's.
"""

from decimal import Decimal
from types import SimpleNamespace
from typing import Any, NamedTuple

from tests.core import reference

Settings = dict[str, Any]
Columns = dict[str, list[Any]]

OPEN_INSTRUCT = "open-instruct e6c3044a, open_instruct/"
TRL = "TRL f2cd5771 (1.10.0.dev0), trl/trainer/grpo_trainer.py: "
VERL = "verl 1dda039b, verl/trainer/ppo/"
OPENRLHF = "OpenRLHF 3c3be623, openrlhf/"
NEMO_RL = "NeMo RL 7ea279ab, nemo_rl/algorithms/"
SLIME = "slime 624b824a, slime/"
SKYRL = "SkyRL a9564572, skyrl/backends/skyrl_train/utils/"
PRIME_RL = "prime-rl 559b4477, src/prime_rl/"


_ANSWERS: list[Any] = [
    ("a", 1.0, "-40 -80 -12", "-41 -60 -40", "-39 -75 -38", "-50 -81 -10", "111"),
    ("b", 0.25, "-64 -30", "-49 -36", "-51 -90", "-70 -31", "11"),
    ("a", 0.0, "-20 640 -100 -9", "-104 -1 -70 -11", "-110 -1 -22 -12", "-22 -1 -88 -9", "1011"),
    ("c", 1.0, "-33", "-30", "-31", "-30", "1"),
    ("b", 2.0, "-50 -70 -90 -110", "-64 -64 -71 -160", "-61 -66 -150 -150", "-49 -75 -85 -99", "1111"),
    ("d", 0.75, "-25 -45", "-44 -39", "-40 -38", "-25 -50", "11"),
    ("a", 0.0, "-7 -60 -31", "-27 -29 -32", "-30 -28 -97", "-9 -40 -33", "111"),
    ("c", 1.0, "-80 -16 -48", "-70 -28 -48", "-71 -27 -47", "-81 -18 -50", "111"),
    ("b", -0.5, "-10 -96 -55", "-95 -88 -20", "-90 -85 -25", "-13 -80 -58", "111"),
    ("a", 1.0, "-120 640 640 -18 -77", "-96 -1 -1 -38 -79", "-99 -1 -1 -37 -80", "-99 -1 -1 -28 -70", "10011"),
    ("b", 0.25, "-64", "-58", "-140", "-61", "1"),
    ("e", 0.5, "-2 -10", "-20 -40", "-5 -5", "-4 -9", "11"),
    ("e", 0.0, "-30 -28", "-20 -30", "-10 -40", "-35 -20", "11"),
]
"""Group, reward, log-probs (new, old, sampler, reference) in 64ths, and mask of each answer."""


def _in_64ths(column: int) -> list[list[float]]:
    return [[int(word) / 64 for word in answer[column].split()] for answer in _ANSWERS]


ROLLOUTS: Columns = {
    "step": [3] * len(_ANSWERS),
    "prompt_id": [answer[0] for answer in _ANSWERS],
    "reward": [answer[1] for answer in _ANSWERS],
    **{f"logp_{role}": _in_64ths(column) for column, role in enumerate(("new", "old", "sampler", "ref"), 2)},
    "mask": [[mark == "1" for mark in answer[6]] for answer in _ANSWERS],
}
"""Groups of four, four, two, two answers of one reward, and a lone one, over one step; ratios on all sides of the bounds,
one above 3 where the advantage is negative; what stands where the mask is 0 is no log-prob."""


class Definition(NamedTuple):
    """A trainer's function, and the settings that say what it computes; None of a number is no bound."""

    source: str
    settings: Settings


GROUP_STD_1: Settings = {"scale": "group_std", "ddof": 1, "zero_signal_groups": "kept"}
SYMMETRIC: Settings = {"eps_high": 0.2, "zero_signal_groups": "kept"}
CLAMPED: Settings = {**SYMMETRIC, "log_ratio_low": -20.0, "log_ratio_high": 20.0}
NO_BOUNDS: Settings = {"eps_low": None, "eps_high": None, "zero_signal_groups": "kept"}
SEQUENCE_MEANS: Settings = {"aggregation": "sequence_mean_of_token_mean"}
GSPO: Settings = {"ratio_level": "sequence_mean", "eps_low": 3e-4, "eps_high": 4e-4, "zero_signal_groups": "kept"}


def weight(mode: str, level: str = "token", **bounds: float) -> Settings:
    """Settings of a sampler's weight."""
    return {"sampler_mode": mode, "sampler_level": level, **{f"sampler_{name}": value for name, value in bounds.items()}}


def penalty(estimator: str, coefficient: float) -> Settings:
    """Settings of a KL term."""
    return {"kl": {"estimator": estimator, "coefficient": coefficient}}


OI_LOSS = OPEN_INSTRUCT + "grpo_utils.py: compute_rho_correction, compute_grpo_loss"
TRL_ADVANTAGES, TRL_LOSS = TRL + "_generate_and_score_completions", TRL + "_compute_loss"
VERL_LOSS = VERL + "core_algos.py: compute_policy_loss_vanilla, agg_loss"
VERL_WEIGHTS = VERL + "rollout_corr_helper.py: compute_rollout_correction_and_rejection_mask"
OPENRLHF_ADVANTAGES = OPENRLHF + "trainer/ppo_utils/experience_maker.py: compute_advantages_and_returns"
OPENRLHF_LOSS = OPENRLHF + "models/loss.py: PolicyLoss"
NEMO_ADVANTAGES = NEMO_RL + "utils.py: calculate_baseline_and_std_per_prompt"
NEMO_LOSS = NEMO_RL + "loss/loss_functions.py: ClippedPGLossFn"
SLIME_LOSS = SLIME + "utils/ppo_utils.py: compute_policy_loss"
SKYRL_ADVANTAGES = SKYRL + "ppo_utils.py: compute_grpo_outcome_advantage"
SKYRL_LOSS = SKYRL + "ppo_utils.py: ppo_policy_loss"
SKYRL_WEIGHTS = SKYRL + "off_policy_correction_utils.py"

DEFINITIONS = [
    Definition(source, settings)
    for source, several in {
        OPEN_INSTRUCT + "data_loader.py: _data_preparation_loop": [
            {},
            {"scale": "group_std", "ddof": 0, "std_eps": 1e-8},
        ],
        OI_LOSS: [
            {"zero_signal_groups": "kept"},
            {"eps_high": 0.2, "aggregation": "sum_over_constant", "divisor": 48.0},
            {**weight("truncate", cap=2.0, log_clamp=10.0)},
            {**weight("truncate", low=0.5, cap=2.0, log_clamp=10.0)},
            {**weight("mask", low=0.5, cap=2.0, log_clamp=10.0)},
            {**weight("mask", "sequence_geometric_mean", low=0.9, cap=1.1, log_clamp=10.0)},
            {"surrogate": "cispo", "eps_low": None},
            *({"zero_signal_groups": "kept", **penalty(estimator, 0.05)} for estimator in ("k1", "k2", "k3")),
        ],
        TRL_ADVANTAGES: [
            {**GROUP_STD_1, "std_eps": 1e-4},
            {**GROUP_STD_1, "std_eps": 1e-4, "scale": "batch_std"},
            {**GROUP_STD_1, "scale": "none"},
        ],
        TRL_LOSS: [
            {**GROUP_STD_1, "std_eps": 1e-4, **SYMMETRIC},
            {**SYMMETRIC, **SEQUENCE_MEANS},
            {**SYMMETRIC, "aggregation": "sum_over_constant", "divisor": 13.0 * 5.0},
            {**SYMMETRIC, "delta": 2.0},
            {**SYMMETRIC, "delta": 1.1},
            {**GSPO, **SEQUENCE_MEANS},
            {"surrogate": "cispo", "eps_low": None, "eps_high": 4.0, "zero_signal_groups": "kept"},
            *(
                {**SYMMETRIC, **weight(mode, level, cap=1.5)}
                for mode in ("truncate", "mask")
                for level in ("token", "sequence_product")
            ),
            {**SYMMETRIC, **penalty("k3", 0.04)},
        ],
        VERL + "core_algos.py: compute_grpo_outcome_advantage": [
            {**GROUP_STD_1, "size_1": "raw"},
            {"size_1": "raw", "zero_signal_groups": "kept"},
        ],
        VERL + "core_algos.py: compute_rloo_outcome_advantage": [{"center": "leave_one_out_mean", "size_1": "raw"}],
        VERL + "core_algos.py: compute_rloo_vectorized_outcome_advantage": [{"center": "leave_one_out_mean"}],
        VERL_LOSS: [
            {**GROUP_STD_1, "size_1": "raw", **CLAMPED, "dual_clip": 3.0},
            *(
                {**CLAMPED, "dual_clip": 3.0, "aggregation": aggregation}
                for aggregation in ("token_sum", "sequence_mean_of_token_sum", "sequence_mean_of_token_mean")
            ),
            {**CLAMPED, "dual_clip": 1.5, "aggregation": "sum_over_constant", "divisor": 5.0 * 13.0},
            *({**CLAMPED, "dual_clip": 3.0, **penalty(estimator, 0.001)} for estimator in ("k1", "abs", "k2", "k3")),
        ],
        VERL_WEIGHTS: [
            {**CLAMPED, "dual_clip": 3.0, **weight("truncate", cap=2.0, log_clamp=20.0)},
            {**CLAMPED, "dual_clip": 3.0, **weight("truncate", "sequence_product", cap=2.0, log_clamp=20.0)},
            {**CLAMPED, "dual_clip": 3.0, **weight("mask", low=0.5, cap=1.2, log_clamp=20.0)},
        ],
        VERL + "core_algos.py: compute_policy_loss_gspo": [{**GSPO, "log_ratio_high": 10.0, **SEQUENCE_MEANS}],
        VERL + "core_algos.py: compute_policy_loss_cispo": [{**CLAMPED, "surrogate": "cispo"}],
        OPENRLHF_ADVANTAGES: [
            {**GROUP_STD_1, "std_eps": 1e-9, "advantage_clip": [-10.0, 10.0]},
            {"advantage_clip": [-0.5, 0.75], "zero_signal_groups": "kept"},
            {"center": "leave_one_out_mean", "advantage_clip": [-10.0, 10.0]},
        ],
        OPENRLHF_LOSS: [
            CLAMPED,
            {**CLAMPED, **SEQUENCE_MEANS, "dual_clip": 1.2},
            {**CLAMPED, "eps_low": 0.1, "eps_high": 0.3},
            {**CLAMPED, **weight("truncate", low=0.5, cap=1.5)},
            {**CLAMPED, **weight("mask", low=0.5, cap=1.5)},
            {**CLAMPED, **weight("keep_or_drop", "sequence_geometric_mean", low=0.9, cap=1.1)},
        ],
        NEMO_ADVANTAGES: [
            {"center": "leave_one_out_mean", "scale": "leave_one_out_std", "ddof": 1, "zero_std": "skip"},
            {**GROUP_STD_1, "zero_std": "skip"},
            {"center": "leave_one_out_mean"},
        ],
        NEMO_LOSS: [
            {**SYMMETRIC, "dual_clip": 3.0},
            {**SYMMETRIC, **SEQUENCE_MEANS},
            {**SYMMETRIC, "ratio_level": "sequence_mean"},
            {**NO_BOUNDS},
            {**SYMMETRIC, **weight("truncate", low=0.5, cap=2.0)},
            {**SYMMETRIC, **weight("mask", low=0.5, cap=2.0)},
            {**SYMMETRIC, **weight("keep_or_drop", "sequence_geometric_mean", low=0.95, cap=1.05)},
            {**SYMMETRIC, **penalty("k3", 0.01)},
        ],
        SLIME + "ray/rollout.py: _post_process_rewards": [GROUP_STD_1],
        SLIME_LOSS: [
            {**SYMMETRIC, **SEQUENCE_MEANS, "dual_clip": 1.5},
            {**SYMMETRIC, **weight("truncate", low=0.0, cap=2.0)},
            {**SYMMETRIC, "surrogate": "cispo", **SEQUENCE_MEANS},
        ],
        SKYRL_ADVANTAGES: [{**GROUP_STD_1, "size_1": "raw"}],
        SKYRL_LOSS: [
            CLAMPED,
            {**CLAMPED, **SEQUENCE_MEANS},
            {**CLAMPED, "aggregation": "prompt_mean_of_token_mean"},
            {**CLAMPED, "aggregation": "sum_over_constant", "divisor": 5.0 * 13.0},
            {**CLAMPED, "dual_clip": 3.0},
            {**CLAMPED, **penalty("k3", 0.001)},
        ],
        SKYRL_WEIGHTS: [
            {**CLAMPED, **weight("truncate", cap=2.0)},
            {**CLAMPED, **weight("truncate", "sequence_product", cap=5.0)},
            {**CLAMPED, **weight("keep_or_drop", "sequence_geometric_mean", low=0.99, cap=1.01)},
            {**CLAMPED, **weight("keep_or_drop", "sequence_product", low=0.5, cap=2.0)},
        ],
        PRIME_RL + "trainer/rl/loss.py: default_loss_fn, inside its bound": [
            {"ratio": "sampler", "eps_low": None, "eps_high": None}
        ],
    }.items()
    for settings in several
]

OLMORL: Settings = {
    "center": "group_mean", "scale": "none", "ddof": 0, "std_eps": 1e-6, "size_1": "zero", "zero_std": "divide",
    "advantage_clip": None, "zero_signal_groups": "dropped", "surrogate": "ratio_clip", "ratio": "old",
    "ratio_level": "token", "log_ratio_low": None, "log_ratio_high": None, "eps_low": 0.2, "eps_high": 0.272,
    "dual_clip": None, "delta": None, "aggregation": "token_mean", "divisor": None, "sampler_mode": "none",
    "sampler_level": "token", "sampler_low": None, "sampler_cap": None, "sampler_log_clamp": None, "kl": None,
}  # fmt: skip
"""What a recipe file leaves out: OLMo 3, arXiv 2512.13961, section 4.4.1."""


def worked_out(settings: Settings) -> tuple[list[float], float]:
    """Advantages and objective of ROLLOUTS, by the slow reference."""
    kl = settings.get("kl") or {"estimator": None, "coefficient": 0.0}
    said = {**OLMORL, **settings, "kl": kl["estimator"], "kl_coefficient": kl["coefficient"]}
    recipe = SimpleNamespace(**said)
    rewards, groups, one = ROLLOUTS["reward"], ROLLOUTS["prompt_id"], [0] * len(ROLLOUTS["reward"])
    advantages = reference.advantages(rewards, groups, recipe, one)
    rewards_of = {group: {r for r, g in zip(rewards, groups, strict=True) if g == group} for group in groups}
    counted = [recipe.zero_signal_groups == "kept" or len(rewards_of[group]) > 1 for group in groups]
    answers = [
        {
            role: [Decimal(v) for v, real in zip(ROLLOUTS[f"logp_{column}"][i], mask, strict=True) if real]
            for role, column in (("new", "new"), ("old", "old"), ("sampler", "sampler"), ("reference", "ref"))
        }
        for i, mask in enumerate(ROLLOUTS["mask"])
    ]
    (value,) = reference.objective(answers, advantages, groups, one, counted, recipe)
    return advantages, float(value)
