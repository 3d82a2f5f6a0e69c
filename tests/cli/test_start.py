"""What is imported when: little at the start, and only downwards (design: arrows go down only)."""

import ast
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import olmorl_cli
from tests.cli import kit

PACKAGE = Path(olmorl_cli.__file__).parent
MODULES = {".".join(path.relative_to(PACKAGE).with_suffix("").parts): path for path in PACKAGE.rglob("*.py")}
HEAVY = ("numpy", "pyarrow", "rich.table", "rich.progress", "olmorl_cli.core", "olmorl_cli.display")

LOADED = """
import json, os, sys
import typer, typer.main
with_typer = set(sys.modules)
from olmorl_cli.__main__ import main
from olmorl_cli.cli import app
names = sorted(typer.main.get_command(app).commands)
result = os.dup(1)
os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
codes = {}
for args in json.loads(sys.argv[1]) or [["--version"], ["--help"], ["-h"], *([name, "--help"] for name in names)]:
    codes[" ".join(args)] = main(args)
os.write(result, json.dumps([codes, sorted(set(sys.modules) - with_typer)]).encode())
"""


def loaded(commands: list[tuple[str, ...]] | None = None) -> tuple[dict[str, int], list[str]]:
    """Exit codes of command lines (all helps without any) run in one process, and the modules it has that typer lacks."""
    done = kit.run(json.dumps(commands), python=(sys.executable, "-c", LOADED))
    assert done.code == 0, done.err
    return json.loads(done.out)


def heavy(modules: list[str]) -> list[str]:
    return [module for module in modules if module.startswith(HEAVY)]


def test_help_and_version_load_nothing_heavy() -> None:
    codes, modules = loaded()
    assert {f"{name} --help" for name in ("advantages", "groups", "objective", "compare")} < set(codes)
    assert set(codes.values()) == {0}
    assert heavy(modules) == []


def test_nothing_of_the_network_is_loaded_for_files_of_this_machine(rollouts: str) -> None:
    codes, modules = loaded([("objective", rollouts, "-o", "o.csv"), ("inspect", "nope*")])
    assert list(codes.values()) == [0, 2]
    assert [name for name in modules if name.split(".")[0] in ("fsspec", "aiohttp", "s3fs")] == []
    assert "olmorl_cli.rollouts.remote" not in modules


def test_a_wrong_option_is_told_without_loading_anything_heavy() -> None:
    codes, modules = loaded([("objective", "--bogus"), ("bogus",), ("groups", "--group")])
    assert list(codes.values()) == [2, 2, 2]
    assert heavy(modules) == []


def test_import_times_of_the_real_start_and_of_completion_show_none_either() -> None:
    timed = (sys.executable, "-X", "importtime")
    start = kit.run("--help", python=(*timed, "-m", "olmorl_cli"))
    env = {"_OLMORL_COMPLETE": "complete_bash", "COMP_WORDS": "olmorl gr", "COMP_CWORD": "1"}
    completion = kit.run(env=env, python=(*timed, "-c", "from olmorl_cli.__main__ import run; run()"))
    assert completion.text.split() == ["groups"]
    for done in (start, completion):
        modules = [line.rsplit("|", 1)[-1].strip() for line in done.err.splitlines() if line.startswith("import time:")]
        assert "typer" in modules
        assert [module for module in heavy(modules) if not module.startswith("rich")] == []


def test_the_package_itself_loads_neither_numpy_nor_typer() -> None:
    code = "import sys, olmorl_cli; print(olmorl_cli.__version__, 'numpy' in sys.modules, 'typer' in sys.modules)"
    code += "; print(olmorl_cli.group_advantages([1, 0], 2).tolist(), 'numpy' in sys.modules, 'pyarrow' in sys.modules)"
    done = kit.run(python=(sys.executable, "-c", code))
    assert done.text.split("\n")[:2] == [f"{olmorl_cli.__version__} False False", "[0.5, -0.5] True False"]


def test_the_version_is_said_the_same_everywhere() -> None:
    assert kit.run("--version").text == f"olmorl {olmorl_cli.__version__}\n"


def imports(path: Path, *, inside_functions: bool) -> Iterator[str]:
    """Full names of what a file imports, but for what only the type checker reads."""

    def below(node: ast.AST) -> Iterator[str]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
                continue
            if isinstance(child, ast.Import):
                yield from (alias.name for alias in child.names)
            elif isinstance(child, ast.ImportFrom):
                assert child.level == 0, f"{path}: imports stand in full"
                yield from (f"{child.module}.{alias.name}" for alias in child.names)
            elif inside_functions or not isinstance(child, ast.FunctionDef):
                yield from below(child)

    return below(ast.parse(path.read_text(encoding="utf-8")))


def within(name: str, packages: tuple[str, ...]) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def everywhere(name: str, *, inside_functions: bool = True) -> set[str]:
    return set(imports(MODULES[name], inside_functions=inside_functions))


OWN = "olmorl_cli"
CORE = [name for name in MODULES if name.startswith("core.")]
ROLLOUTS = [name for name in MODULES if name.startswith("rollouts.")]
DISPLAY = [name for name in MODULES if name.startswith("display.")]
SHELL = ["cli", "__main__", "engines", "options", "output", "program", "request", "running", "start", "values"]
BELOW = (f"{OWN}.errors", f"{OWN}.interrupts")
"""What everybody may know."""
MIDDLE = [name for name in MODULES if name not in {*CORE, *ROLLOUTS, *DISPLAY, *SHELL, "__init__"}]


def test_the_rooms_are_found() -> None:
    assert len(CORE) > 3
    assert len(ROLLOUTS) > 3
    assert len(DISPLAY) > 1
    assert {"errors", "scoring"} <= set(MIDDLE)


@pytest.mark.parametrize("name", CORE)
def test_the_core_knows_numpy_and_itself(name: str) -> None:
    allowed = (*sys.stdlib_module_names, "numpy", f"{OWN}.core")
    assert [module for module in everywhere(name) if not within(module, allowed)] == []


@pytest.mark.parametrize("name", ROLLOUTS)
def test_rollouts_know_arrow_but_no_recipe_and_no_screen(name: str) -> None:
    allowed = (*sys.stdlib_module_names, "numpy", "pyarrow", *BELOW, f"{OWN}.rollouts", f"{OWN}.core")
    recipes = (f"{OWN}.core.recipes", f"{OWN}.core.named")
    assert [module for module in everywhere(name) if not within(module, allowed) or within(module, recipes)] == []


@pytest.mark.parametrize("name", MIDDLE)
def test_what_lies_between_knows_no_screen_and_no_command_line(name: str) -> None:
    above = (*(f"{OWN}.{module}" for module in ("display", *SHELL)), "rich", "typer")
    assert [module for module in everywhere(name) if within(module, above)] == []


@pytest.mark.parametrize("name", ["errors", "interrupts"])
def test_the_lowest_know_the_standard_library_only(name: str) -> None:
    assert [module for module in everywhere(name) if not within(module, tuple(sys.stdlib_module_names))] == []


@pytest.mark.parametrize("name", DISPLAY)
def test_the_screen_knows_no_command_line(name: str) -> None:
    above = (*(f"{OWN}.{module}" for module in SHELL), "typer")
    assert [module for module in everywhere(name) if within(module, above)] == []


@pytest.mark.parametrize("name", SHELL)
def test_the_command_line_loads_all_else_inside_functions(name: str) -> None:
    allowed = (
        *sys.stdlib_module_names,
        "typer",
        *BELOW,
        f"{OWN}.__version__",
        *(f"{OWN}.{each}" for each in SHELL),
    )
    atop = everywhere(name, inside_functions=False)
    assert [module for module in atop if not within(module, (*allowed, f"{OWN}.options"))] == []


@pytest.mark.parametrize("name", MODULES)
def test_nobody_imports_click(name: str) -> None:
    assert [module for module in everywhere(name) if within(module, ("click",))] == []


@pytest.mark.parametrize("name", [name for name in MODULES if name not in ("cli", "__main__", "start", "interrupts")])
def test_nobody_else_ends_the_process(name: str) -> None:
    source = MODULES[name].read_text(encoding="utf-8")
    calls = [ast.unparse(node.func) for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    names = {node.id for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Name)}
    assert not {"sys.exit", "os._exit", "exit", "quit", "typer.Exit"} & set(calls)
    assert "SystemExit" not in names
