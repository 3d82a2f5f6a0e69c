"""Rank correlation inside groups."""

import numpy as np

from olmorl_cli.core.sums import FloatArray, IntArray
from olmorl_cli.core.tokens import BoolArray


def group_rank_correlations(x: FloatArray, y: FloatArray, codes: IntArray, groups: int) -> FloatArray:
    """Spearman's rank correlation of x and y inside each group, ties at their mean rank.

    Args:
        x, y: float (N,), finite.
        codes: int (N,) in 0..groups-1.
        groups: number of groups, P.

    Returns:
        float64 (P,) in [-1, 1], NaN where x or y has one value only; the same to the last bit for every order of answers.

    >>> group_rank_correlations(np.array([1.0, 2, 3, 5, 5]), np.array([2.0, 4, 9, 1, 2]), np.array([0, 0, 0, 1, 1]), 2)
    array([ 1., nan])
    """
    a, b = _centred_ranks(x, codes), _centred_ranks(y, codes)
    # Twice the centred ranks are whole numbers, so that every sum here is exact.
    products, of_a, of_b = (np.bincount(codes, weights=each, minlength=groups) for each in (a * b, a * a, b * b))
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where((of_a > 0.0) & (of_b > 0.0), products / np.sqrt(of_a * of_b), np.nan)


def _centred_ranks(values: FloatArray, codes: IntArray) -> FloatArray:
    """Twice each value's rank in its group less twice the group's mean rank, float64 (N,): whole numbers."""
    order = np.lexsort((values, codes))
    sorted_codes, sorted_values = codes[order], values[order]
    change = sorted_codes[1:] != sorted_codes[:-1]
    run = _positions(change | (sorted_values[1:] != sorted_values[:-1]), order.size)
    ranks = np.empty(order.size)
    ranks[order] = run - _positions(change, order.size)
    return ranks


def _positions(begins: BoolArray, size: int) -> IntArray:
    """First plus last position of the run that each of `size` places lies in; `begins` (size - 1,): where one begins."""
    starts = np.concatenate(([0], np.flatnonzero(begins) + 1))[: max(size, 0)]
    ends = np.concatenate((starts[1:], [size]))
    positions: IntArray = np.repeat(starts + ends - 1, ends - starts)
    return positions
