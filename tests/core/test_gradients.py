"""Tokens' terms and gradients: against differences of the slow reference, and against the objective that they make up."""

import math
from decimal import Decimal, localcontext

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from olmorl_cli.core.gradients import token_gradients, token_terms
from olmorl_cli.core.objective import Partition, answer_terms, answer_weights
from olmorl_cli.core.recipes import CHOICES, KL_ESTIMATORS, Recipe
from olmorl_cli.core.segments import Segments
from olmorl_cli.core.tokens import Tokens, term_sums
from tests.core import reference
from tests.core.kit import objective
from tests.core.test_tokens import (
    ADVANTAGES,
    BATCH_OF_GROUP,
    COUNTED,
    GROUPS,
    LENGTHS,
    VARIANTS,
    WEIGHTS,
    decimals,
    make_tokens,
    named,
    without_some_samplers,
)

STEP = Decimal("1e-12")
"""Of the differences: in 60 digits their error is far below float64's."""
PARTITION = Partition(GROUPS, BATCH_OF_GROUP, 3)
ONE_ANSWER = Partition(np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64))


def gradients(tokens, recipe, advantages, counted, partition):
    """As the package computes them."""
    weights = answer_weights(np.diff(tokens.offsets), counted, partition, recipe.aggregation, recipe.divisor)
    return token_gradients(tokens, recipe, token_terms(tokens, recipe.terms, advantages).slope, weights)


def one_gradient(log_ratio, advantage, **fields):
    """dJ/dlogp_new of a single token, old log-prob 0 (as its reference's)."""
    zeros = np.zeros(1)
    tokens = Tokens(np.array([0, 1]), np.array([log_ratio]), zeros, zeros, zeros)
    return gradients(tokens, Recipe(**fields), np.array([advantage]), np.array([True]), ONE_ANSWER).item()


def moved(answers, i, t, step, settings):
    """The answers with one new log-prob moved; all that cispo holds constant moves along."""
    roles = ("new", "old", "sampler") if settings.surrogate == "cispo" else ("new",)
    shifted = {role: list(answers[i][role]) for role in roles if answers[i][role] is not None}
    for values in shifted.values():
        values[t] += step
    return [*answers[:i], answers[i] | shifted, *answers[i + 1 :]]


def differences(answers, advantages, groups, batches, counted, settings):
    """dJ/dlogp_new of every token, a list of floats; None where the two sides differ, at a kink."""

    def value(changed, batch):
        return reference.objective(changed, advantages, groups, batches, counted, settings)[batch]

    found = []
    with localcontext(reference.DIGITS_60):
        for i, answer in enumerate(answers):
            for t in range(len(answer["new"])):
                middle = value(answers, batches[i])
                if middle is None:
                    found.append(0.0)
                    continue
                above, below = (value(moved(answers, i, t, sign * STEP, settings), batches[i]) for sign in (1, -1))
                right, left = (above - middle) / STEP, (middle - below) / STEP
                smooth = abs(right - left) <= Decimal("1e-9") * max(1, abs(right), abs(left))
                found.append(float((above - below) / (2 * STEP)) if smooth else None)
    return found


LOGPS = st.floats(-3.0, 0.0, width=32)
RECIPES = st.fixed_dictionaries(
    {field: st.sampled_from(CHOICES[field]) for field in ("surrogate", "ratio", "ratio_level", "aggregation")}
    | {
        "bounds": st.sampled_from(
            [
                {},
                {"eps_low": None, "eps_high": None},
                {"eps_low": 0.0, "eps_high": 0.0},
                {"eps_low": 5.0, "dual_clip": 1.5},
                {"dual_clip": 1.1, "delta": 1.4},
                {"delta": 1.1},
                {"delta": 2.0, "eps_high": None},
                {"log_ratio_low": -0.7, "log_ratio_high": 0.6, "eps_low": 0.9, "eps_high": 3.0},
                {"log_ratio_high": 0.1, "dual_clip": 3.0},
            ]
        ),
        "weights": st.sampled_from([{}, {}, *WEIGHTS, {**WEIGHTS[0], "sampler_log_clamp": 0.1}]),
        "kl": st.sampled_from([None, *KL_ESTIMATORS]),
        "coefficient": st.sampled_from([0.25, -1.0]),
    }
).map(
    lambda drawn: Recipe(
        divisor=7.0,
        kl_coefficient=drawn.pop("coefficient"),
        **drawn.pop("bounds"),
        **drawn.pop("weights"),
        **drawn,
    )
)
ANSWERS = st.lists(
    st.tuples(
        st.sampled_from([0.0, 1.0, -1.0, 0.75, -2.5]),
        st.sampled_from([0, 1, 2]),
        st.sampled_from([True, True, True, False]),
        st.lists(st.tuples(LOGPS, LOGPS, LOGPS, LOGPS), max_size=3),
    ),
    min_size=1,
    max_size=4,
)


@settings(max_examples=250, deadline=None, derandomize=True, database=None)
@given(RECIPES, ANSWERS, st.integers(0, 4))
def test_gradients_are_the_slow_references_differences(recipe, answers, without_sampler):
    """Every surrogate, aggregation, level, sampler mode and KL estimator, over groups in two batches."""
    lengths = [len(tokens) for *_, tokens in answers]
    columns = np.array([token for *_, tokens in answers for token in tokens]).reshape(-1, 4).T
    tokens = Tokens(np.concatenate(([0], np.cumsum(lengths, dtype=np.int64))), *columns)
    if recipe.sampler_mode != "none" and recipe.ratio == "old":
        present = np.arange(len(answers)) != without_sampler
        tokens = Tokens(tokens.offsets, *columns, has_sampler=present)
    advantages, groups, counted = (np.array([answer[at] for answer in answers]) for at in range(3))
    partition = Partition(groups, np.array([0, 1, 0]), 2)
    found = gradients(tokens, recipe, advantages, counted, partition)
    expected = differences(
        decimals(tokens), advantages.tolist(), groups.tolist(), partition.answers.tolist(), counted.tolist(), recipe
    )
    assert len(found) == len(expected)
    for value, difference in zip(found, expected, strict=True):
        assert difference is None or value == pytest.approx(difference, rel=1e-11, abs=1e-13)


@pytest.mark.parametrize("variant", VARIANTS, ids=named)
def test_gradients_of_longer_answers(variant):
    """Every field of Terms, with ratios far outside the bounds; answers of none to 33 tokens."""
    recipe = Recipe(**variant)
    lengths = [0, 1, 5, 9]
    tokens = make_tokens(4, lengths)
    partition = Partition(np.array([0, 0, 1, 1]), np.array([0, 0]))
    advantages, counted = np.array([1.0, -1.0, 0.5, -2.0]), np.ones(4, dtype=bool)
    found = gradients(tokens, recipe, advantages, counted, partition)
    expected = differences(decimals(tokens), advantages.tolist(), [0, 0, 1, 1], [0] * 4, [True] * 4, recipe)
    places = [n for n, value in enumerate(expected) if value is not None]
    assert places
    assert found[places] == pytest.approx([expected[n] for n in places], rel=1e-10, abs=1e-13)


@pytest.mark.parametrize("aggregation", CHOICES["aggregation"])
@pytest.mark.parametrize("variant", VARIANTS[::2], ids=named)
def test_weights_times_terms_are_the_objective(variant, aggregation):
    """Σ weight · term over the tokens of each of three batches, less the KL's; the third has no tokens."""
    recipe = Recipe(**variant, aggregation=aggregation, divisor=64.0)
    tokens, lengths = make_tokens(), np.array(LENGTHS)
    weights = answer_weights(lengths, COUNTED, PARTITION, aggregation, recipe.divisor)
    assert not weights[~COUNTED | (lengths == 0)].any()
    sums, batches = term_sums(tokens, recipe.terms), PARTITION.answers
    weighted = token_terms(tokens, recipe.terms, ADVANTAGES).term * np.repeat(weights, lengths)
    values = np.bincount(np.repeat(batches, lengths), weights=weighted, minlength=3)
    values -= recipe.kl_coefficient * np.bincount(batches, weights=weights * sums.kl, minlength=3)
    expected = objective(ADVANTAGES, sums, lengths, COUNTED, PARTITION, recipe)
    assert values[:2] == pytest.approx(expected[:2], rel=1e-13)
    assert (values[2], math.isnan(expected[2])) == (0.0, True)


@pytest.mark.parametrize("variant", VARIANTS, ids=named)
def test_terms_and_flags_add_up_to_the_answers(variant):
    """The figures of each answer: its sum of terms, its clipped tokens, its ratios."""
    terms = Recipe(**variant).terms
    tokens = without_some_samplers(make_tokens()) if terms.sampler_mode != "none" else make_tokens()
    sums, found, segments = term_sums(tokens, terms), token_terms(tokens, terms, ADVANTAGES), Segments(tokens.offsets)
    assert segments.sum(found.term) == pytest.approx(answer_terms(ADVANTAGES, sums), rel=1e-13, abs=1e-15)
    assert segments.count(found.clipped_low).tolist() == np.where(ADVANTAGES < 0, sums.below, 0).tolist()
    assert segments.count(found.clipped_high).tolist() == np.where(ADVANTAGES > 0, sums.above, 0).tolist()
    assert segments.sum(found.ratio).tobytes() == sums.ratio.tobytes()
    assert np.exp(found.log_ratio) == pytest.approx(found.ratio, rel=1e-13)


def test_by_hand():
    """Two answers, A = 2 and -1, four tokens: A ρ / 4, and 0 at ρ = 3/2 with A > 0 and ρ = 1/2 with A < 0."""
    tokens = Tokens(np.array([0, 2, 4]), np.log([1.25, 1.5, 0.5, 3.0]), np.zeros(4))
    both = Partition(np.array([0, 0]), np.array([0]))
    advantages, counted = np.array([2.0, -1.0]), np.array([True, True])
    assert gradients(tokens, Recipe(), advantages, counted, both) == pytest.approx([2 * 1.25 / 4, 0, 0, -3.0 / 4], rel=1e-15)
    clipped = token_terms(tokens, Recipe().terms, advantages)
    assert (clipped.clipped_high.tolist(), clipped.clipped_low.tolist()) == ([0, 1, 0, 0], [0, 0, 1, 0])
    # One answer's ρ is the geometric mean, sqrt(1.25 · 1.5) and sqrt(0.5 · 3); each token has half of A ρ.
    sequence = Recipe(ratio_level="sequence_mean", eps_low=None, eps_high=None)
    halves = [2 * math.sqrt(1.875) / 2, -math.sqrt(1.5) / 2]
    expected = [half * 2 / 4 for half in halves for _ in range(2)]  # two terms an answer, of four
    assert gradients(tokens, sequence, advantages, counted, both) == pytest.approx(expected, rel=1e-15)
    cispo = gradients(tokens, Recipe(surrogate="cispo"), advantages, counted, both)
    assert cispo == pytest.approx([2 * 1.25 / 4, 2 * 1.272 / 4, -0.8 / 4, -1.272 / 4], rel=1e-15)


@pytest.mark.parametrize(
    ("log_ratio", "advantage", "fields", "gradient"),
    [
        (0.0, 1.0, {"eps_low": 0.0, "eps_high": 0.0}, 1.0),
        (0.0, -1.0, {"eps_low": 0.0, "eps_high": 0.0}, -1.0),
        (math.log(2.0), 1.0, {"eps_high": 1.0}, 2.0),
        (math.log(2.0), -1.0, {"delta": 2.0}, -2.0),
        (math.log(2.0), -1.0, {"dual_clip": 2.0}, -2.0),
        (0.5, 1.0, {"log_ratio_high": 0.5, "eps_high": 3.0}, math.exp(0.5)),
        (-0.5, 1.0, {"log_ratio_low": -0.5}, math.exp(-0.5)),
        (0.0, 0.0, {"kl": "abs", "kl_coefficient": 1.0}, 0.0),
    ],
)
def test_on_a_bound_a_token_counts_as_inside(log_ratio, advantage, fields, gradient):
    """What PyTorch's clamp and minimum give there; |d| has 0 at 0."""
    assert one_gradient(log_ratio, advantage, **fields) == pytest.approx(gradient, rel=1e-15)


@pytest.mark.parametrize("nudge", [2.0**-40, -(2.0**-40)])
def test_beside_a_bound(nudge):
    """Just above 1 + eps_high nothing, just below all."""
    assert one_gradient(math.log(2.0) + nudge, 1.0, eps_high=1.0) == pytest.approx(0.0 if nudge > 0 else 2.0, rel=1e-11)


def test_overflow_and_what_takes_it_away():
    """ρ = inf: -inf where A < 0, 0 where A is 0 or clipped, where the weight is 0, and where the answer does not count."""
    new, old = np.array([0.0]), np.array([-np.inf])
    tokens = Tokens(np.array([0, 1]), new, old, np.array([0.0]))
    counted = np.array([True])
    plain, masked = Recipe(eps_high=0.2), Recipe(sampler_mode="mask", sampler_low=0.5)
    for advantage, expected in ((-1.0, -math.inf), (0.0, 0.0), (1.0, 0.0)):
        assert gradients(tokens, plain, np.array([advantage]), counted, ONE_ANSWER).tolist() == [expected]
    assert gradients(tokens, masked, np.array([-1.0]), counted, ONE_ANSWER).tolist() == [0.0]
    assert gradients(tokens, plain, np.array([-1.0]), ~counted, ONE_ANSWER).tolist() == [0.0]


def test_an_unscorable_answer_has_no_term_and_moves_nothing():
    """Its advantage is NaN."""
    tokens = Tokens(np.array([0, 1, 2]), np.zeros(2), np.zeros(2))
    advantages = np.array([np.nan, 1.0])
    both = Partition(np.array([0, 0]), np.array([0]))
    found = token_terms(tokens, Recipe().terms, advantages)
    assert np.isnan(found.term).tolist() == [True, False]
    assert not (found.clipped_low | found.clipped_high).any()
    assert gradients(tokens, Recipe(), advantages, ~np.isnan(advantages), both).tolist() == [0.0, 1.0]


def test_a_coefficient_of_0_needs_no_slope():
    """As the objective then leaves the KL term out, infinite or not."""
    tokens = Tokens(np.array([0, 1]), np.zeros(1), np.zeros(1), reference=np.array([np.inf]))
    assert gradients(tokens, Recipe(kl="k1"), np.array([1.0]), np.array([True]), ONE_ANSWER).tolist() == [1.0]
    with pytest.raises(ValueError, match="logp_ref"):
        token_gradients(Tokens(np.array([0, 1]), np.zeros(1)), Recipe(kl="k1", kl_coefficient=1.0), np.zeros(1), np.ones(1))
