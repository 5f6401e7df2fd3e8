"""Docstrings name a thing or begin with a verb, and words of a private idiom do not come back."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "src" / "refprotofl"

CLEAN = (  # packages that are held to it; in the end all of them
    "core",
    "data",
    "wire",
    "records",
    "experiment",
    "models",
    "evaluation",
    "privacy",
    "export",
    "bench",
)

OPENING = re.compile(r"(What|Who|Whose|Whether|Of|That|Where|How|As|With)\b")
WORDS = re.compile(r"\b(told|tells?|telling|whoever|thereof|beside|somebody|desk|seat|courier|stones)\b")


def sources() -> list[Path]:
    return [path for name in CLEAN for path in sorted((PACKAGE / name).rglob("*.py"))]


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
    text = path.read_text(encoding="utf-8").replace(".tell()", "")  # the method of files
    assert [line.strip() for line in text.splitlines() if WORDS.search(line)] == []
