"""Two columns that could play one role: they agree, one is plainly meant, or the user is asked."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from olmorl_cli.errors import DataError, InputError
from olmorl_cli.inspection import inspect_rollouts
from olmorl_cli.rollouts.exploded import ROW
from tests.rollouts.builders import opened, rewards_table, score, score_rewards, tokens_table, write

TWO = {"prompt_id": ["a", "a", "b", "b"], "reward": [1.0, 0.0, 1.0, 1.0]}


def grouped(tmp_path: Path, **columns: Any) -> tuple[str, list[int]]:
    """The column that tells the groups, and their sizes."""
    scored = score_rewards(write(tmp_path / "r.parquet", pa.table(columns)))
    return str(scored.rollouts.columns()["group"]), scored.statistics.size.tolist()


@pytest.mark.parametrize("rival", ["rewards", "total_reward", "score", "Score", "scalar_reward", "reward_score"])
def test_rewards_that_differ_are_asked_about(tmp_path: Path, rival: str) -> None:
    path = write(tmp_path / "r.parquet", pa.table(TWO | {rival: [1.0, 0.0, 0.25, 1.0]}))
    said = rf"^{path}: reward and {rival} could each be the reward, and differ: 1 and 0.25 in row 2. "
    with pytest.raises(InputError, match=said + rf"Add --reward reward or --reward {rival}$"):
        score_rewards(path)
    assert score_rewards(path, reward=rival).advantages.tolist() == [0.5, -0.5, -0.375, 0.375]
    assert score_rewards(path, reward="reward").advantages.tolist() == [0.5, -0.5, 0.0, 0.0]


@pytest.mark.parametrize(
    ("reward", "score"),
    [
        (pa.array([0.1, 0.7], pa.float32()), pa.array([0.1, 0.7])),
        (pa.array([0.1, 0.7]).cast(pa.float16(), safe=False), pa.array([0.1, 0.7])),
        (pa.array([True, False]), pa.array([1.0, 0.0])),
        (pa.array([1, 0]), pa.array([1.0, 0.0], pa.float32())),
        (pa.array([[0.1, 0.7]]), pa.array([[0.1, 0.7]], pa.list_(pa.float32()))),
    ],
    ids=lambda array: str(array.type),
)
def test_the_same_rewards_in_two_columns_are_no_doubt(tmp_path: Path, reward: pa.Array, score: pa.Array) -> None:
    ids = ["a"] * len(reward)
    found = score_rewards(write(tmp_path / "r.parquet", pa.table({"prompt_id": ids, "reward": reward, "score": score})))
    assert found.rollouts.choices["reward"].columns == ("reward",)
    assert found.rollouts.choices["reward"].others == ("score",)
    assert found.statistics.size.tolist() == [2]


def test_null_differs_from_a_number_and_not_from_null(tmp_path: Path) -> None:
    path = write(tmp_path / "r.parquet", pa.table(TWO | {"reward": [1.0, None, 0.0, 1.0], "score": [1.0, None, 0.0, 1.0]}))
    with pytest.raises(DataError, match="the reward, is null"):
        score_rewards(path)
    path = write(tmp_path / "s.parquet", pa.table(TWO | {"score": [1.0, None, 1.0, 1.0]}))
    with pytest.raises(InputError, match="0 and nan in row 1"):
        score_rewards(path)


def test_lists_of_rewards_of_other_lengths_differ(tmp_path: Path) -> None:
    columns = {"prompt_id": ["a", "b"], "rewards": [[1.0, 0.0], [1.0]], "scores": [[1.0, 0.0], [1.0, 0.0]]}
    with pytest.raises(InputError, match="differ: 1 and 2 values in row 1"):
        score_rewards(write(tmp_path / "r.parquet", pa.table(columns)))


@pytest.mark.parametrize("lesser", ["final_reward", "task_rewards", "filtered_rewards", "is_correct", "acc", "verdict"])
def test_a_reward_of_an_earlier_rank_is_taken_unasked(tmp_path: Path, lesser: str) -> None:
    path = write(tmp_path / "r.parquet", pa.table({lesser: [9.0] * 4} | TWO))
    assert score_rewards(path).advantages.tolist() == [0.5, -0.5, 0.0, 0.0]


def test_two_rewards_of_a_later_rank_that_differ_are_asked_about(tmp_path: Path) -> None:
    columns = {"prompt_id": ["a", "a"], "final_reward": [1.0, 0.0], "task_reward": [1.0, 1.0]}
    with pytest.raises(InputError, match="--reward final_reward or --reward task_reward"):
        score_rewards(write(tmp_path / "r.parquet", pa.table(columns)))


def test_a_list_beside_a_reward_is_its_parts(tmp_path: Path) -> None:
    path = write(tmp_path / "r.parquet", pa.table(TWO | {"rewards": [[0.5, 0.5]] * 4}))
    assert score_rewards(path).advantages.tolist() == [0.5, -0.5, 0.0, 0.0]


def test_only_files_with_both_columns_are_compared_and_named(tmp_path: Path) -> None:
    paths = [
        write(tmp_path / "0.parquet", pa.table(TWO)),
        write(tmp_path / "1.parquet", pa.table(TWO | {"score": [1, 0, 1, 1]})),
    ]
    assert score_rewards(paths).statistics.size.tolist() == [4, 4]
    paths.append(write(tmp_path / "2.parquet", pa.table(TWO | {"score": [0, 0, 1, 1]})))
    with pytest.raises(InputError, match=r"2\.parquet: reward and score could"):
        score_rewards(paths)


def test_ids_that_tell_other_groups_are_asked_about(tmp_path: Path) -> None:
    columns = TWO | {"task_id": [1, 1, 1, 1]}
    path = write(tmp_path / "r.parquet", pa.table(columns))
    said = "prompt_id and task_id could each be the group, and tell different groups, 2 and 1 of them. "
    with pytest.raises(InputError, match=said + "Add --group prompt_id or --group task_id$"):
        score_rewards(path)
    assert score_rewards(path, group="task_id").statistics.size.tolist() == [4]


def test_ids_that_tell_the_same_groups_are_no_doubt(tmp_path: Path) -> None:
    """Whatever the ids are; an index that starts again in each step tells the same as one that does not."""
    assert grouped(tmp_path, **TWO, problem_id=[7, 7, 3, 3]) == ("prompt_id", [2, 2])
    steps = {"step": [1, 1, 2, 2], "group_id": [5, 5, 6, 6], "group_idx": [0, 0, 0, 0], "reward": [1.0, 0.0, 1.0, 1.0]}
    assert grouped(tmp_path, **steps) == ("group_id", [2, 2])


def test_an_id_of_groups_is_taken_before_one_of_prompts_unasked(tmp_path: Path) -> None:
    assert grouped(tmp_path, **TWO, group_id=[1, 2, 2, 1]) == ("group_id", [2, 2])


@pytest.mark.parametrize("scope", ["env_name", "dataset", "split", "run_id"])
def test_ids_that_repeat_across_environments_are_asked_about(tmp_path: Path, scope: str) -> None:
    path = write(tmp_path / "r.parquet", pa.table(TWO | {"prompt_id": [0, 0, 0, 0], scope: ["x", "x", "y", "y"]}))
    with pytest.raises(
        InputError, match=rf"differ in {scope}.*add --group {scope} --group prompt_id, else --group prompt_id$"
    ):
        score_rewards(path)
    assert score_rewards(path, group=(scope, "prompt_id")).statistics.size.tolist() == [2, 2]
    assert score_rewards(path, group="prompt_id").statistics.size.tolist() == [4]
    path = write(tmp_path / "s.parquet", pa.table(TWO | {scope: ["x", "x", "y", "y"]}))
    assert score_rewards(path).statistics.size.tolist() == [2, 2]


def test_an_index_of_answers_is_not_taken_for_groups_in_silence(tmp_path: Path) -> None:
    columns = {"index": [0, 1, 0, 1], "prompt": ["p", "p", "q", "q"], "reward": [1.0, 0.0, 1.0, 1.0]}
    with pytest.raises(InputError, match=r"answers of one index differ in prompt\. Add --group index or --group prompt"):
        grouped(tmp_path, **columns)
    assert grouped(tmp_path, **columns | {"index": [4, 4, 5, 5]}) == ("index", [2, 2])


def test_two_columns_of_log_probs_of_one_rank_are_asked_about(tmp_path: Path) -> None:
    """By their names alone; where one is of an earlier rank it is taken."""
    lists = pa.array([[-1.0], [-1.0]])
    table = tokens_table([[-1.0], [-1.0]], [[-1.0], [-1.0]])
    assert score(write(tmp_path / "r.parquet", table.append_column("log_probs", lists))).rows[0]["tokens"] == 2
    assert score(write(tmp_path / "r.parquet", table.append_column("trainer_logprobs", lists))).rows[0]["tokens"] == 2
    path = write(tmp_path / "r.parquet", table.append_column("logp_old", lists))
    with pytest.raises(InputError, match=r"be the old log-probs\. Add --logp-old old_logprobs or --logp-old logp_old$"):
        score(path)
    assert score(path, logp_old="logp_old").rows[0]["columns"]["logp_old"] == "logp_old"
    assert score_rewards(path).statistics.size.tolist() == [2], "rewards need no log-probs"
    samplers = table.append_column("logprobs", lists).append_column("rollout_logprobs", lists)
    assert opened(write(tmp_path / "s.parquet", samplers)).columns()["logp_sampler"] == "rollout_logprobs"


def test_missing_log_probs_are_named_with_what_was_taken(tmp_path: Path) -> None:
    table = tokens_table([[-1.0]], [[-1.0]]).rename_columns(["group_id", "reward", "logprobs", "input_logprobs"])
    with pytest.raises(
        InputError, match=r"new and old log-probs.*\(logprobs counts.*them with --logp-new COL --logp-old COL;"
    ):
        score(write(tmp_path / "r.parquet", table))


def test_columns_of_nulls_only_give_way(tmp_path: Path) -> None:
    """A reward that was never written, and a mask: the writer has no other tokens."""
    nulls = pa.nulls(2)
    table = tokens_table([[-1.0], [-1.0]], [[-1.0], [-1.0]]).rename_columns(["group_id", "score", "logp_new", "logp_old"])
    path = write(tmp_path / "r.parquet", table.append_column("reward", nulls).append_column("loss_mask", nulls))
    (row,) = score(path).rows
    assert (row["tokens"], row["columns"]["reward"]) == (2, "score")
    assert "mask" not in row["columns"]


def test_in_a_file_of_prompts_the_row_is_the_group(tmp_path: Path) -> None:
    """Texts and ids of anything name it, if none comes twice; ids of prompts and steps count as ever."""
    rewards = {"rewards": [[1.0, 0.0], [1.0, 1.0, 0.0]]}
    for name in ("uuid", "id", "prompt", "problem"):
        assert grouped(tmp_path, **rewards, **{name: ["a", "b"]}) == (name, [2, 3])
        assert grouped(tmp_path, **rewards, **{name: ["a", "a"]}) == (ROW, [2, 3])
        assert grouped(tmp_path, **rewards, **{name: ["a", "a"]}, step=[1, 2]) == (name, [2, 3])
    assert grouped(tmp_path, **rewards, prompt_id=["a", "a"]) == ("prompt_id", [5])
    assert grouped(tmp_path, **rewards, prompt=[[1, 2], [3, 4]]) == ("prompt", [2, 3]), (
        "tokens of a prompt, not its answers'"
    )


def test_in_a_file_of_batches_the_ids_are_lists(tmp_path: Path) -> None:
    batches = {"scores": [[1.0, 0.0, 1.0, 1.0], [1.0, 0.0]]}
    texts = {"prompt": [["p", "p", "q", "q"], ["p", "p"]]}
    assert grouped(tmp_path, **batches, **texts) == ("prompt", [4, 2])
    assert grouped(tmp_path, **batches, **texts, step=[[1] * 4, [2] * 2]) == ("prompt", [2, 2, 2])
    assert grouped(tmp_path, **batches, **texts, global_step=[1, 2]) == ("prompt", [2, 2, 2])
    assert grouped(tmp_path, **batches, **texts, id=[[1, 2, 1, 2], [3, 3]]) == ("id", [2, 2, 2])
    assert grouped(tmp_path, **batches, **texts, id=[[1, 2, 3, 4], [5, 6]]) == ("prompt", [4, 2]), "ids of answers"
    with pytest.raises(DataError, match="the lists scores and prompt have different lengths"):
        grouped(tmp_path, **batches, prompt=[["p", "q"], ["p", "p"]])


@pytest.mark.parametrize("text", ["completion", "response", "output_response"])
def test_a_list_of_rewards_beside_one_text_is_a_reward_a_token(tmp_path: Path, text: str) -> None:
    columns = {"prompt": ["p", "p"], text: ["a", "b"], "score": [[0.0, 1.0], [0.0]]}
    with pytest.raises(
        InputError, match=f"score holds a list of numbers a row and {text} one text: is it a reward for each"
    ):
        grouped(tmp_path, **columns)


def test_paths_lead_into_lists_of_structs(tmp_path: Path) -> None:
    """A null list, struct or field on the way is null; a row is then a prompt."""
    turns = [[{"r": {"s": 1.0}, "t": [-1.0]}, {"r": {"s": 0.0}, "t": []}], [{"r": {"s": 0.5}, "t": [-2.0, -3.0]}]]
    table = pa.table({"id": ["a", "b"], "turns": turns})
    for suffix in ("parquet", "arrow", "jsonl"):
        path = write(tmp_path / f"r.{suffix}", table)
        assert score_rewards(path, reward="turns.r.s").advantages.tolist() == [0.5, -0.5, 0.0]
        columns = {"logp_new": "turns.t", "logp_old": "turns.t", "reward": "turns.r.s"}
        assert score(path, **columns).rows[0]["tokens"] == 3
    nulls = [[{"r": None}, {"r": {"s": 0.0}}, None], [{"r": {"s": None}}]]
    path = write(tmp_path / "n.parquet", pa.table({"id": ["a", "b"], "turns": nulls}))
    with pytest.raises(DataError, match=r"is null, rows 0, 2, 3 \(3 in all\)"):
        score_rewards(path, reward="turns.r.s")


def test_masks_that_are_not_read_are_said_by_inspect(tmp_path: Path) -> None:
    table = tokens_table([[-1.0]], [[-1.0]]).append_column("tool_mask", pa.array([[1]]))
    path = write(tmp_path / "r.parquet", table.append_column("remove_sample", pa.array([True])))
    said = {p["code"]: p["message"] for p in inspect_rollouts(opened(path)).record["problems"]}
    assert said["unread_masks"].startswith("tool_mask, remove_sample may leave out more")
    said = {p["code"]: p["message"] for p in inspect_rollouts(opened(path, mask="tool_mask")).record["problems"]}
    assert said["unread_masks"].startswith("remove_sample may leave out more")


def test_a_reward_inside_a_struct_is_named(tmp_path: Path) -> None:
    ids = {"prompt_id": ["a", "a"]}
    path = write(tmp_path / "r.parquet", pa.table(ids | {"reward": [{"why": "x", "acc": 1.0}, {"why": "y", "acc": 0.0}]}))
    with pytest.raises(InputError, match=r"Name one of its fields, as in --reward reward\.acc$"):
        score_rewards(path)
    assert score_rewards(path, reward="reward.acc").advantages.tolist() == [0.5, -0.5]
    path = write(tmp_path / "s.parquet", pa.table(ids | {"meta": [{"judge": {"score": 1.0}}] * 2}))
    with pytest.raises(InputError, match=r"no column for the reward.*perhaps --reward meta\.judge\.score;"):
        score_rewards(path)


def test_a_name_in_another_case_is_no_rival(tmp_path: Path) -> None:
    """`reward` is the reward, whatever `Reward` holds; a synonym that differs is asked about in any case."""
    table = rewards_table(["a", "a"], [1.0, 0.0], Reward=[9.0, 9.0])
    assert score_rewards(write(tmp_path / "r.parquet", table)).table.rewards.tolist() == [1.0, 0.0]
    other = rewards_table(["a", "a"], [1.0, 0.0], Score=[9.0, 9.0])
    with pytest.raises(InputError, match="--reward reward or --reward Score"):
        score_rewards(write(tmp_path / "r.parquet", other))
