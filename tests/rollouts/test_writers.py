"""Layouts of real writers, each on a small file of its kind: Hive folders, TRL, one row a prompt, one-element lists."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from olmorl_cli.core.recipes import Recipe
from olmorl_cli.errors import DataError, InputError
from olmorl_cli.objectives import score_objective
from olmorl_cli.rollouts.opening import open_rollouts
from olmorl_cli.rollouts.rollouts import Selection
from olmorl_cli.scoring import ScoredAnswers, score_answers

SMALL = frozenset({"group", "step", "reward", "answer"})
TOKENS = SMALL | {"logp_new", "logp_old", "mask"}


def write(path: Path, columns: dict[str, object]) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)
    return str(path)


def scored(*paths: str, needs: frozenset[str] = SMALL, **selection: object) -> ScoredAnswers:
    return score_answers(open_rollouts(paths, Selection(**selection), needs), Recipe())  # type: ignore[arg-type]


def test_hive_folders_are_columns_that_the_file_lacks(tmp_path: Path) -> None:
    """Steps 2 and 10 in this order, as numbers; one prompt in both is two groups."""
    for step in (10, 2):
        write(tmp_path / f"step={step}" / "part.parquet", {"prompt_id": ["a", "a"], "reward": [1.0, 0.0]})
    table = scored(str(tmp_path)).table
    assert table.steps is not None
    assert table.steps.to_pylist() == [2, 10]
    assert table.groups.tolist() == [0, 0, 1, 1]
    write(tmp_path / "step=10" / "part.parquet", {"step": [7, 7], "prompt_id": ["a", "a"], "reward": [1.0, 0.0]})
    table = scored(str(tmp_path)).table
    assert table.steps is not None
    assert table.steps.to_pylist() == [2, 7], "the file's own column wins"


def test_hive_values_of_words_are_text_and_percent_signs_are_undone(tmp_path: Path) -> None:
    for name in ("step=one%2Ftwo", "step=3"):
        write(tmp_path / name / "part.parquet", {"prompt_id": ["a"], "reward": [1.0]})
    table = scored(str(tmp_path)).table
    assert table.steps is not None
    assert set(table.steps.to_pylist()) == {"one/two", "3"}


def trl(**rewards: list[float]) -> dict[str, object]:
    return {"step": [5] * 4, "prompt": ["p", "p", "q", "q"], "completion": list("wxyz"), **rewards, "advantage": [0.0] * 4}


def test_trl_one_reward_function_is_the_reward(tmp_path: Path) -> None:
    answers = scored(write(tmp_path / "completions_00005.parquet", trl(accuracy_reward=[1.0, 0.0, 1.0, 1.0])))
    assert answers.advantages.tolist() == [0.5, -0.5, 0.0, 0.0]
    assert answers.rollouts.columns()["group"] == "prompt"
    assert answers.rollouts.columns()["reward"] == "accuracy_reward"


def test_trl_several_reward_functions_must_be_named_and_are_summed(tmp_path: Path) -> None:
    path = write(tmp_path / "c.parquet", trl(first=[1.0, 0.0, 0.0, 0.0], second=[0.5, 0.5, 1.0, 0.0]))
    with pytest.raises(InputError, match=r"--reward first --reward second"):
        scored(path)
    assert scored(path, columns={"reward": ("first", "second")}).advantages.tolist() == [0.5, -0.5, 0.5, -0.5]
    assert scored(path, columns={"reward": ("first", "second*0.5")}).advantages.tolist() == [0.5, -0.5, 0.25, -0.25]
    assert scored(path, columns={"reward": ("first*-2",)}).advantages.tolist() == [-1.0, 1.0, 0.0, 0.0]
    literal = write(tmp_path / "l.parquet", {"prompt_id": ["a", "a"], "r*2": [1.0, 0.0], "r": [5.0, 5.0]})
    assert scored(literal, columns={"reward": ("r*2",)}).advantages.tolist() == [0.5, -0.5]
    with pytest.raises(InputError, match=r"no column second\*half"):
        scored(path, columns={"reward": ("second*half",)})


def test_trl_columns_of_lists_are_no_reward_functions(tmp_path: Path) -> None:
    """Of a user; in a file with a step a row, lists are."""
    columns = trl(first=[1.0, 0.0, 0.0, 0.0], weights=[[0.5, 0.5]] * 4)
    assert scored(write(tmp_path / "c.parquet", columns)).advantages.tolist() == [0.5, -0.5, 0.0, 0.0]
    step = {name: [values] for name, values in trl(first=[1.0, 0.0, 1.0, 1.0]).items()}
    assert scored(write(tmp_path / "s.parquet", {**step, "loss": [0.25]})).advantages.tolist() == [0.5, -0.5, 0.0, 0.0]
    step = {name: [values] for name, values in trl(first=[1.0, 0.0, 1.0, 1.0], second=[0.0] * 4).items()}
    with pytest.raises(InputError, match=r"--reward first --reward second"):
        scored(write(tmp_path / "t.parquet", step))


def test_one_row_a_prompt_is_a_row_for_each_answer(tmp_path: Path) -> None:
    """The same figures as with the answers in rows of their own, with and without an id, in a struct too."""
    new, old = [[[-0.5, -1.0], [-0.25]], [[], [-2.0]]], [[[-0.75, -1.0], [-0.5]], [[], [-1.5]]]
    mask = [[[1, 1], [1]], [[], [1]]]
    rewards = [[1.0, 0.0], [0.5, 1.0]]
    flat = {
        "prompt_id": ["a", "a", "b", "b"],
        "reward": [1.0, 0.0, 0.5, 1.0],
        "new_logprobs": new[0] + new[1],
        "old_logprobs": old[0] + old[1],
        "mask": mask[0] + mask[1],
    }
    nested = {"prompt_id": ["a", "b"], "rewards": rewards, "new_logprobs": new, "old_logprobs": old, "mask": mask}
    figures = []
    for columns in (flat, nested, {k: v for k, v in nested.items() if k != "prompt_id"}):
        rollouts = open_rollouts([write(tmp_path / "r.parquet", columns)], Selection(), TOKENS)
        (row,) = score_objective(rollouts, [Recipe()])[0].rows
        figures.append({key: value for key, value in row.items() if key != "columns"})
    assert figures[0] == figures[1] == figures[2]
    assert (figures[0]["answers"], figures[0]["groups"], figures[0]["tokens"]) == (4, 2, 4)
    struct = {"id": ["a", "b"], "rollout": [{"labels": [True, False]}, {"labels": [True, True]}]}
    answers = scored(write(tmp_path / "s.parquet", struct), columns={"group": ("id",), "reward": ("rollout.labels",)})
    assert answers.advantages.tolist() == [0.5, -0.5, 0.0, 0.0]


def test_lists_of_another_length_than_the_rewards_are_refused(tmp_path: Path) -> None:
    nested = {"prompt_id": ["a"], "rewards": [[1.0, 0.0]], "new_logprobs": [[[-1.0]]], "old_logprobs": [[[-1.0], [-1.0]]]}
    rollouts = open_rollouts([write(tmp_path / "r.parquet", nested)], Selection(), TOKENS)
    with pytest.raises(DataError, match=r"rewards and new_logprobs have different lengths \(2 and 1 in row 0"):
        score_objective(rollouts, [Recipe()])


def test_a_null_list_of_rewards_is_refused(tmp_path: Path) -> None:
    """An empty one is a prompt without answers."""
    columns = {"prompt": ["p", "q", "r"], "reward": [[1.0, 0.0], None, []]}
    with pytest.raises(DataError, match=r"null list.*row 1 \(1 in all\)"):
        scored(write(tmp_path / "r.parquet", columns))
    assert scored(write(tmp_path / "e.parquet", columns | {"reward": [[1.0, 0.0], [], []]})).statistics.size.tolist() == [2]


def test_ids_of_prompts_requests_and_lists_of_answers(tmp_path: Path) -> None:
    """One id for all answers of a group is no answer's id; in a row a prompt, a list of ids has one an answer."""
    request = {"prompt_id": ["a", "a"], "reward": [1.0, 0.0], "request_id": ["r", "r"]}
    assert scored(write(tmp_path / "r.parquet", request)).advantages.tolist() == [0.5, -0.5]
    row = {"prompt": ["p", "q"], "reward": [[1.0, 0.0], [1.0, 0.0]]}
    assert scored(write(tmp_path / "s.parquet", row | {"rollout_id": ["r1", "r2"]})).statistics.size.tolist() == [2, 2]
    listed = row | {"rollout_id": [["r1", "r2"], ["r3", "r3"]]}
    with pytest.raises(DataError, match=r"stands in its group before, row 3 \(1 in all\)"):
        scored(write(tmp_path / "l.parquet", listed))
    twice = write(tmp_path / "t.parquet", {"prompt_id": ["a"] * 3, "reward": [1.0, 0.0, 1.0], "answer_id": [1, 1, 2]})
    assert scored(twice, columns={"answer": ("none",)}).statistics.size.tolist() == [3]


def test_hive_folders_count_in_patterns_and_named_paths(tmp_path: Path) -> None:
    for step in (2, 10):
        write(tmp_path / f"step={step}" / "part.parquet", {"prompt_id": ["a", "a"], "reward": [1.0, 0.0]})
    whole = scored(str(tmp_path)).statistics.size.tolist()
    for paths in (
        [str(tmp_path / "step=*")],
        [str(tmp_path / "*" / "*.parquet")],
        [str(tmp_path / f"step={n}") for n in (2, 10)],
    ):
        assert scored(*paths).statistics.size.tolist() == whole == [2, 2]


def test_one_element_lists_take_consecutive_groups(tmp_path: Path) -> None:
    columns = {"rewards": [[1.0], [0.0], [1.0], [1.0]], "prev_logprobs": [[[-1.0]]] * 4}
    path = write(tmp_path / "train_data_step1.parquet", columns)
    assert scored(path, group_size=2).advantages.tolist() == [0.5, -0.5, 0.0, 0.0]


def test_a_reward_for_each_token_is_not_taken_for_a_row_a_prompt(tmp_path: Path) -> None:
    columns = {"prompt_id": ["a"], "score": [[0.0, 1.0]], "old_logprobs": [[-1.0, -2.0]]}
    with pytest.raises(InputError, match="a reward for each token"):
        scored(write(tmp_path / "r.parquet", columns))


def test_masks_of_label_ids_mask_minus_100(tmp_path: Path) -> None:
    """-100 is masked, every token id is real, 0 too."""
    columns = {
        "prompt_id": ["a", "a"],
        "reward": [1.0, 0.0],
        "new_logprobs": [[9.0, -1.0, -1.0], [-1.0, 9.0, -1.0]],
        "old_logprobs": [[9.0, -1.0, -1.0], [-1.0, 9.0, -1.0]],
        "masks": [[-100, 0, 512], [7, -100, 1]],
    }
    rollouts = open_rollouts([write(tmp_path / "r.parquet", columns)], Selection(), TOKENS)
    (row,) = score_objective(rollouts, [Recipe()])[0].rows
    assert (row["tokens"], row["objective"]) == (4, 0.0)


@pytest.mark.parametrize("name", ["answer_id", "sample_idx"])
def test_an_answer_twice_in_its_group_is_refused(tmp_path: Path, name: str) -> None:
    """Its id may come again in another group; a null id says nothing."""
    fine = {"prompt_id": ["a", "a", "b", "b", "b"], "reward": [1.0, 0.0, 1.0, 1.0, 0.0], name: [0, 1, 0, None, None]}
    assert scored(write(tmp_path / "r.parquet", fine)).statistics.size.tolist() == [2, 3]
    with pytest.raises(DataError, match=rf"{name}, the answer's id, stands in its group before, rows 1, 4 \(2 in all\)"):
        scored(write(tmp_path / "r.parquet", fine | {name: [0, 0, 0, 1, 1]}))


def compact_columns(new: list[list[float]], mask: list[list[int]]) -> dict[str, object]:
    return {"prompt_id": ["a", "a"], "reward": [1.0, 0.0], "new_logprobs": new, "old_logprobs": new, "mask": mask}


def test_compact_log_probs_are_named_and_accepted_only_when_asked_for(tmp_path: Path) -> None:
    """Two log-probs for a mask of 1 0 1, one for 0 1: three real tokens."""
    path = write(tmp_path / "r.parquet", compact_columns([[-1.0, -2.0], [-3.0]], [[1, 0, 1], [0, 1]]))
    with pytest.raises(DataError, match="--accept compact"):
        score_objective(open_rollouts([path], Selection(), TOKENS), [Recipe()])
    (row,) = score_objective(open_rollouts([path], Selection(compact=True), TOKENS), [Recipe()])[0].rows
    assert (row["tokens"], row["objective"]) == (3, (0.5 * 2 - 0.5) / 3)
    wrong = write(tmp_path / "w.parquet", compact_columns([[-1.0, -2.0], [-3.0]], [[1, 0, 1], [1, 1]]))
    with pytest.raises(DataError, match=r"row 0 \(new_logprobs 2, mask 3\); row 1 \(new_logprobs 1, mask 2\)"):
        score_objective(open_rollouts([wrong], Selection(compact=True), TOKENS), [Recipe()])


def test_a_mask_longer_by_one_is_named_as_such(tmp_path: Path) -> None:
    path = write(tmp_path / "r.parquet", compact_columns([[-1.0, -2.0], [-3.0]], [[1, 1, 1], [1, 1]]))
    with pytest.raises(DataError, match="longer by one"):
        score_objective(open_rollouts([path], Selection(), TOKENS), [Recipe()])
