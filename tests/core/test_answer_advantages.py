"""`group_statistics` and `answer_advantages`: any recipe over uneven, interleaved groups."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from olmorl_cli.core.advantages import answer_advantages, group_deviations, group_statistics
from olmorl_cli.core.named import NAMED
from olmorl_cli.core.recipes import CHOICES, Recipe
from tests.core import reference

QUICK = settings(max_examples=50, deadline=None, derandomize=True, database=None)
NAN = math.nan

GROUPS = {
    "lone": [0.7],
    "two": [0.0, 1.0],
    "identical, inexact": [0.1, 0.1, 0.1],
    "lone success": [1.0, 0.0, 0.0, 0.0, 0.0],
    "lone failure": [1.0, 0.3, 1.0, 1.0],
    "two and two": [0.3, 0.1, 0.3, 0.1],
    "spread": [0.05, 0.93, -2.5, 3.1, 0.2, 0.2, 1.7],
    "near": [0.5, 0.5, 0.5 + 2.0**-20, 0.5 - 2.0**-20],
    "some unscorable": [0.2, NAN, 0.9, math.inf, 0.4, -math.inf],
    "one scorable": [NAN, 0.6],
    "others identical": [0.25, NAN, 0.25, 0.75],
    "none scorable": [NAN, NAN],
}
SETTINGS = [
    {"center": center, "scale": scale, "ddof": ddof, "size_1": size_1, "zero_std": zero_std, "advantage_clip": clip}
    for center, scale, ddof, size_1, zero_std, clip in itertools.product(
        *(CHOICES[field] for field in ("center", "scale", "ddof", "size_1", "zero_std")), (None, (-0.9, 1.1))
    )
]
SCALED = [Recipe(center=center, scale=scale) for center in CHOICES["center"] for scale in CHOICES["scale"]]


def interleaved(seed=3):
    """The rows of GROUPS in a random order: rewards, codes, and batches by the parity of the group."""
    rows = [(reward, code) for code, rewards in enumerate(GROUPS.values()) for reward in rewards]
    order = np.random.default_rng(seed).permutation(len(rows))
    rewards = np.array([rows[i][0] for i in order])
    codes = np.array([rows[i][1] for i in order], dtype=np.int64)
    return rewards, codes, codes % 2


def scored(rewards, recipe, codes=None, batches=None):
    """Advantages of one group, or of the groups of `codes`."""
    rewards = np.array(rewards, dtype=np.float64)
    codes = np.zeros(rewards.size, dtype=np.int64) if codes is None else codes
    statistics = group_statistics(rewards, codes, int(codes.max(initial=-1)) + 1)
    return answer_advantages(rewards, codes, statistics, recipe, batches)


def test_statistics_of_interleaved_groups():
    """Against Python's own min, max and an exact mean of each group's finite rewards."""
    rewards, codes, _ = interleaved()
    statistics = group_statistics(rewards, codes, len(GROUPS))
    for code, group in enumerate(GROUPS.values()):
        finite = [reward for reward in group if math.isfinite(reward)]
        assert (statistics.size[code], statistics.count[code]) == (len(group), len(finite))
        assert statistics.kept[code] == (len(set(finite)) > 1)
        expected = [float(reference.mean(finite)), min(finite), max(finite)] if finite else [NAN, NAN, NAN]
        values = [statistics.mean[code], statistics.min[code], statistics.max[code]]
        assert np.allclose(values, expected, rtol=1e-15, atol=0, equal_nan=True)


def test_statistics_of_groups_in_order_equal_those_of_interleaved_ones():
    """Two ways to the extremes, one for rows that lie group after group."""
    rewards, codes, _ = interleaved()
    order = np.argsort(codes, kind="stable")
    mixed = group_statistics(rewards, codes, len(GROUPS) + 1)  # and one group without answers
    sorted_ = group_statistics(rewards[order], codes[order], len(GROUPS) + 1)
    for field in ("size", "count", "mean", "min", "max", "kept"):
        assert getattr(mixed, field).tobytes() == getattr(sorted_, field).tobytes()
    assert (mixed.size[-1], mixed.count[-1], mixed.kept[-1]) == (0, 0, False)
    assert np.isnan(mixed.mean[-1])


@pytest.mark.parametrize("rewards", [[0.0, -0.0], [0.0, -0.0, 1.0], [-0.0, 0.0, -1.0]])
def test_statistics_of_both_zeros_do_not_depend_on_their_order(rewards):
    """0.0 and -0.0 are equal, so which of them comes first must not show in the bits."""
    codes = np.zeros(len(rewards), dtype=np.int64)
    forth, back = group_statistics(np.array(rewards), codes, 1), group_statistics(np.array(rewards[::-1]), codes, 1)
    for field in ("mean", "min", "max"):
        assert getattr(forth, field).tobytes() == getattr(back, field).tobytes()


@pytest.mark.parametrize("ddof", [0, 1])
@pytest.mark.parametrize("size", [1e-300, 1e-155, 1.0, 1e155, 1e300])
def test_deviations_of_any_size(size, ddof):
    """Of (s, 2s, 4s): mean 7s/3, squares (16 + 1 + 25)/9 s² = 14/3 s², over 3 - ddof."""
    rewards, codes = np.array([1.0, 2.0, 4.0]) * size, np.zeros(3, dtype=np.int64)
    deviations = group_deviations(rewards, codes, group_statistics(rewards, codes, 1), ddof)
    assert deviations[0] == pytest.approx(size * math.sqrt(14 / 3 / (3 - ddof)), rel=1e-14)


@pytest.mark.parametrize("choice", SETTINGS, ids=lambda c: "-".join(map(str, c.values())))
def test_advantages_equal_the_slow_reference(choice):
    """Every center, scale, ddof, size_1, zero_std and clip, over all groups at once."""
    rewards, codes, batches = interleaved()
    expected = reference.advantages(rewards.tolist(), codes.tolist(), Recipe(**choice), batches.tolist())
    assert scored(rewards, Recipe(**choice), codes, batches) == pytest.approx(expected, rel=1e-9, abs=1e-12, nan_ok=True)


@pytest.mark.parametrize(
    ("recipe", "rewards", "expected"),
    [
        ("open-instruct", [1, 0, 0, 0], [0.75, -0.25, -0.25, -0.25]),
        ("open-instruct", [10] + [0] * 7, [8.75] + [-1.25] * 7),
        ("trl", [1, 0, 0, 0], [1.4997001] + [-0.4999000] * 3),
        ("trl", [1, 2, 3, 4], [-1.1618049, -0.3872683, 0.3872683, 1.1618049]),
        ("trl", [0.35] * 7 + [0.95], [-0.3533868] * 7 + [2.4737077]),
        ("verl", [1, 0, 0, 0], [1.499997] + [-0.499999] * 3),
        ("verl", [0, 1], [-0.7071058, 0.7071058]),
        ("verl", [0.7], [0.6999993]),
        ("skyrl", [0.7], [0.6999993]),
        ("openrlhf", [10] + [0] * 7, [2.4748738] + [-0.3535534] * 7),
        ("nemo-rl", [1, 0, 0, 0], [1.0] + [-0.5773493] * 3),
        ("nemo-rl", [0, 1], [-1.0, 1.0]),
        ("nemo-rl", [10] + [0] * 7, [10.0] + [-0.3779644] * 7),
        ("slime", [1, 1, 0, 0], [0.8660239, 0.8660239, -0.8660239, -0.8660239]),
        ("rloo", [1, 2, 3], [-1.5, 0.0, 1.5]),
    ],
)
def test_named_recipes_give_the_trainers_own_values(recipe, rewards, expected):
    """From runs of the trainers' own functions, float32 for most, so to 6 digits; rloo: 1 - (2 + 3)/2, and so on."""
    assert scored(rewards, NAMED[recipe]()) == pytest.approx(expected, rel=2e-6)


def test_leave_one_out_deviation_of_nemo_rls_own_test():
    """NeMo RL, tests/unit/algorithms/test_utils.py: (1,2,3) has baselines 2.5, 2, 1.5 and deviations √½, √2, √½."""
    recipe = Recipe(center="leave_one_out_mean", scale="leave_one_out_std", ddof=1, std_eps=0.0)
    expected = [-1.5 / math.sqrt(0.5), 0.0, 1.5 / math.sqrt(0.5)]
    assert scored([1, 2, 3], recipe) == pytest.approx(expected, rel=1e-14)


@pytest.mark.parametrize("ddof", [0, 1])
@pytest.mark.parametrize("reward", [0.1, 1 / 3, 1e-8, 1e9, -0.087])
def test_leave_one_out_deviation_is_zero_where_the_others_are_identical(ddof, reward):
    """Then the division is by std_eps alone, 2**-10, or skipped: any residue of the deviation would show in the bits."""
    group = [reward, reward, 5.0, reward, reward]
    base = {"center": "leave_one_out_mean", "ddof": ddof, "std_eps": 2.0**-10}
    plain, divided, skipped = (
        scored(group, Recipe(**base, scale=scale, zero_std=zero_std))[2]
        for scale, zero_std in (("none", "divide"), ("leave_one_out_std", "divide"), ("leave_one_out_std", "skip"))
    )
    assert divided == plain * 2.0**10
    assert skipped == plain


@pytest.mark.parametrize(
    "rewards",
    [[0.0, 1.0, 1e4], [0.0, 1.0, 1e9], [0.0, 1e-9, 1.0], [0.0, 1.0, 2.0, 1e9], [1e9, 0.0, 1.0, -1e9], [1e200, -1e200, 0.0]],
    ids=str,
)
@pytest.mark.parametrize("ddof", [0, 1])
def test_leave_one_out_deviation_beside_an_outlier(rewards, ddof):
    """The outlier's others are near one another: their deviation is not what is left of the whole group's squares."""
    recipe = Recipe(center="leave_one_out_mean", scale="leave_one_out_std", ddof=ddof)
    expected = reference.advantages(rewards, [0] * len(rewards), recipe)
    assert scored(rewards, recipe) == pytest.approx(expected, rel=1e-9)


def test_batch_deviation_is_of_all_rewards_of_the_batch():
    """Batch 0 is (0,1 | 0,0), variance 1/4 - 1/16 = 3/16; batch 1 is (0,4 | 2,2), variance (4 + 4)/4 = 2."""
    rewards, codes = [0, 1, 0, 0, 0, 4, 2, 2], np.array([0, 0, 1, 1, 2, 2, 3, 3])
    advantages = scored(rewards, Recipe(scale="batch_std", std_eps=0.0), codes, np.array([0, 0, 0, 0, 1, 1, 1, 1]))
    first, second = 0.5 / math.sqrt(3 / 16), 2 / math.sqrt(2)
    assert advantages == pytest.approx([-first, first, 0, 0, -second, second, 0, 0], rel=1e-15)


def test_no_batches_are_one_batch():
    """Both groups share the deviation of all four rewards: mean 5/4, squares (25 + 1 + 9 + 49)/16 / 4."""
    advantages = scored([0, 1, 2, 3], Recipe(scale="batch_std", std_eps=0.0), np.array([0, 0, 1, 1]))
    spread = math.sqrt((2.25 + 0.25 + 0.25 + 2.25) / 4)  # mean 3/2
    assert advantages == pytest.approx([-0.5 / spread, 0.5 / spread] * 2, rel=1e-15)


@pytest.mark.parametrize("recipe", SCALED, ids=lambda r: f"{r.center}-{r.scale}")
@pytest.mark.parametrize("seed", [1, 2, 5])
def test_a_permutation_of_the_rows_permutes_the_advantages(recipe, seed):
    """To the last bit."""
    rewards, codes, batches = interleaved()
    order = np.random.default_rng(seed).permutation(rewards.size)
    permuted = scored(rewards[order], recipe, codes[order], batches[order])
    assert permuted.tobytes() == scored(rewards, recipe, codes, batches)[order].tobytes()


@pytest.mark.parametrize("recipe", SCALED, ids=lambda r: f"{r.center}-{r.scale}")
def test_unscorable_answers_leave_the_others_as_they_were(recipe):
    """The same bits as a run without those answers; their own advantage is NaN."""
    rewards, codes, batches = interleaved()
    scorable = np.isfinite(rewards)
    advantages = scored(rewards, recipe, codes, batches)
    assert np.isnan(advantages[~scorable]).all()
    without = scored(rewards[scorable], recipe, codes[scorable], batches[scorable])
    assert advantages[scorable].tobytes() == without.tobytes()


@QUICK
@given(
    st.lists(st.tuples(st.floats(-100, 100), st.integers(0, 3), st.integers(0, 1)), min_size=1, max_size=25),
    st.sampled_from(SCALED),
    st.data(),
)
def test_any_rows_in_any_order(rows, recipe, data):
    """Permuted rows have permuted advantages, to the last bit."""
    rewards, codes, batches = (np.array(column) for column in zip(*rows, strict=True))
    order = np.array(data.draw(st.permutations(range(len(rows)))))
    permuted = scored(rewards[order], recipe, codes[order], batches[order])
    assert permuted.tobytes() == scored(rewards, recipe, codes, batches)[order].tobytes()


@pytest.mark.parametrize("scale", CHOICES["scale"])
def test_identical_inexact_rewards_are_exactly_zero(scale):
    """+0.0 under any scale, whatever the eps."""
    advantages = scored([0.1] * 7, Recipe(scale=scale, center="leave_one_out_mean", std_eps=1e-12))
    assert advantages.tobytes() == np.zeros(7).tobytes()


def test_a_lone_answer_is_zero_or_its_reward():
    """size_1; under group_std verl divides the raw reward by 1 + eps, since it takes deviation 1."""
    assert scored([0.7], Recipe()).tolist() == [0.0]
    assert scored([0.7], Recipe(size_1="raw")).tolist() == [0.7]
    assert scored([0.7], Recipe(size_1="raw", scale="group_std", std_eps=0.25)) == pytest.approx([0.7 / 1.25], rel=1e-15)


def test_the_clip_comes_last():
    """(10, 0, 0, 0) centred is (7.5, -2.5 ...), cut at [-2, 3] (NeMo RL's bounds in its own test)."""
    assert scored([10, 0, 0, 0], Recipe(advantage_clip=(-2.0, 3.0))).tolist() == [3.0, -2.0, -2.0, -2.0]


def test_no_rows():
    """Nothing in, nothing out, under every scale."""
    for recipe in SCALED:
        assert scored([], recipe).shape == (0,)
