"""Classes and functions passed from Python: recorded by name where one can be imported, else kept in this process."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.tiny import tiny_experiment, tiny_keys
from torch import nn

from refprotofl import Experiment, InputError, run
from refprotofl.methods import METHODS, FedAvgClient, FedAvgServer, Method

MODULE = """
from refprotofl.methods import FedAvgClient, FedAvgServer, Method
from torch import nn

class Mine(Method):
    server, client = FedAvgServer, FedAvgClient

def backbone(shape):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 12), nn.ReLU())
"""


def small(shape: tuple[int, ...]) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 12), nn.ReLU())


def method_with(factor: float) -> type[Method]:
    class Client(FedAvgClient):
        def keep_trained(self, round: int) -> Any:
            return factor * super().keep_trained(round)

    class Scaled(Method):
        server, client = FedAvgServer, Client

    return Scaled


def test_what_can_be_imported_is_recorded_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine_to_pass.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    import mine_to_pass  # type: ignore[import-not-found]

    keys: dict[str, Any] = {"model": {"name": mine_to_pass.backbone, "embedding": 8}}
    experiment = tiny_experiment(method=mine_to_pass.Mine, **keys)
    assert experiment.method == "mine_to_pass:Mine"
    assert experiment.model.name == "mine_to_pass:backbone"
    named = {"model": {"name": "mine_to_pass:backbone", "embedding": 8}}
    assert experiment.hash == tiny_experiment(method="mine_to_pass:Mine", **named).hash
    passed = run(experiment, out=tmp_path / "run", workers=2)
    stored = json.loads((tmp_path / "run" / "experiment.json").read_text())
    assert "mine_to_pass:Mine" in json.dumps(stored)
    assert run(Experiment.parse(experiment.asked()), out=tmp_path / "run", resume=True).summary == passed.summary


def test_a_built_in_method_is_recorded_as_itself() -> None:
    assert Experiment(method=type(METHODS["fedprox"])).method == "fedprox"
    assert Experiment(method=type(METHODS["fedprox"])).hash == Experiment(method="fedprox").hash


def test_a_closure_runs_in_this_process_and_resumes_where_it_is_passed_again(tmp_path: Path) -> None:
    keys = {"share": "adapter", "rounds": 1}
    done = run(tiny_experiment(method=method_with(0.5), **keys), out=tmp_path / "run", workers="auto")
    again = run(tiny_experiment(method=method_with(0.5), **keys), out=tmp_path / "run", resume=True)
    assert again.reused
    assert again.summary == done.summary
    other = tiny_experiment(method=method_with(0.25), **keys)
    assert other.method != tiny_experiment(method=method_with(0.5), **keys).method
    with pytest.raises(InputError, match="differs in method"):
        run(other, out=tmp_path / "run", resume=True)


def test_workers_cannot_have_it(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"method was passed from Python .* use workers = 1"):
        run(tiny_experiment(method=method_with(0.5)), out=tmp_path / "run", workers=2)


def test_another_process_says_what_is_missing(tmp_path: Path) -> None:
    name = tiny_experiment(method=method_with(0.5)).method
    keys = json.dumps(tiny_keys(method=name))
    code = f"import json; from refprotofl import Experiment, run; run(Experiment.parse(json.loads({keys!r})))"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert "this process did not get it: pass it again" in " ".join(done.stderr.split())


def test_a_class_of_the_script_itself_can_be_passed(tmp_path: Path) -> None:
    script = f"""
import json
from refprotofl import Experiment, run
from refprotofl.methods import FedAvgClient, FedAvgServer, Method

class Mine(Method):
    server, client = FedAvgServer, FedAvgClient

keys = json.loads({json.dumps(tiny_keys(rounds=1))!r})
named = {{key.replace("-", "_"): value for key, value in keys.items()}}
print(run(Experiment(method=Mine, **named), out="run").summary["rounds_done"])
"""
    (tmp_path / "script.py").write_text(script)
    command = [sys.executable, "script.py"]
    for _ in range(2):
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
        assert done.stdout == "1\n", done.stderr
        (tmp_path / "script.py").write_text(script.replace('out="run"', 'out="run", resume=True'))
    resumed = [sys.executable, "-m", "refprotofl", "run", "--out", "run", "--resume"]
    refused = subprocess.run(resumed, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert "pass it again" in " ".join(refused.stderr.split())
    assert "--trust-code" not in refused.stderr  # which would not help


def test_objects_with_the_same_code_and_other_contents_are_refused() -> None:
    def made(held: object) -> Any:
        def backbone(shape: tuple[int, ...]) -> object:
            return held

        return backbone

    first, second = object(), object()
    assert tiny_experiment(model={"name": made(first)}).model == tiny_experiment(model={"name": made(first)}).model
    with pytest.raises(InputError, match="have the same code"):
        tiny_experiment(model={"name": made(second)})
