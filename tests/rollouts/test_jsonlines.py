"""JSON Lines whose keys have values of several kinds."""

import json
from pathlib import Path

import pyarrow as pa
import pytest

from olmorl_cli.errors import InputError
from olmorl_cli.rollouts import jsonlines
from tests.rollouts.builders import score_rewards

MIXED = [
    {"prompt": "p", "reward": 1, "gts": 51, "info": {"a": 1, "n": [1, 2]}, "out": [{"c": "x"}], "key": 5},
    {"prompt": "p", "reward": 0, "gts": "51", "info": {"a": "x"}, "out": [{"c": ["y"]}, {"c": None}], "key": "5"},
    {"prompt": "q", "reward": float("nan"), "gts": None, "info": {"a": {"b": True}, "n": []}, "out": [], "key": "6"},
    {"prompt": "q", "reward": 1, "gts": [51], "info": None, "out": None, "key": "6", "late": 0.5},
]
"""Keys, at every depth, with values of several kinds."""


@pytest.mark.parametrize("block", [1, 200, 1 << 20])
def test_keys_with_values_of_several_kinds_are_texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    """The others are as ever, whatever stands in one block; no role takes a column of several kinds."""
    monkeypatch.setattr(jsonlines, "BLOCK", block)
    path = tmp_path / "r.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in MIXED))
    scored = score_rewards(str(path), skip=True)
    assert scored.advantages.tolist()[:2] == [0.5, -0.5]
    (file,) = scored.rollouts.files
    batches = [batch for fragment in file.fragments(0) for batch in file.batches(fragment, file.schema.names)]
    rows = pa.Table.from_batches(batches).to_pylist()
    assert file.schema.field("gts").type == pa.string()
    assert [row["gts"] for row in rows] == ["51", "51", None, "[51]"]
    assert [row["late"] for row in rows] == [None, None, None, 0.5]
    if block > 200:
        assert [row["info"] and row["info"]["a"] for row in rows] == ["1", "x", '{"b": true}', None]
        assert [row["info"] and row["info"]["n"] for row in rows] == [[1, 2], None, [], None]
        assert rows[1]["out"] == [{"c": '["y"]'}, {"c": None}]
    for role, name in (("group", "key"), ("reward", "gts")):
        with pytest.raises(InputError, match=f"column {name} cannot be the {role}: its values are of several kinds"):
            score_rewards(str(path), **{role: name})


def test_many_keys_of_several_kinds_are_texts_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    kinds = ({f"k{n}": n for n in range(40)}, {f"k{n}": "x" for n in range(40)})
    path.write_text("".join(json.dumps({"prompt": "p", "reward": n, "info": kind}) + "\n" for n, kind in enumerate(kinds)))
    scored = score_rewards(str(path))
    assert scored.advantages.tolist() == [-0.5, 0.5]
    assert scored.rollouts.files[0].schema.field("info").type == pa.string()


def test_a_reward_of_several_kinds_is_not_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text('{"prompt": "p", "score": 1.0, "acc": true}\n{"prompt": "p", "score": [0.0, 1.0], "acc": true}\n')
    with pytest.raises(InputError, match="column score cannot be the reward: its values are of several kinds"):
        score_rewards(str(path))
