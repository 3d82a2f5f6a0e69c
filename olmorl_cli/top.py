"""The answers that weigh most in the objective: what an update pushes toward, and away from."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from olmorl_cli.core.sums import FloatArray, exact_sum
from olmorl_cli.results import answers_table, id_columns
from olmorl_cli.rollouts.beside import TEXTS, Beside, answer_lengths, is_answer_text
from olmorl_cli.rollouts.roles import is_text
from olmorl_cli.rollouts.texts import plain_texts
from olmorl_cli.scoring import ScoredAnswers

ADDED = frozenset(["tokens", "text"])
"""Columns that the rows have beside those of every answer."""


@dataclass(frozen=True)
class Top:
    """The answers of greatest weight, |advantage| x tokens.

    Attributes:
        table: the columns of `answers_table`, tokens, and text (null where the input has none); by falling weight, answers
            of one weight in input order, those that cannot be scored last.
        weights: float64, of these answers.
        total: the sum of all answers' weights.
    """

    table: pa.Table
    weights: FloatArray
    total: float


def top_answers(scored: ScoredAnswers, number: int, *, each_way: bool = False) -> Top:
    """The `number` answers of greatest weight, or all if there are fewer.

    Args:
        scored: the answers.
        number: how many.
        each_way: so many with an advantage above 0, and so many with one below; none that weighs nothing.

    Raises:
        InputError: a file cannot be read, or a group column is called like one of the others.
    """
    nothing = np.zeros(0, dtype=np.int64)
    id_columns(scored, nothing, nothing, ADDED)
    tokens = answer_lengths(scored.rollouts)
    with np.errstate(invalid="ignore", over="ignore"):
        weights = np.where(tokens > 0, np.abs(scored.advantages) * tokens, 0.0)
    unscorable = np.isnan(scored.advantages)
    order = np.argsort(np.where(unscorable, np.inf, -weights), kind="stable")
    if each_way:
        order = order[weights[order] > 0.0]
        upward = scored.advantages[order] > 0.0
        order = order[np.where(upward, np.cumsum(upward), np.cumsum(~upward)) <= number]
    order = order if each_way else order[:number]
    table = answers_table(scored).take(pa.array(order))
    table = table.append_column("tokens", pa.array(tokens[order]))
    table = table.append_column("text", _texts(scored, order))
    return Top(table, np.where(unscorable, 0.0, weights)[order], exact_sum(weights[~unscorable]))


def _texts(scored: ScoredAnswers, rows: np.ndarray) -> pa.Array:
    """The texts of some answers; a chat as JSON, and what is no UTF-8 with marks in its place."""
    beside = Beside(scored.rollouts)
    column = beside.first(TEXTS, is_answer_text)
    if column is None:
        return pa.nulls(rows.size, pa.large_string())
    texts: dict[int, str | None] = {}
    for first, array in beside.taken(column, np.sort(rows)):
        array = array if is_text(array.type) else plain_texts(array)
        array = array.dictionary_decode() if pa.types.is_dictionary(array.type) else array
        values = pc.cast(array, pa.large_binary()).to_pylist()
        texts |= {row: None if v is None else v.decode(errors="replace") for row, v in zip(first, values, strict=True)}
    return pa.array([texts[row] for row in rows.tolist()], pa.large_string())
