"""Damaged and malicious files: exit code 0, 1 or 2 in words and bounded memory, and no figures that a checksum refutes."""

import os
import pickle
import struct
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.cli import kit
from tests.rollouts import crafted, fuzz

CASES = 200
SEED = 7
ROOM = 300 << 20
"""Bytes of address space that a hostile file's reader may take beyond the program itself."""

WITH_LITTLE_MEMORY = """
import resource, runpy
import pyarrow.compute, pyarrow.parquet
pages = int(open("/proc/self/statm").read().split()[0])
resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + {room},) * 2)
runpy.run_module("olmorl_cli", run_name="__main__")
"""


def test_random_damage(tmp_path: Path) -> None:
    assert fuzz.run_cases(SEED, 0, CASES, tmp_path / "cases") == []


def test_a_case_is_the_same_whenever_it_is_made() -> None:
    files = fuzz.whole_files()
    cases = [fuzz.case_of(SEED, number, files) for number in range(100)]
    assert [fuzz.case_of(SEED, number, files) for number in range(100)] == cases
    assert sum(whole.covers(data) for whole, data, _ in cases) > 10, "damage that a checksum must tell"
    assert len({data for _, data, _ in cases}) > 95


def test_a_process_that_dies_is_a_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OLMORL_FUZZ_DIES_AT", "1")
    (fault,) = fuzz.run_cases(SEED, 0, 3, tmp_path / "cases")
    assert fault.startswith(f"1: the process dies, {-6}")


def test_every_page_under_a_checksum_is_checked(tmp_path: Path) -> None:
    """One bit of each page; the objective reads all columns but the text, whose pages may be anything."""
    whole = next(file for file in fuzz.whole_files() if file.name == "parquet none v1 checksums")
    paths = [tmp_path / "whole", *(tmp_path / f"{start}" for start, _ in whole.sealed)]
    paths[0].write_bytes(whole.data)
    for path, (start, stop) in zip(paths[1:], whole.sealed, strict=True):
        data = bytearray(whole.data)
        data[(start + stop) // 2] ^= 1
        path.write_bytes(data)
    truth, *done = kit.run_in_turn([("objective", str(path)) for path in paths])
    assert truth.code == 0
    assert {each.out for each in done if each.code == 0} == {truth.out}
    refused = [each.err for each in done if each.code == 2]
    assert len(refused) >= len(done) * 6 // 7, "of seven columns"
    assert all("CRC" in err for err in refused)


def run(path: Path, command: str = "groups") -> kit.Done:
    """Run a command on a hostile file with little memory."""
    limited = (sys.executable, "-c", WITH_LITTLE_MEMORY.format(room=ROOM))
    return kit.run(command, str(path), python=limited if sys.platform == "linux" else kit.PROGRAM)


def words(done: kit.Done) -> str:
    """What the command says, which must be one error with exit code 2."""
    assert (done.code, done.out, done.err.count("\n")) == (2, b"", 1), done.err[-500:]
    assert done.err.startswith("olmorl: error: ")
    assert "fault of olmorl" not in done.err
    return done.err


GROUP, REWARD = struct.pack("<q", 7), struct.pack("<d", 1.0)
CONSTANT = {"group_id": GROUP, "reward": REWARD}


def test_crafted_files_are_parquet(tmp_path: Path) -> None:
    (tmp_path / "r.parquet").write_bytes(crafted.constant_parquet(10, CONSTANT))
    table = pq.read_table(tmp_path / "r.parquet")
    assert table.to_pydict() == {"group_id": [7] * 10, "reward": [1.0] * 10}
    assert run(tmp_path / "r.parquet").rows == [
        {"group": 7, "size": 10, "mean": 1, "std": 0, "min": 1, "max": 1, "kept": False}
    ]


def test_a_few_bytes_that_hold_or_claim_a_million_million_rows(tmp_path: Path) -> None:
    holds, claims = tmp_path / "holds.parquet", tmp_path / "claims.parquet"
    holds.write_bytes(crafted.constant_parquet(2**40, CONSTANT))
    claims.write_bytes(crafted.constant_parquet(10, CONSTANT, claimed=2**40))
    assert holds.stat().st_size < 30_000
    for path in (holds, claims):
        assert "1099511627776 answers do not fit into this machine's memory" in words(run(path, "inspect"))
    claims.write_bytes(crafted.constant_parquet(10, CONSTANT, claimed=20))
    assert "it has 10 rows where its footer says 20" in words(run(claims))


@pytest.mark.skipif(sys.platform != "linux", reason="limits memory as Linux does")
def test_a_few_bytes_that_become_more_than_memory_holds(tmp_path: Path) -> None:
    path = tmp_path / "r.parquet"
    path.write_bytes(crafted.constant_parquet(2**26, CONSTANT))
    assert path.stat().st_size < 300
    assert "out of memory" in words(run(path))


@pytest.mark.skipif(sys.platform != "linux", reason="limits memory as Linux does")
def test_a_list_of_more_tokens_than_memory_holds(tmp_path: Path) -> None:
    """A row of forty million equal log-probs, a few kilobytes on disk."""
    tokens = pa.array([-1.0], pa.float32()).take(pa.nulls(40_000_000, pa.int8()).fill_null(0))
    lists = pa.ListArray.from_arrays(pa.array([0, len(tokens)], pa.int32()), tokens)
    table = pa.table({"group_id": [1], "reward": [1.0], "new_logprobs": lists, "old_logprobs": lists})
    pq.write_table(table, tmp_path / "r.parquet", compression="zstd")
    assert (tmp_path / "r.parquet").stat().st_size < 100_000
    assert "out of memory" in words(run(tmp_path / "r.parquet", "objective"))


def test_a_batch_of_more_nulls_than_memory_holds(tmp_path: Path) -> None:
    """A null column takes no bytes at all."""
    nothing = pa.Array.from_buffers(pa.null(), 2**31 - 1, [None])
    table = pa.RecordBatch.from_arrays([nothing, nothing], ["group_id", "reward"])
    for name, new in (("r.arrow", pa.ipc.new_file), ("r.arrows", pa.ipc.new_stream)):
        with open(tmp_path / name, "wb") as sink, new(sink, table.schema) as writer:
            writer.write_batch(table)
        words(run(tmp_path / name))


def test_a_schema_without_bottom(tmp_path: Path) -> None:
    (tmp_path / "r.parquet").write_bytes(crafted.deep_parquet(1000))
    words(run(tmp_path / "r.parquet"))


def test_json_without_bottom(tmp_path: Path) -> None:
    """A parser that calls itself for each bracket would end with its stack."""
    depth, row = 200_000, '{"prompt_id": "a", "reward": 1, '
    text = row + r'"y": "\"\\\n' + "[" * 1000 + '"}\n'
    endless = [('{"a":', "}"), ("[", "]"), ('[0,[],"]",', "]")]
    files = [text + row + f'"x": {opens * depth}1{closes * depth}}}\n' for opens, closes in endless]
    files += [text, row + f'"x": {"[" * 90}{"]" * 90}}}\n']
    for number, lines in enumerate(files):
        (tmp_path / f"{number}.jsonl").write_text(lines)
    *refused, sound, deep = kit.run_in_turn([("groups", str(tmp_path / f"{number}.jsonl")) for number in range(len(files))])
    for done in refused:
        assert "line 2 nests more than 100 deep" in words(done)
    assert sound.code == 0, "brackets in a text are none"
    assert deep.code in (0, 2)


def test_a_footer_of_many_megabytes(tmp_path: Path) -> None:
    table = pa.table({"group_id": [1, 1], "reward": [1.0, 0.0]}).replace_schema_metadata({"x": "y" * (20 << 20)})
    pq.write_table(table, tmp_path / "r.parquet", store_schema=False)
    data = (tmp_path / "r.parquet").read_bytes()
    lengths = (2**31 - 1, 2**32 - 1, len(data) + 1, 0)
    for length in lengths:
        (tmp_path / f"{length}").write_bytes(data[:-8] + struct.pack("<I", length) + b"PAR1")
    whole, *damaged = kit.run_in_turn([("groups", str(tmp_path / f"{name}")) for name in ("r.parquet", *lengths)])
    assert (whole.code, whole.err) == (0, "")
    assert all(map(words, damaged))


class Traitor:
    """Makes a folder where it is unpickled."""

    def __init__(self, trace: str) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[object, tuple[str, int]]:
        return os.mkdir, (self.trace, 0o777)


def test_types_that_carry_code_are_only_storage(tmp_path: Path) -> None:
    """As Arrow's old Python extension types did: a pickle in the metadata of a column."""
    trace = tmp_path / "it ran"
    code = pickle.dumps(Traitor(str(trace)))
    carried = {"ARROW:extension:name": "arrow.py_extension_type", "ARROW:extension:metadata": code}
    schema = pa.schema([pa.field("group_id", pa.int64()), pa.field("reward", pa.float64(), metadata=carried)])
    table = pa.table([pa.array([1, 1]), pa.array([1.0, 0.0])], schema=schema)
    pq.write_table(table, tmp_path / "r.parquet")
    for name, new in (("r.arrow", pa.ipc.new_file), ("r.arrows", pa.ipc.new_stream)):
        with open(tmp_path / name, "wb") as sink, new(sink, table.schema) as writer:
            writer.write_table(table)
    commands = [(command, str(path)) for command in ("groups", "inspect") for path in tmp_path.glob("r.*")]
    assert [done.code for done in kit.run_in_turn(commands)] == [0] * 6
    assert not trace.exists()
    pickle.loads(code)
    assert trace.exists(), "it would have been seen"
