"""OlmoRL's objective with Polars: lazy, streamed, tokens exploded to rows (faster here than arithmetic on lists)."""

import json
import sys

import polars as pl

GROUP = ("step", "prompt_id")
EPS_LOW, EPS_HIGH = 0.2, 0.272


def objective(path: str) -> float:
    """Mean over the real tokens of kept groups of min(ρA, clip(ρ)A)."""
    answers, reward = pl.scan_parquet(path), pl.col("reward")
    kept = answers.group_by(GROUP).agg(mean=reward.mean(), kept=reward.max() != reward.min()).filter("kept")
    tokens = (
        answers.join(kept, on=GROUP)
        .select((reward - pl.col("mean")).alias("advantage"), "logp_new", "logp_old", "mask")
        .explode("logp_new", "logp_old", "mask")
        .filter("mask")
    )
    advantage = pl.col("advantage")
    ratio = (pl.col("logp_new").cast(pl.Float64) - pl.col("logp_old").cast(pl.Float64)).exp()
    term = pl.min_horizontal(ratio * advantage, ratio.clip(1 - EPS_LOW, 1 + EPS_HIGH) * advantage)
    return tokens.select(term.sum() / pl.len()).collect(engine="streaming").item()


if __name__ == "__main__":
    sys.stdout.write(json.dumps({"objective": objective(sys.argv[1])}) + "\n")
