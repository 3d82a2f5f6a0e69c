"""sample_data: made by its script, deterministic, and what its README promises."""

import runpy

import numpy as np
import pyarrow.parquet as pq
import pytest

from olmorl_cli.core.recipes import Recipe
from olmorl_cli.objectives import score_objective
from olmorl_cli.rollouts.opening import open_rollouts
from olmorl_cli.rollouts.rollouts import Selection
from olmorl_cli.scoring import score_answers
from tests.readme import ROOT

FOLDER = ROOT / "sample_data"
COLUMNS = [
    "step",
    "prompt_id",
    "prompt",
    "answer_id",
    "answer",
    "reward",
    "finish_reason",
    "logp_new",
    "logp_old",
    "logp_sampler",
    "mask",
]


def test_two_steps_are_made_anew_as_they_stand_in_the_file() -> None:
    """On the machine that made the file to the last bit; elsewhere exp and matrix products may round otherwise."""
    make = runpy.run_path(str(FOLDER / "make_rollouts.py"))["make_rollouts"]
    two = make(2, 6)
    assert two.equals(make(2, 6))
    file = pq.read_table(FOLDER / "rollouts.parquet").slice(0, two.num_rows)
    assert two.column_names == file.column_names == COLUMNS
    if two["answer"].equals(file["answer"]):
        for name in ("logp_new", "logp_old", "logp_sampler"):
            made, kept = (np.concatenate(table[name].to_pylist()) for table in (two, file))
            assert np.abs(made - kept).max() < 1e-3
    else:
        pytest.skip("this machine's arithmetic sampled another answer than the one that made the file")


def test_the_run_is_one_to_learn_from() -> None:
    """Reward rises; some groups are all right, some all wrong; tokens are clipped on both sides; under a megabyte."""
    path = FOLDER / "rollouts.parquet"
    assert path.stat().st_size < 1_000_000
    needs = frozenset({"group", "step", "reward", "logp_new", "logp_old", "logp_sampler", "mask"})
    rollouts = open_rollouts([str(path)], Selection(), needs)
    scored = score_answers(rollouts, Recipe())
    statistics, steps = scored.statistics, scored.table.step_of_group
    means = np.bincount(steps, statistics.mean) / np.bincount(steps)
    assert means.size >= 20
    assert means[-5:].mean() > means[:5].mean() + 0.3
    dropped = statistics.mean[~statistics.kept]
    assert (dropped == 1.0).any()
    assert (dropped == 0.0).any()
    assert (statistics.size == 8).all()
    (row,) = score_objective(rollouts, [Recipe()])[0].rows
    assert row["clip_low"] > 0.0 < row["clip_high"]
    assert row["sampler_abs_diff"] > 0.0
