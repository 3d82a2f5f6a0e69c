"""What is no fault of the data, but may be one of their reading, or of the settings: warnings."""

from olmorl_cli.core.recipes import Recipe
from olmorl_cli.errors import Problems
from olmorl_cli.rollouts.rollouts import Rollouts


def remark_single_answers(rollouts: Rollouts, problems: Problems, answers: int, groups: int) -> None:
    """Warn where every group has one answer."""
    if groups < 2 or answers > groups:
        return
    why, action = rollouts.why_single
    message = f"every group has one answer, so every advantage is 0: {why}"
    _warn(rollouts, problems, "single_answer_groups", message, action, groups)


def remark_equal_logprobs(rollouts: Rollouts, problems: Problems, tokens: int, equal: bool) -> None:
    """Warn where the new and the old log-probs are equal at every real token: the ratio of any recipe is 1 throughout."""
    if not (equal and tokens):
        return
    new, old = (", ".join(rollouts.choices[role].columns) for role in ("logp_new", "logp_old"))
    _warn(
        rollouts,
        problems,
        "old_equals_new",
        f"{new} equals {old} at every real token, so the ratio is 1 everywhere: nothing can be clipped",
        "The file may hold the same log-probs twice: name others with --logp-new and --logp-old",
        tokens,
    )


def _warn(rollouts: Rollouts, problems: Problems, code: str, message: str, action: str, count: int) -> None:
    file = rollouts.files[0].name if len(rollouts.files) == 1 else f"{len(rollouts.files)} files"
    problems.add(code, message, action, file=file, places=[], count=count, severity="warning")


MOST_MISTAKEN = 2.0
"""Greatest upper clip that is taken for a bound written in place of an offset; larger ones are meant to bind seldom."""


def bounds_notes(recipe: Recipe) -> list[str]:
    """Notes on clips that look like bounds (0.8, 1.2) where offsets from 1 are meant, a sentence each."""
    notes, low, high = [], recipe.eps_low, recipe.eps_high
    if low is not None and 0.5 <= low < 1.0:
        bound = f"1 - {low:g} = {1 - low:g}"
        notes.append(f"eps-low is an offset: {bound} is the bound; for a bound of {low:g} give {1 - low:g}")
    if high is not None and 1.0 <= high <= MOST_MISTAKEN:
        bound = f"1 + {high:g} = {1 + high:g}"
        notes.append(f"eps-high is an offset: {bound} is the bound; for a bound of {high:g} give {high - 1:g}")
    return notes
