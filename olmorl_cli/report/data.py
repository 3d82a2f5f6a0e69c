"""What a page shows of a run: its figures by step, and how rewards, advantages and log-ratios are spread."""

import threading
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import types

from olmorl_cli.checks.examine import Examination, examine
from olmorl_cli.core.diagnostics import BINS, bin_middles, bins_of
from olmorl_cli.core.figures import Figures, Part
from olmorl_cli.core.recipes import Recipe
from olmorl_cli.core.segments import Segments
from olmorl_cli.core.sums import FloatArray, IntArray
from olmorl_cli.core.tokens import Tokens, TokenSums, Workspace, log_ratios, log_weights
from olmorl_cli.errors import DataError, Problems
from olmorl_cli.objectives import ascending, score_objective
from olmorl_cli.report.ends import Ends, read_ends
from olmorl_cli.rollouts.arrays import BoolArray
from olmorl_cli.rollouts.rollouts import Rollouts
from olmorl_cli.scoring import ScoredAnswers, score_answers
from olmorl_cli.token_pass import Progress

MOST_POINTS = 200
"""Points of a plot by step; where there are more steps, a point is of several that follow one another."""

KEPT, ALL_HIGH, ALL_LOW, ALIKE, UNSCORED = range(5)
"""What becomes of a group: kept; all rewards the input's highest, its lowest, one in between; nothing to score.

A reward that the whole input has is its highest where it is positive, its lowest otherwise.
"""


@dataclass(frozen=True)
class Run:
    """A run, scored and examined.

    Attributes:
        examined: its answers, its objective and what the checks say.
        tallies: how the log-ratios are spread; None without the log-probs that the recipe needs.
        lacking: the roles of those log-probs that no column plays.
        ends: which answers were cut off; None without a column that tells.
    """

    examined: Examination
    tallies: "Tallies | None"
    lacking: list[str]
    ends: Ends | None = None

    @property
    def scored(self) -> ScoredAnswers:
        """The answers."""
        return self.examined.answers

    @property
    def sums(self) -> TokenSums | None:
        """Of each answer's tokens; None without the log-probs that the recipe needs."""
        return None if self.examined.objective is None else self.examined.objective.kept_sums

    @property
    def figures(self) -> dict[str, Any] | None:
        """The objective's, over the whole input; None like `sums`."""
        return None if self.examined.objective is None else self.examined.objective.rows[0]

    @property
    def notes(self) -> list[str]:
        """What a person should know beside the figures, a sentence each."""
        return self.scored.notes if self.examined.objective is None else self.examined.objective.notes

    @property
    def has_sampler(self) -> bool:
        """Whether old log-probs can be held against the sampler's."""
        return self.sums is not None and self.sums.sampler is not None

    @property
    def counted(self) -> BoolArray:
        """Which answers' tokens count in the objective, bool (N,)."""
        kept_anyway = self.scored.recipe.zero_signal_groups == "kept"
        counted: BoolArray = ~np.isnan(self.scored.advantages) & (self.scored.kept | kept_anyway)
        return counted

    @property
    def weights(self) -> FloatArray:
        """How much each answer moves the policy, |A| × tokens (|A| without tokens), float64 (N,)."""
        tokens = 1.0 if self.sums is None else self.sums.tokens
        with np.errstate(over="ignore", invalid="ignore"):
            found: FloatArray = np.nan_to_num(np.abs(self.scored.advantages) * tokens)
        return found


def read_run(rollouts: Rollouts, recipe: Recipe, skip: bool, progress: Progress | None = None) -> tuple[Run, Problems]:
    """Score and examine the input; with it, what was left out, and what may be a fault of the reading.

    Raises:
        InputError: a file cannot be read.
        DataError: something in the answers or tokens is wrong; under `skip`, something that cannot be left out.
    """
    lacking = sorted(recipe.needs - set(rollouts.choices))
    problems, held = Problems(), list[Tallies]()

    def look(scored: ScoredAnswers) -> Tallies:
        held.append(Tallies(scored))
        return held[0]

    if skip and lacking:
        problems.merge(score_answers(rollouts, recipe, skip).problems)
    elif skip:  # which errors can be left out, only the scoring itself tells
        problems.merge(score_objective(rollouts, [recipe], skip=skip)[0].problems)
    found = Problems() if skip else problems
    examined = examine(rollouts, found, progress, recipe, look=look)
    if problems.errors:
        raise DataError(problems)
    return Run(examined, held[0] if held else None, lacking, read_ends(rollouts)), problems


class Tallies:
    """What the token pass is asked for beside its own figures: it is shown all tokens, by several threads.

    Attributes:
        log_ratios: int (3, BINS), how often a log-ratio lies in each of `bins_of`: at tokens of kept groups where A < 0,
            where A > 0, and at all others.
        sampler_k3: float64 (N,), Σ (w - 1) - log w of each answer's tokens, w = exp(logp_old - logp_sampler).
    """

    def __init__(self, scored: ScoredAnswers) -> None:
        signs = np.where(scored.kept, np.sign(np.nan_to_num(scored.advantages)), 0.0)
        self._rows: IntArray = np.array([2, 1, 0])[signs.astype(np.int64)]  # 0, 1, -1
        self._terms = scored.recipe.terms
        self._lock = threading.Lock()
        self.log_ratios: IntArray = np.zeros((3, BINS), dtype=np.int64)
        self.sampler_k3: FloatArray = np.zeros(signs.size)

    def __call__(self, first: int, tokens: Tokens, workspace: Workspace) -> None:
        segments = Segments(tokens.offsets)
        answers = slice(first, first + segments.lengths.size)
        cells = bins_of(log_ratios(tokens, self._terms, segments, workspace))
        cells += segments.spread(self._rows[answers] * BINS)
        counts = np.bincount(cells, minlength=self.log_ratios.size).reshape(self.log_ratios.shape)
        with self._lock:
            self.log_ratios += counts
        if tokens.old is not None and tokens.sampler is not None:
            segments, log_weight = log_weights(tokens, workspace)
            with np.errstate(over="ignore", invalid="ignore"):
                self.sampler_k3[answers] = segments.sum(np.expm1(log_weight) - log_weight)


def outcomes(scored: ScoredAnswers) -> IntArray:
    """What becomes of each group, int (P,)."""
    statistics = scored.statistics
    scorable = statistics.count > 0
    low = np.min(statistics.min, where=scorable, initial=np.inf)
    high = np.max(statistics.max, where=scorable, initial=-np.inf)
    found: IntArray = np.select(
        [~scorable, statistics.kept, (statistics.mean == high) & (low < high or high > 0.0), statistics.mean == low],
        [UNSCORED, KEPT, ALL_HIGH, ALL_LOW],
        ALIKE,
    )
    return found


@dataclass(frozen=True)
class Points:
    """Figures by step, in the order of the steps; every array is (B,).

    Attributes:
        x: where a point stands: its (first) step, or the step's place where steps are no numbers.
        numeric: steps are numbers.
        steps: number of steps.
        values: the figures by name, NaN where undefined.
        groups: int (B, 5), how many groups have each outcome.
    """

    x: FloatArray
    numeric: bool
    steps: int
    values: dict[str, FloatArray]
    groups: IntArray

    @property
    def per_point(self) -> int:
        """Steps of a point."""
        return -(-self.steps // max(self.x.size, 1))

    @property
    def outcome_shares(self) -> FloatArray:
        """Share of the groups that have each outcome, float64 (B, 5)."""
        shares: FloatArray = self.groups / np.maximum(self.groups.sum(axis=1, keepdims=True), 1)
        return shares


def points_of(run: Run) -> Points | None:
    """The figures by step; None without a column of steps, or without an answer."""
    scored = run.scored
    steps = scored.table.steps
    if steps is None or not len(steps):
        return None
    order, number = np.array(list(ascending(steps, len(steps)))), len(steps)
    size = -(-number // -(-number // MOST_POINTS))
    place = np.empty(number, dtype=np.int64)
    place[order] = np.arange(number) // -(-number // MOST_POINTS)
    numeric = types.is_integer(steps.type) or types.is_floating(steps.type)
    first = order[np.flatnonzero(np.diff(place[order], prepend=-1))]
    at: FloatArray = np.arange(1.0, size + 1.0)
    if numeric:
        at = steps.take(pa.array(first)).to_numpy(zero_copy_only=False).astype(np.float64)
    batch_of_group = place[scored.table.step_of_group]
    groups = np.bincount(batch_of_group * 5 + outcomes(scored), minlength=5 * size).reshape(size, 5)
    values = {"kept": groups[:, KEPT] / np.maximum(groups.sum(axis=1), 1)}
    batches = batch_of_group[scored.table.groups]
    if scored.table.rewards is not None:
        values["reward"] = means(scored.table.rewards, batches, size)
    if run.ends is not None:
        values["cut"] = means(run.ends.cut.astype(np.float64), batches, size)
    if run.sums is not None:
        values |= _of_tokens(run, run.sums, batches, batch_of_group, size)
    return Points(at, numeric, number, values, groups)


def _of_tokens(run: Run, sums: TokenSums, batches: IntArray, of_group: IntArray, size: int) -> dict[str, FloatArray]:
    """The objective, clips and lengths of each batch, as `objective --by` has them, and k3 of the sampler."""
    scored, recipe = run.scored, run.scored.recipe
    figures = Figures(recipe, size, of_group.size)
    figures.add(Part(0, scored.advantages, scored.kept, scored.table.groups, batches), sums)
    found = figures.of_tokens()
    values = {key: np.asarray(found[key], dtype=np.float64) for key in ("clip_low", "clip_high", "approx_kl")}
    figures.close(of_group)
    values["objective"] = figures.objective("counted")
    values["length"] = means(sums.tokens.astype(np.float64), batches, size)
    if sums.sampler is not None and run.tallies is not None:
        tokens = np.bincount(batches, np.where(run.counted, sums.sampler.tokens, 0), size)
        k3 = np.bincount(batches, np.where(run.counted, run.tallies.sampler_k3, 0.0), size)
        values["sampler_k3"] = np.where(tokens > 0, k3 / np.maximum(tokens, 1), np.nan)
    return values


def means(values: FloatArray, codes: IntArray, size: int) -> FloatArray:
    """Mean of the finite values (N,) of each code, float64 (size,); NaN where there is none."""
    finite = np.isfinite(values)
    counts = np.bincount(codes, finite, size)
    with np.errstate(over="ignore"):
        sums = np.bincount(codes, np.where(finite, values, 0.0), size)
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)


@dataclass(frozen=True)
class Spread:
    """A histogram; `counts` is (series, bins).

    Attributes:
        edges: float64 (bins + 1,), ascending; of `discrete` ones the values themselves (bins,).
        counts: how many values lie in each bin.
        beyond: how many lie outside of all bins.
        discrete: each bin is one value.
    """

    edges: FloatArray
    counts: npt.NDArray[np.int64]
    beyond: int = 0
    discrete: bool = False


MOST_VALUES = 24
MOST_BINS = 40
HALF_BINS = 25
"""Bins of log-ratios on either side of the middle one: wide enough to hold several of `bins_of`."""


def spread_of(values: FloatArray) -> Spread | None:
    """Finite values (n,) in bins of one width, or value by value where there are few different ones; None for none."""
    finite = values[np.isfinite(values)]
    if not finite.size:
        return None
    scale = float(np.abs(finite).max()) or 1.0
    rounded = np.round(finite / scale, 10) * scale + 0.0  # one value, computed in two ways
    if np.unique(rounded[:100_000]).size <= MOST_VALUES:
        distinct, counts = np.unique(rounded, return_counts=True)
        if distinct.size <= MOST_VALUES:
            return Spread(distinct, counts[None], discrete=True)
    low, high = float(finite.min()), float(finite.max())
    with np.errstate(over="ignore"):
        if not np.isfinite(high - low):
            finite, low, high = finite / 4.0, low / 4.0, high / 4.0  # a shape, where no axis could be drawn
    counts, edges = np.histogram(finite, MOST_BINS, (low, high))
    return Spread(edges, counts[None])


def log_ratio_spread(tallies: Tallies) -> Spread | None:
    """Log-ratios of kept groups in bins of one width, where A < 0 and where A > 0; None without tokens there."""
    fine = tallies.log_ratios[:2]
    total = int(fine.sum())
    if not total:
        return None
    middles = bin_middles()
    share = np.cumsum(fine.sum(axis=0)) / total
    ends = np.searchsorted(share, (0.0005, 0.9995)).clip(max=BINS - 1)
    most = max(0.3, float(np.abs(middles[ends]).max()))
    edges = np.linspace(-most, most, 2 * HALF_BINS + 2)  # an odd number of bins: 0 stands in the middle of one
    inside = np.abs(middles) <= most
    at = np.searchsorted(edges, middles[inside], side="right").clip(1, edges.size - 1) - 1
    counts = np.stack([np.bincount(at, row[inside], edges.size - 1).astype(np.int64) for row in fine])
    return Spread(edges, counts, int(fine[:, ~inside].sum()))
