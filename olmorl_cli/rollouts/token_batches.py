"""From record batches to real tokens: lists flattened, masks applied, log-probs checked."""

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from olmorl_cli.core.tokens import Tokens
from olmorl_cli.errors import MOST_PLACES, Place, Problems, text_of
from olmorl_cli.rollouts.arrays import BoolArray, IntArray, Lists, column_of, lists_of, marks_of, numbers_of
from olmorl_cli.rollouts.files import DataFile, Fragment
from olmorl_cli.rollouts.kept import Kept, Values, flat_of, places_of, spread_over
from olmorl_cli.rollouts.masks import odd_marks, ones_of
from olmorl_cli.rollouts.parallel import ahead, cores
from olmorl_cli.rollouts.roles import Column
from olmorl_cli.rollouts.rollouts import Rollouts

MOST_LOGP = 1e-3
"""Greatest log-prob that rounding can explain; what lies above is a sentinel."""
BLOCK_TOKENS = 1 << 16
"""Tokens in a block of work: its temporaries stay in the cache."""

_MEND = "Mend it, mask it out, or leave such tokens out with --invalid skip"
_FIELDS = {"logp_new": "new", "logp_old": "old", "logp_sampler": "sampler", "logp_ref": "reference"}


@dataclass(frozen=True)
class TokenColumns:
    """The columns of one file that hold tokens.

    Attributes:
        logps: role → column of log-probs.
        mask: None where every token is real.
        sampler_required: a null list of sampler log-probs is an error, not an answer without them.
        sampler_missing: other files have a column of them, this one has not.
        compact: log-probs stand only for the tokens that the mask marks.
        read_ahead: decode the next batch meanwhile; there are fewer fragments than cores.
        labels: the masks are label ids, of which -100 is masked.
    """

    logps: Mapping[str, Column]
    mask: Column | None = None
    sampler_required: bool = False
    sampler_missing: bool = False
    compact: bool = False
    read_ahead: bool = False
    labels: bool = False

    @property
    def tops(self) -> list[str]:
        columns = [*self.logps.values(), *([self.mask] if self.mask else [])]
        return list(dict.fromkeys(column.top for column in columns))


def token_columns(rollouts: Rollouts, number: int, sampler_required: bool = False) -> TokenColumns:
    """Where the input's file of this number has the tokens."""
    file = rollouts.files[number]
    places = {role: rollouts.locate(role, file) for role in rollouts.choices if role.startswith("logp") or role == "mask"}
    logps = {role: place[0] for role, place in places.items() if role != "mask" and place[0] is not None}
    missing = "logp_sampler" in rollouts.choices and "logp_sampler" not in logps
    return TokenColumns(
        logps,
        places["mask"][0] if "mask" in places else None,
        sampler_required,
        missing,
        rollouts.compact,
        read_ahead=len(rollouts.fragments) < cores(),
        labels=number in rollouts.files_of_labels,
    )


def token_blocks(
    file: DataFile,
    fragment: Fragment,
    columns: TokenColumns,
    skip: bool,
    problems: Problems,
    severity: str | None = None,
    places: bool = False,
) -> Iterator[tuple[int, Tokens]]:
    """The real tokens of a fragment's answers, in blocks of whole answers.

    Args:
        file: the fragment's file.
        fragment: what to read of it.
        columns: where the tokens are.
        skip: leave out tokens whose log-probs are not finite or positive, and answers without log-probs.
        problems: takes what is wrong (and, as notes, what was left out).
        severity: of what could be left out, if not error, or note under `skip`.
        places: tell where each token stands in its answer's list.

    Yields:
        The block's first answer, counted from the fragment's first, and its tokens.
    """
    first = 0
    batches = file.batches(fragment, columns.tops)
    for batch in ahead(batches) if columns.read_ahead else batches:
        reading = _Batch(file, fragment.file_number, fragment.first_row + first, columns, skip, problems)
        reading.severity = severity or ("note" if skip else "error")
        reading.places = places
        for start, tokens in reading.blocks(batch):
            yield first + start, tokens
        first += batch.num_rows


class _Batch:
    """One record batch on its way to tokens; `first_row` is the file's row of its first answer."""

    def __init__(
        self, file: DataFile, file_number: int, first_row: int, columns: TokenColumns, skip: bool, problems: Problems
    ) -> None:
        self.file, self.file_number, self.first_row = file, file_number, first_row
        self.columns, self.skip, self.problems = columns, skip, problems
        self.severity, self.places = "error", False

    @property
    def _required(self) -> list[str]:
        """Roles whose lists an answer must have; the sampler's only if asked for, or where there are no others."""
        roles = [role for role in self.columns.logps if role != "logp_sampler" or self.columns.sampler_required]
        return roles or ["logp_sampler"]

    def _called(self, column: Column) -> str:
        return self.file.called(column.top, column.name)

    def blocks(self, batch: pa.RecordBatch) -> Iterator[tuple[int, Tokens]]:
        """The batch's real tokens, block by block; nothing where errors (now among the problems) leave nothing to score."""
        logps = {role: lists_of(column_of(batch, column)) for role, column in self.columns.logps.items()}
        mask = lists_of(column_of(batch, self.columns.mask)) if self.columns.mask else None
        if mask is not None and not self.columns.labels and (odd := odd_marks(mask.values)) is not None:
            offsets = np.concatenate(([0], np.cumsum(mask.lengths)))
            said = "the mask has a value other than 0 and 1, though the file does not begin with label ids"
            action = "Write 0 and 1, or label ids with -100 for what is masked, into all rows"
            at, name = np.flatnonzero(odd), self.columns.mask.name if self.columns.mask else None
            self._report_tokens("odd_mask", said, action, at, offsets, 0, name, _texts(mask.values, at))
        has_sampler = None
        if "logp_sampler" not in self._required and "logp_sampler" in logps and logps["logp_sampler"].null is not None:
            has_sampler = ~logps["logp_sampler"].null
        if (
            self.columns.compact
            and mask is not None
            and (ones_of(mask, self.columns.labels) == logps[self._required[0]].lengths).all()
        ):
            mask = None  # each log-prob stands for a 1 of the mask
        usable = self._usable(logps, mask)
        lengths = next(logps[role].lengths for role in self._required)
        if usable is not None:
            lengths = lengths * usable
        offsets = np.concatenate(([0], np.cumsum(lengths)))
        values = {role: flat_of(numbers_of(lists.values), lists, usable) for role, lists in logps.items()}
        if has_sampler is not None:
            values["logp_sampler"] = spread_over(values["logp_sampler"], np.repeat(has_sampler, lengths))
        real = None
        if mask is not None:
            real, unknown = flat_of(marks_of(mask.values, self.columns.labels), mask, usable)
            if unknown is not None and unknown.any():
                action = "Write 0 or 1 for every token of the mask"
                null, _ = flat_of((mask.values.is_null().to_numpy(zero_copy_only=False), None), mask, usable)
                at = np.flatnonzero(unknown)
                values_there = ["null" if null[token] else "NaN" for token in at[:MOST_PLACES]]
                name = self.columns.mask.name if self.columns.mask else None
                self._report_tokens("null_in_mask", "the mask is null or NaN", action, at, offsets, 0, name, values_there)
        for start, stop in _cuts(offsets):
            part = slice(int(offsets[start]), int(offsets[stop]))
            block = _Block(
                start,
                offsets[start : stop + 1] - offsets[start],
                {role: (array[part], None if null is None else null[part]) for role, (array, null) in values.items()},
                None if real is None else real[part],
                None if has_sampler is None else has_sampler[start:stop],
            )
            tokens = self._tokens(block)
            if tokens is not None:
                yield start, tokens

    def _tokens(self, block: "_Block") -> Tokens | None:
        """The block's real tokens with sound log-probs; None where some are not, and are not to be skipped."""
        values, offsets = block.values, block.offsets
        positions = None
        if block.real is not None and not block.real.all():
            positions = Kept(block.real)
            values, offsets = positions.values(values), positions.offsets(offsets)
        masked = None if positions is None else np.diff(block.offsets) - np.diff(offsets)
        wrong = self._wrong(block, values, offsets, positions)
        sound = None
        if wrong is not None:
            if not self.skip:
                return None
            sound = Kept(~wrong)
            values, offsets = sound.values(values), sound.offsets(offsets)
        logps = {_FIELDS[role]: array for role, (array, _) in values.items()}
        if self.columns.sampler_missing and "old" in logps:
            logps["sampler"], block.has_sampler = logps["old"], np.zeros(offsets.size - 1, dtype=np.bool_)
        logps.setdefault("new", next(iter(logps.values())))
        places = places_of(block.offsets, offsets, positions, sound) if self.places else None
        return Tokens(offsets, has_sampler=block.has_sampler, places=places, masked=masked, **logps)

    def _wrong(self, block: "_Block", values: Values, offsets: IntArray, positions: "Kept | None") -> BoolArray | None:
        """Which of the block's real tokens (T,) have a log-prob that cannot be one; None where none has."""
        wrong = None
        for role, (array, null) in values.items():
            if role == "logp_sampler" and block.has_sampler is not None:
                array = np.where(np.repeat(block.has_sampler, np.diff(offsets)), array, array.dtype.type(0))
            if array.size == 0 or (-np.inf < array.min() and array.max() <= MOST_LOGP):
                continue  # NaN compares false
            name = f"{self._called(self.columns.logps[role])}, the {role},"
            nothing = np.zeros(array.size, dtype=np.bool_) if null is None else null
            for code, said, where in (
                ("null", "is null", nothing),
                ("nan", "is NaN", np.isnan(array) & ~nothing),
                ("infinite", "is infinite", np.isinf(array)),
                ("positive", f"is above {MOST_LOGP:g}, no log-prob", (array > MOST_LOGP) & (array < np.inf)),
            ):
                if where.any():
                    action = _MEND if self.severity == "error" else "Such tokens are left out"
                    at = np.flatnonzero(where)
                    there = ["null" if code == "null" else text_of(value) for value in array[at[:MOST_PLACES]]]
                    at = at if positions is None else positions.places[at]
                    self._report_tokens(
                        f"{code}_{role}",
                        f"{name} {said}",
                        action,
                        at,
                        block.offsets,
                        block.first,
                        self.columns.logps[role].name,
                        there,
                        self.severity,
                    )
                    wrong = where if wrong is None else wrong | where
        return wrong

    def _usable(self, logps: dict[str, Lists], mask: Lists | None) -> BoolArray | None:
        """Which answers have lists that belong together, bool (n,); None where all have.

        The new log-probs tell which tokens an answer has. Lists of another length are an error under every policy, a null
        list beside new log-probs under the skip policy an answer without tokens.
        """
        names = {role: self.columns.logps[role].name for role in logps}
        first, *others = self._required
        reference = logps[first]
        absent = np.zeros(reference.lengths.size, dtype=np.bool_)
        wholly_absent = np.all([logps[role].is_null for role in (first, *others)], axis=0)
        for role in (first, *others):
            if (null := logps[role].null) is not None:
                absent |= null
                action = "Mend it, or score such answers without tokens with --invalid skip"
                if role == first and (null & ~wholly_absent).any():
                    action = "Write its log-probs; the other lists have some"
                action = "Such answers have no tokens" if self.severity == "note" else action
                self._report_rows(
                    f"null_list_{role}",
                    f"{self._called(self.columns.logps[role])}, the {role}, is a null list",
                    action,
                    null,
                    names[role],
                    self.severity,
                )
        if mask is not None and self.columns.mask is not None and mask.null is not None:
            name = self.columns.mask.name
            self._report_rows("null_mask", "the mask is a null list", "Write a mask for every answer", mask.null, name)
        differing = absent.copy()
        compared = [(names[role], logps[role], True) for role in others]
        if "logp_sampler" in logps and "logp_sampler" not in self._required:
            compared.append((names["logp_sampler"], logps["logp_sampler"], True))
        if mask is not None and self.columns.mask is not None:
            compared.append((self.columns.mask.name, mask, False))
        for name, lists, may_be_null in compared:
            differs = (lists.lengths != reference.lengths) & ~wholly_absent
            if may_be_null and lists.null is not None:
                differs &= ~lists.null
            if not self.skip:  # a null list is said already
                differs &= ~absent
            if differs.any():
                details = [f" ({names[first]} {a}, {name} {b})" for a, b in _pairs(reference, lists, differs)]
                message = f"the lists {names[first]} and {name} have different lengths"
                ones = None if may_be_null else ones_of(lists, self.columns.labels)
                action = _mend_lengths(reference, lists, differs, ones)
                self._report_rows("lengths", message, action, differs, name, details=details)
                differing |= differs
        return ~differing if differing.any() else None

    def _report_rows(
        self,
        code: str,
        message: str,
        action: str,
        wrong: BoolArray,
        column: str,
        severity: str = "error",
        details: list[str] | None = None,
    ) -> None:
        rows = np.flatnonzero(wrong)
        if not rows.size:
            return
        details = details or [""] * MOST_PLACES
        places = [
            Place(self.file_number, self.first_row + row, detail=detail, value=detail.strip(" ()") or "null")
            for row, detail in zip(rows[:MOST_PLACES].tolist(), details, strict=False)
        ]
        self.problems.add(
            code, message, action, file=self.file.name, places=places, count=rows.size, severity=severity, column=column
        )

    def _report_tokens(
        self,
        code: str,
        message: str,
        action: str,
        at: IntArray,
        offsets: IntArray,
        first: int,
        column: str | None,
        values: list[str],
        severity: str = "error",
    ) -> None:
        rows = np.searchsorted(offsets, at[:MOST_PLACES], side="right") - 1
        tokens = at[:MOST_PLACES] - offsets[rows]
        places = [
            Place(self.file_number, self.first_row + first + row, token, value=value)
            for row, token, value in zip(rows.tolist(), tokens.tolist(), values, strict=True)
        ]
        self.problems.add(
            code, message, action, file=self.file.name, places=places, count=at.size, severity=severity, column=column
        )


@dataclass
class _Block:
    """Some answers of a batch, all their tokens still there, cut to fit the cache.

    Attributes:
        first: the batch's row of the first answer.
        offsets: int (n + 1,), from 0.
        values: role → log-probs (T,) and where they are null.
        real: bool (T,), or None where every token is.
        has_sampler: bool (n,), or None where every answer has sampler log-probs.
    """

    first: int
    offsets: IntArray
    values: Values
    real: BoolArray | None
    has_sampler: BoolArray | None


def _cuts(offsets: IntArray) -> Iterator[tuple[int, int]]:
    """First and last answers of blocks of about BLOCK_TOKENS each, as equal as may be (one answer may be longer)."""
    number = max(1, round(offsets[-1] / BLOCK_TOKENS))
    inner = np.searchsorted(offsets, np.arange(1, number) * offsets[-1] // number, side="right") - 1
    edges = np.unique(np.concatenate(([0], inner, [offsets.size - 1]))).tolist()
    return itertools.pairwise(edges)


def _texts(values: pa.Array, at: IntArray) -> list[str]:
    """The first few of the values at these places, as messages show them."""
    return [text_of(value) for value in values.take(pa.array(at[:MOST_PLACES])).to_pylist()]


def _mend_lengths(reference: Lists, lists: Lists, differs: BoolArray, ones: IntArray | None) -> str:
    """What to do about lists of different lengths, by the way in which they differ; `ones` are those of a mask."""
    if ones is not None and (ones == reference.lengths)[differs].all():
        return "There is a log-prob for each 1 of the mask: if that is how they are meant, add --accept compact"
    if ones is not None and (lists.lengths == reference.lengths + 1)[differs].all():
        return "The mask is longer by one, as masks of prompt and answer are before a shift: cut it where it is written"
    return "Write lists of one length an answer; nothing is padded or cut by guess"


def _pairs(a: Lists, b: Lists, where: BoolArray) -> list[tuple[int, int]]:
    """The lengths of the first few lists of a and b that differ."""
    rows = np.flatnonzero(where)[:MOST_PLACES]
    return list(zip(a.lengths[rows].tolist(), b.lengths[rows].tolist(), strict=True))
