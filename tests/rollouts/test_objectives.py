"""Tokens in files to the objective: inputs on which tools of this kind have gone wrong, each with what is right.

Advantages are given in a column, or follow from rewards 1 and 0; a ratio ρ is written as log-probs -9 and -9 - log ρ.
"""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from olmorl_cli.core.recipes import CHOICES, Recipe
from olmorl_cli.errors import DataError
from olmorl_cli.results import groups_table
from tests.rollouts.builders import exactly, figures, kinds, score, tokens_table, write

NAN, INF = math.nan, math.inf
PADS = [-1e10, NAN, -INF, INF, 1.0, -9999.0, 0.0, None]
GIVEN = {"advantage": "adv"}


def of_ratios(ratios: list[list[float]], advantages: list[float], **columns: Any) -> pa.Table:
    """An answer a list, alone in its group, with these ratios and this given advantage."""
    new = [[-9.0] * len(each) for each in ratios]
    old = [[-9.0 - math.log(ratio) for ratio in each] for each in ratios]
    ids = list(range(len(ratios)))
    return tokens_table(new, old, group_id=ids, adv=advantages, reward=[0.0] * len(ids), **columns)


def of_terms(terms: list[list[float]]) -> pa.Table:
    """An answer for each of the (equal) values of a list: its advantage, over tokens of ratio 1."""
    return of_ratios([[1.0] * len(each) for each in terms], [each[0] for each in terms])


def row_of(path: str, recipe: Recipe | None = None, **options: Any) -> dict[str, Any]:
    (row,) = score(path, recipe, **options).rows
    return row


def kept(**fields: Any) -> Recipe:
    return Recipe(zero_signal_groups="kept", **fields)


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()], ids=str)
def test_padding_never_reaches_the_exponential(tmp_path: Path, kind: pa.DataType, capfd: pytest.CaptureFixture[str]) -> None:
    """Mask 1, 0: the same bits for every pad on either side, also 200 apart; nothing is printed (warnings are errors)."""
    seen = set()
    for pad in [*PADS, 200.0, -200.0]:
        for new, old in ((-0.5, pad), (pad, -0.5), (pad, pad)):
            lists = {
                "new_logprobs": pa.array([[-0.5, new], [-0.75]], pa.list_(kind)),
                "old_logprobs": pa.array([[-0.625, old], [-0.5]], pa.list_(kind)),
                "loss_mask": pa.array([[1, 0], [1]]),
            }
            path = write(tmp_path / "r.parquet", pa.table({"group_id": ["a", "a"], "reward": [1.0, 0.0]} | lists))
            seen.add(tuple(figures(score(path)).items()))
    assert len(seen) == 1
    assert capfd.readouterr() == ("", "")


def test_a_sentinel_at_a_real_token_is_refused_with_its_place(tmp_path: Path) -> None:
    path = write(tmp_path / "r.parquet", tokens_table([[-0.5, -0.5]], [[-0.5, 1.0]], loss_mask=pa.array([[1, 1]])))
    with pytest.raises(DataError, match=r"old_logprobs, the logp_old, is above 0\.001, no log-prob, row 0 token 1 "):
        score(path)


@pytest.mark.parametrize(
    ("new", "old", "codes"),
    [
        (-INF, -1.0, {"infinite_logp_new"}),
        (-1.0, -INF, {"infinite_logp_old"}),
        (-INF, -INF, {"infinite_logp_new", "infinite_logp_old"}),
        (NAN, -INF, {"nan_logp_new", "infinite_logp_old"}),
    ],
)
def test_infinite_log_probs_of_real_tokens_are_named_or_left_out_of_both_sums(
    tmp_path: Path, new: float, old: float, codes: set[str]
) -> None:
    """Left: one token of ratio 1 an answer, advantages 1/2 and -1/2. A clamp on log ρ does not hide them."""
    path = write(tmp_path / "r.parquet", tokens_table([[new, -1.0], [-1.0]], [[old, -1.0], [-1.0]]))
    for recipe in (Recipe(), Recipe(log_ratio_low=-10.0, log_ratio_high=10.0)):
        with pytest.raises(DataError) as caught:
            score(path, recipe)
        found = kinds(caught.value)
        assert set(found) == codes
        assert {(place.row, place.token) for kind in found.values() for place in kind.places} == {(0, 0)}
        row = row_of(path, recipe, skip=True)
        assert (row["tokens"], row["objective"], row["ratio_mean"]) == (2, 0.0, 1.0)


@pytest.mark.parametrize(
    ("advantage", "plain", "clamped"), [(1.0, 1.272, 1.272), (-1.0, None, -math.exp(20)), (0.0, 0.0, 0.0)]
)
def test_a_ratio_that_overflows_is_clipped_0_or_said(
    tmp_path: Path, advantage: float, plain: float | None, clamped: float
) -> None:
    """New 0, old -800. Only A < 0 has an infinite term; a recipe may bound log ρ."""
    path = write(tmp_path / "r.parquet", tokens_table([[0.0]], [[-800.0]], adv=[advantage]))
    result = score(path, kept(), **GIVEN)
    assert result.rows[0]["objective"] == (-INF if plain is None else pytest.approx(plain, rel=1e-15))
    assert any("the objective is infinite" in note for note in result.notes) is (plain is None)
    assert row_of(path, kept(log_ratio_high=20.0), **GIVEN)["objective"] == pytest.approx(clamped, rel=1e-14)


@pytest.mark.parametrize("aggregation", CHOICES["aggregation"])
def test_answers_without_a_real_token_add_nothing_and_stay_in_their_group(tmp_path: Path, aggregation: str) -> None:
    """Rewards 1, 1/2, 0 with masks [], 0 0, 1 1: mean 1/2, so the last has advantage -1/2 and all of the tokens."""
    recipe = Recipe(aggregation=aggregation, divisor=4.0)
    lists = [[], [-1.0, -1.0], [-1.0, -1.0]]
    mask = pa.array([[], [0, 0], [1, 1]], pa.list_(pa.int8()))
    table = tokens_table(lists, lists, reward=[1.0, 0.5, 0.0], loss_mask=mask)
    expected = {"token_sum": -1.0, "sequence_mean_of_token_sum": -1.0, "sum_over_constant": -1.0 / 4}.get(aggregation, -0.5)
    row = row_of(write(tmp_path / "r.parquet", table), recipe)
    assert (row["objective"], row["tokens"], row["answers"], row["kept_groups"]) == (expected, 2, 3, 1)
    result = score(write(tmp_path / "r.parquet", table.slice(0, 2)), recipe)
    assert (result.rows[0]["objective"], result.rows[0]["tokens"], result.rows[0]["ratio_mean"]) == (None, 0, None)
    assert any("no real token" in note for note in result.notes)


def test_means_are_taken_once_over_everything(tmp_path: Path) -> None:
    """Eight tokens of value 1 and two of value 5: 18/10, never the mean 3 of two means; however the rows are stored."""
    rows = of_terms([[1.0]] * 8 + [[5.0, 5.0]])
    two = of_terms([[1.0] * 8, [5.0] * 2])
    for table in (rows, two):
        paths = [write(tmp_path / f"{n}.parquet", table, row_group_size=size) for n, size in enumerate((1, 2, 10**6))]
        cut = [write(tmp_path / f"cut{n}.parquet", part) for n, part in enumerate((table.slice(0, 1), table.slice(1)))]
        values = {row_of(path, kept(), **GIVEN)["objective"] for path in (*paths, cut, cut[::-1])}
        assert values == {1.8}


def test_token_mean_and_sequence_mean_differ_and_the_token_mean_is_the_default(tmp_path: Path) -> None:
    """Five tokens of 2 and one of 10: 20/6 over tokens, (2 + 10)/2 over answers, (10 + 10)/2 of their sums."""
    path = write(tmp_path / "r.parquet", of_terms([[2.0] * 5, [10.0]]))
    assert row_of(path, kept(), **GIVEN)["objective"] == pytest.approx(20 / 6, rel=1e-15)
    for aggregation, value in (
        ("token_mean", 20 / 6),
        ("sequence_mean_of_token_mean", 6.0),
        ("sequence_mean_of_token_sum", 10.0),
        ("token_sum", 20.0),
    ):
        assert row_of(path, kept(aggregation=aggregation), **GIVEN)["objective"] == pytest.approx(value, rel=1e-15)


CLIPS = [
    ([(1.5, -1.0), (0.5, 1.0)], 0.0, 0.0),
    ([(1.5, 1.0)] * 3 + [(1.0, 1.0)], 0.0, 0.75),
    ([(0.5, -1.0), (1.5, 1.0), (1.0, 1.0), (1.0, -1.0)], 0.25, 0.25),
    ([(1.5, 0.0), (0.5, 0.0)], 0.0, 0.0),
]


@pytest.mark.parametrize(("tokens", "low", "high"), CLIPS)
def test_a_token_is_clipped_only_where_the_bound_binds(
    tmp_path: Path, tokens: list[tuple[float, float]], low: float, high: float
) -> None:
    """Each side by itself, as a share of the real tokens: four masked ones that lie outside change nothing."""
    ratios, advantages = [[ratio] for ratio, _ in tokens], [advantage for _, advantage in tokens]
    row = row_of(write(tmp_path / "r.parquet", of_ratios(ratios, advantages)), kept(), **GIVEN)
    assert (row["clip_low"], row["clip_high"]) == (low, high)
    wide = [[*each, 9.0, 9.0, 0.1, 0.1] for each in ratios]
    mask = pa.array([[1, 0, 0, 0, 0]] * len(wide), pa.list_(pa.int8()))
    padded = row_of(write(tmp_path / "w.parquet", of_ratios(wide, advantages, loss_mask=mask)), kept(), **GIVEN)
    assert exactly(padded) == exactly(row)


def test_a_ratio_on_its_bound_is_not_clipped(tmp_path: Path) -> None:
    """Bounds of 1 and 1: ρ = 1 lies on both. Bounds of 0 and 2: log-probs that are equal never lie outside."""
    path = write(tmp_path / "r.parquet", of_ratios([[1.0, 1.0], [1.0]], [1.0, -1.0]))
    for eps in (0.0, 1.0):
        row = row_of(path, kept(eps_low=eps, eps_high=eps), **GIVEN)
        assert (row["clip_low"], row["clip_high"]) == (0.0, 0.0)


@pytest.mark.parametrize("skip", [False, True])
def test_lists_that_do_not_match_are_named_with_both_lengths_and_never_padded(tmp_path: Path, skip: bool) -> None:
    """Three new, two old, a mask of three."""
    table = tokens_table([[-1.0] * 3, [-1.0]], [[-1.0] * 2, [-1.0]], loss_mask=pa.array([[1, 1, 1], [1]]))
    path = write(tmp_path / "r.parquet", table)
    with pytest.raises(DataError, match=r"r\.parquet: .*row 0 \(new_logprobs 3, old_logprobs 2\) \(1 in all\)") as caught:
        score(path, skip=skip)
    assert "nothing is padded or cut by guess" in str(caught.value)


def test_a_null_log_prob_is_never_0_and_a_0_is_a_log_prob(tmp_path: Path) -> None:
    """Probability 1 at a token is kept: ratio e. A null beside it is refused, or leaves only itself out."""
    path = write(tmp_path / "r.parquet", tokens_table([[0.0, 0.0], [-1.0]], [[-1.0, 0.0], [-1.0]]))
    row = row_of(path)
    assert (row["tokens"], row["ratio_max"], row["ratio_min"]) == (3, pytest.approx(math.e), 1.0)
    path = write(tmp_path / "n.parquet", tokens_table([[0.0, None, 0.0], [-1.0]], [[-1.0, -9.0, 0.0], [-1.0]]))
    with pytest.raises(DataError, match="new_logprobs, the logp_new, is null, row 0 token 1"):
        score(path)
    assert exactly(row_of(path, skip=True)) == exactly(row)


def test_truncated_answers_stay_in_the_baseline_and_leave_the_loss(tmp_path: Path) -> None:
    """Rewards 1, 0, 0, 0, the last three masked throughout: baseline 1/4, and one answer's two tokens of 3/4."""
    lists = [[-1.0, -1.0]] * 4
    mask = pa.array([[1, 1], [0, 0], [0, 0], [0, 0]])
    result = score(write(tmp_path / "r.parquet", tokens_table(lists, lists, reward=[1.0, 0.0, 0.0, 0.0], loss_mask=mask)))
    assert result.answers.advantages.tolist() == [0.75, -0.25, -0.25, -0.25]
    (row,) = result.rows
    assert (row["objective"], row["tokens"], row["kept_tokens"], row["kept_groups"]) == (0.75, 2, 2, 1)


def test_which_tokens_divide_is_said_by_name(tmp_path: Path) -> None:
    """Groups of ten tokens each, two without signal: the live one's sum over 10 by default, over 30 beside it."""
    groups, rewards = list("aaabbbcc"), [1.0] * 3 + [9.0] * 3 + [1.0, 0.0]
    lists = [[-1.0] * length for length in (4, 3, 3, 4, 3, 3, 8, 2)]
    path = write(tmp_path / "r.parquet", tokens_table(lists, lists, group_id=groups, reward=rewards))
    result = score(path)
    (row,) = result.rows
    assert (row["objective"], row["objective_all_groups"]) == ((4.0 - 1.0) / 10, (4.0 - 1.0) / 30)
    assert (row["kept_tokens"], row["tokens"], row["kept_groups"], row["groups"]) == (10, 30, 1, 3)
    assert groups_table(next(result.answers.groups)).column("std").to_pylist() == [0.0, 0.0, 0.5]
    assert row_of(path, kept())["objective"] == row["objective_all_groups"]


def test_a_mean_ratio_of_1_never_hides_its_spread(tmp_path: Path) -> None:
    """Weights 0.001 and 1.999 have mean 1: the extremes and the effective sample size stand beside it."""
    old = [[-1.0 + math.log(0.001)], [-1.0 + math.log(1.999) - 1.0]]
    new, sampler = [[-9.0 + math.log(0.001)], [-9.0 + math.log(1.999)]], [[-1.0], [-2.0]]
    table = tokens_table(new, [[-9.0], [-9.0]])
    row = row_of(write(tmp_path / "r.parquet", table))
    assert row["ratio_mean"] == pytest.approx(1.0, rel=1e-14)
    assert (row["ratio_min"], row["ratio_max"]) == pytest.approx((0.001, 1.999), rel=1e-12)
    assert row["approx_kl"] > 1.0
    table = tokens_table(old, old, rollout_logprobs=pa.array(sampler))
    row = row_of(write(tmp_path / "s.parquet", table))
    assert row["sampler_ratio_mean"] == pytest.approx(1.0, rel=1e-14)
    assert (row["sampler_ratio_min"], row["sampler_ratio_max"]) == pytest.approx((0.001, 1.999), rel=1e-12)
    assert row["sampler_ess"] == pytest.approx(1.0 / np.mean([0.001**2, 1.999**2]), rel=1e-12)


def test_peak_memory_does_not_grow_with_the_row_group(tmp_path: Path) -> None:
    """One row group of 40 MB a column is read in pieces: it is never held whole."""
    rows, length = 5_000, 2_000
    values = pa.nulls(rows * length, pa.float32()).fill_null(-1.0)
    lists = pa.ListArray.from_arrays(pa.array(np.arange(rows + 1) * length, pa.int32()), values)
    groups = pa.array(np.arange(rows) // 2)
    table = pa.table({"group_id": groups, "reward": np.arange(rows) % 2, "new_logprobs": lists, "old_logprobs": lists})
    path = write(tmp_path / "r.parquet", table, row_group_size=rows)
    del table, lists, values
    usual = pa.default_memory_pool()
    pool = pa.proxy_memory_pool(usual)
    pa.set_memory_pool(pool)
    try:
        assert row_of(path)["tokens"] == rows * length
    finally:
        pa.set_memory_pool(usual)
    assert 1e6 < pool.max_memory() < 25e6
