"""What a page lets one look into: groups, their answers, and the answers' tokens, those that move the policy most first.

Of a large run only some are on the page. Groups stand in one order, by Σ |A| × tokens; answers stand in the order of their
groups; and those with tokens and texts are the first of them. So each of the three is a beginning of the one before.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from olmorl_cli.core.gradients import token_terms
from olmorl_cli.core.sums import FloatArray, IntArray
from olmorl_cli.errors import Problems
from olmorl_cli.report.data import Run
from olmorl_cli.results import id_columns
from olmorl_cli.rollouts.arrays import BoolArray, column_of, lists_of
from olmorl_cli.rollouts.beside import TEXTS, Beside, is_answer_text
from olmorl_cli.rollouts.exploded import ExplodedFile
from olmorl_cli.rollouts.files import DataFile, Fragment
from olmorl_cli.rollouts.parallel import in_order
from olmorl_cli.rollouts.roles import Column
from olmorl_cli.rollouts.rollouts import Rollouts
from olmorl_cli.rollouts.texts import plain_texts, valid_texts
from olmorl_cli.rollouts.token_batches import token_blocks, token_columns

ID_BYTES, TEXT_BYTES = 500_000, 700_000
"""Of the groups' ids, and of prompts and answers, as the page spells them."""
MOST_GROUPS, MOST_ANSWERS, MOST_DETAILED, MOST_TOKENS = 10_000, 10_000, 6_000, 200_000
TOKENS_OF_ANSWER, CHARACTERS_OF_ID, CHARACTERS_OF_STEP, CHARACTERS_OF_TEXT = 2_000, 160, 80, 4_000

PROMPTS = ("prompt", "input_prompt", "question", "query", "problem", "input", "instruction")
"""Columns with the text of a prompt: the first that is there is shown."""

HIDDEN = 30_000
"""A number above this stands for so many tokens, less this, that are masked or left out."""
MOST_LOG = HIDDEN - 1
"""In thousandths."""

JOINT = " · "
"""Stands between the ids of a group that several columns tell."""

_SPELLED_LONG = '[\\x00-\\x1f"\\\\<>&]'


@dataclass(frozen=True)
class Chosen:
    """What is on the page of groups and answers.

    Attributes:
        groups: numbers of the groups.
        ids: their ids as text.
        answers: rows of the answers, in the order of their groups.
        counts: int, how many of each group's answers these are.
        detailed: how many of the answers, from the first on, may have tokens and texts.
    """

    groups: IntArray
    ids: list[str]
    answers: IntArray
    counts: IntArray
    detailed: int


def choose(run: Run) -> Chosen:
    """The groups and answers that are on the page."""
    groups = run.scored.table.groups
    number = run.scored.statistics.size.size
    with np.errstate(over="ignore"):
        weights = np.nan_to_num(np.bincount(groups, run.weights, number))
    order = np.argsort(-weights, kind="stable")[:MOST_GROUPS]
    ids = pc.utf8_slice_codeunits(_ids(run, order), 0, CHARACTERS_OF_ID + 1)
    shown = int(np.searchsorted(np.cumsum(spelled_bytes(ids)), ID_BYTES, side="right"))
    order = order[:shown]
    place = np.full(number, number, dtype=np.int64)
    place[order] = np.arange(order.size)
    rows = np.argsort(place[groups], kind="stable")
    rows = rows[: min(MOST_ANSWERS, int((place < number)[groups].sum()))]
    tokens = np.zeros(rows.size) if run.sums is None else np.minimum(run.sums.tokens[rows], TOKENS_OF_ANSWER)
    detailed = int(np.searchsorted(np.cumsum(tokens), MOST_TOKENS, side="right"))
    texts = [shortened(text, CHARACTERS_OF_ID) for text in ids.slice(0, shown).to_pylist()]
    counts = np.bincount(place[groups[rows]], minlength=order.size)
    return Chosen(order, texts, rows, counts, min(detailed, MOST_DETAILED))


def _ids(run: Run, order: IntArray) -> pa.Array:
    """The ids of groups, those of several columns side by side, large_string."""
    columns = id_columns(run.scored, order, run.scored.table.step_of_group[order], frozenset())
    parts = [plain_texts(column).fill_null("null") for name, column in columns.items() if name in run.scored.table.group_ids]
    return pc.binary_join_element_wise(*parts, pa.scalar(JOINT, pa.large_string()))


def shortened(text: str, most: int) -> str:
    """A text's first characters, and a mark where there are more."""
    return text if len(text) <= most else f"{text[:most]}…"


def spelled_bytes(texts: pa.Array) -> IntArray:
    """Bytes that each text takes on the page at most, int (n,)."""
    long = pc.count_substring_regex(texts, _SPELLED_LONG)
    lengths: IntArray = pc.add(pc.binary_length(texts), pc.multiply(long, 5)).fill_null(0).to_numpy(zero_copy_only=False)
    return lengths.astype(np.int64) + 3


@dataclass
class Details:
    """Texts and tokens of the detailed answers, in their order.

    Attributes:
        prompt, answer: the columns that the texts come from, None where there is none.
        prompts: a text for each group of which there is a detailed answer.
        answers: a text for each answer.
        characters: of each answer's whole text; -1 where it is null.
        tokens: of each answer, its list's first tokens: 1000 log ρ, rounded, or a number above `HIDDEN`.
        lengths: how many tokens each answer's list has.
        clipped: of each answer, the places of tokens that a bound clips.
        by_character: each token is a character of the answer's text.
    """

    prompt: str | None = None
    answer: str | None = None
    prompts: list[str] = field(default_factory=list)
    answers: list[str | None] = field(default_factory=list)
    characters: list[int] = field(default_factory=list)
    tokens: list[list[int]] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    clipped: list[list[int]] = field(default_factory=list)
    by_character: bool = False


def read_details(run: Run, chosen: Chosen, skip: bool) -> Details:
    """The texts and tokens of the chosen answers: their rows are read once more.

    Raises:
        InputError: a file cannot be read, or has text that is not valid.
    """
    rollouts = run.scored.rollouts
    rows = chosen.answers[: chosen.detailed]
    details = Details(_prompt_column(rollouts), Beside(rollouts).first(TEXTS, is_answer_text))
    if not rows.size:
        return details
    order = np.argsort(rows)
    back = np.argsort(order)  # of what is read in the input's order
    held = list(_picked(rollouts, rows[order], details.prompt, details.answer, run.sums is not None))
    _add_texts(details, held, back, chosen)
    if run.sums is not None:
        _add_tokens(details, held, rows[order], back, run, skip)
        known = np.array(details.characters)
        details.by_character = bool(known.size and (known == np.array(details.lengths)).all())
    return details


def _prompt_column(rollouts: Rollouts) -> str | None:
    """The first column of prompts that holds a text, or a chat, in all files."""
    schemas = [file.schema for file in rollouts.files]
    return next((n for n in PROMPTS if all(n in s.names and is_answer_text(s.field(n).type) for s in schemas)), None)


class _Held(DataFile):
    """Some rows of a file, in memory."""

    kind = "held"

    def __init__(self, file: DataFile, batches: list[pa.RecordBatch]) -> None:
        super().__init__(file.source, file.schema)
        self._batches = batches
        self.rows = sum(batch.num_rows for batch in batches)

    def fragments(self, number: int) -> list[Fragment]:
        return [Fragment(number, (), 0, self.rows)]

    def batches(self, fragment: Fragment, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:  # noqa: ARG002
        return (batch.select(list(columns)) for batch in self._batches)


def _picked(
    rollouts: Rollouts, rows: IntArray, prompt: str | None, answer: str | None, tokens: bool
) -> Iterator[tuple[int, _Held]]:
    """These rows (ascending) of the input, some columns of them: for each fragment that has any, its file's number."""
    texts = [name for name in (prompt, answer) if name is not None]
    firsts = [*rollouts.first_rows, rollouts.rows]
    bounds = np.searchsorted(rows, firsts)
    wanted = np.flatnonzero(np.diff(bounds)).tolist()

    def read(number: int) -> tuple[int, _Held]:
        fragment = rollouts.fragments[number]
        file = rollouts.files[fragment.file_number]
        if isinstance(file, ExplodedFile):
            file = file.opening([Column(answer, answer)] if answer is not None else [])
        tops = token_columns(rollouts, fragment.file_number).tops if tokens else []
        own, first, batches = rows[bounds[number] : bounds[number + 1]] - firsts[number], 0, []
        for batch in file.batches(fragment, list(dict.fromkeys([*tops, *texts]))):
            inside = own[(own >= first) & (own < first + batch.num_rows)] - first
            first += batch.num_rows
            if inside.size:
                columns = [_taken(column, inside) for column in batch.columns]
                batches.append(pa.RecordBatch.from_arrays(columns, names=batch.schema.names))
        return fragment.file_number, _Held(file, batches)

    return in_order(read, wanted)


def _taken(column: pa.Array, rows: IntArray) -> pa.Array:
    """Some rows of a column, copied, whatever its layout."""
    try:
        return column.take(pa.array(rows))
    except pa.ArrowNotImplementedError:  # views of texts and lists, in some versions
        return pa.concat_arrays([column.slice(row, 1) for row in rows.tolist()])


def _add_texts(details: Details, held: list[tuple[int, _Held]], back: IntArray, chosen: Chosen) -> None:
    """Prompts and answers as far as there is room for them, groups in their order."""
    room = TEXT_BYTES
    first_of_group = np.cumsum(np.concatenate(([0], chosen.counts)))[:-1]
    starts = first_of_group[first_of_group < back.size]
    if details.prompt is not None:
        texts = _texts(held, details.prompt, back).take(pa.array(starts))
        cut = pc.utf8_slice_codeunits(texts, 0, CHARACTERS_OF_TEXT // 4 + 1)
        fitting = np.cumsum(spelled_bytes(cut)) <= room // 2
        room -= int(spelled_bytes(cut)[fitting].sum())
        details.prompts = [
            shortened(text or "", CHARACTERS_OF_TEXT // 4) for text in cut.filter(pa.array(fitting)).to_pylist()
        ]
    if details.answer is not None:
        texts = _texts(held, details.answer, back)
        cut = pc.utf8_slice_codeunits(texts, 0, CHARACTERS_OF_TEXT)
        fitting = np.cumsum(spelled_bytes(cut)) <= room
        details.answers = cut.filter(pa.array(fitting)).to_pylist()
        details.characters = pc.utf8_length(texts).fill_null(-1).to_pylist()


def _texts(held: list[tuple[int, _Held]], name: str, back: IntArray) -> pa.Array:
    """A column of the picked rows, large_string, in the order of the page."""
    parts = [
        plain_texts(valid_texts(batch.column(name), f"column {name}", file.name))
        for _, file in held
        for batch in file.batches(Fragment(0, (), 0, file.rows), [name])
    ]
    return pa.concat_arrays(parts).take(pa.array(back))


def _add_tokens(
    details: Details, held: list[tuple[int, _Held]], rows: IntArray, back: IntArray, run: Run, skip: bool
) -> None:
    """The picked rows' tokens, encoded, in the order of the page."""
    rollouts, recipe = run.scored.rollouts, run.scored.recipe
    encoded: list[tuple[list[int], list[int]]] = [([], [])] * rows.size
    lengths: list[IntArray] = []
    done = 0
    for number, file in held:
        columns = token_columns(rollouts, number, recipe.ratio == "sampler" or recipe.sampler_mode != "none")
        logps = columns.logps["logp_new"]
        lengths += [
            lists_of(column_of(batch, logps)).lengths for batch in file.batches(Fragment(number, (), 0, 0), [logps.top])
        ]
        for first, tokens in token_blocks(file, file.fragments(number)[0], columns, skip, Problems(), places=True):
            answers = slice(done + first, done + first + tokens.offsets.size - 1)
            found = token_terms(tokens, recipe.terms, run.scored.advantages[rows[answers]])
            places = tokens.places if tokens.places is not None else np.arange(tokens.new.size)
            coded = thousandths(found.log_ratio)
            clipped = found.clipped_low | found.clipped_high
            list_lengths = np.concatenate(lengths)[answers]
            for index, (start, stop) in enumerate(zip(tokens.offsets[:-1], tokens.offsets[1:], strict=True)):  # those shown
                own = slice(start, stop)
                encoded[answers.start + index] = encode(coded[own], places[own], clipped[own], int(list_lengths[index]))
        done += file.rows
    details.tokens = [encoded[at][0] for at in back.tolist()]
    details.clipped = [encoded[at][1] for at in back.tolist()]
    details.lengths = np.concatenate(lengths)[back].tolist()


def thousandths(log_ratio: FloatArray) -> IntArray:
    """1000 log ρ, rounded and kept within what the page can spell, int (T,)."""
    rounded: IntArray = np.rint(np.clip(np.nan_to_num(log_ratio * 1000.0), -MOST_LOG, MOST_LOG)).astype(np.int64)
    return rounded


def encode(coded: IntArray, places: IntArray, clipped: BoolArray, length: int) -> tuple[list[int], list[int]]:
    """An answer's first tokens as numbers, runs of hidden ones as one number, and the places of clipped tokens.

    >>> encode(np.array([5, -7]), np.array([1, 4]), np.array([False, True]), 6)
    ([30001, 5, 30002, -7, 30001], [4])
    """
    most = min(length, TOKENS_OF_ANSWER)
    inside = places < most
    coded, places, clipped = coded[inside], places[inside], clipped[inside]
    ends = np.append(places, most)
    hidden = np.diff(ends, prepend=-1) - 1
    before = np.flatnonzero(hidden)
    numbers = np.insert(coded, before, HIDDEN + hidden[before])
    return numbers.tolist(), places[clipped].tolist()
