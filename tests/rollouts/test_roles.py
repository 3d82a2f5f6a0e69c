"""Which column plays which role, by name, by option, by path, and what is said where none can."""

import itertools
import random
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from olmorl_cli.errors import DataError, InputError
from olmorl_cli.rollouts.roles import ROLES, found_by_name, resolve
from tests.rollouts.builders import arrow, kinds, opened, rewards_table, score, score_rewards, tokens_table, write

NAMES = {
    "group": """group_id group_uid group_index group_idx prompt_id problem_id example_id task_id _ng_task_index question_id
        data_id instance_id qid prompt_idx problem_idx prompt_hash task_hash uid unique_id uuid id index
        prompt input query question problem input_prompt instruction prompts queries
        prompt_ids prompt_tokens prompt_token_ids input_tokens""",
    "step": "step global_step training_step train_step iteration gen_step",
    "reward": """reward rewards total_reward score scores scalar_reward reward_score final_reward task_reward task_rewards
        filtered_rewards is_correct correct acc accuracy passed verdict""",
    "logp_new": """new_logprobs new_log_probs logp_new new_logp trainer_logprobs policy_logprobs current_logprobs
        per_token_logps action_log_probs log_probs""",
    "logp_old": "old_logprobs old_log_probs logp_old old_logp old_per_token_logps prev_logprobs",
    "logp_sampler": """rollout_logprobs rollout_log_probs inference_logprobs generation_logprobs generation_log_probs
        sampling_logprobs sampling_per_token_logps vllm_logprobs behavior_logprobs output_logprobs completion_logprobs
        logprobs logps""",
    "mask": """loss_mask loss_masks completion_mask response_mask token_loss_mask action_mask assistant_mask assistant_masks
        new_response_mask mask masks labels""",
}
"""Names by role in the order in which they are tried (the table of names that real trainers write)."""

TYPES = {"group": pa.string(), "step": pa.int64(), "reward": pa.float64(), "mask": pa.list_(pa.int8())}
REFERENCES = [
    *("ref_logprobs", "ref_log_probs", "ref_log_prob", "reference_logprobs", "ref_per_token_logps"),
    *("base_action_log_probs", "teacher_log_probs", "input_logprobs", "topk_logprobs"),
]
LIST = pa.list_(pa.float64())


def chosen(role: str, *columns: str, kind: pa.DataType | None = None) -> str | None:
    """The column that plays the role in a file with these columns."""
    kind = kind or TYPES.get(role, LIST)
    found = found_by_name(ROLES[role], {"r.parquet": pa.schema([(name, kind) for name in columns])})
    return found and found.columns[0]


@pytest.mark.parametrize("role", NAMES)
def test_names_win_in_their_order_wherever_they_stand(role: str) -> None:
    names = NAMES[role].split()
    for first, second in itertools.pairwise(names):
        if role.startswith("logp") and ROLES[role].rank(first) == ROLES[role].rank(second):
            with pytest.raises(InputError, match=rf"Add --logp-{role[5:]} {first} or --logp-{role[5:]} {second}$"):
                chosen(role, second, "other", first)
        else:
            assert chosen(role, second, "other", first) == first
    if role.startswith("logp"):
        return
    shuffled = random.Random(1).sample(names, len(names))
    assert chosen(role, *shuffled) == names[0]
    assert found_by_name(ROLES[role], {"f": pa.schema([(n, TYPES.get(role, LIST)) for n in shuffled])}).others == tuple(
        name for name in ROLES[role].names if name in names[1:]
    )


@pytest.mark.parametrize(("role", "name"), [(role, name) for role, names in NAMES.items() for name in names.split()])
def test_every_name_alone_in_any_case(role: str, name: str) -> None:
    assert chosen(role, "other", name) == name
    assert chosen(role, "other", name.upper()) == name.upper()


def test_exact_names_win_over_those_in_another_case() -> None:
    assert chosen("reward", "Reward", "verdict") == "verdict"
    assert chosen("reward", "SCORE", "Reward") == "Reward"
    assert chosen("reward", "REWARD", "Reward") == "REWARD"


@pytest.mark.parametrize("name", ["my_reward", "reward2", "rewards_model", "re_ward", "reward "])
def test_parts_of_names_are_no_names(name: str) -> None:
    assert chosen("reward", name) is None


def test_what_looks_like_a_reward_and_is_none() -> None:
    names = ["average_reward", "mean_reward", "pass_rate", "passrate", "advantage", "advantages"]
    names += ["reward_model", "reward_components", "num_correct", "correct_count"]
    assert chosen("reward", *names) is None
    assert chosen("reward", *names, "acc") == "acc"


@pytest.mark.parametrize("name", REFERENCES)
def test_reference_log_probs_are_neither_new_nor_old(tmp_path: Path, name: str) -> None:
    assert chosen("logp_new", name) is None
    assert chosen("logp_old", name) is None
    assert chosen("logp_sampler", name) is None
    for missing, there in (("new", "old"), ("old", "new")):
        lists = {name: pa.array([[-1.0], [-2.0]]), f"{there}_logprobs": pa.array([[-1.0], [-2.0]])}
        path = write(tmp_path / "r.parquet", rewards_table(["a", "a"], [1.0, 0.0], **lists))
        with pytest.raises(InputError, match=f"no column for the {missing} log-probs.*--logp-{missing}.*{name}"):
            score(path)


def test_ids_that_never_repeat_are_of_answers_and_not_of_groups(tmp_path: Path) -> None:
    """uid, uuid, unique_id, id and index are the group only where their values repeat."""
    for name in ("uid", "unique_id", "uuid", "id", "index"):
        table = pa.table({name: [4, 5, 6, 7], "prompt": ["p", "p", "q", "q"], "reward": [1.0, 0.0, 0.0, 1.0]})
        assert score_rewards(write(tmp_path / f"{name}1.parquet", table)).rollouts.columns()["group"] == "prompt"
        table = table.set_column(0, name, pa.array([4, 4, 5, 5]))
        assert score_rewards(write(tmp_path / f"{name}2.parquet", table)).rollouts.columns()["group"] == name


def test_an_option_wins_over_names(tmp_path: Path) -> None:
    table = rewards_table(["a", "a"], [1.0, 1.0], mine=[0, 1], step=[1, 1], other=[5, 6])
    scored = score_rewards(write(tmp_path / "r.parquet", table), reward="mine")
    assert scored.table.rewards.tolist() == [0.0, 1.0]
    assert scored.rollouts.columns() == {"group": "group_id", "step": "step", "reward": "mine"}
    assert score_rewards(write(tmp_path / "r.parquet", table), step="other").table.steps.to_pylist() == [5, 6]


def test_several_rewards_are_added(tmp_path: Path) -> None:
    path = write(tmp_path / "r.parquet", rewards_table(["a", "a"], [1.0, 0.0], bonus=pa.array([True, True])))
    assert score_rewards(path, reward=("reward", "bonus")).table.rewards.tolist() == [2.0, 1.0]


STRUCT = pa.array([{"reward": 1.0, "judge": {"score": 3.0}}, {"reward": 0.0, "judge": {"score": 4.0}}])


def test_a_dotted_name_is_a_column_before_it_is_a_path(tmp_path: Path) -> None:
    columns = {"group_id": ["a", "a"], "meta": STRUCT, "meta.reward": [7.0, 8.0]}
    for suffix in ("parquet", "arrow"):
        path = write(tmp_path / f"r.{suffix}", pa.table(columns))
        assert score_rewards(path, reward="meta.reward").table.rewards.tolist() == [7.0, 8.0]
        assert score_rewards(path, reward="meta.judge.score").table.rewards.tolist() == [3.0, 4.0]
        path = write(tmp_path / f"s.{suffix}", pa.table({key: columns[key] for key in ("group_id", "meta")}))
        assert score_rewards(path, reward="meta.reward").table.rewards.tolist() == [1.0, 0.0]


def test_a_path_may_start_at_a_column_with_dots_in_its_name() -> None:
    schema = pa.schema([("a.b", pa.struct([("c", pa.float64())])), ("a", pa.struct([("b", pa.int64())]))])
    found = resolve("a.b.c", schema)
    assert (found.top, found.path) == ("a.b", ("c",))
    assert resolve("a.b", schema).path == ()
    assert resolve("a.c", schema) is None
    assert resolve("a.b.c.d", schema) is None
    assert resolve("A.b", schema) is None


@pytest.mark.parametrize("suffix", ["parquet", "arrow", "arrows"])
def test_a_null_struct_hides_what_its_fields_hold(tmp_path: Path, suffix: str) -> None:
    fields = [pa.array([1.0, 9.0, 0.0]), pa.array([[-1.0], [-9.0], [-2.0]])]
    struct = pa.StructArray.from_arrays(fields, ["reward", "new"], mask=pa.array([False, True, False]))
    table = pa.table({"group_id": ["a"] * 3, "meta": struct, "old_logprobs": pa.array([[-1.0], None, [-2.0]], LIST)})
    path = write(tmp_path / f"r.{suffix}", table)
    columns = {"reward": "meta.reward", "logp_new": "meta.new"}
    with pytest.raises(DataError) as caught:
        score(path, **columns)
    found = kinds(caught.value)
    assert {code: [place.row for place in kind.places] for code, kind in found.items()} == {
        "null_reward": [1],
        "null_list_logp_new": [1],
        "null_list_logp_old": [1],
    }
    (row,) = score(path, skip=True, **columns).rows
    assert (row["tokens"], row["objective"], row["columns"]["logp_new"]) == (2, 0.0, "meta.new")


def test_all_columns_may_lie_in_one_struct(tmp_path: Path) -> None:
    struct = pa.array([{"g": "a", "r": 1, "n": [-1.0, -1.0], "o": [-1.0, -2.0], "m": [1, 0]}, {"g": "a", "r": 0}])
    path = write(tmp_path / "r.parquet", pa.table({"rollout": struct}).slice(0, 1))
    columns = {role: f"rollout.{key}" for role, key in zip(("group", "reward", "logp_new", "logp_old", "mask"), "grnom")}  # noqa: B905
    (row,) = score(path, **columns).rows
    assert (row["tokens"], row["ratio_max"]) == (1, None)
    assert row["columns"] == columns


@pytest.mark.parametrize("role", ["group", "reward", "step", "mask", "logp_new", "logp_sampler"])
def test_a_missing_column_is_answered_with_those_there_are(tmp_path: Path, role: str) -> None:
    path = write(tmp_path / "r.parquet", tokens_table([[-1.0]], [[-1.0]]))
    with pytest.raises(InputError, match=r"no column rewart\..*group_id, reward, new_logprobs, old_logprobs.*mean reward\?"):
        opened(path, **{role: "rewart"})


@pytest.mark.parametrize("role", ["group", "reward", "logp_new", "logp_old"])
def test_a_role_that_nothing_plays_is_answered_with_its_option_and_the_columns(tmp_path: Path, role: str) -> None:
    table = tokens_table([[-1.0]], [[-1.0]])
    name = {"group": "group_id", "reward": "reward", "logp_new": "new_logprobs", "logp_old": "old_logprobs"}[role]
    path = write(tmp_path / "r.parquet", table.drop_columns([name]))
    others = ".*".join(other for other in table.column_names if other != name)
    with pytest.raises(InputError, match=f"--{role.replace('_', '-')} COL.*{others}"):
        opened(path)


@pytest.mark.parametrize("lacking", [0, 1])
@pytest.mark.parametrize("name", ["reward", "group_id", "new_logprobs", "loss_mask", "step"])
def test_every_file_must_have_the_column(tmp_path: Path, name: str, lacking: int) -> None:
    more = {"loss_mask": pa.array([[1]]), "step": [0]}
    tables = [tokens_table([[-1.0]], [[-1.0]], **more)] * 2
    tables[lacking] = tables[lacking].drop_columns([name])
    paths = [write(tmp_path / f"{number}.parquet", table) for number, table in enumerate(tables)]
    with pytest.raises(InputError, match=rf"{lacking}\.parquet: no column {name}"):
        opened(paths)


@pytest.mark.parametrize(
    ("role", "values"),
    [
        ("reward", pa.array(["1.0"])),
        ("reward", pa.array(["1.0"]).dictionary_encode()),
        ("reward", pa.array([0], pa.timestamp("us"))),
        ("reward", pa.array([{"x": 1.0}])),
        ("logp_new", pa.array([-1.0])),
        ("logp_new", pa.array([["-1.0"]])),
        ("logp_old", pa.array(["[-1.0]"])),
        ("logp_sampler", pa.array([[{"x": 1.0}]])),
        ("mask", pa.array([1])),
        ("mask", pa.array([["1"]])),
        ("group", pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64()))),
    ],
    ids=lambda value: str(getattr(value, "type", value)),
)
def test_types_that_cannot_play_the_role_are_refused(tmp_path: Path, role: str, values: pa.Array) -> None:
    """By option and by name, with the file, the column, its type and the option."""
    name = NAMES[role].split()[0]
    table = tokens_table([[-1.0]], [[-1.0]])
    table = table.drop_columns([name]) if name in table.column_names else table
    for column, options in (("odd", {role: "odd"}), (name, {})):
        path = write(tmp_path / f"{column}.parquet", table.append_column(column, values))
        with pytest.raises(InputError) as caught:
            opened(path, **options)
        said = str(caught.value)
        assert said.startswith(f"{path}: column {column} ")
        assert str(values.type).split("<")[0] in said
        assert f"--{role.replace('_', '-')}" in said


def test_a_column_of_the_name_but_another_type_is_passed_over() -> None:
    schema = pa.schema([("reward", pa.struct([("style", pa.string())])), ("score", pa.float32())])
    assert found_by_name(ROLES["reward"], {"r.parquet": schema}).columns == ("score",)


OTHERS = [("labels", [["tag"]]), ("labels", ["a"]), ("logprobs", [[{"token": "a", "logprob": -1.0}]])]


@pytest.mark.parametrize(("name", "values"), OTHERS, ids=str)
def test_other_things_of_common_names_play_no_role_that_need_not_be(tmp_path: Path, name: str, values: list[object]) -> None:
    table = tokens_table([[-1.0]], [[-1.0]]).append_column(name, pa.array(values))
    assert score(write(tmp_path / "r.parquet", table)).rows[0]["tokens"] == 1


@pytest.mark.parametrize("kind", [pa.bool_(), pa.int8(), pa.uint64(), pa.float16(), pa.decimal128(3, 1), pa.float32()])
def test_rewards_of_every_number_type(tmp_path: Path, kind: pa.DataType) -> None:
    ones = {pa.bool_(): [True, False], pa.decimal128(3, 1): [Decimal(1), Decimal(0)]}
    rewards = arrow(ones.get(kind, [1, 0]), kind)
    scored = score_rewards(write(tmp_path / "r.arrow", rewards_table(["a", "a"], rewards)))
    assert scored.advantages.tolist() == [0.5, -0.5]


def test_whole_numbers_serve_as_log_probs(tmp_path: Path) -> None:
    table = tokens_table([[-1, -2]], [[-1.0, -2.0]]).set_column(2, "new_logprobs", pa.array([[-1, -2]], pa.list_(pa.int8())))
    assert score(write(tmp_path / "r.parquet", table)).rows[0]["tokens"] == 2


def test_two_columns_of_one_name_are_refused_before_anything_is_read(tmp_path: Path) -> None:
    table = pa.table([["a"], [1.0], [9.0]], names=["group_id", "reward", "reward"])
    path = write(tmp_path / "r.parquet", table)
    with pytest.raises(DataError, match="2 columns are called reward") as caught:
        score_rewards(path)
    assert kinds(caught.value)["duplicate_column"].file == path
