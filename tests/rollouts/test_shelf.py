"""Rows laid down once come back in any order."""

import numpy as np
import pyarrow as pa
import pytest

from olmorl_cli.rollouts import shelf
from olmorl_cli.rollouts.shelf import Shelf


def test_a_shelf_gives_rows_in_any_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shelf, "CHUNK_BYTES", 100)
    draw = np.random.default_rng(3)
    table = pa.table({"x": np.arange(100), "y": [[i] * (i % 4) for i in range(100)], "z": [f"{i}" for i in range(100)]})
    kept = Shelf(table.schema, table.to_batches(max_chunksize=3), "t")
    for rows in (np.arange(100), np.arange(40, 60), draw.permutation(100), draw.integers(0, 100, 30), np.array([7])):
        taken = pa.table(kept.take(rows))
        taken.validate(full=True)
        assert taken.equals(table.take(pa.array(rows)))
