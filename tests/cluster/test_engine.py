"""`--engine ray` on a real cluster of two nodes: the bits of one machine, whatever dies on the way."""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.cli import kit
from tests.cluster.nodes import Cluster
from tests.servers import WebServer

pytestmark = pytest.mark.cluster
ON_RAY = ("--engine", "ray")

COMMANDS = [
    ("objective", "--by", "step", "--diagnostics", "--recipe", "grpo"),
    ("objective", "--per-answer", "-f", "csv"),
    ("compare",),
    ("groups", "-f", "csv"),
    ("inspect",),
    ("advantages", "-f", "arrow"),
]

FEW = """
from olmorl_cli.__main__ import main
from olmorl_cli.rollouts import shares
shares.MOST_ANSWERS, shares.SHARE_ANSWERS = 1500, 1000
raise SystemExit(main())
"""
IN_SHARES = (sys.executable, "-c", FEW)
"""The program, for which few answers are too many to be scored in one piece."""


def both(cluster: Cluster, *args: str) -> tuple[kit.Done, kit.Done]:
    """The command here, and on the cluster."""
    return kit.run(*args), kit.run(*args, *ON_RAY, env=cluster.environment)


@contextmanager
def dying(cluster: Cluster, seconds: float) -> Iterator[list[int]]:
    """Every so many seconds one of the cluster's workers is killed; which were."""
    killed: list[int] = []
    enough, draw = threading.Event(), random.Random(0)

    def kill() -> None:
        while not enough.wait(seconds):
            if workers := cluster.workers():
                killed.append(draw.choice(workers))
                os.kill(killed[-1], signal.SIGKILL)

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        yield killed
    finally:
        enough.set()
        thread.join()


@contextmanager
def started(cluster: Cluster, *args: str) -> Iterator[subprocess.Popen[bytes]]:
    """The command on the cluster, with its first workers up."""
    before = set(cluster.workers())
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen([*kit.PROGRAM, *args, *ON_RAY], env=kit.environment(cluster.environment), **pipes)
    while not set(cluster.workers()) - before:
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    yield process


def test_sample_data(cluster: Cluster) -> None:
    path = str(Path(__file__).parents[2] / "sample_data" / "rollouts.parquet")
    for command in (("objective",), ("compare",), ("groups", "-f", "jsonl")):
        here, there = both(cluster, command[0], path, *command[1:])
        assert (there.code, there.out, there.err) == (0, here.out, here.err)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_groups_across_files_give_the_same_bits(command: tuple[str, ...], cluster: Cluster, run: Path) -> None:
    here, there = both(cluster, command[0], str(run), *command[1:])
    assert (there.code, there.out, there.err) == (0, here.out, here.err)


def test_the_engine_can_come_from_the_environment(cluster: Cluster, run: Path) -> None:
    done = kit.run("objective", str(run), env=cluster.environment | {"OLMORL_ENGINE": "ray"})
    assert done.row == kit.run("objective", str(run)).row
    lost = kit.run("objective", str(run), env={"OLMORL_ENGINE": "ray", "RAY_ADDRESS": "127.0.0.1:1"})
    assert (lost.code, lost.err.count("\n")) == (2, 1)
    assert "no Ray cluster at 127.0.0.1:1: [Errno 111] Connection refused" in lost.err


def test_killed_workers_change_nothing(cluster: Cluster, run: Path) -> None:
    here = kit.run("compare", str(run))
    with dying(cluster, 1.0) as killed:
        for _ in range(2):
            there = kit.run("compare", str(run), *ON_RAY, env=cluster.environment)
            assert (there.code, there.out, there.err) == (0, here.out, "")
    assert killed


@pytest.mark.parametrize("command", [*COMMANDS[:1], *COMMANDS[2:4], COMMANDS[-1]], ids=" ".join)
def test_answers_in_shares_while_workers_die(command: tuple[str, ...], cluster: Cluster, run: Path) -> None:
    """As with more answers than the driver holds, and groups that lie in all files."""
    here = kit.run(command[0], str(run), *command[1:])
    with dying(cluster, 1.0):
        there = kit.run(command[0], str(run), *command[1:], *ON_RAY, env=cluster.environment, python=IN_SHARES)
    assert (there.code, there.out, there.err) == (0, here.out, here.err)


def test_a_node_that_leaves_changes_nothing(cluster: Cluster, run: Path) -> None:
    node = cluster.add()
    with started(cluster, "compare", str(run)) as process:
        cluster.remove(node)
        out, err = process.communicate(timeout=kit.TIMEOUT)
    assert (process.returncode, out, err) == (0, kit.run("compare", str(run)).out, b"")


def test_what_cannot_be_read_is_said_as_here(cluster: Cluster, run: Path, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.parquet"
    pq.write_table(pq.read_table(run / "part-3.parquet"), damaged, row_group_size=501, write_page_checksum=True)
    data, columns = bytearray(damaged.read_bytes()), pq.ParquetFile(damaged).metadata.row_group(1)
    (logps,) = (c for c in map(columns.column, range(columns.num_columns)) if c.path_in_schema.startswith("logp_new"))
    middle = logps.data_page_offset + logps.total_compressed_size // 2
    data[middle : middle + 64] = bytes(64)
    damaged.write_bytes(data)
    for command in ("objective", "inspect"):
        here, there = both(cluster, command, str(run / "part-2.parquet"), str(damaged))
        assert here.code == 2
        assert (there.code, there.out, there.err) == (2, here.out, here.err)


def test_bad_data_are_said_as_here(cluster: Cluster, run: Path, tmp_path: Path) -> None:
    table = pq.read_table(run / "part-3.parquet")
    rewards = table["reward"].to_pylist()
    rewards[5] = float("nan")
    bad = tmp_path / "bad.parquet"
    index = table.schema.get_field_index("reward")
    pq.write_table(table.set_column(index, "reward", [rewards]), bad, row_group_size=300)
    for command in (("objective",), ("advantages",), ("objective", "--invalid", "skip"), ("inspect",)):
        here, there = both(cluster, command[0], str(bad), *command[1:])
        assert (there.code, there.out, there.err) == (here.code, here.out, here.err)


def test_a_fragment_that_fails_twice_and_then_reads(cluster: Cluster, run: Path) -> None:
    """Two times the server breaks every answer off, until the reader itself has given up; then it gives the file."""
    here = kit.run("objective", str(run / "part-0.parquet")).row
    with WebServer(run) as server:
        uri = f"http://{server.host}/part-0.parquet"
        with started(cluster, "objective", uri) as process:  # the file is open by then
            server.cuts = 7
            out, err = process.communicate(timeout=kit.TIMEOUT)
    assert server.cuts == 0, (out, err, server.requests)
    assert (process.returncode, err) == (0, b"")
    assert {k: v for k, v in json.loads(out).items() if k != "files"} == here


def test_what_only_this_process_can_read_is_scored_here(cluster: Cluster, tmp_path: Path) -> None:
    lines = tmp_path / "r.jsonl"
    lines.write_text("".join(f'{{"prompt_id": "{p}", "reward": {r}}}\n' for p in "ab" for r in (0, 0.5, 1)))
    here, there = both(cluster, "advantages", str(lines))
    assert (there.code, there.out) == (0, here.out)
    assert there.err.startswith(f"olmorl: note: {lines}: only this process can read it")
    path = kit.write(str(tmp_path / "r.parquet"))
    piped = kit.run("objective", *ON_RAY, stdin=Path(path).read_bytes(), env=cluster.environment)
    assert piped.row == kit.run("objective", stdin=Path(path).read_bytes()).row
    assert "standard input: only this process can read it" in piped.err


def test_control_c_cancels_what_runs(cluster: Cluster, run: Path) -> None:
    with started(cluster, "compare", str(run)) as process:
        busy = set(cluster.workers())
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=20)
    assert (process.returncode, out, err) == (130, b"", b"")
    for _ in range(200):
        if not busy & set(cluster.workers()):
            return
        time.sleep(0.1)
    raise AssertionError("workers of the interrupted run are still there")


def test_parts_over_s3(cluster: Cluster, store: dict[str, str], run: Path, tmp_path: Path) -> None:
    """Input and output in a bucket: what stands there afterwards scores as the files here do."""
    import boto3

    client = boto3.client(
        "s3",
        endpoint_url=store["AWS_ENDPOINT_URL"],
        aws_access_key_id=store["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=store["AWS_SECRET_ACCESS_KEY"],
        region_name="us-east-1",
    )
    client.create_bucket(Bucket="runs")
    for path in sorted(run.iterdir()):
        client.upload_file(str(path), "runs", f"in/{path.name}")
    client.put_object(Bucket="runs", Key="out/part-00099.parquet", Body=b"of an earlier run")
    client.put_object(Bucket="runs", Key="out/notes.txt", Body=b"not ours")
    env = cluster.environment
    assert kit.run("objective", "s3://runs/in/", *ON_RAY, env=env).row == kit.run("objective", str(run)).row
    done = kit.run("advantages", "s3://runs/in/", "-o", "s3://runs/out/", *ON_RAY, env=env)
    assert (done.code, done.out, done.err) == (0, b"", "olmorl: note: 8 parts written to s3://runs/out/\n")
    names = [each["Key"] for each in client.list_objects_v2(Bucket="runs", Prefix="out/")["Contents"]]
    assert names == ["out/notes.txt", *(f"out/part-0000{number}.parquet" for number in range(8))]
    again = kit.run("objective", "s3://runs/out/", env=env).row
    here = kit.run("objective", str(run)).row
    assert {k: v for k, v in again.items() if k != "columns"} == {k: v for k, v in here.items() if k != "columns"}
    assert again["columns"]["advantage"] == "advantage"
    refused = kit.run("advantages", "s3://runs/in/", "-o", "s3://runs/in/", *ON_RAY, env=env)
    assert (refused.code, refused.err.count("\n")) == (2, 1)
    assert "it holds an input" in refused.err
    client.close()


def test_parts_while_workers_die(cluster: Cluster, run: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with dying(cluster, 1.5):
        done = kit.run("advantages", str(run), "-o", f"{out}/", *ON_RAY, env=cluster.environment)
    assert (done.code, done.err) == (0, f"olmorl: note: 8 parts written to {out}/\n")
    assert sorted(os.listdir(out)) == [f"part-0000{number}.parquet" for number in range(8)]
    whole = kit.run("advantages", str(run), "-o", str(tmp_path / "whole.parquet"))
    assert whole.code == 0
    assert pq.read_table(out).equals(pq.read_table(tmp_path / "whole.parquet"))
