"""docs/architecture.md shows every room, and a room imports what lies above it in that table, never what lies below."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from refprotofl.core.lazy import homes_of

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "refprotofl"


@cache
def rooms() -> list[list[str]]:
    """The names in the first column of the table, row by row; a name ending in / is a folder."""
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    section = text.partition("## Packages\n")[2].partition("\n## ")[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    return [re.findall(r"`([\w/*]+)`", row) for row in rows]


def row_of(module: str) -> int | None:
    """The row of a module, as `methods/core/server`: the longest name that it is, or lies in."""
    fits = [
        (len(name), number)
        for number, names in enumerate(rooms())
        for name in names
        if re.fullmatch(re.escape(name).replace(r"\*", r"[^/]+") + (".*" if name.endswith("/") else ""), module)
    ]
    return max(fits)[1] if fits else None


@cache
def modules() -> dict[str, Path]:
    """Every module with the name that the table uses; a package's own is that of its folder and `__init__`."""
    return {file.relative_to(PACKAGE).with_suffix("").as_posix(): file for file in sorted(PACKAGE.rglob("*.py"))}


def imported(tree: ast.AST) -> Iterator[str]:
    """Modules of the package that are imported anywhere, but for types alone."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.startswith("refprotofl"))
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("refprotofl"):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        yield from imported(node)


@cache
def public_names(package: str) -> dict[str, str]:
    """The home of each name that a package loads when it is first used."""
    own = modules().get(f"{package.replace('.', '/')}/__init__")
    return homes_of(own.read_text(encoding="utf-8")) if own else {}


def as_module(name: str) -> str | None:
    """The module that a dotted name is, or is an attribute of; a package's public name is its home's."""
    package, _, attribute = name.removeprefix("refprotofl.").rpartition(".")
    name = f"{public_names(package).get(attribute, f'refprotofl.{package}')}.{attribute}"
    path = name.removeprefix("refprotofl").strip(".").replace(".", "/")
    known = modules()
    for candidate in (path, f"{path}/__init__", path.rpartition("/")[0], f"{path.rpartition('/')[0]}/__init__"):
        if candidate.strip("/") in known:
            return candidate.strip("/")
    return None


@pytest.mark.parametrize("module", [name for name in modules() if name != "__init__"])
def test_a_module_imports_from_its_own_package_or_from_above(module: str) -> None:
    own = row_of(module)
    assert own is not None, f"{module} is in no room of docs/architecture.md"
    below = []
    for name in imported(ast.parse(modules()[module].read_text(encoding="utf-8"))):
        found = as_module(name)
        row = row_of(found) if found else None
        if row is not None and row > own:
            below.append(found)
    assert below == []


def test_every_package_in_the_table_exists() -> None:
    known = modules()
    missing = [
        name
        for names in rooms()
        for name in names
        if not any(
            row_of(module) is not None and re.match(re.escape(name).replace(r"\*", "[^/]+"), module) for module in known
        )
    ]
    assert missing == []


def test_no_module_lies_loose() -> None:
    assert sorted(file.stem for file in PACKAGE.glob("*.py")) == ["__init__", "__main__"]
