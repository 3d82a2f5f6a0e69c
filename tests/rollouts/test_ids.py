"""Ids of every type are told apart by value and numbered in order of first appearance."""

import datetime
import itertools
import math
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from olmorl_cli.core.recipes import Recipe
from olmorl_cli.errors import DataError, InputError
from olmorl_cli.inspection import inspect_rollouts
from olmorl_cli.rollouts.answers import read_answers
from olmorl_cli.rollouts.ids import combine, encode, encode_runs, refine, runs_of
from olmorl_cli.rollouts.opening import open_rollouts
from olmorl_cli.rollouts.rollouts import Selection
from olmorl_cli.scoring import score_answers
from tests.rollouts.builders import kinds, rewards_table, score_rewards, write

INTEGERS = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]
TEXTS = [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())]


def numbered(ids: Sequence[Any]) -> list[int]:
    """Codes in order of first appearance, the slow way."""
    return [list(dict.fromkeys(ids)).index(each) for each in ids]


def codes(*chunks: pa.Array) -> list[int]:
    """Codes of an id column in chunks of one file."""
    return encode("group", chunks, ["r.parquet"] * len(chunks)).codes.tolist()


def groups(folder: Path, *columns: pa.Array, suffix: str = "parquet") -> list[int]:
    """The groups of answers in one file a column."""
    paths = [
        write(folder / f"{number}.{suffix}", rewards_table(ids, [float(row % 2) for row in range(len(ids))]))
        for number, ids in enumerate(columns)
    ]
    return score_rewards(paths).table.groups.tolist()


REPEATED = [5, 5, 3, 5, 4, 3, 3]


@pytest.mark.parametrize("repeats", [1, 1000])
@pytest.mark.parametrize(
    "ids",
    [
        pa.array(REPEATED),
        pa.array(sorted(REPEATED)),
        pa.array([number * 10**15 for number in REPEATED]),
        pa.array([number / 2 for number in REPEATED]),
        pa.array([f"p{number:08}" for number in REPEATED]),
        pa.array(["p" * number for number in REPEATED]),
        pa.array([[number] for number in REPEATED]),
        pa.array([None if number == 3 else number for number in REPEATED]),
    ],
    ids=["close", "sorted", "far", "floats", "digits", "texts", "lists", "nulls"],
)
def test_where_each_id_appears_first(ids: pa.Array, repeats: int) -> None:
    """Also where runs of equal ids are told from their heads, and where a table with a place for each number is used."""
    repeated = ids.take(pa.array([row for row in range(len(ids)) for _ in range(repeats)]))
    for found in (encode("group", [repeated], ["r"]), encode_runs("group", [runs_of(ids), runs_of(repeated)], ["r", "r"])):
        codes = found.codes.tolist()
        assert found.first.tolist() == [codes.index(code) for code in range(len(found.values))]


@pytest.mark.parametrize("kind", INTEGERS, ids=str)
def test_integers_of_every_width(tmp_path: Path, kind: pa.DataType) -> None:
    assert groups(tmp_path, pa.array([7, 3, 7, 0, 3], kind)) == [0, 1, 0, 2, 1]
    assert groups(tmp_path, pa.array([0, 3, 3, 7], kind)) == [0, 1, 1, 2]


def test_integers_of_different_widths_are_one_id(tmp_path: Path) -> None:
    assert groups(tmp_path, *(pa.array([1, number], kind) for number, kind in enumerate(INTEGERS, 100))) == [
        code for number in range(1, 9) for code in (0, number)
    ]


@pytest.mark.parametrize("kind", TEXTS, ids=str)
@pytest.mark.parametrize("suffix", ["parquet", "arrow", "arrows"])
def test_texts_of_every_kind(tmp_path: Path, kind: pa.DataType, suffix: str) -> None:
    ids = ["b", "a", "", "b", " a", "A", "a", "[/b]", "2", "02", "é", "e\u0301"]
    assert groups(tmp_path, pa.array(ids, kind), suffix=suffix) == [0, 1, 2, 0, 3, 4, 1, 5, 6, 7, 8, 9]


def test_texts_of_different_kinds_are_one_id(tmp_path: Path) -> None:
    assert groups(tmp_path, *(pa.array(["x", "y"], kind) for kind in TEXTS), suffix="arrow") == [0, 1] * len(TEXTS)


@pytest.mark.parametrize(
    "ids",
    [
        pa.array([datetime.date(2025, 1, 2), datetime.date(2025, 1, 1), datetime.date(2025, 1, 2)]),
        pa.array([86_400_000, 0, 86_400_000], pa.date64()),
        pa.array([2, 1, 2], pa.timestamp("us", tz="UTC")),
        pa.array([2, 1, 2], pa.time32("s")),
        pa.array([2, 1, 2], pa.duration("ms")),
        pa.array([Decimal("2.5"), Decimal("1.5"), Decimal("2.5")]),
        pa.array([True, False, True]),
        pa.array([2.5, -1.0, 2.5]),
        pa.array([2.5, -1.0, 2.5], pa.float32()),
        pa.array([b"b", b"a", b"b"]),
        pa.array([b"b", b"a", b"b"], pa.large_binary()),
        pa.array([b"b", b"a", b"b"], pa.binary(1)),
        pa.array([b"b", b"a", b"b"], pa.binary_view()),
        pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"b" * 16, b"a" * 16, b"b" * 16], pa.binary(16))),
    ],
    ids=lambda ids: str(ids.type),
)
def test_ids_of_other_types(tmp_path: Path, ids: pa.Array) -> None:
    assert groups(tmp_path, ids, suffix="arrow") == [0, 1, 0]


def test_neighbours_at_the_end_of_exact_doubles_stay_apart(tmp_path: Path) -> None:
    near = [2**53, 2**53 + 1, 2**53, 2**53 + 1, -(2**63), 2**63 - 1, 2**63 - 2]
    assert groups(tmp_path, pa.array(near)) == [0, 1, 0, 1, 2, 3, 4]
    assert groups(tmp_path, pa.array(sorted(near))) == [0, 1, 1, 2, 2, 3, 4]


def test_neighbours_stay_apart_in_a_column_with_missing_step(tmp_path: Path) -> None:
    """A null elsewhere must not take integers to doubles."""
    table = rewards_table(pa.array([2**53, 2**53 + 1]), [1.0, 0.0], step=pa.array([2**53 + 1, None]))
    with pytest.raises(DataError) as caught:
        score_rewards(write(tmp_path / "r.parquet", table))
    assert kinds(caught.value)["null_id"].count == 1


def test_unsigned_ids_above_the_signed_range(tmp_path: Path) -> None:
    high = [2**64 - 1, 2**63, 2**63 - 1, 2**64 - 1]
    assert groups(tmp_path, pa.array(high, pa.uint64())) == [0, 1, 2, 0]


def test_unsigned_ids_of_which_one_file_has_only_low_ones(tmp_path: Path) -> None:
    assert groups(tmp_path, pa.array([5, 5], pa.uint64()), pa.array([5, 2**63 + 5], pa.uint64())) == [0, 0, 0, 1]


def test_dictionaries_with_different_codes_in_each_chunk() -> None:
    """Chunk a, b and chunk b, c both have codes 0, 1."""
    first = pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int8()), pa.array(["a", "b"]))
    second = pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int32()), pa.array(["b", "c"], pa.large_string()))
    assert codes(first, second) == [0, 1, 1, 2]
    assert codes(second, first, pa.array(["c", "a"])) == [0, 1, 2, 0, 1, 2]


def test_dictionaries_that_change_between_row_groups_and_batches(tmp_path: Path) -> None:
    parts = [pa.array(words).dictionary_encode() for words in (["a", "b"], ["b", "c"], ["d", "a"])]
    table = pa.concat_tables([rewards_table(part, [1.0, 0.0]) for part in parts])
    assert score_rewards(write(tmp_path / "r.parquet", table, row_group_size=2)).table.groups.tolist() == [0, 1, 1, 2, 3, 0]
    assert score_rewards(write(tmp_path / "r.arrows", table)).table.groups.tolist() == [0, 1, 1, 2, 3, 0]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (pa.array(["x", "y", "x"]), [0, 1, 0]),
        (pa.array([7, 8, 7], pa.int16()), [0, 1, 0]),
        (pa.array([7.5, 8.5, 7.5], pa.float32()), [0, 1, 0]),
        (pa.array([b"7", b"8", b"7"]), [0, 1, 0]),
        (pa.array(["x", "y", "x"], pa.string_view()), [0, 1, 0]),
    ],
    ids=lambda value: str(getattr(value, "type", "")),
)
def test_dictionaries_that_repeat_a_word(words: pa.Array, expected: list[int]) -> None:
    assert codes(pa.DictionaryArray.from_arrays(pa.array([0, 1, 2], pa.int8()), words)) == expected


def test_a_dictionary_of_integers_beside_integers() -> None:
    coded = pa.DictionaryArray.from_arrays(pa.array([1, 0], pa.int8()), pa.array([7, 8], pa.int16()))
    assert codes(coded, pa.array([7, 9])) == [0, 1, 1, 2]


@pytest.mark.parametrize(
    "ids",
    [
        pa.array(["a", None, "b", None]),
        pa.array([1, None, 2, None]),
        pa.array([1.0, math.nan, 2.0, None]),
        pa.array([1.0, math.nan, 2.0, math.nan], pa.float32()),
        pa.DictionaryArray.from_arrays(pa.array([0, None, 1, None], pa.int8()), pa.array(["a", "b"])),
        pa.DictionaryArray.from_arrays(pa.array([0, 2, 1, 2], pa.int8()), pa.array(["a", "b", None])),
        pa.DictionaryArray.from_arrays(pa.array([0, 1, 2, None], pa.int8()), pa.array([1.0, math.nan, 2.0])),
    ],
    ids=lambda ids: str(ids.type),
)
@pytest.mark.parametrize("skip", [False, True])
def test_null_and_nan_are_no_ids(tmp_path: Path, ids: pa.Array, skip: bool) -> None:
    path = write(tmp_path / "r.arrow", rewards_table(ids, [1.0, 0.0, 1.0, 0.0]))
    with pytest.raises(DataError) as caught:
        score_rewards(path, skip=skip)
    found = kinds(caught.value)["null_id"]
    assert (found.file, found.count, [place.row for place in found.places]) == (path, 2, [1, 3])


def test_null_ids_in_one_of_two_group_columns(tmp_path: Path) -> None:
    path = write(tmp_path / "r.parquet", rewards_table([1, 1, 1], [1.0, 0.0, 1.0], env=["x", None, "x"]))
    with pytest.raises(DataError, match="env, the group, is null, row 1"):
        score_rewards(path, group=("group_id", "env"))


def test_a_column_of_nulls_only_and_a_shard_without_rows(tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        groups(tmp_path, pa.nulls(3))
    assert kinds(caught.value)["null_id"].count == 3
    assert groups(tmp_path, pa.nulls(0), pa.array(["1", "1"]), pa.nulls(0)) == [0, 0]


def test_nan_in_a_file_of_floats_beside_a_file_of_integers_is_a_null_id(tmp_path: Path) -> None:
    """Pandas writes whole numbers with one missing as floats with NaN."""
    with pytest.raises(DataError) as caught:
        groups(tmp_path, pa.array([1, 1]), pa.array([1.0, math.nan]))
    found = kinds(caught.value)["null_id"]
    assert (found.count, found.places[0].row) == (1, 1)


@pytest.mark.parametrize("text_first", [True, False])
def test_text_and_integers_are_refused_with_the_file_that_differs(tmp_path: Path, text_first: bool) -> None:
    columns = [pa.array(["1", "1"]), pa.array([1, 1])]
    with pytest.raises(InputError, match=r"1\.parquet.*cannot be compared") as caught:
        groups(tmp_path, *(columns if text_first else columns[::-1]))
    assert str(caught.value).startswith(str(tmp_path / "1.parquet"))


def test_text_and_integers_of_steps_are_refused_too(tmp_path: Path) -> None:
    paths = [
        write(tmp_path / f"{n}.parquet", rewards_table(["a", "a"], [1.0, 0.0], step=step))
        for n, step in enumerate(([1, 1], ["1", "1"]))
    ]
    with pytest.raises(InputError, match=r"1\.parquet: the step is .*string.* and int64 in .*0\.parquet"):
        score_rewards(paths)


def test_whole_floats_go_with_integers(tmp_path: Path) -> None:
    assert groups(tmp_path, pa.array([2, 1]), pa.array([1.0, 3.0])) == [0, 1, 1, 2]
    assert groups(tmp_path, pa.array([1.0, 3.0]), pa.array([2, 1])) == [0, 1, 2, 0]


def test_ids_named_index_start_again_in_every_file_and_all_others_do_not(tmp_path: Path) -> None:
    for name, expected in (("group_index", [0, 0, 1, 1]), ("prompt_idx", [0, 0, 1, 1]), ("prompt_id", [0, 0, 0, 0])):
        table = pa.table({name: [0, 0], "reward": [1.0, 0.0]})
        paths = [write(tmp_path / f"{name}{n}.parquet", table) for n in range(2)]
        assert score_rewards(paths).table.groups.tolist() == expected


def test_the_step_is_part_of_the_group(tmp_path: Path) -> None:
    table = rewards_table(["a", "b", "a", "a"], [1.0, 0.0, 0.0, 1.0], step=pa.array([1, 1, 2, 1], pa.int8()))
    scored = score_rewards(write(tmp_path / "r.parquet", table))
    assert scored.table.groups.tolist() == [0, 1, 2, 0]
    assert scored.table.group_ids["group"].to_pylist() == ["a", "b", "a"]
    assert scored.table.steps.take(scored.table.step_of_group).to_pylist() == [1, 1, 2]


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3)), max_size=12))
def test_a_step_splits_the_groups_that_lie_in_several(pairs: list[tuple[int, int]]) -> None:
    """Whatever is told from the groups alone, the numbers are those of the pairs."""
    groups, steps = (encode("id", [pa.array([pair[each] for pair in pairs], pa.int64())], ["f"]) for each in (0, 1))
    expected = [list(dict.fromkeys(pairs)).index(pair) for pair in pairs]
    for codes in (refine(groups, steps), combine(groups, steps)):
        assert codes.codes.tolist() == expected
        assert len(codes.values) == len(set(pairs))


def test_groups_that_lie_in_one_step_each_keep_their_codes() -> None:
    groups = encode("group", [pa.array(["a", "a", "b", "c", "b"])], ["f"])
    steps = encode("step", [pa.array([7, 7, 8, 7, 8])], ["f"])
    assert refine(groups, steps).codes is groups.codes
    assert np.array_equal(combine(groups, steps).codes, groups.codes)


def test_several_group_columns_do_not_run_together(tmp_path: Path) -> None:
    """1, 12 and 11, 2 are two groups; so are a, bc and ab, c."""
    table = pa.table({"x": ["a", "ab", "a"], "y": [12, 2, 12], "reward": [1.0, 0.0, 0.0]})
    scored = score_rewards(write(tmp_path / "r.parquet", table), group=("x", "y"))
    assert scored.table.groups.tolist() == [0, 1, 0]
    assert {name: ids.to_pylist() for name, ids in scored.table.group_ids.items()} == {"x": ["a", "ab"], "y": [12, 2]}


def test_ids_come_back_as_they_were(tmp_path: Path) -> None:
    for ids in (pa.array([2**53 + 1, 5, 5]), pa.array(["é", "x", "x"]), pa.array([0.5, 2.5, 2.5])):
        scored = score_rewards(write(tmp_path / "r.arrow", rewards_table(ids, [1.0, 0.0, 1.0])))
        assert scored.table.group_ids["group"].to_pylist() == ids.to_pylist()[:2]


chunks_of = st.lists(st.integers(0, 4), max_size=12).flatmap(
    lambda ids: st.tuples(st.just(ids), st.lists(st.integers(0, len(ids)), max_size=3))
)


@settings(max_examples=60, deadline=None)
@given(drawn=chunks_of, kind=st.sampled_from((pa.int16(), pa.uint64(), pa.float64(), *TEXTS)))
def test_chunks_and_types_do_not_change_the_codes(drawn: tuple[list[int], list[int]], kind: pa.DataType) -> None:
    ids, cuts = drawn
    edges = sorted({0, *cuts, len(ids)})
    values = [str(each) for each in ids] if "string" in str(kind) else ids
    chunks = [pa.array(values[a:b], kind) for a, b in itertools.pairwise(edges)]
    assert codes(*chunks) == numbered(ids)


@settings(max_examples=30, deadline=None)
@given(pairs=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=12))
def test_pairs_of_ids(tmp_path_factory: pytest.TempPathFactory, pairs: list[tuple[int, int]]) -> None:
    table = pa.table({"x": [x for x, _ in pairs], "y": [str(y) for _, y in pairs], "reward": [1.0] * len(pairs)})
    scored = score_rewards(write(tmp_path_factory.mktemp("pairs") / "r.parquet", table), group=("x", "y"))
    assert scored.table.groups.tolist() == numbered(pairs)
    ids = [values.to_pylist() for values in scored.table.group_ids.values()]
    assert [(x, int(y)) for x, y in zip(*ids, strict=True)] == list(dict.fromkeys(pairs))


@pytest.mark.parametrize("length", [1, 7, 8, 9, 16, 17, 36, 63, 64, 65, 200])
@pytest.mark.parametrize("kind", TEXTS, ids=str)
def test_texts_of_one_length_that_differ_in_one_byte(kind: pa.DataType, length: int) -> None:
    """Hashes and UUIDs: each byte counts, a zero byte too, wherever the column is cut or sliced."""
    distinct = ["x" * place + letter + "x" * (length - place - 1) for place in range(length) for letter in "y\0"]
    ids = [*distinct[::3], "x" * length, *distinct[::-1], "x" * length]
    whole = pa.array(["other", *ids], pa.string()).cast(kind) if "dictionary" not in str(kind) else None
    whole = pa.array(["other", *ids]).dictionary_encode() if whole is None else whole
    cuts = [1, 2, 2, len(ids) // 2, len(ids) + 1]
    chunks = [whole.slice(a, b - a) for a, b in itertools.pairwise(cuts)]
    found = encode("group", chunks, ["r.parquet"] * len(chunks))
    assert found.codes.tolist() == numbered(ids)
    assert found.values.to_pylist() == list(dict.fromkeys(ids))


@pytest.mark.parametrize(
    "kind", [pa.int64(), pa.uint64(), pa.float64(), pa.date32(), pa.binary(), pa.null(), *TEXTS], ids=str
)
def test_no_ids_at_all(kind: pa.DataType) -> None:
    for chunks in ([], [pa.array([], kind)], [pa.array([], kind)] * 3):
        found = encode("group", chunks, ["r.parquet"] * len(chunks))
        assert (found.codes.tolist(), len(found.values), found.null is None) == ([], 0, True)


@pytest.mark.parametrize("again", [False, True])
def test_answers_told_by_text_here_and_by_numbers_there_are_refused(tmp_path: Path, again: bool) -> None:
    """Whether or not one of them stands in a group twice."""
    numbers = pa.array([1, 1] if again else [1, 2])
    paths = [
        write(tmp_path / f"{n}.parquet", rewards_table(["a", "a"], [1.0, 0.0], answer_id=ids))
        for n, ids in enumerate((numbers, pa.array(["1", "2"])))
    ]
    with pytest.raises(InputError, match="cannot be compared"):
        read_answers(open_rollouts(paths, Selection(), frozenset({"group", "reward", "answer"})), skip=False)


@pytest.mark.parametrize(
    "kind", [pa.int64(), pa.uint64(), pa.float64(), pa.string(), pa.list_(pa.int64()), pa.null()], ids=str
)
def test_ids_that_are_all_null(tmp_path: Path, kind: pa.DataType) -> None:
    """Nothing tells answers then, which is no fault; nothing tells groups either, which is one."""
    table = pa.table({"group_id": [1, 1, 2, 2], "nothing": pa.nulls(4, kind), "reward": [0.0, 1.0, 1.0, 0.0]})
    path = write(tmp_path / "r.parquet", table)
    needs = frozenset({"group", "reward", "answer"})
    rollouts = open_rollouts([path], Selection({"answer": ("nothing",)}), needs)
    assert score_answers(rollouts, Recipe()).advantages.tolist() == [-0.5, 0.5, 0.5, -0.5]
    rollouts = open_rollouts([path], Selection({"group": ("nothing",)}), needs)
    (kind_of,) = inspect_rollouts(rollouts).problems.kinds("error")
    assert "nothing, the group, is null, rows 0, 1, 2, 3 (4 in all)" in kind_of.line()
