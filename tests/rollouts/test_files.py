"""Files are opened by what they contain; what cannot be read is refused in one line that names the file."""

import base64
import gzip
import json
import math
import random
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from olmorl_cli.errors import InputError
from olmorl_cli.rollouts.files import DataFile, open_file
from olmorl_cli.rollouts.sources import Source
from olmorl_cli.sample import Shape, sample_batches
from tests.cli import kit
from tests.rollouts.builders import (
    figures,
    random_rows,
    rewards_table,
    score,
    score_rewards,
    table_of,
    tokens_table,
    write,
)

TABLE = table_of(random_rows(7))
KINDS = {"parquet": "parquet", "arrow": "arrow", "arrows": "arrow", "jsonl": "jsonl"}


def opened(path: str) -> DataFile:
    return open_file(Source(path, path))


def refused(path: Path) -> str:
    """What is said of a file that cannot be scored: one line that starts with its name."""
    with pytest.raises(InputError) as caught:
        score(str(path))
    said = str(caught.value)
    assert said.startswith(f"{path}: ")
    assert "\n" not in said
    return said.removeprefix(f"{path}: ")


def written(folder: Path, suffix: str) -> bytes:
    options = {"parquet": {"row_group_size": 5}, "jsonl": {}}.get(suffix, {"rows_a_batch": 5})
    return Path(write(folder / f"whole.{suffix}", TABLE, **options)).read_bytes()


@pytest.mark.parametrize("suffix", KINDS)
@pytest.mark.parametrize("name", ["r.parquet", "r.arrow", "r.jsonl", "r.csv", "r"])
def test_content_tells_the_kind_and_the_name_does_not(tmp_path: Path, suffix: str, name: str) -> None:
    expected = figures(score(write(tmp_path / "plain.parquet", TABLE)))
    (tmp_path / name).write_bytes(written(tmp_path, suffix))
    assert opened(str(tmp_path / name)).kind == KINDS[suffix]
    assert figures(score(str(tmp_path / name))) == expected


def test_the_schema_and_the_rows_are_those_of_the_file(tmp_path: Path) -> None:
    for suffix in ("parquet", "arrow", "arrows"):
        file = opened(write(tmp_path / f"r.{suffix}", TABLE))
        assert file.schema.names == TABLE.column_names
        (fragment,) = file.fragments(3)
        assert (fragment.file_number, fragment.first_row, fragment.rows) == (3, 0, TABLE.num_rows)
        batches = list(file.batches(fragment, ["reward", "step"]))
        assert pa.Table.from_batches(batches).select(["step", "reward"]).equals(TABLE.select(["step", "reward"]))


@pytest.mark.parametrize("suffix", ["parquet", "arrow", "arrows"])
def test_a_file_without_rows_is_no_fault(tmp_path: Path, suffix: str) -> None:
    empty = write(tmp_path / f"0.{suffix}", TABLE.slice(0, 0))
    result = score(empty)
    (row,) = result.rows
    assert (row["objective"], row["answers"], row["groups"], row["tokens"]) == (None, 0, 0, 0)
    assert score(empty, by_step=True).rows == []
    assert score_rewards(empty).advantages.tolist() == []
    assert "no real token" in result.notes[0]
    full = write(tmp_path / "1.parquet", TABLE)
    for order in ([empty, full], [full, empty], [empty, full, empty]):
        assert figures(score(order)) == figures(score(full))


def test_record_batches_without_rows(tmp_path: Path) -> None:
    empty, path = TABLE.slice(0, 0).to_batches() or [pa.RecordBatch.from_pylist([], TABLE.schema)], tmp_path / "r.arrows"
    with pa.ipc.new_stream(str(path), TABLE.schema) as writer:
        for batch in [*empty, *TABLE.to_batches(), *empty]:
            writer.write_batch(batch)
    assert score(str(path)).rows[0]["answers"] == TABLE.num_rows


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"", "it is empty"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0a\nsize 9\n", "Git LFS pointer.*git lfs pull"),
        (b"<!DOCTYPE html>\n<html><body>401</body></html>", "HTML"),
        (b"\n <html>", "HTML"),
        (b"<?xml version='1.0'?><Error><Code>AccessDenied</Code></Error>", "XML"),
        (gzip.compress(b"PAR1", mtime=0), "gzip; unpack"),
        (b"PARE" + bytes(20) + b"PARE", "encrypted"),
        (b"x" * 40 + b"PAR1", "beginning is missing"),
        (b"group_id,reward\na,1.0\n", "no kind known"),
        (b'[{"group_id": "a"}]', "no kind known"),
        (b"\x89PNG\r\n\x1a\n" + bytes(90), "no kind known"),
        (b"\x80\x04\x95", "no kind known"),
        (bytes(100), "no kind known"),
        (b"PAR1", "cannot be read"),
        (b"PAR1PAR1", "cannot be read"),
        (b"PAR1" + bytes(30) + b"PAR1", "cannot be read"),
        (b"ARROW1\0\0", "cannot be read"),
        (b"ARROW1\0\0" + bytes(40) + b"ARROW1", "cannot be read"),
        (b"\xff\xff\xff\xff", "cannot be read"),
        (b"\xff\xff\xff\xff\xff\xff\xff\x7f", "cannot be read"),
        (b"{", "not JSON Lines|no JSON object"),
        (b"{}{}\n", "line 1 is no JSON object|no column"),
        (b'{"group_id": "a", "reward": 1}\n7\n', "line 2 is no JSON object"),
    ],
)
def test_foreign_and_broken_files(tmp_path: Path, content: bytes, what: str) -> None:
    path = tmp_path / "r.parquet"
    path.write_bytes(content)
    said = refused(path)
    assert re.search(what, said)


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
def test_a_file_cut_short_anywhere(tmp_path: Path, suffix: str) -> None:
    whole, path = written(tmp_path, suffix), tmp_path / f"cut.{suffix}"
    for cut in (1, 3, 4, 5, 8, 12, len(whole) // 3, len(whole) // 2, len(whole) - 9, len(whole) - 1):
        path.write_bytes(whole[:cut])
        refused(path)


def test_a_stream_cut_inside_a_message(tmp_path: Path) -> None:
    whole, path = written(tmp_path, "arrows"), tmp_path / "cut.arrows"
    for cut in (4, 7, 100, len(whole) // 3 + 1, len(whole) // 2 + 1, len(whole) - 9):
        path.write_bytes(whole[:cut])
        refused(path)


def test_json_lines_cut_inside_a_line(tmp_path: Path) -> None:
    whole, path = written(tmp_path, "jsonl"), tmp_path / "cut.jsonl"
    for cut in (1, 30, len(whole) // 2, len(whole) - 2):
        assert whole[cut - 1 : cut] != b"\n"
        path.write_bytes(whole[:cut])
        assert "JSON" in refused(path)


@pytest.mark.parametrize("page", ["1.0", "2.0"])
@pytest.mark.parametrize(("value", "column"), [(0.40625, "reward"), (-7.28125, "new_logprobs")])
def test_a_flipped_byte_under_a_page_checksum(tmp_path: Path, value: float, column: str, page: str) -> None:
    table = tokens_table([[-1.0, -7.28125], [-1.0]], [[-1.0, -7.0], [-1.0]], reward=[0.40625, 1.0])
    options = {"compression": "none", "use_dictionary": False, "write_statistics": False, "data_page_version": page}
    path = Path(write(tmp_path / "r.parquet", table, write_page_checksum=True, **options))
    assert score(str(path)).rows[0]["tokens"] == 3
    data = bytearray(path.read_bytes())
    at = data.index(pa.array([value]).buffers()[1].to_pybytes())
    data[at] ^= 4
    path.write_bytes(data)
    assert "cannot be read" in refused(path)
    assert "CRC" in refused(path)


def test_the_broken_one_of_several_files_is_named(tmp_path: Path) -> None:
    good, bad = write(tmp_path / "a.parquet", TABLE), tmp_path / "b.parquet"
    bad.write_bytes(Path(good).read_bytes()[:-30])
    with pytest.raises(InputError, match=r"b\.parquet: cannot be read"):
        score([good, str(bad), good])


def test_lists_whose_offsets_point_outside(tmp_path: Path) -> None:
    offsets = pa.array([0, 1, 3], pa.int32())
    lists = pa.ListArray.from_arrays(offsets, pa.array([-1.0, -2.0, -3.0]))
    table = rewards_table(["a", "a"], [1.0, 0.0], new_logprobs=lists, old_logprobs=lists)
    for suffix in ("arrow", "arrows"):
        path = Path(write(tmp_path / f"r.{suffix}", table))
        assert score(str(path)).rows[0]["tokens"] == 3
        data = path.read_bytes()
        right = offsets.buffers()[1].to_pybytes()[:12]
        for wrong in ([0, 1, 3_000_000], [0, -5, 3], [0, 3, 1]):
            path.write_bytes(data.replace(right, pa.array(wrong, pa.int32()).buffers()[1].to_pybytes()[:12]))
            assert path.read_bytes() != data
            assert "cannot be read" in refused(path)


@pytest.mark.parametrize("plaintext_footer", [False, True])
def test_encrypted_parquet(tmp_path: Path, plaintext_footer: bool) -> None:
    encryption = pytest.importorskip("pyarrow.parquet.encryption")

    class Keys(encryption.KmsClient):
        """Keys wrapped by nothing; enough to write an encrypted file."""

        def wrap_key(self, key: bytes, _: str) -> str:
            return base64.b64encode(key).decode()

        def unwrap_key(self, key: str, _: str) -> bytes:
            return base64.b64decode(key)

    factory = encryption.CryptoFactory(lambda _: Keys())
    settings = encryption.EncryptionConfiguration(
        footer_key="f", column_keys={"c": ["reward", "group_id"]}, plaintext_footer=plaintext_footer
    )
    properties = factory.file_encryption_properties(encryption.KmsConnectionConfig(), settings)
    path, table = tmp_path / "r.parquet", rewards_table(["a", "a"], [1.0, 0.0])
    with pq.ParquetWriter(path, table.schema, encryption_properties=properties) as writer:
        writer.write_table(table)
    with pytest.raises(InputError, match=r"r\.parquet: .*crypt"):
        score_rewards(str(path))


def test_json_lines_as_people_write_them(tmp_path: Path) -> None:
    """A byte order mark, blank lines, no last line break, keys in any order and missing ones, bare NaN, CRLF."""
    path = tmp_path / "r.jsonl"
    lines = ['{"group_id": "a", "reward": 1}', "", '{"reward": 0.5, "group_id": "a", "extra": {"x": [1]}}', "  "]
    path.write_bytes(b"\xef\xbb\xbf" + "\r\n".join([*lines, '{"group_id": "b", "reward": NaN}']).encode())
    scored = score_rewards(str(path), skip=True)
    assert scored.advantages[:2].tolist() == [0.25, -0.25]
    assert math.isnan(scored.advantages[2])
    assert [kind.code for kind in scored.problems.kinds("note")] == ["nan_reward"]


def test_json_lines_of_whole_and_broken_numbers(tmp_path: Path) -> None:
    """Empty lists, whole numbers and a null come before the first broken number; terms -0.5 and 0.5 · 1.0."""
    rows = [
        {"group_id": 1, "reward": 0, "new_logprobs": [], "old_logprobs": []},
        {"group_id": 1, "reward": 0, "new_logprobs": [-1], "old_logprobs": [-1], "rollout_logprobs": None},
        {"group_id": 1, "reward": 1.5, "new_logprobs": [-0.25, -1], "old_logprobs": [-0.25, -1]},
    ]
    path = tmp_path / "r.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    (row,) = score(str(path)).rows
    assert (row["tokens"], row["objective"]) == (3, (-0.5 + 1.0 + 1.0) / 3)


@pytest.mark.parametrize("ids", [[2**64 - 1, 2**64 - 2], [2**63, 2**63 + 1, 5], [2**53, 2**53 + 1, 0.5]], ids=str)
def test_json_lines_never_merge_ids_that_differ(tmp_path: Path, ids: list[float]) -> None:
    """They are told apart, or refused; never rounded to one."""
    path = tmp_path / "r.jsonl"
    path.write_text("".join(json.dumps({"group_id": each, "reward": 1}) + "\n" for each in ids))
    try:
        groups = score_rewards(str(path)).table.groups.tolist()
    except InputError as error:
        assert str(error).startswith(f"{path}: ")
    else:
        assert groups == list(range(len(ids)))


def test_dates_in_json_lines_stay_texts(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    rows = [{"group_id": day, "reward": 1} for day in ("2025-01-01", "2025-01-01T00:00:00", "2025-01-01 00:00:00")]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert score_rewards(str(path)).table.group_ids["group"].to_pylist() == [row["group_id"] for row in rows]


def test_reading_leaves_no_file_open(tmp_path: Path) -> None:
    """Warnings are errors here: a temporary copy that is not closed would be one."""
    paths = [write(tmp_path / f"r.{suffix}", TABLE) for suffix in KINDS]
    for path in paths:
        score(path)


def test_random_bytes_are_refused(tmp_path: Path) -> None:
    draw = random.Random(3)
    for start in (b"PAR1", b"ARROW1\0\0", b"\xff\xff\xff\xff", b"{", b""):
        path = tmp_path / "r.parquet"
        path.write_bytes(start + draw.randbytes(200))
        refused(path)


def test_folders_of_no_use_as_files(tmp_path: Path) -> None:
    (tmp_path / "r.parquet").mkdir()
    with pytest.raises(InputError, match="no data file"):
        score(str(tmp_path / "r.parquet"))


def test_pages_larger_than_what_is_read_ahead(tmp_path: Path) -> None:
    """pyarrow before 19 mixed up its read buffer in the second row group, and ended the process or called it damaged."""
    table = pa.Table.from_batches(sample_batches(Shape(steps=1, prompts=126, group_size=8, tokens=500, seed=0)))
    path = write(tmp_path / "a.parquet", table, row_group_size=501)
    plain = write(tmp_path / "b.parquet", table, row_group_size=501, use_dictionary=False)
    assert kit.run("objective", path).row == kit.run("objective", plain).row
