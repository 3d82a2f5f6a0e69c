"""`group_advantages` and `nonzero_signal_groups`: worked values, refusals, and what must never change them."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from olmorl_cli.core import group_advantages, nonzero_signal_groups
from olmorl_cli.core.recipes import Recipe
from tests.core import reference

QUICK = settings(max_examples=60, deadline=None, derandomize=True, database=None)
MODERATE = st.floats(-1e6, 1e6, allow_subnormal=False)
BOTH = pytest.mark.parametrize("function", [group_advantages, nonzero_signal_groups])


@st.composite
def groups_of(draw, values=MODERATE, most_groups=4):
    """Rewards of some groups of G, and G."""
    G = draw(st.integers(1, 8))
    number = draw(st.integers(1, most_groups))
    return draw(st.lists(values, min_size=number * G, max_size=number * G)), G


def flat(*groups):
    """Groups one after another."""
    return [reward for group in groups for reward in group]


def test_centred_values():
    """Means 2/4, 3/4, 1/4: the project's worked values."""
    rewards = flat((1, 0, 0, 1), (1, 1, 1, 0), (1, 0, 0, 0))
    expected = flat((0.5, -0.5, -0.5, 0.5), (0.25, 0.25, 0.25, -0.75), (0.75, -0.25, -0.25, -0.25))
    assert group_advantages(rewards, 4).tolist() == expected


def test_divided_values():
    """±1, ±(0.58, 1.73): deviations are sqrt(1/4), sqrt(3/16), sqrt(3/16), each with 1e-6 added."""
    advantages = group_advantages(flat((1, 0, 0, 1), (1, 1, 1, 0), (1, 0, 0, 0)), 4, normalize_std=True)
    shown = flat((1, -1, -1, 1), (0.58, 0.58, 0.58, -1.73), (1.73, -0.58, -0.58, -0.58))
    assert np.round(advantages, 2).tolist() == shown
    half, three = 0.5 + 1e-6, math.sqrt(3) / 4 + 1e-6
    low, high = 0.25 / three, 0.75 / three
    one = 0.5 / half
    assert advantages == pytest.approx(
        flat((one, -one, -one, one), (low, low, low, -high), (high, -low, -low, -low)), rel=1e-15
    )


@pytest.mark.parametrize(
    ("rewards", "expected"),
    [
        ([1, 0, 0, 0], [1.73204681, -0.57734894, -0.57734894, -0.57734894]),
        ([1, 1, 0, 0], [0.999998, 0.999998, -0.999998, -0.999998]),
        ([1, 2, 3, 4], [-1.34163959, -0.44721320, 0.44721320, 1.34163959]),
    ],
)
def test_divided_values_worked_apart(rewards, expected):
    """ddof 0 and 1e-6 added, computed outside this project in float64, to the 8 decimals noted there."""
    assert group_advantages(rewards, 4, True) == pytest.approx(expected, abs=6e-9)


def test_kept_groups():
    """(1,1,1,1) and (0,0,0,0) have no signal."""
    rewards = flat((1, 0, 0, 1), (1, 1, 1, 1), (1, 1, 1, 0), (0, 0, 0, 0))
    kept = nonzero_signal_groups(rewards, 4)
    assert kept.dtype == np.bool_
    assert kept.tolist() == [True, False, True, False]


def test_epsilon_is_added_to_the_deviation():
    """Mean 1/2 + 1e-9/4, so 3/4 1e-9 above it over sqrt(3)/4 1e-9 + 1e-6; a floor of 1e-6 would give 7.5e-4 exactly."""
    rewards = [0.5, 0.5, 0.5, 0.5 + 1e-9]
    assert group_advantages(rewards, 4)[3] == pytest.approx(7.5e-10, rel=1e-6)
    expected = 7.5e-10 / (math.sqrt(3) / 4 * 1e-9 + 1e-6)
    assert group_advantages(rewards, 4, True)[3] == pytest.approx(expected, rel=1e-6)
    assert expected < 7.498e-4


@pytest.mark.parametrize(("number", "reward"), [(3, -0.087), (7, 0.1), (6, 1.1), (10, 0.3), (9, 1e300), (5, 1e-320)])
@pytest.mark.parametrize("normalize_std", [False, True])
def test_identical_inexact_rewards_have_no_signal(number, reward, normalize_std):
    """A rounded mean of such rewards differs from them, and np.std is then above 0; the advantage is exactly +0.0."""
    advantages = group_advantages([reward] * number, number, normalize_std)
    assert advantages.tobytes() == np.zeros(number).tobytes()
    assert nonzero_signal_groups([reward] * number, number).tolist() == [False]


@pytest.mark.parametrize("reward", [1.0, 0.1, -0.087, 1e300, 1e-320, 0.0])
def test_rewards_one_ulp_apart_are_kept(reward):
    """However small the difference."""
    assert nonzero_signal_groups([reward, reward, np.nextafter(reward, np.inf)], 3).tolist() == [True]


def test_both_zeros_are_identical():
    """0.0 == -0.0."""
    assert nonzero_signal_groups([0.0, -0.0], 2).tolist() == [False]
    assert group_advantages([0.0, -0.0, -0.0], 3).tobytes() == np.zeros(3).tobytes()


def test_a_group_of_one():
    """Has nothing to be compared with."""
    assert group_advantages([0.7, -3.0], 1, True).tolist() == [0.0, 0.0]
    assert nonzero_signal_groups([0.7, -3.0], 1).tolist() == [False, False]


def test_means_near_the_end_of_the_range():
    """(3 - 1) 1e308 / 4 = 5e307, though the sum of three overflows."""
    assert group_advantages([1e308] * 3 + [-1e308], 4) == pytest.approx([5e307] * 3 + [-1.5e308], rel=1e-15)
    assert nonzero_signal_groups([1e308] * 3 + [-1e308], 4).tolist() == [True]


@pytest.mark.parametrize("size", [1e-300, 1e-160, 1e160, 1e300, 1.7e308])
def test_squares_neither_overflow_nor_underflow(size):
    """±size: deviation `size`, so ±size / (size + 1e-6)."""
    expected = size / (size + 1e-6)
    assert group_advantages([size, -size], 2, True) == pytest.approx([expected, -expected], rel=1e-15)


def test_a_divided_advantage_stays_finite_where_the_centred_one_would_overflow():
    """One of ten at +a, nine at -a: mean -0.8a, deviation sqrt(0.36 4/4) a = 0.6a, so (1.8, -0.2)a / 0.6a = 3, -1/3."""
    assert group_advantages([1.7e308] + [-1.7e308] * 9, 10, True) == pytest.approx([3.0] + [-1 / 3] * 9, rel=1e-14)


@pytest.mark.parametrize("kind", [np.int8, np.uint8, np.int64, np.bool_, np.float16, np.float32, np.float64, list, tuple])
def test_types_of_rewards(kind):
    """Mean 3/4 in any type, float64 out."""
    rewards = kind([1, 1, 1, 0]) if kind in (list, tuple) else np.array([1, 1, 1, 0], dtype=kind)
    advantages = group_advantages(rewards, 4)
    assert advantages.dtype == np.float64
    assert advantages.tolist() == [0.25, 0.25, 0.25, -0.75]
    assert nonzero_signal_groups(rewards, 4).tolist() == [True]


@pytest.mark.parametrize(
    ("kind", "high", "low"), [(np.float16, 60000, 0), (np.uint8, 250, 0), (np.int8, 120, -120), (np.int64, 2**62, 0)]
)
def test_no_type_overflows(kind, high, low):
    """Three high and one low: mean low + 3/4 of the difference, beyond the range of the type's own sums."""
    difference = high - low
    expected = [difference / 4] * 3 + [-3 * difference / 4]
    assert group_advantages(np.array([high] * 3 + [low], dtype=kind), 4).tolist() == expected


def test_inputs_are_left_as_they_were():
    """No result is a view of the rewards."""
    rewards = np.array([3.0, 1.0, 2.0, 2.0])
    group_advantages(rewards, 2, True)[:] = 9.0
    assert rewards.tolist() == [3.0, 1.0, 2.0, 2.0]


def test_strided_and_read_only_rewards():
    """Every second of six."""
    rewards = np.array([1.0, 9.0, 0.0, 9.0, 0.5, 9.0])[::2]
    rewards.setflags(write=False)
    assert group_advantages(rewards, 3).tolist() == [0.5, -0.5, 0.0]


def test_no_rewards():
    """No groups, no advantages."""
    assert group_advantages([], 4).shape == nonzero_signal_groups([], 4).shape == (0,)


@BOTH
@pytest.mark.parametrize(
    ("rewards", "G", "words"),
    [
        ([1, 0, 1], 2, "multiple of G, got 3 rewards and G = 2"),
        ([1, 0], 4, "multiple of G, got 2 rewards and G = 4"),
        ([[1, 0], [0, 1]], 2, r"rank 1, got shape \(2, 2\)"),
        (1.0, 1, r"rank 1, got shape \(\)"),
        ([1, math.nan], 2, "finite, got nan at index 1"),
        ([math.inf, 0], 2, "finite, got inf at index 0"),
        ([0, 1, 0, -math.inf], 2, "finite, got -inf at index 3"),
        (["1", "0"], 2, "must be numbers"),
        ("10", 2, "must be numbers"),
        ([None, 1], 2, "must be numbers"),
        ([1j, 1], 2, "must be numbers"),
    ],
)
def test_bad_rewards_are_refused_in_words(function, rewards, G, words):
    """What was expected, and what was got where."""
    with pytest.raises(ValueError, match=f"reward.*{words}"):
        function(rewards, G)


@BOTH
@pytest.mark.parametrize("G", [0, -1, 2.5, True, "2", "two", math.nan, math.inf, None], ids=repr)
def test_a_bad_group_size_is_refused_in_words(function, G):
    """G is a whole number of at least 1."""
    with pytest.raises(ValueError, match="G must be a whole number of at least 1, got"):
        function([1, 0, 1, 0], G)


@pytest.mark.parametrize("G", [2, 2.0, np.int64(2), np.uint8(2)], ids=repr)
def test_whole_numbers_of_any_type_are_group_sizes(G):
    """Two groups of two."""
    assert group_advantages([1, 0, 0, 0], G).tolist() == [0.5, -0.5, 0.0, 0.0]


@QUICK
@given(groups_of(), st.booleans())
def test_equals_the_slow_reference(case, normalize_std):
    """Rewards of any size within ±1e6; the mean is rounded once, so errors are of the size of the rewards' last bits."""
    rewards, G = case
    recipe = Recipe(scale="group_std" if normalize_std else "none")
    expected = reference.advantages(rewards, [i // G for i in range(len(rewards))], recipe)
    for i, advantage in enumerate(group_advantages(rewards, G, normalize_std)):
        group = rewards[i // G * G : i // G * G + G]
        spread = float(reference.deviation(group, 0)) + 1e-6 if normalize_std else 1.0
        assert abs(advantage - expected[i]) <= 4 * math.ulp(max(map(abs, group))) / spread + 1e-14 * abs(expected[i])


@QUICK
@given(groups_of())
def test_advantages_of_a_group_add_up_to_zero(case):
    """Up to the last bits of its rewards."""
    rewards, G = case
    advantages = group_advantages(rewards, G).reshape(-1, G)
    greatest = np.abs(np.array(rewards)).reshape(-1, G).max(axis=1)
    assert (np.abs(advantages.sum(axis=1)) <= 2 * G * np.spacing(greatest)).all()


@QUICK
@given(groups_of(st.integers(-1000, 1000)), st.integers(-(10**6), 10**6), st.booleans())
def test_a_shift_of_the_rewards_changes_nothing(case, shift, normalize_std):
    """Whole rewards, so that the shift itself rounds nothing; the shifted mean is rounded at its own last bit."""
    rewards, G = case
    plain = group_advantages(rewards, G, normalize_std)
    shifted = group_advantages([reward + shift for reward in rewards], G, normalize_std)
    # A spread of whole numbers in a group of at most 8 is at least sqrt(7)/8 > 0.33.
    assert np.abs(plain - shifted).max() <= 1e-9 / 0.33
    kept = nonzero_signal_groups(rewards, G)
    assert np.array_equal(kept, nonzero_signal_groups([reward + shift for reward in rewards], G))


@QUICK
@given(groups_of(st.integers(-(10**6), 10**6).map(lambda thousandths: thousandths / 1000)), st.integers(-30, 30))
def test_scaled_rewards_have_scaled_advantages(case, power):
    """A scale of 2**k rounds nothing, so centred advantages keep their bits."""
    rewards, G = case
    scaled = [math.ldexp(reward, power) for reward in rewards]
    assert np.array_equal(group_advantages(scaled, G), np.ldexp(group_advantages(rewards, G), power))
    assert np.array_equal(nonzero_signal_groups(scaled, G), nonzero_signal_groups(rewards, G))


@QUICK
@given(st.data(), groups_of(st.floats(-1e300, 1e300), most_groups=1), st.booleans())
def test_a_permutation_within_a_group_permutes_the_advantages(data, case, normalize_std):
    """To the last bit, whatever the size of the rewards."""
    rewards, G = case
    order = data.draw(st.permutations(range(G)))
    permuted = group_advantages([rewards[i] for i in order], G, normalize_std)
    assert permuted.tobytes() == group_advantages(rewards, G, normalize_std)[order].tobytes()
    assert nonzero_signal_groups([rewards[i] for i in order], G) == nonzero_signal_groups(rewards, G)


@QUICK
@given(groups_of(), st.booleans())
def test_a_group_does_not_depend_on_the_others(case, normalize_std):
    """Each group alone has the same bits."""
    rewards, G = case
    together = group_advantages(rewards, G, normalize_std)
    alone = [group_advantages(rewards[i : i + G], G, normalize_std) for i in range(0, len(rewards), G)]
    assert np.concatenate(alone).tobytes() == together.tobytes()


@QUICK
@given(groups_of(st.sampled_from([0.0, 0.1, 0.3, 1.1, -0.087])))
def test_signal_is_more_than_one_value(case):
    """A group without signal has advantage 0 throughout, one with signal does not."""
    rewards, G = case
    groups = [rewards[i : i + G] for i in range(0, len(rewards), G)]
    assert nonzero_signal_groups(rewards, G).tolist() == [len(set(group)) > 1 for group in groups]
    assert (group_advantages(rewards, G).reshape(-1, G) != 0).any(axis=1).tolist() == [len(set(g)) > 1 for g in groups]
