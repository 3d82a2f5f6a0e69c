"""What happened in a run, in sentences."""

import numpy as np

from olmorl_cli.core.sums import FloatArray, IntArray, exact_means
from olmorl_cli.report.data import ALIKE, ALL_HIGH, ALL_LOW, KEPT, UNSCORED, Points, Run, outcomes
from olmorl_cli.rollouts.beside import ENDS as ENDINGS
from olmorl_cli.rollouts.roles import ROLES

ENDS = 10
"""The first and last of so many parts of a run are held against each other."""
BELOW, ABOVE = ("A\N{NO-BREAK SPACE}<\N{NO-BREAK SPACE}0", "A\N{NO-BREAK SPACE}>\N{NO-BREAK SPACE}0")
"""Never broken at the end of a line."""


def number(value: float | None, digits: int = 4) -> str:
    """A number in a few digits; a dash for what is undefined."""
    if value is None or not np.isfinite(value):
        return "–" if value is None or value != value else ("∞" if value > 0 else "−∞")
    text = f"{value:.{digits}g}"
    return f"{value:,.0f}" if "e+" in text and abs(value) < 1e9 else text.replace("-", "−", 1)


def count(value: int, one: str, many: str = "") -> str:
    """How many there are of something."""
    return f"{value:,} {one if value == 1 else many or one + 's'}"


def percent(share: float) -> str:
    """A share in words: two digits where it is small."""
    return f"{100.0 * share:.2g}\N{NO-BREAK SPACE}%" if share < 0.01 else f"{100.0 * share:.1f}\N{NO-BREAK SPACE}%"


def outcome_names(run: Run) -> list[str]:
    """What each outcome of a group is called."""
    scores = run.scored.table.scores
    finite = scores[np.isfinite(scores)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)
    if run.scored.table.rewards is None:
        return ["kept", "all alike", "all alike", "all alike", "nothing to score"]
    graded = {0.0: "all wrong", 1.0: "all right"} if {low, high} <= {0.0, 1.0} else {}
    top, bottom = graded.get(high, f"all {number(high)}"), graded.get(low, f"all {number(low)}")
    return ["kept", top, bottom, "all the same, between", "nothing to score"]


def headline(run: Run, points: Points | None) -> str:
    """Whether the run learns, as a person would say it."""
    if not run.scored.statistics.size.size:
        return "The input has no answers."
    return _rewards(run, points)


def told(run: Run, points: Points | None) -> dict[str, str]:
    """What a person wants to know next, a sentence or two each: what was lost, what was cut off, what the clip held."""
    if not run.scored.statistics.size.size:
        return {}
    said = {"Lost": f"{_without_gradient(run)}.{_trend(run, points)}", "Cut off": _cut_off(run), "Clipped": clips(run)}
    return {name: sentence for name, sentence in said.items() if sentence}


def _ends(points: Points) -> tuple[slice, slice, str, str]:
    """The first and last points of a run, and what they are called."""
    each = max(1, points.x.size // ENDS)
    steps = each * points.per_point
    if each * points.per_point == 1:
        return slice(0, 1), slice(-1, None), "in the first step", "in the last"
    return slice(0, each), slice(-each, None), f"in the first {steps:,} steps", f"in the last {steps:,}"


def _rewards(run: Run, points: Points | None) -> str:
    rewards = run.scored.table.rewards
    if rewards is None:
        return "The input gives advantages and no rewards."
    if not np.isfinite(rewards).any():
        return f"No reward of {count(rewards.size, 'answer')} can be scored."
    whole = _mean(rewards)
    if points is None or points.steps < 2:
        return f"The mean reward of {count(rewards.size, 'answer')} is {number(whole, 3)}."
    first, last, before, after = _ends(points)
    start, end = (_mean(points.values["reward"][part]) for part in (first, last))
    if not np.isfinite(start + end):
        return f"The mean reward over {count(points.steps, 'step')} is {number(whole, 3)}."
    if abs(end - start) <= _noise(rewards, points):
        ends = f"{number(start, 3)} {before}, {number(end, 3)} {after}"
        return f"Mean reward did not change over {points.steps:,} steps: {ends}."
    verb = "rose" if end > start else "fell"
    return f"Mean reward {verb} from {number(start, 3)} {before} to {number(end, 3)} {after} of {points.steps:,}."


def _mean(values: FloatArray) -> float:
    """Mean of the finite values, NaN without one."""
    finite = values[np.isfinite(values)]
    return float(exact_means(finite, finite.size)[0]) if finite.size else np.nan


def _noise(rewards: FloatArray, points: Points) -> float:
    """Differences of the two ends' means that chance can make: two standard errors, as if answers were independent."""
    finite = rewards[np.isfinite(rewards)]
    ends = max(1.0, finite.size * max(1, points.x.size // ENDS) / points.x.size)
    with np.errstate(over="ignore", invalid="ignore"):
        return float(2.0 * np.std(finite) * np.sqrt(2.0 / ends))


def _without_gradient(run: Run) -> str:
    found = np.bincount(outcomes(run.scored), minlength=5)
    total = int(found.sum())
    dropped = total - int(found[KEPT])
    if not dropped:
        return "The only group gave a gradient" if total == 1 else f"All {total:,} groups gave a gradient"
    lost = "No group" if dropped == total else f"{percent(dropped / total)} of {total:,} groups"
    verb = "gave a gradient" if dropped == total else "gave no gradient"
    tokens = ""
    if run.sums is not None and dropped < total:
        scorable, kept = ~np.isnan(run.scored.advantages), run.scored.kept
        share = int(run.sums.tokens[scorable & ~kept].sum()) / max(int(run.sums.tokens[scorable].sum()), 1)
        tokens = f", and with them {percent(share)} of the unmasked tokens"
    parts = _parts(run, found)
    why = "" if found[UNSCORED] else ": each one's answers all have the same reward"
    why = f"{why} ({parts})" if parts else ""
    counted = ", though their tokens count in the mean" if run.scored.recipe.zero_signal_groups == "kept" else ""
    return f"{lost} {verb}{tokens}{counted}{why}"


def _parts(run: Run, counts: IntArray) -> str:
    """Which shares of all groups are lost in which way; counts is (5,)."""
    if run.scored.table.rewards is None:
        return ""
    names, total = outcome_names(run), int(counts.sum())
    which = (ALL_HIGH, ALL_LOW, ALIKE, UNSCORED)
    return ", ".join(f"{percent(counts[code] / total)} {names[code]}" for code in which if counts[code])


def _trend(run: Run, points: Points | None) -> str:
    """How the share of groups without a gradient moves, where it does."""
    if points is None or points.steps < 2:
        return ""
    first, last, before, after = _ends(points)
    counts = [points.groups[part].sum(axis=0) for part in (first, last)]
    sizes = [int(each.sum()) for each in counts]
    lost = [1.0 - float(each[KEPT]) / max(size, 1) for each, size in zip(counts, sizes, strict=True)]
    middle = float(np.mean(lost))
    noise = 2.0 * np.sqrt(middle * (1.0 - middle) * sum(1.0 / max(size, 1) for size in sizes))
    if abs(lost[1] - lost[0]) <= noise:
        return ""
    listed = [f" ({parts})" if (parts := _parts(run, each)) else "" for each in counts]
    verb = "rose" if lost[1] > lost[0] else "fell"
    return f" Their share {verb}: {percent(lost[0])} {before}{listed[0]}, {percent(lost[1])} {after}{listed[1]}."


def _cut_off(run: Run) -> str:
    """How many answers were cut off, and where they are."""
    if run.ends is None or not (number := int(run.ends.cut.sum())):
        return ""
    cut = f"{percent(number / run.ends.cut.size)} of the answers, {number:,}, did not come to an end (by {run.ends.column})"
    counts = np.bincount(outcomes(run.scored)[run.scored.table.groups[run.ends.cut]], minlength=5)
    kept = f"{percent(counts[KEPT] / number)} kept" if counts[KEPT] else ""
    groups = ", ".join(part for part in (_parts(run, counts), kept) if part)
    return f"{cut}. Of these, by their groups: {groups}." if groups else f"{cut}."


def clips(run: Run) -> str:
    """What the clip held, in a sentence."""
    if run.sums is None or run.figures is None or run.figures["clip_low"] is None:
        return ""
    low, high = run.figures["clip_low"], run.figures["clip_high"]
    if not low and not high:
        return "No token met a bound of the clip."
    advantages = run.scored.advantages
    tokens, negative, positive = (
        int(run.sums.tokens[run.counted & side].sum()) for side in (True, advantages < 0.0, advantages > 0.0)
    )
    sides = []
    if low:
        sides.append(f"{percent(low)} from below ({percent(low * tokens / negative)} of those with {BELOW})")
    if high:
        sides.append(f"{percent(high)} from above ({percent(high * tokens / positive)} of those with {ABOVE})")
    whose = "unmasked" if run.scored.recipe.zero_signal_groups == "kept" else "unmasked, of kept groups"
    return f"Of {tokens:,} counted tokens ({whose}), the clip held {', and '.join(sides)}."


def objective_is(run: Run) -> str:
    """What the objective tells of a batch."""
    if run.scored.table.rewards is None:
        return "no measure of progress: it says how far the policy moved on a step's own answers"
    return (
        "no measure of progress: a group's advantages add up to 0, so it stays near 0, and says how far the policy moved on"
        " a step's own answers"
    )


def scope(run: Run, points: Points | None) -> str:
    """What was read, and how it was scored, in a line."""
    scored, recipe = run.scored, run.scored.recipe
    parts = [count(scored.table.groups.size, "answer"), count(scored.statistics.size.size, "group")]
    if points is not None:
        parts.append(count(points.steps, "step"))
    if run.sums is not None:
        parts.append(count(int(run.sums.tokens.sum()), "unmasked token"))
    bounds = (("low", recipe.eps_low), ("high", recipe.eps_high))
    clip = "".join(f", eps {side} {number(value)}" for side, value in bounds if value is not None) or ", no clip"
    return f"{', '.join(parts)}. Recipe {recipe.name}{clip}, {recipe.aggregation}."


def missing(run: Run, points: Points | None, texts: tuple[str | None, str | None]) -> list[str]:
    """What the page cannot show, and the column that it lacks."""
    said = []
    if points is None:
        said.append("No plots by step: there is no step column. Name it with --step COL.")
    if run.scored.table.rewards is None:
        said.append("No mean reward and no spread of rewards: there is no reward column. Name it with --reward COL.")
    if run.lacking:
        said.append(f"No objective, clips, ratios, lengths and tokens: {_no_log_probs(run.lacking)}.")
    elif not run.has_sampler:
        lacking = [role for role in ("logp_old", "logp_sampler") if role not in run.scored.rollouts.choices]
        said.append(f"No distance between sampler and trainer: {_no_log_probs(lacking)}.")
    if run.ends is None:
        said.append(f"No cut-off answers: there is no column that tells how an answer ended ({', '.join(ENDINGS[:4])}).")
    if texts[0] is None:
        said.append("No prompts: there is no column of texts called prompt, question, query or the like.")
    if texts[1] is None:
        said.append("No answers' texts: there is no column of texts called completion, response, answer or the like.")
    return said


def _no_log_probs(roles: list[str]) -> str:
    names = " and ".join(role.removeprefix("logp_") for role in roles)
    options = " ".join(f"{ROLES[role].option} COL" for role in roles)
    return f"there is no column of {names} log-probs. Name {'them' if len(roles) > 1 else 'it'} with {options}"
