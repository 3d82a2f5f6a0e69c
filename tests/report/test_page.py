"""The page as a file: whole, closed to the network, the same each time, small; and what it says."""

import base64
import hashlib
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from olmorl_cli.errors import visible
from olmorl_cli.report import markup
from olmorl_cli.sample import SCHEMA, Shape, sample_batches
from tests.cli import kit
from tests.report.kit import HOSTILE, SAMPLE, Page, hostile_table, page

MOST_BYTES = 3_000_000
OUTSIDE = re.compile(r"""(?:src|href|action|data|poster)\s*=\s*["']?(?:https?:)?//|@import|url\(|https?://|//\w+\.\w+""")
STORY = {
    "Lost": (
        "54.1_% of 640 groups gave no gradient, and with them 53.9_% of the unmasked tokens: each one's answers all have the"
        " same reward (38.8_% all right, 15.3_% all wrong). Their share rose: 26.6_% in the first 4 steps (1.6_% all right,"
        " 25.0_% all wrong), 78.1_% in the last 4 (65.6_% all right, 12.5_% all wrong)."
    ),
    "Cut off": (
        "12.0_% of the answers, 612, did not come to an end (by finish_reason). Of these, by their groups: 88.4_% all wrong,"
        " 11.6_% kept."
    ),
    "Clipped": (
        "Of 28,858 counted tokens (unmasked, of kept groups), the clip held 0.93_% from below (2.4_% of those with A < 0),"
        " and 0.17_% from above (0.27_% of those with A > 0)."
    ),
}


@pytest.fixture(scope="module")
def sample() -> str:
    """The page of the sample data."""
    return page(SAMPLE)


def test_the_page_is_well_formed_and_closed(sample: str) -> None:
    read = Page(sample)
    (policy,) = [each["content"] for each in read.all("meta") if each.get("http-equiv") == "Content-Security-Policy"]
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    assert rules["default-src"] == rules["base-uri"] == rules["form-action"] == "'none'"
    style = re.search(r"<style>(.*?)</style>", sample, re.DOTALL)[1]
    script = re.search(r"<script>(.*?)</script>", sample, re.DOTALL)[1]
    for rule, content in (("style-src", style), ("script-src", script)):
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert rules[rule] == f"'sha256-{digest}'"
    assert OUTSIDE.search(sample) is None
    attributes = {name for _, each in read.tags for name in each}
    assert not {name for name in attributes if name.startswith("on") or name in ("style", "src", "href")}
    assert [each.get("type") for each in read.all("script")] == ["application/json", None]
    assert not re.search(r"\beval\(|innerHTML|document\.write|fetch\(", script)


def test_the_sample_tells_its_story(sample: str) -> None:
    read = Page(sample)
    assert read.words("h1") == "Mean reward rose from 0.25 in the first 4 steps to 0.812 in the last 4 of 40."
    told = [
        sentence.replace("\N{NO-BREAK SPACE}%", "_%").replace("\N{NO-BREAK SPACE}", " ") for sentence in read.inside["dd"]
    ]
    assert dict(zip(read.inside["dt"], told, strict=True)) == STORY
    said = read.words("body")
    assert "5,120 answers, 640 groups, 40 steps, 62,644 unmasked tokens. Recipe olmorl, eps low 0.2, eps high 0.272" in said
    titles = ["Findings, and what to do", "By step", "Where the gradient went", "Spreads", "Groups", "Columns"]
    assert read.inside["h2"] == titles
    plots = [each["aria-label"] for each in read.all("svg") if "aria-label" in each]
    assert [plot.removesuffix(" by step") for plot in plots] == [
        *("Mean reward", "Share of the groups kept,", "Share of the answers cut off,", "Share of tokens clipped,"),
        *("Distance of the sampler", "Mean length", "Objective", "Histogram of the rewards", "Histogram of the advantages"),
        "Histogram of the log-ratios",
    ]
    assert "zero signal" in said
    assert "a group's advantages add up to 0, so it stays near 0" in said
    assert "Not shown" not in said


def test_every_share_of_the_waterfall_has_its_base(sample: str) -> None:
    rows = re.findall(r'<tr class="(?:whole|lost|live)">(.*?)</tr>', sample)
    cells = [[cell.replace("\N{NO-BREAK SPACE}", " ") for cell in re.findall(r"<td[^>]*>([^<]*)", row)[:-1]] for row in rows]
    heads = re.findall(r"<th[^>]*>([^<]*)</th>", re.search(r'class="fall"><thead>(.*?)</thead>', sample)[1])
    assert heads == ["", "tokens", "of all tokens", "of unmasked tokens", "of Σ |A|", ""]
    assert cells == [
        ["All tokens", "92,321", "100.0 %", "", ""],
        ["Masked: not written by the policy", "29,677", "32.1 %", "", ""],
        ["Unmasked: written by the policy", "62,644", "67.9 %", "100.0 %", "100.0 %"],
        ["In groups without signal", "33,786", "36.6 %", "53.9 %", "0 %"],  # the check says 53.9 %
        ["Held by the clip from below", "269", "0.29 %", "0.43 %", "1.1 %"],
        ["Held by the clip from above", "48", "0.052 %", "0.077 %", "0.26 %"],  # 1.4 % of Σ |A| by the check
        ["Left to move the policy", "28,541", "30.9 %", "45.6 %", "98.6 %"],
    ]


def test_without_a_mask_all_tokens_are_unmasked(tmp_path: Path) -> None:
    text = page(kit.write(str(tmp_path / "m.parquet"), kit.rollouts(mask=None)))
    said = Page(text).words("main").replace("\N{NO-BREAK SPACE}", " ")
    assert "tokens of all tokens of Σ |A| All tokens 13 100.0 % 100.0 % In groups without signal 3 23.1 % 0 %" in said
    assert "of unmasked tokens of Σ" not in said


def test_columns_have_heads_and_reasons(sample: str) -> None:
    rows = re.findall(r"<tr>(.*?)</tr>", re.search(r'<table class="columns">(.*?)</table>', sample, re.DOTALL)[1])
    cells = [re.findall(r"<t[hd]>([^<]*)", row) for row in rows]
    assert cells[0] == ["role", "column in the file", "why"]
    assert ["answer (its id)", "answer_id", "found by name"] in cells
    assert cells[-3:] == [
        ["text of the prompt", "prompt", "found by name"],
        ["text of the answer", "answer", "found by name"],
        ["how the answer ended", "finish_reason", "found by name"],
    ]


def test_what_files_say_stays_text(tmp_path: Path) -> None:
    path = kit.write(str(tmp_path / "<b>x.parquet"), hostile_table())
    text = page(path)
    read = Page(text)
    assert text.count("<script") == 2
    assert len(read.all("img")) == len(read.all("b")) == 0
    assert "alert(1)<" not in text
    assert "\u2028" not in text
    assert "\u202e" not in re.sub(r'<script type="application/json".*?</script>', "", text, flags=re.DOTALL)
    data = read.data
    assert set(data["groups"]["id"]) == set(HOSTILE[:4])
    assert [len(each) for each in data["details"]["answers"]] == [min(len(each), 4000) for each in _by_page(data)]
    assert [each for each in data["details"]["answers"] if len(each) < 4000] == _by_page(data)[:-1]
    assert max(data["details"]["characters"]) == 100_000
    assert "&lt;b&gt;x.parquet" in text


def _by_page(data: dict) -> list[str]:
    return [HOSTILE[row] for row in data["answers"]["row"]]


def test_the_same_input_gives_the_same_bytes(sample: str) -> None:
    assert page(SAMPLE) == sample


def test_a_hundred_thousand_answers_fit(tmp_path: Path) -> None:
    path = str(tmp_path / "big.parquet")
    with pq.ParquetWriter(path, SCHEMA) as writer:
        for batch in sample_batches(Shape(steps=400, prompts=31, group_size=8, tokens=12)):
            writer.write_batch(batch)
    text = page(path)
    assert 500_000 < len(text.encode()) < MOST_BYTES
    said, data = Page(text).words("body"), Page(text).data
    assert "99,200 answers, 12,400 groups, 400 steps" in said
    assert "A point is 2 steps together." in said
    assert "Here are the 10,000 heaviest of 12,400 groups; all above is of the whole input." in said
    assert "10,000 of 99,200 answers" in said
    weights = np.array(data["groups"]["weight"])
    assert (np.diff(weights) <= 0).all()
    assert len(data["answers"]["row"]) == sum(data["groups"]["shown"]) == 10_000
    assert len(data["details"]["tokens"]) == data["detailed"] < 10_000


def test_long_texts_and_ids_fit(tmp_path: Path) -> None:
    long = ["<" * 5_000 + str(number) for number in range(4_000)]
    table = pa.table({"prompt_id": np.repeat(long[:2_000], 2), "response": long, "reward": [0.0, 1.0] * 2_000})
    path = kit.write(str(tmp_path / "long.parquet"), table)
    text = page(path)
    assert len(text.encode()) < MOST_BYTES
    data = Page(text).data
    assert len(data["groups"]["id"]) < 2_000
    assert data["groups"]["id"][0] == "<" * 160 + "…"
    assert 0 < len(data["details"]["answers"]) < 4_000


def test_of_a_long_id_only_the_beginning_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[int] = []
    monkeypatch.setattr(markup, "visible", lambda text: looked.append(len(text)) or visible(text))
    ids = ["A" * 20_000 + str(number // 2) for number in range(8)]
    text = page(kit.write(str(tmp_path / "l.parquet"), kit.rollouts(prompt_id=ids, reward=[1.0] * 8)))
    assert "A" * 160 + "…</button>" in text
    assert "A" * 161 not in text
    assert sum(looked) < 20_000


@pytest.mark.parametrize(
    ("without", "said", "gone"),
    [
        (("step",), ["No plots by step: there is no step column. Name it with --step COL."], ["By step"]),
        (
            ("logp_new", "logp_old", "logp_sampler"),
            ["there is no column of new and old log-probs. Name them with --logp-new COL --logp-old COL."],
            ["Where the gradient went", "Log-ratios", "Objective by step"],
        ),
        (("logp_sampler",), ["no column of sampler log-probs. Name it with --logp-sampler COL."], ["Sampler against"]),
        (("prompt", "answer"), ["No prompts", "No answers' texts"], []),
        (
            ("finish_reason",),
            ["No cut-off answers: there is no column that tells how"],
            ["Cut off", "Cut is"],
        ),
    ],
    ids=["step", "log-probs", "sampler", "texts", "end"],
)
def test_missing_columns_are_named(tmp_path: Path, without: tuple[str, ...], said: list[str], gone: list[str]) -> None:
    table = pq.read_table(SAMPLE).slice(0, 512).drop_columns(list(without))
    text = page(kit.write(str(tmp_path / "r.parquet"), table))
    words = Page(text).words("main")
    assert all(each in words for each in said)
    assert not [each for each in gone if each in re.sub(r"Not shown.*", "", words)]


def test_advantages_alone_make_a_page(tmp_path: Path) -> None:
    table = kit.rollouts(reward=None, advantage=kit.ADVANTAGES)
    path = kit.write(str(tmp_path / "a.parquet"), table)
    done = kit.run("report", path, "--advantage", "advantage", "-o", str(tmp_path / "a.html"))
    assert (done.code, done.out) == (0, b"")
    read = Page((tmp_path / "a.html").read_text())
    assert read.words("h1") == "The input gives advantages and no rewards."
    assert read.words("dd").startswith(
        "25.0 % of 4 groups gave no gradient, and with them 25.0 % of the unmasked tokens. Of"
    )
    assert "there is no reward column" in read.words("main")
    assert read.data["score"] == "mean advantage"


@pytest.mark.parametrize("columns", [{}, {"finish_reason": ["stop"] * 8, "response": ["x"] * 8, "format_reward": [0.0] * 8}])
def test_an_empty_input_makes_a_page(tmp_path: Path, columns: dict[str, list]) -> None:
    read = Page(page(kit.write(str(tmp_path / "e.parquet"), kit.rollouts(**columns).slice(0, 0))))
    assert read.words("h1") == "The input has no answers."
    assert read.data["groups"]["id"] == []
