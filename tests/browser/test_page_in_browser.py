"""The page as a person has it: drawn without errors, read without a mouse, in the dark and on a phone."""

import json
import shutil
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from refprotofl.core.network import read_links
from refprotofl.report.page.collect import gather
from refprotofl.report.page.elements import Page
from refprotofl.report.page.html import write_page

HOSTILE = '<img src=x onerror="window.owned=1"></script><script>window.owned=2</script>'


@pytest.fixture
def page(finished_run: Path) -> Page:
    return gather([finished_run], {"link-1": read_links("lte")})


@pytest.fixture
def address(page: Page, tmp_path: Path) -> str:
    write_page(page, tmp_path / "page.html")
    return (tmp_path / "page.html").as_uri()


def test_a_run_s_page_loads_from_disk_and_its_charts_have_its_points(browser: Any, page: Page, address: str) -> None:
    browser.open(address)
    assert browser.complaints() == []
    assert browser.points() == {one.name: len(one.rows) for one in page.figures}
    drawn = browser.run(
        "return document.querySelectorAll('#chart-accuracy-by-round path[aria-roledescription=point]').length"
    )
    assert drawn == len(next(one for one in page.figures if one.name == "accuracy-by-round").rows)
    bars = browser.run(
        "return document.querySelectorAll('#chart-clients-personal path[aria-roledescription=bar]').length"
    )
    assert bars == 4


def test_a_comparison_s_page_loads_from_disk(browser: Any, grid: Path, tmp_path: Path) -> None:
    page = gather([grid], {"link-1": read_links("lora")})
    write_page(page, tmp_path / "page.html")
    browser.open((tmp_path / "page.html").as_uri())
    assert browser.complaints() == []
    assert browser.points() == {one.name: len(one.rows) for one in page.figures}
    assert "baseline" in browser.run("return document.querySelector('#methods table').innerText")


def test_numbers_are_a_table_behind_a_toggle_that_keys_reach(browser: Any, page: Page, address: str) -> None:
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

    browser.open(address)
    toggle = browser.driver.find_element(By.CSS_SELECTOR, "#figure-loss-by-round button[aria-controls]")
    assert toggle.accessible_name == "Numbers of Loss by round"
    assert toggle.get_attribute("aria-expanded") == "false"
    toggle.send_keys(Keys.ENTER)
    assert toggle.get_attribute("aria-expanded") == "true"
    shown = browser.run(
        "return [...document.querySelectorAll('#numbers-loss-by-round tbody tr')].map(r => r.cells[0].innerText)"
    )
    assert shown == ["2", "4"]
    toggle.send_keys(Keys.ENTER)
    assert browser.run("return document.getElementById('numbers-loss-by-round').hidden") is True


def test_csv_of_a_chart_is_its_rows(browser: Any, page: Page, address: str, tmp_path: Path) -> None:
    from selenium.webdriver.common.by import By

    browser.open(address)
    folder = {"behavior": "allow", "downloadPath": str(tmp_path / "got"), "eventsEnabled": False}
    browser.driver.execute_cdp_cmd("Browser.setDownloadBehavior", folder)
    browser.driver.find_element(By.CSS_SELECTOR, "#figure-partition [aria-label$='as CSV']").click()
    file = tmp_path / "got" / "partition.csv"
    from selenium.webdriver.support.ui import WebDriverWait

    WebDriverWait(browser.driver, 10, 0.1).until(lambda _: file.exists())
    figure = next(one for one in page.figures if one.name == "partition")
    assert file.read_text().splitlines() == ["client,class,samples", *(",".join(map(str, row)) for row in figure.rows)]


def test_charts_have_text_alternatives(browser: Any, page: Page, address: str) -> None:
    browser.open(address)
    names = browser.run(
        "return [...document.querySelectorAll('.chart svg')].map(one => [one.getAttribute('role') || "
        "one.firstElementChild.getAttribute('role'), one.querySelector('[aria-label]') !== null])"
    )
    assert len(names) == len(page.figures)
    assert all(labelled for _, labelled in names)
    described = browser.run(
        "return [...document.querySelectorAll('.chart')].map(one => one.getAttribute('aria-label') || '')"
    )
    assert described == [f"{one.title}. {one.caption}" for one in page.figures]
    unnamed = browser.run(
        "return [...document.querySelectorAll('button, a[href], nav, [role=region], progress')].filter("
        "one => !(one.getAttribute('aria-label') || one.innerText || one.textContent).trim()).length"
    )
    assert unnamed == 0
    headings = browser.run("return [...document.querySelectorAll('h1, h2, h3')].map(one => Number(one.tagName[1]))")
    assert headings[0] == 1
    assert all(after <= before + 1 for before, after in pairwise(headings))
    assert browser.run("return document.documentElement.lang") == "en"


@pytest.mark.parametrize(("width", "scheme"), [(1280, "dark"), (768, "light"), (390, "light"), (320, "dark")])
def test_nothing_overflows(browser: Any, address: str, width: int, scheme: str) -> None:
    browser.look(width, scheme)
    browser.open(address)
    assert browser.complaints() == []
    assert browser.run("return document.documentElement.dataset.theme") == scheme
    assert browser.run("return document.documentElement.scrollWidth") <= width
    wide = browser.run(
        "return [...document.querySelectorAll('.chart svg')].filter("
        "one => one.getBoundingClientRect().right > one.closest('.card').getBoundingClientRect().right + 1).length"
    )
    assert wide == 0


def test_light_and_dark_are_one_click_apart(browser: Any, address: str) -> None:
    from selenium.webdriver.common.by import By

    browser.open(address)
    before = browser.run("return getComputedStyle(document.body).backgroundColor")
    browser.driver.find_element(By.ID, "theme").click()
    assert browser.run("return document.documentElement.dataset.theme") == "dark"
    assert browser.run("return getComputedStyle(document.body).backgroundColor") != before


def hostile_copy(finished_run: Path, place: Path) -> Path:
    """A run whose class names, machine, reasons and folder are markup; its hashes are as its sender would make them."""
    folder = Path(shutil.copytree(finished_run, place / "<b onmouseover=owned()>run"))
    plain = json.loads((folder / "experiment.json").read_text())
    plain["input"]["class-names"] = [f"{HOSTILE}{number}\x1b[2J" for number in range(10)]
    from refprotofl.experiment import Experiment

    stored = {key: value for key, value in plain.items() if key != "hash"}
    plain["hash"] = Experiment.parse(stored).hash
    (folder / "experiment.json").write_text(json.dumps(plain))
    lines = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    lines[0]["machine"] = {HOSTILE: HOSTILE}
    lines[0]["device"] = HOSTILE
    failed = {"event": "client-failed", "round": 1, "client": 1, "code": HOSTILE[:50], "reason": HOSTILE}
    lines.insert(1, failed)
    (folder / "events.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    (folder / "summary.json").unlink()
    return folder


@pytest.mark.parametrize("live", [False, True])
def test_markup_in_a_run_does_not_execute(
    browser: Any, finished_run: Path, tmp_path: Path, served: Callable[[Path], str], live: bool
) -> None:
    folder = hostile_copy(finished_run, tmp_path)
    write_page(gather([folder]), tmp_path / "page.html")
    browser.open(served(folder) if live else (tmp_path / "page.html").as_uri())
    for toggle in browser.driver.find_elements("css selector", "button[aria-controls]"):
        toggle.click()
    assert browser.run("return window.owned") is None
    assert browser.run("return document.querySelectorAll('img, b').length") == 0
    assert "onerror" in browser.run("return document.body.innerText")  # it is shown, as text
    assert browser.complaints() == []
