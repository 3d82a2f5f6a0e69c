"""From the input to what the checks look at: texts, ends, parts of the reward, and what is called what."""

import functools
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from olmorl_cli.checks.evidence import Evidence, Named, Texts
from olmorl_cli.core.sums import FloatArray, IntArray
from olmorl_cli.objectives import ascending
from olmorl_cli.rollouts.arrays import lists_of, numbers_of
from olmorl_cli.rollouts.beside import (
    ADVANTAGES,
    ENDS,
    TEXTS,
    TOKEN_IDS,
    Beside,
    answer_lengths,
    cut_flags,
    is_answer_text,
    is_end,
    is_plain_number,
)
from olmorl_cli.rollouts.hashes import hashes_of_answers
from olmorl_cli.rollouts.ids import combine, encode
from olmorl_cli.rollouts.roles import is_number_list
from olmorl_cli.rollouts.texts import json_values, text_lengths
from olmorl_cli.scoring import ScoredAnswers
from olmorl_cli.token_pass import TokenPass

REWARDS = re.compile("reward|score|penalt|bonus", re.IGNORECASE)
"""Names of columns that are parts of the reward, or further ones."""
NO_REWARDS = re.compile("average|mean|rate|std|advantage|model|step|count|baseline|_min|_max|weight", re.IGNORECASE)
REFERENCE = "answer"
"""Column of texts that many files have for the right answer: it is no one's where it is the same throughout each group."""


def evidence_of(scored: ScoredAnswers, tokens: TokenPass | None, has_terms: bool) -> Evidence:
    """What the checks look at.

    Args:
        scored: the answers.
        tokens: what the token pass found; None without log-probs.
        has_terms: the recipe's sums are among it.

    Raises:
        InputError: a file cannot be read.
    """
    rollouts, table = scored.rollouts, scored.table
    columns = {role: " + ".join(choice.columns) for role, choice in rollouts.choices.items()}
    further = _Further.of(scored)
    lengths, unit = further.lengths, further.unit
    if tokens is not None and tokens.sums is not None:
        lengths, unit = tokens.sums.tokens, "unmasked tokens"
    elif "mask" in rollouts.choices:
        lengths, unit = answer_lengths(rollouts), "unmasked tokens"
    steps = table.steps
    measured = tokens is not None and {"logp_old", "logp_sampler"} <= set(columns)
    given = further.given
    if "advantage" in columns and table.advantages is not None:
        given = Named(columns["advantage"], table.advantages)
    return Evidence(
        groups=table.groups,
        step_of_group=table.step_of_group,
        rewards=np.where(np.isfinite(table.scores), table.scores, np.nan),
        advantages=scored.advantages,
        recipe=scored.recipe,
        has_rewards=table.rewards is not None,
        steps=None if steps is None else json_values(steps),
        step_order=np.array(list(ascending(steps, len(steps))), dtype=np.int64) if steps is not None else np.zeros(1, int),
        columns=columns,
        group_ids=_group_ids(scored) if rollouts.group_size is None else None,
        ids=_different_ids(scored) if rollouts.group_size is None else 0,
        sums=None if tokens is None else tokens.sums,
        old_equals_new=has_terms and tokens is not None and tokens.old_equals_new and tokens.count > 0,
        mismatch=tokens.mismatch if measured and tokens is not None else None,
        lengths=lengths,
        length_unit=unit,
        texts=further.texts,
        cut=further.cut,
        components=further.components,
        given=given,
    )


def _group_ids(scored: ScoredAnswers) -> Callable[[IntArray], list[Any]]:
    """The ids of groups by their numbers: one, or one of each column."""

    def called(numbers: IntArray) -> list[Any]:
        ids = {name: json_values(each.take(pa.array(numbers))) for name, each in scored.table.group_ids.items()}
        if len(ids) == 1:
            return next(iter(ids.values()))
        return [dict(zip(ids, row, strict=True)) for row in zip(*ids.values(), strict=True)]

    return called


def _different_ids(scored: ScoredAnswers) -> int:
    """How many different ids the groups have."""
    codes = [encode("group", [ids], [""]) for ids in scored.table.group_ids.values()]
    return len(functools.reduce(combine, codes).values)


@dataclass(frozen=True)
class _Further:
    """What is read of the columns beside the roles; the attributes are those of `Evidence`."""

    texts: Texts | None
    lengths: IntArray | None
    unit: str
    cut: Named | None
    given: Named | None
    components: tuple[Named, ...]

    @classmethod
    def of(cls, scored: ScoredAnswers) -> "_Further":
        """All of them, read together.

        Raises:
            InputError: a file cannot be read.
        """
        beside = Beside(scored.rollouts)
        text = beside.first(TEXTS, is_answer_text)
        ids = beside.first(TOKEN_IDS, is_number_list)
        end = beside.first(ENDS, is_end)
        given = None if "advantage" in scored.rollouts.choices else beside.first(ADVANTAGES, is_plain_number)
        parts = _parts(scored, beside, given)
        kinds: dict[str, Callable[[pa.Array], Any]] = dict.fromkeys(parts, numbers_of)
        if text is not None:
            kinds[text] = _seen_texts
        elif ids is not None:
            kinds[ids] = _seen_ids
        if end is not None:
            kinds[end] = cut_flags
        if given is not None:
            kinds[given] = numbers_of
        read = beside.read(kinds)
        words, name = None, text if text is not None else ids
        hashes, there, lengths = _three(read[name]) if name is not None else (None, None, None)
        if name is not None and hashes is not None and there is not None:
            words = Texts(name, hashes, there)
            if name.casefold() == REFERENCE and _same_throughout(words, scored.table.groups):
                words = lengths = None
        return cls(
            texts=words,
            lengths=lengths,
            unit="letters" if text is not None else "tokens",
            cut=None if end is None else Named(end, np.concatenate([np.zeros(0), *read[end]])),
            given=None if given is None else Named(given, _joined(read[given])),
            components=tuple(Named(name, _joined(read[name]) * weight) for name, weight in parts.items()),
        )


def _seen_texts(texts: pa.Array) -> tuple[Any, ...]:
    """A hash of each text, whether there is one, and its length."""
    return *hashes_of_answers(texts), text_lengths(texts)


def _seen_ids(lists: pa.Array) -> tuple[Any, ...]:
    """A hash of each list of tokens, whether there is one, and its length."""
    return *hashes_of_answers(lists), lists_of(lists).lengths


def _three(parts: list[Any]) -> tuple[Any, ...]:
    return tuple(np.concatenate([part[number] for part in parts]) for number in range(3)) if parts else (None, None, None)


def _joined(parts: list[Any]) -> FloatArray:
    return np.concatenate([values for values, _ in parts] or [np.zeros(0)]).astype(np.float64)


def _same_throughout(texts: Texts, groups: IntArray) -> bool:
    """Whether every answer of a group has the text of its first one."""
    order = np.argsort(groups, kind="stable")
    same = groups[order][1:] == groups[order][:-1]
    return bool((texts.hashes[order][1:] == texts.hashes[order][:-1])[same].all())


def _parts(scored: ScoredAnswers, beside: Beside, given: str | None) -> dict[str, float]:
    """Columns of further rewards, or of the parts that the reward is the sum of, with their weights."""
    choice = scored.rollouts.choices.get("reward")
    if choice is None:
        return {}
    own = dict(zip(choice.columns, choice.weights or [1.0] * len(choice.columns), strict=True))
    names = [name for name in beside.names(is_plain_number) if REWARDS.search(name) and not NO_REWARDS.search(name)]
    parts = own if len(own) > 1 else {}
    return parts | {name: 1.0 for name in names if name != given}
