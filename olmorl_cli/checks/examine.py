"""One reading of the input, answers and tokens, and everything that the checks say of it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from olmorl_cli.checks.catalog import findings_of, nothing_of
from olmorl_cli.checks.finding import Finding
from olmorl_cli.checks.gather import evidence_of
from olmorl_cli.core.recipes import Recipe
from olmorl_cli.core.waterfall import waterfall
from olmorl_cli.errors import Problems
from olmorl_cli.objectives import Objective, objective_of
from olmorl_cli.remarks import remark_equal_logprobs
from olmorl_cli.rollouts.answers import read_answers
from olmorl_cli.rollouts.rollouts import Rollouts
from olmorl_cli.scoring import ScoredAnswers, partitioned, score_table
from olmorl_cli.token_pass import Look, Plan, Progress, TokenPass, score_tokens
from olmorl_cli.whole import Batches

UNSCORABLE = {f"{what}_{role}" for what in ("null", "nan", "infinite") for role in ("reward", "advantage")}
"""Problems of single answers, which the checks leave out."""


@dataclass(frozen=True)
class Examination:
    """What was found.

    Attributes:
        findings: of every check, in the order of `CODES`.
        waterfall: where the gradient went, lines of `name`, `tokens` and `mass` (Σ |A|), as `core.waterfall` has them;
            None without the log-probs that the recipe needs.
        answers: the answers, scored by the recipe; what is unscorable has advantage NaN.
        objective: its figures, with the per-answer sums; None without the log-probs that the recipe needs.
        tokens: what the token pass found beside that; None without a column of log-probs.
    """

    findings: list[Finding]
    waterfall: list[dict[str, Any]] | None
    answers: ScoredAnswers
    objective: Objective | None
    tokens: TokenPass | None


def examine(
    rollouts: Rollouts,
    problems: Problems,
    progress: Progress | None = None,
    recipe: Recipe | None = None,
    by: str | None = None,
    look: Callable[[ScoredAnswers], Look] | None = None,
) -> Examination:
    """Read the answers and the tokens once, whatever is wrong with them, and look at what is sound.

    Args:
        rollouts: the open input.
        problems: takes everything that is wrong, errors among it.
        progress: is told of the rows done.
        recipe: what the answers are scored by; OlmoRL's by default.
        by: as `score_objective`: what the objective's rows are called by.
        look: makes, of the scored answers, what is shown all tokens, if they have the log-probs that the recipe needs.

    Raises:
        InputError: a file cannot be read.
    """
    recipe = recipe or Recipe()
    table = read_answers(rollouts, skip=False)
    scored = score_table(rollouts, table, recipe)
    problems.merge(table.problems)
    tokens, objective = _tokens(rollouts, scored, problems, progress, by, look)
    lines = None
    if objective is not None:
        lines = [vars(line) for line in waterfall(scored.advantages, scored.kept, objective.kept_sums, recipe)]
    return Examination(_findings(scored, tokens, objective), lines, scored, objective, tokens)


def _findings(scored: ScoredAnswers, tokens: TokenPass | None, objective: Objective | None) -> list[Finding]:
    """What every check says; nothing of answers whose groups or ids are wrong."""
    wrong = {kind.code for kind in scored.table.problems.kinds("error")} - UNSCORABLE
    if wrong:
        return nothing_of(f"the answers cannot be grouped: see the problems ({', '.join(sorted(wrong))})")
    return findings_of(evidence_of(scored, tokens, objective is not None))


def _tokens(
    rollouts: Rollouts,
    scored: ScoredAnswers,
    problems: Problems,
    progress: Progress | None,
    by: str | None,
    look: Callable[[ScoredAnswers], Look] | None,
) -> tuple[TokenPass | None, Objective | None]:
    """The token pass, and the objective if the input has the log-probs for it."""
    if not any(role.startswith("logp") for role in rollouts.choices):
        return None, None
    recipes = [scored.recipe] if scored.recipe.needs <= set(rollouts.choices) else []
    partition, kept_groups = partitioned(scored)
    advantages = [scored.advantages] * len(recipes)
    shown = look(scored) if look is not None and recipes else None
    plan = Plan(recipes, keep_sums=True, examine=True, look=shown)
    tokens = score_tokens(rollouts, plan, advantages, scored.kept, partition, progress)
    problems.merge(tokens.problems)
    if {"logp_new", "logp_old"} <= set(rollouts.choices):
        remark_equal_logprobs(rollouts, problems, tokens.count, tokens.old_equals_new)
    if not recipes or tokens.sums is None:
        return tokens, None
    batches = Batches.of(scored.table, partition, kept_groups)
    return tokens, objective_of(
        rollouts, batches, tokens.figures[0], by, scored.notes, scored.problems, (scored, tokens.sums)
    )
