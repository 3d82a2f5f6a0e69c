"""Columns of a second file beside those of the input, row by row where a key says that both mean the same answer."""

import threading
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from olmorl_cli.errors import InputError, Problems
from olmorl_cli.rollouts.arrays import lists_of
from olmorl_cli.rollouts.exploded import ROW, ExplodedFile
from olmorl_cli.rollouts.files import BATCH_BYTES, READ_ERRORS, DataFile, Fragment, one_line, reading
from olmorl_cli.rollouts.matching import Matching, match_rows
from olmorl_cli.rollouts.roles import ROLES, Choice, Column, is_list, missing_column, resolve, storage_type, type_of
from olmorl_cli.rollouts.shelf import Shelf

PREFIX = "join."
"""What the name of a joined column begins with where the input has one of that name."""


class JoinedFile(DataFile):
    """A file of the input with the columns of the joined files behind its own."""

    def __init__(self, file: DataFile, pairing: "Pairing") -> None:
        self.unwidened, self._pairing = file, pairing
        self.kind = file.kind
        super().__init__(file.source, pa.schema([*file.schema, *pairing.schema], metadata=file.schema.metadata))
        self._fragments: dict[int, list[Fragment]] = {}

    @property
    def portable(self) -> bool:
        return False

    def adds(self, name: str) -> bool:
        """Whether the top-level column comes from the joined files."""
        return name in self._pairing.schema.names

    def called(self, top: str, name: str) -> str:
        return f"{name} (of {self._pairing.name})" if self.adds(top) else name

    def fragments(self, number: int) -> list[Fragment]:
        if number not in self._fragments:  # to count a prompt's answers is work
            self._fragments[number] = self.unwidened.fragments(number)
        return self._fragments[number]

    def batches(self, fragment: Fragment, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The fragment's rows; joined columns make for shorter batches than the file's own."""
        own = [name for name in columns if name in self.unwidened.schema.names]
        joined = [name for name in columns if name not in own]
        if not joined:
            yield from self.unwidened.batches(fragment, columns)
            return
        shelves = self._pairing.shelves(joined)
        rows = self._pairing.matching.rows_of(fragment)
        length = max(1, int(BATCH_BYTES / max(sum(shelf.row_bytes for shelf in shelves), 1.0)))
        for part, arrays in self._own(fragment, own, length):
            for shelf, names in shelves.items():
                with reading(self._pairing.name):
                    taken = shelf.take(rows[part])
                arrays |= {name: taken[name] for name in names}
            yield pa.RecordBatch.from_pydict({name: arrays[name] for name in columns})

    def _own(self, fragment: Fragment, columns: Sequence[str], length: int) -> Iterator[tuple[slice, dict[str, pa.Array]]]:
        """The file's own columns in pieces of at most `length` rows, and which rows of the fragment these are."""
        if not columns:
            for first in range(0, fragment.rows, length):
                yield slice(first, first + length), {}
            return
        start = 0
        for batch in self.unwidened.batches(fragment, columns):
            for first in range(0, batch.num_rows, length):
                piece = batch.slice(first, length)
                rows = slice(start + first, start + first + piece.num_rows)
                yield rows, {name: piece.column(name) for name in columns}
            start += batch.num_rows


class Pairing:
    """The input's files and the joined ones.

    Attributes:
        name: of the joined files, as messages call them.
        on: the columns of the key, in the files of both sides.
        mains, others: the files of the input, and the joined ones.
        schema: what the joined files add to every file of the input, all but the key.
        hidden: own name → name in `schema`, of joined columns that are called like one of the input.
        files: those of the input, widened.
    """

    def __init__(self, mains: Sequence[DataFile], others: Sequence[DataFile], on: Sequence[str], name: str) -> None:
        """Look at the schemas; rows are matched, and columns read, when they are asked for.

        Raises:
            InputError: a file lacks a column of the key.
        """
        self.mains, self.others, self.on = mains, others, on
        self.name = others[0].name if len(others) == 1 else name
        for file in (*mains, *others):
            for key in on:
                if resolve(key, file.schema) is None:
                    raise missing_column(key, file.name, file.schema.names)
        taken = {name for file in mains for name in file.schema.names}
        fields: dict[str, pa.DataType] = {}
        self._mixed: dict[str, InputError] = {}
        for file in others:
            for field in file.schema:
                if field.name not in (*on, ROW):
                    fields[field.name] = self._united(file, field, fields.get(field.name))
        self._own: dict[str, str] = {}
        for name in fields:
            self._own[_free(name, taken | set(self._own))] = name
        self.hidden = {own: name for name, own in self._own.items() if own != name}
        self.schema = pa.schema([(name, fields[own]) for name, own in self._own.items()])
        self.files = [JoinedFile(file, self) for file in mains]
        self._shelves: dict[str, Shelf] = {}
        self._lock = threading.Lock()

    def _united(self, file: DataFile, field: pa.Field, before: pa.DataType | None) -> pa.DataType:
        """A type for the values of a column, as they are in this file and were in those before."""
        kind = _stored(field.type)
        if before is None:
            return kind
        try:
            schemas = [pa.schema([(field.name, each)]) for each in (before, kind)]
            return pa.unify_schemas(schemas, promote_options="permissive").field(0).type
        except pa.ArrowException:
            self._mixed[field.name] = InputError(
                f"{file.name}: column {field.name} is {kind} here and {before} in another file of {self.name}. Write one"
                " type into all files"
            )
            return before

    @cached_property
    def matching(self) -> Matching:
        """Which joined row belongs to each row of the input.

        Raises:
            DataError: rows without, or with more than one.
            InputError: keys cannot be read or compared.
        """
        return match_rows(self.files, self.others, self.on, self.name)

    @property
    def hidden_schema(self) -> pa.Schema:
        """The hidden columns under their own names."""
        return pa.schema([(own, self.schema.field(name).type) for own, name in self.hidden.items()])

    def notes(self, choices: Mapping[str, Choice]) -> Problems:
        """What a person should know of the join."""
        notes = Problems()
        for role, choice in choices.items():
            for own, name in self.hidden.items():
                if choice.columns == (name,) and choice.why == self.only:
                    message = f"{name} is taken for the {role}: the input's own {own} cannot be it"
                    _note(notes, "joined_column", message, f"Name another with --{role.replace('_', '-')}", self.name)
        if left := int((~self.matching.used).sum()):
            message = f"{left} of {self.matching.used.size} rows belong to no row of the input"
            _note(notes, "joined_unused", message, "They are ignored", self.name, left)
        return notes

    @property
    def only(self) -> str:
        """Why a hidden column plays a role that no option names."""
        return f"found by name in {self.name}, the input's own will not do"

    def opened(self, choices: Mapping[str, Choice]) -> "Pairing":
        """The same, with rows opened that hold a list of keys where the other side has one: one row a prompt.

        Raises:
            InputError: beside the keys stands a column that would have to be a list of the answers' values, and is none.
        """
        mains = [self._opened(file, self.others[0], choices, None) for file in self.mains]
        others = [self._opened(file, self.mains[0], choices, self._own) for file in self.others]
        if mains == [*self.mains] and others == [*self.others]:
            return self
        return Pairing(mains, others, self.on, self.name)

    def _opened(
        self, file: DataFile, other: DataFile, choices: Mapping[str, Choice], own: Mapping[str, str] | None
    ) -> DataFile:
        """The file of answers, if this one is a file of prompts; `own` tells a joined file's names by the choices'."""
        keys = [_place(key, file) for key in self.on]
        inside = [key for key in keys if _depth(key, file) == _depth(_place(key.name, other), other) + 1]
        listed = list(inside)
        for role, name in ((ROLES[role], name) for role, choice in choices.items() for name in choice.columns if inside):
            top = resolve(name, self.schema)
            if (top is None) != (own is None):
                continue  # a column of the other side
            place = resolve(name if top is None or own is None else own[top.top] + name[len(top.top) :], file.schema)
            if place is None:
                continue
            if role.lists_answers(place.top, type_of(place, file.schema)):
                listed.append(place)
            elif role.opens and role.name != "answer":
                raise InputError(
                    f"{file.name}: {inside[0].name} lists the keys of several answers a row, but {place.name}, the"
                    f" {role.name}, does not list their values. Write one row an answer, or join on another column"
                )
        return ExplodedFile(file, inside[0], listed) if inside else file

    def refuse_lacking(self, columns: Sequence[str]) -> None:
        """Refuse a joined file without one of the columns, where others have it.

        Raises:
            InputError: there is one.
        """
        for column in columns:
            if place := resolve(column, self.schema):
                own = self._own[place.top]
                for file in self.others:
                    if own not in file.schema.names:
                        raise missing_column(own, file.name, file.schema.names)

    def shelves(self, columns: Sequence[str]) -> dict[Shelf, list[str]]:
        """Where the columns' rows can be taken from: those that are not on a shelf are read and put on one."""
        with self._lock:
            lacking = [name for name in columns if name not in self._shelves]
            if lacking:
                schema = pa.schema([self.schema.field(name) for name in lacking])
                self._shelves |= dict.fromkeys(lacking, self._shelf(schema))
            shelves: dict[Shelf, list[str]] = {}
            for name in columns:
                shelves.setdefault(self._shelves[name], []).append(name)
            return shelves

    def _shelf(self, schema: pa.Schema) -> Shelf:
        with reading(self.name):
            return Shelf(schema, self._used(schema), self.name)

    def _used(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """The columns of the joined files, only rows that belong to one of the input."""
        own = {name: self._own[name] for name in schema.names}
        for error in (self._mixed[each] for each in own.values() if each in self._mixed):
            raise error
        used, first = self.matching.used, 0
        for number, file in enumerate(self.others):
            tops = [name for name in own.values() if name in file.schema.names] or [_place(self.on[0], file).top]
            for fragment in self.matching.fragments[number]:
                for batch in file.batches(fragment, tops):
                    rows = used[first : first + batch.num_rows]
                    first += batch.num_rows
                    kept = batch if rows.all() else batch.filter(pa.array(rows))
                    yield pa.RecordBatch.from_arrays(
                        [_column(kept, own[field.name], field.type, file) for field in schema], schema=schema
                    )


def _free(name: str, taken: set[str]) -> str:
    """The name, with the prefix where it is taken."""
    while name in taken:
        name = PREFIX + name
    return name


def _place(name: str, file: DataFile) -> Column:
    place = resolve(name, file.schema)
    assert place is not None, "a pairing begins with looking for its keys"
    return place


def _depth(column: Column, file: DataFile) -> int:
    """How many lists lie around the column's values."""
    kind, depth = storage_type(type_of(column, file.schema)), 0
    while is_list(kind):
        kind, depth = storage_type(kind.value_type), depth + 1
    return depth


def _note(notes: Problems, code: str, message: str, action: str, file: str, count: int = 1) -> None:
    notes.add(code, message, action, file=file, places=[], count=count, severity="note")


def _stored(kind: pa.DataType) -> pa.DataType:
    """The type in which a column is laid down: an Arrow file holds no dictionary that changes, views are not taken from."""
    if types.is_dictionary(kind):
        return _stored(kind.value_type)
    if types.is_string_view(kind):
        return pa.large_string()
    if types.is_binary_view(kind):
        return pa.large_binary()
    if types.is_list_view(kind) or types.is_large_list_view(kind):
        return pa.large_list(_stored(kind.value_type))
    return kind


def _column(batch: pa.RecordBatch, name: str, kind: pa.DataType, file: DataFile) -> pa.Array:
    """A batch's column in this type, nulls where the file has no such column."""
    if name not in file.schema.names:
        return pa.nulls(batch.num_rows, kind)
    array = batch.column(name)
    try:
        if types.is_list_view(array.type) or types.is_large_list_view(array.type):
            lists = lists_of(array)  # pyarrow's cast loses lists of a slice
            offsets = pa.array(np.concatenate(([0], np.cumsum(lists.lengths))))
            mask = None if lists.null is None else pa.array(lists.null)
            array = pa.LargeListArray.from_arrays(offsets, lists.values, mask=mask)
        return array if array.type.equals(kind) else pc.cast(array, kind)
    except READ_ERRORS as error:
        raise InputError(
            f"{file.name}: column {name} cannot be taken as {kind}: {one_line(error)}. Write one type into all files"
        ) from error
