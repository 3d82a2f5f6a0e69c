"""Parquet as it is written: few row groups, and dictionaries where values repeat."""

import io

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from olmorl_cli.rollouts import writer

ROWS = 6000


def written(table, rows_a_batch):
    """What `write_batches` makes of a table that comes in batches."""
    sink = io.BytesIO()
    batches = table.to_batches(max_chunksize=rows_a_batch)
    writer.write_batches(table.schema, batches, "parquet", sink, stream=False)
    return pq.ParquetFile(io.BytesIO(sink.getvalue()))


def columns_with_dictionary(file):
    group = file.metadata.row_group(0)
    columns = [group.column(number) for number in range(group.num_columns)]
    return {column.path_in_schema for column in columns if column.has_dictionary_page}


def test_batches_share_a_row_group_up_to_its_size(monkeypatch):
    """Batches of 1000 rows of 8 bytes: two make up 16,000 bytes."""
    monkeypatch.setattr(writer, "ROW_GROUP_BYTES", 16_000)
    table = pa.table({"x": np.arange(5000)})
    file = written(table, 1000)
    assert [file.metadata.row_group(n).num_rows for n in range(file.metadata.num_row_groups)] == [2000, 2000, 1000]
    assert file.read().equals(table)


def test_values_that_repeat_have_a_dictionary_inside_lists_and_structs_too():
    """Log-probs do not repeat, masks do; nor does a short column show that it does not."""
    rng = np.random.default_rng(0)
    repeating, new = rng.integers(0, 2, ROWS), rng.random(ROWS)
    offsets = pa.array(np.arange(0, ROWS + 1, 2, dtype=np.int32))
    lists = {
        name: pa.ListArray.from_arrays(offsets, pa.array(values)) for name, values in (("mask", repeating), ("logp", new))
    }
    pairs = pa.StructArray.from_arrays([pa.array(repeating[:3000]), lists["logp"]], ["a", "b"])
    maps = pa.MapArray.from_arrays(offsets, pa.array([f"k{row % 3}" for row in range(ROWS)]), pa.array(new))
    halves = pa.array(new[:3000].astype(np.float16))
    table = pa.table({**lists, "pair": pairs, "map": maps, "short": pa.array(new[:3000]), "half": halves})
    file = written(table, 3000)
    repeat = {"mask.list.element", "pair.a", "map.key_value.key", "short", "half"}
    assert columns_with_dictionary(file) == repeat
    assert file.read().equals(table)


def test_no_rows_are_a_file_too():
    table = pa.table({"x": pa.array([], pa.int64())})
    assert written(table, 10).read().equals(table)
