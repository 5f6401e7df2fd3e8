"""Things that others rely on and that must not change by accident: hashes, names of states and message fields, digests.

`python tools/write_pins.py` writes pins.json anew: a change in it belongs into CHANGELOG.md. Where a
digest changed, `RESULTS` in federation/provenance.py must be raised, so that no finished run is taken for a new one.
Digests are those of portable numerics, which x86-64 machines with AVX2 of one maker share, and of one release of torch.
They are pinned for Intel and for AMD. Under any other release or rounding two engines are compared instead, and the
test's name says so.
"""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.kinds import KINDS, arrays, tiny_experiment

from refprotofl import Experiment
from refprotofl.core import numerics
from refprotofl.experiment.presets import load_experiment
from refprotofl.federation import Callback, run
from refprotofl.federation.local_run import OpenEngine
from refprotofl.methods import METHODS
from refprotofl.records.checkpoint import read_manifest
from refprotofl.records.state_files import map_state
from refprotofl.wire import decode

FILE = Path(__file__).with_name("pins.json")
PINS: dict[str, Any] = json.loads(FILE.read_text()) if FILE.exists() else {}
WRITING = "REFPROTOFL_WRITE_PINS" in os.environ

QUICK = ("refprotofl", "fedavg", "fednova", "fedproto", "fedpac")

TINY: dict[str, Any] = {
    "dataset": "digits",
    "train-limit": 150,
    "clients": 4,
    "fraction": 0.75,
    "rounds": 3,
    "min-size": 10,
    "public": {"per-class": 2, "coverage": 0.5},
    "train": {"batch-size": 16},
    "model": {"name": "mlp", "embedding": 8},
    "evaluate": {"every": 3, "test-limit": 20},
}

FROZEN = """
from torch import nn

def backbone(shape):
    layers = nn.Sequential(nn.Flatten(), nn.Linear(shape[0] * shape[1] * shape[2], 24), nn.ReLU())
    return layers.requires_grad_(False)
"""

FINETUNED = {"finetune": {"epochs": 3}}

# Every method, with a shared adapter where `share` decides, and with switches that change what is sent or remembered.
VARIANTS: dict[str, dict[str, Any]] = {name: {"method": name, "share": "adapter"} for name in METHODS} | {
    "refprotofl, all classes covered": {"public": {"coverage": 1.0}},
    "refprotofl, no public set": {"public": {"coverage": 0.0}},
    "refprotofl, budget": {"refprotofl": {"uplink-budget": "2 kB"}},
    "refprotofl, post-train": {"refprotofl": {"timing": "post-train", "warmup-rounds": 1}},
    "refprotofl, sparse downlink": {"refprotofl": {"downlink": "sparse"}},
    "refprotofl, int8": {"refprotofl": {"value-type": "int8", "select": "probabilistic"}},
    "refprotofl, bfloat16": {"refprotofl": {"value-type": "bfloat16", "selection-scope": "per-tensor"}},
    "refprotofl, ef": {"refprotofl": {"error-feedback": "ef", "select": "random", "normalise": "participants"}},
    "refprotofl, ef21": {"refprotofl": {"error-feedback": "ef21", "normalise": "participants"}},
    "refprotofl, neither": {"refprotofl": {"erpa": False, "apud": False}},
    "refprotofl, stc": {"refprotofl": {"apud": False}, "compress": {"name": "stc"}},
    "refprotofl, train-on": {"public": {"train-on": True}},
    "fedavg, full": {"method": "fedavg", "share": "full"},
    "fedavg, full, fine-tuned": {"method": "fedavg", "share": "full", "finetune": {"head-epochs": 1, "epochs": 2}},
    "fast, full, fine-tuned": {"method": "fast", "share": "full", "finetune": {"epochs": 1, "validation": 0}},
    "fedavg, stc, fine-tuned": {"method": "fedavg", "share": "full", "compress": {"name": "stc"}, **FINETUNED},
    "fedavg, batch norm": {"method": "fedavg", "share": "full", "model": {"norm": "batch-local"}},
    "fedavg, train-on": {"method": "fedavg", "share": "adapter", "public": {"train-on": True}},
    "fedavg, top-k": {"method": "fedavg", "share": "adapter", "compress": {"name": "top-k"}},
    "fedavg, top-k-ef": {"method": "fedavg", "share": "adapter", "compress": {"name": "top-k-ef", "decay": 0.5}},
    "fedavg, ef21": {"method": "fedavg", "share": "adapter", "compress": {"name": "ef21"}},
    "fedavg, random-k": {"method": "fedavg", "share": "adapter", "compress": {"name": "random-k"}},
    "fedavg, stc": {"method": "fedavg", "share": "adapter", "compress": {"name": "stc"}},
    "fedavg, qsgd 8": {"method": "fedavg", "share": "adapter", "compress": {"name": "qsgd"}},
    "fedavg, qsgd 4": {"method": "fedavg", "share": "adapter", "compress": {"name": "qsgd", "bits": 4}},
    "fednova, momentum": {"method": "fednova", "share": "adapter", "fednova": {"server-momentum": 0.5}},
    "fednova, ef21": {"method": "fednova", "share": "adapter", "compress": {"name": "ef21"}},
    "fednova, stc": {"method": "fednova", "share": "adapter", "compress": {"name": "stc"}},
    "fedproto, counts, running": {"method": "fedproto", "fedproto": {"weighting": "count", "collect": "running"}},
    "fedgh, official, counts": {"method": "fedgh", "fedgh": {"server": "official", "weighting": "count"}},
    "feddf, logits": {"method": "feddf", "feddf": {"upload": "logits"}},
    "fedproc, stc": {"method": "fedproc", "share": "adapter", "compress": {"name": "stc"}},
    "fedpac, ef21": {"method": "fedpac", "compress": {"name": "ef21"}},
    "fast, per client": {"method": "fast", "share": "adapter", "fast": {"knn": "per-client"}},
    "local, train-on": {"method": "local", "public": {"train-on": True}},
    "thin": {"method": "thin", "share": "adapter", **FINETUNED},
    "thin, rotated code": {"method": "thin", **FINETUNED, "thin": {"code": "rotated"}},
    "thin, distilling, anchors": {"method": "thin", **FINETUNED, "thin": {"distil": 1.0, "drift": "anchors"}},
    "thin, sparse code": {
        "method": "thin",
        **FINETUNED,
        "thin": {"code": "sparse", "cooling": 0.8, "drift": "proximal"},
    },
    "fedavg, adamw, cosine": {
        "method": "fedavg",
        "train": {"optimizer": "adamw", "lr": 0.003, "schedule": "cosine", "warmup": 1, "grad-clip": 0.5},
    },
    "fedavg, augmented": {"method": "fedavg", "train": {"augment": ["crop", "flip"], "local-steps": 5}},
    "centralised, batch norm": {"method": "centralised", "model": {"norm": "batch-local"}},
}


RELEASE = f"torch {torch.__version__.partition('+')[0]}"  # without the build: +cpu and +cu130 have the same kernels
PORTABLE = numerics.describe()["numerics"] == "portable"
KEY = f"{RELEASE}, rounding {numerics.rounding()}"
HERE: dict[str, str] = PINS.get("digests", {}).get(KEY, {}) if PORTABLE else {}
COMPARED = "pinned" if HERE or WRITING else f"two engines compared, nothing is pinned for {KEY}"


class Fields(Callback):
    """Every name of a field that crossed, by verb and direction."""

    def __init__(self) -> None:
        self.seen: dict[str, dict[str, set[str]]] = {}

    def on_message(self, direction: str, phase: str, client: int, round: int, data: bytes, purpose: str) -> None:
        self.seen.setdefault(phase, {}).setdefault(direction, set()).update(decode(data))

    def plain(self) -> dict[str, dict[str, list[str]]]:
        return {verb: {way: sorted(names) for way, names in ways.items()} for verb, ways in self.seen.items()}


def merged(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    return base | {
        key: merged(base.get(key, {}), value) if isinstance(value, dict) else value for key, value in over.items()
    }


def check(section: str, name: str, found: Any) -> None:
    """Compares with what is pinned, or pins it."""
    if WRITING:
        pins = json.loads(FILE.read_text()) if FILE.exists() else {}
        pins.setdefault(section, {})[name] = found
        FILE.write_text(json.dumps(pins, indent=1, sort_keys=True) + "\n")
    else:
        assert found == PINS[section][name]


def check_digest(name: str, one_process: str, two_workers: Callable[[], str]) -> None:
    if WRITING:
        assert PORTABLE, "digests are pinned for portable numerics only"
        known = json.loads(FILE.read_text()).get("digests", {}).get(KEY, {})
        check("digests", KEY, known | {name: one_process})
    else:
        assert one_process == (HERE[name] if HERE else two_workers())


@pytest.mark.parametrize("method", METHODS)
def test_the_default_experiment_with_a_shared_adapter_has_its_hash(method: str) -> None:
    check("hashes", method, Experiment(method=method, share="adapter").hash)


@pytest.mark.parametrize("preset", ["quick", "small", "full", "paper"])
def test_a_preset_has_its_hash(preset: str) -> None:
    check("presets", preset, load_experiment(preset=preset).hash)


@pytest.mark.parametrize("compared", [COMPARED])
@pytest.mark.parametrize("name", VARIANTS)
def test_states_and_messages_have_their_names_and_states_their_digest(
    name: str, compared: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, patient: OpenEngine
) -> None:
    (tmp_path / "frozen_for_pins.py").write_text(FROZEN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(os, "fsync", lambda _: None)
    model = {"model": {"name": "frozen_for_pins:backbone"}} if name == "fedpcl" else {}
    experiment = Experiment.parse(merged(merged(TINY, VARIANTS[name]), model))
    fields = Fields()
    summary = run(experiment, out=tmp_path / "run", callback=fields).summary
    checkpoint = tmp_path / "run" / "checkpoint"
    manifest = read_manifest(checkpoint)
    clients = [map_state(checkpoint / "clients" / one["file"])[0] for one in manifest["clients"].values()]
    check("server states", name, sorted(map_state(checkpoint / manifest["server"]["file"])[0]))
    check("client states", name, sorted({entry for state in clients for entry in state}))
    check("messages", name, fields.plain())
    check("hash of the resolved experiment", name, experiment_hash(tmp_path / "run"))
    check_digest(
        name,
        summary["state_digest"],
        lambda: run(experiment, out=tmp_path / "again", workers=2, engine=patient).summary["state_digest"],
    )


def experiment_hash(folder: Path) -> str:
    stored: str = json.loads((folder / "experiment.json").read_text())["hash"]
    return stored


@pytest.mark.parametrize("compared", [COMPARED])
@pytest.mark.parametrize("kind", KINDS[1:])
def test_a_run_of_each_input_kind_ends_in_its_digest(
    kind: str, compared: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, patient: OpenEngine
) -> None:
    np.savez(tmp_path / f"{kind}.npz", **arrays(kind))  # type: ignore[arg-type]
    monkeypatch.chdir(tmp_path)
    experiment = tiny_experiment(kind, tmp_path, dataset=f"{kind}.npz")
    summary = run(experiment, out=tmp_path / "run").summary
    check("hash of the resolved experiment", kind, experiment_hash(tmp_path / "run"))
    check_digest(
        kind,
        summary["state_digest"],
        lambda: run(experiment, out=tmp_path / "again", workers=2, engine=patient).summary["state_digest"],
    )


@pytest.mark.parametrize("compared", [COMPARED])
@pytest.mark.parametrize(
    "method", ["refprotofl", *(pytest.param(one, marks=pytest.mark.slow) for one in QUICK if one != "refprotofl")]
)
def test_a_quick_run_ends_in_its_digest(method: str, compared: str, tmp_path: Path, patient: OpenEngine) -> None:
    experiment = load_experiment(preset="quick", settings=[f"method={method}", "share=adapter"])
    finished = run(experiment, out=tmp_path / "one")
    check_digest(
        f"quick, {method}",
        finished.summary["state_digest"],
        lambda: run(experiment, out=tmp_path / "two", workers=2, engine=patient).summary["state_digest"],
    )
