"""Scored answers and groups as Arrow tables, with the columns that the outputs have."""

import dataclasses
import functools
import itertools
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import types

from olmorl_cli.answer_pass import Run, ScoredInput
from olmorl_cli.core.objective import answer_terms
from olmorl_cli.core.recipes import ADVANTAGE_FIELDS, Recipe
from olmorl_cli.errors import InputError
from olmorl_cli.objectives import Objective
from olmorl_cli.rollouts.exploded import ROW
from olmorl_cli.rollouts.files import FRAGMENT_BYTES, DataFile, Fragment
from olmorl_cli.rollouts.provenance import Provenance
from olmorl_cli.scoring import ScoredAnswers, ScoredGroups

Scored = ScoredAnswers | ScoredInput
"""Answers, in one piece or in runs."""
ADDED = ("advantage", "kept")
"""Columns that Parquet and Arrow output of the answers add to the input's."""

NOT_PASSED = (*ADDED, ROW)
"""Columns of an input that its output has not, or has anew."""

RESULTS = frozenset(["step", "row", "reward", "advantage", "kept", "size", "mean", "std", "min", "max"])
"""Columns of results, which no group column can be called."""


def changes_advantages(recipe: Recipe) -> bool:
    """Whether the recipe asks for other advantages than the default one."""
    return recipe.of_advantages != Recipe().of_advantages


def id_columns(
    scored: Run | ScoredGroups, codes: npt.NDArray[np.int64], steps: npt.NDArray[np.int64], others: frozenset[str] = RESULTS
) -> dict[str, pa.Array]:
    """The step and group columns of rows with these group and step codes, as dictionaries.

    Raises:
        InputError: a group column is called like one of the `others`, or ids are not valid text.
    """
    columns: dict[str, pa.Array] = {}
    if taken := set(scored.table.group_ids) & others:
        raise InputError(
            f"{scored.rollouts.files[0].name}: a group column is called like a column of the result:"
            f" {', '.join(sorted(taken))}. Rename it"
        )
    if scored.table.steps is not None:
        columns["step"] = pa.DictionaryArray.from_arrays(pa.array(steps), scored.table.steps)
    for name, ids in scored.table.group_ids.items():
        columns[name] = pa.DictionaryArray.from_arrays(pa.array(codes), ids)
    return columns


def _numbers(values: npt.NDArray[np.float64]) -> pa.Array:
    """Numbers with null for NaN."""
    nan = np.isnan(values)
    return pa.array(values, mask=nan if nan.any() else None)


def answers_table(scored: Run) -> pa.Table:
    """One row an answer: step (where there is one), group, row, reward, advantage, kept."""
    groups = scored.table.groups
    rewards = scored.table.rewards
    return pa.table(
        {
            **id_columns(scored, groups, scored.table.step_of_group[groups]),
            "row": pa.array(scored.rollouts.first_row + np.arange(groups.size)),
            "reward": pa.nulls(groups.size, pa.float64())
            if rewards is None
            else _numbers(rewards if np.isfinite(rewards).all() else np.where(np.isfinite(rewards), rewards, np.nan)),
            "advantage": _numbers(scored.advantages),
            "kept": pa.array(scored.kept),
        }
    )


def groups_table(scored: ScoredGroups) -> pa.Table:
    """One row a group: step (where there is one), group, size, mean, std, min, max, kept."""
    statistics, codes = scored.statistics, scored.codes
    return pa.table(
        {
            **id_columns(scored, codes, scored.table.step_of_group[codes]),
            "size": pa.array(statistics.size),
            "mean": _numbers(statistics.mean),
            "std": _numbers(scored.deviations),
            "min": _numbers(statistics.min),
            "max": _numbers(statistics.max),
            "kept": pa.array(statistics.kept),
        }
    )


def sums_table(result: Objective) -> pa.Table:
    """One row an answer, as `answers_table`, and what its tokens add up to under the recipe.

    tokens; terms, the sum of its surrogate terms; clip_low and clip_high, tokens; ratio_mean, ratio_min, ratio_max and
    approx_kl over its tokens; and with a sampler column sampler_ratio_mean, _min, _max and sampler_abs_diff.
    """
    scored, tokens = result.answers, result.kept_sums.tokens
    terms = result.kept_sums.by_terms[scored.recipe.terms]
    table = answers_table(scored)
    columns = {
        "tokens": pa.array(tokens),
        "terms": _numbers(answer_terms(scored.advantages, terms)),
        "clip_low": pa.array(np.where(scored.advantages < 0.0, terms.below, 0)),
        "clip_high": pa.array(np.where(scored.advantages > 0.0, terms.above, 0)),
        "ratio_mean": _means(terms.ratio, tokens),
        "ratio_min": _where(terms.ratio_min, tokens),
        "ratio_max": _where(terms.ratio_max, tokens),
        "approx_kl": _means(terms.k3, tokens),
    }
    if (sampler := result.kept_sums.sampler) is not None:
        columns |= {
            "sampler_ratio_mean": _means(sampler.weight, sampler.tokens),
            "sampler_ratio_min": _where(sampler.weight_min, sampler.tokens),
            "sampler_ratio_max": _where(sampler.weight_max, sampler.tokens),
            "sampler_abs_diff": _means(sampler.abs_diff, sampler.tokens),
        }
    for name, column in columns.items():
        table = table.append_column(name, column)
    return table


def _means(sums: npt.NDArray[np.float64], tokens: npt.NDArray[np.int64]) -> pa.Array:
    return _where(sums / np.maximum(tokens, 1), tokens)


def _where(values: npt.NDArray[np.float64], tokens: npt.NDArray[np.int64]) -> pa.Array:
    """Values with null for answers without a token."""
    return pa.array(values, mask=tokens == 0)


def replaced_columns(scored: Scored) -> list[str]:
    """Input columns that the added ones take the place of."""
    return [name for name in ADDED if any(name in file.schema.names for file in scored.rollouts.files)]


def passed_through(scored: Scored, *, dictionaries: bool) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """Every input column, then advantage and kept: the schema, and the rows in batches.

    Args:
        scored: the answers.
        dictionaries: keep dictionary columns as such; an Arrow file cannot change a dictionary on its way.

    Raises:
        InputError: columns of one name have types that do not go together in different files.
    """
    schema = passed_schema(scored, dictionaries=dictionaries)
    return schema, itertools.chain.from_iterable(map(functools.partial(_rows, schema), scored.runs))


def passed_schema(scored: Scored, *, dictionaries: bool, parts: int = 0) -> pa.Schema:
    """The schema of `passed_through`; of each of so many files, if its rows go into several.

    Raises:
        InputError: as `passed_through`.
    """
    added = [pa.field("advantage", pa.float64()), pa.field("kept", pa.bool_())]
    fields = [*_united(scored.rollouts.files, dictionaries), *added]
    schema = pa.schema(fields, metadata=scored.rollouts.files[0].schema.metadata)
    return _provenance(scored, parts).written_into(schema)


def _united(files: Sequence[DataFile], dictionaries: bool) -> pa.Schema:
    """One schema for the columns of all files, without those that are added."""
    united: pa.Schema | None = None
    for file in files:
        fields = [
            pa.field(
                f.name,
                f.type.value_type if types.is_dictionary(f.type) and not dictionaries else f.type,
                metadata=f.metadata,
            )
            for f in file.schema
            if f.name not in NOT_PASSED
        ]
        own = pa.schema(fields)
        try:
            united = own if united is None else pa.unify_schemas([united, own], promote_options="permissive")
        except pa.ArrowException as error:
            raise InputError(
                f"{file.name}: a column does not go together with that of the files before it:"
                f" {' '.join(str(error).split())}. Write one type into all files, or ask for -f jsonl"
            ) from error
    assert united is not None, "an input has at least one file"
    return united


def passed_rows(
    file: DataFile,
    fragment: Fragment,
    schema: pa.Schema,
    advantages: npt.NDArray[np.float64],
    kept: npt.NDArray[np.bool_],
    batches: Iterable[pa.RecordBatch] | None = None,
) -> Iterator[pa.RecordBatch]:
    """A fragment's rows, of the schema that `passed_schema` gives, in batches.

    Args:
        file: the fragment's file.
        fragment: what to read of it.
        schema: of the rows.
        advantages, kept: of the fragment's n answers, (n,).
        batches: its rows as `passed_batches` gives them, if they are read already.

    Raises:
        InputError: the file cannot be read, or one of its columns cannot have the type that the schema says.
    """
    numbers, flags, first = _numbers(advantages), pa.array(kept), 0
    for batch in batches if batches is not None else passed_batches(file, fragment):
        columns = [_as(batch, field, file) for field in schema if field.name not in ADDED]
        added = (numbers.slice(first, batch.num_rows), flags.slice(first, batch.num_rows))
        yield pa.RecordBatch.from_arrays([*columns, *added], schema=schema)
        first += batch.num_rows


def passed_batches(file: DataFile, fragment: Fragment) -> Iterator[pa.RecordBatch]:
    """The input columns of a fragment that its output has too."""
    return file.batches(fragment, [name for name in file.schema.names if name not in NOT_PASSED])


def _rows(schema: pa.Schema, scored: Run) -> Iterator[pa.RecordBatch]:
    rollouts = scored.rollouts

    def read(file: DataFile, fragment: Fragment) -> Iterable[pa.RecordBatch]:
        batches = passed_batches(file, fragment)
        held, size = [], 0
        for batch in batches:
            held.append(batch)
            size += batch.nbytes
            if size > FRAGMENT_BYTES:  # a huge row group: the rest is read when its turn comes
                return itertools.chain(held, batches)
        return held

    kept = scored.kept
    for fragment, first, batches in zip(rollouts.fragments, rollouts.first_rows, rollouts.map_here(read), strict=True):
        own = slice(first, first + fragment.rows)
        file = rollouts.files[fragment.file_number]
        yield from passed_rows(file, fragment, schema, scored.advantages[own], kept[own], batches)


def _as(batch: pa.RecordBatch, field: pa.Field, file: DataFile) -> pa.Array:
    """A batch's column in the type of the output, nulls where the file has no such column."""
    index = batch.schema.get_field_index(field.name)
    if index < 0:
        return pa.nulls(batch.num_rows, field.type)
    column = batch.column(index)
    try:
        return column if column.type.equals(field.type) else column.cast(field.type)
    except pa.ArrowException as error:
        raise InputError(
            f"{file.name}: column {field.name} cannot be written as {field.type}: {' '.join(str(error).split())}."
            " Write one type into all files, or ask for -f jsonl"
        ) from error


def _provenance(scored: Scored, parts: int) -> Provenance:
    rollouts = scored.rollouts
    roles = {role: c.terms for role, c in rollouts.choices.items() if role in ("group", "step", "reward")}
    rows = rollouts.file_rows if len(rollouts.files) > 1 or parts else []
    if (written := rollouts.provenance) is not None:
        return dataclasses.replace(written, parts=parts, file_rows=written.file_rows or (rows if parts else []))
    settings = {name: getattr(scored.recipe, name) for name in ADVANTAGE_FIELDS}
    return Provenance({**roles, "advantage": ["advantage"]}, rollouts.group_size, settings, rows, parts)
