"""Real and odd files of a folder `shared/data` beside the repository: what the commands make of each, without options."""

import pytest

from tests.cli import kit
from tests.readme import ROOT

DATA = ROOT.parent / "shared" / "data"
ROLLOUTS = DATA / "rollouts"
pytestmark = pytest.mark.skipif(not ROLLOUTS.is_dir(), reason="shared/data is not beside the repository")

OBJECTIVE, OVER_ALL = -0.1231629983782858, -0.029932043430579418
"""Of one run's 64 answers in every layout: over 61 tokens of 2 kept groups, and over all 251."""
SAME = sorted(
    path.name
    for pattern in ("answers_*", "padded_*", "nested_per_prompt*", "hive", "trl_bf16_answers*")
    for path in ROLLOUTS.glob(pattern)
    if "two_scorings" not in path.name
)
GROUPS = {
    "trl_completions": ([8] * 8, 2),
    "open_instruct_layout.parquet": ([8] * 8, 2),
    "open_instruct_rollouts_000000.jsonl": ([8] * 8, 2),
    "art": ([8] * 8, 2),
    "verl_dump_1.jsonl": ([8] * 8, 0),
    "intellect2_layout.parquet": ([8] * 8, 2),
    "atropos_groups_nested.parquet": ([4] * 6, None),
    "nemo_gym_blackjack.parquet": ([5], 1),
}
"""Sizes of the groups, and how many are kept."""
READABLE = {"jsonl_named.parquet", "one_byte_flipped.parquet"}
"""Files of `bad` with good rows: JSON Lines in spite of the name, and one without checksums."""


Ends = dict[tuple[str, ...], kit.Done]


@pytest.fixture(scope="module")
def ends() -> Ends:
    """How each command of these tests ends."""
    commands = [("objective", name) for name in SAME]
    commands += [("groups", name) for name in GROUPS]
    commands += [("groups", "nemo_rl_layout.parquet", "-G", "8"), ("groups", "nemo_rl_layout.parquet")]
    commands += [("objective", "answers_two_scorings_per_answer.parquet"), ("objective", "intellect2_layout.parquet")]
    paths = [tuple(str(ROLLOUTS / word) if (ROLLOUTS / word).exists() else word for word in words) for words in commands]
    return dict(zip(commands, kit.run_in_turn(paths), strict=True))


@pytest.mark.parametrize("name", SAME)
def test_the_same_rollouts_in_every_layout_have_the_same_objective(ends: Ends, name: str) -> None:
    row = ends["objective", name].row
    tolerance = 0.02 if "float16" in name else 1e-12
    assert row["objective"] == pytest.approx(OBJECTIVE, rel=tolerance)
    assert row["objective_all_groups"] == pytest.approx(OVER_ALL, rel=tolerance)
    assert (row["answers"], row["groups"], row["kept_groups"], row["kept_tokens"], row["tokens"]) == (64, 8, 2, 61, 251)


def test_there_are_all_of_them() -> None:
    assert len(SAME) >= 12


@pytest.mark.parametrize("name", GROUPS)
def test_groups_are_found_without_options(ends: Ends, name: str) -> None:
    sizes, kept = GROUPS[name]
    rows = ends["groups", name].rows
    assert [row["size"] for row in rows] == sizes
    assert kept is None or sum(row["kept"] for row in rows) == kept


def test_lists_of_one_take_the_group_size(ends: Ends) -> None:
    assert [row["size"] for row in ends["groups", "nemo_rl_layout.parquet", "-G", "8"].rows] == [8, 8]
    assert "Take N consecutive answers a group with -G N" in ends["groups", "nemo_rl_layout.parquet"].err


def test_answers_that_come_twice_are_refused(ends: Ends) -> None:
    done = ends["objective", "answers_two_scorings_per_answer.parquet"]
    assert (done.code, done.out) == (1, b"")
    assert "answer_id, the answer's id, stands in its group before" in done.err
    assert "--step" in done.err


def test_missing_log_probs_are_named(ends: Ends) -> None:
    done = ends["objective", "intellect2_layout.parquet"]
    assert (done.code, done.out) == (2, b"")
    assert "no column for the new and old log-probs" in done.err
    assert "--logp-new COL --logp-old COL" in done.err
    assert "output_logprobs counts as the sampler's" in done.err


def test_foreign_and_bad_files_are_one_line() -> None:
    files = sorted(path for folder in ("foreign", "bad") for path in (DATA / folder).rglob("*") if path.is_file())
    assert len(files) > 25
    wrong: dict[str, kit.Done] = {}
    for path, done in zip(files, kit.run_in_turn([("advantages", str(path)) for path in files]), strict=True):
        fails = (
            done.code in (1, 2) and done.out == b"" and done.err.startswith("olmorl: error: ") and done.err.count("\n") == 1
        )
        if not fails and not (path.name in READABLE and done.code == 0):
            wrong[path.name] = done
    assert wrong == {}
