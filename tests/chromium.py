"""Chromium, which tests of the dashboard drive."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.debian import program

REQUIRED = "LOCKGATE_TEST_CHROMIUM"
"""Set to `required` where a skip is to count as a failure."""
PATIENCE_S = 60.0
_OPTIONS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1280,1000")


@pytest.fixture
def browser() -> Iterator[Any]:
    """A selenium.webdriver.Chrome with an empty page."""
    webdriver = pytest.importorskip("selenium.webdriver")
    options = webdriver.ChromeOptions()
    options.binary_location = program("chromium", "chromium", REQUIRED)
    for option in _OPTIONS:
        options.add_argument(option)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    service = webdriver.chrome.service.Service(program("chromedriver", "chromium-driver", REQUIRED))
    opened = webdriver.Chrome(options=options, service=service)
    yield opened
    opened.quit()


def until(browser: Any, expression: str) -> Any:
    """The value of a JavaScript expression once it is true. What it names may not be there yet."""
    deadline = time.monotonic() + PATIENCE_S
    while not (value := browser.execute_script(f"try {{ return {expression} }} catch (error) {{ return false }}")):
        said = browser.execute_script("return document.body.textContent")
        assert time.monotonic() < deadline, f"{expression} is still false: {said[:1000]}"
    return value
