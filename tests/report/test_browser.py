"""The page in a browser, by clicks: Chromium without a screen."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from olmorl_cli.report import details
from tests.cli import kit
from tests.report import browsers
from tests.report.kit import HOSTILE, SAMPLE, hostile_table, page

webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
there = browsers.BROWSER and browsers.DRIVER
pytestmark = pytest.mark.skipif(not there, reason="Chromium and its driver are not installed")
ORDERS = ("ascending", "descending")
HEADERS = "#groups thead button"
ROWS = "#groups > tbody > tr.opens"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with browsers.browser(webdriver) as driver:
        yield driver


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the pages of the sample data and of hostile data."""
    folder = tmp_path_factory.mktemp("pages")
    (folder / "sample.html").write_text(page(SAMPLE))
    (folder / "hostile.html").write_text(page(kit.write(str(folder / "h.parquet"), hostile_table())))
    lost = hostile_table().set_column(hostile_table().schema.get_field_index("reward"), "reward", pa.array([0.0] * 8))
    (folder / "lost.html").write_text(page(kit.write(str(folder / "l.parquet"), lost)))
    return folder


def texts(browser: Any, selector: str) -> list[str]:
    return browser.execute_script(
        "return [...document.querySelectorAll(arguments[0])].map((each) => each.textContent)", selector
    )


def click(browser: Any, selector: str, number: int = 0) -> None:
    found = browser.find_elements("css selector", selector)[number]
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", found)
    found.click()


def column(browser: Any, title: str) -> list[str]:
    number = next(n for n, text in enumerate(texts(browser, HEADERS), 2) if text.startswith(title))
    return texts(browser, f"{ROWS} > td:nth-child({number})")


def quiet(browser: Any) -> bool:
    """Whether nothing was complained of, and nothing but the page itself was asked for."""
    asked = browser.execute_script("return performance.getEntriesByType('resource').length")
    return browser.get_log("browser") == [] and asked == 0


def test_groups_are_sorted_searched_and_opened(browser: Any, pages: Path) -> None:
    browser.get((pages / "sample.html").as_uri())
    assert texts(browser, "#count") == ["640 of 640 groups"]
    assert len(texts(browser, ROWS)) == 50

    click(browser, HEADERS, texts(browser, HEADERS).index("clipped low"))
    clipped = [int(text) for text in column(browser, "clipped low")]
    assert clipped == sorted(clipped, reverse=True)
    assert clipped[0] > 5
    click(browser, HEADERS, next(n for n, text in enumerate(texts(browser, HEADERS)) if text.startswith("step")))
    assert column(browser, "step")[:17] == ["0"] * 16 + ["1"]
    click(browser, HEADERS)
    assert column(browser, "step")[0] == "39"
    assert [browser.find_elements("css selector", f"#groups th[aria-sort={way}]") != [] for way in ORDERS] == [False, True]

    click(browser, "#more")
    assert len(texts(browser, ROWS)) == 250
    search = browser.find_element("id", "search")
    search.send_keys("0890+0112")
    assert texts(browser, "#count") == ["3 of 640 groups"]
    assert set(column(browser, "group")) == {"sum-0890+0112"}

    click(browser, ROWS, column(browser, "step").index("22"))
    assert texts(browser, "tr.inner .text") == ["890+112="]
    assert len(texts(browser, "tr.inner tr.opens")) == 8
    click(browser, "tr.inner tr.opens", 2)
    tokens = browser.find_elements("css selector", "tr.inner .tokens .t")
    assert "".join(texts(browser, "tr.inner .tokens .t")) == "?2:3;?10:10;?9:11;1103."
    assert [each.text for each in tokens if "cut" in each.get_attribute("class").split()] == ["3", "1"]
    assert [each.text for each in tokens if "hidden" in each.get_attribute("class")] == list("2:10:9:")
    tokens[3].click()
    (said,) = texts(browser, "tr.inner .said")
    assert said.startswith("token 3: ratio 0.")
    assert said.endswith(", clipped")
    click(browser, "tr.opened")
    assert texts(browser, "tr.inner") == []

    search.clear()
    search.send_keys("17")
    outcome = browser.find_element("id", "outcome")
    outcome.send_keys("all wrong")
    assert set(column(browser, "outcome")) == {"all wrong"}
    assert quiet(browser)


def links(browser: Any, kind: str) -> list[str]:
    return texts(browser, f"button.to[data-kind={kind}]")


def test_what_a_finding_names_is_one_click_away(browser: Any, pages: Path) -> None:
    browser.get((pages / "sample.html").as_uri())
    assert links(browser, "rows")[:5] == ["51", "53", "67", "106", "107"]  # those that were cut off
    search = browser.find_element("id", "search")
    browser.find_element("id", "outcome").send_keys("kept")
    click(browser, "button.to[data-kind=rows]", 1)
    assert search.get_attribute("value") == "row:53"
    assert texts(browser, "#count") == ["1 of 640 groups"]
    assert (column(browser, "step"), column(browser, "group"), column(browser, "cut")) == (["0"], ["sum-7665+3492"], ["2"])
    heads = texts(browser, "tr.inner thead th")
    row = dict(zip(heads, texts(browser, "tr.named > td"), strict=True))
    assert (row["row"], row["reward"], row["finish_reason"]) == ("53", "0", "length")
    assert len(texts(browser, "tr.named + tr.inner .tokens .t")) == 24
    assert 0 < browser.execute_script("return document.querySelector('tr.named').getBoundingClientRect().top") < 900

    name = links(browser, "groups")[0]
    click(browser, "button.to[data-kind=groups]")
    step = column(browser, "step")[0]
    assert f"{name} (step {step})" in texts(browser, ".see")[0]
    assert search.get_attribute("value") == f"step:{step} group:{name}"
    assert (column(browser, "group"), len(texts(browser, "#groups > tbody > tr.inner"))) == ([name], 1)
    assert column(browser, "outcome") != ["kept"]
    click(browser, "#all")
    assert (texts(browser, "#count"), search.get_attribute("value")) == (["640 of 640 groups"], "")
    assert not browser.find_element("id", "all").is_displayed()
    assert quiet(browser)


def test_a_step_that_a_finding_names_is_the_tables_then(browser: Any, tmp_path: Path) -> None:
    table = kit.rollouts(reward=[1.0] * 4 + [3.0, 1.0, 0.5, 0.25], step=[12] * 4 + [1] * 4)
    (tmp_path / "s.html").write_text(page(kit.write(str(tmp_path / "s.parquet"), table)))
    browser.get((tmp_path / "s.html").as_uri())
    assert links(browser, "steps")[0] == "12"  # no_signal_step, an error, comes first
    click(browser, "button.to[data-kind=steps]")
    assert browser.find_element("id", "search").get_attribute("value") == "step:12"
    assert (column(browser, "step"), sorted(column(browser, "group"))) == (["12", "12"], ["a", "b"])
    assert quiet(browser)


def test_steps_rows_and_groups_can_be_searched(browser: Any, pages: Path) -> None:
    browser.get((pages / "sample.html").as_uri())
    search, found = browser.find_element("id", "search"), {}
    for wanted in (
        "row:51",
        "row:5119",
        "row:5120",
        "row:x",
        "step:7",
        "group:SUM-7665+3492",
        "step:0 group:sum-7665+3492",
        "4000",
    ):
        search.clear()
        search.send_keys(wanted)
        found[wanted] = texts(browser, "#count")[0].split()[0]
    assert found == {
        "row:51": "1",
        "row:5119": "1",
        "row:5120": "0",
        "row:x": "0",
        "step:7": "16",
        "group:SUM-7665+3492": "3",
        "step:0 group:sum-7665+3492": "1",
        "4000": "1",
    }


def test_the_largest_rewards_are_short(browser: Any, tmp_path: Path) -> None:
    table = kit.rollouts(reward=[1e308, -1e308] * 4)
    (tmp_path / "b.html").write_text(page(kit.write(str(tmp_path / "b.parquet"), table)))
    browser.get((tmp_path / "b.html").as_uri())
    assert set(column(browser, "std")) == {"1e+308", "0"}
    click(browser, ROWS)
    assert set(texts(browser, "tr.inner td:nth-child(3)")) == {"1e+308", "−1e+308"}
    assert max(len(line) for line in browser.find_element("tag name", "main").text.split()) < 60


def test_what_is_not_on_the_page_is_no_link(browser: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(details, "MOST_ANSWERS", 40)
    (tmp_path / "few.html").write_text(page(SAMPLE))
    browser.get((tmp_path / "few.html").as_uri())
    assert links(browser, "rows") == []
    assert len(links(browser, "groups")) == 5  # the groups are all there
    said = "See rows 51, 53, 67, 106, 107. They are not among the groups and answers on this page."
    assert said in texts(browser, ".see")


def test_hostile_ids_in_findings_are_text_and_links(browser: Any, pages: Path) -> None:
    browser.get((pages / "lost.html").as_uri())
    named = links(browser, "groups")
    assert named[:3] == HOSTILE[:3]
    assert set(named) == set(column(browser, "group"))  # spelled in one way
    for number in range(4):
        click(browser, "button.to[data-kind=groups]", number)
        assert len(column(browser, "group")) == 1
        assert len(texts(browser, "#groups tr.inner .text")) == 1
    assert browser.execute_script("return document.querySelectorAll('main img, main b, main script').length") == 0
    assert quiet(browser)


def test_hostile_texts_are_shown_as_text(browser: Any, pages: Path) -> None:
    browser.get((pages / "hostile.html").as_uri())
    shown = column(browser, "group")
    assert {HOSTILE[0], HOSTILE[1], HOSTILE[2]} < set(shown)
    assert r"\u202egnp.exe\u2066\u2028\u2029\u200b" in shown
    for number in range(4):
        click(browser, ROWS, number)
    for number in range(8):
        click(browser, "tr.inner tr.opens", number)
    answers = [text for number, text in enumerate(texts(browser, "tr.inner tr.inner .text"))]
    assert {*HOSTILE[:3], HOSTILE[5], HOSTILE[6]} < set(answers)
    assert r"a\x00b\x1b[31m\x7f\ufeff" in answers
    assert max(map(len, answers)) == 4_000
    assert "96,000 more characters are not on this page." in texts(browser, "tr.inner .hint")
    assert browser.execute_script("return document.querySelectorAll('main img, main b, main script').length") == 0
    assert quiet(browser)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 400])
def test_it_fits_a_phone_and_follows_the_theme(browser: Any, pages: Path, scheme: str, width: int) -> None:
    size = {"width": width, "height": 844, "deviceScaleFactor": 1, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]})
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.get((pages / "sample.html").as_uri())
    assert browser.execute_script("return document.documentElement.scrollWidth") == width
    click(browser, "button.to[data-kind=rows]")
    shown = (
        "return [...document.querySelectorAll('.fall td, .fall th, #groups td')].map((e) => e.getBoundingClientRect().right)"
    )
    assert max(browser.execute_script(shown)) <= width
    ends = browser.execute_script(
        "return [...document.querySelectorAll('.fall tr')].map((row) =>"
        " [...row.querySelectorAll('.n')].map((each) => each.getBoundingClientRect().right))"
    )
    assert ends == [ends[0]] * 8  # the heads stand over their numbers
    assert len(ends[0]) == 4
    paper, ink = (
        browser.execute_script(f"return getComputedStyle(document.body).{name}") for name in ("backgroundColor", "color")
    )
    dark = sum(map(int, paper[4:-1].split(", "))) < sum(map(int, ink[4:-1].split(", ")))
    assert dark == (scheme == "dark")
    assert quiet(browser)
