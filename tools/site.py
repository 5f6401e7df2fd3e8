"""Collect the pages of the documentation for mkdocs: README, docs/, and the files of the repository that they link to.

python tools/site.py build/site-source   (make docs calls it, then mkdocs)

Paths are kept, so links work as they do in the repository. LaTeX becomes MathML, which browsers draw without a script.
"""

import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from latex2mathml.converter import convert

from reference import write as write_reference

ROOT = Path(__file__).resolve().parents[1]
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
CODE = re.compile(r"(^```.*?^```|`[^`\n]+`)", re.MULTILINE | re.DOTALL)
DISPLAY = re.compile(r"\$\$(.+?)\$\$", re.DOTALL)
INLINE = re.compile(r"\$(?!\s)([^$\n]+?)(?<!\s)\$")


def linked(page: Path) -> Iterator[Path]:
    """Yield the files of the repository that a page links to."""
    text = CODE.sub("", page.read_text(encoding="utf-8"))
    for target in LINK.findall(text):
        path = target.partition("#")[0]
        if path and "://" not in path and not path.startswith("mailto:"):
            yield (page.parent / path).resolve()


def collect(root: Path) -> set[Path]:
    """Return README, all pages of docs/, and what they link to, directly or through other pages."""
    found: set[Path] = set()
    waiting = [root / "README.md", root / "docs" / "site.css", *root.glob("docs/**/*.md")]
    while waiting:
        file = waiting.pop()
        if file in found or not file.is_file():
            continue
        found.add(file)
        if file.suffix == ".md":
            waiting.extend(target for target in linked(file) if target.is_relative_to(root))
    return found


def with_formulas(text: str) -> str:
    """Return a page with LaTeX in `$` and `$$` as MathML; code stays as it is."""
    parts = CODE.split(text)
    for place in range(0, len(parts), 2):
        part = DISPLAY.sub(lambda found: convert(found[1].strip(), display="block"), parts[place])
        parts[place] = INLINE.sub(lambda found: convert(found[1]), part)
    return "".join(parts)


def with_whole_numbers(text: str) -> str:
    """Return a page whose tables do not break a line within `1.2 ± 0.3 MB`."""
    return re.sub(r"(?m)^\|.*$", lambda row: re.sub(r"(?<=\d) (?=[±%kMG])|(?<=±) ", "\u00a0", row[0]), text)


def build(root: Path, out: Path) -> int:
    """Write the collected files to `out`, the reference anew from the code, and return their number."""
    shutil.rmtree(out, ignore_errors=True)
    files = collect(root)
    for file in files:
        copy = out / file.relative_to(root)
        copy.parent.mkdir(parents=True, exist_ok=True)
        if file.suffix == ".md":
            text = file.read_text(encoding="utf-8")
            copy.write_text(with_whole_numbers(with_formulas(text)), encoding="utf-8")
        else:
            shutil.copyfile(file, copy)
    write_reference(out / "docs" / "reference")
    return len(files)


if __name__ == "__main__":
    print(f"{build(ROOT, Path(sys.argv[1]))} files")
