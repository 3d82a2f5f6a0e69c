"""What trainers' own functions give, met through the command line by recipe files of the same settings.

The values lie in a folder `shared/parity` beside the repository: random rollouts, and for each set what functions of
open-instruct, TRL, verl, OpenRLHF, NeMo RL, slime, SkyRL and others returned on them at a known commit. Where it is not, the
small vectors of tests/core (vectors.py, published.py) hold the same ground.
"""

import ast
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from olmorl_cli.cli import app
from olmorl_cli.core.recipes import CHOICES, KL_ESTIMATORS
from tests.core.published import PUBLISHED, Published
from tests.core.vectors import DEFINITIONS, ROLLOUTS, Settings, worked_out
from tests.readme import ROOT

PARITY = ROOT.parent / "shared" / "parity"
SETS = sorted(PARITY.glob("set_*.json"))
ADVANTAGE = ("center", "scale", "ddof", "std_eps", "size_1", "zero_std", "advantage_clip", "zero_signal_groups")
RATIO = ("surrogate", "ratio_level", "log_ratio_low", "log_ratio_high", "eps_low", "eps_high", "dual_clip", "delta")
REST = ("aggregation", "divisor", "sampler_mode", "sampler_level", "sampler_low", "sampler_cap", "sampler_log_clamp")
LEAVE_OUT = {"size_1": ("absent",), "sampler_level": (None,), "ddof": (None,), "std_eps": (None,)}


def olmorl(*args: str) -> None:
    """Run a command in this process; what goes wrong is raised."""
    assert app(args=[*args, "--quiet"], prog_name="olmorl", standalone_mode=False) in (0, None)


def toml(value: Any) -> str:
    """A value as a recipe file writes it."""
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{key} = {toml(each)}' for key, each in value.items())} }}"
    return json.dumps("none" if value is None else value)


def recipe_files(folder: Path, recipes: Sequence[Settings]) -> list[str]:
    """The options that name a file for each of the recipes."""
    options = []
    for number, settings in enumerate(recipes):
        path = folder / f"recipe{number}.toml"
        path.write_text("".join(f"{key} = {toml(value)}\n" for key, value in settings.items()))
        options += ["--recipe", str(path)]
    return options


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def compared(folder: Path, data: str, recipes: Sequence[Settings], *options: str) -> list[float | None]:
    """The objective under each recipe, of one `compare`."""
    olmorl("compare", data, *recipe_files(folder, recipes), *options, "-o", str(folder / "compared.jsonl"))
    rows = lines(folder / "compared.jsonl")
    assert [row["recipe"] for row in rows] == [f"recipe{number}" for number in range(len(recipes))]
    return [row["objective"] for row in rows]


def advantages_of(folder: Path, data: str, recipes: Sequence[Settings]) -> list[list[float | None]]:
    """Every answer's advantage under each recipe, of one `advantages` for all that differ in nothing else."""
    found: dict[str, list[float | None]] = {}
    keys = [json.dumps({field: recipe[field] for field in ADVANTAGE if field in recipe}) for recipe in recipes]
    for key in dict.fromkeys(keys):
        options = recipe_files(folder, [json.loads(key)])
        olmorl("advantages", data, *options, "-o", str(folder / "advantages.jsonl"))
        found[key] = [row["advantage"] for row in lines(folder / "advantages.jsonl")]
    return [found[key] for key in keys]


def close(value: float | None, expected: float, tolerance: float) -> bool:
    return value is not None and abs(value - expected) <= tolerance * max(1.0, abs(expected))


def all_close(values: Sequence[float | None], expected: Sequence[float | None], tolerance: float) -> bool:
    return all(close(a, b, tolerance) for a, b in zip(values, expected, strict=True) if b is not None)


def in_scope(settings: dict[str, Any]) -> bool:
    """Whether recipes can say these settings (`ratio_times_k1` is `times_ratio` by another name)."""
    kl = settings["kl"] or {}
    return (
        settings["center"] is not None
        and settings["scale"] != "whiten_over_tokens"
        and not settings["sampler_mode"].startswith("raw")
        and not settings["sampler_batch_normalized"]
        and not any(kl.get(key) for key in ("times_ratio", "diff_clamp", "value_clamp"))
        and kl.get("estimator") != "ratio_times_k1"
    )


def recipe_of(settings: dict[str, Any]) -> Settings:
    """The settings as a recipe file says them, the KL term as the loss is aggregated."""
    fields = ADVANTAGE if settings["surrogate"] is None else (*ADVANTAGE, *RATIO, *REST)
    keys = {field: settings[field] for field in fields if settings[field] not in LEAVE_OUT.get(field, ())}
    if settings["surrogate"] is not None:
        keys["ratio"] = "sampler" if settings["ratio"].endswith("sampler") else "old"
        # The bounds that follow from the trainer's own option: some write them as absolute values.
        if settings["ratio_low"] is None:
            keys["eps_low"] = None
        keys["eps_high"] = None if settings["ratio_high"] is None else settings["ratio_high"] - 1.0
        if settings["kl"] is not None:
            keys["kl"] = {name: settings["kl"][name] for name in ("estimator", "coefficient")}
    return keys


def summands(settings: dict[str, Any]) -> list[tuple[int, Settings]]:
    """Recipes whose objectives, with these signs, add up to the settings' own.

    That is one recipe; but where the KL term is aggregated otherwise than the loss (SkyRL's is), which no recipe says, it is
    the difference of two further recipes.
    """
    recipe, how = recipe_of(settings), (settings["kl"] or {}).get("aggregation", "as_loss")
    if how in ("as_loss", settings["aggregation"]):
        return [(1, recipe)]
    without = recipe | {"kl": None}
    return [(1, without), (1, recipe | {"aggregation": how}), (-1, without | {"aggregation": how})]


@pytest.mark.skipif(not SETS, reason="shared/parity is not beside the repository")
@pytest.mark.parametrize("path", SETS, ids=lambda path: path.stem)
def test_trainers_values_are_met(path: Path, tmp_path: Path) -> None:
    """Every expectation that recipes can say, the objectives of a set by one `compare`."""
    data = str(path.with_suffix(".parquet"))
    expected = [each for each in json.loads(path.read_text()) if in_scope(each["settings"])]
    assert len(expected) > 20
    found = advantages_of(tmp_path, data, [recipe_of(each["settings"]) for each in expected])
    wrong = [
        f"{number} {each['trainer']} {each['function']}: advantages, recipe {recipe_of(each['settings'])}"
        for number, (each, values) in enumerate(zip(expected, found, strict=True))
        if each["advantages"] and not all_close(values, each["advantages"], each["tolerance_without_eps"])
    ]
    with_loss = [(number, each) for number, each in enumerate(expected) if each["objective"] is not None]
    parts = [(at, *part) for at, (_, each) in enumerate(with_loss) for part in summands(each["settings"])]
    totals = [0.0] * len(with_loss)
    for (at, sign, recipe), value in zip(parts, compared(tmp_path, data, [part[2] for part in parts]), strict=True):
        assert value is not None, recipe
        totals[at] += sign * value
    for (number, each), total in zip(with_loss, totals, strict=True):
        if not close(total, each["objective"], each["tolerance_without_eps"]):
            recipe = recipe_of(each["settings"])
            wrong.append(f"{number} {each['trainer']} {each['function']}: {total}, not {each['objective']}, recipe {recipe}")
    assert wrong == []


def test_definitions_are_met(tmp_path: Path) -> None:
    """What trainers' published definitions make of our own rollouts: one `compare`, and the advantages of each."""
    data = str(tmp_path / "rollouts.parquet")
    pq.write_table(pa.table(ROLLOUTS), data, row_group_size=4)
    recipes = [definition.settings for definition in DEFINITIONS]
    found = zip(DEFINITIONS, advantages_of(tmp_path, data, recipes), compared(tmp_path, data, recipes), strict=True)
    for definition, advantages, objective in found:
        expected = worked_out(definition.settings)
        assert all_close(advantages, expected[0], 1e-12), definition
        assert close(objective, expected[1], 1e-12), definition


@pytest.mark.parametrize("vector", PUBLISHED, ids=lambda vector: vector.source)
def test_published_values_are_met(vector: Published, tmp_path: Path) -> None:
    """Inputs and results of the trainers' own tests and runs."""
    data = str(tmp_path / "rollouts.parquet")
    pq.write_table(pa.table(vector.columns), data)
    if vector.advantages is not None:
        (values,) = advantages_of(tmp_path, data, [vector.settings])
        assert all_close(values, vector.advantages, vector.tolerance)
    if vector.objective is not None:
        (value,) = compared(tmp_path, data, [vector.settings], "--advantage", "advantage")
        assert close(value, vector.objective, vector.tolerance), value


def test_definitions_are_of_every_kind() -> None:
    """Every word that a recipe's fields can take is said by one of them, and every number is set."""
    said = {(key, str(value)) for _, settings in DEFINITIONS for key, value in settings.items()}
    default = {("size_1", "zero"), ("zero_std", "divide"), ("zero_signal_groups", "dropped"), ("sampler_level", "token")}
    default |= {(field, str(words[0])) for field, words in CHOICES.items()}
    words = {(field, str(word)) for field, words in CHOICES.items() for word in words}
    assert words - said - default == set()
    assert {settings["kl"]["estimator"] for _, settings in DEFINITIONS if "kl" in settings} == set(KL_ESTIMATORS)
    numbers = {"std_eps", "eps_low", "eps_high", "dual_clip", "delta", "log_ratio_low", "log_ratio_high", "divisor"}
    numbers |= {"advantage_clip", "sampler_low", "sampler_cap", "sampler_log_clamp"}
    assert numbers - {key for key, _ in said} == set()


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
        recipe = {
            "eps_high": 0.2,
            "zero_signal_groups": "kept",
            "aggregation": "sum_over_constant",
            "divisor": expected["N"],
        }
        columns = ("--advantage", "advantage_logged", "--logp-new", new, "--logp-old", "old_logprobs")
        files = recipe_files(tmp_path, [recipe])
        olmorl("objective", str(tmp_path / "one.parquet"), *files, *columns, "-o", str(tmp_path / "o.jsonl"))
        (row,) = lines(tmp_path / "o.jsonl")
        assert abs(-row["objective"] - expected["logged_loss"]) < 1e-6
        assert row["tokens"] == expected["ntok"]
        assert abs(row["clip_low"] + row["clip_high"] - expected["logged_clip"]) < 1e-6
