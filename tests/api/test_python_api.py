"""`import refprotofl as rp`: results as objects, arrays and classes as values, errors in the words of Python."""

import importlib
import inspect
import logging
import pydoc
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import refprotofl as rp
from refprotofl.api.words import in_python
from refprotofl.cli.entry import app
from refprotofl.federation import Callback
from refprotofl.methods import find_method

TINY: dict[str, Any] = {
    "train_limit": 200,
    "clients": 2,
    "rounds": 2,
    "train": {"local-epochs": 1},
    "model": {"name": "mlp", "embedding": 8},
    "public": {"per-class": 2},
    "evaluate": {"every": 1, "test-limit": 20},
}


@pytest.fixture(scope="module")
def tiny() -> rp.Experiment:
    return rp.Experiment.preset("quick", **TINY)


@pytest.fixture(scope="module")
def result(tiny: rp.Experiment, tmp_path_factory: pytest.TempPathFactory) -> rp.RunResult:
    return rp.run(tiny, out=tmp_path_factory.mktemp("api") / "a", workers=1)


def test_a_run_has_its_numbers_history_and_models(result: rp.RunResult) -> None:
    assert result.accuracy["personal"] == result.summary["accuracy"]["personal"]
    sent = result.bytes
    assert sent["total"] == sent["uplink"] + sent["downlink"] + sent["one_off"] > 0
    assert [one["round"] for one in result.history] == [1, 2]
    assert result.history[-1]["bytes"] == sent["total"]
    assert result.history[-1]["personal"] == result.accuracy["personal"]
    images = np.zeros((3, 8, 8), np.uint8)
    made = result.predict(images, client=1)
    model = result.model(1)
    inputs = model.prepare(torch.zeros(3, 1, 8, 8, dtype=torch.uint8))
    with torch.no_grad():
        logits = model.head(model.embed(inputs))
    assert made.probabilities == pytest.approx(logits.softmax(1).numpy(), abs=1e-6)
    assert result.predict("digits").accuracy is not None


def test_a_common_model_has_no_client(tiny: rp.Experiment, result: rp.RunResult, tmp_path: Path) -> None:
    common = rp.run(tiny.model_copy(update={"method": "fedavg", "share": "full"}), out=tmp_path / "a", workers=1)
    assert common.model().read(("head",)).equal(common.model(0).read(("head",)))
    with pytest.raises(rp.InputError, match="name a client"):
        result.model()
    with pytest.raises(rp.InputError, match="There is no client 7"):
        result.model(7)


def test_a_run_is_loaded_as_it_was(result: rp.RunResult) -> None:
    assert rp.load(str(result.folder)).summary == result.summary
    with pytest.raises(rp.InputError):
        rp.load(result.folder / "nowhere")


def test_results_are_data_frames_and_tables_of_a_notebook(result: rp.RunResult) -> None:
    pandas = pytest.importorskip("pandas")
    assert isinstance(result.to_frame(), pandas.DataFrame)
    assert list(result.to_frame()["round"]) == [1, 2]
    assert "<svg" in result._repr_html_()


def test_without_pandas_the_error_says_what_to_install(result: rp.RunResult, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(rp.InputError, match="pip install pandas"):
        result.to_frame()


def test_names_in_a_notebook_are_escaped() -> None:
    from refprotofl.api.frames import as_html

    shown = as_html("<script>", ("a",), [("<img src=x>",)], ["&"])
    assert "<script>" not in shown
    assert "<img" not in shown


def test_a_comparison_has_rows_runs_and_tables(tiny: rp.Experiment, tmp_path: Path) -> None:
    methods: dict[str, Any] = {
        "alone": "local",
        "whole": type("Mine", (type(find_method("fedavg")),), {"__module__": "nowhere"}),
    }
    found = rp.compare(methods, tiny, seeds=[0, 1], out=tmp_path / "grid", workers=1)
    assert [row.name for row in found.rows] == ["alone", "whole"]
    assert found["whole"].against is not None
    assert [one.experiment.seed for one in found.runs("alone")] == [0, 1]
    assert found.runs("alone")[0].accuracy["personal"] == found["alone"].values["personal"][0]
    long = found.to_frame("seed")
    assert set(long[long.protocol == "personal"].seed) == {0, 1}
    assert len(found.to_frame()) == 2
    narrow = found.to_latex(["headline", "total"])
    assert r"\begin{tabular}{lrr}" in narrow
    assert "headline" in found._repr_html_()
    with pytest.raises(rp.InputError, match="`columns` size: there is no such column"):
        found.to_latex(["size"])
    with pytest.raises(KeyError, match="'other' is not one of the rows alone, whole"):
        found["other"]
    again = rp.compare(methods, tiny, seeds=[0, 1], out=tmp_path / "grid", workers=1, against=None)
    assert again["whole"].against is None


def test_arrays_are_a_data_set_in_any_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    draw = np.random.default_rng(1)
    x, y = draw.integers(0, 255, (300, 4, 4), dtype=np.uint8), np.repeat(["a", "b", "c"], 100)
    experiment = rp.Experiment.preset("quick", dataset=(x, y), **TINY)
    assert experiment.dataset == rp.Experiment(dataset={"x": x, "y": y.astype(object)}).dataset
    assert experiment.dataset != rp.Experiment(dataset=(x[::-1], y)).dataset
    done = rp.run(experiment, out=tmp_path / "a", workers=2)
    assert done.experiment.known_input.class_names == ("a", "b", "c")
    with pytest.raises(rp.InputError, match="holds Python objects"):
        rp.Experiment(dataset=(x, np.array([{}] * 300)))
    with pytest.raises(rp.InputError, match="dataset has 3 arrays"):
        rp.Experiment(dataset=(x, y, x))


def test_searches_give_experiments_that_score_the_test_set(tiny: rp.Experiment, tmp_path: Path) -> None:
    tuned = rp.tune(["fedprox"], {"train.lr": [0.01, 0.03]}, tiny, seeds=7, out=tmp_path / "tune", workers=1)
    assert tuned.settings["fedprox"]["train.lr"] in (0.01, 0.03)
    best = tuned.best("fedprox")
    assert (best.train.lr, best.validation, best.method) == (tuned.settings["fedprox"]["train.lr"], 0.0, "fedprox")
    assert [one["chosen"] for one in tuned.records].count(True) == 1
    front = rp.frontier(
        tiny, budget="1 MB", methods=["local", "fedproto"], schedules="2x1", seeds=7, out=tmp_path / "front", workers=1
    )
    assert front.best is not None
    assert (front.best.rounds, front.best.validation) == (2, 0.0)
    assert {one["method"] for one in front.records} == {"local", "fedproto"}
    with pytest.raises(rp.InputError, match="Give one limit: `budget`, `round_budget`, or `link` with `deadline`"):
        rp.frontier(tiny, budget="1 MB", link="lte", deadline=3, out=tmp_path / "none")


def test_a_partition_and_a_report(tiny: rp.Experiment, result: rp.RunResult, tmp_path: Path) -> None:
    parts = rp.partition(tiny)
    assert sum(map(sum, parts.counts)) == sum(int(one["total"]) for one in parts.records)  # type: ignore[call-overload]
    assert parts.draw(tmp_path / "p.svg").exists()
    assert len(parts.export(tmp_path / "nodes")) == 4
    page = rp.report(result, out=tmp_path / "page.html", figures=tmp_path / "figures", width="ieee")
    assert page.read_text().startswith("<!doctype html>")
    assert b"/MediaBox [ 0 0 252 " in next((tmp_path / "figures").glob("*.pdf")).read_bytes()  # 3.5 inches


def test_callbacks_and_the_log_observe_a_run(
    tiny: rp.Experiment, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Counting(Callback):
        rounds = 0

        def on_round(self, event: dict[str, Any], accuracy: dict[str, Any] | None) -> None:
            self.rounds += 1

    one, other = Counting(), Counting()
    with caplog.at_level(logging.INFO, logger="refprotofl"):
        rp.run(tiny, out=tmp_path / "a", callback=[one, other], workers=1)
    assert (one.rounds, other.rounds) == (2, 2)
    assert {record.name for record in caplog.records} == {"refprotofl"}
    assert any(record.message.startswith("round 2: personal") for record in caplog.records)


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("continue it with --resume, or use another --out.", "continue it with `resume=True`, or use another `out`."),
        ("add --trust-code (in Python: trust_code=True).", "add `trust_code=True`."),
        ("with --against none.", "with `against=None`."),
        ("--round-budget 5: allowed are sizes", "`round_budget` 5: allowed are sizes"),
        ("the commit --x is not --, and a--b is not one", "the commit `x` is not --, and a--b is not one"),
    ],
)
def test_options_are_said_as_arguments(typed: str, said: str) -> None:
    assert in_python(typed) == said


def test_errors_are_in_the_words_of_python(result: rp.RunResult, tiny: rp.Experiment) -> None:
    with pytest.raises(rp.InputError) as problem:
        rp.run(tiny, out=result.folder)
    assert "--" not in str(problem.value)
    assert "`resume=True`" in str(problem.value)


def test_help_fits_on_two_screens_and_nothing_is_left_out() -> None:
    shown = pydoc.plain(pydoc.render_doc(rp))
    assert len(shown.splitlines()) <= 100
    for name in ("run", "compare", "tune", "frontier", "reproduce", "partition", "report", "load"):
        assert f"    {name}(" in shown
        assert ">>> " in inspect.getdoc(getattr(rp, name))  # type: ignore[operator]


def test_report_stays_the_function_although_a_package_has_its_name() -> None:
    importlib.import_module("refprotofl.report.page.html")
    from refprotofl.report import gather

    assert callable(gather)
    assert rp.report.__module__ == "refprotofl.api.reporting"


def test_the_package_itself_is_light() -> None:
    code = "import sys, refprotofl as rp; rp.Experiment.preset('quick'); print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"


SAME = {
    "run": ("workers", "resume", "from_round"),
    "compare": ("seeds", "margin", "last", "out_dir", "workers"),
    "tune": ("strategy", "trials", "seeds", "protocol", "out_dir", "workers"),
    "frontier": ("ends", "seeds", "protocol", "out_dir", "workers", "budget", "methods", "schedules"),
    "reproduce": ("preset", "seeds", "variant", "last", "out_dir", "workers", "no_runs", "protocol", "against"),
}


@pytest.mark.parametrize("name", SAME)
def test_defaults_are_those_of_the_command(name: str) -> None:
    command = next(one for one in app.registered_commands if getattr(one.callback, "__name__", "") == name)
    assert command.callback is not None
    typed = inspect.signature(command.callback).parameters
    passed = inspect.signature(getattr(rp, name)).parameters
    for option in SAME[name]:
        ours = passed["out" if option == "out_dir" else option].default
        theirs = typed[option].default
        if option == "seeds":
            theirs = tuple(map(int, theirs.split(",")))
        assert str(ours) == str(theirs), option
