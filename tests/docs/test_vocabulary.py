"""Docstrings name a thing or begin with a verb, and words of a private idiom do not come back."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "src" / "refprotofl"

OPENING = re.compile(r"(What|Who|Whose|Whether|Of|That|Where|How|As|With)\b")
WORDS = re.compile(
    r"\b(told|tells?|telling|whoever|thereof|beside|somebody|nobody|desk|seat|shelf|courier|stones|lessen\w*)\b"
)
ALLOWED = (".tell()", "self.told", '"told"')  # the method of files; a state entry of FAST, whose name is in digests


def sources() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def pages() -> list[Path]:
    root = Path(__file__).parents[2]
    return sorted([root / "README.md", root / "CHANGELOG.md", root / "CONTRIBUTING.md", *root.glob("docs/**/*.md")])


def allowed_removed(text: str) -> str:
    for word in ALLOWED:
        text = text.replace(word, "")
    return text


def name_of(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def docstrings(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield ast.get_docstring(node) or ""


@pytest.mark.parametrize("path", sources(), ids=name_of)
def test_docstrings_begin_with_a_verb_or_a_noun(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert [one for one in docstrings(tree) if OPENING.match(one)] == []


@pytest.mark.parametrize("path", sources(), ids=name_of)
def test_words_of_the_private_idiom_do_not_occur(path: Path) -> None:
    text = allowed_removed(path.read_text(encoding="utf-8"))
    assert [line.strip() for line in text.splitlines() if WORDS.search(line)] == []


@pytest.mark.parametrize("path", pages(), ids=lambda path: path.name)
def test_nor_do_they_in_the_documentation(path: Path) -> None:
    assert [line for line in path.read_text(encoding="utf-8").splitlines() if WORDS.search(line)] == []
