"""Chromium without a screen."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

BROWSER, DRIVER = shutil.which("chromium") or shutil.which("chromium-browser"), shutil.which("chromedriver")


@contextmanager
def browser(webdriver: Any) -> Iterator[Any]:
    """A browser that `webdriver`, selenium's, drives; its log is kept."""
    options = webdriver.ChromeOptions()
    for argument in ("headless=new", "no-sandbox", "disable-gpu", "disable-dev-shm-usage", "window-size=1100,900"):
        options.add_argument(f"--{argument}")
    options.binary_location = BROWSER
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    try:
        yield driver
    finally:
        driver.quit()
