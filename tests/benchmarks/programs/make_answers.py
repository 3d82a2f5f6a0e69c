"""Writes answers to Parquet: prompt_id and a reward of 0 or 1, in groups of one size."""

import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq


def main(output: str, answers: int, group_size: int, order: str) -> None:
    """Write whole groups: sorted by integer ids, or shuffled rows with text ids."""
    rng = np.random.default_rng(0)
    prompts = max(1, answers // group_size)
    prompt_of_answer = np.repeat(np.arange(prompts), group_size)
    skill = np.repeat(rng.beta(0.7, 0.9, prompts), group_size)
    rewards = (rng.random(prompt_of_answer.size) < skill).astype(np.float64)
    ids = pa.array(prompt_of_answer)
    if order == "shuffled":
        shuffled = rng.permutation(prompt_of_answer.size)
        names = pa.array(np.char.add("p", np.char.zfill(np.arange(prompts).astype(np.str_), 8)))
        ids, rewards = names.take(pa.array(prompt_of_answer[shuffled])), rewards[shuffled]
    pq.write_table(pa.table({"prompt_id": ids, "reward": rewards}), output)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
