"""Masks of 0 and 1, and of label ids: told by a file's first rows, the same for all of it."""

import itertools
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from olmorl_cli.errors import DataError, InputError
from olmorl_cli.rollouts import files
from olmorl_cli.rollouts.masks import LOOKED_AT
from tests.rollouts.builders import kinds, score, tokens_table, write


def masked(masks: list[Any], kind: pa.DataType | None = None, name: str = "masks") -> pa.Table:
    """Answers in groups of two with rewards 1 and 0, a token for each value of their masks."""
    lists = [[-1.0] * len(mask) for mask in masks]
    table = tokens_table(lists, lists).append_column(name, pa.array(masks, kind or pa.list_(pa.int64())))
    return table.set_column(0, "group_id", pa.array([row // 2 for row in range(len(masks))]))


def tokens(path: str | list[str], **options: Any) -> int:
    return int(score(path, **options).rows[0]["tokens"])


@pytest.mark.parametrize("name", ["masks", "labels", "loss_mask"])
@pytest.mark.parametrize(
    "masks",
    [
        [[-100, 0, 512], [7, -100, 1]],
        [[0, 3], [0, 1]],  # nothing is masked
        [[5], [0, 0, 1]],  # the second answer by itself looks like 0 and 1
        [[-100, 0], [0, 1, 1]],
        [[-100, -100], [1, 1, 1]],
    ],
    ids=str,
)
def test_integers_other_than_0_and_1_are_labels_of_which_minus_100_is_masked(
    tmp_path: Path, masks: list[list[int]], name: str
) -> None:
    real = sum(value != -100 for value in itertools.chain(*masks))
    kinds_ = [pa.list_(pa.int64()), pa.large_list(pa.int16()), pa.list_(pa.dictionary(pa.int8(), pa.int64()))]
    for kind in kinds_:
        assert tokens(write(tmp_path / "r.arrow", masked(masks, kind, name))) == real
    for suffix in ("parquet", "arrows", "jsonl"):
        assert tokens(write(tmp_path / f"r.{suffix}", masked(masks, None, name))) == real


def test_labels_do_not_depend_on_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch of one row whose ids are 0 and 1 only is of labels, as the rest of the file."""
    path = write(tmp_path / "r.parquet", masked([[9], *([[0, 1]] * 9)]), row_group_size=2)
    assert tokens(path) == 19
    monkeypatch.setattr(files, "BATCH_BYTES", 1)
    monkeypatch.setattr(files, "FRAGMENT_BYTES", 1)
    assert tokens(path) == 19


def test_one_row_a_prompt_has_labels_too(tmp_path: Path) -> None:
    lists = [[[-1.0, -1.0], [-1.0]]]
    table = pa.table({"scores": [[1.0, 0.0]], "masks": [[[-100, 0], [5]]], "new_logprobs": lists, "old_logprobs": lists})
    assert tokens(write(tmp_path / "r.parquet", table)) == 2


@pytest.mark.parametrize("kind", [pa.bool_(), pa.uint8(), pa.int8(), pa.int64(), pa.float32()], ids=str)
def test_0_and_1_of_every_type_mark(tmp_path: Path, kind: pa.DataType) -> None:
    masks = [[True, False], [False, True]] if kind == pa.bool_() else [[1, 0], [0, 1]]
    assert tokens(write(tmp_path / "r.parquet", masked(masks, pa.list_(kind)))) == 2


def test_floats_other_than_0_mark(tmp_path: Path) -> None:
    assert tokens(write(tmp_path / "r.parquet", masked([[0.5, 0.0], [2.0]], pa.list_(pa.float64())))) == 2


def test_labels_after_rows_of_0_and_1_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "r.parquet", masked([[0, 1]] * (LOOKED_AT + 2) + [[0, 4], [-100, 1]]), row_group_size=50)
    for skip in (False, True):
        with pytest.raises(DataError) as caught:
            score(path, skip=skip)
        kind = kinds(caught.value)["odd_mask"]
        assert [(place.row, place.token) for place in kind.places] == [(LOOKED_AT + 2, 1), (LOOKED_AT + 3, 0)]


def test_unsigned_integers_are_no_labels(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"a value other than 0 and 1.*row 0 token 0 \(1 in all\)"):
        score(write(tmp_path / "r.parquet", masked([[255, 0], [1]], pa.list_(pa.uint8()))))


def test_files_that_disagree_are_refused(tmp_path: Path) -> None:
    """Files of ones, without rows, or of a type that says itself what it is, disagree with none."""
    labels = write(tmp_path / "labels.parquet", masked([[5, 0], [-100, 6]]))
    marks = write(tmp_path / "marks.parquet", masked([[1, 0], [1, 1]]))
    for paths in ([labels, marks], [marks, labels]):
        with pytest.raises(InputError, match=r"marks\.parquet: masks, the mask, is 0 and 1 here, and label ids in .*labels"):
            score(paths)
    ones = write(tmp_path / "ones.parquet", masked([[1, 1], [1, 1]]))
    none = write(tmp_path / "none.parquet", masked([[1], [1]]).slice(0, 0))
    bools = write(tmp_path / "bools.parquet", masked([[True, False], [True]], pa.list_(pa.bool_())))
    assert tokens([labels, ones, none, bools]) == 3 + 4 + 0 + 2


def test_compact_log_probs_stand_for_labels(tmp_path: Path) -> None:
    """Two log-probs for three labels of which one is masked: the error says so."""
    table = masked([[-100, 0, 7], [5]])
    lists = pa.array([[-1.0, -2.0], [-1.0]])
    for name in ("new_logprobs", "old_logprobs"):
        table = table.set_column(table.column_names.index(name), name, lists)
    with pytest.raises(DataError, match=r"There is a log-prob for each 1 of the mask.*--accept compact"):
        score(write(tmp_path / "r.parquet", table))
