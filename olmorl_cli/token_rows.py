"""One row a token: its ratio, its term, and how the objective moves with its log-prob. A stream: never all in memory."""

import dataclasses
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from pyarrow import types

from olmorl_cli.core.gradients import token_gradients, token_terms
from olmorl_cli.core.objective import Partition, answer_weights
from olmorl_cli.core.sums import FloatArray
from olmorl_cli.core.tokens import Tokens
from olmorl_cli.errors import Problems
from olmorl_cli.objectives import Objective
from olmorl_cli.results import id_columns
from olmorl_cli.rollouts.parallel import in_order, lots
from olmorl_cli.rollouts.token_batches import token_blocks, token_columns
from olmorl_cli.token_pass import Progress

FIELDS = {
    "row": pa.int64(),
    "token": pa.int64(),
    "log_ratio": pa.float64(),
    "ratio": pa.float64(),
    "advantage": pa.float64(),
    "term": pa.float64(),
    "clipped_low": pa.bool_(),
    "clipped_high": pa.bool_(),
    "gradient": pa.float64(),
}
"""Columns of a token, after those that tell its step and group."""

CHUNK_BYTES = 16 << 20
"""About how much the ids of a batch take, where groups are told by long texts."""
LEAST_ROWS = 1 << 17
"""Rows of a batch, so that files do not fall into small pieces."""


def token_rows(
    result: Objective, skip: bool, *, dictionaries: bool, least: int = LEAST_ROWS, progress: Progress | None = None
) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """Every real token, in input order: the schema, and the rows in batches.

    step (where there is one) and group as in `answers_table`; row, its answer's place in the input; token, its place in the
    answer's list; log_ratio, ratio, term, clipped_low and clipped_high as in `TokenTerms`; advantage, null for an
    unscorable answer; gradient, the derivative of the one objective of the whole input by the token's new log-prob.

    Args:
        result: of the whole input, one batch.
        skip: what was left out of the result is left out here.
        dictionaries: step and group as dictionaries, each batch with its own.
        least: rows of a batch, but for the last.
        progress: is told of the answers done.

    Raises:
        InputError: a group column is called like one of the others, or a file cannot be read.
    """
    table = _TokenTable(result)
    batches = in_order(table.batch, _blocks(result, skip, progress))
    if dictionaries:  # pyarrow cannot join dictionaries of lists and structs
        return table.worded, batches if table.nested else _gathered(table.worded, batches, least)
    rows = table.rows_of(CHUNK_BYTES)
    decoded = (part for batch in batches for part in _decoded(batch, table.schema, rows))
    return table.schema, decoded if rows < least else _gathered(table.schema, decoded, least)


class _TokenTable:
    """Blocks of tokens as rows: what they need of the answers is here, so that threads can work on blocks apart."""

    def __init__(self, result: Objective) -> None:
        scored = result.answers
        groups = scored.table.groups
        self.recipe, self.advantages, self.groups = scored.recipe, scored.advantages, groups
        counted = ~np.isnan(scored.advantages)
        if self.recipe.zero_signal_groups == "dropped":
            counted &= scored.kept
        number = scored.statistics.size.size
        partition = Partition(groups, np.zeros(number, dtype=np.int64))
        self.weights: FloatArray = answer_weights(
            result.kept_sums.tokens, counted, partition, self.recipe.aggregation, self.recipe.divisor
        )
        ids = id_columns(scored, np.arange(number), scored.table.step_of_group, frozenset(["step", *FIELDS]))
        self.ids = {name: column.dictionary.take(column.indices) for name, column in ids.items()}
        self.schema = pa.schema({name: each.type for name, each in self.ids.items()} | FIELDS)
        self.worded = pa.schema({name: pa.dictionary(pa.int32(), each.type) for name, each in self.ids.items()} | FIELDS)

    @property
    def nested(self) -> bool:
        """Whether a group is told by lists or structs."""
        return any(types.is_nested(each.type) for each in self.ids.values())

    def rows_of(self, size: int) -> int:
        """Rows whose ids take about so many bytes, at least a few."""
        width = sum(each.nbytes / max(len(each), 1) for each in self.ids.values())
        return max(256, int(size / max(width, 1.0)))

    def batch(self, block: tuple[int, Tokens]) -> pa.RecordBatch:
        """The rows of the tokens of some answers, the first of which is given."""
        first, tokens = block
        lengths = np.diff(tokens.offsets)
        answers = slice(first, first + lengths.size)
        advantages = self.advantages[answers]
        found = token_terms(tokens, self.recipe.terms, advantages)
        columns = {
            **self._id_columns(answers, lengths),
            "row": pa.array(np.repeat(np.arange(answers.start, answers.stop), lengths)),
            "token": pa.array(tokens.places),
            "log_ratio": found.log_ratio,
            "ratio": found.ratio,
            "advantage": np.repeat(advantages, lengths),
            "term": found.term,
            "clipped_low": found.clipped_low,
            "clipped_high": found.clipped_high,
            "gradient": token_gradients(tokens, self.recipe, found.slope, self.weights[answers]),
        }
        arrays = [each if isinstance(each, pa.Array) else pa.array(each, from_pandas=True) for each in columns.values()]
        return pa.RecordBatch.from_arrays(arrays, schema=self.worded)

    def _id_columns(self, answers: slice, lengths: np.ndarray) -> dict[str, pa.Array]:
        """The step and group columns of the answers' tokens."""
        groups, codes = np.unique(self.groups[answers], return_inverse=True)
        per_token = pa.array(np.repeat(codes.astype(np.int32), lengths))
        words = {name: ids.take(pa.array(groups)) for name, ids in self.ids.items()}
        return {name: pa.DictionaryArray.from_arrays(per_token, each) for name, each in words.items()}


def _decoded(batch: pa.RecordBatch, schema: pa.Schema, rows: int) -> Iterator[pa.RecordBatch]:
    """The batch with plain ids, so many rows at a time."""
    for first in range(0, batch.num_rows, rows):
        columns = batch.slice(first, rows).columns
        plain = [each.dictionary.take(each.indices) if types.is_dictionary(each.type) else each for each in columns]
        yield pa.RecordBatch.from_arrays(plain, schema=schema)


def _blocks(result: Objective, skip: bool, progress: Progress | None) -> Iterator[tuple[int, Tokens]]:
    """The tokens of the input once more, with their places, and the input's row of each block's first answer."""
    rollouts = result.answers.rollouts
    by_sampler = result.answers.recipe.ratio == "sampler"
    for fragment, first in zip(rollouts.fragments, rollouts.first_rows, strict=True):
        file = rollouts.files[fragment.file_number]
        columns = dataclasses.replace(token_columns(rollouts, fragment.file_number, by_sampler), read_ahead=True)
        for start, tokens in token_blocks(file, fragment, columns, skip, Problems(), places=True):
            yield first + start, tokens
            if progress is not None:
                progress(tokens.offsets.size - 1)


def _gathered(schema: pa.Schema, batches: Iterator[pa.RecordBatch], least: int) -> Iterator[pa.RecordBatch]:
    """The rows in batches of at least `least`, but for the last."""
    for lot in lots(batches, lambda batch: batch.num_rows, least):
        yield _joined(schema, lot)


def _joined(schema: pa.Schema, batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    table = pa.Table.from_batches(batches, schema).combine_chunks()
    arrays = [column.chunk(0) if column.num_chunks else pa.array([], column.type) for column in table.columns]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
