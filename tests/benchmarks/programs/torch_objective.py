"""OlmoRL's objective with PyTorch as a trainer has it: kept answers padded to the longest of a batch, in float64."""

import json
import os
import sys
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # threads that spin while they wait are slow on a busy machine

import torch
from torch.nn.utils.rnn import pad_sequence

GROUP_SIZE = 8
ANSWERS = 4096
"""In a batch."""
TOKEN_COLUMNS = ("logp_new", "logp_old", "mask")
EPS_LOW, EPS_HIGH = 0.2, 0.272


def objective(path: str) -> float:
    """Mean over the real tokens of kept groups of min(ρA, clip(ρ)A)."""
    total, count = torch.zeros((), dtype=torch.float64), torch.zeros((), dtype=torch.int64)
    for advantages, new, old, real in padded_batches(path):
        advantage = advantages[:, None]
        ratio = torch.exp(new - old)
        terms = torch.min(ratio * advantage, torch.clamp(ratio, 1 - EPS_LOW, 1 + EPS_HIGH) * advantage)
        total += terms.masked_fill(~real, 0.0).sum()
        count += real.sum()
    return (total / count).item()


def padded_batches(path: str) -> Iterator[tuple[torch.Tensor, ...]]:
    """Advantages (n,), and new and old log-probs and mask (n, longest), of the kept answers of one batch after another."""
    with pq.ParquetFile(path) as file:
        advantages, kept = scored(file)
        batches = file.iter_batches(batch_size=ANSWERS, columns=TOKEN_COLUMNS)
        first = 0
        for batch in batches:
            rows = slice(first, first := first + batch.num_rows)
            answers = batch.filter(pa.array(kept[rows].numpy()))
            yield advantages[rows][kept[rows]], *(padded(answers[name]) for name in TOKEN_COLUMNS)


def scored(file: pq.ParquetFile) -> tuple[torch.Tensor, torch.Tensor]:
    """Every answer's advantage and whether its group is kept; groups are consecutive."""
    rewards = torch.from_numpy(file.read(["reward"])["reward"].to_numpy().copy()).view(-1, GROUP_SIZE)
    advantages = rewards - rewards.mean(dim=1, keepdim=True)
    kept = rewards.amax(dim=1) != rewards.amin(dim=1)
    return advantages.flatten(), kept.repeat_interleave(GROUP_SIZE)


def padded(lists: pa.ListArray) -> torch.Tensor:
    """A matrix with one answer a row, 0 behind its end; numbers as float64."""
    tokens = torch.from_numpy(lists.flatten().to_numpy(zero_copy_only=False).copy())
    tokens = tokens if tokens.dtype == torch.bool else tokens.double()
    return pad_sequence(tokens.split(lists.value_lengths().to_pylist()), batch_first=True)


if __name__ == "__main__":
    with torch.inference_mode():
        sys.stdout.write(json.dumps({"objective": objective(sys.argv[1])}) + "\n")
