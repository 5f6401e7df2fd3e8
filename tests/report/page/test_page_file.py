"""The page as a file: whole, small, closed to everything else, and blind to markup in what it shows."""

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path

import pytest

from refprotofl.core.errors import InputError
from refprotofl.report.page import html
from refprotofl.report.page.collect import gather
from refprotofl.report.page.elements import Column, Facts, Figure, Page, Part, Section, Table, Tile
from refprotofl.report.page.html import as_file, as_live, asset, embedded, live_policy, shrink_to_fit, write_page
from refprotofl.report.page.static_figures import draw_figures

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\x1b[31m\u202e"


class Elements(HTMLParser):
    """Every element with its attributes, and the text of scripts and styles."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        self.texts.setdefault(tag, []).append("")

    def handle_data(self, data: str) -> None:
        if self.found and self.found[-1][0] in ("script", "style"):
            self.texts[self.found[-1][0]][-1] += data

    def handle_endtag(self, tag: str) -> None:
        self.found.append(("/" + tag, {}))

    def count(self, tag: str) -> int:
        return sum(one == tag for one, _ in self.found)


def hostile_page() -> Page:
    columns = (Column("name", HOSTILE, "text"), Column("value", HOSTILE))
    figure = Figure(
        "f", HOSTILE, HOSTILE, "bars", columns, [[HOSTILE, 1.0], ["=1+1", float("inf")]], x="name", y="value"
    )
    parts: list[Part] = [figure, Table(HOSTILE, [HOSTILE], [[HOSTILE]], [HOSTILE]), Facts(HOSTILE, {HOSTILE: HOSTILE})]
    return Page(HOSTILE, HOSTILE, [Tile(HOSTILE, HOSTILE, HOSTILE)], [Section("s", HOSTILE, parts)], [HOSTILE])


def test_a_page_is_one_file_below_three_megabytes_that_names_no_other(finished: Path, tmp_path: Path) -> None:
    write_page(gather([finished]), tmp_path / "page.html")
    html = (tmp_path / "page.html").read_text()
    assert (tmp_path / "page.html").stat().st_size < 1_200_000
    for tag, attributes in Elements(html).found:
        assert tag not in ("img", "iframe", "object", "embed", "form", "base")
        assert "src" not in attributes
        assert not (attributes.get("href") or "#").startswith(("http", "//"))
        assert not [name for name in attributes if name.startswith("on")]


def test_the_policy_allows_these_very_scripts_and_this_style(finished: Path) -> None:
    elements = Elements(as_file(gather([finished])))
    policy = next(one["content"] for tag, one in elements.found if one.get("http-equiv")) or ""
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"
    assert not re.search("unsafe|http|data:", rules["script-src"] + rules["style-src"])

    def hashed(text: str) -> str:
        return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"

    data, *scripts = elements.texts["script"]
    assert rules["script-src"].split() == [hashed(text) for text in scripts]
    assert rules["style-src"] == hashed(elements.texts["style"][0])
    assert json.loads(data)["sections"]


def test_the_same_runs_give_the_same_bytes(finished: Path) -> None:
    assert as_file(gather([finished])) == as_file(gather([finished]))


def test_markup_and_controls_in_what_is_shown_do_nothing() -> None:
    for text in (as_file(hostile_page()), as_live(hostile_page(), "abc")):
        elements = Elements(text)
        assert elements.count("script") == 3
        assert elements.count("img") == 0
        assert "\x1b" not in text
        assert "\u202e" not in text
        found = json.loads(elements.texts["script"][0])
        assert found["title"].startswith("</script><script>alert(1)")  # as text
        assert found["sections"][0]["parts"][0]["rows"][1] == ["=1+1", None]  # JSON has no infinity


@pytest.mark.parametrize("text", ["</script>", "<!--", "]]>", "&lt;", "\u2028"])
def test_no_sign_in_embedded_data_ends_its_element(text: str) -> None:
    data = embedded({text: [text]})
    assert not set("<>&\u2028") & {*data}
    assert json.loads(data) == {text: [text]}


def test_a_nonce_is_on_every_script_and_style_of_the_live_page() -> None:
    elements = Elements(as_live(hostile_page(), "n0nce"))
    marked = [one.get("nonce") for tag, one in elements.found if tag in ("script", "style") and "type" not in one]
    assert marked == ["n0nce"] * 3
    assert "'nonce-n0nce'" in live_policy("n0nce")
    assert "unsafe" not in live_policy("n0nce")


def test_what_the_page_draws_with_is_what_was_packed() -> None:
    place = files("refprotofl.report.page") / "assets"
    for line in asset("SHA256SUMS").splitlines():
        digest, name = line.split("  ")
        assert hashlib.sha256((place / name).read_bytes()).hexdigest() == digest, name
    licences = asset("charts.LICENSES.txt")
    for package in ("vega 6", "vega-lite 6", "vega-interpreter 2", "d3-scale 4"):
        assert package in licences
    assert "</script" not in asset("charts.js").lower()


def test_the_packed_versions_are_those_of_the_lock() -> None:
    lock = json.loads((Path(__file__).parents[3] / "tools" / "charts" / "package-lock.json").read_text())
    licences = asset("charts.LICENSES.txt")
    for name in ("vega", "vega-lite", "vega-interpreter"):
        found = lock["packages"][f"node_modules/{name}"]
        assert f"{name} {found['version']} (" in licences
        assert found["integrity"].startswith("sha512-")


def test_a_page_that_cannot_be_mailed_is_refused(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(html, "MOST_BYTES", 1000)
    with pytest.raises(InputError, match="MB even without curves; the limit is"):
        write_page(gather([finished]), tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()


def test_a_page_that_is_too_large_is_shown_in_less_and_says_so(
    grid: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = gather([grid])
    smallest = [len(as_file(one).encode()) for one in shrink_to_fit(page)]
    assert smallest[-1] < smallest[-2] < smallest[0]
    monkeypatch.setattr(html, "MOST_BYTES", smallest[-2])
    write_page(page, tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    assert len(text.encode()) == smallest[-2]
    assert "only curves by round and by total bytes are kept." in text
    assert '"accuracy-by-round"' in text
    assert '"accuracy-by-up"' not in text


def test_a_curve_in_less_keeps_its_last_point() -> None:
    rows = [[name, round, 0.5] for name in ("a", "b") for round in range(1, 101)]
    columns = (Column("method", "method", "text"), Column("round", "round", "whole"), Column("accuracy", "", "share"))
    curve = Figure("accuracy-by-round", "", "", "lines", columns, rows, x="round", y="accuracy", colour="method")
    _, first, *_ = shrink_to_fit(Page("", "", [], [Section("learning", "", [curve])]))
    rounds = [row[1] for row in first.figures[0].rows if row[0] == "b"]
    assert rounds == [1, 10, 19, 28, 37, 46, 55, 64, 73, 82, 91, 100]


def test_every_figure_is_drawn_for_papers(finished: Path, grid: Path, tmp_path: Path) -> None:
    figures = [*gather([finished]).figures, gather([grid]).figures[0]]
    assert {one.kind for one in figures} == {"lines", "bars", "stacked", "heat", "bubbles", "dots", "frontier"}
    written = draw_figures(figures, tmp_path / "a", [".svg"])
    assert len(written) == len(figures)
    for path in written:
        assert b"<svg" in path.read_bytes()[:500]
    first = draw_figures(figures[:1], tmp_path / "b", [".png", ".pdf", ".svg"])
    assert [path.read_bytes()[:4] for path in first[:2]] == [b"\x89PNG", b"%PDF"]
    assert first[2].read_bytes() == written[0].read_bytes()  # no date in it
