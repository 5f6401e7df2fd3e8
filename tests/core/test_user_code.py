"""The user's code by digest: its own file, what it imports from its folder, and never by running it."""

from pathlib import Path

import pytest

from refprotofl.core.user_code import digest_code


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    "line",
    ["import part", "from part import x", "from part.deep import x", "server = 'part:Server'", "import part.deep"],
)
def test_what_it_names_counts(line: str) -> None:
    Path("mine.py").write_text(f"raise SystemExit\n{line}\n")
    Path("part").mkdir()
    for file in ("part/__init__.py", "part/deep.py", "other.py"):
        Path(file).write_text("")
    first = digest_code("mine:Own")
    assert first is not None
    Path("other.py").write_text("changed = 1")
    assert digest_code("mine:Own") == first
    Path("part/__init__.py").write_text("changed = 1")
    assert digest_code("mine:Own") != first


def test_relative_imports_in_a_package() -> None:
    Path("pack/inner").mkdir(parents=True)
    for file in ("pack/__init__.py", "pack/inner/__init__.py", "pack/near.py", "pack/inner/far.py"):
        Path(file).write_text("")
    Path("pack/inner/mine.py").write_text("from . import far\nfrom ..near import x\n")
    seen = {digest_code("pack.inner.mine:Own")}
    for file in ("pack/near.py", "pack/inner/far.py", "pack/__init__.py", "pack/inner/mine.py"):
        Path(file).write_text("# changed")
        seen.add(digest_code("pack.inner.mine:Own"))
    assert len(seen) == 5


def test_code_that_is_not_here_or_broken() -> None:
    assert digest_code("nowhere_to_be_found:Own") is None
    Path("broken.py").write_text("def (:")
    first = digest_code("broken:Own")
    Path("broken.py").write_text("def ):")
    assert None is not first != digest_code("broken:Own")


def test_modules_that_import_each_other() -> None:
    Path("one.py").write_text("import two")
    Path("two.py").write_text("import one")
    assert digest_code("one:Own") == digest_code("two:Own")
