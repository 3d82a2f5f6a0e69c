"""Writes the rows of a Parquet file into many files of about as many rows each."""

import sys
from pathlib import Path

import pyarrow.parquet as pq


def main(path: str, folder: str, files: str) -> None:
    """Write 0.parquet and so on into a new folder."""
    rollouts = pq.read_table(path)
    rows = -(-rollouts.num_rows // int(files))
    Path(folder).mkdir()
    for number in range(int(files)):
        pq.write_table(rollouts.slice(number * rows, rows), f"{folder}/{number}.parquet")


if __name__ == "__main__":
    main(*sys.argv[1:])
