"""Sums and means that no order, block or company of their terms can change."""

import math
import sys
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from olmorl_cli.core import sums
from olmorl_cli.core.sums import BLOCK, exact_means, exact_sum, exact_sums

QUICK = settings(max_examples=80, deadline=None, derandomize=True, database=None)
FINITE = st.floats(allow_nan=False, allow_infinity=False)
GREATEST = sys.float_info.max
LEAST = 5e-324

# The exact sum is just above half way between two doubles (2**107 + 2**54 + 27/16), and double-double arithmetic cannot
# hold it: 9/16 is cut at 2**0 beside a term of 1 or more, and at 2**-22 otherwise.
JUST_ABOVE_A_TIE = [2.0**107, 2.0**54, 9 / 16, 9 / 16, 9 / 16]

ADVERSARIAL = {
    "cancellation": [1e16, 1.0, -1e16],
    "cancellation to the last term": [1e300, 1e-300, -1e300],
    "cancellation in steps": [2.0**22, -(2.0**22) + 1, -1 + 2.0**-22, -(2.0**-22) + 2.0**-44],
    "spread": [10.0**e for e in range(-300, 301, 7)],
    "spread with signs": [(-1) ** e * 10.0**e for e in range(-300, 301, 7)],
    "subnormal": [LEAST, LEAST, -3 * LEAST, 1e-310],
    "subnormal beside one": [LEAST, 1.0, -1.0],
    "greatest": [GREATEST, -GREATEST, GREATEST],
    "greatest and least": [GREATEST, LEAST, -GREATEST],
    "tie to even": [2.0**53, 1.0],
    "just above a tie": [2.0**53, 1.0, 2.0**-60],
    "just below a tie": [2.0**53, 1.0, -(2.0**-60)],
    "above a far tie": JUST_ABOVE_A_TIE,
    "above a far tie, with a pair that cancels": [*JUST_ABOVE_A_TIE, 1.0, -1.0],
    "tenths": [0.1] * 10,
    "grid edges": [math.ldexp(1 - 2.0**-k, 22 * j) for j in range(-3, 4) for k in (1, 20, 22, 53)],
}


def random_terms(seed, number, exponents):
    """Terms of both signs with binary exponents up to ± `exponents`."""
    rng = np.random.default_rng(seed)
    return np.ldexp(rng.uniform(-1, 1, number), rng.integers(-exponents, exponents + 1, number)).tolist()


def exact(terms):
    """The sum as a Fraction."""
    return sum(map(Fraction, terms), Fraction(0))


def allowance(terms, divisor=1):
    """The error that the docstring allows: 1 ulp of the result and 2**-100 of the greatest term."""
    true = exact(terms) / divisor
    return Fraction(math.ulp(float(true))) + max(map(abs, map(Fraction, terms)), default=0) / 2**100


@pytest.mark.parametrize("terms", ADVERSARIAL.values(), ids=ADVERSARIAL.keys())
def test_adversarial_sums_are_as_exact_as_they_say(terms):
    """Oracle: fractions.Fraction, which rounds nothing."""
    assert abs(Fraction(exact_sum(terms)) - exact(terms)) <= allowance(terms)


@pytest.mark.parametrize("exponents", [0, 10, 60, 300, 900])
@pytest.mark.parametrize("number", [1, 2, 50, 3000])
def test_random_sums_equal_fsum(exponents, number):
    """math.fsum rounds the exact sum once; at most the last bit may differ."""
    terms = random_terms(number, number, exponents)
    total = math.fsum(terms)
    assert abs(exact_sum(terms) - total) <= math.ulp(total)


@pytest.mark.parametrize("rounds", [1, 3, 6])
def test_ill_conditioned_sums(rounds):
    """Each round takes the rounded sum off again, so that ever smaller bits are left."""
    terms = random_terms(rounds, 500, 60)
    for _ in range(rounds):
        terms.append(-math.fsum(terms))
    assert abs(Fraction(exact_sum(terms)) - exact(terms)) <= allowance(terms)


@QUICK
@given(st.lists(FINITE, max_size=40))
def test_any_finite_sum_is_as_exact_as_it_says(terms):
    """A sum beyond the range of doubles is infinite, of its sign."""
    total = exact(terms)
    if abs(total) <= Fraction(GREATEST):
        assert abs(Fraction(exact_sum(terms)) - total) <= allowance(terms)
    else:
        assert abs(exact_sum(terms)) >= GREATEST
        assert (exact_sum(terms) > 0) == (total > 0)


@QUICK
@given(st.lists(FINITE, min_size=1, max_size=40))
def test_any_mean_is_as_exact_as_it_says_and_never_overflows(terms):
    """No mean is beyond the range of its terms, however great their sum."""
    value = float(exact_means(terms, len(terms))[0])
    assert math.isfinite(value)
    assert abs(Fraction(value) - exact(terms) / len(terms)) <= allowance(terms, len(terms))


@QUICK
@given(st.data())
def test_the_order_of_terms_does_not_matter(data):
    """Equal to the last bit under any permutation."""
    terms = data.draw(st.lists(FINITE, max_size=30))
    assert exact_sums(data.draw(st.permutations(terms))).tobytes() == exact_sums(terms).tobytes()


@pytest.mark.parametrize("block", [1, 2, 5, 64])
@pytest.mark.parametrize("terms", [*ADVERSARIAL.values(), random_terms(7, 300, 300)], ids=[*ADVERSARIAL.keys(), "random"])
def test_the_length_of_blocks_does_not_matter(monkeypatch, terms, block):
    """Same bits whether terms are cut all at once or a few at a time, forwards or backwards."""
    whole = exact_sums(terms).tobytes()
    monkeypatch.setattr(sums, "BLOCK", block)
    assert exact_sums(terms).tobytes() == whole
    assert exact_sums(terms[::-1]).tobytes() == whole


@pytest.mark.parametrize("exponents", [0, 30, 200])
@pytest.mark.parametrize("sign", [np.abs, np.array], ids=["positive", "both signs"])
def test_more_terms_than_a_block_in_any_order(sign, exponents):
    """Sums that grow with every one of 65536 + 777 terms, and such that do not; oracle math.fsum."""
    terms = sign(random_terms(11, 2 * BLOCK + 777, exponents))
    total, order = math.fsum(terms), np.random.default_rng(1).permutation(terms.size)
    assert abs(exact_sum(terms) - total) <= math.ulp(total)
    assert exact_sums(terms).tobytes() == exact_sums(terms[order]).tobytes() == exact_sums(np.sort(terms)).tobytes()


@pytest.mark.parametrize("terms", ADVERSARIAL.values(), ids=ADVERSARIAL)
@pytest.mark.parametrize("seed", range(4))
def test_more_terms_than_there_is_room_for(monkeypatch, terms, seed):
    """What is carried upwards, at any moment and in parts that are merged, changes no bit and no claim."""
    rng = np.random.default_rng(seed)
    terms = (terms * 300)[:300]
    monkeypatch.setattr(sums, "BLOCK", 16)
    monkeypatch.setattr(sums, "MOST_TERMS", 1100)  # of which 1024 are taken where something was carried
    found = set()
    for _ in range(5):
        whole = sums.ExactSums()
        for part in np.array_split(rng.permutation(terms * 8), rng.integers(1, 9)):
            whole.merge(sums.ExactSums().add(part)) if rng.random() < 0.5 else whole.add(part)
        assert whole._carried
        found.add(float(whole.over(2400)[0]))
    (mean,) = found
    assert abs(Fraction(mean) - exact(terms) / 300) <= allowance(terms * 8, 2400)


def test_carried_sums_of_groups(monkeypatch):
    monkeypatch.setattr(sums, "MOST_TERMS", 1100)
    monkeypatch.setattr(sums, "BLOCK", 64)
    values = np.array(random_terms(3, 9000, 400))
    codes = np.arange(9000) % 7
    carried = exact_sums(values, codes, 7)
    monkeypatch.undo()
    assert carried.tolist() == exact_sums(values, codes, 7).tolist() == [math.fsum(values[code::7]) for code in range(7)]


def test_a_pair_that_cancels_may_stand_in_any_block():
    """1 and -1 add nothing, in the block of the other terms or in the next."""
    near = exact_sum([*JUST_ABOVE_A_TIE, 1.0, -1.0] + [0.0] * BLOCK)
    far = exact_sum(JUST_ABOVE_A_TIE + [0.0] * BLOCK + [1.0, -1.0])
    assert near == far


def test_a_sum_does_not_depend_on_the_other_groups():
    """The same five terms alone, and beside a group of the one term 1."""
    alone = exact_sums(JUST_ABOVE_A_TIE)
    beside = exact_sums([*JUST_ABOVE_A_TIE, 1.0], np.array([0, 0, 0, 0, 0, 1]), 2)
    assert beside[1] == 1.0
    assert beside[0] == alone[0]


@QUICK
@given(st.lists(st.tuples(FINITE, st.integers(0, 3)), max_size=40))
def test_groups_equal_each_group_summed_alone(pairs):
    """Interleaved groups; a group without terms is 0."""
    terms, codes = np.array([p[0] for p in pairs]), np.array([p[1] for p in pairs], dtype=np.int64)
    together = exact_sums(terms, codes, 4)
    alone = np.concatenate([exact_sums(terms[codes == group]) for group in range(4)])
    assert together.tobytes() == alone.tobytes()


def test_many_groups_over_many_blocks():
    """More groups than terms in a plain block; each group is two terms far apart in the array."""
    number = BLOCK
    terms = np.array(random_terms(5, 2 * number, 40))
    codes = np.concatenate([np.arange(number), np.arange(number)[::-1]])
    assert np.array_equal(exact_sums(terms, codes, number), terms[:number] + terms[number:][::-1])


def test_groups_side_by_side_or_far_apart_have_the_same_sums():
    """Group g's terms are summed as group g, and as group 1000 g of a thousand times as many."""
    terms, codes = np.array(random_terms(3, 60, 200)), np.repeat(np.arange(20), 3)
    apart = exact_sums(terms, codes * 1000, 20_000)
    assert np.array_equal(apart[::1000], exact_sums(terms, codes, 20))
    assert np.count_nonzero(apart) == 20


def test_infinite_and_nan_terms_decide_their_own_group_only():
    """inf - inf is NaN; the finite group beside them keeps its bits."""
    terms = np.array([1e16, 1.0, -1e16, np.inf, 5.0, -np.inf, np.inf, -np.inf, np.nan, 2.0])
    codes = np.array([0, 0, 0, 1, 1, 2, 3, 3, 4, 4])
    assert np.array_equal(exact_sums(terms, codes, 6), [1.0, np.inf, -np.inf, np.nan, np.nan, 0.0], equal_nan=True)
    assert np.array_equal(
        exact_means(terms, [4, 2, 1, 2, 2, 0], codes, 6), [0.25, np.inf, -np.inf, np.nan, np.nan, np.nan], equal_nan=True
    )


@pytest.mark.parametrize(("terms", "total"), [([np.inf, 1e308], np.inf), ([-np.inf], -np.inf), ([np.inf, -np.inf], np.nan)])
def test_infinite_terms_of_one_group(terms, total):
    """Without group codes too."""
    assert np.array_equal(exact_sums(terms), [total], equal_nan=True)


def test_empty_sums_and_means():
    """No term: sum 0, mean 0/0; no group: nothing."""
    none = np.array([], dtype=np.int64)
    assert exact_sum([]) == 0.0
    assert exact_sums([], none, 3).tolist() == [0.0, 0.0, 0.0]
    assert exact_sums([], none, 0).shape == (0,)
    assert np.isnan(exact_means([], [0, 0], none, 2)).all()


def test_negative_zero_adds_nothing():
    """-0.0 + -0.0 counts as 0, and changes no sum."""
    assert exact_sum([-0.0, -0.0]) == 0.0
    assert exact_sum([-0.0, 0.5]) == 0.5


@pytest.mark.parametrize("count", [2, 3, 7, 1000])
def test_the_mean_of_the_greatest_doubles_is_theirs(count):
    """Their sum overflows; so would twice the greatest."""
    assert exact_means([GREATEST] * count, count)[0] == GREATEST
    assert exact_means([-GREATEST] * count, count)[0] == -GREATEST


def test_means_near_the_end_of_the_range():
    """(3 - 1) 1e308 / 4, and groups with and without such terms beside one another."""
    assert exact_means([1e308, 1e308, 1e308, -1e308], 4)[0] == 5e307
    terms, codes = [1e308, 1e308, LEAST, LEAST, 1.0, 2.0], np.array([0, 0, 1, 1, 2, 2])
    assert exact_means(terms, [2, 2, 2], codes, 3).tolist() == [1e308, LEAST, 1.5]


def test_a_sum_out_of_range_is_infinite():
    """Without a warning; pytest makes warnings errors."""
    assert exact_sum([GREATEST, GREATEST]) == math.inf
    assert exact_sum([-GREATEST, -GREATEST]) == -math.inf


@pytest.mark.parametrize("kind", [np.int8, np.int64, np.bool_, np.float16, np.float32])
def test_terms_of_other_types(kind):
    """1 + 0 + 1 = 2 in any type."""
    assert exact_sum(np.array([1, 0, 1], dtype=kind)) == 2.0


def test_terms_are_left_as_they_were():
    """Cutting works on copies."""
    terms = np.array([1e300, 1.1, -1e-300, 1.7e308])
    before = terms.copy()
    exact_sums(terms, np.array([0, 1, 0, 1]), 2)
    assert np.array_equal(terms, before)
