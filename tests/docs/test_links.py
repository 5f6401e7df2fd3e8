"""Links between the pages lead to a file and to a heading of it, in the repository and on the site."""

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LINK = re.compile(r"\]\(([^)\s]+)\)")
CODE = re.compile(r"^```.*?^```|`[^`\n]+`", re.MULTILINE | re.DOTALL)
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
MOST_WORDS = 1500
REFERENCE = ("docs/reference/",)


def pages() -> list[str]:
    files = [
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/**/*.md"),
        *ROOT.glob("examples/**/*.md"),
        ROOT / "results" / "README.md",
    ]
    return sorted(file.relative_to(ROOT).as_posix() for file in files)


def slugs(heading: str) -> set[str]:
    """The anchors of a heading on GitHub and in Python-Markdown, which differ in runs of hyphens."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    words = re.sub(r"[^\w\- ]", "", text.replace("`", "").replace("*", "").lower()).strip()
    return {words.replace(" ", "-"), re.sub(r"[-\s]+", "-", words)}


@cache
def anchors(page: str) -> set[str]:
    """The anchors of a page that are the same in both."""
    text = FENCED.sub("", (ROOT / page).read_text(encoding="utf-8"))
    both = [slugs(heading) for heading in re.findall(r"^#{1,6} (.+)$", text, re.MULTILINE)]
    return {slug for pair in both if len(pair) == 1 for slug in pair}


def wrong(page: str) -> list[str]:
    """The links of a page that lead nowhere, with the reason."""
    found = []
    for target in LINK.findall(CODE.sub("", (ROOT / page).read_text(encoding="utf-8"))):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (ROOT / page).parent / path if path else ROOT / page
        if not file.is_file():
            found.append(f"{target}: no such file")
        elif anchor and anchor not in anchors(file.resolve().relative_to(ROOT).as_posix()):
            found.append(f"{target}: no such heading")
    return found


@pytest.mark.parametrize("page", pages())
def test_links_lead_somewhere(page: str) -> None:
    assert wrong(page) == []


@pytest.mark.parametrize("page", [page for page in pages() if page.startswith("docs/")])
def test_pages_are_in_the_navigation_and_short(page: str) -> None:
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert navigation.count(f" {page}\n") == 1, "add the page to nav in mkdocs.yml"
    words = len((ROOT / page).read_text(encoding="utf-8").split())
    assert page.startswith(REFERENCE) or words <= MOST_WORDS, f"{words} words: split the page"


@pytest.mark.parametrize("page", pages())
def test_lists_and_tables_follow_an_empty_line(page: str) -> None:
    """GitHub does not need the empty line, the site does."""
    text = FENCED.sub("```", (ROOT / page).read_text(encoding="utf-8"))
    glued = re.findall(r"^(?![-#|\s]|\d+\. |<!--).+\n(?:- |1\. |\|).*$", text, re.MULTILINE)
    lists = re.findall(r"^ .+\n\|.*$", text, re.MULTILINE)
    assert glued + lists == []


def test_a_dead_link_is_noticed(tmp_path: Path) -> None:
    assert slugs("Fashion-MNIST, alpha 0.5") == {"fashion-mnist-alpha-05"}
    assert len(slugs('`privacy.unit = "sample"`')) == 2
    assert "one-round-of-refprotofl" in anchors("docs/concepts/round.md")
    assert "no-such-heading" not in anchors("docs/concepts/round.md")
