"""The README says what is so: its sessions, its tables, its commands and its Python."""

import doctest
import re

import typer.main

from olmorl_cli.cli import app
from tests import readme


def test_sessions_and_tables_are_what_the_commands_print() -> None:
    assert readme.written() == readme.README.read_text()


def test_every_session_has_output() -> None:
    assert len(readme.session()) >= 5
    assert all(len(block.splitlines()) > len(readme.commands(block)) for block in readme.session())


def test_every_command_and_option_is_named_in_the_readme_or_by_help() -> None:
    text = readme.README.read_text()
    commands = typer.main.get_command(app).commands
    assert {name for name in commands if f"| `{name}` |" not in text} == set()
    named = set(re.findall(r"`(--[a-z-]+)", text))
    options = {
        option for command in commands.values() for each in command.params for option in [*each.opts, *each.secondary_opts]
    }
    assert {option for option in named if option not in options | {"--help", "--version"}} == set()


def test_its_python_runs() -> None:
    blocks = re.findall(r"```pycon\n(.*?)```", readme.README.read_text(), re.DOTALL)
    parsed = [doctest.DocTestParser().get_doctest(block, {}, "README", "README.md", 0) for block in blocks]
    runner = doctest.DocTestRunner()
    for test in parsed:
        runner.run(test)
    assert parsed
    assert (runner.failures, runner.tries > 0) == (0, True)
