"""The input as a whole: its files, and which column plays which role."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from olmorl_cli.errors import Problems
from olmorl_cli.rollouts.engine import Engine, Threads
from olmorl_cli.rollouts.exploded import ROW
from olmorl_cli.rollouts.files import DataFile, Fragment
from olmorl_cli.rollouts.provenance import Provenance
from olmorl_cli.rollouts.roles import Choice, Column, resolve
from olmorl_cli.rollouts.sources import Source

R = TypeVar("R")


@dataclass(frozen=True)
class Selection:
    """What the user says of the input.

    Attributes:
        columns: by role.
        group_size: of consecutive groups.
        compact: log-probs stand only for the tokens that the mask marks.
        join: a file, folder or pattern whose columns stand beside those of the input; None without one.
        on: the columns that tell which rows of both belong together.
    """

    columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    group_size: int | None = None
    compact: bool = False
    join: str | None = None
    on: tuple[str, ...] = ()

    def of(self, role: str) -> tuple[str, ...]:
        return self.columns.get(role, ())

    def with_column(self, role: str, column: str) -> "Selection":
        """The same, and a column for one more role."""
        return dataclasses.replace(self, columns={**self.columns, role: (column,)})


@dataclass(frozen=True)
class Rollouts:
    """Open files and the columns that matter.

    Attributes:
        files: in input order.
        fragments: of all files, in input order.
        choices: role → the columns that play it; roles that no column plays are left out.
        group_size: of consecutive groups, or None.
        compact: log-probs stand only for the tokens that the mask marks.
        provenance: where the advantages come from, if `olmorl` wrote the files (all of one output) and they are used.
        joined: further files, whose columns stand beside those of `files`.
        notes: what a person should know of how the input was opened.
        files_of_labels: numbers of the files whose masks are label ids.
        engine: maps work over the fragments.
        first_row: the whole input's row with which the first fragment begins.
        whole_rows: rows of the whole input, where these fragments are only some of its own; else None.
    """

    files: Sequence[DataFile]
    fragments: Sequence[Fragment]
    choices: Mapping[str, Choice]
    group_size: int | None = None
    provenance: Provenance | None = None
    compact: bool = False
    joined: Sequence[DataFile] = ()
    notes: Problems = field(default_factory=Problems)
    files_of_labels: frozenset[int] = frozenset()
    engine: Engine = field(default_factory=Threads)
    first_row: int = 0
    whole_rows: int | None = None

    @property
    def rows(self) -> int:
        """Rows of all fragments together."""
        return sum(fragment.rows for fragment in self.fragments)

    @property
    def file_rows(self) -> list[int]:
        """Rows of each file's fragments."""
        rows = [0] * len(self.files)
        for fragment in self.fragments:
            rows[fragment.file_number] += fragment.rows
        return rows

    @property
    def scopes(self) -> list[int]:
        """Rows of each file that some ids are only unique in; of those that went in, where `olmorl` wrote one of several."""
        written = [] if self.provenance is None else self.provenance.file_rows
        return written if written and sum(written) == self.rows else self.file_rows

    @property
    def first_rows(self) -> list[int]:
        """The row with which each fragment begins, counted from the first fragment's first."""
        firsts: list[int] = np.cumsum([0, *(fragment.rows for fragment in self.fragments)])[:-1].tolist()
        return firsts

    @property
    def sources(self) -> list[Source]:
        return [file.source for file in (*self.files, *self.joined)]

    def columns(self) -> dict[str, str | list[str] | None]:
        """role → column, as results show it; several columns as a list, consecutive groups as null."""
        shown: dict[str, str | list[str] | None] = {} if self.group_size is None else {"group": None}
        for role, choice in self.choices.items():
            if role == "by":
                continue
            shown[role] = choice.terms[0] if len(choice.columns) == 1 else choice.terms
        return shown

    @property
    def why_single(self) -> tuple[str, str]:
        """What may be wrong, and what to do, where every group has one answer."""
        columns = self.choices["group"].columns if "group" in self.choices else ("-G 1",)
        if columns == (ROW,):
            return "each row lists the values of one", "Take N consecutive answers a group with -G N"
        return f"is {', '.join(columns)} what tells the groups?", "Name another column with --group"

    def locate(self, role: str, file: DataFile) -> list[Column | None]:
        """Where `file` has the role's columns; None for one that it may lack and does."""
        choice = self.choices.get(role)
        return [resolve(name, file.schema) for name in choice.columns] if choice else []

    def worked_by(self, engine: Engine) -> "Rollouts":
        """The same with this engine, started; where others cannot open a file, with threads of this process, and a note.

        Raises:
            InputError: the engine cannot be started.
        """
        if not engine.away:
            return self
        bound = [file.name for file in self.files if not file.portable]
        if not bound:
            engine.start()
            return dataclasses.replace(self, engine=engine)
        self.notes.add(
            "read_here",
            "only this process can read it (standard input, JSON Lines and --join are copied or gathered here), so nothing"
            " is given to the engine",
            "Write Parquet to have it scored elsewhere",
            file=bound[0] if len(bound) == 1 else f"{bound[0]} and {len(bound) - 1} more",
            places=[],
            count=len(bound),
            severity="note",
        )
        return self

    def map(self, work: Callable[..., R], given: Iterable[tuple[Any, ...]] | None = None) -> Iterator[R]:
        """What the engine makes of every fragment by `work`, in order.

        Args:
            work: takes a file, a fragment of it, and what is `given` for the fragment.
            given: for each fragment, what else the work on it needs; nothing by default.
        """
        given = [()] * len(self.fragments) if given is None else given
        return self.engine.map(
            work, ((self.files[each.file_number], each, more) for each, more in zip(self.fragments, given, strict=True))
        )

    def map_here(self, work: Callable[[DataFile, Fragment], R]) -> Iterator[R]:
        """`map` in threads of this process, whatever the engine is: for what cannot leave it."""
        return Threads().map(work, ((self.files[each.file_number], each, ()) for each in self.fragments))
