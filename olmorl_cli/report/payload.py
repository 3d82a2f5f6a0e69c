"""What the page's tables are made of, as JSON that stands inside HTML."""

import json
from typing import Any

import numpy as np
import pyarrow as pa

from olmorl_cli.core.sums import FloatArray
from olmorl_cli.errors import visible
from olmorl_cli.objectives import ascending
from olmorl_cli.report.data import Run, outcomes
from olmorl_cli.report.details import CHARACTERS_OF_STEP, Chosen, Details
from olmorl_cli.report.story import outcome_names
from olmorl_cli.rollouts.texts import plain_texts

_INSIDE_HTML = {ord(c): f"\\u{ord(c):04x}" for c in "<>&\u2028\u2029\x7f"}
DIGITS = 5


def payload(run: Run, chosen: Chosen, details: Details) -> dict[str, Any]:
    """The groups, answers, texts and tokens that are on the page, column by column."""
    return {
        "score": "mean reward" if run.scored.table.rewards is not None else "mean advantage",
        "outcomes": outcome_names(run),
        "groups": _groups(run, chosen),
        "answers": _answers(run, chosen),
        "ends": None if run.ends is None else {"column": visible(run.ends.column), "words": run.ends.words},
        "detailed": chosen.detailed,
        "details": {
            "prompt": details.prompt,
            "prompts": details.prompts,
            "answer": details.answer,
            "answers": details.answers if details.answer is not None else None,
            "characters": details.characters,
            "tokens": details.tokens if run.sums is not None else None,
            "lengths": details.lengths,
            "clipped": details.clipped,
            "by_character": details.by_character,
        },
    }


def inside_html(value: Any) -> str:
    """JSON that can stand in a script element: nothing in it can end the element or open another."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.translate(_INSIDE_HTML)


def rounded(values: FloatArray) -> list[float | int | None]:
    """Numbers in a few digits, whole ones as such, None for what is not finite."""
    with np.errstate(over="ignore", invalid="ignore"):
        short = np.char.mod(f"%.{DIGITS}g", values).astype(np.float64)
    numbers = short.astype(object)
    whole = np.isfinite(short) & (np.abs(short) < 1e15) & (short == np.rint(short))
    numbers[whole] = short[whole].astype(np.int64)
    numbers[~np.isfinite(short)] = None
    return list(numbers)


def _groups(run: Run, chosen: Chosen) -> dict[str, Any]:
    scored, at = run.scored, chosen.groups
    number, groups = scored.statistics.size.size, scored.table.groups
    weights = run.weights
    with np.errstate(over="ignore", invalid="ignore"):
        shares = np.bincount(groups, weights, number) / max(float(weights.sum()), np.finfo(float).tiny)
    columns: dict[str, Any] = {
        "id": chosen.ids,
        "size": scored.statistics.size[at].tolist(),
        "mean": rounded(scored.statistics.mean[at]),
        "std": rounded(scored.deviations[at]),
        "outcome": outcomes(scored)[at].tolist(),
        "weight": rounded(shares[at]),
        "shown": chosen.counts.tolist(),
    }
    if run.ends is not None:
        columns["cut"] = np.bincount(groups[run.ends.cut], minlength=number)[at].tolist()
    if scored.table.steps is not None:
        steps = scored.table.step_of_group[at]
        place = np.empty(len(scored.table.steps), dtype=np.int64)
        place[list(ascending(scored.table.steps, place.size))] = np.arange(place.size)
        names = plain_texts(scored.table.steps.take(pa.array(steps))).to_pylist()
        columns["step"] = [(name or "null")[:CHARACTERS_OF_STEP] for name in names]
        columns["order"] = place[steps].tolist()
    if run.sums is not None:
        terms, advantages = run.sums.by_terms[scored.recipe.terms], scored.advantages
        for name, values in (
            ("tokens", run.sums.tokens),
            ("low", np.where(advantages < 0.0, terms.below, 0)),
            ("high", np.where(advantages > 0.0, terms.above, 0)),
        ):
            columns[name] = np.bincount(groups, values, number)[at].astype(np.int64).tolist()
    return columns


def _answers(run: Run, chosen: Chosen) -> dict[str, Any]:
    scored, rows = run.scored, chosen.answers
    columns: dict[str, Any] = {"row": rows.tolist(), "advantage": rounded(scored.advantages[rows])}
    if scored.table.rewards is not None:
        columns["reward"] = rounded(scored.table.rewards[rows])
    if run.ends is not None:
        columns["end"] = run.ends.codes[rows].tolist()
    if run.sums is not None:
        terms, tokens = run.sums.by_terms[scored.recipe.terms], run.sums.tokens[rows]
        columns["tokens"] = tokens.tolist()
        columns["low"] = np.where(scored.advantages[rows] < 0.0, terms.below[rows], 0).tolist()
        columns["high"] = np.where(scored.advantages[rows] > 0.0, terms.above[rows], 0).tolist()
        with np.errstate(invalid="ignore", divide="ignore"):
            columns["ratio"] = rounded(np.where(tokens > 0, terms.ratio[rows] / tokens, np.nan))
    return columns
