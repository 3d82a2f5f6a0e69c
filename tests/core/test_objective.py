"""`olmorl_objective`: worked values, padding, refusals, extremes; and the reductions it shares with every recipe."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from olmorl_cli.core import olmorl_objective
from olmorl_cli.core.objective import Partition
from olmorl_cli.core.recipes import CHOICES
from tests.core import reference
from tests.core.kit import aggregate

QUICK = settings(max_examples=60, deadline=None, derandomize=True, database=None)
PADS = [math.nan, math.inf, -math.inf, 1.0, -1e10, 0.0]


def of_ratios(ratios, advantage, **bounds):
    """The objective of one answer with these ratios: new - old = log ρ, with old 0."""
    logs = [[math.log(ratio) for ratio in ratios]]
    return olmorl_objective(logs, [[0.0] * len(ratios)], [advantage], [[1] * len(ratios)], **bounds)


def random_case(seed, answers=6, tokens=9, spread=0.3):
    """new, old, advantages and a mask with some answers without tokens."""
    rng = np.random.default_rng(seed)
    old = -rng.exponential(1.0, (answers, tokens))
    mask = rng.random((answers, tokens)) < 0.7
    mask[1] = False
    return old + rng.normal(0, spread, old.shape), old, rng.normal(0, 1, answers), mask


def widened(array, columns, width, fill):
    """The columns of `array` at places `columns` of `width`, `fill` elsewhere."""
    wide = np.full((array.shape[0], width), fill, dtype=array.dtype)
    wide[:, columns] = array
    return wide


def test_means_over_tokens_not_over_answers():
    """Terms 1.0 | 0.2 0.2 0.2: (1 + 0.6)/4 = 0.4 over tokens; a mean of answers' means would be 0.6."""
    zeros = np.zeros((2, 3))
    assert olmorl_objective(zeros, zeros, [1.0, 0.2], [[1, 0, 0], [1, 1, 1]]) == pytest.approx(0.4, rel=1e-15)


@pytest.mark.parametrize("advantage", [0.25, 1.0, 7.0])
def test_upper_bound(advantage):
    """ρ = 1.25 is below 1 + 0.272, and above 1 + 0.2."""
    assert of_ratios([1.25], advantage) == pytest.approx(1.25 * advantage, rel=1e-15)
    assert of_ratios([1.25], advantage, eps_high=0.2) == pytest.approx(1.2 * advantage, rel=1e-15)


@pytest.mark.parametrize(
    ("advantage", "losses"),
    [(1.0, [-0.5, -0.8, -1.0, -1.272, -1.272, -1.272]), (-1.0, [0.8, 0.8, 1.0, 1.272, 1.5, 3.0])],
)
def test_losses_of_open_instruct(advantage, losses):
    """open-instruct e6c3044a, compute_grpo_loss, run with clip 0.2 / 0.272 on these ratios; loss = -objective."""
    ratios = [0.5, 0.8, 1.0, 1.272, 1.5, 3.0]
    for ratio, loss in zip(ratios, losses, strict=True):
        assert -of_ratios([ratio], advantage) == pytest.approx(loss, rel=1e-15)
    assert -of_ratios(ratios, advantage) == pytest.approx(math.fsum(losses) / 6, rel=1e-15)


def test_losses_of_rlax():
    """rlax 4c5d25b2, policy_gradients_test.py, clipped surrogate at 0.2, float32 to 4 digits: ρ = 1, 1, e**-2."""
    logits = [[1, 1, 1], [2, 0, 0], [-1, -2, -3]], [[1, 1, 1], [2, 0, 0], [-3, -2, -1]]
    new, old = ([[row[action] - math.log(sum(map(math.exp, row)))] for action, row in enumerate(rows)] for rows in logits)
    for sign, loss in ((1, -0.17117467), (-1, 0.19333333)):
        advantages = [sign * a for a in (0.3, 0.2, 0.1)]
        assert -olmorl_objective(new, old, advantages, [[1]] * 3, 0.2, 0.2) == pytest.approx(loss, rel=1e-4)


@pytest.mark.parametrize(("eps_low", "eps_high", "terms"), [(0.0, 0.0, (1.0, -1.0)), (1.0, 1e300, (3.0, -0.25))])
def test_ends_of_the_bounds(eps_low, eps_high, terms):
    """No room: A and -A. All room: ρ A itself, at ρ = 3 with A = 1 and at ρ = 1/4 with A = -1."""
    for ratio, advantage, term in zip((3.0, 0.25), (1.0, -1.0), terms, strict=True):
        assert of_ratios([ratio], advantage, eps_low=eps_low, eps_high=eps_high) == pytest.approx(term, rel=1e-15)


def test_equal_log_probs_have_ratio_one():
    """Whatever they are: the mean of A weighted by tokens, (3 * 2 - 1 * 5)/4, exactly."""
    logps = np.array([[-1e-3, -7.7, -0.1], [-123.4, 0.0, 0.0]])
    assert olmorl_objective(logps, logps, [2.0, -5.0], [[1, 1, 1], [1, 0, 0]]) == 0.25


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64, np.int8, np.int64, list])
def test_types_of_log_probs(kind):
    """ρ = 1, e**-1: (1 + e**-1) / 2."""
    new, old = [[-2, -2]], [[-2, -1]]
    arrays = (new, old) if kind is list else (np.array(new, dtype=kind), np.array(old, dtype=kind))
    value = olmorl_objective(*arrays, [1], [[1, 1]])
    assert type(value) is float
    assert value == pytest.approx((1 + math.exp(-1)) / 2, rel=1e-15)


@pytest.mark.parametrize("kind", [np.bool_, np.int8, np.uint8, np.int64, np.float16, np.float64])
def test_types_of_mask(kind):
    """Real is whatever is not 0."""
    mask = np.array([[1, 0, 1]], dtype=kind) * (1 if kind is np.bool_ else kind(3))
    assert olmorl_objective([[0, 9, 0]], [[0, 0, 0]], [1.5], mask) == 1.5


@pytest.mark.parametrize("new_pad", PADS)
@pytest.mark.parametrize("old_pad", PADS)
def test_what_stands_under_mask_0_never_matters(new_pad, old_pad):
    """Same bits, no warning (pytest makes warnings errors)."""
    new, old, advantages, mask = random_case(1)
    plain = olmorl_objective(np.where(mask, new, 0), np.where(mask, old, 0), advantages, mask)
    assert olmorl_objective(np.where(mask, new, new_pad), np.where(mask, old, old_pad), advantages, mask) == plain


@pytest.mark.parametrize("places", [range(9), range(4, 13), range(31, 40), range(0, 36, 4), [0, 1, 5, 6, 7, 20, 21, 30, 39]])
def test_padding_anywhere_never_matters(places):
    """The same tokens in a wider array, padded in front, behind or in between, have the same bits."""
    new, old, advantages, mask = random_case(2)
    plain = olmorl_objective(new, old, advantages, mask)
    wide = [widened(array, list(places), 40, fill) for array, fill in ((new, np.nan), (old, np.inf), (mask, False))]
    assert olmorl_objective(wide[0], wide[1], advantages, wide[2]) == plain


def test_layout_in_memory_never_matters():
    """Column-major, strided and read-only arrays."""
    new, old, advantages, mask = random_case(3)
    plain = olmorl_objective(new, old, advantages, mask)
    assert olmorl_objective(np.asfortranarray(new), np.asfortranarray(old), advantages, np.asfortranarray(mask)) == plain
    doubled = np.repeat(new, 2, axis=1)
    doubled.setflags(write=False)
    assert olmorl_objective(doubled[:, ::2], old, advantages, mask) == plain


@QUICK
@given(st.integers(0, 10**6), st.randoms(use_true_random=False))
def test_the_order_of_answers_never_matters(seed, random):
    """To the last bit; an answer without tokens is as good as none."""
    new, old, advantages, mask = random_case(seed, answers=8, tokens=5, spread=1.0)
    mask[0] = True
    order = random.sample(range(8), 8)
    plain = olmorl_objective(new, old, advantages, mask)
    assert olmorl_objective(new[order], old[order], advantages[order], mask[order]) == plain
    rest = [i for i in range(8) if i != 1]
    assert olmorl_objective(new[rest], old[rest], advantages[rest], mask[rest]) == plain


@pytest.mark.parametrize("spread", [1e-9, 1e-3, 0.3, 3.0, 30.0, 150.0])
@pytest.mark.parametrize("seed", range(4))
def test_equals_sixty_digits(spread, seed):
    """The formula in 60-digit decimals, at ratios from nearly 1 to the end of the range."""
    new, old, advantages, mask = random_case(seed, spread=spread)
    value, magnitude = reference.olmorl_objective(new, old, advantages, mask, 0.2, 0.272)
    assert abs(olmorl_objective(new, old, advantages, mask) - float(value)) <= 1e-14 * float(magnitude)


@QUICK
@given(
    st.lists(st.tuples(st.floats(-800, 0), st.floats(-690, 690)), min_size=1, max_size=12),
    st.floats(-1e3, 1e3, allow_subnormal=False),
    st.floats(0, 1),
    st.floats(0, 10),
)
def test_any_tokens_equal_sixty_digits(tokens, advantage, eps_low, eps_high):
    """Large log-probs too, whose difference is itself rounded."""
    old, mask = [[old for old, _ in tokens]], [[1] * len(tokens)]
    new = [[old + d for old, d in tokens]]
    value, magnitude = reference.olmorl_objective(new, old, [advantage], mask, eps_low, eps_high)
    difference = olmorl_objective(new, old, [advantage], mask, eps_low, eps_high) - float(value)
    assert abs(difference) <= 1e-14 * float(magnitude)


@pytest.mark.parametrize("log_ratio", [-1e-17, -1e-3, -0.5, -0.51, -1, -5, -8, -9, -20, -36, -50, -100, -700])
def test_small_ratios_keep_their_digits(log_ratio):
    """One token, A = 1: ρ itself, by math.exp, to the last bits however small."""
    assert olmorl_objective([[log_ratio]], [[0.0]], [1.0], [[1]]) == pytest.approx(math.exp(log_ratio), rel=5e-16, abs=0)


def test_terms_that_cancel():
    """Ratios ρ = e**6 with A = -1 and terms of +1.272 that nearly make up for it."""
    new, old = np.zeros((2, 400)), np.zeros((2, 400))
    new[0, 0], new[1] = 6.0, 1.0
    advantages, mask = [-1.0, math.exp(6) / 1.272 / 400], np.ones((2, 400), dtype=bool)
    mask[0, 1:] = False
    value, magnitude = reference.olmorl_objective(new, old, advantages, mask, 0.2, 0.272)
    assert abs(olmorl_objective(new, old, advantages, mask) - float(value)) <= 1e-14 * float(magnitude)


OVERFLOWS = {"finite": (800.0, -800.0), "old -inf": (-1.0, -math.inf), "far": (0.0, -1e308)}


@pytest.mark.parametrize(("new", "old"), OVERFLOWS.values(), ids=OVERFLOWS.keys())
def test_a_ratio_that_overflows(new, old):
    """min(inf A, 1.272 A): 1.272 A for A > 0, 0 for A = 0, -inf for A < 0."""
    assert olmorl_objective([[new]], [[old]], [2.0], [[1]]) == pytest.approx(2 * 1.272, rel=1e-15)
    assert olmorl_objective([[new]], [[old]], [0.0], [[1]]) == 0.0
    assert olmorl_objective([[new]], [[old]], [-2.0], [[1]]) == -math.inf
    assert olmorl_objective([[new, 0.0]], [[old, 0.0]], [1.0], [[1, 1]]) == pytest.approx((1.272 + 1) / 2, rel=1e-15)


@pytest.mark.parametrize(("new", "old"), [(-800.0, 0.0), (-math.inf, -1.0), (-1e308, 0.0)], ids=["finite", "-inf", "far"])
def test_a_ratio_that_vanishes(new, old):
    """ρ = 0: min(0, 0.8 A) is 0 for A > 0 and 0.8 A for A < 0."""
    assert olmorl_objective([[new]], [[old]], [2.0], [[1]]) == 0.0
    assert olmorl_objective([[new]], [[old]], [0.0], [[1]]) == 0.0
    assert olmorl_objective([[new]], [[old]], [-2.0], [[1]]) == pytest.approx(-2 * 0.8, rel=1e-15)
    assert olmorl_objective([[new, 0.0]], [[old, 0.0]], [1.0], [[1, 1]]) == 0.5


def test_infinite_terms_of_one_answer():
    """Make the whole objective -inf, without a warning."""
    assert olmorl_objective([[800.0], [0.0]], [[0.0], [0.0]], [-1.0, 1.0], [[1], [1]]) == -math.inf


def test_inputs_are_left_as_they_were():
    """Nothing is computed in place."""
    case = random_case(4)
    before = [array.copy() for array in case]
    olmorl_objective(*case)
    assert all(np.array_equal(a, b) for a, b in zip(case, before, strict=True))


GOOD = {"logp_new": [[0.0, 0.0]], "logp_old": [[0.0, 0.0]], "adv": [1.0], "mask": [[1, 1]]}
BAD = [
    ({"logp_new": [0.0, 0.0]}, r"logp_new must be of rank 2 .*got shape \(2,\)"),
    ({"logp_new": [[[0.0]]]}, "logp_new must be of rank 2"),
    ({"logp_old": [[0.0]]}, r"logp_old must have shape \(1, 2\).*got \(1, 1\)"),
    ({"logp_old": [0.0, 0.0]}, "logp_old must have shape"),
    ({"mask": [[1, 1, 1]]}, r"mask must have shape \(1, 2\).*got \(1, 3\)"),
    ({"adv": [1.0, 1.0]}, r"adv must have shape \(1,\).*got \(2,\)"),
    ({"adv": [[1.0, 1.0]]}, "adv must have shape"),
    ({"adv": 1.0}, "adv must have shape"),
    ({"mask": [[0, 0]]}, "mask must mark at least one real token"),
    ({"logp_new": np.zeros((0, 3)), "logp_old": np.zeros((0, 3)), "adv": [], "mask": np.zeros((0, 3))}, "real token"),
    ({"logp_new": np.zeros((1, 0)), "logp_old": np.zeros((1, 0)), "mask": np.zeros((1, 0))}, "real token"),
    ({"logp_new": [[0.0, math.nan]]}, "logp_new must not be NaN at a real token, got NaN at answer 0, token 1"),
    ({"logp_old": [[math.nan, 0.0]]}, "logp_old must not be NaN at a real token, got NaN at answer 0, token 0"),
    ({"adv": [math.nan]}, "adv must be finite"),
    ({"logp_new": [["a", "b"]]}, "logp_new must be numbers"),
    ({"logp_old": [[None, 0.0]]}, "logp_old must be numbers"),
    ({"adv": ["1"]}, "adv must be numbers"),
    ({"mask": [["1", "0"]]}, "mask must be numbers"),
]
BAD += [({"eps_low": bad}, r"eps_low must be .*\[0, 1\]") for bad in (-0.1, 1.1, math.nan, math.inf, -math.inf, "0.2", None)]
BAD += [({"eps_high": bad}, r"eps_high must be .*\[0, inf\)") for bad in (-0.1, math.nan, math.inf, -math.inf, "0.2", None)]


@pytest.mark.parametrize(("change", "words"), BAD, ids=[f"{next(iter(c))}: {next(iter(c.values()))!r}" for c, _ in BAD])
def test_bad_input_is_refused_in_words(change, words):
    """What was expected of which argument, and what was got."""
    assert olmorl_objective(**GOOD) == 1.0
    with pytest.raises(ValueError, match=words):
        olmorl_objective(**{**GOOD, **change})


# Sums of per-token terms as trainers' own tests have them: terms of each answer, groups, and the published value.
PUBLISHED = [
    ("token_mean", [[1, 2], [3, 4, 5], [7]], [0, 1, 2], 22 / 6, "OpenRLHF 3c3be623, tests/test_loss_aggregation.py"),
    ("sequence_mean_of_token_mean", [[1, 3], [2, 4], [8]], [0, 1, 2], (2 + 3 + 8) / 3, "OpenRLHF, the same"),
    ("token_mean", [[1, 2], [4, 5, 6]], [0, 1], 18 / 5, "SkyRL a9564572, test_ppo_utils.py"),
    ("sequence_mean_of_token_mean", [[1, 2], [3]], [0, 1], (1.5 + 3) / 2, "SkyRL, the same"),
    ("prompt_mean_of_token_mean", [[1, 2], [3], [5, 6], [7, 8]], [0, 0, 1, 1], (2 + 6.5) / 2, "SkyRL, the same"),
    ("token_sum", [[1, 2], [4, 6]], [0, 1], 13, "verl 1dda039b, test_loss_aggregation_on_cpu.py, one rank"),
    ("sequence_mean_of_token_sum", [[1, 2], [4, 6]], [0, 1], 13 / 2, "verl, the same terms"),
    ("sum_over_constant", [[2, 3], [9]], [0, 1], 14 / 20, "SkyRL seq_mean_token_sum_norm: 2 answers of at most 10 tokens"),
]


@pytest.mark.parametrize(("aggregation", "terms", "groups", "value", "source"), PUBLISHED, ids=[p[4] for p in PUBLISHED])
def test_published_aggregations(aggregation, terms, groups, value, source):
    """The trainers' numbers; the slow reference gives them as well."""
    partition = Partition(np.array(groups), np.zeros(max(groups) + 1, dtype=np.int64))
    sums, tokens = np.array([sum(t) for t in terms], dtype=float), np.array([len(t) for t in terms])
    result = aggregate(sums, tokens, np.ones(len(terms), dtype=bool), partition, aggregation, 20.0)
    assert result == pytest.approx([value], rel=1e-15), source
    exact = [[reference.Decimal(term) for term in row] for row in terms]
    zeros, ones = [0] * len(terms), [True] * len(terms)
    assert float(reference.aggregate(exact, groups, zeros, ones, aggregation, 20)[0]) == pytest.approx(value, rel=1e-15)


@pytest.mark.parametrize("aggregation", CHOICES["aggregation"])
def test_answers_that_do_not_count_are_in_no_divisor(aggregation):
    """Not counted, or without tokens: as if they were not there; a batch of such answers alone is NaN."""
    groups, batch_of_group = np.array([0, 0, 1, 1, 2, 2, 3]), np.array([0, 0, 1, 2])
    terms, tokens = np.array([1.5, 9e9, 2.5, 0.0, -3.0, 0.25, 7.0]), np.array([2, 3, 1, 0, 4, 1, 5])
    counted = np.array([True, False, True, True, True, True, False])
    values = aggregate(terms, tokens, counted, Partition(groups, batch_of_group, 3), aggregation, 8.0)
    rest = counted & (tokens > 0)
    kept = aggregate(terms[rest], tokens[rest], rest[rest], Partition(groups[rest], batch_of_group, 3), aggregation, 8.0)
    assert values.tobytes() == kept.tobytes()
    assert np.isfinite(values).tolist() == [True, True, False]
    assert math.isnan(values[2])


@pytest.mark.parametrize("aggregation", CHOICES["aggregation"])
def test_aggregates_do_not_depend_on_the_order_of_answers(aggregation):
    """To the last bit, over many groups and three batches."""
    rng = np.random.default_rng(6)
    batch_of_group, groups = rng.integers(0, 3, 40), rng.integers(0, 40, 300)
    terms, tokens = np.ldexp(rng.normal(size=300), rng.integers(-60, 60, 300)), rng.integers(0, 9, 300)
    counted, order = rng.random(300) < 0.8, rng.permutation(300)
    plain = aggregate(terms, tokens, counted, Partition(groups, batch_of_group, 3), aggregation, 3.0)
    partition = Partition(groups[order], batch_of_group, 3)
    assert aggregate(terms[order], tokens[order], counted[order], partition, aggregation, 3.0).tobytes() == plain.tobytes()


def test_a_sum_over_a_small_constant_may_overflow():
    """1e308 / 1e-3 is beyond the range: infinite, without a warning, as every other aggregate of such terms."""
    one = Partition(np.array([0]), np.array([0]))
    values = aggregate(np.array([1e308]), np.array([1]), np.array([True]), one, "sum_over_constant", 1e-3)
    assert values.tolist() == [math.inf]
