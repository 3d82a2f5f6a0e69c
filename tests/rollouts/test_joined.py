"""Columns of a second file for the same answers give what one file with all columns gives, to the last bit."""

import itertools
import json
import random
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from olmorl_cli.core.recipes import Recipe
from olmorl_cli.errors import DataError, InputError, UsageError
from olmorl_cli.objectives import Objective, score_objective
from olmorl_cli.results import passed_through, sums_table
from olmorl_cli.rollouts import joined, shelf
from olmorl_cli.rollouts.opening import open_rollouts
from olmorl_cli.rollouts.rollouts import Rollouts, Selection
from olmorl_cli.rollouts.shelf import Shelf
from olmorl_cli.scoring import score_answers
from tests.rollouts.builders import LOGPS, Row, exactly, kinds, random_rows, table_of, write

ROWS = [row | {"answer_id": f"a{number:03}", "number": number} for number, row in enumerate(random_rows(11))]
TOKENS = (*LOGPS, "loss_mask")
KEYS = ("answer_id", "number")
NEEDS = frozenset({"group", "step", "reward", "answer", "mask", "logp_new", "logp_old", "logp_sampler"})


def opened(
    main: str | Sequence[str], join: str | None = None, on: str | Sequence[str] = "answer_id", **columns: str
) -> Rollouts:
    on = (on,) if isinstance(on, str) else tuple(on)
    named = {role: (name,) for role, name in columns.items()}
    selection = Selection(named, join=join, on=() if join is None else on)
    return open_rollouts([main] if isinstance(main, str) else main, selection, NEEDS)


def score(*args: Any, **columns: str) -> Objective:
    return score_objective(opened(*args, **columns), [Recipe()], keep_sums=True)[0]


def outcome(result: Objective) -> tuple[dict[str, Any], list[Row], Any]:
    """All figures, all answers' sums, and which columns they came from."""
    (row,) = result.rows
    return exactly(row), sums_table(result).to_pylist(), row["columns"]


def answers(rows: Sequence[Row] = ROWS, *more: str) -> pa.Table:
    """The rows' small columns."""
    return table_of([{k: v for k, v in row.items() if k not in TOKENS or k in more} for row in rows])


def tokens(rows: Sequence[Row] = ROWS, *keys: str, **types: Any) -> pa.Table:
    """The rows' lists, and what tells them apart."""
    return table_of([{k: v for k, v in row.items() if k in (*TOKENS, *(keys or KEYS[:1]))} for row in rows], **types)


def shuffled(rows: Sequence[Row], seed: int = 5) -> list[Row]:
    return random.Random(seed).sample(rows, len(rows))


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What one file gives."""
    found = outcome(score(write(tmp_path_factory.mktemp("whole") / "r.parquet", table_of(ROWS))))
    assert found[0]["kept_groups"] > 2
    return found


@pytest.mark.parametrize("right", ["parquet", "arrow", "arrows", "jsonl"])
@pytest.mark.parametrize("left", ["parquet", "arrow", "arrows", "jsonl"])
def test_files_of_any_kind(tmp_path: Path, expected: Any, left: str, right: str) -> None:
    main = write(tmp_path / f"r.{left}", answers())
    join = write(tmp_path / f"t.{right}", tokens(shuffled(ROWS)))
    assert outcome(score(main, join)) == expected


@pytest.mark.parametrize("rows", [1, 4, 1000])
@pytest.mark.parametrize("order", ["same", "reversed", "shuffled"])
def test_orders_and_row_groups(tmp_path: Path, expected: Any, order: str, rows: int) -> None:
    others = {"same": ROWS, "reversed": ROWS[::-1], "shuffled": shuffled(ROWS)}[order]
    main = write(tmp_path / "r.parquet", answers(), row_group_size=5)
    assert outcome(score(main, write(tmp_path / "t.parquet", tokens(others), row_group_size=rows))) == expected
    assert (
        outcome(score(write(tmp_path / "l.parquet", tokens(others)), write(tmp_path / "a.parquet", answers())))[0]
        == (expected[0])
    )


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_order_and_cut_on_both_sides(data: st.DataObject) -> None:
    """Batches of a row or two and shelves of a few, so that every row is fetched from somewhere else."""
    mains = data.draw(st.permutations(ROWS[:12]))
    others = data.draw(st.permutations(ROWS[:15]))
    cuts = [sorted(data.draw(st.lists(st.integers(0, 12), max_size=2))) for _ in range(2)]
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        patch.setattr(joined, "BATCH_BYTES", data.draw(st.sampled_from([1, 200, 1 << 20])))
        patch.setattr(shelf, "CHUNK_BYTES", data.draw(st.sampled_from([1, 300, 1 << 20])))
        folder = Path(name)
        whole = write(folder / "whole.parquet", table_of(mains))
        paths = []
        for side, table, cut in (("r", answers(mains), cuts[0]), ("t", tokens(others), cuts[1])):
            edges = [0, *cut, table.num_rows]
            parts = [table.slice(a, b - a) for a, b in itertools.pairwise(edges)]
            paths.append([write(folder / side / f"{n}.parquet", part, row_group_size=3) for n, part in enumerate(parts)])
        assert outcome(score(paths[0], str(folder / "t"))) == outcome(score(whole))


def test_several_files_a_folder_a_pattern_and_hive_columns(tmp_path: Path, expected: Any) -> None:
    main = [write(tmp_path / "r" / f"{n}.jsonl", answers(ROWS[n::3])) for n in range(3)]
    apart = [row for n in range(3) for row in ROWS[n::3]]
    whole = outcome(score(write(tmp_path / "whole.parquet", table_of(apart))))
    assert whole[0] == expected[0]
    for step in range(3):
        part = [row for row in ROWS if row["step"] == step]
        write(tmp_path / "t" / f"step={step}" / "t.parquet", tokens(part))
    assert outcome(score(main, str(tmp_path / "t"))) == whole
    assert outcome(score(main, str(tmp_path / "t"), ("step", "answer_id"))) == whole
    assert outcome(score(main, str(tmp_path / "t" / "*" / "*.parquet"))) == whole


def test_answers_that_the_input_lacks_are_ignored_and_counted(tmp_path: Path, expected: Any) -> None:
    strange = [row | {"answer_id": f"x{row['number']}", "loss_mask": None, "new_logprobs": [-9.0]} for row in ROWS[:4]]
    join = write(tmp_path / "t.parquet", tokens(shuffled([*ROWS, *strange])))
    result = score(write(tmp_path / "r.parquet", answers()), join)
    assert outcome(result) == expected
    assert result.notes == [f"{join}: 4 of {len(ROWS) + 4} rows belong to no row of the input. They are ignored"]


def error_of(*args: Any, **columns: str) -> DataError:
    with pytest.raises(DataError) as caught:
        opened(*args, **columns)
    return caught.value


def test_missing_answers_are_named_by_file_row_and_key(tmp_path: Path) -> None:
    mains = [write(tmp_path / f"{n}.parquet", answers(part)) for n, part in enumerate((ROWS[:3], ROWS[3:12]))]
    join = write(tmp_path / "t.parquet", tokens([ROWS[0], ROWS[2], ROWS[7]], *KEYS))
    first, second = error_of(mains, join, KEYS).problems.kinds("error")
    assert (first.code, first.file, first.count, first.places[0].row) == ("missing_key", mains[0], 1, 1)
    assert f"{join} has no row with this key, row 1 (answer_id a001, number 1) (1 in all)" in first.line()
    assert (second.file, second.count, [place.row for place in second.places]) == (mains[1], 8, [0, 1, 2, 3, 5])


def test_repeated_and_null_keys_are_named_on_either_side(tmp_path: Path) -> None:
    twice = write(tmp_path / "r.parquet", answers([ROWS[0], ROWS[1], ROWS[0], ROWS[0], ROWS[2] | {"answer_id": None}]))
    others = [ROWS[1], ROWS[0] | {"answer_id": None}, ROWS[2]]
    parts = [write(tmp_path / "t" / f"{n}.parquet", tokens(part)) for n, part in enumerate((ROWS[:1], [*others, ROWS[0]]))]
    found = error_of(twice, str(tmp_path / "t")).problems.kinds("error")
    assert [(kind.code, kind.file, [place.row for place in kind.places]) for kind in found] == [
        ("repeated_key", twice, [2, 3]),
        ("null_key", twice, [4]),
        ("null_key", parts[1], [1]),
        ("repeated_key", parts[1], [3]),
    ]
    assert "(answer_id a000)" in found[0].line()


def test_a_key_of_several_columns_must_be_one_together(tmp_path: Path, expected: Any) -> None:
    parted = [row | {"answer_id": f"a{row['number'] % 5}", "number": row["number"] // 5} for row in ROWS]
    main, join = write(tmp_path / "r.parquet", answers(parted)), write(tmp_path / "t.jsonl", tokens(parted[::-1], *KEYS))
    assert outcome(score(main, join, KEYS, answer="none"))[0] == expected[0]
    repeated = len(ROWS) - len({row["number"] for row in parted})
    first, second = error_of(main, join, "number").problems.kinds("error")
    assert (first.code, first.file, first.count) == ("repeated_key", main, repeated)
    assert (second.code, second.file, second.count) == ("repeated_key", join, repeated)


KEY_TYPES = [
    (pa.int8(), pa.int64(), int),
    (pa.uint64(), pa.int32(), int),
    (pa.float64(), pa.int16(), int),
    (pa.string(), pa.large_string(), str),
    (pa.dictionary(pa.int8(), pa.string()), pa.string(), str),
    (pa.string(), pa.dictionary(pa.int16(), pa.large_string()), str),
    (pa.binary(), pa.binary(), str.encode),
    (pa.list_(pa.int64()), pa.list_(pa.int64()), lambda text: [int(text), 7]),
]


@pytest.mark.parametrize(("left", "right", "make"), KEY_TYPES, ids=[f"{left} {right}" for left, right, _ in KEY_TYPES])
def test_keys_are_compared_by_value(tmp_path: Path, expected: Any, left: Any, right: Any, make: Any) -> None:
    keys = [make(str(row["number"])) for row in ROWS]
    main = answers().drop_columns("number").append_column("k", pa.array(keys).cast(left))
    join = tokens().drop_columns("answer_id").append_column("k", pa.array(keys).cast(right))
    back = list(range(len(ROWS)))[::-1]
    paths = write(tmp_path / "r.parquet", main), write(tmp_path / "t.arrow", join.take(back))
    assert outcome(score(*paths, "k")) == expected


def test_text_is_never_compared_with_numbers(tmp_path: Path) -> None:
    main = write(tmp_path / "r.parquet", answers())
    join = write(tmp_path / "t.parquet", tokens([row | {"answer_id": row["number"]} for row in ROWS]))
    with pytest.raises(InputError, match=r"the key answer_id is int64 here and large_string in .*: they cannot be compared"):
        opened(main, join)


def test_keys_that_json_rounds_are_refused(tmp_path: Path) -> None:
    path, lists = tmp_path / "t.jsonl", '"new_logprobs": [], "old_logprobs": []'
    path.write_text(f'{{"number": {2**53}, {lists}}}\n{{"number": 0.5, {lists}}}\n')
    with pytest.raises(InputError, match=r"column number has ids of 2\*\*53 or more"):
        opened(write(tmp_path / "r.parquet", answers()), str(path), "number")


def test_a_key_inside_a_struct(tmp_path: Path, expected: Any) -> None:
    meta = pa.array([{"id": row["answer_id"], "note": "x"} for row in ROWS])
    main = write(tmp_path / "r.parquet", answers().append_column("meta", meta))
    join = write(tmp_path / "t.parquet", tokens(ROWS, *TOKENS).append_column("meta", meta)[::-1])
    assert outcome(score(main, join, "meta.id")) == expected
    with pytest.raises(InputError, match=r"no column meta.no"):
        opened(main, join, "meta.no")


def test_no_such_key_names_the_file_that_lacks_it(tmp_path: Path) -> None:
    main, join = write(tmp_path / "r.parquet", answers()), write(tmp_path / "t.parquet", tokens())
    with pytest.raises(InputError, match=r"r.parquet: no column nothing"):
        opened(main, join, "nothing")
    with pytest.raises(InputError, match=r"t.parquet: no column number.* The columns are .*answer_id"):
        opened(main, join, "number")


def test_a_column_that_both_have_is_the_inputs_and_the_joined_one_can_be_named(tmp_path: Path, expected: Any) -> None:
    wrong = [row | {"old_logprobs": [-7.0] * len(row["old_logprobs"])} for row in ROWS]
    main = write(tmp_path / "r.parquet", answers(wrong, "old_logprobs"))
    join = write(tmp_path / "t.parquet", tokens(shuffled(ROWS)))
    one = write(tmp_path / "one.parquet", table_of(wrong))
    assert outcome(score(main, join))[:2] == outcome(score(one))[:2]
    figures, sums, columns = outcome(score(main, join, logp_old="join.old_logprobs"))
    assert (figures, sums) == expected[:2]
    assert columns == expected[2] | {"logp_old": "join.old_logprobs"}


@pytest.mark.parametrize("useless", [pa.array(["-"] * len(ROWS)), pa.nulls(len(ROWS))], ids=["text", "null"])
def test_a_joined_column_is_taken_where_the_inputs_own_will_not_do(tmp_path: Path, expected: Any, useless: pa.Array) -> None:
    main = write(tmp_path / "r.parquet", answers().append_column("old_logprobs", useless))
    join = write(tmp_path / "t.parquet", tokens(shuffled(ROWS)))
    result = score(main, join)
    assert outcome(result)[:2] == expected[:2]
    assert result.rows[0]["columns"]["logp_old"] == "join.old_logprobs"
    said = "join.old_logprobs is taken for the logp_old: the input's own old_logprobs cannot be it"
    assert result.notes == [f"{join}: {said}. Name another with --logp-old"]


def test_a_name_of_the_prefix_that_is_taken_gets_it_twice(tmp_path: Path) -> None:
    main = pa.table({"k": [1, 2], "g": ["a", "a"], "x": [1, 2], "join.x": [3, 4]})
    join = pa.table({"k": [2, 1], "x": [5.0, 6.0], "join.x": [7.0, 8.0]})
    paths = write(tmp_path / "r.parquet", main), write(tmp_path / "t.parquet", join)
    selection = Selection({"group": ("g",), "reward": ("join.join.x",)}, join=paths[1], on=("k",))
    rollouts = open_rollouts([paths[0]], selection, frozenset({"group", "reward"}))
    assert rollouts.files[0].schema.names == ["k", "g", "x", "join.x", "join.join.x", "join.join.join.x"]
    assert score_answers(rollouts, Recipe()).table.rewards.tolist() == [6.0, 5.0]


LIST_TYPES = {
    "large_list": pa.large_list(pa.float64()),
    "list_view": pa.list_view(pa.float32()),
    "large_list_view": pa.large_list_view(pa.float64()),
}


@pytest.mark.parametrize("layout", LIST_TYPES)
def test_lists_of_any_layout(tmp_path: Path, expected: Any, layout: str) -> None:
    rows = shuffled(ROWS)
    join = write(tmp_path / "t.arrow", tokens(rows, logps=LIST_TYPES[layout]), rows_a_batch=7)
    assert outcome(score(write(tmp_path / "r.parquet", answers()), join)) == expected


def test_every_role_can_be_played_from_the_joined_side(tmp_path: Path, expected: Any) -> None:
    """The group as a dictionary that differs between the files' batches."""
    main = write(tmp_path / "r.parquet", table_of([{"answer_id": row["answer_id"]} for row in ROWS]))
    for n in range(2):
        part = table_of(shuffled(ROWS[n::2]))
        at = part.column_names.index("group_id")
        write(tmp_path / "t" / f"{n}.arrow", part.set_column(at, "group_id", part["group_id"].dictionary_encode()))
    assert outcome(score(main, str(tmp_path / "t"))) == expected


def test_joined_files_of_other_widths_and_without_a_sampler(tmp_path: Path) -> None:
    without = [row | {"rollout_logprobs": None} if row["number"] % 2 else row for row in ROWS]
    whole = outcome(score(write(tmp_path / "whole.parquet", table_of(without))))
    write(tmp_path / "t" / "a.parquet", tokens(without[::2], logps=pa.list_(pa.float64())))
    write(tmp_path / "t" / "b.parquet", tokens(without[1::2]).drop_columns("rollout_logprobs"))
    main = write(tmp_path / "r.parquet", answers())
    assert outcome(score(main, str(tmp_path / "t"))) == whole
    write(tmp_path / "t" / "b.parquet", tokens(without[1::2]).drop_columns("old_logprobs"))
    with pytest.raises(InputError, match=r"b.parquet: no column old_logprobs"):
        score(main, str(tmp_path / "t"))


def test_types_that_do_not_go_together_matter_only_where_they_are_used(tmp_path: Path, expected: Any) -> None:
    write(tmp_path / "t" / "a.parquet", tokens(ROWS[::2]).append_column("tag", pa.array([1] * len(ROWS[::2]))))
    write(tmp_path / "t" / "b.parquet", tokens(ROWS[1::2]).append_column("tag", pa.array(["x"] * len(ROWS[1::2]))))
    main = write(tmp_path / "r.parquet", answers())
    assert outcome(score(main, str(tmp_path / "t"))) == expected
    with pytest.raises(InputError, match=r"b.parquet: column tag is string here and int64 in another file"):
        score(main, str(tmp_path / "t"), group="tag")


def test_arrow_and_parquet_output_have_the_columns_of_both(tmp_path: Path) -> None:
    main, join = write(tmp_path / "r.parquet", answers()), write(tmp_path / "t.parquet", tokens(shuffled(ROWS), *KEYS))
    schema, batches = passed_through(score_answers(opened(main, join), Recipe()), dictionaries=True)
    table = pa.Table.from_batches(batches, schema)
    assert table.column_names == [*answers().column_names, *TOKENS, "join.number", "advantage", "kept"]
    assert table.select(TOKENS).to_pylist() == tokens().select(TOKENS).to_pylist()
    written = open_rollouts([write(tmp_path / "o.parquet", table)], Selection(), NEEDS | {"advantage"})
    again = score_objective(written, [Recipe()], keep_sums=True)
    assert exactly(again[0].rows[0]) == outcome(score(main, join))[0]
    assert again[0].rows[0]["columns"]["advantage"] == "advantage"


def prompts(path: Path, rows: Sequence[Row], *columns: str) -> str:
    """The rows with one row a prompt and step, each column a list of its answers' values."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(f"{row['group_id']} {row['step']}", []).append(row)
    lines = [{"prompt": name, **{c: [row[c] for row in group] for c in columns}} for name, group in groups.items()]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(path)


def figures_of_prompts(*args: Any, **columns: str) -> Any:
    return outcome(score(*args, **({"group": "prompt"} | columns)))[0]


def test_rows_of_prompts_are_joined_by_their_answers_keys(tmp_path: Path, expected: Any) -> None:
    rewards = prompts(tmp_path / "r.jsonl", ROWS, "answer_id", "reward")
    join = write(tmp_path / "t.parquet", tokens(shuffled(ROWS)))
    assert figures_of_prompts(rewards, join) == expected[0]
    lists = prompts(tmp_path / "t.jsonl", shuffled(ROWS), "answer_id", *TOKENS)
    main = write(tmp_path / "r.parquet", answers())
    assert outcome(score(main, lists, group="group_id"))[0] == expected[0]
    assert figures_of_prompts(rewards, lists, "prompt") != expected[0]  # the answers of a prompt in another order


def test_rows_of_prompts_are_joined_with_rows_of_prompts(tmp_path: Path, expected: Any) -> None:
    rewards = prompts(tmp_path / "r.jsonl", ROWS, "reward")
    lists = prompts(tmp_path / "t.jsonl", sorted(ROWS, key=lambda row: (row["group_id"], row["number"])), *TOKENS)
    assert figures_of_prompts(rewards, lists, "prompt") == expected[0]
    assert figures_of_prompts(lists, rewards, "prompt") == expected[0]


def test_rows_of_prompts_without_their_answers_keys_are_refused_in_words(tmp_path: Path) -> None:
    rewards = prompts(tmp_path / "r.jsonl", ROWS, "reward")
    join = write(tmp_path / "t.parquet", tokens([row | {"prompt": row["group_id"]} for row in ROWS], "prompt"))
    with pytest.raises(InputError, match="reward holds the values of a prompt's answers in a row, new_logprobs one"):
        opened(rewards, join, "prompt", group="prompt")
    lines = [{"answer_id": [row["answer_id"]], "reward": row["reward"], "prompt": row["group_id"]} for row in ROWS]
    one = write(tmp_path / "one.parquet", pa.Table.from_pylist(lines))
    with pytest.raises(InputError, match="answer_id lists the keys of several answers a row, but reward"):
        opened(one, write(tmp_path / "a.parquet", tokens()), group="prompt")


def test_nothing_joined_is_read_that_no_role_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    laid: list[list[str]] = []

    class Watched(Shelf):
        def __init__(self, schema: pa.Schema, batches: Any, name: str) -> None:
            laid.append(schema.names)
            super().__init__(schema, batches, name)

    monkeypatch.setattr(joined, "Shelf", Watched)
    text = pa.array(["long text"] * len(ROWS))
    join = write(tmp_path / "t.parquet", tokens().append_column("completion", text))
    score(write(tmp_path / "r.parquet", answers()), join)
    assert sorted(name for names in laid for name in names) == sorted(TOKENS)


def test_a_join_without_rows(tmp_path: Path) -> None:
    nothing = write(tmp_path / "t.parquet", tokens().slice(0, 0))
    empty = write(tmp_path / "r.parquet", answers().slice(0, 0))
    assert kinds(error_of(write(tmp_path / "a.parquet", answers()), nothing))["missing_key"].count == len(ROWS)
    assert score(empty, nothing).rows[0]["answers"] == 0
    assert score(empty, write(tmp_path / "b.parquet", tokens())).rows[0]["answers"] == 0


def test_standard_input_is_for_one_side() -> None:
    for main in ([], ["-"]):
        with pytest.raises(UsageError, match="standard input can be read once"):
            open_rollouts(main, Selection(join="-", on=("answer_id",)), NEEDS)


def test_ids_that_repeat_only_among_ignored_rows_tell_no_groups(tmp_path: Path) -> None:
    """`uid` is taken for the group only where its values repeat, among the answers that count."""
    main = write(tmp_path / "r.parquet", pa.table({"k": [1, 2, 3, 4], "reward": [1.0, 0.0, 1.0, 1.0]}))
    join = {"k": [5, 4, 3, 2, 1, 6], "uid": ["e", "d", "c", "b", "a", "e"], "prompt": ["p", "q", "q", "p", "p", "p"]}
    for uid, expected in ((join["uid"], ("prompt", [0, 0, 1, 1])), (["e", "d", "c", "b", "b", "e"], ("uid", [0, 0, 1, 2]))):
        path = write(tmp_path / "t.parquet", pa.table({**join, "uid": uid}))
        selection = Selection(join=path, on=("k",))
        rollouts = open_rollouts([main], selection, frozenset({"group", "reward"}))
        groups = score_answers(rollouts, Recipe()).table.groups.tolist()
        assert (rollouts.choices["group"].columns[0], groups) == expected


def test_rewards_of_both_sides_are_compared_row_by_row_in_every_file(tmp_path: Path) -> None:
    """The second of two files lies elsewhere in the joined one; equal values are no doubt, a difference is."""
    main = [
        write(
            tmp_path / f"{name}.parquet", pa.table({"answer_id": [f"{name}0", f"{name}1"], "g": ["x"] * 2, "reward": values})
        )
        for name, values in (("a", [0.0, 1.0]), ("b", [3.0, 4.0]))
    ]

    def scores(last: float) -> list[float]:
        keys = {"answer_id": ["a0", "a1", "b0", "b1"], "score": [0.0, 1.0, 3.0, last]}
        selection = Selection({"group": ("g",)}, join=write(tmp_path / "j.parquet", pa.table(keys)), on=("answer_id",))
        values: list[float] = score_answers(
            open_rollouts(main, selection, frozenset({"group", "reward"})), Recipe()
        ).advantages
        return list(values)

    assert scores(4.0) == [-2.0, -1.0, 1.0, 2.0]
    with pytest.raises(InputError, match="reward and score could each be the reward, and differ: 4 and 5 in row 1"):
        scores(5.0)
