"""Checks of groups: what of them is lost, whether they are whole, and what their advantages are made of."""

import re

import numpy as np

from olmorl_cli.checks.evidence import Evidence
from olmorl_cli.checks.finding import Finding, counted, found, listed, not_available, percent
from olmorl_cli.core.formulas import Formula, formulas_of
from olmorl_cli.core.sums import FloatArray, IntArray, exact_means, exact_sum
from olmorl_cli.core.tokens import BoolArray

MOST_ZERO = 0.5
"""Share of groups that may be without signal."""
ROUNDING = 4e-3
"""Greatest difference, as a share of the greatest advantage, that a column's rounding (bfloat16's) can make."""
AUXILIARY = re.compile("format|tag|length|penalt|style|think|xml|repet|language|cosine|overlong", re.IGNORECASE)
"""Names of rewards that are not the task's own."""
MOST_AUXILIARY = 0.7
"""Share of the reward's variance inside groups that such a reward may have."""
LEAST_ANSWERS = 100
"""Answers from which on a reward that is 0 throughout counts as dead."""
MOST_NAMED = 5
"""Groups that a check names."""
WORDS = {
    "group_mean": "group mean",
    "leave_one_out_mean": "mean of the group's others",
    "group_std": "group std",
    "batch_std": "std of the step",
    "leave_one_out_std": "std of the group's others",
}


def zero_signal(e: Evidence) -> Finding:
    """Share of groups, answers and tokens without signal, and which sort of sameness it is."""
    code, s = "zero_signal", e.statistics
    scored = s.count > 0
    groups = int(scored.sum())
    if not groups:
        return not_available(code, "no answer has a reward that can be scored")
    lost = scored & ~s.kept
    low = float(np.min(s.min, where=scored, initial=np.inf))
    high = float(np.max(s.max, where=scored, initial=-np.inf))
    at_high = lost & (s.mean == high)
    at_low = lost & (s.mean == low) & (low < high)
    answers = e.scorable & lost[e.groups]
    share = int(lost.sum()) / groups
    parts = [
        f"{percent(share)} of {counted(groups, 'group')}",
        f"{percent(answers.sum() / max(int(e.scorable.sum()), 1))} of the answers",
    ]
    if e.sums is not None and (total := int(e.sums.tokens[e.scorable].sum())):
        parts.append(f"{percent(int(e.sums.tokens[answers].sum()) / total)} of the unmasked tokens")
    kinds = [at_high, at_low, lost & ~at_high & ~at_low]
    said = f"{counted(int(at_high.sum()), 'group')} all at {high:g}"
    if low < high:
        said += f", {int(at_low.sum()):,} all at {low:g}, {int(kinds[2].sum()):,} all equal between"
    message = f"{', '.join(parts)} have no signal (limit {percent(MOST_ZERO)} of the groups): {said}"
    action = "Leave out prompts that are always or never solved, or sample until enough groups differ"
    named = _some_of_each(kinds)
    where = {"groups": e.groups_called(named)}
    return found(code, share > MOST_ZERO, share, groups, message, action, where=where, group_numbers=named.tolist())


def _some_of_each(kinds: list[BoolArray]) -> IntArray:
    """The numbers of a few groups, in turn the first of each kind, the second of each, most frequent kinds first."""
    first = [np.flatnonzero(kind)[:MOST_NAMED] for kind in sorted(kinds, key=np.count_nonzero, reverse=True)]
    turns = np.argsort(np.concatenate([np.arange(numbers.size) for numbers in first]), kind="stable")
    named: IntArray = np.concatenate(first)[turns][:MOST_NAMED]
    return named


def group_identity(e: Evidence) -> Finding:
    """Whether the group's id tells groups: not answers, and each as large as the others."""
    code, size = "group_identity", e.statistics.size
    if e.group_ids is None:
        return not_available(code, "groups are consecutive rows, no column tells them", "Name one with --group")
    sizes, counts = np.unique(size, return_counts=True)
    usual = int(sizes[np.argmax(counts)])
    column, over = e.columns.get("group", "group"), size.size - e.ids
    if size.size > 1 and usual == 1 and sizes.size == 1:
        message = f"each of {size.size:,} values of {column} stands at one answer only: is it the answer's id?"
        return found(code, True, 1.0, size.size, message, "Name another column with --group, or take -G N")
    odd = size != usual
    share, few, many = float(odd.mean()), size < usual, size > usual
    message = f"{size.size - int(odd.sum()):,} of {counted(size.size, 'group')} have {counted(usual, 'answer')}"
    if odd.any():
        twice = int((many & (size % usual == 0)).sum())
        message += f", {int(few.sum()):,} have fewer and {int(many.sum()):,} more"
        message += f" ({twice:,} a multiple)" if twice else ""
    if over > 0:
        have = "has" if over == 1 else "have"
        message += f"; {counted(over, 'group')} {have} an id that comes again in another step or file"
    action = "Look for answers that were dropped or written twice; a multiple may be two prompts, or steps, of one id"
    named = np.flatnonzero(odd)[:MOST_NAMED]
    where = {"groups": e.groups_called(named)}
    return found(code, bool(odd.any()), share, size.size, message, action, where=where, group_numbers=named.tolist())


def advantage_formula(e: Evidence) -> Finding:
    """Which formula gives the file's own advantages."""
    code, given = "advantage_formula", e.given
    if given is None:
        return not_available(code, "no column of advantages (advantage, advantages)", "Name one with --advantage")
    if not e.has_rewards:
        return not_available(code, f"no reward that {given.name} could be made of", "Name its column with --reward")
    if not e.statistics.kept.any():
        return not_available(code, "no group has signal, so every formula gives 0")
    compared = np.isfinite(given.values) & e.scorable
    scale = float(np.max(np.abs(given.values), where=compared, initial=0.0))
    formulas = formulas_of(given.values, e.rewards, e.groups, e.statistics, e.step_of_answer)
    best = formulas[0]
    alike = [each for each in formulas[1:] if each.difference <= max(4.0 * best.difference, 1e-13 * scale)]
    n, where = int(compared.sum()), {"columns": [given.name]}
    if not n or not best.difference <= ROUNDING * scale:
        message = (
            f"none of {len(formulas)} formulas gives {given.name} from the rewards: the nearest, {_words(best)}, is off by"
            f" up to {best.difference:.3g} (limit {ROUNDING * scale:.3g}, what rounding can do)"
        )
        action = "Its groups, or its rewards, are others than these: name them with --group and --reward"
        return found(code, True, best.difference, n, message, action, where=where)
    message = f"{given.name} is {_words(best)}, to {best.difference:.2g}"
    if alike:
        message += (
            f"; as near {'comes' if len(alike) == 1 else 'come'} {listed([_words(each) for each in alike], len(alike), 3)}"
        )
    return found(code, False, best.difference, n, message, "")


def _words(formula: Formula) -> str:
    """A formula as people write it."""
    centred = f"reward - {WORDS[formula.center]}"
    if formula.scale == "none":
        return centred
    eps = f" + 1e{round(np.log10(formula.std_eps))}" if formula.std_eps else ""
    return f"({centred}) / ({WORDS[formula.scale]}{eps}), ddof {formula.ddof}"


def components(e: Evidence) -> Finding:
    """What each further reward has of the reward's variance inside groups."""
    code = "components"
    if not e.components:
        return not_available(code, "no further column of rewards (a number with reward or score in its name)")
    if not e.kept.any():
        return not_available(code, "no group has signal")
    deviations = np.where(e.kept, e.rewards - e.statistics.mean[e.groups], 0.0)
    whole = exact_sum(deviations * deviations)
    shares = {each.name: exact_sum(deviations * _filled(e, each.values)) / whole for each in e.components}
    constant = [each.name for each in e.components if _is_constant(each.values)]
    dead = [each.name for each in e.components if each.name in constant and not np.nanmax(np.abs(each.values), initial=0.0)]
    dead = dead if e.rewards.size >= LEAST_ANSWERS else []
    auxiliary = {name: share for name, share in shares.items() if AUXILIARY.search(name)}
    heavy = [name for name, share in auxiliary.items() if share > MOST_AUXILIARY]
    message = "share of the reward's variance inside groups: " + ", ".join(f"{n} {percent(s)}" for n, s in shares.items())
    if constant:
        message += f"; constant: {', '.join(constant)}"
    message += f" (limit {percent(MOST_AUXILIARY)} for a reward of form, or 0 throughout)"
    action = "Lower its weight" if heavy else "Look whether its function ever gives a reward"
    n, value = int(e.kept.sum()), max(auxiliary.values(), default=None)
    severity = "warning" if heavy else "note"
    return found(code, bool(heavy or dead), value, n, message, action, where={"columns": heavy + dead}, severity=severity)


def _filled(e: Evidence, values: FloatArray) -> FloatArray:
    """The values, with the group's mean where there is none."""
    there = np.isfinite(values)
    if there.all():
        return values
    groups, codes = e.statistics.size.size, e.groups[there]
    means = exact_means(values[there], np.maximum(np.bincount(codes, minlength=groups), 1), codes, groups)
    return np.where(there, values, means[e.groups])


def _is_constant(values: FloatArray) -> bool:
    there = values[np.isfinite(values)]
    return bool(there.size == 0 or there.min() == there.max())
