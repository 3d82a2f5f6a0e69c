"""The further figures: quantiles from a histogram, estimators and tails, against plain arithmetic on sorted values."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from olmorl_cli.core.diagnostics import BINS, QUANTILES, Diagnostics, bins_of, quantiles
from olmorl_cli.core.recipes import Recipe
from olmorl_cli.core.tokens import Tokens, Workspace
from olmorl_cli.core.totals import Tally, Totals

LOG_RATIOS = st.floats(-900, 900) | st.floats(-1e-3, 1e-3) | st.sampled_from([0.0, -0.0, 2.0**-24, -(2.0**-24), 1e-300])


def quantile(values, share):
    """The ⌈share · n⌉-th value in ascending order."""
    return sorted(values)[max(math.ceil(share * len(values)), 1) - 1]


@settings(max_examples=200, deadline=None, derandomize=True, database=None)
@given(st.lists(LOG_RATIOS, min_size=1, max_size=40), st.sampled_from([0.01, 0.05, 0.5, 0.95, 0.99, 1.0]))
def test_quantiles_are_off_by_no_more_than_they_say(values, share):
    totals = Totals(1)
    totals.tally("log_ratio", bins_of(np.array(values)), BINS, None)
    true, found = quantile(values, share), quantiles(totals.tallied("log_ratio"), 1, [share])[0, 0]
    assert abs(found - true) <= max(0.004 * abs(true), 2.0**-24)


def test_bins_ascend_with_the_log_ratio():
    values = np.concatenate(([-2000.0], -np.logspace(3, -9, 5000), [0.0], np.logspace(-9, 3, 5000), [2000.0]))
    bins = bins_of(values)
    assert (np.diff(bins) >= 0).all()
    assert (bins[0], bins[5001], bins[-1]) == (0, BINS // 2, BINS - 1)


def made(terms, counted, batches, lengths, **columns):
    offsets = np.concatenate(([0], np.cumsum(lengths)))
    diagnostics = Diagnostics(terms, 1 if batches is None else max(batches) + 1)
    tokens = Tokens(offsets, **{name: np.array(values) for name, values in columns.items()})
    diagnostics.add(tokens, np.array(counted), None if batches is None else np.array(batches), Workspace())
    return diagnostics


def test_figures_worked_by_hand():
    """Answers of 2, 1 and 3 tokens, the second one not counted: log ρ 0.5, -0.1 | 9 | 0, 0.2, -2."""
    new, old = [-1.0, -1.1, 0.0, -1.0, -0.8, -3.0], [-1.5, -1.0, -9.0, -1.0, -1.0, -1.0]
    sampler = [-1.5, -2.0, 0.0, -1.0, -0.5, -1.25]
    found = made(Recipe().terms, [True, False, True], None, [2, 1, 3], new=new, old=old, sampler=sampler)
    d = [0.5, -0.1, 0.0, 0.2, -2.0]
    figures = {key: value.tolist()[0] for key, value in (found.figures() | found.sampler_figures()).items()}
    assert figures["approx_kl_k1"] == pytest.approx(1.4 / 5, rel=1e-14)
    assert figures["approx_kl_k2"] == pytest.approx((0.25 + 0.01 + 0.04 + 4.0) / 10, rel=1e-14)
    assert figures["ratio_p50"] == 1.0
    assert figures["ratio_p01"] == pytest.approx(math.exp(-2.0), rel=0.01)
    assert figures["ratio_p99"] == pytest.approx(math.exp(0.5), rel=0.003)
    w = [0.0, 1.0, 0.0, -0.5, 0.25]  # old - sampler
    assert figures["sampler_outside"] == 1 / 5
    assert figures["sampler_abs_diff_max"] == 1.0
    assert figures["sampler_k1"] == pytest.approx(-sum(w) / 5, rel=1e-14)
    assert figures["sampler_k3"] == pytest.approx(sum(math.exp(x) - 1 - x for x in w) / 5, rel=1e-14)
    assert quantile(d, 0.5) == 0.0


def test_half_and_double_are_inside():
    """The share is of ratios outside [1/2, 2], its ends included."""
    old = [math.log(2.0), 0.0, math.nextafter(math.log(2.0), 1.0)]
    found = made(Recipe().terms, [True], None, [3], new=[0.0] * 3, old=old, sampler=[0.0, math.log(2.0), 0.0])
    assert found.sampler_figures()["sampler_outside"].tolist() == [1 / 3]


def test_a_sequence_has_one_ratio_and_clamps_hold_it():
    """Means of the answers' log-ratios, 0.5 and -3, the second one clamped at -1; each token counts."""
    terms = Recipe(ratio_level="sequence_mean", log_ratio_low=-1.0, log_ratio_high=1.0).terms
    found = made(terms, [True, True], None, [2, 2], new=[0.0, 0.0, -4.0, -2.0], old=[-1.0, 0.0, 0.0, 0.0]).figures()
    assert found["approx_kl_k1"].tolist() == [0.25]
    assert found["approx_kl_k2"].tolist() == [(0.25 + 1.0) / 4]
    assert found["ratio_p01"].tolist() == [pytest.approx(math.exp(-1.0), rel=0.004)]
    assert found["ratio_p99"].tolist() == [pytest.approx(math.exp(0.5), rel=0.002)]


@pytest.mark.parametrize("batches", [None, [0, 1, 0, 2, 2, 1]])
def test_parts_in_any_order_give_the_same_bits(batches):
    """One part, or three merged backwards into batches numbered otherwise."""
    rng = np.random.default_rng(5)
    lengths = np.array([3, 0, 7, 20, 1, 9])
    columns = {name: rng.normal(size=40) for name in ("new", "old", "sampler")}
    counted = np.array([True, True, False, True, True, True])
    whole = made(Recipe().terms, counted, batches, lengths, **columns)
    merged, edges = Diagnostics(Recipe().terms, whole.totals.size), np.concatenate(([0], np.cumsum(lengths)))
    for a, b in ((4, 6), (1, 4), (0, 1)):
        part = {name: values[edges[a] : edges[b]] for name, values in columns.items()}
        own = None if batches is None else np.unique(batches[a:b], return_inverse=True)
        merged.merge(
            made(Recipe().terms, counted[a:b], None if own is None else own[1].tolist(), lengths[a:b], **part),
            None if own is None else own[0],
        )
    for which in ("figures", "sampler_figures"):
        for key, values in getattr(whole, which)().items():
            assert getattr(merged, which)()[key].tobytes() == values.tobytes(), key


def test_a_batch_without_counted_tokens_has_no_figures():
    found = made(Recipe().terms, [True, False], [0, 1], [1, 1], new=[0.0, 0.0], old=[0.5, 0.5], sampler=[0.0, 0.0])
    for key, values in (found.figures() | found.sampler_figures()).items():
        assert not math.isnan(values[0]), key
        assert math.isnan(values[1]), key
    assert list(found.figures())[: len(QUANTILES)] == list(QUANTILES)


@pytest.mark.parametrize("batches", [1, 3, 500])
def test_tallies_keep_what_occurs_whether_many_batches_or_few(batches):
    """Added in parts and merged, some from batches numbered otherwise: as counting one by one."""
    rng = np.random.default_rng(batches)
    whole, expected = Totals(batches), {}
    for _ in range(20):
        at = np.unique(rng.integers(0, batches, 7))
        part, codes, bins = Totals(at.size), rng.integers(0, at.size, 300), rng.integers(0, BINS, 300) // 40
        part.tally("x", bins, BINS, None if batches == 1 else codes)
        whole.merge(part, None if batches == 1 else at)
        for code, value in zip(codes.tolist(), bins.tolist(), strict=True):
            cell = (0 if batches == 1 else int(at[code])) * BINS + value
            expected[cell] = expected.get(cell, 0) + 1
    cells, counts = whole.tallied("x").whole()
    assert dict(zip(cells.tolist(), counts.tolist(), strict=True)) == expected
    assert cells.tolist() == sorted(expected)
    assert Tally(5).whole()[0].size == 0
