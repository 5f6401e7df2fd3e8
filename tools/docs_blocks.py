"""Run the shell and Python blocks of README, docs and the notebook: make test-docs.

A page's blocks run in order, in a new folder that looks like a checkout. A comment before a block changes that:

    <!-- not run: REASON -->   the block is not run; its commands and keys are checked to exist
    <!-- before: COMMAND -->   a command to run first, such as one that makes the files that a reader would have
    <!-- output -->            a text block: the output of the block before it, with numbers within a tenth
"""

import ast
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click
import pytest
import typer

from refprotofl.cli.entry import app
from refprotofl.experiment import Experiment
from refprotofl.experiment.keys import keys

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"((?:^<!-- .*? -->\n\n?)*)^```([\w-]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMENT = re.compile(r"<!-- (not run|before|output)(?:: (.*?))? -->")
COMMAND = re.compile(r"^(refprotofl|pip|python3?|make|cd|sudo|flwr) ", re.MULTILINE)
LIMIT = 300  # seconds for a block


@dataclass
class Block:
    """A fenced block of a page, with the comments before it."""

    line: int
    language: str
    text: str
    marks: dict[str, str]


def pages() -> list[str]:
    found = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "results" / "README.md", *ROOT.glob("docs/**/*.md")]
    found += ROOT.glob("examples/**/*.md")
    return sorted(file.relative_to(ROOT).as_posix() for file in found if BLOCK.search(file.read_text(encoding="utf-8")))


def blocks(page: str) -> Iterator[Block]:
    text = (ROOT / page).read_text(encoding="utf-8")
    for found in BLOCK.finditer(text):
        marks = dict(COMMENT.findall(found[1]))
        yield Block(text.count("\n", 0, found.start(2)) + 1, found[2], found[3], marks)


def commands(text: str) -> Iterator[list[str]]:
    """Yield the words of each refprotofl command in a shell block, variables as they stand."""
    for line in text.replace("\\\n", " ").splitlines():
        for part in re.split(r"[;&]+ |\bdo\b", line):
            words = shlex.split(part, comments=True)
            if words and words[0] == "refprotofl":
                yield words[1:]


def check_command(words: list[str]) -> None:
    """Raise for a command or an option that does not exist, and for an unknown key of --set."""
    command: click.Command = typer.main.get_command(app)
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        assert words[0] in command.commands, f"no command {words[0]}"
        command, words = command.commands[words[0]], words[1:]
    options = {name: one for one in command.params for name in (*one.opts, *one.secondary_opts) if name.startswith("-")}
    known = keys(Experiment)
    for place, word in enumerate(words):
        if word.startswith("-") and not re.match(r"-\d", word):
            assert word.partition("=")[0] in {*options, "--help"}, f"no option {word}"
        if place and words[place - 1] == "--set" and not word.startswith("$"):
            key = word.partition("=")[0]
            assert key in known or key.startswith(("own.", "$")), f"no key {key}"


def masked(text: str) -> str:
    """Return a text without its numbers and the widths that depend on them."""
    return re.sub(r"[\s─━-]+", " ", re.sub(r"\d[\d.,:]*", "0", text)).strip()


def numbers(text: str) -> list[float]:
    """Return the numbers of a text, which differ a little between machines."""
    return [float(number.replace(",", "")) for number in re.findall(r"\d[\d,]*(?:\.\d+)?", text)]


def execute(argument: list[str], folder: Path) -> str:
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "COLUMNS": "100"}
    done = subprocess.run(argument, cwd=folder, env=environment, capture_output=True, text=True, timeout=LIMIT)
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    return done.stdout


def checkout(folder: Path) -> Path:
    """Return a folder with the parts of a checkout that pages refer to."""
    for name in ("examples", "studies"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("runs", "__pycache__"))
    for name in ("results", "tools", "reference", "constraints.txt"):
        (folder / name).symlink_to(ROOT / name)
    return folder


def run_block(block: Block, folder: Path) -> str:
    if before := block.marks.get("before"):
        execute(["bash", "-euo", "pipefail", "-c", before], folder)
    if block.language == "sh":
        return execute(["bash", "-euo", "pipefail", "-c", block.text], folder)
    return execute([sys.executable, "-c", block.text], folder)


@pytest.mark.parametrize("page", pages())
def test_blocks_run(page: str, tmp_path: Path) -> None:
    folder = checkout(tmp_path)
    shown = ""
    for block in blocks(page):
        place = f"{page}:{block.line}"
        try:
            if "output" in block.marks:
                assert masked(block.text) == masked(shown), f"the output is\n{shown}"
                assert numbers(block.text) == pytest.approx(numbers(shown), rel=0.1), f"the output is\n{shown}"
            elif block.language == "toml":
                tomllib.loads(block.text)
            elif block.language not in ("sh", "python"):
                assert not COMMAND.search(block.text), "mark the block as sh or python"
            elif "not run" not in block.marks:
                shown = run_block(block, folder)
            elif block.language == "sh":
                assert block.marks["not run"], "give the reason"
                for words in commands(block.text):
                    check_command(words)
        except (AssertionError, subprocess.TimeoutExpired, tomllib.TOMLDecodeError) as error:
            pytest.fail(f"{place}: {error}", pytrace=False)


SHOW = """
def show(value):
    print(getattr(value, "_repr_html_", value.__repr__)()[:1000])
"""


def cells(notebook: Path) -> str:
    """Return the code of a notebook as one script that shows the value of each cell."""
    script = [SHOW]
    for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            tree = ast.parse("".join(cell["source"]))
            if isinstance(last := tree.body[-1], ast.Expr):
                tree.body[-1] = ast.parse(f"show({ast.unparse(last)})").body[0]
            script.append(ast.unparse(tree))
    return "\n\n".join(script)


@pytest.mark.parametrize("notebook", sorted(ROOT.glob("examples/*.ipynb")), ids=lambda file: file.name)
def test_a_notebook_runs(notebook: Path, tmp_path: Path) -> None:
    folder = checkout(tmp_path)
    execute([sys.executable, "-c", cells(notebook)], folder)
