"""A compressor or an aggregator is one file: a module of the package's folder, or a user's own as `module:Class`."""

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from refprotofl.core.discovery import names_in
from refprotofl.core.errors import InputError
from refprotofl.core.user_code import references
from refprotofl.experiment import Experiment
from refprotofl.federation.resolution import prepare
from refprotofl.methods import aggregators, compressors

COMPRESSOR = '''
"""One sign per value, times their mean magnitude (Bernstein et al. 2018), with error feedback."""

import torch

from refprotofl.methods import Compressor, Dense
from refprotofl.methods.feedback import ErrorFeedback


class Signs(Compressor):
    reveals = ""
    notes = ("our own reading",)
    feedback = ErrorFeedback()

    def fields(self, size):
        return {"signs": Dense((size,), (torch.bool,), kind="parameters"), "scale": Dense((), low=0)}

    def encode(self, vector, draw):
        return {"signs": vector > 0, "scale": vector.abs().mean()}

    def decode(self, message, size, draw):
        return torch.where(message.tensor("signs"), message.tensor("scale"), -message.tensor("scale"))
'''

AGGREGATOR = '''
"""The change with the largest weight alone."""

import torch

from refprotofl.methods import Aggregator


class Heaviest(Aggregator):
    holds = True

    def aggregate(self, size, uploads):
        heaviest = max(uploads, key=lambda upload: upload.weight)
        update = torch.full((size,), -0.0, dtype=torch.float64)
        update[... if heaviest.indices is None else heaviest.indices] = heaviest.change
        return update
'''


def install(package: ModuleType, module: str, source: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a module into a folder that the package looks into, and do nothing else."""
    (folder / f"{module}.py").write_text(source)
    monkeypatch.setattr(package, "__path__", [*package.__path__, str(folder)])
    monkeypatch.setattr(package, "NAMES", names_in(package.__path__, first=package.NAMES[0]))


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("method", ["fedavg", "fednova", "refprotofl"])
def test_a_compressor_in_the_folder_runs_a_federation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, simulate: Any, method: str
) -> None:
    install(compressors, "one_bit", COMPRESSOR, tmp_path, monkeypatch)
    done = simulate({"method": method, "rounds": 2, "compress": {"name": "one-bit"}, "refprotofl": {"apud": False}})
    assert not done.events("client-failed")
    for one in done.tap.select("up", "train"):
        assert one.message["signs"].dtype == torch.bool
    assert all(done.client_state(client)["memory"].abs().max() > 0 for client in range(4))


def test_a_users_own_compressor_runs_a_federation(own: Path, simulate: Any) -> None:
    (own / "signs.py").write_text(COMPRESSOR)
    done = simulate({"method": "fedavg", "rounds": 2, "compress": {"name": "signs:Signs"}})
    assert not done.events("client-failed")
    assert {"signs", "scale"} <= {name for one in done.tap.select("up", "train") for name in one.message}
    assert references(done.experiment.plain()) == [("compress.name", "signs:Signs")]


def test_an_aggregator_in_the_folder_runs_a_federation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, simulate: Any
) -> None:
    install(aggregators, "heaviest", AGGREGATOR, tmp_path, monkeypatch)
    done = simulate({"method": "fedavg", "rounds": 1, "aggregate": "heaviest"})
    samples = {one.client: int(one.message["samples"]) for one in done.tap.select("up", "join")}
    heaviest = max(samples, key=lambda client: samples[client])
    (sent,) = [one.message["shared"] for one in done.tap.select("up", "train") if one.client == heaviest]
    assert torch.equal(done.server_state()["shared"], sent)


@pytest.mark.parametrize("keys", [{}, {"min-senders": 2}, {"trim": 0.3}])
def test_a_users_own_aggregator_runs_a_federation(own: Path, simulate: Any, keys: dict[str, Any]) -> None:
    (own / "heavy.py").write_text(AGGREGATOR)
    done = simulate({"rounds": 2, "aggregate": "heavy:Heaviest", **keys})
    assert not done.events("client-failed")
    assert references(done.experiment.plain()) == [("aggregate", "heavy:Heaviest")]


@pytest.mark.parametrize("key", ["compress.name", "aggregate"])
def test_what_is_not_of_the_kind_is_refused(own: Path, key: str) -> None:
    (own / "wrong.py").write_text("class Thing:\n    pass\n")
    value: Any = "wrong:Thing" if key == "aggregate" else {"name": "wrong:Thing"}
    with pytest.raises(InputError, match=rf"{key} = 'wrong:Thing' is not a subclass of refprotofl\.methods\.base"):
        prepare(Experiment.parse({"method": "fedavg", key.partition(".")[0]: value}))
