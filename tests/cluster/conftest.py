"""A cluster of two nodes, and rollouts for it to score."""

import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests import servers
from tests.cli import kit
from tests.cluster.nodes import Cluster


@pytest.fixture(scope="session")
def store() -> Iterator[dict[str, str]]:
    """Variables that lead to a server that speaks S3."""
    with servers.object_store() as address:
        yield servers.environment_of(address)


@pytest.fixture(scope="session")
def cluster(store: dict[str, str]) -> Iterator[Cluster]:
    """Two nodes, whose workers can reach the S3 server."""
    with Cluster(store) as cluster:
        cluster.add()
        yield cluster


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with 8 files of 2 row groups each, 4 million tokens; groups lie across the ends of files."""
    folder = tmp_path_factory.mktemp("run")
    whole = folder / "whole.parquet"
    shape = ("--steps", "4", "--prompts", "250", "--group-size", "8", "--tokens", "500")
    assert kit.run("sample", "-o", str(whole), *shape).code == 0
    table, rows = pq.read_table(whole), 8000
    os.makedirs(folder / "files")
    cuts = [0, *(part * rows // 8 + 3 for part in range(1, 8)), rows]
    for part, (first, last) in enumerate(itertools.pairwise(cuts)):
        pq.write_table(table.slice(first, last - first), folder / "files" / f"part-{part}.parquet", row_group_size=501)
    return folder / "files"
