"""The same rollouts in every layout give the same figures to the last bit."""

import itertools
import math
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from olmorl_cli.rollouts import files, parallel, token_batches
from olmorl_cli.rollouts.sources import Source
from tests.rollouts.builders import (
    LOGPS,
    Row,
    arrow,
    exactly,
    figures,
    padded,
    random_rows,
    score,
    score_rewards,
    table_of,
    without_masked,
    write,
)

ROWS = random_rows(7)
TABLE = table_of(ROWS)
LONGEST = max(len(row["loss_mask"]) for row in ROWS)
FLOATS = {"half": pa.float16(), "float": pa.float32(), "double": pa.float64()}
LAYOUTS = {
    "list": pa.list_,
    "large_list": pa.large_list,
    "fixed_size_list": lambda kind: pa.list_(kind, LONGEST),
    "list_view": pa.list_view,
    "large_list_view": pa.large_list_view,
}
PADS = [math.nan, math.inf, -math.inf, 1.0, -1e10, -9999.0, None, 0.0]


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The figures of the plain table, which differ from those of other seeds."""
    found = figures(score(write(tmp_path_factory.mktemp("plain") / "plain.parquet", TABLE)))
    assert found["kept_groups"] > 2
    assert found["clip_high"] != (0.0).hex()
    return found


def widened(rows: list[Row], length: int = LONGEST, pad: Any = 0.0, side: str = "right") -> list[Row]:
    """Every list of the rows padded to one length."""
    wide = []
    for row in rows:
        missing = length - len(row["loss_mask"])
        ends = (missing, 0) if side == "left" else (0, missing)
        lists = {name: padded(row[name], *ends, pad) for name in LOGPS}
        wide.append(row | lists | {"loss_mask": padded(row["loss_mask"], *ends, 0)})
    return wide


@pytest.mark.parametrize("float_type", FLOATS)
@pytest.mark.parametrize("suffix", ["parquet", "arrow", "arrows"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_list_layouts_of_every_width(
    tmp_path: Path, expected: dict[str, Any], layout: str, float_type: str, suffix: str
) -> None:
    rows = widened(ROWS) if layout == "fixed_size_list" else ROWS
    kind = LAYOUTS[layout]
    table = table_of(rows, logps=kind(FLOATS[float_type]), mask=kind(pa.bool_()))
    assert figures(score(write(tmp_path / f"r.{suffix}", table))) == expected


def test_the_roles_need_not_share_a_layout(tmp_path: Path, expected: dict[str, Any]) -> None:
    kinds = (pa.list_(pa.float64()), pa.large_list(pa.float16()), pa.large_list_view(pa.float32()))
    table = TABLE
    for name, kind in zip(LOGPS, kinds, strict=True):
        at = table.column_names.index(name)
        table = table.set_column(at, name, arrow([row[name] for row in ROWS], kind))
    assert figures(score(write(tmp_path / "r.arrow", table))) == expected


@pytest.mark.parametrize("suffix", ["parquet", "arrow", "arrows", "jsonl"])
def test_slices_and_chunks(tmp_path: Path, expected: dict[str, Any], suffix: str) -> None:
    around = pa.concat_tables([table_of(random_rows(8)), TABLE, table_of(random_rows(9))]).combine_chunks()
    first = len(random_rows(8))
    sliced = around.slice(first, len(ROWS))
    assert figures(score(write(tmp_path / f"a.{suffix}", sliced))) == expected
    chunks = pa.concat_tables([sliced.slice(0, 1), sliced.slice(1, 0), sliced.slice(1, 5), sliced.slice(6)])
    assert figures(score(write(tmp_path / f"b.{suffix}", chunks))) == expected


@pytest.mark.parametrize("rows", [1, 2, 7, len(ROWS)])
def test_row_groups_and_record_batches(tmp_path: Path, expected: dict[str, Any], rows: int) -> None:
    assert figures(score(write(tmp_path / "r.parquet", TABLE, row_group_size=rows))) == expected
    assert figures(score(write(tmp_path / "r.arrow", TABLE, rows_a_batch=rows))) == expected
    assert figures(score(write(tmp_path / "r.arrows", TABLE, rows_a_batch=rows))) == expected


@pytest.mark.parametrize(
    "options",
    [
        *({"compression": codec} for codec in ("none", "snappy", "gzip", "zstd", "lz4", "brotli")),
        *({"version": version} for version in ("1.0", "2.4", "2.6")),
        *({"data_page_version": version, "data_page_size": 16} for version in ("1.0", "2.0")),
        {"use_dictionary": False, "write_page_checksum": True},
        {"use_byte_stream_split": ["reward", "new_logprobs.list.element"], "use_dictionary": False},
        {"write_statistics": False, "store_schema": False},
        {"write_page_index": True, "dictionary_pagesize_limit": 8},
    ],
    ids=str,
)
def test_ways_to_write_parquet(tmp_path: Path, expected: dict[str, Any], options: dict[str, Any]) -> None:
    assert figures(score(write(tmp_path / "r.parquet", TABLE, row_group_size=5, **options))) == expected


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
@pytest.mark.parametrize("suffix", ["arrow", "arrows"])
def test_compressed_arrow(tmp_path: Path, expected: dict[str, Any], suffix: str, codec: str) -> None:
    assert figures(score(write(tmp_path / f"r.{suffix}", TABLE, compression=codec))) == expected


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))), ids=str)
def test_files_in_any_order(tmp_path: Path, expected: dict[str, Any], order: tuple[int, ...]) -> None:
    cuts = [TABLE.slice(0, 4), TABLE.slice(4, 9), TABLE.slice(13)]
    suffixes = ("parquet", "arrow", "jsonl")
    paths = [write(tmp_path / f"{n}.{suffixes[n]}", cuts[n]) for n in range(3)]
    assert figures(score([paths[n] for n in order])) == expected


def test_shards_of_nothing_and_of_other_widths(tmp_path: Path, expected: dict[str, Any]) -> None:
    """A shard without rows, and one whose answers are all empty so that its lists are of type null."""
    empty = {name: pa.array([[], []], pa.list_(pa.null())) for name in (*LOGPS, "loss_mask")}
    idle = pa.table({"step": [0, 0], "group_id": ["alone", "alone"], "reward": pa.array([1, 1], pa.int8()), **empty})
    paths = [
        write(tmp_path / "0.parquet", TABLE.slice(0, 0)),
        write(tmp_path / "1.parquet", idle),
        write(tmp_path / "2.parquet", table_of(ROWS[:10], logps=pa.large_list(pa.float64()), reward=pa.float32())),
        write(tmp_path / "3.parquet", table_of(ROWS[10:], group_id=pa.dictionary(pa.int8(), pa.string()))),
    ]
    more = {"answers": expected["answers"] + 2, "groups": expected["groups"] + 1}
    for order in (paths, paths[::-1]):
        assert figures(score(order)) == expected | more


@pytest.mark.parametrize("seed", range(5))
def test_rows_in_any_order(tmp_path: Path, expected: dict[str, Any], seed: int) -> None:
    order = random.Random(seed).sample(range(len(ROWS)), len(ROWS))
    assert figures(score(write(tmp_path / "r.parquet", TABLE.take(order)))) == expected


def test_rows_in_any_order_by_step(tmp_path: Path) -> None:
    straight = score(write(tmp_path / "a.parquet", TABLE), by_step=True).rows
    reverse = score(write(tmp_path / "b.parquet", TABLE.take(list(range(len(ROWS)))[::-1])), by_step=True).rows
    assert [row["step"] for row in straight] == [row["step"] for row in reverse] == [0, 1, 2]
    assert list(map(exactly, straight)) == list(map(exactly, reverse))


@pytest.mark.parametrize("kind", ["bool_", "int8", "uint8", "int16", "int64", "uint64", "float16", "float32", "float64"])
def test_mask_types(tmp_path: Path, expected: dict[str, Any], kind: str) -> None:
    table = table_of(ROWS, mask=pa.list_(getattr(pa, kind)()))
    assert figures(score(write(tmp_path / "r.parquet", table))) == expected
    assert figures(score(write(tmp_path / "r.arrow", table, rows_a_batch=3))) == expected


def test_a_mask_marks_what_is_left_without_it(tmp_path: Path, expected: dict[str, Any]) -> None:
    assert figures(score(write(tmp_path / "r.parquet", table_of(without_masked(ROWS))))) == expected


@pytest.mark.parametrize("pad", PADS, ids=str)
@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_of_one_length(tmp_path: Path, expected: dict[str, Any], side: str, pad: float | None) -> None:
    rows = widened(ROWS, LONGEST + 2, pad, side)
    kind = pa.list_(pa.float32(), LONGEST + 2)
    assert figures(score(write(tmp_path / "r.parquet", table_of(rows, logps=kind)))) == expected


pad_of_row = st.tuples(st.integers(0, 3), st.integers(0, 3), st.sampled_from(PADS), st.sampled_from(PADS))


@settings(max_examples=25, deadline=None)
@given(pads=st.lists(pad_of_row, min_size=len(ROWS), max_size=len(ROWS)), double=st.booleans(), data=st.data())
def test_what_stands_under_the_mask_never_matters(
    tmp_path_factory: pytest.TempPathFactory,
    expected: dict[str, Any],
    pads: list[tuple[int, int, Any, Any]],
    double: bool,
    data: st.DataObject,
) -> None:
    rows = []
    for row, (before, after, new, other) in zip(ROWS, pads, strict=True):
        wide = {name: padded(row[name], before, after, other) for name in LOGPS}
        wide |= {
            "new_logprobs": padded(row["new_logprobs"], before, after, new),
            "loss_mask": padded(row["loss_mask"], before, after, 0),
        }
        masked = [place for place, mark in enumerate(wide["loss_mask"]) if not mark]
        for place in masked[:2]:
            wide["old_logprobs"][place] = data.draw(st.sampled_from(PADS))
        rows.append(row | wide)
    table = table_of(rows, logps=pa.list_(pa.float64() if double else pa.float32()))
    assert figures(score(write(tmp_path_factory.mktemp("pads") / "r.parquet", table, row_group_size=6))) == expected


@settings(max_examples=20, deadline=None)
@given(
    cuts=st.lists(st.integers(0, len(ROWS)), max_size=4),
    rows_a_group=st.integers(1, 9),
    suffixes=st.lists(st.sampled_from(("parquet", "arrow", "arrows")), min_size=5, max_size=5),
    backwards=st.booleans(),
)
def test_any_cut_into_files_and_row_groups(
    tmp_path_factory: pytest.TempPathFactory,
    expected: dict[str, Any],
    cuts: list[int],
    rows_a_group: int,
    suffixes: list[str],
    backwards: bool,
) -> None:
    folder = tmp_path_factory.mktemp("cuts")
    edges = sorted({0, *cuts, len(ROWS)})
    paths = []
    for number, (start, stop) in enumerate(itertools.pairwise(edges)):
        suffix = suffixes[number]
        options = {"row_group_size" if suffix == "parquet" else "rows_a_batch": rows_a_group}
        paths.append(write(folder / f"{number}.{suffix}", TABLE.slice(start, stop - start), **options))
    assert figures(score(paths[::-1] if backwards else paths)) == expected


@pytest.mark.parametrize("cores", [1, 5])
@pytest.mark.parametrize("size", [1, 300, 1 << 30])
def test_batches_fragments_blocks_and_threads(
    tmp_path: Path, expected: dict[str, Any], monkeypatch: pytest.MonkeyPatch, size: int, cores: int
) -> None:
    monkeypatch.setattr(files, "BATCH_BYTES", size)
    monkeypatch.setattr(files, "FRAGMENT_BYTES", size)
    monkeypatch.setattr(token_batches, "BLOCK_TOKENS", min(size, 7))
    monkeypatch.setattr(parallel, "cores", lambda: cores)
    for path in (
        write(tmp_path / "r.parquet", TABLE, row_group_size=4),
        write(tmp_path / "r.arrow", TABLE),
        write(tmp_path / "r.arrows", TABLE, rows_a_batch=4),
    ):
        assert figures(score(path)) == expected


def test_row_groups_of_few_bytes_and_many_rows_are_read_side_by_side(
    tmp_path: Path, expected: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of 4 a row group: two of them, 8 rows, go into a fragment of at most 9."""
    monkeypatch.setattr(files, "FRAGMENT_ROWS", 9)
    scored = score(path := write(tmp_path / "r.parquet", TABLE, row_group_size=4))
    assert figures(scored) == expected
    rows = [fragment.rows for fragment in files.open_file(Source(path, path)).fragments(0)]
    assert rows[:-1] == [8] * (len(rows) - 1)
    assert sum(rows) == TABLE.num_rows


def test_a_run_of_prompts_without_answers_takes_no_other_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three fragments, the first of them with no answer: each has its own rows."""
    monkeypatch.setattr(files, "FRAGMENT_BYTES", 1)
    rewards = pa.array([[], [1.0, 0.0], [1.0, 1.0]], pa.list_(pa.float64()))
    path = write(tmp_path / "r.parquet", pa.table({"prompt_id": ["p", "q", "r"], "rewards": rewards}), row_group_size=1)
    scored = score_rewards(path)
    assert [fragment.rows for fragment in scored.rollouts.fragments] == [0, 2, 2]
    assert scored.advantages.tolist() == [0.5, -0.5, 0.0, 0.0]
    assert scored.table.group_ids["group"].to_pylist() == ["q", "r"]


@pytest.mark.parametrize("size", [1, 3000, 1 << 30])
def test_an_arrow_file_is_cut_into_fragments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """By its size and its record batches, and changes nothing."""
    whole = figures(score(write(tmp_path / "r.parquet", TABLE)))
    monkeypatch.setattr(files, "FRAGMENT_BYTES", size)
    result = score(write(tmp_path / "r.arrow", TABLE, rows_a_batch=2))
    batches, fragments = -(-TABLE.num_rows // 2), result.answers.rollouts.fragments
    assert len(fragments) == {1: batches, 1 << 30: 1}.get(size, len(fragments))
    assert sum(fragment.rows for fragment in fragments) == TABLE.num_rows
    assert figures(result) == whole
