"""Compares two files of advantages, row by row: prints the largest difference and whether all other columns are equal."""

import json
import sys

import numpy as np
import pyarrow as pa
import pyarrow.json
import pyarrow.parquet as pq


def read(path: str) -> pa.Table:
    """The whole file, JSON Lines or Parquet."""
    return pyarrow.json.read_json(path) if path.endswith(".jsonl") else pq.read_table(path)


def main(path: str, other_path: str) -> None:
    """Compare; numbers of different types are equal if their values are."""
    one, other = read(path), read(other_path)
    names = [name for name in one.column_names if name != "advantage"]
    same = one.num_rows == other.num_rows and one.column_names == other.column_names
    same = same and all(one[name].equals(other[name].cast(one[name].type)) for name in names)
    difference = np.abs(one["advantage"].to_numpy() - other["advantage"].to_numpy()).max() if same else float("inf")
    found = {"answers": one.num_rows, "same_columns": bool(same), "largest_difference": float(difference)}
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
