"""Each check fires where its one thing is wrong, with the right number, and is silent on healthy rollouts of that size."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from olmorl_cli.checks.catalog import CHECKS, findings_of
from olmorl_cli.checks.evidence import Evidence, Named
from olmorl_cli.checks.finding import CODES, Finding, States
from olmorl_cli.core.recipes import Recipe
from tests.checks.false_alarms import MOST, alarms
from tests.checks.runs import Run, healthy

SEED = 3


def found(run: Run | Evidence, code: str) -> Finding:
    """What a check says of a run."""
    return CHECKS[code](run.evidence() if isinstance(run, Run) else run)


def no_signal_step(run: Run) -> None:
    run.rewards[np.isin(run.step, [4, 12])] = 1.0


def zero_signal(run: Run) -> None:
    """Of every four groups one is all right, one all wrong, and one all halfway."""
    for kind, value in ((0, 1.0), (1, 0.0), (2, 0.5)):
        run.rewards[run.groups % 4 == kind] = value


def signal_thin(run: Run) -> None:
    """Three groups with signal a step, each by one answer."""
    run.rewards[:] = (run.groups % run.prompts < 3) & (np.arange(run.rewards.size) % run.size == 0)


def clip(run: Run) -> None:
    """Every token moves by half a nat, against its advantage's sign as often as with it."""
    run.new[:] = run.old + np.where(np.arange(run.new.size) % 2, 0.5, -0.5)


def mismatch(run: Run) -> None:
    """The sampler's temperature is another."""
    run.sampler = run.old * 0.6


def mismatch_position(run: Run) -> None:
    run.sampler[run.offsets[:-1]] = np.minimum(run.old[run.offsets[:-1]] - 0.6, 0.0)


def length_reward(run: Run) -> None:
    """The longer half of a group is the right one, with some noise."""
    rng = np.random.default_rng(0)
    long = run.lengths + rng.normal(0, 8, run.lengths.size)
    run.rewards = (long > np.median(run.lengths)).astype(np.float64)


def truncated(run: Run) -> None:
    run.cut[::10] = 1.0


def duplicates(run: Run) -> None:
    """Half of the answers are the copy of the one before, with its reward."""
    odd = np.arange(1, run.groups.size, 2)
    run.hashes[odd], run.rewards[odd] = run.hashes[odd - 1], run.rewards[odd - 1]


def components(run: Run) -> None:
    """The format's reward is all there is, but for a little."""
    rng = np.random.default_rng(0)
    run.form = (rng.random(run.groups.size) < 0.5).astype(np.float64)
    run.rewards = run.form + 0.1 * run.rewards


def group_identity(run: Run) -> None:
    """One answer is missing."""
    cut = int(run.offsets[-2])
    run.new, run.old, run.sampler = run.new[:cut], run.old[:cut], run.sampler[:cut]
    for name in ("groups", "rewards", "lengths", "hashes", "cut", "form"):
        setattr(run, name, getattr(run, name)[:-1])


def advantage_formula(run: Run) -> None:
    """The advantages are those of a batch that was whitened afterwards."""
    run.given = (run.rewards - run.rewards.mean()) / run.rewards.std()


def trend(run: Run) -> None:
    """The share of right answers falls from nearly all to nearly none."""
    rng = np.random.default_rng(0)
    chance = np.linspace(0.9, 0.1, run.steps)[run.step]
    run.rewards = (rng.random(run.groups.size) < chance).astype(np.float64)


FAULTS: dict[str, Callable[[Run], None]] = {
    each.__name__: each
    for each in (
        *(no_signal_step, zero_signal, signal_thin, clip, mismatch, mismatch_position, length_reward, truncated),
        *(duplicates, components, group_identity, advantage_formula, trend),
    )
}


@pytest.fixture(scope="module")
def silent() -> dict[str, Finding]:
    return {finding.code: finding for finding in findings_of(healthy(SEED).evidence())}


def test_every_check_has_a_fault_here() -> None:
    assert list(FAULTS) == list(CHECKS) == list(CODES)


@pytest.mark.parametrize("code", CODES)
def test_it_is_silent_on_healthy_data(code: str, silent: dict[str, Finding]) -> None:
    finding = silent[code]
    assert finding.state is States.PASSED, finding
    assert finding.n > 0
    assert (finding.where, finding.action) == ({}, "")


@pytest.mark.parametrize("code", CODES)
def test_it_fires_where_its_one_thing_is_wrong(code: str) -> None:
    run = healthy(SEED)
    FAULTS[code](run)
    finding = found(run, code)
    assert finding.state is States.FIRED, finding
    assert finding.value is not None
    assert finding.action
    assert finding.severity == ("error" if code == "no_signal_step" else "warning")


def test_healthy_runs_alarm_no_one() -> None:
    """The measurement of `python -m tests.checks.false_alarms`, made smaller."""
    counts = alarms(24)
    assert {code: fired for code, (fired, _) in counts.items() if fired > MOST * 24} == {}
    assert {code for code, (_, said) in counts.items() if said < 24} == set()


def test_steps_without_signal_are_named() -> None:
    run = healthy(SEED)
    no_signal_step(run)
    finding = found(run, "no_signal_step")
    assert (finding.value, finding.n, finding.where) == (2, 20, {"steps": [104, 112]})
    assert finding.message.endswith("2 of 20 steps have no group with signal, so their gradient is 0: steps 104, 112")
    assert _one_step(run.evidence()) == "1 of 1 step has no group with signal, so its gradient is 0: step 0"
    alone = found(replace(run.evidence(), steps=None, step_of_group=np.zeros(480, dtype=np.int64)), "no_signal_step")
    assert (alone.state, alone.n) == (States.PASSED, 1)


def _one_step(e: Evidence) -> str:
    """What is said where all answers are of one step, with one reward."""
    one = replace(e, steps=[0], step_order=np.zeros(1, dtype=np.int64), step_of_group=np.zeros(480, dtype=np.int64))
    return found(replace(one, rewards=np.ones(e.rewards.size)), "no_signal_step").message


def test_sorts_of_sameness_are_counted_apart() -> None:
    run = healthy(SEED)
    zero_signal(run)
    finding = found(run, "zero_signal")
    assert finding.value == int((~found_kept(run)).sum()) / 480
    assert "all at 1, " in finding.message
    assert "120 all equal between" in finding.message


def test_groups_of_each_sort_are_named() -> None:
    run = healthy(SEED)
    zero_signal(run)
    finding = found(run, "zero_signal")
    first = {
        value: next(g for g in range(480) if (run.rewards[run.groups == g] == value).all()) for value in (0.0, 0.5, 1.0)
    }
    assert set(first.values()) == set(finding.group_numbers[:3])
    assert len(finding.group_numbers) == len(finding.where["groups"]) == 5
    run.rewards[:] = 1.0
    finding = found(run, "zero_signal")
    assert finding.group_numbers == (0, 1, 2, 3, 4)
    assert finding.message.endswith("(limit 50.0 % of the groups): 480 groups all at 1")
    assert "group_numbers" not in finding.record()


def found_kept(run: Run) -> np.ndarray:
    """Which groups have two rewards, counted slowly."""
    by_group = run.rewards.reshape(-1, run.size)
    return np.array([len(set(group.tolist())) > 1 for group in by_group])


def test_thin_steps_tell_the_groups_that_one_answer_carries() -> None:
    run = healthy(SEED)
    signal_thin(run)
    finding = found(run, "signal_thin")
    assert finding.value == 1.0
    assert "the median step has 3 kept groups, worth 3.0 by their sums" in finding.message
    assert finding.message.endswith("60 of 60 kept groups are carried by one answer")


def test_the_clips_share_of_the_advantages() -> None:
    run = healthy(SEED)
    run.recipe = Recipe(eps_low=0.2, eps_high=0.2)
    run.new[:] = run.old
    first = run.offsets[:-1]
    run.new[first] = run.old[first] - 1.0
    finding = found(run, "clip")
    advantages = run.evidence().advantages
    lost = np.abs(advantages[advantages < 0]).sum()  # one token of each answer below the bound
    assert finding.value == pytest.approx(lost / (np.abs(advantages) * run.lengths).sum(), rel=1e-12)
    assert "of the counted tokens, those unmasked in kept groups" in finding.message
    assert f"{int(run.lengths[advantages < 0].sum()):,} with A < 0 lie below" in finding.message
    assert "0.0 % of" in finding.message


def test_old_equal_to_new_leaves_nothing_to_clip() -> None:
    run = healthy(SEED)
    run.new[:] = run.old
    finding = found(run, "clip")
    assert (finding.state, finding.value, finding.n) == (States.NOT_AVAILABLE, None, 0)
    assert "old equals new" in finding.message


def test_one_sign_of_mismatch_alone_does_not_fire() -> None:
    """A few tokens that lie far off blow the weights up, but neither the bulk nor the confident ones."""
    run = healthy(SEED)
    run.sampler[:5] = run.old[:5] - 9.0
    finding = found(run, "mismatch")
    assert finding.value is not None
    assert finding.value > 0.1
    assert finding.state is States.PASSED
    run.old[1000:1010], run.sampler[1000:1010] = -6.0, -0.01
    assert found(run, "mismatch").fired, "the confident ones disagree as well"


def test_the_mismatch_is_that_of_the_formulas() -> None:
    run = healthy(SEED)
    mismatch(run)
    finding, d = found(run, "mismatch"), run.old - run.sampler
    assert finding.value == pytest.approx(np.mean(np.exp(d) - 1 - d), rel=1e-9)
    assert f"mean {np.mean(np.abs(d)):.3g} (limit" in finding.message
    assert f"k1 {np.mean(-d):.3g}" in finding.message
    measured = run.evidence().mismatch
    assert measured is not None
    assert measured.quantile(0.99) == pytest.approx(np.quantile(np.abs(d), 0.99), rel=0.01)


def test_the_same_log_probs_twice_are_no_match() -> None:
    run = healthy(SEED)
    run.sampler = run.old.copy()
    for code in ("mismatch", "mismatch_position"):
        assert found(run, code).state is States.NOT_AVAILABLE
        assert "written twice" in found(run, code).message


def test_the_place_is_named() -> None:
    run = healthy(SEED)
    mismatch_position(run)
    assert found(run, "mismatch_position").where == {"places": ["first token"]}
    last = healthy(SEED)
    last.sampler[last.offsets[1:] - 1] -= 0.6
    assert found(last, "mismatch_position").where == {"places": ["last token"]}


def test_short_answers_that_are_rewarded_are_a_note() -> None:
    run = healthy(SEED)
    length_reward(run)
    longer = found(run, "length_reward")
    run.rewards = 1.0 - run.rewards
    shorter = found(run, "length_reward")
    assert (longer.severity, shorter.severity) == ("warning", "note")
    assert shorter.fired
    assert shorter.value == pytest.approx(-longer.value)


def test_cut_answers_that_are_masked_are_a_note() -> None:
    run = healthy(SEED)
    truncated(run)
    assert found(run, "truncated").value == pytest.approx(np.mean(run.cut))
    evidence = run.evidence()
    assert evidence.sums is not None
    masked = replace(evidence.sums, tokens=np.where(run.cut > 0, 0, run.lengths))
    finding = found(replace(evidence, sums=masked), "truncated")
    assert (finding.severity, finding.fired) == ("note", True)
    in_dead = int((run.cut.astype(bool) & ~evidence.kept).sum())
    assert f"{in_dead} of them are in groups without signal" in finding.message
    assert f"{int(run.cut.sum())} are masked wholly" in finding.message


def test_one_answer_with_two_rewards_is_a_noisy_verifier() -> None:
    run = healthy(SEED)
    at = int(np.flatnonzero((run.rewards[1:] != run.rewards[:-1]) & (run.groups[1:] == run.groups[:-1]))[0])
    run.hashes[at + 1] = run.hashes[at]
    finding = found(run, "duplicates")
    assert finding.fired
    assert finding.where == {"rows": [at, at + 1]}
    assert " different ones come more than once, 1 of these with different rewards (limit 0)" in finding.message
    assert finding.value is not None
    assert (
        f"{100 * finding.value:.1f} % of {run.groups.size:,} answers are surplus copies: their completion" in finding.message
    )


def test_every_copy_but_the_first_is_a_surplus_one() -> None:
    run = healthy(SEED)
    run.hashes[:], run.rewards[:] = np.arange(run.groups.size), run.rewards[0]
    run.hashes[:3] = 0
    finding = found(run, "duplicates")
    assert finding.value == 2 / run.groups.size
    assert "1 different ones come more than once, 0 of these with different rewards" in finding.message


def test_a_length_says_what_it_counts() -> None:
    run = healthy(SEED)
    for unit in ("unmasked tokens", "letters"):
        message = found(replace(run.evidence(), length_unit=unit), "length_reward").message
        assert message.startswith(f"Spearman's rank correlation of length ({unit} of the answer) and reward inside a group")


def test_copies_in_other_groups_are_none() -> None:
    run = healthy(SEED)
    run.hashes[:] = np.arange(run.groups.size) % run.size
    assert found(run, "duplicates").value == 0.0


def test_the_parts_of_a_sum_share_its_variance() -> None:
    run = healthy(SEED)
    run.form = np.random.default_rng(0).normal(0.0, 0.3, run.groups.size)
    total = run.rewards + run.form
    evidence = replace(run.evidence(), rewards=total)
    message = found(evidence, "components").message
    shares = [float(word) for word in message.replace(",", " ").split() if word.replace(".", "").isdigit()][:2]
    assert sum(shares) == pytest.approx(100.0, abs=0.11)


def test_a_reward_that_is_never_given_is_a_note() -> None:
    run = healthy(SEED)
    run.form = np.zeros(run.groups.size)
    finding = found(run, "components")
    assert (finding.fired, finding.severity, finding.where) == (True, "note", {"columns": ["format_reward"]})
    run.form += 1.0
    assert not found(run, "components").fired, "always given is what is hoped for"


def test_ids_of_answers_are_no_ids_of_groups() -> None:
    run = healthy(SEED)
    n = run.groups.size
    evidence = replace(run.evidence(), groups=np.arange(n), step_of_group=run.step, ids=n)
    finding = found(evidence, "group_identity")
    assert (finding.fired, finding.value, finding.n) == (True, 1.0, n)


def test_the_group_that_lacks_an_answer_is_named() -> None:
    run = healthy(SEED)
    group_identity(run)
    finding = found(run, "group_identity")
    assert (finding.value, finding.where) == (1 / 480, {"groups": ["p479"]})
    assert "1 have fewer and 0 more" in finding.message


@pytest.mark.parametrize(
    ("recipe", "words"),
    [
        (Recipe(), "reward - group mean, "),
        (Recipe(center="leave_one_out_mean"), "reward - mean of the group's others, "),
        (Recipe(scale="group_std"), "(reward - group mean) / (group std + 1e-6), ddof 0, "),
        (Recipe(scale="group_std", ddof=1, std_eps=1e-4), "(reward - group mean) / (group std + 1e-4), ddof 1, "),
        (Recipe(scale="batch_std", ddof=1, std_eps=1e-8), "(reward - group mean) / (std of the step + 1e-8), ddof 1, "),
    ],
    ids=str,
)
def test_formulas_are_told_apart(recipe: Recipe, words: str) -> None:
    run = healthy(SEED)
    scored = replace(run, recipe=recipe).evidence()
    advantages = scored.advantages
    if recipe.scale == "batch_std":
        deviations = np.array([run.rewards[run.step == step].std(ddof=1) for step in range(run.steps)])
        advantages = replace(run, recipe=Recipe()).evidence().advantages / (deviations[run.step] + 1e-8)
    finding = found(replace(scored, given=Named("advantage", advantages)), "advantage_formula")
    assert finding.message.startswith(f"advantage is {words}to "), finding.message
    assert finding.value == pytest.approx(0.0, abs=1e-12)


def test_a_trend_that_chance_explains_does_not_fire() -> None:
    """A series that wanders, and ends lower than it began by chance."""
    fired = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        level = np.zeros(24)
        for step in range(1, 24):
            level[step] = 0.7 * level[step - 1] + rng.normal(0.0, 0.1)
        run = healthy(0, steps=24, prompts=4, size=4, mean_length=2)
        run.rewards = np.clip(0.5 + level[run.step], 0.0, 1.0)
        fired += found(run, "trend").fired
    assert fired <= 2
    falling = healthy(SEED)
    trend(falling)
    assert found(falling, "trend").value == pytest.approx(0.8, abs=0.06)


def test_a_sampler_that_moves_away_is_a_trend() -> None:
    run = healthy(SEED)
    wide = np.repeat(np.linspace(0.0, 0.05, run.steps)[run.step], run.lengths)
    run.sampler = np.minimum(run.old - wide, 0.0)
    finding = found(run, "trend")
    assert finding.fired
    assert "the mean |logp_old - logp_sampler| by +0.05" in finding.message


BARE = {
    "clip": {"sums": None, "columns": {"logp_new": "logp_new"}},
    "mismatch": {"mismatch": None, "columns": {"logp_old": "logp_old"}},
    "mismatch_position": {"mismatch": None, "columns": {"logp_old": "logp_old"}},
    "length_reward": {"lengths": None},
    "truncated": {"cut": None},
    "duplicates": {"texts": None},
    "components": {"components": ()},
    "group_identity": {"group_ids": None},
    "advantage_formula": {"given": None},
    "trend": {"steps": None},
}
NEEDED = {
    "clip": "logp_old",
    "mismatch": "logp_sampler",
    "mismatch_position": "logp_sampler",
    "length_reward": "log-probs",
    "truncated": "finish_reason",
    "duplicates": "completion",
    "components": "reward",
    "group_identity": "consecutive rows",
    "advantage_formula": "advantage",
    "trend": "steps",
}


@pytest.mark.parametrize("code", BARE)
def test_what_lacks_a_column_says_which(code: str) -> None:
    finding = found(replace(healthy(SEED).evidence(), **BARE[code]), code)
    assert (finding.state, finding.value, finding.n) == (States.NOT_AVAILABLE, None, 0)
    assert NEEDED[code] in finding.message


def test_nothing_is_said_of_nothing() -> None:
    run = healthy(SEED)
    empty = replace(run.evidence(), groups=run.groups[:0])
    assert {(finding.code, finding.state) for finding in findings_of(empty)} == {
        (code, States.NOT_AVAILABLE) for code in CODES
    }


def test_records_have_these_keys() -> None:
    record = found(healthy(SEED), "zero_signal").record()
    assert list(record) == ["code", "state", "severity", "value", "n", "where", "message", "action"]
    assert type(record["state"]) is str
