"""The page in a browser, by clicks: Chromium without a screen."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

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


def test_hostile_texts_are_shown_as_text(browser: Any, pages: Path) -> None:
    browser.get((pages / "hostile.html").as_uri())
    shown = column(browser, "group")
    assert {HOSTILE[0], HOSTILE[1], HOSTILE[2]} < set(shown)
    assert r"\u{202e}gnp.exe\u{2066}\u{2028}\u{2029}\u{200b}" in shown
    for number in range(4):
        click(browser, ROWS, number)
    for number in range(8):
        click(browser, "tr.inner tr.opens", number)
    answers = [text for number, text in enumerate(texts(browser, "tr.inner tr.inner .text"))]
    assert {*HOSTILE[:3], HOSTILE[5], HOSTILE[6]} < set(answers)
    assert r"a\u{0}b\u{1b}[31m\u{7f}\u{feff}" in answers
    assert max(map(len, answers)) == 4_000
    assert "96,000 more characters are not on this page." in texts(browser, "tr.inner .hint")
    assert browser.execute_script("return document.querySelectorAll('main img, main b, main script').length") == 0
    assert quiet(browser)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_a_phone_and_follows_the_theme(browser: Any, pages: Path, scheme: str) -> None:
    size = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]})
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.get((pages / "sample.html").as_uri())
    assert browser.execute_script("return document.documentElement.scrollWidth") == 390
    paper, ink = (
        browser.execute_script(f"return getComputedStyle(document.body).{name}") for name in ("backgroundColor", "color")
    )
    dark = sum(map(int, paper[4:-1].split(", "))) < sum(map(int, ink[4:-1].split(", ")))
    assert dark == (scheme == "dark")
    assert quiet(browser)
