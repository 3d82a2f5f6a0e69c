"""The README's pictures, made from the sample data: `python -m tests.pictures` draws them anew (Chromium is needed)."""

import base64
import io
import re
import struct
import tempfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from rich._export_format import CONSOLE_SVG_FORMAT
from rich.text import Text

from olmorl_cli.core.recipes import Recipe
from olmorl_cli.display.screens import answers_screen
from olmorl_cli.display.text import VisibleConsole
from olmorl_cli.results import answers_table
from olmorl_cli.rollouts.opening import open_rollouts
from olmorl_cli.rollouts.rollouts import Selection
from olmorl_cli.scoring import score_answers

ROOT = Path(__file__).parent.parent
SAMPLE = ROOT / "sample_data" / "rollouts.parquet"
SCREEN, PAGE, TOKENS = (ROOT / "tests" / "images" / name for name in ("screen.svg", "report.png", "tokens.png"))
WIDTH, HEIGHT, COLOURS = 940, 2095, 64


def screen() -> str:
    """What `olmorl advantages` shows on a terminal, as SVG that loads no font."""
    roles = frozenset({"group", "step", "reward", "answer"})
    scored = score_answers(open_rollouts([str(SAMPLE)], Selection(), roles), Recipe())
    console = VisibleConsole(
        file=io.StringIO(), record=True, width=84, force_terminal=True, highlight=False, emoji=False, markup=False
    )
    console.print(Text("$ olmorl advantages rollouts.parquet", style="dim"))
    for number, part in enumerate(answers_screen(scored, answers_table(scored), console)):
        if number < 6:  # the table below it has too many rows for a picture
            console.print(part)
    without_fonts = re.sub(r"@font-face \{\{.*?\}\}", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL).replace("Fira Code, ", "")
    without_remarks = re.sub(r"<!--.*?-->", "", without_fonts)
    return console.export_svg(title="olmorl", code_format=without_remarks, unique_id="screen")


def pictures_of_page() -> tuple[bytes, bytes]:
    """The beginning of the sample data's page, and an answer's tokens, as PNG."""
    from selenium import webdriver

    from tests.report.browsers import browser
    from tests.report.kit import page

    with tempfile.TemporaryDirectory() as folder, browser(webdriver) as driver:
        path = Path(folder) / "report.html"
        path.write_text(page(str(SAMPLE.relative_to(ROOT))))
        driver.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride", {"width": WIDTH, "height": HEIGHT, "deviceScaleFactor": 1, "mobile": False}
        )
        driver.get(path.as_uri())
        first = _shot(driver, 0, HEIGHT)
        opened = """
            const search = document.getElementById("search");
            search.value = "0890+0112"; search.dispatchEvent(new Event("input"));
            document.querySelector("#groups tr.opens").click();
            [2, 1].forEach((at) => document.querySelectorAll("tr.inner tr.opens")[at].click());
            return document.getElementById("search").getBoundingClientRect().top - 12"""
        second = _shot(driver, driver.execute_script(opened), 560)
        return _small(driver, first), _small(driver, second)


def _shot(driver: Any, top: float, height: int) -> str:
    """A piece of the page, as Chromium writes it: PNG in base64."""
    clip = {"x": 0, "y": top, "width": WIDTH, "height": height, "scale": 1}
    shot = driver.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True, "clip": clip})
    data: str = shot["data"]
    return data


PIXELS = """
    const done = arguments[arguments.length - 1], image = new Image();
    image.onload = () => {
      const canvas = document.createElement("canvas");
      [canvas.width, canvas.height] = [image.width, image.height];
      const context = canvas.getContext("2d");
      context.drawImage(image, 0, 0);
      const bytes = context.getImageData(0, 0, image.width, image.height).data;
      let text = "";
      for (let at = 0; at < bytes.length; at += 32768) text += String.fromCharCode(...bytes.subarray(at, at + 32768));
      done([image.width, image.height, btoa(text)]);
    };
    image.src = "data:image/png;base64," + arguments[0];"""


def _small(driver: Any, shot: str) -> bytes:
    """The picture as a PNG of 64 colours: a quarter of what Chromium writes."""
    driver.get("about:blank")
    width, height, data = driver.execute_async_script(PIXELS, shot)
    pixels = np.frombuffer(base64.b64decode(data), np.uint8).reshape(-1, 4)[:, :3].astype(np.int64)
    _, where, counts = np.unique(pixels >> 3, axis=0, return_inverse=True, return_counts=True)
    sums = np.stack([np.bincount(where.ravel(), pixels[:, channel]) for channel in range(3)], axis=1)
    means = sums / counts[:, None]
    palette = means[np.argsort(-counts)[:COLOURS]]
    nearest = ((means[:, None] - palette[None]) ** 2).sum(axis=2).argmin(axis=1)
    rows = nearest[where.ravel()].astype(np.uint8).reshape(height, width)
    lines = np.concatenate((np.zeros((height, 1), np.uint8), rows), axis=1).tobytes()
    head = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    colours = np.rint(palette).astype(np.uint8).tobytes()
    chunks = ((b"IHDR", head), (b"PLTE", colours), (b"IDAT", zlib.compress(lines, 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(name, content) for name, content in chunks)


def _chunk(name: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))


if __name__ == "__main__":
    SCREEN.parent.mkdir(exist_ok=True)
    SCREEN.write_text(screen())
    for target, picture in zip((PAGE, TOKENS), pictures_of_page(), strict=True):
        target.write_bytes(picture)
