"""A real browser, where there is one: Debian's chromium with its driver.

REFPROTOFL_BROWSER=required makes its absence an error instead of a reason to skip.
"""

import os
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.tiny import tiny_keys

from refprotofl import Experiment
from refprotofl.federation import run
from refprotofl.report.live.follower import Follower
from refprotofl.report.live.web_server import LiveServer, listen, new_token

QUIET = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"),
    *("--disable-sync", "--no-first-run", "--hide-scrollbars"),
)
TINY = tiny_keys(train_limit=300, rounds=4, evaluate={"every": 2, "test-limit": 60})


def _missing() -> str:
    """Return the missing programs and how to install them."""
    if shutil.which("chromium") is None or shutil.which("chromedriver") is None:
        return "there is no chromium with its chromedriver here: apt-get install chromium chromium-driver"
    try:
        import selenium  # noqa: F401
    except ImportError:
        return "selenium is not installed: pip install selenium"
    return ""


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    missing = _missing()
    if missing and os.environ.get("REFPROTOFL_BROWSER") == "required":
        pytest.fail(missing)
    if missing:
        pytest.skip(f"The page was not tried in a browser: {missing}")
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for switch in (*QUIET, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(switch)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    made = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))  # which fetches nothing
    made.set_page_load_timeout(60)
    yield made
    made.quit()


class Browser:
    """A page in the browser, as a person has it before them."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver
        self.look()

    def look(self, width: int = 1280, scheme: str = "light") -> None:
        metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})

    def open(self, address: str) -> None:
        self.driver.get("about:blank")  # a page that follows a run which is over would complain
        self.driver.get_log("browser")
        self.driver.get(address)
        self.until("return document.body.dataset.drawn === 'yes'")

    def run(self, script: str, *arguments: object) -> Any:
        return self.driver.execute_script(script, *arguments)

    def until(self, script: str, seconds: float = 60) -> Any:
        from selenium.webdriver.support.ui import WebDriverWait

        return WebDriverWait(self.driver, seconds, 0.05).until(lambda driver: driver.execute_script(script))

    def complaints(self) -> list[str]:
        """Errors of the console, violations of the content security policy among them."""
        return [one["message"] for one in self.driver.get_log("browser") if one["level"] == "SEVERE"]

    def points(self) -> dict[str, int]:
        """Return the number of data rows of each chart."""
        found: dict[str, int] = self.run(
            "return Object.fromEntries([...document.querySelectorAll('.chart')].map("
            "one => [one.id.replace('chart-', ''), Number(one.dataset.points)]))"
        )
        return found


@pytest.fixture
def browser(driver: Any) -> Browser:
    return Browser(driver)


@pytest.fixture(scope="session")
def finished_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run(Experiment.parse(TINY), out=tmp_path_factory.mktemp("browser") / "run").folder


@pytest.fixture(scope="session")
def grid(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("browser-grid") / "grid"
    for method in ("refprotofl", "fedavg"):
        for seed in (0, 1):
            run(Experiment.parse({**TINY, "method": method, "seed": seed}), out=place / f"{method}-{seed}")
    return place


@pytest.fixture
def served() -> Iterator[Callable[[Path], str]]:
    """Serves a folder and gives the address."""
    servers: list[LiveServer] = []

    def serve(folder: Path) -> str:
        server = LiveServer(Follower(folder), "127.0.0.1", listen("127.0.0.1", 0), new_token())
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        servers.append(server)
        return server.address

    yield serve
    for server in servers:
        server.close()
