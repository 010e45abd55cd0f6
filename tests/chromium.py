"""Chromium, which tests of the dashboard drive."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from tests.debian import program

REQUIRED = "LOCKGATE_TEST_CHROMIUM"
"""Set to `required` where a skip is to count as a failure."""
PATIENCE_S = 60.0
_NETWORK_CHANGED = "ERR_NETWORK_CHANGED"
"""What is being loaded fails with it when the address of any interface of the machine changes, as containers do."""
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
    opened.get = partial(_get, opened.get, pytest.importorskip("selenium.common").WebDriverException)
    yield opened
    opened.quit()


def _get(get: Callable[[str], None], failure: type[Exception], url: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return get(url)
        except failure as error:
            if _NETWORK_CHANGED not in str(error) or time.monotonic() > deadline:
                raise
        time.sleep(0.1)


def until(browser: Any, expression: str) -> Any:
    """The value of a JavaScript expression once it is true. What it names may not be there yet."""
    deadline = time.monotonic() + PATIENCE_S
    while not (value := browser.execute_script(f"try {{ return {expression} }} catch (error) {{ return false }}")):
        said = browser.execute_script("return document.body?.textContent ?? ''")
        assert time.monotonic() < deadline, f"{expression} is still false: {said[:1000]}"
    return value


def faults(browser: Any) -> list[str]:
    """Of the pages since the last call."""
    said = [line["message"] for line in browser.get_log("browser") if line["level"] == "SEVERE"]
    return [message for message in said if _NETWORK_CHANGED not in message]
