"""What the checks and the reading say, with links from what a finding names to the table of groups."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from olmorl_cli.checks.finding import Finding, States
from olmorl_cli.errors import Problems
from olmorl_cli.objectives import ascending
from olmorl_cli.report.data import Run
from olmorl_cli.report.details import CHARACTERS_OF_ID, CHARACTERS_OF_STEP, JOINT, Chosen, shortened
from olmorl_cli.report.markup import section, text
from olmorl_cli.report.story import count
from olmorl_cli.rollouts.texts import json_values

SEVERITIES = ("error", "warning", "note")
MOST_PLACES = 8


@dataclass(frozen=True)
class Table:
    """Where the table of groups has what a finding names."""

    run: Run
    chosen: Chosen

    def place(self, kind: str, value: Any) -> int | None:
        """Of a step: its place in their order; of a group's number or an answer's row: its place on the page.

        None where the page does not have it.
        """
        known = {"steps": self._steps, "groups": self._groups, "rows": self._rows}
        return known[kind].get(_key(value))

    def step(self, group: int) -> str:
        """The step of a group, in brackets; nothing without a column of steps."""
        table = self.run.scored.table
        if table.steps is None:
            return ""
        step = shortened(str(json_values(table.steps.slice(table.step_of_group[group], 1))[0]), CHARACTERS_OF_STEP)
        return f" (step {text(step)})"

    @cached_property
    def _steps(self) -> dict[str, int]:
        table = self.run.scored.table
        if table.steps is None:
            return {}
        names, there = json_values(table.steps), set(table.step_of_group[self.chosen.groups].tolist())
        order = ascending(table.steps, len(names))
        return {_key(names[step]): place for place, step in enumerate(order) if step in there}

    @cached_property
    def _groups(self) -> dict[str, int]:
        return {_key(group): place for place, group in enumerate(self.chosen.groups.tolist())}

    @cached_property
    def _rows(self) -> dict[str, int]:
        return {_key(row): place for place, row in enumerate(self.chosen.answers.tolist())}


def _key(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def findings_section(findings: Sequence[Finding], problems: Problems, table: Table) -> str:
    """What fired first, the gravest of it on top, with what to do; what passed is folded away."""
    fired = sorted((each for each in findings if each.fired), key=lambda each: SEVERITIES.index(each.severity))
    items = [_finding(finding, table) for finding in fired]
    items += [
        f'<li class="{kind.severity}"><span class="word">data</span>{text(kind.line())}</li>'
        for kind in problems.kinds()
        if kind.severity != "error"
    ]
    parts = [f'<ul class="findings">{"".join(items)}</ul>' if items else '<p class="hint">No check found anything.</p>']
    for state, word in ((States.PASSED, "passed"), (States.NOT_AVAILABLE, "not available")):
        others = [_finding(finding, table) for finding in findings if finding.state is state]
        if others:
            said = f"{count(len(others), 'check')} {word}"
            parts.append(f'<details><summary>{said}</summary><ul class="findings">{"".join(others)}</ul></details>')
    return section("Findings, and what to do", *parts) if findings or items else ""


def _finding(finding: Finding, table: Table) -> str:
    shown = finding.severity if finding.fired else str(finding.state)
    word = f'<span class="word">{text(finding.code.replace("_", " "))}</span>'
    parts = [f"<p>{word}{_sentence(finding.message)}</p>"]
    if finding.action:
        parts.append(f'<p class="do">{_sentence(finding.action)}</p>')
    parts += [_see(kind, places, finding.group_numbers, table) for kind, places in finding.where.items() if places]
    return f'<li class="{shown}">{"".join(parts)}</li>'


def _sentence(words: str) -> str:
    return f"{text(words[:1].upper() + words[1:])}."


def _see(kind: str, values: Sequence[Any], group_numbers: Sequence[int], table: Table) -> str:
    """The first of what a finding names, each as a link if the table of groups has it; groups with their steps."""
    first = values[:MOST_PLACES]
    shown = [_called(value) for value in first]
    absent = 0
    if kind in ("steps", "groups", "rows"):
        told = group_numbers[:MOST_PLACES] if kind == "groups" else first
        places = [table.place(kind, value) for value in told]
        absent = places.count(None)
        shown = [name if place is None else _link(kind, place, name) for name, place in zip(shown, places, strict=True)]
        if kind == "groups":
            shown = [f"{name}{table.step(number)}" for name, number in zip(shown, group_numbers, strict=False)]
    listed = f"{', '.join(shown)}{' …' if len(values) > MOST_PLACES else ''}"
    name = text(kind.removesuffix("s") if len(values) == 1 else kind)
    note = ""
    if absent:
        which = "Those without a link are" if absent < len(first) else "It is" if absent == 1 else "They are"
        note = f" {which} not among the groups and answers on this page."
    return f'<p class="see">See {name} {listed}.{note}</p>'


def _link(kind: str, at: int, name: str) -> str:
    return f'<button type="button" class="to" data-kind="{kind}" data-at="{at}">{name}</button>'


def _called(value: Any) -> str:
    """A place in words; the id of a group that several columns tell stands as the table has it."""
    called = JOINT.join(map(str, value.values())) if isinstance(value, dict) else str(value)
    return text(shortened(called, CHARACTERS_OF_ID))
