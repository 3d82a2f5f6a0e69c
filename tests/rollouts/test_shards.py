"""Files as Arrow and Parquet really leave them: shards that differ, what is not read, ids that lost their digits."""

import itertools
import math
import os
import pickle
import re
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from olmorl_cli.errors import DataError, InputError
from olmorl_cli.results import passed_through
from olmorl_cli.rollouts import files
from olmorl_cli.rollouts.ids import encode
from olmorl_cli.rollouts.texts import json_texts
from tests.readme import ROOT
from tests.rollouts.builders import (
    figures,
    kinds,
    opened,
    random_rows,
    rewards_table,
    score,
    score_rewards,
    table_of,
    tokens_table,
    write,
)

BOTH_ORDERS = pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=str)
IDLE = {"group_id": ["x", "x"], "reward": pa.nulls(2)}
IDLE |= dict.fromkeys(("new_logprobs", "old_logprobs"), pa.array([[], []], pa.list_(pa.null())))
NORMAL = tokens_table([[-1.0, -1.0], [-1.0]], [[-1.0, -1.0], [-1.0]])


@BOTH_ORDERS
@pytest.mark.parametrize("suffix", ["parquet", "arrow", "arrows"])
def test_a_shard_of_nulls_only_goes_with_any_other(tmp_path: Path, order: tuple[int, int], suffix: str) -> None:
    """Rewards null, null of type null and lists [], [] of nulls: what is missing is named, or left out; types agree."""
    paths = [write(tmp_path / f"{n}.{suffix}", table) for n, table in enumerate((pa.table(IDLE), NORMAL))]
    with pytest.raises(DataError) as caught:
        score([paths[n] for n in order])
    (kind,) = kinds(caught.value).values()
    assert (kind.code, kind.file, [place.row for place in kind.places]) == ("null_reward", paths[0], [0, 1])
    (row,) = score([paths[n] for n in order], skip=True).rows
    assert (row["answers"], row["groups"], row["kept_groups"], row["tokens"]) == (4, 2, 1, 3)
    assert row["objective"] == 0.5 / 3


@BOTH_ORDERS
def test_log_probs_of_type_null_are_null_lists(tmp_path: Path, order: tuple[int, int]) -> None:
    idle = pa.table(IDLE | {"reward": [1.0, 0.0], "new_logprobs": pa.nulls(2), "old_logprobs": pa.nulls(2)})
    paths = [write(tmp_path / f"{n}.parquet", table) for n, table in enumerate((idle, NORMAL))]
    with pytest.raises(DataError) as caught:
        score([paths[n] for n in order])
    assert {code: (k.file, k.count) for code, k in kinds(caught.value).items()} == {
        "null_list_logp_new": (paths[0], 2),
        "null_list_logp_old": (paths[0], 2),
    }
    assert score([paths[n] for n in order], skip=True).rows[0]["tokens"] == 3


@BOTH_ORDERS
def test_whole_rewards_in_one_shard_and_broken_ones_in_another(tmp_path: Path, order: tuple[int, int]) -> None:
    rewards = [pa.array([1, 0], pa.int8()), pa.array([0.5, 0.25], pa.float32())]
    paths = [write(tmp_path / f"{n}.parquet", rewards_table(["a", "a"], each)) for n, each in enumerate(rewards)]
    scored = score_rewards([paths[n] for n in order])
    by_value = dict(zip(scored.table.rewards.tolist(), scored.advantages.tolist(), strict=True))
    assert by_value == {1.0: 0.5625, 0.0: -0.4375, 0.5: 0.0625, 0.25: -0.1875}


@BOTH_ORDERS
@pytest.mark.parametrize("name", ["reward", "group_id", "new_logprobs"])
def test_a_column_that_one_shard_lacks_never_reads_as_nothing(tmp_path: Path, name: str, order: tuple[int, int]) -> None:
    paths = [write(tmp_path / f"{n}.parquet", table) for n, table in enumerate((NORMAL, NORMAL.drop_columns([name])))]
    with pytest.raises(InputError, match=rf"1\.parquet: no column {name}\. The columns are "):
        score([paths[n] for n in order])


def test_only_the_columns_of_the_roles_are_read(tmp_path: Path) -> None:
    """A text column is damaged, and nobody notices until it is grouped by or passed through."""
    table = table_of(random_rows(7))
    text = pa.array([f"text of answer {row}" for row in range(table.num_rows)])
    options = {"compression": "none", "use_dictionary": False, "write_statistics": False, "write_page_checksum": True}
    path = Path(write(tmp_path / "r.parquet", table.append_column("completion", text), **options))
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b"text of answer 3", b"text of answer ?", 1))
    assert path.read_bytes() != whole
    assert figures(score(str(path))) == figures(score(write(tmp_path / "plain.parquet", table)))
    for read in (
        lambda: score(str(path), group="completion"),
        lambda: list(passed_through(score_rewards(str(path)), dictionaries=True)[1]),
    ):
        with pytest.raises(InputError, match=rf"^{path}: cannot be read: .*CRC"):
            read()


def test_what_arrow_cannot_read_in_one_piece_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nested texts of more than 2 GiB in a row group; here pyarrow says so at once."""
    path = write(tmp_path / "r.parquet", NORMAL)
    rollouts = opened(path)

    def broken(*_: Any, **__: Any) -> Any:
        raise pa.ArrowNotImplementedError("Nested data conversions not implemented for chunked array outputs")

    monkeypatch.setattr(files.pq.ParquetFile, "iter_batches", broken)
    with pytest.raises(InputError, match=rf"^{path}: cannot be read: Nested data conversions"):
        list(rollouts.files[0].batches(rollouts.fragments[0], ["reward"]))


def test_lists_of_2_gib_in_every_batch_are_passed_on_batch_by_batch(tmp_path: Path) -> None:
    """Offsets up to 2**31 - 2 over nulls, which take no memory: two such lists cannot be joined, and need not be."""
    many = 2**31 - 2
    lists = pa.ListArray.from_arrays(pa.array([0, many], pa.int32()), pa.nulls(many))
    with pytest.raises(pa.ArrowInvalid, match="overflow"):
        pa.concat_arrays([lists, lists])
    parts = [pa.table({"group_id": ["a"], "reward": [reward], "blob": lists}) for reward in (1.0, 0.0)]
    scored = score_rewards(write(tmp_path / "r.arrow", pa.concat_tables(parts)))
    assert scored.advantages.tolist() == [0.5, -0.5]
    schema, batches = passed_through(scored, dictionaries=False)
    assert schema.names == ["group_id", "reward", "blob", "advantage", "kept"]
    assert [span_of(batch.column("blob")) for batch in batches] == [many, many]


def span_of(lists: pa.ListArray) -> int:
    return int(lists.offsets[-1].as_py() - lists.offsets[0].as_py())


@pytest.mark.parametrize("kind", [pa.list_(pa.int32()), pa.large_list(pa.int64()), pa.list_(pa.string())], ids=str)
def test_ids_that_are_lists_are_never_joined_whole(monkeypatch: pytest.MonkeyPatch, kind: pa.DataType) -> None:
    """Prompt tokens of all answers together may pass 2**31; only one of each id goes into a single array."""
    ids = [[n % 3] * (n % 3 + 1) for n in range(40)]
    values = [[str(word) for word in each] for each in ids] if pa.types.is_string(kind.value_type) else ids
    chunks = [pa.array(values[a:b], kind) for a, b in itertools.pairwise([0, 1, 1, 14, 15, 40])]
    joined: list[int] = []
    concat = pa.concat_arrays

    def watched(arrays: list[pa.Array], *more: Any) -> pa.Array:
        if pa.types.is_nested(arrays[0].type):
            joined.append(sum(map(len, arrays)))
        return concat(arrays, *more)

    monkeypatch.setattr(pa, "concat_arrays", watched)
    found = encode("group", chunks, ["r.parquet"] * len(chunks))
    assert found.codes.tolist() == [n % 3 for n in range(40)]
    assert found.values.to_pylist() == values[:3]
    assert joined == [3]


def test_null_lists_are_no_ids_in_any_chunk(tmp_path: Path) -> None:
    ids = pa.array([[1], None, [], [1], None], pa.list_(pa.int8()))
    path = write(tmp_path / "r.arrow", rewards_table(ids, [1.0] * 5), rows_a_batch=2)
    with pytest.raises(DataError, match="null, rows 1, 4 "):
        score_rewards(path)
    path = write(tmp_path / "r.arrow", rewards_table(ids.fill_null([2]), [1.0] * 5), rows_a_batch=2)
    assert score_rewards(path).table.groups.tolist() == [0, 1, 2, 0, 1]


TOO_LARGE = [(np.float16, 11), (np.float32, 24), (np.float64, 53)]


@pytest.mark.parametrize(("kind", "digits"), TOO_LARGE)
@pytest.mark.parametrize("role", ["group", "step"])
@pytest.mark.parametrize("coded", [False, True])
def test_ids_that_floats_have_rounded_are_refused(
    tmp_path: Path, kind: type[np.floating[Any]], digits: int, role: str, coded: bool
) -> None:
    """Whole numbers with one missing are written as floats: from 2**digits on two neighbours become one id."""
    for size, fine in ((2**digits - 1, True), (2**digits, False), (-(2**digits), False), (math.inf, False)):
        ids = pa.array(np.array([size, size, 1], dtype=kind))
        ids = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2], pa.int8()), ids) if coded else ids
        name = "group_id" if role == "group" else "step"
        path = write(tmp_path / "r.arrow", pa.table({"group_id": ["a"] * 3, "reward": [1.0, 0.0, 0.0]} | {name: ids}))
        if fine:
            assert score_rewards(path).table.groups.tolist() == [0, 0, 1]
            continue
        with pytest.raises(InputError, match=rf"^{path}: column {name} has ids of 2\*\*{digits} or more"):
            score_rewards(path)


def invalid_texts(*texts: bytes) -> pa.Array:
    """Texts whose bytes are no UTF-8."""
    return pa.StringArray.from_buffers(len(texts), *pa.array(texts, pa.binary()).buffers()[1:])


@pytest.mark.parametrize("role", ["group", "step", "by"])
@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
def test_ids_that_are_no_utf_8_are_refused_with_their_file(tmp_path: Path, role: str, suffix: str) -> None:
    good = NORMAL.append_column("tag", pa.array(["a", "b"]))
    bad = NORMAL.append_column("tag", invalid_texts(b"a", b"\xff"))
    paths = [write(tmp_path / f"{n}.{suffix}", table) for n, table in enumerate((good, bad))]
    options = {"by_column": "tag"} if role == "by" else {role: "tag"}
    with pytest.raises(InputError, match=rf"^{paths[1]}: .*(not valid UTF-8|Invalid UTF8)"):
        score(paths, **options)
    assert score(paths[0], **options).rows[0]["tokens"] > 0


def test_nothing_scorable_is_undefined_and_no_fault(tmp_path: Path) -> None:
    table = tokens_table([[-1.0]] * 2, [[-1.0]] * 2, reward=[None, math.nan])
    result = score(write(tmp_path / "r.parquet", table), skip=True)
    (row,) = result.rows
    assert (row["objective"], row["objective_all_groups"], row["answers"], row["kept_groups"], row["tokens"]) == (
        None,
        None,
        2,
        0,
        0,
    )
    assert any("undefined" in note for note in result.notes)


def test_pyarrow_is_new_enough_not_to_run_what_a_file_says() -> None:
    """Older ones than 14.0.1 unpickle extension types; autoload brings that back, so nobody here sets it."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    (floor,) = (each for each in settings["project"]["dependencies"] if each.startswith("pyarrow"))
    assert tuple(map(int, re.findall(r"\d+", floor.split(">=")[1]))) >= (14, 0, 1)
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "olmorl_cli").rglob("*.py")]
    assert not any("autoload" in source or "pickle" in source for source in sources)


class Trap:
    """Makes a folder when it is unpickled."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.mkdir, (self.path,)


@pytest.mark.filterwarnings("ignore:.*(pickle|PyExtensionType)")  # older pyarrows say that they will not
@pytest.mark.parametrize("name", ["some.unknown", "arrow.py_extension_type"])
@pytest.mark.parametrize("suffix", ["parquet", "arrow", "arrows"])
def test_extension_types_that_nobody_knows_are_what_they_store(tmp_path: Path, suffix: str, name: str) -> None:
    sprung = tmp_path / "sprung"
    named = {"ARROW:extension:name": name, "ARROW:extension:metadata": pickle.dumps(Trap(str(sprung)))}
    schema = pa.schema([("group_id", pa.string()), pa.field("reward", pa.float64(), metadata=named)])
    path = write(tmp_path / f"r.{suffix}", pa.table([["a", "a"], [1.0, 0.0]], schema=schema))
    assert score_rewards(path).advantages.tolist() == [0.5, -0.5]
    assert not sprung.exists()


def test_parquet_files_carry_on_with_a_reward_of_an_extension_type(tmp_path: Path) -> None:
    """The rewards are its storage, and the column comes out as it went in."""
    storage = pa.array([1, 0], pa.int8())
    reward = pa.ExtensionArray.from_storage(pa.bool8(), storage)
    scored = score_rewards(write(tmp_path / "r.arrow", rewards_table(["a", "a"], reward)))
    assert scored.advantages.tolist() == [0.5, -0.5]
    schema, batches = passed_through(scored, dictionaries=False)
    pq.write_table(pa.Table.from_batches(batches, schema), tmp_path / "out.parquet")
    assert pq.read_table(tmp_path / "out.parquet").column("reward").type == pa.bool8()


@pytest.mark.parametrize(
    "line", ['{"group_id": "a", "reward": 1, "reward": 9}', '{"group_id": "a", "group_id": "b", "reward": 1}']
)
def test_a_key_that_stands_twice_in_a_line_of_json_is_refused(tmp_path: Path, line: str) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text('{"group_id": "a", "reward": 0}\n' + line + "\n")
    with pytest.raises(InputError, match=rf"^{path}: .*specified twice in row 1"):
        score_rewards(str(path))


NESTED = [
    (pa.array([[1], None, [], [None, 2]], pa.list_view(pa.int8())), ["[1]", "null", "[]", "[null, 2]"]),
    (pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int8(), 2)), ["[1, 2]", "null", "[3, 4]"]),
    (pa.array([[[1], []], None, [None]], pa.large_list(pa.list_(pa.int8()))), ["[[1], []]", "null", "[null]"]),
    (pa.array([{"a": 'q"'}, None, {"a": None}]), ['{"a": "q\\""}', "null", '{"a": null}']),
    (
        pa.array([[("a", 0.5)], None, [], [("b", math.nan), ("c", None)]], pa.map_(pa.string(), pa.float64())),
        ['[{"key": "a", "value": 0.5}]', "null", "[]", '[{"key": "b", "value": null}, {"key": "c", "value": null}]'],
    ),
]


@pytest.mark.parametrize(("array", "texts"), NESTED, ids=[str(array.type) for array, _ in NESTED])
def test_nested_values_of_any_slice_are_json(array: pa.Array, texts: list[str]) -> None:
    for first in range(len(texts) + 1):
        for rows in range(len(texts) - first + 1):
            assert json_texts(array.slice(first, rows)).to_pylist() == texts[first : first + rows]
