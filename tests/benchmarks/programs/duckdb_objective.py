"""OlmoRL's objective with DuckDB: tokens unnested to rows (faster here than functions on lists)."""

import json
import sys

import duckdb

OBJECTIVE = """
    with answers as (
        select reward - avg(reward) over answers_of_group as advantage, logp_new, logp_old, mask
        from read_parquet($path)
        window answers_of_group as (partition by step, prompt_id)
        qualify max(reward) over answers_of_group <> min(reward) over answers_of_group
    ),
    tokens as (
        select advantage, unnest(logp_new)::double as logp_new, unnest(logp_old)::double as logp_old, unnest(mask) as real
        from answers
    ),
    ratios as (select advantage, exp(logp_new - logp_old) as ratio from tokens where real)
    select sum(least(ratio * advantage, greatest(1 - $eps_low, least(1 + $eps_high, ratio)) * advantage)) / count(*)
    from ratios
"""


def objective(path: str) -> float:
    """Mean over the real tokens of kept groups of min(ρA, clip(ρ)A)."""
    settings = {"path": path, "eps_low": 0.2, "eps_high": 0.272}
    with duckdb.connect() as database:
        return database.execute(OBJECTIVE, settings).fetchall()[0][0]


if __name__ == "__main__":
    sys.stdout.write(json.dumps({"objective": objective(sys.argv[1])}) + "\n")
