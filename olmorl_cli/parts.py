"""Scored answers as a folder of files, one for each fragment of the input, written where the fragment is read."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from olmorl_cli.interrupts import PuttingBack
from olmorl_cli.results import Scored, passed_rows, passed_schema
from olmorl_cli.rollouts.files import DataFile, Fragment
from olmorl_cli.rollouts.folders import Folder
from olmorl_cli.rollouts.writer import write_batches

if TYPE_CHECKING:
    from olmorl_cli.token_pass import Progress


def write_parts(scored: Scored, folder: Folder, format: str, progress: "Progress | None" = None) -> int:
    """Every input column, advantage and kept, in parts named in input order; all of the folder's older parts make way.

    Args:
        scored: the answers.
        folder: takes the parts.
        format: parquet or arrow.
        progress: is told of the rows done.

    Returns:
        The number of parts.

    Raises:
        InputError: a file cannot be read, or columns of one name do not go together.
        OutputError: a part cannot be written; none is left.
    """
    rollouts = scored.rollouts
    names = [f"part-{number:05d}.{format}" for number in range(max(len(rollouts.fragments), 1))]
    schema = passed_schema(scored, dictionaries=format == "parquet", parts=len(names))

    def given() -> Iterator[tuple[Any, ...]]:
        left = iter(names)
        for run in scored.runs:
            kept = run.kept
            for fragment, first in zip(run.rollouts.fragments, run.rollouts.first_rows, strict=True):
                own = slice(first, first + fragment.rows)
                yield folder, next(left), format, schema, run.advantages[own], kept[own]

    with PuttingBack():
        try:
            if not rollouts.fragments:
                with folder.sink(names[0]) as sink:
                    write_batches(schema, [], format, sink, stream=False)
            for rows in rollouts.map(_write_part, given()):
                if progress is not None:
                    progress(rows)
            folder.settle(names)
        finally:
            folder.discard()
    return len(names)


def _write_part(file: DataFile, fragment: Fragment, folder: Folder, name: str, format: str, *answers: Any) -> int:
    """Write the rows of a fragment; `answers` are what `passed_rows` must know of them. The number of rows."""
    with folder.sink(name) as sink:
        write_batches(answers[0], passed_rows(file, fragment, *answers), format, sink, stream=False)
    return fragment.rows
