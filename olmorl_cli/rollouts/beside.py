"""Columns beside those that play a role: the answers' texts, how they ended, parts of the reward."""

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from olmorl_cli.rollouts.answers import read_columns
from olmorl_cli.rollouts.arrays import BoolArray, IntArray, column_of, lists_of, storage_of
from olmorl_cli.rollouts.exploded import ExplodedFile
from olmorl_cli.rollouts.files import DataFile, Fragment
from olmorl_cli.rollouts.joined import JoinedFile
from olmorl_cli.rollouts.masks import ones_of
from olmorl_cli.rollouts.roles import ROLES, is_list, is_number, is_number_list, is_text, resolve, storage_type, type_of
from olmorl_cli.rollouts.rollouts import Rollouts

TEXTS = (
    *("completion", "response", "output", "output_response", "decoded_completion", "generation", "answer", "text"),
    *("completions", "responses", "outputs", "generations"),
)
"""Columns with the text of an answer, or its messages."""
TOKEN_IDS = ("completion_ids", "response_ids", "response_tokens", "output_tokens", "output_ids", "completion_token_ids")
"""Columns with the tokens of an answer."""
ENDS = ("finish_reason", "finish_reasons", "stop_reason", "truncated", "is_truncated", "response_truncated", "status")
"""Columns that tell whether an answer was cut off."""
CUT_WORDS = ("length", "max_tokens", "max_length", "max_new_tokens", "max_output_tokens", "truncated")
"""What they say of one that was."""
ADVANTAGES = ("advantage", "advantages")
"""Columns of a trainer's own advantages."""

Kind = Callable[[pa.DataType], bool]


def is_answer_text(kind: pa.DataType) -> bool:
    """A text, or the messages of a chat."""
    kind = storage_type(kind)
    return is_text(kind) or (is_list(kind) and types.is_struct(storage_type(kind.value_type)))


def is_end(kind: pa.DataType) -> bool:
    """A word, or a flag."""
    kind = storage_type(kind)
    return bool(is_text(kind) or types.is_boolean(kind))


def is_plain_number(kind: pa.DataType) -> bool:
    """A number, but not nothing but nulls."""
    return is_number(kind) and not types.is_null(storage_type(kind))


@dataclass(frozen=True)
class Beside:
    """The input's columns that no role has taken; where a row is a prompt, those with one value an answer."""

    rollouts: Rollouts

    @property
    def _taken(self) -> set[str]:
        return {name for choice in self.rollouts.choices.values() for name in choice.columns}

    def names(self, accepts: Kind) -> list[str]:
        """Columns of every file whose type will do, in the order of the first file."""
        first = self.rollouts.files[0].schema.names
        return [name for name in first if name not in self._taken and self._has(name, accepts)]

    def first(self, names: Sequence[str], accepts: Kind) -> str | None:
        """The first of `names`, as they are written and then whatever their case, that every file has, of such a type."""
        there = self.names(accepts)
        folded = {name.casefold(): name for name in reversed(there)}
        return next((name if name in there else folded[name] for name in names if name in there or name in folded), None)

    def _has(self, name: str, accepts: Kind) -> bool:
        return all(_accepted(file, name, accepts) for file in self.rollouts.files)

    def read(self, kinds: Mapping[str, Callable[[pa.Array], Any]]) -> dict[str, list[Any]]:
        """Read columns: name → what its function makes of each batch, in input order.

        Raises:
            InputError: a file cannot be read.
        """
        found: dict[str, list[Any]] = {name: [] for name in kinds}
        if kinds:
            for batches in self.rollouts.map(_read, [(kinds,)] * len(self.rollouts.fragments)):
                for _, batch in batches:
                    for name, value in batch.items():
                        found[name].append(value)
        return found

    def taken(self, name: str, rows: IntArray) -> Iterator[tuple[list[int], pa.Array]]:
        """Values of one column in some rows of the whole input, ascending: which rows, and what stands there.

        Raises:
            InputError: a file cannot be read.
        """
        for fragment, row in zip(self.rollouts.fragments, self.rollouts.first_rows, strict=True):
            own = rows[(rows >= row) & (rows < row + fragment.rows)]
            if not own.size:
                continue
            file = _opened(self.rollouts.files[fragment.file_number], [name])
            place = resolve(name, file.schema)
            assert place is not None, "every file has it"
            for batch in file.batches(fragment, [place.top]):
                there = own[(own >= row) & (own < row + batch.num_rows)]
                if there.size:
                    yield there.tolist(), column_of(batch, place).take(pa.array(there - row))
                row += batch.num_rows


def _accepted(file: DataFile, name: str, accepts: Kind) -> bool:
    """Whether the file has such a column, with a value for each answer."""
    if isinstance(file, JoinedFile) and isinstance(file.unwidened, ExplodedFile):
        return False
    place = resolve(name, file.schema)
    if place is None:
        return False
    kind = storage_type(type_of(place, file.schema))
    if isinstance(file, ExplodedFile):
        return is_list(kind) and accepts(kind.value_type)
    return accepts(kind)


def _read(
    file: DataFile, fragment: Fragment, kinds: Mapping[str, Callable[[pa.Array], Any]]
) -> list[tuple[int, dict[str, Any]]]:
    """`read_columns` by name."""
    file = _opened(file, list(kinds))
    places = {name: resolve(name, file.schema) for name in kinds}
    return read_columns(file, fragment, {name: (place, kinds[name]) for name, place in places.items() if place is not None})


def _opened(file: DataFile, names: Sequence[str]) -> DataFile:
    """The file, with lists of the answers' values opened."""
    if not isinstance(file, ExplodedFile):
        return file
    places = [resolve(name, file.schema) for name in names]
    return file.opening([place for place in places if place is not None])


def answer_lengths(rollouts: Rollouts) -> IntArray:
    """How many real tokens each answer has, int (N,): by the mask, or else by a list of log-probs or token ids.

    1 where there is no such list. Nothing is said of lists that do not belong together: no log-prob is looked at.
    """
    beside, mask = Beside(rollouts), rollouts.choices.get("mask")
    if mask is not None:
        return _lengths_by_mask(rollouts, mask.columns[0])
    names = [name for role, each in ROLES.items() if role.startswith("logp") for name in each.names]
    column = beside.first([*names, *TOKEN_IDS], is_number_list)
    if column is None:
        return np.ones(rollouts.rows, dtype=np.int64)
    parts = beside.read({column: lambda array: lists_of(array).lengths})[column]
    return np.concatenate([*parts, np.zeros(0, dtype=np.int64)])


def _lengths_by_mask(rollouts: Rollouts, name: str) -> IntArray:
    labels = (fragment.file_number in rollouts.files_of_labels for fragment in rollouts.fragments)
    given = (({name: functools.partial(_ones, labels=each)},) for each in labels)
    parts = [batch[name] for batches in rollouts.map(_read, given) for _, batch in batches]
    return np.concatenate([*parts, np.zeros(0, dtype=np.int64)])


def _ones(masks: pa.Array, labels: bool) -> IntArray:
    return ones_of(lists_of(masks), labels)


def cut_flags(array: pa.Array) -> BoolArray:
    """Which answers were cut off, by the column that tells how they ended; bool (n,), false for null."""
    array = storage_of(array)
    if types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if types.is_boolean(array.type):
        array = array.fill_null(False)
        return np.asarray(array.to_numpy(zero_copy_only=False), dtype=np.bool_)
    words = pc.ascii_lower(pc.ascii_trim_whitespace(array.cast(pa.large_string())))  # which need not be valid UTF-8
    flags: BoolArray = pc.is_in(words, value_set=pa.array(CUT_WORDS, pa.large_string())).to_numpy(zero_copy_only=False)
    return flags
