"""Files behind URIs are found and read as those of this machine are, and what goes wrong is said without secrets."""

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from olmorl_cli.core.recipes import Recipe
from olmorl_cli.errors import _URI, InputError, OlmorlError, UsageError, shown_uri, without_secrets
from olmorl_cli.objectives import score_objective
from olmorl_cli.rollouts import remote
from olmorl_cli.rollouts.sources import find_sources
from tests.rollouts.builders import figures, opened, random_rows, rewards_table, score, score_rewards, table_of, write
from tests.servers import WebServer, environment_of, free_port

TABLE = table_of(random_rows(5))
NAMES = [
    "step=10/part-1.parquet",
    "step=2/part-10.parquet",
    "step=2/part-9.parquet",
    "step=2/README.md",
    "step=2/.part.parquet",
    "_extra/deep/er/a b.jsonl",
    ".hidden/x.parquet",
    "z[1].parquet",
    "z1.parquet",
    "UPPER.ARROW",
    "notes.txt",
]
SECRETS = ("s3cret", "SIGNATURE", "AKIA")
SIGNED = "?X-Amz-Credential=AKIA%2F1&X-Amz-Signature=SIGNATURE"


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "PAUSES", (0.0, 0.0))


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The root of files that fsspec has in memory."""
    import fsspec

    monkeypatch.setitem(remote.PACKAGES, "memory", "fsspec")
    files = fsspec.filesystem("memory")
    for name in NAMES:
        files.pipe(f"/root/{name}", b"{}")
    yield "memory://root"
    files.rm("/root", recursive=True)


PATTERNS = [
    "",
    "/",
    "/step=2",
    "/step=*",
    "/step=*/",
    "/step=*/part-*.parquet",
    "/step=[!2]*/*",
    "/*/part-?.parquet",
    "/*",
    "/**",
    "/**/*.parquet",
    "/**/part-*",
    "/**/er/*",
    "/_*/*/er",
    "/.hidden/*",
    "/.*/*.parquet",
    "/z[1].parquet",
    "/z[!2].parquet",
    "/step=2/part-9.parquet",
    "/notes.txt",
    "/nope*",
    "/nope",
    "/step=2/nope/*",
]


def listed(root: str, argument: str) -> list[tuple[str, dict[str, str]]] | str:
    """Names below the root and folders' columns of what an argument stands for; what is said if it is nothing."""
    try:
        return [(source.name.removeprefix(root), dict(source.partition)) for source in find_sources([root + argument])]
    except InputError as error:
        return str(error).replace(root, "")


@pytest.mark.parametrize("argument", PATTERNS)
def test_what_an_argument_stands_for_is_the_same_here_and_there(memory: str, tmp_path: Path, argument: str) -> None:
    for name in NAMES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("{}")
    here = listed(str(tmp_path), argument)
    assert here == listed(memory, argument)
    if "nope" in argument:
        assert isinstance(here, str)
    else:
        assert here


def test_a_path_of_this_machine_wins_over_a_uri(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(Path("s3:/bucket/r.parquet"), TABLE)
    (source,) = find_sources(["s3://bucket/r.parquet"])
    assert (source.name, source.remote) == ("s3://bucket/r.parquet", False)


@pytest.mark.parametrize("uri", ["ftp://host/r.parquet", "file:///r.parquet", "x-y://a"])
def test_an_unknown_scheme_is_refused_with_the_known_ones(uri: str) -> None:
    with pytest.raises(InputError, match="unknown") as caught:
        find_sources([uri])
    assert str(caught.value).startswith(f"{uri}: ")
    assert all(f"{scheme}://" in str(caught.value) for scheme in ("s3", "gs", "hf", "https"))


@pytest.mark.parametrize("missing", ["fsspec", "s3fs"])
def test_a_missing_package_is_named_with_the_extra(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(InputError, match=rf"{missing} is needed.*pip install 'olmorl-cli\[remote\]'") as caught:
        find_sources(["s3://bucket/r.parquet"])
    assert str(caught.value).startswith("s3://bucket/r.parquet: ")


@pytest.mark.parametrize(
    "uri", ["s3://", "https:///a", "s3://key:s3cret@bucket/r.parquet", "gs://AKIA@b/x", "hf://u:s3cret@a/b"]
)
def test_uris_that_cannot_be_meant(uri: str) -> None:
    with pytest.raises(UsageError) as caught:
        find_sources([uri])
    assert not any(secret in str(caught.value) for secret in SECRETS)


@pytest.mark.parametrize("suffix", ["parquet", "arrow", "arrows", "jsonl"])
@pytest.mark.parametrize(
    ("ranges", "length"), [(True, True), (False, True), (False, False)], ids=["ranges", "whole", "no length"]
)
def test_every_kind_over_http_gives_the_same_to_the_last_bit(
    tmp_path: Path, suffix: str, ranges: bool, length: bool
) -> None:
    options = {"parquet": {"row_group_size": 5}, "jsonl": {}}.get(suffix, {"rows_a_batch": 5})
    path = write(tmp_path / f"r.{suffix}", TABLE, **options)
    with WebServer(tmp_path, ranges=ranges, length=length) as server:
        assert figures(score(f"http://{server.host}/r.{suffix}")) == figures(score(path))


def test_folders_and_patterns_over_http_are_read_off_pages_of_links(tmp_path: Path) -> None:
    table = TABLE.drop_columns(["step"])
    for number in (2, 10):
        write(tmp_path / f"run/step={number}/part-0.parquet", table)
    expected = score(str(tmp_path / "run"), by_step=True).rows
    with WebServer(tmp_path) as server:
        for argument in ("run/", "run/step=*/part-*.parquet", "run/*", "**/*.parquet"):
            assert score(f"http://{server.host}/{argument}", by_step=True).rows == expected
        names = [source.name for source in find_sources([f"http://{server.host}/run/"])]
    assert [name.partition("/run/")[2] for name in names] == ["step%3D2/part-0.parquet", "step%3D10/part-0.parquet"]


def test_only_the_columns_and_row_groups_that_are_needed_are_fetched(tmp_path: Path) -> None:
    noise = [os.urandom(1 << 17).hex() for _ in range(8)]
    table = rewards_table(list("aabbccdd"), [1.0, 0.0] * 4, prompt=noise, answer=noise)
    path = Path(write(tmp_path / "r.parquet", table, row_group_size=2, compression="none", use_dictionary=False))
    with WebServer(tmp_path) as server:
        scored = score_rewards(f"http://{server.host}/r.parquet")
        assert scored.advantages.tolist() == [0.5, -0.5] * 4
        assert server.sent < path.stat().st_size / 2
        (file,) = scored.rollouts.files
        before = server.sent
        (fragment,) = file.fragments(0)
        part = remote.dataclasses.replace(fragment, parts=(1,), rows=2)
        assert pa.Table.from_batches(file.batches(part, ["prompt"]))["prompt"].to_pylist() == noise[2:4]
        assert server.sent - before < 2 * len(noise[0]) + 4 * remote.LEAST


def test_many_row_groups_are_fetched_by_threads_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("olmorl_cli.rollouts.files.FRAGMENT_BYTES", 1)
    monkeypatch.setattr(remote, "LEAST", 64)
    path = write(tmp_path / "r.parquet", TABLE, row_group_size=2)
    with WebServer(tmp_path) as server:
        result = score(f"http://{server.host}/r.parquet")
        assert len(result.answers.rollouts.fragments) == -(-TABLE.num_rows // 2)
    assert figures(result) == figures(score(path))


def test_a_connection_that_breaks_off_is_tried_again(tmp_path: Path) -> None:
    path = write(tmp_path / "r.parquet", TABLE)
    with WebServer(tmp_path, cuts=2) as server:
        assert figures(score(f"http://{server.host}/r.parquet")) == figures(score(path))
        assert server.cuts == 0


@pytest.mark.parametrize(
    ("name", "faults", "said"),
    [
        ("nope.parquet", {}, "no such file or folder"),
        ("nope/*.parquet", {}, "no data file matches"),
        ("r.parquet", {"status": 401}, "access is denied"),
        ("r.parquet", {"status": 403}, "access is denied"),
        ("*.parquet", {"status": 403}, "access is denied"),
        ("r.parquet", {"status": 410}, "no such file or folder"),
        ("r.parquet", {"status": 418}, "cannot be read"),
        ("r.parquet", {"status": 503}, "the server cannot answer now"),
        ("r.parquet", {"cuts": 99}, "the connection broke off"),
        ("r.arrow", {"cuts": 99}, "the connection broke off"),
        ("r.arrows", {"cuts": 99}, "the connection broke off"),
        ("r.jsonl", {"cuts": 99}, "the connection broke off"),
    ],
)
def test_what_fails_is_said_in_one_line_without_secrets(
    tmp_path: Path, name: str, faults: dict[str, int], said: str
) -> None:
    for suffix in ("parquet", "arrow", "arrows", "jsonl"):
        write(tmp_path / f"r.{suffix}", TABLE)
    with WebServer(tmp_path, **faults) as server:
        with pytest.raises(InputError, match=said) as caught:
            score(f"http://user:s3cret@{server.host}/{name}{SIGNED}")
        assert str(caught.value).startswith(f"http://{server.host}/{name}: ")
        assert all(auth == "Basic dXNlcjpzM2NyZXQ=" for *_, auth in server.requests)
    assert_no_secrets(caught.value)


def assert_no_secrets(error: BaseException | None) -> None:
    """Neither the error nor what a traceback would show of it has one, nor a second line."""
    while error is not None:
        assert "\n" not in str(error)
        assert not any(secret in str(error) for secret in SECRETS)
        error = error.__cause__


def test_no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    uri = f"http://user:s3cret@127.0.0.1:{free_port()}/r.parquet{SIGNED}"
    for argument in (uri, uri.replace("r.parquet", "*.parquet"), uri.partition("r.parquet")[0]):
        with pytest.raises(InputError, match="no connection") as caught:
            find_sources([argument])
        assert_no_secrets(caught.value)


@pytest.fixture
def s3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[WebServer]:
    """A server that s3:// leads to, as far as reading single files goes; s3://bucket/r.parquet is there."""
    import s3fs

    write(tmp_path / "bucket/r.parquet", TABLE)
    with WebServer(tmp_path) as server:
        for name, value in environment_of(f"http://{server.host}").items():
            monkeypatch.setenv(name, value)
        s3fs.S3FileSystem.clear_instance_cache()
        yield server
        s3fs.S3FileSystem.clear_instance_cache()


def test_an_s3_server_that_denies_or_dies(s3: WebServer) -> None:
    uri = "s3://bucket/r.parquet"
    assert score(uri).rows[0]["answers"] == TABLE.num_rows
    for faults, said in {
        (403, 0): "access is denied. Check the credentials, and what they allow",
        (503, 0): "the server cannot answer now. Try again later",
        (200, 99): "the connection broke off. Check the network, or try again",
    }.items():
        s3.status, s3.cuts = faults
        with pytest.raises(InputError) as caught:
            score(uri)
        assert str(caught.value) == f"{uri}: {said}"
    s3.status, s3.cuts = 200, 0
    rollouts = opened(uri)
    s3.cuts = 99
    with pytest.raises(InputError, match=r"^s3://bucket/r\.parquet: the connection broke off\."):
        score_objective(rollouts, [Recipe()])


def test_an_s3_server_that_is_not_there(s3: WebServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{free_port()}")
    for uri in ("s3://bucket/r.parquet", "s3://bucket/", "s3://bucket/*"):
        with pytest.raises(InputError, match="no connection") as caught:
            find_sources([uri])
        assert str(caught.value) == f"{uri.rstrip('/')}: no connection. Check the host and the network"


def test_the_variable_for_the_input_may_hold_a_uri(s3: WebServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OLMORL_ROLLOUTS", "s3://bucket/r.parquet")
    monkeypatch.setattr("olmorl_cli.rollouts.sources._standard_input_is_data", lambda: False)
    assert [source.name for source in find_sources([])] == ["s3://bucket/r.parquet"]


def test_a_silent_server_is_not_waited_for_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "READ_SECONDS", 0.2)
    monkeypatch.setattr(WebServer, "finish_request", lambda *_: __import__("time").sleep(1))
    with WebServer(tmp_path) as server, pytest.raises(InputError, match="no answer in time"):
        find_sources([f"http://{server.host}/r.parquet"])


def test_names_and_columns_of_folders_have_nothing_of_the_query(tmp_path: Path) -> None:
    write(tmp_path / "step=3/r.parquet", TABLE.drop_columns(["step"]))
    with WebServer(tmp_path) as server:
        (source,) = find_sources([f"http://user:s3cret@{server.host}/step=3/r.parquet{SIGNED}"])
        assert (source.name, source.partition) == (f"http://{server.host}/step=3/r.parquet", {"step": "3"})
        assert {path for _, path, *_ in server.requests} == {f"/step=3/r.parquet{SIGNED}"}  # as it was signed


SHOWN = {
    "https://user:s3cret@host/a/f.parquet?X-Amz-Signature=SIGNATURE": "https://host/a/f.parquet",
    "https://user:s3c/r@et@host/f#token=SIGNATURE": "https://host/f",
    "https://s3cret@host/f": "https://host/f",
    "http://u:s3cr?et@host/f": "http://host/f",
    "https://host?sig=SIGNATURE": "https://host",
    "s3://AKIA:s3cret/+x@bucket/k": "s3://bucket/k",
    "s3://bucket/k?versionId=SIGNATURE": "s3://bucket/k",
    "https://one/https://u:s3cret@two/x?sig=SIGNATURE": "https://one/https://two/x",
    "https://host:8080/a@b.parquet": "https://host:8080/a@b.parquet",
    "http://[::1]:8000/x@y": "http://[::1]:8000/x@y",
    "s3://bucket/run-?/step=3/a@b.parquet": "s3://bucket/run-?/step=3/a@b.parquet",
    "hf://datasets/someone/data@main/x": "hf://datasets/someone/data@main/x",
    "hf://data@main/x": "hf://data@main/x",
    "r?x=1.parquet": "r?x=1.parquet",
}


@pytest.mark.parametrize(("uri", "shown"), SHOWN.items())
def test_uris_are_shown_without_secrets_and_otherwise_whole(uri: str, shown: str) -> None:
    assert shown_uri(uri) == shown
    assert without_secrets(f"no {uri} (and {uri} neither)").startswith(f"no {shown} (and {shown}")


def test_errors_of_packages_lose_what_the_uri_holds() -> None:
    from olmorl_cli.rollouts.remote_errors import failure_of, secrets_of

    secrets = secrets_of(f"https://user:s3cret@host/f{SIGNED}")
    for text in (
        f"bad /f{SIGNED}",
        "bad user:s3cret",
        "no AKIA/1 or AKIA%2F1",
        "a\nSIGNATURE",
        f"https://u:p@host/f{SIGNED}",
    ):
        failure, shown = failure_of(ValueError(text), secrets)
        assert failure.what.startswith("cannot be read: ")
        assert not any(secret in f"{failure.what}{shown}" for secret in SECRETS)
        assert "\n" not in failure.what


@pytest.mark.parametrize("order", [("a.parquet", "b.jsonl"), ("b.jsonl", "a.parquet")])
def test_files_from_here_and_there_together(tmp_path: Path, order: tuple[str, ...]) -> None:
    for name, table in zip(("a.parquet", "b.jsonl"), (TABLE.slice(0, 9), TABLE.slice(9)), strict=True):
        write(tmp_path / name, table)
    here = [str(tmp_path / name) for name in order]
    with WebServer(tmp_path) as server:
        there = [here[0], f"http://{server.host}/{order[1]}"]
        assert figures(score(there)) == figures(score(here))


def test_every_error_here_has_the_exit_code_of_what_could_not_be_done() -> None:
    assert issubclass(remote.RemoteError, OlmorlError)
    assert remote.RemoteError.exit_code == 2


def test_long_texts_are_looked_through_once() -> None:
    scheme, _, _ = _URI.pattern.partition("://")
    assert re.compile(scheme).match("A" * 20_000).end() == 32  # type: ignore[union-attr]  # characters looked at from a place
    assert without_secrets("A" * 20_000) == "A" * 20_000
    assert without_secrets("A" * 20_000 + "://me:secret@host/x") == "A" * 20_000 + "://host/x"
    assert without_secrets("ab://" * 20_000 + "me:secret@host") == "ab://…"
