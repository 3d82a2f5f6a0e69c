"""Reads columns of a Parquet file as fast as pyarrow can: row groups side by side, a file object each, one footer."""

import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor

import pyarrow.parquet as pq


def main(path: str, columns: list[str]) -> None:
    """Read, and say how many answers that were."""
    with pq.ParquetFile(path) as file:
        footer = file.metadata

    def read(row_group: int) -> int:
        with pq.ParquetFile(path, metadata=footer, buffer_size=1 << 20, pre_buffer=False) as file:
            batches = file.iter_batches(batch_size=2048, row_groups=[row_group], columns=columns, use_threads=False)
            return sum(batch.num_rows for batch in batches)

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    with ThreadPoolExecutor(cores) as pool:
        answers = sum(pool.map(read, range(footer.num_row_groups)))
    sys.stdout.write(json.dumps({"answers": answers}) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
