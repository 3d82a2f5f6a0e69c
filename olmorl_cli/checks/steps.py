"""Checks of steps: whether each has signal, how many groups it rests on, and where the run is going."""

import numpy as np

from olmorl_cli.checks.evidence import Evidence
from olmorl_cli.checks.finding import Finding, counted, found, listed, not_available, percent
from olmorl_cli.core.intervals import LEAST_STEPS, trend
from olmorl_cli.core.sums import FloatArray, exact_means, exact_sums

LEAST_GROUPS = 4.0
"""Effective groups below which a step's gradient is thin."""
MOST_THIN = 0.5
"""Share of steps that may be thin."""
LEVEL = 0.99
LEAST_FALL = 0.05
"""Share of the rewards' range below which a fall is none."""
LEAST_RISE = 1e-3
"""Nats below which a rise of |logp_old - logp_sampler| is none."""


def no_signal_step(e: Evidence) -> Finding:
    """Steps without a kept group: their gradient is 0."""
    code = "no_signal_step"
    present = np.bincount(e.step_of_group[e.statistics.count > 0], minlength=e.step_number) > 0
    if not present.any():
        return not_available(code, "no answer has a reward that can be scored")
    kept = np.bincount(e.step_of_group[e.statistics.kept], minlength=e.step_number)
    empty = np.flatnonzero(present & (kept == 0))
    steps, names = int(present.sum()), e.steps_called(empty)
    if e.steps is None:
        have = f"{counted(int(kept[0]), 'group')} {'has' if kept[0] == 1 else 'have'} signal"
        message = "no group has signal" if empty.size else f"{have} (no step column: all is one step)"
    elif empty.size:
        have, whose, which = ("has", "its", "step") if empty.size == 1 else ("have", "their", "steps")
        message = (
            f"{empty.size:,} of {counted(steps, 'step')} {have} no group with signal, so {whose} gradient is 0:"
            f" {which} {listed(names, len(names))}"
        )
    else:
        message = f"every one of {counted(steps, 'step')} has a group with signal; the fewest is {kept[present].min():,}"
    action = "Sample more prompts a step, or prompts that are neither always nor never solved"
    return found(code, empty.size > 0, empty.size, steps, message, action, where={"steps": names} if names else {})


def signal_thin(e: Evidence) -> Finding:
    """Steps whose gradient rests on few groups, by each group's Σ |A|."""
    code, groups = "signal_thin", e.statistics.kept
    if not groups.any():
        return not_available(code, "no group has signal")
    mass = exact_sums(np.where(e.kept, np.abs(e.advantages), 0.0), e.groups, groups.size)[groups]
    step = e.step_of_group[groups]
    with np.errstate(over="ignore"):
        total, squares = exact_sums(mass, step, e.step_number), exact_sums(mass * mass, step, e.step_number)
    with np.errstate(over="ignore", invalid="ignore"):
        effective = np.divide(total * total, squares, out=np.zeros(e.step_number), where=squares > 0.0)
    thin = np.flatnonzero(effective < LEAST_GROUPS)
    share, alone = thin.size / e.step_number, int(_carried_by_one(e).sum())
    kept = np.bincount(step, minlength=e.step_number)
    steps = e.steps_called(thin)
    named = f": {'step' if len(steps) == 1 else 'steps'} {listed(steps, len(steps), 10)}" if steps else ""
    rest = "rests" if e.step_number == 1 else "rest"
    message = (
        f"{percent(share)} of {counted(e.step_number, 'step')} {rest} on fewer than {LEAST_GROUPS:g} effective groups (limit"
        f" {percent(MOST_THIN)}){named}; the median step has {np.median(kept):,g} kept groups, worth"
        f" {np.median(effective):.1f} by their sums of |advantage|; {alone:,} of {mass.size:,} kept groups are carried by"
        " one answer"
    )
    action = "Take more prompts a step, or more answers a prompt"
    return found(code, share > MOST_THIN, share, e.step_number, message, action, where={"steps": e.steps_called(thin)})


def _carried_by_one(e: Evidence) -> np.ndarray:
    """Kept groups of three or more in which one answer's reward differs from that of all others, bool (P,)."""
    s = e.statistics
    ends = (
        np.bincount(e.groups[e.scorable & (e.rewards == end[e.groups])], minlength=s.size.size) for end in (s.min, s.max)
    )
    low, high = ends
    carried: np.ndarray = s.kept & (s.count >= 3) & ((low == s.count - 1) | (high == s.count - 1))
    return carried


def trend_of_steps(e: Evidence) -> Finding:
    """Whether the reward falls, or the sampler moves away, over the steps."""
    code = "trend"
    if e.steps is None:
        return not_available(code, "no column of steps", "Name one with --step")
    order = e.step_order
    answers = np.bincount(e.step_of_answer[e.scorable], minlength=e.step_number)
    order = order[answers[order] > 0]
    rewards = _by_step(e, np.where(e.scorable, e.rewards, 0.0), answers)[order]
    if (line := trend(rewards, LEVEL)) is None:
        return not_available(code, f"{order.size} steps: at least {LEAST_STEPS} are needed")
    extent = float(
        np.max(e.rewards, where=e.scorable, initial=-np.inf) - np.min(e.rewards, where=e.scorable, initial=np.inf)
    )
    fires = line.change < -line.limit and line.change < -LEAST_FALL * extent
    what = "reward" if e.has_rewards else "given advantage"
    said = [f"the mean {what} changes by {line.change:+.3g} over {order.size:,} steps (chance: up to {line.limit:.3g})"]
    if e.lengths is not None and (length := trend(_by_step(e, np.where(e.scorable, e.lengths, 0.0), answers)[order], LEVEL)):
        said.append(f"the mean length by {length.change:+.3g} {e.length_unit} (chance: up to {length.limit:.3g})")
    if e.mismatch is not None and e.sums is not None and e.sums.sampler is not None:
        tokens = np.bincount(e.step_of_answer, weights=e.sums.sampler.tokens, minlength=e.step_number)
        if (tokens[order] > 0).all():
            moved = trend(_by_step(e, e.sums.sampler.abs_diff, tokens)[order], LEVEL)
            assert moved is not None, "there are as many steps"
            said.append(f"the mean |logp_old - logp_sampler| by {moved.change:+.3g} (chance: up to {moved.limit:.3g})")
            fires = fires or moved.change > max(moved.limit, LEAST_RISE)
    message = "; ".join(said) + f"; {line.effective:.0f} steps' worth, their autocorrelation allowed for"
    action = "Look at the steps where it turns: data, verifier, learning rate, or the sampler's weights"
    return found(code, fires, -line.change, int(order.size), message, action)


def _by_step(e: Evidence, values: FloatArray, counts: np.ndarray) -> FloatArray:
    return exact_means(values, np.maximum(counts, 1), e.step_of_answer, e.step_number)
