"""Ranks inside groups, the bootstrap over groups and the trend's test, against slow loops and simulation."""

import numpy as np
import pytest

from olmorl_cli.core.intervals import LEAST_STEPS, mean_interval, trend
from olmorl_cli.core.mismatch import BUCKETS, Mismatch
from olmorl_cli.core.ranks import group_rank_correlations
from olmorl_cli.core.tokens import Tokens, Workspace


def slow_ranks(values: list[float]) -> list[float]:
    """Ranks by comparing every value with every other."""
    return [sum(a < b for a in values) + (sum(a == b for a in values) + 1) / 2 for b in values]


def test_rank_correlations_are_those_of_every_group_alone() -> None:
    rng = np.random.default_rng(1)
    codes = rng.integers(0, 12, 90)
    x, y = rng.integers(0, 6, 90).astype(float), rng.integers(0, 3, 90).astype(float)
    found = group_rank_correlations(x, y, codes, 13)
    for group in range(13):
        a, b = (slow_ranks(values[codes == group].tolist()) for values in (x, y))
        constant = len(set(a)) < 2 or len(set(b)) < 2
        expected = np.nan if constant else np.corrcoef(a, b)[0, 1]
        assert found[group] == pytest.approx(expected, nan_ok=True, abs=1e-12)
    order = rng.permutation(90)
    assert np.array_equal(group_rank_correlations(x[order], y[order], codes[order], 13), found, equal_nan=True)


def test_the_interval_holds_the_mean_as_often_as_it_says() -> None:
    held = 0
    for seed in range(50):
        mean, low, high = mean_interval(np.random.default_rng(seed).normal(0.3, 1.0, 60), 0.9, seed)
        assert low < mean < high
        held += low <= 0.3 <= high
    assert 38 <= held <= 50


def test_the_interval_does_not_depend_on_the_order_or_on_bundles() -> None:
    values = np.random.default_rng(0).normal(0.0, 1.0, 9000)
    interval = mean_interval(values, 0.99)
    assert mean_interval(values[::-1], 0.99) == interval
    width = interval[2] - interval[1]
    assert width == pytest.approx(2 * 2.576 / np.sqrt(9000), rel=0.1)


def test_a_trend_is_found_and_its_error_widened() -> None:
    steps = np.arange(30)
    line = trend(2.0 + 0.1 * steps + np.where(steps % 2, 0.05, -0.05), 0.99)
    assert line is not None
    assert line.change == pytest.approx(2.9, abs=0.05)
    assert line.limit < 0.2
    assert line.effective == 30.0
    rng = np.random.default_rng(3)
    walk = np.cumsum(rng.normal(0, 1, 200))
    wandering = trend(walk, 0.99)
    assert wandering is not None
    assert wandering.effective < 20
    assert trend(steps[: LEAST_STEPS - 1].astype(float), 0.99) is None
    flat = trend(np.ones(20), 0.99)
    assert flat is not None
    assert (flat.change, flat.error) == (0.0, 0.0)


def test_places_are_counted_among_the_real_tokens() -> None:
    lengths = np.array([0, 1, 2, 70, 0, 2000])
    offsets = np.concatenate(([0], np.cumsum(lengths)))
    d = np.random.default_rng(0).normal(0, 1, int(offsets[-1]))
    measured = Mismatch()
    measured.add(Tokens(offsets, d, d - 20.0, np.full(d.size, -20.0)), Workspace())
    expected = dict.fromkeys(BUCKETS, (0, 0.0))
    for start, length in zip(offsets[:-1].tolist(), lengths.tolist(), strict=True):
        for place in range(length):
            ends = (1, 4, 16, 64, 256, 1024, np.inf)
            name = BUCKETS[next(i for i, end in enumerate(ends) if place < end)] if place < length - 1 else BUCKETS[-1]
            tokens, total = expected[name]
            expected[name] = tokens + 1, total + abs(d[start + place])
    sums = measured.by_place.over("difference", 1.0)
    assert measured.by_place.counted("tokens").tolist() == [tokens for tokens, _ in expected.values()]
    assert sums == pytest.approx([total for _, total in expected.values()])


def test_tokens_without_a_sampler_are_left_out() -> None:
    offsets, old = np.array([0, 2, 4]), np.array([-1.0, -1.0, -1.0, -1.0])
    sampler = np.array([np.nan, np.nan, -1.5, -1.0])
    measured = Mismatch()
    measured.add(Tokens(offsets, old, old, sampler, has_sampler=np.array([False, True])), Workspace())
    assert (measured.tokens, measured.mean("log_weight"), measured.mean_difference()) == (2, 0.25, 0.25)
    nothing = Mismatch()
    nothing.add(Tokens(offsets, old), Workspace())
    assert nothing.tokens == 0
    assert np.isnan(nothing.quantile(0.5))
