"""Checks of answers as such: their lengths, how they ended, and whether they are the same."""

import numpy as np

from olmorl_cli.checks.evidence import Evidence
from olmorl_cli.checks.finding import Finding, counted, found, listed, not_available, percent
from olmorl_cli.core.intervals import mean_interval
from olmorl_cli.core.ranks import group_rank_correlations
from olmorl_cli.core.sums import exact_means
from olmorl_cli.rollouts.beside import ENDS, TEXTS

LEVEL = 0.99
LEAST_CORRELATION = 0.1
"""Rank correlation of length and reward up to which it does not matter."""
LEAST_GROUPS = 10
MOST_CUT = 0.05
"""Share of answers that may be cut off."""
MOST_COPIES = 0.35
"""Share of answers that may repeat an earlier one of their group."""


def length_reward(e: Evidence) -> Finding:
    """Whether longer answers of a group have greater rewards, or smaller ones."""
    code = "length_reward"
    if e.lengths is None:
        return not_available(code, "no column of log-probs, of token ids or of the answers' texts tells lengths")
    rows = np.flatnonzero(e.kept)
    correlations = group_rank_correlations(
        e.lengths[rows].astype(np.float64), e.rewards[rows], e.groups[rows], e.statistics.size.size
    )
    correlations = correlations[~np.isnan(correlations)]
    if correlations.size < LEAST_GROUPS:
        return not_available(code, f"{correlations.size} groups differ in rewards and lengths: {LEAST_GROUPS} are needed")
    mean, low, high = mean_interval(correlations, LEVEL)
    longer, shorter = low > LEAST_CORRELATION, high < -LEAST_CORRELATION
    message = (
        f"Spearman's rank correlation of length ({e.length_unit} of the answer) and reward inside a group, mean over"
        f" {correlations.size:,} groups: {mean:.3f}, {100 * LEVEL:g} % interval {low:.3f} to {high:.3f} (limit: all of it"
        f" beyond {LEAST_CORRELATION:g} or -{LEAST_CORRELATION:g})"
    )
    action = (
        "Read long answers: are they better, or does the reward pay for length? Then normalise by length, or penalise it"
    )
    if shorter:
        action = "Short answers are rewarded: see whether long ones are cut off, or wrong"
    severity = "note" if shorter else "warning"
    return found(code, longer or shorter, mean, int(correlations.size), message, action, severity=severity)


def truncated(e: Evidence) -> Finding:
    """Answers that were cut off: how many, what they are taught by, whether they are masked."""
    code = "truncated"
    if e.cut is None:
        return not_available(code, f"no column tells how an answer ended ({', '.join(ENDS[:4])} or the like)")
    cut = e.cut.values > 0.0
    number, answers = int(cut.sum()), cut.size
    share = number / answers
    message = f"{percent(share)} of {counted(answers, 'answer')} were cut off, by {e.cut.name} (limit {percent(MOST_CUT)})"
    severity = "warning"
    scored = cut & ~np.isnan(e.advantages)
    live = scored & e.kept
    if scored.any():
        message += f"; {int(scored.sum() - live.sum()):,} of them are in groups without signal"
    if live.any():
        mean = float(exact_means(e.advantages[live], int(live.sum()))[0])
        message += f", the mean advantage of the others is {mean:.3g}"
    if number and e.sums is not None:
        real = int((e.sums.tokens[cut] > 0).sum())
        message += f"; {number - real:,} are masked wholly"
        severity = "warning" if real else "note"
    action = "Allow longer answers, or mask those that were cut off, so that a missing end is not taught as a mistake"
    if 2 * int(live.sum()) < int(scored.sum()):
        action = "Allow longer answers, or leave out prompts that do not fit: most of these answers teach nothing"
    rows = np.flatnonzero(cut)
    return found(
        code, share > MOST_CUT, share, answers, message, action, where={"rows": rows[:5].tolist()}, severity=severity
    )


def duplicates(e: Evidence) -> Finding:
    """Answers that stand in their group twice, and whether the same answer has other rewards."""
    code, texts = "duplicates", e.texts
    if texts is None:
        return not_available(code, f"no column of the answers' texts ({', '.join(TEXTS[:3])} or the like) or token ids")
    rows = np.flatnonzero(texts.there)
    if not rows.size:
        return not_available(code, f"{texts.name} is null throughout")
    rows = rows[np.lexsort((texts.hashes[rows], e.groups[rows]))]
    same = (e.groups[rows][1:] == e.groups[rows][:-1]) & (texts.hashes[rows][1:] == texts.hashes[rows][:-1])
    copies = rows[1:][same]
    rewards = e.rewards[rows]
    starts = np.flatnonzero(np.concatenate(([True], ~same)))
    least, most = np.fmin.reduceat(rewards, starts), np.fmax.reduceat(rewards, starts)
    noisy = np.repeat(most > least, np.diff(starts, append=rows.size))
    share, n = copies.size / rows.size, int((most > least).sum())
    several = int((np.diff(starts, append=rows.size) > 1).sum())
    message = (
        f"{percent(share)} of {counted(rows.size, 'answer')} are surplus copies: their {texts.name} repeats that of an"
        f" earlier answer of the group (limit {percent(MOST_COPIES)}); {several:,} different ones come more than once,"
        f" {n:,} of these with different rewards"
    )
    named = np.sort(rows[noisy] if n else copies)
    if n:
        message += f" (limit 0): rows {listed(named.tolist(), named.size)}"
    action = "Raise the temperature, or look for answers written twice"
    if n:
        action = "Mend the verifier: it must give one answer one reward (unless the reward is meant to depend on more)"
    return found(code, share > MOST_COPIES or n > 0, share, rows.size, message, action, where={"rows": named[:5].tolist()})
