"""Study files: the command line that a file stands for, and the tables in results/ that come of the published ones."""

import shlex
from pathlib import Path
from typing import Any

import pytest
import typer.main

from refprotofl.cli.entry import app
from refprotofl.cli.study_files import expand_study
from refprotofl.core.errors import InputError
from refprotofl.studies.results import CELLS, asked_experiment, find_result, read_lines

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results"
STUDIES = sorted(path for path in (ROOT / "studies").glob("*.toml") if not path.name.startswith("frontier"))
PUBLISHED = [path for path in STUDIES if (RESULTS / path.stem).exists()]
TUNING = sorted((ROOT / "studies" / "tuning").glob("*.toml"))
SEARCHES = [*sorted((ROOT / "studies").glob("frontier*.toml")), *TUNING]
COMMANDS = typer.main.get_command(app).commands  # type: ignore[attr-defined]


def expanded(tmp_path: Path, text: str, *given: str) -> list[str]:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    return expand_study(path, given, COMMANDS)


def test_a_file_is_the_command_that_one_would_type(tmp_path: Path) -> None:
    text = """
    what = "accuracy"
    dataset = ["mnist", "cifar10"]
    alpha = [0.5, 100]
    seeds = 0
    no-runs = true
    results = "../elsewhere"
    set = {model.name = "cnn", evaluate.every = 5, public.classes = [0, 1], test.dataset = "7"}
    [tuned]
    mnist = ["a.toml", "/b.toml"]
    cifar10 = "c.toml"
    """
    elsewhere = tmp_path.parent / "elsewhere"
    wanted = (
        f"reproduce accuracy --dataset mnist,cifar10 --alpha 0.5,100 --seeds 0 --no-runs --results {elsewhere} "
        "--set model.name=cnn --set evaluate.every=5 --set 'public.classes=[0, 1]' --set 'test.dataset=\"7\"' "
        f"--tuned mnist={tmp_path / 'a.toml'} --tuned mnist=/b.toml --tuned cifar10={tmp_path / 'c.toml'} "
        "--out runs/mine"
    )
    found = expanded(tmp_path, text)
    assert Path(found[-1]).resolve() == Path("runs/mine").resolve()
    assert found[:-1] == shlex.split(wanted)[:-1]


def test_options_on_the_command_line_override_the_files(tmp_path: Path) -> None:
    text = 'what = "thin"\nlast = 2\nout = "a"\ntuned = {mnist = "a.toml"}\nset = {rounds = 3}\n'
    found = expanded(tmp_path, text, "--last", "4", "--out=b", "--tuned", "mnist=c.toml", "--set", "rounds=5")
    assert found == shlex.split("reproduce thin --set rounds=3 --last 4 --out=b --tuned mnist=c.toml --set rounds=5")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("datset = 'mnist'", "There is no key datset; did you mean dataset?"),
        ("command = 'tune'\nmethod = 'local'", "There is no key method; did you mean methods?"),
        ("command = 'run'", "command = 'run' is not one of reproduce, compare, tune, frontier"),
        ("command = 'tune'\nwhat = 'accuracy'", "There is no key what"),
        ("seeds = {a = 1}", "seeds must not be a table"),
        ("set = 'rounds=3'", "set must be a table"),
        ("seeds =", "is not valid TOML"),
    ],
)
def test_what_is_wrong_in_a_file_is_named(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(InputError) as refused:
        expanded(tmp_path, text)
    assert f"{tmp_path / 'mine.toml'}" in str(refused.value)
    assert sentence in str(refused.value)


def test_reproduce_takes_a_study_file(refprotofl: Any, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('what = "accuracy"\npreset = "quick"\nalpha = "many"\n')
    outcome = refprotofl("reproduce", tmp_path / "mine.toml", "--no-runs")
    assert outcome.code == 2
    assert "--alpha many: allowed are numbers above 0" in outcome.err
    outcome = refprotofl("reproduce", tmp_path / "mine.toml", "--alpha", "0.5", "--no-runs")
    assert outcome.code == 0, outcome.err
    assert (tmp_path / "here" / "runs" / "mine" / "tables" / "accuracy-standard.md").exists()


@pytest.mark.parametrize("path", [*STUDIES, *SEARCHES], ids=lambda path: path.stem)
def test_published_studies_are_commands_that_can_be_read(path: Path) -> None:
    name, *arguments = expand_study(path, (), COMMANDS)
    COMMANDS[name].make_context(name, arguments)


@pytest.mark.parametrize("path", TUNING, ids=lambda path: path.stem)
def test_a_published_search_is_one_that_tune_accepts(refprotofl: Any, monkeypatch: Any, path: Path) -> None:
    """Every method gets the same number of trials, and keys and values are known."""
    monkeypatch.setattr("refprotofl.cli.tune._search", lambda *_: [])
    monkeypatch.setattr("refprotofl.cli.tune._report", lambda *_: None)
    outcome = refprotofl("reproduce", path)
    assert outcome.code == 0, outcome.err
    assert " trials with " in outcome.err


@pytest.mark.slow
@pytest.mark.parametrize(
    "path", [path for path in STUDIES if (RESULTS / path.stem).exists()], ids=lambda path: path.stem
)
def test_published_tables_come_of_the_published_results(
    refprotofl: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: Path
) -> None:
    for command in ("reproduce", "compare"):  # what takes longer than the tables
        monkeypatch.setattr(f"refprotofl.cli.{command}.report_finished", lambda *_, **__: None)
    monkeypatch.setattr("refprotofl.studies.reproduce.outputs.draw_all", lambda *_: ((), ()))
    outcome = refprotofl("reproduce", path, "--no-runs", "--out", tmp_path / "out")
    assert outcome.code == 0, outcome.err
    published = RESULTS / path.stem / "tables"
    for end in ("md", "json"):
        found = {file.name: file.read_text() for file in (tmp_path / "out" / "tables").glob(f"*.{end}")}
        assert found == {file.name: file.read_text() for file in published.glob(f"*.{end}")}


def test_every_published_result_is_kept_once_in_order_and_says_what_was_asked() -> None:
    found: list[str] = []
    for file in sorted(RESULTS.glob(f"*/{CELLS}")):
        lines = read_lines(file)
        assert file.read_text().splitlines() == [*lines.values()]
        places = []
        for asked in lines:
            result = find_result(file / asked)
            assert asked_experiment(result).hash == asked
            experiment = result["summary"]["experiment"]
            places.append((experiment["method"], experiment["dataset"], experiment["seed"], asked))
        assert places == sorted(places)
        found += lines
    assert len(found) == len({*found})
