"""Remote input as its users have it: S3 on loopback, the same results as from here, and no secret anywhere."""

import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests import servers
from tests.cli import kit
from tests.servers import WebServer, environment_of

SECRETS = ("s3cret", "SIGNATURE", "AKIA")
SIGNED = "?X-Amz-Credential=AKIA%2F1&X-Amz-Signature=SIGNATURE"


def lay() -> list[str]:
    """Files of several kinds and a Hive folder, below `run`; their names."""
    os.makedirs("run/by/step=2")
    os.makedirs("run/by/step=10")
    table = kit.rollouts()
    part = table.slice(0, 4).drop_columns(["step"])
    names = [kit.write("run/r.parquet"), *(kit.write(f"run/by/step={step}/part-0.parquet", part) for step in (2, 10))]
    Path("run/r.jsonl").write_text("".join(f'{{"prompt_id": "{p}", "reward": {r}}}\n' for p in "ab" for r in (0, 0.5, 1)))
    return [*names, "run/r.jsonl"]


@pytest.fixture
def bucket(object_store: str, folder: Path) -> Iterator[dict[str, str]]:
    """Variables that lead to a bucket with what `lay` gives."""
    import boto3

    client = boto3.client(
        "s3",
        endpoint_url=object_store,
        aws_access_key_id="someone",
        aws_secret_access_key="s3cret-key",
        region_name="us-east-1",
    )
    client.create_bucket(Bucket="bucket")
    names = lay()
    for name in names:
        client.upload_file(name, "bucket", name)
    yield environment_of(object_store)
    for name in names:
        client.delete_object(Bucket="bucket", Key=name)
    client.delete_bucket(Bucket="bucket")
    client.close()


COMMANDS = [
    ("objective", "run/r.parquet"),
    ("objective", "run/by/", "--by", "step"),
    ("objective", "run/by/step=*/part-*.parquet", "--by", "step"),
    ("compare", "run/*.parquet"),
    ("inspect", "run/by"),
    ("inspect", "run/r.parquet", "run/by/step=10"),
    ("groups", "run/r.jsonl"),
    ("advantages", "run/r.parquet", "-f", "arrow"),
    ("advantages", "run/**/part-*", "-f", "csv"),
]


def test_s3_gives_the_same_bytes_as_the_files_of_this_machine(bucket: dict[str, str]) -> None:
    there = [tuple(word.replace("run/", "s3://bucket/run/") for word in command) for command in COMMANDS]
    for here, done in zip(kit.run_in_turn(COMMANDS), kit.run_in_turn(there, bucket), strict=True):
        assert (here.code, here.err, done.code, done.err) == (0, "", 0, "")
        assert done.out.replace(b"s3://bucket/", b"") == here.out


def test_what_fails_on_s3_is_one_line(bucket: dict[str, str]) -> None:
    said = {
        "s3://bucket/run/nope.parquet": "no such file or folder",
        "s3://bucket/nope/": "no data file in this folder",
        "s3://bucket/nope/*.parquet": "no data file matches this pattern",
        "s3://no-bucket/r.parquet": "no such file or folder",
        "s3://no-bucket/run/": "no such file or folder",
        "s3://key:s3cret@bucket/run/r.parquet": "credentials cannot stand in such a URI",
    }
    for uri, done in zip(said, kit.run_in_turn([("groups", uri) for uri in said], bucket), strict=True):
        assert (done.code, done.out, done.err.count("\n")) == (2, b"", 1)
        assert done.err.startswith(f"olmorl: error: {uri.replace('key:s3cret@', '').rstrip('/')}")
        assert said[uri] in done.err


def test_secrets_of_a_uri_are_used_and_never_shown(folder: Path) -> None:
    kit.write("r.parquet")
    kit.write("bad.parquet", reward=[None] * 8)
    with WebServer(folder) as server:
        root = f"http://user:s3cret@{server.host}"
        uri, bad, gone = (f"{root}/{name}.parquet{SIGNED}" for name in ("r", "bad", "gone"))
        commands = [
            ("inspect", uri),
            ("advantages", uri, uri.replace("SIGNATURE", "SIGNATURE2"), "--answer", "none", "-o", "a.parquet"),
            ("objective", uri, "--reward", "nope"),
            ("groups", bad),
            ("groups", gone, "--debug"),
            ("groups", f"{root}/r.parquet/*{SIGNED}"),
            ("groups", uri, "-o", f"{root}/o.csv{SIGNED}"),
            ("sample", "-o", f"{root}/o.csv{SIGNED}"),
            ("groups", "r.parquet", "--recipe", f"{root}/x.toml{SIGNED}"),
            ("sample", uri),
            (uri,),
        ]
        done = kit.run_in_turn(commands)
        assert [each.code for each in done] == [0, 0, 2, 1, 2, 2, 2, 2, 2, 2, 2]
        assert {auth for *_, auth in server.requests} == {"Basic dXNlcjpzM2NyZXQ="}
        assert done[0].row["files"] == [f"http://{server.host}/r.parquet"]
        assert f"{server.host}/bad.parquet: reward, the reward, is null, rows 0, 1" in done[3].err
        assert "Traceback" in done[4].err
        local = "a single file is written on this machine only. Write it here and copy it there"
        assert done[6].err.startswith(f"olmorl: error: http://{server.host}/o.csv: {local}")
    schema = pq.read_schema("a.parquet")
    for secret in SECRETS:
        assert not any(secret in each.err or secret in each.out.decode() for each in done)
        assert secret not in str(schema.metadata)
        assert secret.encode() not in Path("a.parquet").read_bytes()


def test_an_s3_server_that_cannot_start_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers.sys, "executable", "/bin/false")
    with pytest.raises(AssertionError, match="does not start"), servers.object_store():
        pass
