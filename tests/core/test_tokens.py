"""From tokens to answers: every `Terms` field against the slow reference, alone and through the objective."""

import dataclasses
import math
from decimal import Decimal, localcontext

import numpy as np
import pytest

from olmorl_cli.core.objective import Partition
from olmorl_cli.core.recipes import CHOICES, KL_ESTIMATORS, Recipe
from olmorl_cli.core.tokens import SamplerSums, TermSums, Tokens, Workspace, every_term_sums, sampler_sums, term_sums
from tests.core import reference
from tests.core.kit import objective

LENGTHS = [0, 1, 3, 0, 17, 9, 1, 8, 33, 0]
ADVANTAGES = np.array([1.0, -1.0, 0.5, 2.0, 0.0, -0.75, 0.25, 3.0, -0.1, -5.0])
WITH_SAMPLER = np.array([True, True, False, True, True, True, False, True, True, False])
GROUPS, BATCH_OF_GROUP = np.array([0, 0, 1, 1, 2, 2, 0, 3, 3, 4]), np.array([0, 0, 1, 1, 2])
COUNTED = np.array([True, True, True, True, True, False, True, True, True, True])

TRUNCATE = {"sampler_mode": "truncate", "sampler_cap": 1.2}
WEIGHTS = [
    {"sampler_mode": mode, "sampler_level": level, **limits}
    for mode in ("truncate", "mask", "keep_or_drop")
    for level in CHOICES["sampler_level"]
    for limits in ({"sampler_cap": 1.1}, {"sampler_low": 0.9}, {"sampler_low": 0.8, "sampler_cap": 1.3})
]
VARIANTS = [
    {},
    {"eps_low": None},
    {"eps_high": None},
    {"eps_low": None, "eps_high": None},
    {"eps_low": 0.0, "eps_high": 0.0},
    {"eps_low": 5.0, "eps_high": 0.1},
    {"dual_clip": 1.5},
    {"dual_clip": 1.1},
    {"dual_clip": 0.5},
    {"dual_clip": 3.0, "eps_high": None},
    {"delta": 1.1},
    {"delta": 1.5},
    {"delta": 1.5, "dual_clip": 1.4},
    {"delta": 2.0, "eps_high": None},
    {"ratio": "sampler"},
    {"ratio_level": "sequence_mean"},
    {"ratio_level": "sequence_mean", "ratio": "sampler", "eps_low": 3e-4, "eps_high": 4e-4},
    {"log_ratio_low": -0.3, "log_ratio_high": 0.35},
    {"log_ratio_low": -0.1},
    {"log_ratio_high": 0.1},
    {"log_ratio_high": 0.02, "ratio_level": "sequence_mean"},
    {"surrogate": "cispo"},
    {"surrogate": "cispo", "eps_low": None},
    {"surrogate": "cispo", "eps_high": None, "ratio_level": "sequence_mean"},
    {"surrogate": "cispo", "delta": 1.1},
    {"surrogate": "cispo", **TRUNCATE},
    *WEIGHTS,
    {**TRUNCATE, "sampler_log_clamp": 0.1},
    {**TRUNCATE, "sampler_log_clamp": 0.1, "sampler_level": "sequence_product"},
    {"sampler_mode": "mask", "sampler_low": 0.95, "sampler_log_clamp": 0.05, "dual_clip": 1.3, "delta": 1.4},
    *({"kl": estimator, "kl_coefficient": 0.25} for estimator in KL_ESTIMATORS),
]


def named(variant):
    """An id that pytest can print."""
    return ",".join(f"{key}={value}" for key, value in variant.items()) or "defaults"


def make_tokens(seed=1, lengths=LENGTHS, dtype=np.float64, spread=0.4):
    """Tokens of answers of these lengths; ratios on all sides of the bounds, some of them far away."""
    rng = np.random.default_rng(seed)
    number = sum(lengths)
    old = -rng.exponential(1.0, number)
    new, sampler, ref = (old + rng.normal(0, s, number) for s in (spread, spread / 4, spread))
    new[::11] = old[::11]
    new[5::23] += 9.5
    new[7::29] -= 12.25
    offsets = np.concatenate(([0], np.cumsum(lengths, dtype=np.int64)))
    return Tokens(offsets, *(a.astype(dtype) for a in (new, old, sampler, ref)))


def without_some_samplers(tokens):
    """Answers of WITH_SAMPLER false have no sampler log-probs; what stands there is nothing."""
    filler = np.where(np.arange(len(LENGTHS)) < 5, np.nan, -99.0)
    sampler = np.where(np.repeat(WITH_SAMPLER, LENGTHS), tokens.sampler, np.repeat(filler, LENGTHS))
    return dataclasses.replace(tokens, sampler=sampler, has_sampler=WITH_SAMPLER)


def part(tokens, first, last):
    """The answers first..last-1 alone."""
    cut = slice(tokens.offsets[first], tokens.offsets[last])
    arrays = {role: getattr(tokens, role)[cut] for role in ("new", "old", "sampler", "reference")}
    present = None if tokens.has_sampler is None else tokens.has_sampler[first:last]
    return Tokens(tokens.offsets[first : last + 1] - tokens.offsets[first], **arrays, has_sampler=present)


def decimals(tokens):
    """The reference's answers: dicts of lists of Decimals."""
    answers = []
    for i in range(tokens.offsets.size - 1):
        alone = part(tokens, i, i + 1)
        answers.append({r: [Decimal(float(x)) for x in getattr(alone, r)] for r in ("new", "old", "sampler", "reference")})
        if tokens.has_sampler is not None and not tokens.has_sampler[i]:
            answers[-1]["sampler"] = None
    return answers


def assert_equal_bits(sums, others):
    """All fields of two results."""
    for field in dataclasses.fields(sums):
        assert getattr(sums, field.name).tobytes() == getattr(others, field.name).tobytes(), field.name


def assert_equal_reference(tokens, recipe):
    """Every field of every answer; errors are measured against the sum of the magnitudes."""
    sums = term_sums(tokens, recipe.terms)
    with localcontext(reference.DIGITS_60):
        for i, answer in enumerate(decimals(tokens)):
            rows = reference.answer_tokens(answer, recipe)
            for field in ("if_positive", "if_negative", "ratio", "k3", "kl"):
                total, size = (float(sum(f(row[field]) for row in rows)) for f in (Decimal, abs))
                # expm1(d) - d loses the digits of k3 where |d| is small; its error is of the size of |d|.
                slack = 1e-15 * len(rows) if field in ("k3", "kl") else 0.0
                assert abs(getattr(sums, field)[i] - total) <= 1e-13 * size + slack, (field, i)
            for field in ("below", "above", "cut"):
                assert getattr(sums, field)[i] == sum(row[field] for row in rows), (field, i)
            ratios = [float(row["ratio"]) for row in rows]
            extremes = (min(ratios, default=math.inf), max(ratios, default=-math.inf))
            assert (sums.ratio_min[i], sums.ratio_max[i]) == pytest.approx(extremes, rel=1e-14)


@pytest.mark.parametrize("variant", VARIANTS, ids=named)
def test_sums_equal_the_slow_reference(variant):
    """Each field of Terms, one answer and one token at a time in 60 digits."""
    assert_equal_reference(make_tokens(), Recipe(**variant))


@pytest.mark.parametrize("variant", VARIANTS[::4], ids=named)
def test_sums_of_float32_log_probs(variant):
    """Computed in float64 from the float32 values as they are."""
    assert_equal_reference(make_tokens(dtype=np.float32), Recipe(**variant))


@pytest.mark.parametrize("variant", [*WEIGHTS, {"surrogate": "cispo", **TRUNCATE}], ids=named)
def test_answers_without_sampler_log_probs_keep_their_terms(variant):
    """Their weight is 1 and none of their tokens is cut, whatever stands in the column."""
    tokens = without_some_samplers(make_tokens())
    assert_equal_reference(tokens, Recipe(**variant))
    assert not term_sums(tokens, Recipe(**variant).terms).cut[~WITH_SAMPLER].any()


@pytest.mark.parametrize("aggregation", CHOICES["aggregation"])
@pytest.mark.parametrize("variant", [*VARIANTS[::3], VARIANTS[-1]], ids=named)
def test_objectives_equal_the_slow_reference(variant, aggregation):
    """Through every aggregation, over three batches, the last of which has no tokens."""
    recipe = Recipe(**variant, aggregation=aggregation, divisor=64.0)
    tokens = without_some_samplers(make_tokens()) if recipe.sampler_mode != "none" else make_tokens()
    partition = Partition(GROUPS, BATCH_OF_GROUP, 3)
    values = objective(ADVANTAGES, term_sums(tokens, recipe.terms), np.array(LENGTHS), COUNTED, partition, recipe)
    expected = reference.objective(
        decimals(tokens), ADVANTAGES, GROUPS.tolist(), partition.answers.tolist(), COUNTED.tolist(), recipe
    )
    assert expected[2] is None
    assert math.isnan(values[2])
    assert values[:2] == pytest.approx([float(e) for e in expected[:2]], rel=1e-12)


def test_open_instructs_functions_run_in_full():
    """open-instruct e6c3044a, clip 0.2 / 0.272 and weight cap 2: its loss, summed over tokens and answers, to 7 digits."""
    tokens = Tokens(
        np.array([0, 3, 5]),
        np.array([-1, -0.5, -2, -0.7, -1.2]),
        np.array([-1.1, -0.9, -1.6, -0.7, -1.0]),
        np.array([-1.3, -1.8, -1.6, -0.6, -1.0]),
    )
    everyone = Partition(np.array([0, 1]), np.array([0, 0]))
    for aggregation, loss in (("token_mean", -0.5984484), ("sequence_mean_of_token_mean", -0.4627993)):
        recipe = Recipe(sampler_mode="truncate", sampler_cap=2.0, aggregation=aggregation)
        sums = term_sums(tokens, recipe.terms)
        counted = np.array([True, True])
        value = objective(np.array([0.75, -0.25]), sums, np.array([3, 2]), counted, everyone, recipe)
        assert -value[0] == pytest.approx(loss, abs=6e-8)
        assert sums.cut.tolist() == [1, 0]
        assert (sums.above.tolist(), sums.below.tolist()) == ([1, 0], [1, 0])


@pytest.mark.parametrize(
    ("choice", "ratios", "advantages", "terms"),
    [
        ({"eps_high": 0.2, "dual_clip": 3.0}, [0.5, 1, 10], [1, -1, -4], [0.5, -1, -12]),  # NeMo RL, test_loss_functions.py
        ({"eps_high": 0.2, "dual_clip": 1.5}, [2, 2, 0.5], [2, -2, 2], [2.4, -3, 1]),  # slime, tests/test_policy_loss.py
        ({"eps_high": 0.2}, [1.5, 0.5, 1], [1, 1, 1], [1.2, 0.5, 1]),  # open-instruct, test_olmo_core_train_modules.py
    ],
)
def test_terms_of_the_trainers_own_tests(choice, ratios, advantages, terms):
    """One answer a token; terms are those losses with the sign turned."""
    tokens = Tokens(np.arange(4), np.log(ratios), np.zeros(3))
    sums = term_sums(tokens, Recipe(**choice).terms)
    for i, advantage in enumerate(advantages):
        assert advantage * (sums.if_positive if advantage > 0 else sums.if_negative)[i] == pytest.approx(terms[i], rel=1e-14)


@pytest.mark.parametrize(("eps", "clipped"), [((0.2, 0.28), [1, 1.14, 1.28, 0.8]), ((1.0, 4.0), [1, 1.14, 1.56, 0.4])])
def test_cispo_of_slimes_own_test(eps, clipped):
    """slime 624b824a, tests/test_cispo_loss.py: clip(ρ) times A log π, here A = 1."""
    old = -0.1 - np.log([1, 1.14, 1.56, 0.4])
    tokens = Tokens(np.arange(5), np.full(4, -0.1), old)
    sums = term_sums(tokens, Recipe(surrogate="cispo", eps_low=eps[0], eps_high=eps[1]).terms)
    assert sums.if_positive == pytest.approx([-0.1 * c for c in clipped], rel=1e-14)
    assert sums.if_negative.tolist() == sums.if_positive.tolist()


@pytest.mark.parametrize(("mode", "terms"), [("mask", [0, 0.5, 1, 2, 0]), ("truncate", [0.5, 0.5, 1, 2, 2])])
def test_sampler_bounds_are_inclusive(mode, terms):
    """open-instruct, test_olmo_core_train_modules.py: w of 1/4, 1/2, 1, 2, 4 within [1/2, 2] at ratio 1."""
    logs = np.log([0.25, 0.5, 1, 2, 4])
    assert np.exp(logs).tolist() == [0.25, 0.5, 1, 2, 4]
    tokens = Tokens(np.arange(6), logs, logs, np.zeros(5))
    sums = term_sums(tokens, Recipe(sampler_mode=mode, sampler_low=0.5, sampler_cap=2.0).terms)
    assert sums.if_positive == pytest.approx(terms, rel=1e-15)
    assert sums.cut.tolist() == [1, 0, 0, 0, 1]


def test_bounds_of_the_ratio_do_not_count_as_crossed():
    """ρ = 1 with no room on either side; ρ = 1 + ulp is above, 1 - ulp below."""
    ulp = 2.0**-52
    tokens = Tokens(np.arange(4), np.array([0.0, ulp, -ulp]), np.zeros(3))
    sums = term_sums(tokens, Recipe(eps_low=0.0, eps_high=0.0).terms)
    assert sums.above.tolist() == [0, 1, 0]
    assert sums.below.tolist() == [0, 0, 1]


def test_delta_below_the_upper_bound_leaves_nothing_to_clip():
    """ρ = 2 is capped at delta first; TRL f2cd5771 counts after that cap. CISPO has no unclipped ρ, so no cap."""
    tokens = Tokens(np.array([0, 1]), np.log([2.0]), np.zeros(1))
    assert term_sums(tokens, Recipe(delta=1.1).terms).above.tolist() == [0]
    assert term_sums(tokens, Recipe(delta=1.5).terms).above.tolist() == [1]
    assert term_sums(tokens, Recipe(delta=1.1, surrogate="cispo").terms).above.tolist() == [1]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_infinite_log_ratios(dtype):
    """ρ = 0 and ρ = inf: f is 0 and 1.272 where A > 0, 0.8 and inf where A < 0; a weight of 0 takes even that away."""
    new = np.array([-np.inf, -1.0], dtype=dtype)
    old = np.array([-1.0, -np.inf], dtype=dtype)
    sums = term_sums(Tokens(np.arange(3), new, old), Recipe().terms)
    assert sums.ratio.tolist() == [0.0, np.inf]
    assert sums.if_positive == pytest.approx([0.0, 1.272], rel=1e-15)
    assert sums.if_negative == pytest.approx([0.8, np.inf], rel=1e-15)
    masked = Recipe(sampler_mode="mask", sampler_low=0.5)
    sampler = np.array([0.0, 0.0], dtype=dtype)
    assert term_sums(Tokens(np.arange(3), new, old, sampler), masked.terms).if_negative.tolist() == [0.0, 0.0]


@pytest.mark.parametrize("variant", VARIANTS, ids=named)
def test_an_answer_does_not_depend_on_its_neighbours(variant):
    """Alone and among others, its sums have the same bits."""
    tokens, terms = make_tokens(), Recipe(**variant).terms
    together = term_sums(tokens, terms)
    alone = TermSums.joined([term_sums(part(tokens, i, i + 1), terms) for i in range(len(LENGTHS))])
    assert_equal_bits(alone, together)


def test_terms_do_not_depend_on_those_beside_them():
    """Alone and with others, whose ratios they share, sums have the same bits; in memory that other tokens had before."""
    tokens, workspace = make_tokens(), Workspace()
    every = list(dict.fromkeys(Recipe(**variant).terms for variant in VARIANTS))
    assert len({terms.of_ratio for terms in every}) < len(every)
    every_term_sums(make_tokens(7), every, workspace)
    together = every_term_sums(tokens, every, workspace)
    assert set(together) == set(every)
    for terms in every:
        assert_equal_bits(together[terms], term_sums(tokens, terms))


@pytest.mark.parametrize("offset", range(1, 18))
def test_an_answer_does_not_depend_on_its_offset(offset):
    """Behind an answer of any length, with another behind it."""
    recipe = Recipe(dual_clip=1.5, kl="k3", **TRUNCATE)
    answer, filler = make_tokens(2, [37]), make_tokens(3, [offset, 5])
    joined = {
        role: np.concatenate([getattr(filler, role)[:offset], getattr(answer, role), getattr(filler, role)[offset:]])
        for role in ("new", "old", "sampler", "reference")
    }
    tokens = Tokens(np.array([0, offset, offset + 37, offset + 42]), **joined)
    among = TermSums(**{f.name: getattr(term_sums(tokens, recipe.terms), f.name)[1:2] for f in dataclasses.fields(TermSums)})
    assert_equal_bits(among, term_sums(answer, recipe.terms))
    among = SamplerSums(**{f.name: getattr(sampler_sums(tokens), f.name)[1:2] for f in dataclasses.fields(SamplerSums)})
    assert_equal_bits(among, sampler_sums(answer))


@pytest.mark.parametrize("lengths", [[], [0], [0, 0, 0]])
def test_answers_without_tokens(lengths):
    """Sums and counts 0, least inf, greatest -inf: what `empty` says."""
    tokens = make_tokens(1, lengths)
    for variant in VARIANTS:
        assert_equal_bits(term_sums(tokens, Recipe(**variant).terms), TermSums.empty(len(lengths)))
    assert_equal_bits(sampler_sums(tokens), SamplerSums.empty(len(lengths)))


@pytest.mark.parametrize("variant", VARIANTS, ids=named)
def test_log_probs_are_left_as_they_were(variant):
    """They may be read-only views of a file."""
    tokens = make_tokens()
    for role in ("new", "old", "sampler", "reference"):
        getattr(tokens, role).setflags(write=False)
    term_sums(tokens, Recipe(**variant).terms)
    sampler_sums(tokens)


@pytest.mark.parametrize("present", [np.ones(10, dtype=bool), WITH_SAMPLER, np.zeros(10, dtype=bool), None])
def test_sampler_sums_equal_the_slow_reference(present):
    """w = exp(old - sampler) of the answers that have a sampler."""
    tokens = dataclasses.replace(make_tokens(), has_sampler=present)
    sums = sampler_sums(tokens)
    for i, answer in enumerate(decimals(tokens)):
        logs = [] if answer["sampler"] is None else [a - b for a, b in zip(answer["old"], answer["sampler"], strict=True)]
        weights = [float(log.exp()) for log in logs]
        assert sums.tokens[i] == len(weights)
        assert sums.weight[i] == pytest.approx(math.fsum(weights), rel=1e-14)
        assert sums.weight_squared[i] == pytest.approx(math.fsum(w * w for w in weights), rel=1e-14)
        assert sums.abs_diff[i] == pytest.approx(math.fsum(abs(float(log)) for log in logs), rel=1e-14)
        extremes = (min(weights, default=math.inf), max(weights, default=-math.inf))
        assert (sums.weight_min[i], sums.weight_max[i]) == pytest.approx(extremes, rel=1e-14)


@pytest.mark.parametrize(
    ("variant", "words"),
    [({"ratio": "sampler"}, "logp_sampler"), (TRUNCATE, "logp_old and logp_sampler"), ({"kl": "k3"}, "logp_ref")],
    ids=["ratio", "weight", "kl"],
)
def test_missing_log_probs_are_named(variant, words):
    """Only what the terms need is asked for."""
    tokens = Tokens(np.array([0, 2]), np.zeros(2), np.zeros(2))
    assert term_sums(tokens, Recipe().terms).ratio.tolist() == [2.0]
    assert sampler_sums(tokens).tokens.tolist() == [0]
    with pytest.raises(ValueError, match=words):
        term_sums(tokens, Recipe(**variant).terms)


def test_joined_sums_keep_zeros_that_are_no_start() -> None:
    """A ratio of exactly 0 is the least ratio there is, not the lack of one."""
    part = term_sums(Tokens(np.array([0, 1]), np.array([-900.0]), np.array([-0.1])), Recipe().terms)
    whole = TermSums.joined([TermSums.empty(1), part, TermSums.empty(1)])
    assert whole.ratio_min.tolist() == [np.inf, 0.0, np.inf]
    assert whole.ratio_max.tolist() == [-np.inf, 0.0, -np.inf]
