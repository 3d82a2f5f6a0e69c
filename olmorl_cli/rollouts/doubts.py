"""Columns found by name that leave a doubt: their values settle it, or the user is asked."""

import functools
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
from pyarrow import types

from olmorl_cli.errors import InputError
from olmorl_cli.rollouts.arrays import BoolArray, FloatValues, column_of, lists_of, numbers_of
from olmorl_cli.rollouts.exploded import ROW, ExplodedFile
from olmorl_cli.rollouts.files import DataFile, Fragment
from olmorl_cli.rollouts.ids import Codes, combine, encode
from olmorl_cli.rollouts.roles import (
    FOUND,
    GROUP_IDS,
    ROLES,
    Choice,
    Column,
    Role,
    either,
    is_list,
    resolve,
    storage_type,
)
from olmorl_cli.rollouts.rollouts import is_file_scoped

SCOPES = ("run_id", "env_name", "env_id", "env_class", "env", "data_source", "dataset", "split")
"""Columns that ids of prompts may be unique in only."""


def refuse_other_rewards(choices: Mapping[str, Choice], files: Sequence[DataFile]) -> None:
    """Refuse a reward found by name beside which a column of the same rank has other values.

    Raises:
        InputError: there is one; the message names the options that tell which.
    """
    choice, role = choices.get("reward"), ROLES["reward"]
    if choice is None or choice.why != FOUND:
        return
    (chosen,) = choice.columns
    for rival in role.rivals(chosen, choice.others):
        for number, file in enumerate(files):
            kinds = [storage_type(file.schema.field(name).type) for name in (chosen, rival) if name in file.schema.names]
            if len(kinds) < 2 or any(types.is_null(kind) for kind in kinds) or not role.fits(kinds[1]):
                continue
            if is_list(kinds[0]) != is_list(kinds[1]):
                continue  # one value an answer is its reward, a list beside it are its parts
            if (at := _difference(file, number, Column(chosen, chosen), Column(rival, rival))) is not None:
                raise either(role, file.name, [chosen, rival], f", and differ: {at}")


def _difference(file: DataFile, number: int, first: Column, second: Column) -> str | None:
    """Where two columns of numbers of the input's file of this number differ first, in words; None where they do not."""
    for fragment in file.fragments(number):
        row = fragment.first_row
        for batch in file.batches(fragment, [first.top, second.top]):
            columns = [column_of(batch, column) for column in (first, second)]
            rows = np.arange(row, row + batch.num_rows)
            row += batch.num_rows
            if is_list(columns[0].type):
                a, b = map(lists_of, columns)
                if (unlike := np.flatnonzero(a.lengths != b.lengths)).size:
                    at = unlike[0]
                    return f"{a.lengths[at]} and {b.lengths[at]} values in row {rows[at]}"
                columns, rows = [a.values, b.values], np.repeat(rows, a.lengths)
            (x, _), (y, _) = map(numbers_of, columns)
            if (unlike := np.flatnonzero(~_same(x, y))).size:
                at = unlike[0]
                return f"{x[at]:g} and {y[at]:g} in row {rows[at]}"
    return None


def _same(x: FloatValues, y: FloatValues) -> BoolArray:
    """Which values are the same number, as far as the narrower of the two types can tell; null is the same as null."""
    coarse = max(float(np.finfo(x.dtype).eps), float(np.finfo(y.dtype).eps))
    same: BoolArray = np.isclose(x.astype(np.float64), y.astype(np.float64), rtol=4 * coarse, atol=0.0, equal_nan=True)
    return same


def settled_group(
    choices: Mapping[str, Choice], files: Sequence[DataFile], fragments: Sequence[Fragment]
) -> dict[str, Choice]:
    """The choices, the group's confirmed or mended by the values of the columns that could be meant.

    Ids that may be of anything (`uid`, `id`) count where their values repeat; where a row of the file is a prompt, ids
    of anything and texts count only as names of the rows.

    Raises:
        InputError: two columns could be the group and tell different ones; the message names the options that say which.
    """
    group = choices.get("group")
    if group is None or group.why != FOUND:
        return dict(choices)
    step = choices["step"].columns[0] if "step" in choices else None
    return {**choices, "group": _Grouping(files, fragments, step).chosen(ROLES["group"], group)}


class _Grouping:
    """What columns make of the answers, within their steps and files. Small columns only."""

    def __init__(self, files: Sequence[DataFile], fragments: Sequence[Fragment], step: str | None) -> None:
        self.files, self.fragments, self.step = files, fragments, step
        self.known: dict[str | None, Codes | None] = {}

    def chosen(self, role: Role, found: Choice) -> Choice:
        """The first of the columns found that tells groups."""
        names = [found.columns[0], *(name for name in found.others if self._fits(role, name))]
        passed: list[str] = []
        for name in names:
            why = f"{found.why}; no value of {', '.join(passed)} comes twice" if passed else found.why
            choice = Choice((name,), why, tuple(n for n in (*found.columns, *found.others) if n != name))
            if role.rank(name) < GROUP_IDS:
                self._confirm(role, choice)
                return choice
            if self._is_of_rows(name):
                return choice if self._same_groups(name, ROW) else Choice((ROW,), f"one row a prompt; {name} comes again")
            if name.casefold() not in role.repeating or name == names[-1] or self._repeats(name):
                self._confirm_position(role, choice)
                return choice
            passed.append(name)
        return found

    def _confirm(self, role: Role, choice: Choice) -> None:
        """Refuse ids beside which others of the same rank, or what they may be unique in only, tell other groups."""
        (name,) = choice.columns
        file = self.files[0].name
        for rival in (n for n in role.rivals(name, choice.others) if self._plain(n) and self._plain(name)):
            groups, others = self._groups(name), self._groups(rival)
            if groups is not None and others is not None and not self._same_groups(name, rival):
                why = f", and tell different groups, {len(groups.values)} and {len(others.values)} of them"
                raise either(role, file, [name, rival], why)
        for scope in (scope for scope in SCOPES if self._plain(scope) and scope not in (name, self.step)):
            if self._cuts(scope, name):
                raise InputError(
                    f"{file}: answers of one {name} differ in {scope}: is it told anew for each {scope}? If so, add"
                    f" --group {scope} --group {name}, else --group {name}"
                )

    def _confirm_position(self, role: Role, choice: Choice) -> None:
        """Refuse an index whose values come again with another prompt: perhaps it numbers the answers of each."""
        (name,) = choice.columns
        texts = [n for n in choice.others if role.rank(n) > role.rank(name) and self._plain(n)]
        if name.casefold() == "index" and texts and self._cuts(texts[0], name):
            raise either(role, self.files[0].name, [name, texts[0]], f", but answers of one {name} differ in {texts[0]}")

    def _fits(self, role: Role, name: str) -> bool:
        return all(role.fits(file.schema.field(name).type) for file in self.files if name in file.schema.names)

    def _plain(self, name: str) -> bool:
        """Whether every file has the column, with a text or number for each answer."""
        kinds = [storage_type(file.schema.field(name).type) for file in self.files if name in file.schema.names]
        return len(kinds) == len(self.files) and not any(types.is_nested(kind) or types.is_null(kind) for kind in kinds)

    def _is_of_rows(self, name: str) -> bool:
        """Whether the column has one value a row in files whose rows are prompts."""
        return all(isinstance(file, ExplodedFile) and not file.opens(Choice((name,), FOUND)) for file in self.files)

    def _repeats(self, name: str) -> bool:
        """Whether any value of the column stands in two rows."""
        codes = self._codes(name)
        return codes is not None and len(codes.values) < codes.codes.size

    def _same_groups(self, name: str, other: str) -> bool:
        """Whether two columns tell the same groups."""
        groups, others = self._groups(name), self._groups(other)
        if groups is None or others is None:
            return False
        return len(groups.values) == len(others.values) == len(combine(groups, others).values)

    def _cuts(self, column: str, name: str) -> bool:
        """Whether answers of one group differ in the column."""
        groups, codes = self._groups(name), self._codes(column)
        return groups is not None and codes is not None and len(combine(groups, codes).values) > len(groups.values)

    def _groups(self, name: str) -> Codes | None:
        """Codes of the groups that the column tells; None where its values cannot be compared."""
        keys = [name, *([self.step] if self.step else [])]
        codes = [self._codes(key) for key in keys]
        if len(self.files) > 1 and is_file_scoped(name):
            codes.append(self._codes(None))
        known = [each for each in codes if each is not None]
        same = len({each.codes.size for each in known}) == 1 and len(known) == len(codes)
        return functools.reduce(combine, known) if same else None

    def _codes(self, name: str | None) -> Codes | None:
        """Codes of a column's values (of the files, for None); None where they are of several sorts."""
        if name not in self.known:
            read = list(self._arrays(name))
            try:
                self.known[name] = encode(name or "file", [array for _, array in read], [file for file, _ in read])
            except InputError:
                self.known[name] = None
        return self.known[name]

    def _arrays(self, name: str | None) -> Iterator[tuple[str, pa.Array]]:
        """The column's values, each array with the name of its file."""
        for fragment in self.fragments:
            file = self.files[fragment.file_number]
            if name is None:
                yield file.name, pa.repeat(pa.scalar(fragment.file_number), fragment.rows)
            elif (column := resolve(name, file.schema)) is not None:
                yield from ((file.name, column_of(batch, column)) for batch in file.batches(fragment, [column.top]))
