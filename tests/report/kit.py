"""Pages made in this process, and read as a browser would find them."""

import json
import re
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("altair", reason="the report extra is not installed")
pytest.importorskip("vl_convert", reason="the report extra is not installed")

from olmorl_cli.core.recipes import Recipe
from olmorl_cli.report.data import Run, read_run
from olmorl_cli.report.page import page_of
from olmorl_cli.rollouts.opening import OPTIONAL, open_rollouts
from olmorl_cli.rollouts.rollouts import Rollouts, Selection
from tests.cli import kit

ROLES = frozenset({"group", "step", "reward", "answer", "mask", "logp_new", "logp_old", "logp_sampler"})
SAMPLE = "sample_data/rollouts.parquet"
VOID = {"meta", "input", "br", "link"}

HOSTILE = [
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "\"'><b>bold</b>&amp;<!--",
    "\u202egnp.exe\u2066\u2028\u2029\u200b",
    "a\0b\x1b[31m\x7f\ufeff",
    "]]>{{data}}${x}\\u003c`",
    "😀é中" * 3,
    "x" * 100_000,
]
"""Texts that a page must show as they are."""


def opened(path: str, **columns: tuple[str, ...]) -> Rollouts:
    """The input as the command opens it."""
    return open_rollouts([path], Selection(columns), ROLES, OPTIONAL | {role for role in ROLES if "logp" in role})


def run_of(path: str, recipe: Recipe | None = None, *, skip: bool = False) -> Run:
    return read_run(opened(path), recipe or Recipe(), skip)[0]


def page(path: str, recipe: Recipe | None = None, *, skip: bool = False) -> str:
    """The page of a file."""
    return page_of(*read_run(opened(path), recipe or Recipe(), skip), skip)


def hostile_table() -> pa.Table:
    """Eight answers in four groups, kept all, whose ids, prompts and answers are hostile."""
    ids = [each for each in HOSTILE[:4] for _ in range(2)]
    return kit.rollouts(step=[1] * 8, prompt_id=ids, prompt=ids, response=HOSTILE, reward=[0.0, 1.0] * 4)


@dataclass
class Page(HTMLParser):
    """A page, read: every element is closed by its own end, or this raises."""

    text: str
    tags: list[tuple[str, dict[str, str | None]]] = field(default_factory=list)
    inside: dict[str, list[str]] = field(default_factory=dict)
    _open: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()
        self.feed(self.text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open and self._open.pop() == tag, f"</{tag}> closes nothing"

    def handle_data(self, data: str) -> None:
        for tag in set(self._open):
            self.inside.setdefault(tag, []).append(data)

    def words(self, tag: str) -> str:
        """All text inside elements of this name."""
        return " ".join(" ".join(self.inside.get(tag, [])).split())

    def all(self, tag: str) -> list[dict[str, str | None]]:
        """The attributes of all elements of this name."""
        return [attributes for name, attributes in self.tags if name == tag]

    @property
    def data(self) -> Any:
        """What the tables are made of."""
        return json.loads(re.search(r'id="data">(.*?)</script>', self.text, re.DOTALL)[1])
