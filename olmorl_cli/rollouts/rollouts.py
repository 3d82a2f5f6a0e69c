"""The input as a whole: its files, and which column plays which role."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from olmorl_cli.errors import Problems
from olmorl_cli.rollouts.engine import Engine, Item, OneThread, Threads
from olmorl_cli.rollouts.exploded import ROW
from olmorl_cli.rollouts.files import DataFile, Fragment
from olmorl_cli.rollouts.parallel import lots
from olmorl_cli.rollouts.provenance import Provenance
from olmorl_cli.rollouts.roles import Choice, Column, resolve
from olmorl_cli.rollouts.sources import Source

R = TypeVar("R")


FILE_SCOPED = ("_idx", "_index")
"""Endings of group ids that start again in every file."""


def is_file_scoped(name: str) -> bool:
    """Whether the values of a group column start again in every file."""
    return name == ROW or name.endswith(FILE_SCOPED)


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
        first_row: the whole input's row with which the first fragment begins, where these are only some of its own.
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
        """Rows of each file that the groups' ids are only unique in: of those that went in, where `olmorl` wrote one of
        several. One number where they are unique everywhere."""
        if not any(map(is_file_scoped, self.choices["group"].columns if "group" in self.choices else ())):
            return [self.rows]
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

    def without(self, *roles: str) -> "Rollouts":
        """The same without the columns of some roles."""
        return dataclasses.replace(self, choices={role: own for role, own in self.choices.items() if role not in roles})

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
        return self.engine.map(work, (item + more for item, more in zip(self._items, given, strict=True)), self._remote)

    @property
    def _items(self) -> Iterator[Item]:
        return ((self.files[fragment.file_number], fragment) for fragment in self.fragments)

    @property
    def _remote(self) -> bool:
        return any(file.source.remote for file in self.files)

    def map_here(self, work: Callable[[DataFile, Fragment], R]) -> Iterator[R]:
        """`map` in threads of this process, whatever the engine is: for what cannot leave it."""
        return Threads().map(work, self._items, self._remote)

    def map_shares(self, work: Callable[..., R], shares: Iterable[Any], *given: Any) -> Iterator[R]:
        """What the engine makes of every one of the `shares` of the answers by `work`, in order.

        It takes the input, whose fragments are read by the thread that it runs in, a share, and what is `given`.
        """
        whole = dataclasses.replace(self, engine=OneThread(), notes=Problems())
        return self.engine.map(work, ((whole, share, *given) for share in shares), self._remote)

    def runs(self, most: int) -> Iterator["Rollouts"]:
        """The fragments in their order, some at a time: as many as have `most` answers, but one at least."""
        first = 0
        for fragments in lots(self.fragments, lambda fragment: fragment.rows, most):
            yield dataclasses.replace(self, fragments=fragments, first_row=first, notes=Problems())
            first += sum(fragment.rows for fragment in fragments)
