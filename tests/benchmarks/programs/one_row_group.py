"""Writes a Parquet file again with all rows in one row group. Holds them all: pyarrow starts a group at every write."""

import sys

import pyarrow.parquet as pq


def main(path: str, output: str) -> None:
    """Write, and see in the footer that it is one."""
    rows = pq.read_table(path)
    pq.write_table(rows, output, row_group_size=rows.num_rows)
    row_groups = pq.read_metadata(output).num_row_groups
    if row_groups != 1:
        sys.exit(f"{row_groups} row groups, not one")


if __name__ == "__main__":
    main(*sys.argv[1:])
