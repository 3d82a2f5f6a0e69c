"""Advantages with Polars: every column to Parquet, or group, row, reward, advantage, kept to JSON Lines."""

import sys

import polars as pl


def main(path: str, output: str) -> None:
    """Write; to JSON Lines if the output's name ends so."""
    answers = pl.scan_parquet(path)
    if output.endswith(".jsonl"):
        answers = answers.with_row_index("row").rename({"prompt_id": "group"})
        scored(answers, "group").select("group", "row", "reward", "advantage", "kept").sink_ndjson(output)
    else:
        scored(answers, "prompt_id").sink_parquet(output, compression="snappy")  # as olmorl's; the default is slower


def scored(answers: pl.LazyFrame, group: str) -> pl.LazyFrame:
    """The answers with their advantage, reward - mean of the group, and whether the group's rewards differ."""
    reward = pl.col("reward")
    kept = reward.max().over(group) != reward.min().over(group)
    return answers.with_columns(advantage=reward - reward.mean().over(group), kept=kept)


if __name__ == "__main__":
    main(*sys.argv[1:])
