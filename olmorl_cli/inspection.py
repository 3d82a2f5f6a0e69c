"""What is in the files: which column plays which role, how many of everything, and what is wrong."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from olmorl_cli.checks.examine import Examination, examine
from olmorl_cli.core.recipes import Recipe
from olmorl_cli.errors import Kind, Problems
from olmorl_cli.objectives import ascending
from olmorl_cli.rollouts.rollouts import Rollouts
from olmorl_cli.rollouts.texts import json_values
from olmorl_cli.token_pass import Progress

ROLES = frozenset(
    {"group", "step", "reward", "advantage", "answer", "logp_new", "logp_old", "logp_sampler", "logp_ref", "mask"}
)
"""Roles that are looked for; only the group and the reward must be there."""
UNREAD = ("tool_mask", "sample_mask", "sample_loss_mask", "mask_sample", "remove_sample")
"""Columns by which trainers leave out tokens or answers beside the mask; no command reads them."""


@dataclass(frozen=True)
class Inspection:
    """What was found.

    Attributes:
        rollouts: the input.
        record: the figures, by the keys that results have.
        problems: what is wrong, or worth knowing.
        examination: what was read for it.
    """

    rollouts: Rollouts
    record: dict[str, Any]
    problems: Problems
    examination: Examination

    @property
    def name(self) -> str:
        """What messages call the input."""
        files = self.rollouts.files
        return files[0].name if len(files) == 1 else f"{len(files)} files"

    @property
    def acceptable(self) -> bool:
        """Whether the data can be scored as they are."""
        return not self.problems.errors


def inspect_rollouts(rollouts: Rollouts, progress: Progress | None = None, recipe: Recipe | None = None) -> Inspection:
    """Read every column that matters, count, gather what is wrong, and check the rest, scored by the recipe (OlmoRL's).

    Raises:
        InputError: a file cannot be read.
    """
    problems = Problems()
    examination = examine(rollouts, problems, progress, recipe)
    _remark_others(rollouts, problems)
    table, statistics = examination.answers.table, examination.answers.statistics
    sizes, counts = np.unique(statistics.size, return_counts=True)
    record = {
        "files": [file.name for file in (*rollouts.files, *rollouts.joined)],
        "format": sorted({file.kind for file in (*rollouts.files, *rollouts.joined)}),
        "answers": int(table.groups.size),
        "groups": int(statistics.size.size),
        "kept_groups": int(statistics.kept.sum()),
        "group_sizes": {str(size): count for size, count in zip(sizes.tolist(), counts.tolist(), strict=True)},
        "steps": None,
        "tokens": None if examination.tokens is None else examination.tokens.count,
        "columns": rollouts.columns(),
        "problems": [problem_record(kind) for kind in problems.kinds()],
        "checks": [finding.record() for finding in examination.findings],
        "waterfall": examination.waterfall,
    }
    if table.steps is not None and len(table.steps):
        order = list(ascending(table.steps, len(table.steps)))
        first, last = json_values(table.steps.take(pa.array([order[0], order[-1]])))
        record["steps"] = {"count": len(order), "first": first, "last": last}
    return Inspection(rollouts, record, problems, examination)


def problem_record(kind: Kind) -> dict[str, Any]:
    """A kind of problem as results show it; what to do is the end of the message."""
    places = [
        {"row": place.row} | ({} if place.token is None else {"token": place.token}) for place in kind.places
    ]  # fmt: skip
    return {
        "code": kind.code,
        "severity": kind.severity,
        "count": kind.count,
        "where": {"file": kind.file, "places": places},
        "message": kind.line().removeprefix(f"{kind.file}: "),
    }


def _remark_others(rollouts: Rollouts, problems: Problems) -> None:
    """Add that other columns could have played a role."""
    file = rollouts.files[0].name if len(rollouts.files) == 1 else f"{len(rollouts.files)} files"
    taken = {name for choice in rollouts.choices.values() for name in choice.columns}
    there = {name for each in rollouts.files for name in each.schema.names}
    if unread := [name for name in UNREAD if name in there - taken]:
        problems.add(
            "unread_masks",
            f"{', '.join(unread)} may leave out more, and no command reads it",
            "Drop such answers before, or multiply the mask by it",
            file=file,
            places=[],
            count=len(unread),
            severity="note",
        )
    for role, choice in rollouts.choices.items():
        if choice.others:
            problems.add(
                "other_columns",
                f"{', '.join(choice.columns)} was taken for the {role}, {', '.join(choice.others)} could have been",
                f"Name another with --{role.replace('_', '-')}",
                file=file,
                places=[],
                count=len(choice.others),
                severity="note",
            )
