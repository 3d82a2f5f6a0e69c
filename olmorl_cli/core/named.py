"""The named recipes, each with its source. Trainers' ones are their defaults, as far as the fields can say them."""

from collections.abc import Callable

from olmorl_cli.core.recipes import Recipe


def olmorl() -> Recipe:
    """OLMo 3's OlmoRL: arXiv 2512.13961 (v2, April 2026), section 4.4.1, eq. 1-2, table 49; 7B Think had no sampler cap."""
    return Recipe()


def olmorl_tis() -> Recipe:
    """OlmoRL with truncated importance sampling at 2.0, as 32B Think: arXiv 2512.13961, table 49; the log-weight is clamped
    to ±10 as in open-instruct (e6c3044a), open_instruct/grpo_utils.py."""
    return Recipe(name="olmorl-tis", sampler_mode="truncate", sampler_cap=2.0, sampler_log_clamp=10.0)


def grpo() -> Recipe:
    """GRPO: DeepSeekMath, arXiv 2402.03300, section 4.1, eq. 3; group standard deviation (ddof 0), sequence means, no KL."""
    return Recipe(
        name="grpo",
        scale="group_std",
        eps_high=0.2,
        aggregation="sequence_mean_of_token_mean",
        zero_signal_groups="kept",
    )


def dapo() -> Recipe:
    """DAPO: arXiv 2503.14476, eq. 8-9 and section 4.1; clip-higher 0.28, token mean, groups without signal filtered."""
    return Recipe(name="dapo", scale="group_std", eps_high=0.28)


def dr_grpo() -> Recipe:
    """Dr. GRPO: arXiv 2503.20783, section 3.2; no division by the deviation. Its sum over a constant is here a token sum
    per answer, since the constant (the generation budget) is not in the data."""
    return Recipe(name="dr-grpo", eps_high=0.2, aggregation="sequence_mean_of_token_sum", zero_signal_groups="kept")


def gspo() -> Recipe:
    """GSPO: arXiv 2507.18071, eq. 5-7 and section 5.1; sequence-level ratio, bounds 3e-4 below and 4e-4 above."""
    return Recipe(
        name="gspo",
        scale="group_std",
        ratio_level="sequence_mean",
        eps_low=3e-4,
        eps_high=4e-4,
        aggregation="sequence_mean_of_token_mean",
        zero_signal_groups="kept",
    )


def cispo() -> Recipe:
    """CISPO: MiniMax-M1, arXiv 2506.13585, eq. 4-5; the ratio is cut above only, and held constant. The paper tunes its
    bound without printing it; 0.272 is OlmoRL's."""
    return Recipe(name="cispo", surrogate="cispo", scale="group_std", eps_low=None, zero_signal_groups="kept")


def rloo() -> Recipe:
    """RLOO: arXiv 2402.14740, eq. 7; the baseline is the mean of the other answers, sums over tokens, no clip."""
    return Recipe(
        name="rloo",
        center="leave_one_out_mean",
        eps_low=None,
        eps_high=None,
        aggregation="sequence_mean_of_token_sum",
        zero_signal_groups="kept",
    )


def open_instruct() -> Recipe:
    """open-instruct e6c3044a (August 2026), open_instruct/data_loader.py and grpo_utils.py: centred advantages, groups of
    deviation 0 dropped, 0.2 / 0.272, all response tokens; weight clamped to ±10 in log and cut at 2.0."""
    return Recipe(name="open-instruct", std_eps=1e-8, sampler_mode="truncate", sampler_cap=2.0, sampler_log_clamp=10.0)


def trl() -> Recipe:
    """TRL f2cd5771 (1.10.0.dev0, July 2026), trl/trainer/grpo_trainer.py and grpo_config.py: ddof 1, 1e-4, loss_type dapo,
    sequence_mask correction at 3.0."""
    return Recipe(
        name="trl",
        scale="group_std",
        ddof=1,
        std_eps=1e-4,
        eps_high=0.2,
        zero_signal_groups="kept",
        sampler_mode="mask",
        sampler_level="sequence_product",
        sampler_cap=3.0,
    )


def verl() -> Recipe:
    """verl 1dda039b (August 2026), verl/trainer/ppo/core_algos.py: ddof 1, 1e-6, a lone answer keeps its reward, log-ratio
    clamped to ±20, dual clip 3, token-mean."""
    return Recipe(
        name="verl",
        scale="group_std",
        ddof=1,
        size_1="raw",
        zero_signal_groups="kept",
        log_ratio_low=-20.0,
        log_ratio_high=20.0,
        eps_high=0.2,
        dual_clip=3.0,
    )


def openrlhf() -> Recipe:
    """OpenRLHF 3c3be623 (August 2026), openrlhf/trainer/ppo_utils/experience_maker.py and models/loss.py, with
    advantage estimator group_norm: ddof 1, 1e-9, advantages cut to ±10, log-ratio clamped to ±20, token level."""
    return Recipe(
        name="openrlhf",
        scale="group_std",
        ddof=1,
        std_eps=1e-9,
        advantage_clip=(-10.0, 10.0),
        zero_signal_groups="kept",
        log_ratio_low=-20.0,
        log_ratio_high=20.0,
        eps_high=0.2,
    )


def nemo_rl() -> Recipe:
    """NeMo RL 7ea279ab (August 2026), nemo_rl/algorithms/advantage_estimator.py and loss/loss_functions.py: mean and
    deviation of the other answers, 1e-6, 0.2 / 0.2, all valid tokens (its KL term of 0.01 is left out)."""
    return Recipe(
        name="nemo-rl",
        center="leave_one_out_mean",
        scale="leave_one_out_std",
        ddof=1,
        zero_std="skip",
        zero_signal_groups="kept",
        eps_high=0.2,
    )


def slime() -> Recipe:
    """slime 624b824a (August 2026), slime/ray/rollout.py and slime/utils/ppo_utils.py: ddof 1, 1e-6, 0.2 / 0.2, mean over
    answers of their token means."""
    return Recipe(
        name="slime",
        scale="group_std",
        ddof=1,
        eps_high=0.2,
        aggregation="sequence_mean_of_token_mean",
        zero_signal_groups="kept",
    )


def skyrl() -> Recipe:
    """SkyRL a9564572 (August 2026), skyrl/backends/skyrl_train/utils/ppo_utils.py: as verl's advantages, log-ratio clamped
    to ±20, 0.2 / 0.2, token mean (its KL term of 0.001 is left out)."""
    return Recipe(
        name="skyrl",
        scale="group_std",
        ddof=1,
        size_1="raw",
        zero_signal_groups="kept",
        log_ratio_low=-20.0,
        log_ratio_high=20.0,
        eps_high=0.2,
    )


def prime_rl() -> Recipe:
    """prime-rl 559b4477 (August 2026), src/prime_rl/orchestrator/algo/grpo.py and trainer/rl/loss.py: centred advantages,
    ratio of trainer to sampler, token mean. Its bound on the difference of probabilities has no field here: no clip."""
    return Recipe(name="prime-rl", ratio="sampler", eps_low=None, eps_high=None)


NAMED: dict[str, Callable[[], Recipe]] = {
    recipe.__name__.replace("_", "-"): recipe
    for recipe in (
        olmorl,
        olmorl_tis,
        grpo,
        dapo,
        dr_grpo,
        gspo,
        cispo,
        rloo,
        open_instruct,
        trl,
        verl,
        openrlhf,
        nemo_rl,
        slime,
        skyrl,
        prime_rl,
    )
}
"""Every named recipe."""
