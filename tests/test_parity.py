"""What trainers' own functions gave on random rollouts, met by recipes of the same settings.

The values lie in a folder `shared/parity` beside the repository: random rollouts, and for each set what functions of
open-instruct, TRL, verl, OpenRLHF, NeMo RL, slime, SkyRL and others returned on them at a known commit.
"""

import ast
import json
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from olmorl_cli.core.recipes import Recipe
from olmorl_cli.rollouts.opening import OPTIONAL, open_rollouts
from olmorl_cli.rollouts.rollouts import Rollouts, Selection
from olmorl_cli.scoring import score_answers, score_objective
from tests.readme import ROOT

PARITY = ROOT.parent / "shared" / "parity"
SETS = sorted(PARITY.glob("set_*.json"))
ADVANTAGE = ("center", "scale", "ddof", "std_eps", "size_1", "zero_std", "advantage_clip", "zero_signal_groups")
RATIO = ("surrogate", "ratio_level", "log_ratio_low", "log_ratio_high", "eps_low", "eps_high", "dual_clip", "delta")
REST = ("aggregation", "divisor", "sampler_mode", "sampler_level", "sampler_low", "sampler_cap", "sampler_log_clamp")
LEAVE_OUT = {"size_1": ("absent",), "sampler_level": (None,), "ddof": (None,), "std_eps": (None,)}


def in_scope(settings: dict[str, Any]) -> bool:
    """Whether recipes can say these settings."""
    kl = settings["kl"] or {}
    return (
        settings["center"] is not None
        and settings["scale"] != "whiten_over_tokens"
        and not settings["sampler_mode"].startswith("raw")
        and not settings["sampler_batch_normalized"]
        and not any(kl.get(key) for key in ("times_ratio", "diff_clamp", "value_clamp"))
        and kl.get("estimator") != "ratio_times_k1"
        and kl.get("aggregation", "as_loss") == "as_loss"
    )


def recipe_of(settings: dict[str, Any]) -> Recipe:
    """The settings as a recipe file would say them."""
    keys: dict[str, Any] = {}
    for field in (*ADVANTAGE, *RATIO, *REST):
        value = settings[field]
        if value in LEAVE_OUT.get(field, ()) or (settings["surrogate"] is None and field not in ADVANTAGE):
            continue
        keys[field] = "none" if value is None else value
    if settings["surrogate"] is not None:
        keys["ratio"] = "sampler" if settings["ratio"].endswith("sampler") else "old"
        # The bounds that follow from the trainer's own option: some write them as absolute values.
        for side, bound in (("low", settings["ratio_low"]), ("high", settings["ratio_high"])):
            keys[f"eps_{side}"] = "none" if bound is None else keys[f"eps_{side}"] if side == "low" else bound - 1.0
        if settings["kl"] is not None:
            keys["kl"] = {name: settings["kl"][name] for name in ("estimator", "coefficient")}
    return Recipe.from_mapping(keys, name="parity")


@cache
def opened(path: Path, roles: frozenset[str]) -> Rollouts:
    return open_rollouts([str(path)], Selection(), roles | {"group", "step", "reward", "mask"}, OPTIONAL | {"logp_old"})


def close(value: float | None, expected: float, tolerance: float) -> bool:
    return value is not None and abs(value - expected) <= tolerance * max(1.0, abs(expected))


def mismatches(path: Path) -> tuple[int, list[str]]:
    """How many expectations of a set were tried, and those that are not met."""
    tried, wrong = 0, []
    data = path.with_suffix(".parquet")
    for number, expected in enumerate(json.loads(path.read_text())):
        settings = expected["settings"]
        if not in_scope(settings):
            continue
        recipe = recipe_of(settings)
        label = f"{number} {expected['trainer']} {expected['function'].split(':')[-1].strip()}"
        tolerance = expected["tolerance_without_eps"]
        rollouts = opened(data, recipe.needs if settings["surrogate"] else frozenset())
        tried += 1
        if expected["advantages"]:
            found = score_answers(rollouts, recipe).advantages.tolist()
            pairs = zip(found, expected["advantages"], strict=True)
            if not all(close(a, b, tolerance) for a, b in pairs if b is not None):
                wrong.append(f"{label}: advantages")
        if expected["objective"] is not None:
            value = score_objective(rollouts, [recipe])[0].rows[0]["objective"]
            if not close(value, expected["objective"], tolerance):
                wrong.append(f"{label}: objective {value}, expected {expected['objective']}, recipe {recipe}")
    return tried, wrong


@pytest.mark.skipif(not SETS, reason="shared/parity is not beside the repository")
@pytest.mark.parametrize("path", SETS, ids=lambda path: path.stem)
def test_trainers_values_are_met(path: Path) -> None:
    tried, wrong = mismatches(path)
    assert tried > 20
    assert wrong == []


ORACLE = ROOT.parent / "shared" / "data" / "rollouts" / "trl_bf16_loss_oracle.json"


@pytest.mark.skipif(not ORACLE.exists(), reason="shared/data is not beside the repository")
def test_the_losses_that_a_real_trl_run_logged_come_out_of_its_tokens(tmp_path: Path) -> None:
    """One minibatch a step, the trainer's own advantages, its divisor N; tr1 is the update before, tr2 the one after."""
    table = pq.read_table(ORACLE.parent / "trl_bf16_mb1_oracle.parquet")
    logged = json.loads(ORACLE.read_text())
    assert len(logged) == 8
    for key, expected in logged.items():
        _, step, trained = ast.literal_eval(key)
        steps = table["step"].to_pylist()
        pq.write_table(table.filter([value == step for value in steps]), tmp_path / "one.parquet")
        new = "new_logprobs" if trained == "tr2" else "old_logprobs"
        columns = {"advantage": ("advantage_logged",), "logp_new": (new,), "logp_old": ("old_logprobs",)}
        needs = frozenset({"group", "step", "reward", "advantage", "logp_new", "logp_old", "mask"})
        rollouts = open_rollouts([str(tmp_path / "one.parquet")], Selection(columns), needs)
        recipe = Recipe(
            eps_high=0.2, zero_signal_groups="kept", aggregation="sum_over_constant", divisor=expected["N"], name="trl"
        )
        (row,) = score_objective(rollouts, [recipe])[0].rows
        assert abs(-row["objective"] - expected["logged_loss"]) < 1e-6
        assert row["tokens"] == expected["ntok"]
        assert abs(row["clip_low"] + row["clip_high"] - expected["logged_clip"]) < 1e-6
