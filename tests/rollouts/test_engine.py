"""Work that is done elsewhere: all that goes there and comes back can be sent, and nothing changes by it."""

import pickle
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from olmorl_cli.core.named import NAMED
from olmorl_cli.errors import DataError, InputError, OlmorlError, OutputError, Place, Problems, UsageError
from olmorl_cli.inspection import ROLES, inspect_rollouts
from olmorl_cli.objectives import score_objective
from olmorl_cli.parts import write_parts
from olmorl_cli.results import answers_table, groups_table, sums_table
from olmorl_cli.rollouts.engine import Item
from olmorl_cli.rollouts.folders import folder_of
from olmorl_cli.rollouts.opening import OPTIONAL, open_rollouts
from olmorl_cli.rollouts.remote_errors import NOT_FOUND, RemoteError
from olmorl_cli.rollouts.rollouts import Selection
from olmorl_cli.scoring import score_answers
from tests.cli import kit

SAMPLE = Path(__file__).parents[2] / "sample_data" / "rollouts.parquet"
TOKENS = frozenset({"group", "step", "reward", "answer", "logp_new", "logp_old", "logp_sampler", "mask"})


class Elsewhere:
    """An engine whose work gets copies of all that it needs, and gives copies back, as other processes do."""

    away = True

    def __init__(self) -> None:
        self.items, self.started = 0, False

    def start(self) -> None:
        self.started = True

    def map(self, work: Callable[..., Any], items: Iterable[Item], remote: bool = False) -> Iterator[Any]:
        assert not remote
        for item in items:
            self.items += 1
            there, arguments = pickle.loads(pickle.dumps((work, item)))
            yield pickle.loads(pickle.dumps(there(*arguments)))


def several(folder: Path) -> list[str]:
    """The sample cut into three files of small row groups, groups across them; one is an Arrow file."""
    table, paths = pq.read_table(SAMPLE), [str(folder / name) for name in ("a.parquet", "b.arrow", "c.parquet")]
    pq.write_table(table.slice(0, 1001), paths[0], row_group_size=97)
    with pa.ipc.new_file(paths[1], table.schema) as writer:
        writer.write_table(table.slice(1001, 2002), max_chunksize=300)
    pq.write_table(table.slice(3003), paths[2], row_group_size=1000)
    return paths


def in_folders(folder: Path) -> list[str]:
    """Files whose folders are the step."""
    table = pq.read_table(SAMPLE).filter(pa.compute.field("step") < 3)
    for step in range(3):
        (folder / f"step={step}").mkdir()
        own = table.filter(pa.compute.field("step") == step).drop_columns(["step"])
        pq.write_table(own, folder / f"step={step}" / "r.parquet")
    return [str(folder)]


def of_prompts(folder: Path) -> list[str]:
    """A file with a prompt a row."""
    names = ("reward", "logp_new", "logp_old", "mask")
    columns = {name: [value[:4], value[4:]] for name, value in (kit.GROUPED | kit.TOKENS).items() if name in names}
    pq.write_table(pa.table(columns), folder / "prompts.parquet", row_group_size=1)
    return [str(folder / "prompts.parquet")]


@pytest.mark.parametrize("make", [several, in_folders, of_prompts])
def test_every_result_is_the_same(make: Callable[[Path], list[str]], tmp_path: Path) -> None:
    paths, engine = make(tmp_path), Elsewhere()
    here = open_rollouts(paths, Selection(), TOKENS, OPTIONAL)
    there = open_rollouts(paths, Selection(), TOKENS, OPTIONAL, engine=engine)
    recipes = [NAMED[name]() for name in ("olmorl", "grpo", "gspo", "cispo")]
    for one, other in zip(
        *(score_objective(each, recipes, keep_sums=True, diagnose=True) for each in (here, there)), strict=True
    ):
        assert one.rows == other.rows
        assert sums_table(one).equals(sums_table(other))
        assert groups_table(next(one.answers.groups)).equals(groups_table(next(other.answers.groups)))
    assert engine.items == 2 * len(here.fragments)
    roles = OPTIONAL | {role for role in ROLES if role.startswith("logp")}
    inspected = [inspect_rollouts(open_rollouts(paths, Selection(), ROLES, roles, engine=e)) for e in (None, Elsewhere())]
    assert inspected[0].record == inspected[1].record


def test_parts_are_the_rows_of_one_file(tmp_path: Path) -> None:
    paths, out = several(tmp_path), tmp_path / "out"
    for engine in (None, Elsewhere()):
        rollouts = open_rollouts(paths, Selection(), TOKENS - {"logp_new"}, engine=engine)
        assert engine is None or engine.started
        scored = score_answers(rollouts, NAMED["grpo"]())
        assert write_parts(scored, folder_of(str(out)), "parquet") == len(rollouts.fragments) == 3
        table = pq.read_table(out)
        assert table.num_rows == 5120
        assert table["advantage"].equals(answers_table(scored)["advantage"])
        assert sorted(path.name for path in out.iterdir()) == [f"part-0000{number}.parquet" for number in range(3)]


def test_files_of_this_process_alone_are_read_here(tmp_path: Path) -> None:
    engine, path = Elsewhere(), tmp_path / "r.jsonl"
    path.write_text('{"prompt_id": "a", "reward": 1}\n{"prompt_id": "a", "reward": 0}\n')
    rollouts = open_rollouts([str(path)], Selection(), frozenset({"group", "reward"}), engine=engine)
    scored = score_answers(rollouts, NAMED["olmorl"]())
    assert (scored.advantages.tolist(), engine.items, engine.started) == ([0.5, -0.5], 0, False)
    assert [kind.code for kind in scored.problems.kinds()] == ["read_here"]


def problems() -> Problems:
    found = Problems()
    found.add("code", "message", "Action", file="f", places=[Place(0, 3, 1, "x")], count=2, column="c")
    return found


@pytest.mark.parametrize(
    "error",
    [DataError(problems()), InputError("a"), OutputError("b"), UsageError("c"), RemoteError("s3://x", NOT_FOUND)],
    ids=lambda error: type(error).__name__,
)
def test_errors_come_back_as_they_are(error: OlmorlError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), again.lines, again.exit_code) == (type(error), error.lines, error.exit_code)
    if isinstance(error, DataError):
        assert [list(kind.records()) for kind in again.problems.kinds()] == [
            list(kind.records()) for kind in error.problems.kinds()
        ]
