"""What is in the files: which column plays which role, how many of everything, and what is wrong."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from olmorl_cli.core.advantages import group_statistics
from olmorl_cli.errors import Kind, Problems
from olmorl_cli.remarks import remark_single_answers, warn_of_equal_logprobs
from olmorl_cli.rollouts.answers import read_answers
from olmorl_cli.rollouts.files import DataFile, Fragment
from olmorl_cli.rollouts.rollouts import Rollouts
from olmorl_cli.rollouts.texts import json_values
from olmorl_cli.rollouts.token_batches import token_blocks, token_columns
from olmorl_cli.scoring import ascending
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
    """

    rollouts: Rollouts
    record: dict[str, Any]
    problems: Problems

    @property
    def acceptable(self) -> bool:
        """Whether the data can be scored as they are."""
        return not self.problems.errors


def inspect_rollouts(rollouts: Rollouts, progress: Progress | None = None) -> Inspection:
    """Read every column that matters, count, and gather what is wrong.

    Raises:
        InputError: a file cannot be read.
    """
    table = read_answers(rollouts, skip=False)
    problems = table.problems
    statistics = group_statistics(table.scores, table.groups, table.step_of_group.size)
    tokens = _tokens(rollouts, problems, progress)
    remark_single_answers(rollouts, problems, statistics.size)
    _remark_others(rollouts, problems)
    sizes, counts = np.unique(statistics.size, return_counts=True)
    record = {
        "files": [file.name for file in (*rollouts.files, *rollouts.joined)],
        "format": sorted({file.kind for file in (*rollouts.files, *rollouts.joined)}),
        "answers": int(table.groups.size),
        "groups": int(statistics.size.size),
        "kept_groups": int(statistics.kept.sum()),
        "group_sizes": {str(size): count for size, count in zip(sizes.tolist(), counts.tolist(), strict=True)},
        "steps": None,
        "tokens": tokens,
        "columns": rollouts.columns(),
        "problems": [problem_record(kind) for kind in problems.kinds()],
    }
    if table.steps is not None and len(table.steps):
        order = list(ascending(table.steps, len(table.steps)))
        first, last = json_values(table.steps.take(pa.array([order[0], order[-1]])))
        record["steps"] = {"count": len(order), "first": first, "last": last}
    return Inspection(rollouts, record, problems)


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


def _tokens(rollouts: Rollouts, problems: Problems, progress: Progress | None) -> int | None:
    """Real tokens with sound log-probs; None without a column of log-probs. Adds what is wrong with the others."""
    if not any(role.startswith("logp") for role in rollouts.choices):
        return None

    def work(file: DataFile, fragment: Fragment) -> tuple[int, bool, Problems]:
        wrong, columns = Problems(), token_columns(rollouts, fragment.file_number)
        count, equal = 0, {"logp_new", "logp_old"} <= set(columns.logps)
        for _, tokens in token_blocks(file, fragment, columns, True, wrong, "error"):
            count += int(tokens.offsets[-1])
            equal = equal and tokens.old is not None and np.array_equal(tokens.new, tokens.old)
        return count, equal, wrong

    total, all_equal = 0, True
    for fragment, (count, equal, wrong) in zip(rollouts.fragments, rollouts.map(work), strict=True):
        total += count
        all_equal = all_equal and equal
        problems.merge(wrong)
        if progress is not None:
            progress(fragment.rows)
    if all_equal and total:
        warn_of_equal_logprobs(rollouts, problems, total)
    return total


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
