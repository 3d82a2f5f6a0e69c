"""The figures of an objective: reductions of the per-answer sums under one recipe, gathered part by part."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from olmorl_cli.core.diagnostics import Diagnostics
from olmorl_cli.core.objective import Aggregation, answer_terms
from olmorl_cli.core.recipes import Recipe
from olmorl_cli.core.sums import FloatArray, IntArray
from olmorl_cli.core.tokens import BoolArray, SamplerSums, TermSums, Tokens, TokenSums, Workspace
from olmorl_cli.core.totals import Totals

SAMPLER = ("ratio_mean", "ratio_min", "ratio_max", "clip", "ess", "abs_diff")
"""What is said of the sampler, each with sampler_ before it."""


@dataclass(frozen=True)
class Part:
    """Some answers; every array is (n,).

    Attributes:
        first: the first one's row in the whole input.
        advantages: float64, NaN for an unscorable answer.
        kept: bool, the answer's group is kept.
        groups: int, the group of each.
        batches: int, its batch; None where there is only one batch.
    """

    first: int
    advantages: FloatArray
    kept: BoolArray
    groups: IntArray
    batches: IntArray | None


class Figures:
    """One recipe's figures of B batches of answers in P groups.

    Attributes:
        recipe: the settings.
        diagnostics: the further ones; None where they are not asked for.
        totals: of what the batches' answers have.
        infinite_answers, first_infinite: counted answers whose terms' sum is infinite, and the row of the first.
    """

    def __init__(self, recipe: Recipe, batches: int, groups: int, diagnose: bool = False) -> None:
        self.recipe = recipe
        self.diagnostics = Diagnostics(recipe.terms, batches) if diagnose else None
        self.totals = Totals(batches)
        self.infinite_answers, self.first_infinite = 0, 1 << 62
        kinds = ("terms", "kl") if recipe.kl is not None and recipe.kl_coefficient != 0.0 else ("terms",)
        self._aggregations = {
            (who, kind): Aggregation(recipe.aggregation, recipe.divisor, batches, groups)
            for who in ("counted", "scorable")
            for kind in kinds
        }

    @property
    def by_group(self) -> bool:
        """Whether anything is gathered by group."""
        return any(aggregation.by_group for aggregation in self._aggregations.values())

    @property
    def batches(self) -> int:
        """Their number, B."""
        return self.totals.size

    def group_totals(self) -> dict[tuple[str, str], Totals]:
        """What is gathered by group."""
        return {key: aggregation.totals for key, aggregation in self._aggregations.items() if aggregation.by_group}

    def add(self, part: Part, sums: TokenSums) -> None:
        """Add answers and what their tokens add up to."""
        terms, tokens = sums.by_terms[self.recipe.terms], sums.tokens
        scorable, kept, counted = self._who(part)
        values = {"terms": answer_terms(part.advantages, terms), "kl": terms.kl}
        at = {"counted": np.flatnonzero(counted), "scorable": np.flatnonzero(scorable)}
        for (who, kind), aggregation in self._aggregations.items():
            rows = at[who]
            batches = None if part.batches is None else part.batches[rows]
            aggregation.add(values[kind][rows], tokens[rows], part.groups[rows], batches)
        for name, whose in (("tokens", scorable), ("kept_tokens", kept), ("counted", counted)):
            self._count(name, tokens, whose, part)
        self._count("below", terms.below, counted & (part.advantages < 0.0), part)
        self._count("above", terms.above, counted & (part.advantages > 0.0), part)
        self._count("changed", terms.below + terms.above, counted & (part.advantages != 0.0), part)
        if sums.sampler is not None:
            self._count("unweighted", (sums.sampler.tokens == 0) & (tokens > 0), counted, part)
        self._count("cut", terms.cut, counted, part)
        self._note_infinite(values["terms"], counted, part.first)
        self._gather(terms, sums.sampler, at["counted"], part.batches)

    def diagnose(self, part: Part, tokens: Tokens, workspace: Workspace) -> None:
        """Add answers' tokens to the further figures, if they are asked for."""
        if self.diagnostics is not None:
            self.diagnostics.add(tokens, self._who(part)[2], part.batches, workspace)

    def _who(self, part: Part) -> tuple[BoolArray, BoolArray, BoolArray]:
        """Which answers are scorable, which of those are in kept groups, and which count; bool (n,) each."""
        scorable = ~np.isnan(part.advantages)
        kept = scorable & part.kept
        return scorable, kept, scorable if self.recipe.zero_signal_groups == "kept" else kept

    def _count(self, name: str, values: npt.NDArray[Any], where: BoolArray, part: Part) -> None:
        self.totals.count(name, np.where(where, values, 0), part.batches)

    def _note_infinite(self, terms: FloatArray, counted: BoolArray, first: int) -> None:
        """Remember how many answers have an infinite sum of terms, and which is the first."""
        infinite = np.flatnonzero(counted & np.isinf(terms))
        self.infinite_answers += infinite.size
        if infinite.size:
            self.first_infinite = min(self.first_infinite, first + int(infinite[0]))

    def _gather(self, terms: TermSums, sampler: SamplerSums | None, rows: IntArray, batches: IntArray | None) -> None:
        codes = None if batches is None else batches[rows]
        self.totals.add("ratio", terms.ratio[rows], codes)
        self.totals.add("k3", terms.k3[rows], codes)
        self.totals.least("ratio_min", terms.ratio_min[rows], codes)
        self.totals.least("ratio_max", -terms.ratio_max[rows], codes)
        if sampler is None:
            return
        self.totals.count("sampler_tokens", sampler.tokens[rows], codes)
        self.totals.add("weight", sampler.weight[rows], codes)
        self.totals.add("weight_squared", sampler.weight_squared[rows], codes)
        self.totals.add("abs_diff", sampler.abs_diff[rows], codes)
        self.totals.least("weight_min", sampler.weight_min[rows], codes)
        self.totals.least("weight_max", -sampler.weight_max[rows], codes)

    def merge(self, other: "Figures", groups: IntArray | None = None, batches: IntArray | None = None) -> None:
        """Add another part's figures, whose groups and batches are these `groups` and `batches`; None: one to one.

        If these are closed and the others are not, what is gathered of them by group is left out.
        """
        self.totals.merge(other.totals, batches)
        for key, aggregation in self._aggregations.items():
            if aggregation.by_group or not other._aggregations[key].by_group:
                aggregation.merge(other._aggregations[key], groups, batches)
        if self.diagnostics is not None and other.diagnostics is not None:
            self.diagnostics.merge(other.diagnostics, batches)
        self.infinite_answers += other.infinite_answers
        self.first_infinite = min(self.first_infinite, other.first_infinite)

    def close(self, batch_of_group: IntArray) -> None:
        """All answers of the groups, in the batches `batch_of_group` (P,), are added: see `Aggregation`."""
        for aggregation in self._aggregations.values():
            aggregation.close(batch_of_group)

    def objective(self, who: str) -> FloatArray:
        """The objective of each batch, float64 (B,), once they are closed: the aggregated surrogate less the KL term.

        Args:
            who: counted or scorable, the answers that take part.
        """
        values = self._aggregations[who, "terms"].values()
        if (who, "kl") in self._aggregations:
            values = values - self.recipe.kl_coefficient * self._aggregations[who, "kl"].values()
        return values

    def further(self, sampler: bool) -> dict[str, npt.NDArray[Any]]:
        """The further figures by key, those of the sampler if there is one; nothing where they are not asked for."""
        if self.diagnostics is None:
            return {}
        of_sampler = self.diagnostics.sampler_figures() if sampler else {}
        return {"clip_changed": self._changed(), **self.diagnostics.figures(), **of_sampler}

    def _changed(self) -> FloatArray:
        """Share of counted tokens whose term the clip changes: cispo's on both sides, whatever the sign of A."""
        if self.recipe.surrogate == "cispo":
            return self.totals.share("changed", "counted")
        return self.totals.share("below", "counted") + self.totals.share("above", "counted")

    def of_tokens(self) -> dict[str, npt.NDArray[Any]]:
        """Key → value of each batch (B,), NaN where it is undefined."""
        totals, tokens = self.totals, self.totals.counted("counted")
        return {
            "tokens": totals.counted("tokens"),
            "kept_tokens": totals.counted("kept_tokens"),
            "clip_low": totals.share("below", "counted"),
            "clip_high": totals.share("above", "counted"),
            "ratio_mean": totals.over("ratio", tokens),
            "ratio_min": totals.lowest("ratio_min", "counted"),
            "ratio_max": -totals.lowest("ratio_max", "counted"),
            "approx_kl": totals.over("k3", tokens),
        }

    def of_sampler(self) -> dict[str, FloatArray]:
        """How far the sampler lies from the old log-probs, w = exp(logp_old - logp_sampler), over counted tokens (B,)."""
        totals, tokens = self.totals, self.totals.counted("sampler_tokens")
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            mean = totals.over("weight", tokens)
            ess = mean * mean / totals.over("weight_squared", tokens)
        capped = self.recipe.sampler_mode != "none"
        values = (
            mean,
            totals.lowest("weight_min", "sampler_tokens"),
            -totals.lowest("weight_max", "sampler_tokens"),
            totals.share("cut", "sampler_tokens") if capped else np.full(totals.size, np.nan),
            ess,
            totals.over("abs_diff", tokens),
        )
        return {f"sampler_{key}": value for key, value in zip(SAMPLER, values, strict=True)}
