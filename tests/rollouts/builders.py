"""Small rollouts of our own, written to files in any layout, and scored as the commands score them."""

import json
import random
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from olmorl_cli.core.recipes import Recipe
from olmorl_cli.errors import DataError, Kind
from olmorl_cli.objectives import Objective, score_objective
from olmorl_cli.rollouts.opening import open_rollouts
from olmorl_cli.rollouts.rollouts import Rollouts, Selection
from olmorl_cli.scoring import ScoredAnswers, score_answers

Row = dict[str, Any]

LOGPS = ("new_logprobs", "old_logprobs", "rollout_logprobs")
GRID = 64
"""Log-probs are multiples of 1/64 above -16: float16 holds them, and their differences, exactly."""


def random_rows(
    seed: int, *, groups: int = 9, most: int = 6, longest: int = 7, steps: int = 3, sampler: bool = True
) -> list[Row]:
    """Answers in shuffled order: uneven groups, zero-signal ones among them, masked tokens, answers without tokens."""
    draw = random.Random(seed)
    rows = []
    for group in range(groups):
        flat = draw.random() < 0.3
        common = draw.choice((0.0, 0.25, 1.0))
        for _ in range(draw.randint(1, most)):
            length = draw.choice((0, 1, draw.randint(0, longest), longest))
            new = [-draw.randint(0, 300) / GRID for _ in range(length)]
            old = [min(0.0, value + draw.randint(-40, 40) / GRID) for value in new]
            row = {
                "step": group % steps,
                "group_id": f"p{group // 2}",
                "reward": common if flat else draw.choice((0.0, 0.5, 0.75, 1.0)),
                "new_logprobs": new,
                "old_logprobs": old,
            }
            if sampler:
                near = [min(0.0, value + draw.randint(-60, 60) / GRID) for value in old]
                row["rollout_logprobs"] = None if draw.random() < 0.2 else near
            rows.append(row | {"loss_mask": [int(draw.random() < 0.8) for _ in range(length)]})
    draw.shuffle(rows)
    return rows


def without_masked(rows: Iterable[Row]) -> list[Row]:
    """The same answers without their masked tokens, and without a mask."""
    return [
        {
            key: [v for v, m in zip(value, row["loss_mask"], strict=True) if m] if key in LOGPS and value else value
            for key, value in row.items()
            if key != "loss_mask"
        }
        for row in rows
    ]


def padded(values: Sequence[Any] | None, before: int, after: int, pad: Any) -> list[Any] | None:
    """The list with `pad` on either side; None stays None."""
    return None if values is None else [pad] * before + list(values) + [pad] * after


def arrow(values: Sequence[Any], kind: pa.DataType | None = None) -> pa.Array:
    """An array or lists of any float width; pyarrow takes only NumPy's own halves before version 21."""

    def half(value: Any) -> Any:
        return list(map(half, value)) if isinstance(value, list) else value if value is None else np.float16(value)

    inner = getattr(kind, "value_type", kind)
    return pa.array(list(map(half, values)) if inner == pa.float16() else values, kind)


def table_of(
    rows: Sequence[Row], *, logps: pa.DataType | None = None, mask: pa.DataType | None = None, **types: pa.DataType
) -> pa.Table:
    """A table of these rows, float32 lists and an int8 mask unless other list types are given."""
    logps, mask = logps or pa.list_(pa.float32()), mask or pa.list_(pa.int8())
    known = {"step": pa.int64(), "group_id": pa.string(), "reward": pa.float64(), **types}
    known |= dict.fromkeys(LOGPS, logps) | {"loss_mask": mask}
    if pa.types.is_boolean(mask.value_type):
        rows = [row | {"loss_mask": list(map(bool, row["loss_mask"]))} for row in rows]
    names = list(dict.fromkeys(name for row in rows for name in row))
    return pa.table({name: arrow([row.get(name) for row in rows], known.get(name)) for name in names})


def tokens_table(new: list[Any], old: list[Any], **columns: Any) -> pa.Table:
    """One group of one answer a list; the rewards alternate 1, 0 unless given."""
    number = len(new)
    small = {"group_id": ["a"] * number, "reward": [float(row % 2 == 0) for row in range(number)]}
    lists = {"new_logprobs": pa.array(new, pa.list_(pa.float64())), "old_logprobs": pa.array(old, pa.list_(pa.float64()))}
    return pa.table({**small, **lists, **columns})


def rewards_table(groups: Any, rewards: Any, **columns: Any) -> pa.Table:
    return pa.table({"group_id": groups, "reward": rewards, **columns})


def write(path: Path, table: pa.Table, **options: Any) -> str:
    """Write by the suffix: .parquet, .arrow (IPC file), .arrows (IPC stream) or .jsonl."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
        return str(path)
    try:
        _write_binary(path, table, options)
    except pa.ArrowNotImplementedError as error:
        pytest.skip(f"this pyarrow cannot write it: {error}")
    return str(path)


def _write_binary(path: Path, table: pa.Table, options: dict[str, Any]) -> None:
    with path.open("wb") as sink:  # pyarrow takes some names for URIs
        if path.suffix == ".parquet":
            pq.write_table(table, sink, **options)
            return
        chunk = options.pop("rows_a_batch", None)
        new = pa.ipc.new_stream if path.suffix == ".arrows" else pa.ipc.new_file
        with new(sink, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
            writer.write_table(table, max_chunksize=chunk)


def _selection(group_size: int | None, columns: dict[str, str | tuple[str, ...]]) -> Selection:
    named = {role: (names,) if isinstance(names, str) else names for role, names in columns.items()}
    return Selection(named, group_size)


def opened(
    paths: str | Sequence[str], recipe: Recipe | None = None, *, group_size: int | None = None, **columns: Any
) -> Rollouts:
    """The input as `olmorl objective` opens it; `columns` by role."""
    needs = {"group", "step", "reward", "advantage", "mask", "logp_old", "logp_sampler", *columns}
    needs |= (recipe or Recipe()).needs
    return open_rollouts([paths] if isinstance(paths, str) else paths, _selection(group_size, columns), frozenset(needs))


def score(
    paths: str | Sequence[str],
    recipe: Recipe | None = None,
    *,
    skip: bool = False,
    by_step: bool = False,
    by_column: str | None = None,
    **options: Any,
) -> Objective:
    """The objective of files; options are a group size and columns by role."""
    recipe = recipe or Recipe()
    by = "step" if by_step else by_column
    rollouts = opened(paths, recipe, **options, **({} if by is None else {"by": by}))
    return score_objective(rollouts, [recipe], by=by, skip=skip, keep_sums=True)[0]


def score_rewards(
    paths: str | Sequence[str],
    recipe: Recipe | None = None,
    *,
    skip: bool = False,
    group_size: int | None = None,
    **columns: Any,
) -> ScoredAnswers:
    """The answers of files scored as `olmorl advantages` does; no log-probs needed."""
    needs = {"group", "step", "reward"} | ({"advantage"} if "advantage" in columns else set())
    paths = [paths] if isinstance(paths, str) else paths
    return score_answers(open_rollouts(paths, _selection(group_size, columns), frozenset(needs)), recipe or Recipe(), skip)


def figures(objective: Objective) -> dict[str, Any]:
    """The numbers of an objective's only row; floats as exact texts, so that they are compared to the last bit."""
    (row,) = objective.rows
    return exactly(row)


def exactly(row: dict[str, Any]) -> dict[str, Any]:
    """A result's row with floats as exact texts, without what says where it came from."""
    shown = {key: value for key, value in row.items() if key not in ("columns", "step")}
    return {key: value.hex() if isinstance(value, float) else value for key, value in shown.items()}


def nearly(expected: dict[str, Any]) -> dict[str, Any]:
    """The oracle's figures, floats up to rounding: another order of the same sums."""
    return {
        key: pytest.approx(value, rel=1e-12, abs=1e-14) if isinstance(value, float) else value
        for key, value in expected.items()
    }


def kinds(error: DataError) -> dict[str, Kind]:
    """What an error found, by code; no code twice."""
    found = error.problems.kinds("error")
    assert len({kind.code for kind in found}) == len(found)
    return {kind.code: kind for kind in found}
