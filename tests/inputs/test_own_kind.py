"""A kind of one's own is one module for arrays and one for models, as docs/architecture.md says."""

import subprocess
import sys
from pathlib import Path

KIND = """
from refprotofl.core.inputs import Converted, InputKind, check_numbers


class Angle(InputKind):
    dtype = "float32"
    noun, plural = "angle", "angles"
    axes = ("angles",)
    backbone = "mlp"
    values = "in radians"

    def describe(self, shape):
        return f"{shape[0]} angles"

    def convert(self, train, test, origin, code, vocabulary):
        return Converted(check_numbers(train, 1, "train", origin, ""), check_numbers(test, 1, "test", origin, ""))
"""
MODEL = """
import torch

from refprotofl.models.input_model import InputModel
from refprotofl.models.networks import mlp


class AngleModel(InputModel):
    def constants(self):
        return ()

    def prepare(self, inputs, *constants):
        return torch.cat([inputs.sin(), inputs.cos()], dim=1)

    def backbones(self, table):
        return {"mlp": lambda: mlp((2 * self.input.shape[0],), table.norm)}
"""
PROGRAM = """
import sys
import refprotofl.inputs as inputs
inputs.__path__.append(sys.argv[1] + "/arrays")
inputs.NAMES = inputs.names_in(inputs.__path__, first="image")
import numpy as np
import refprotofl.models.inputs
refprotofl.models.inputs.__path__.append(sys.argv[1] + "/models")
from refprotofl import run
from refprotofl.export import export, load_trained, predict
from pathlib import Path
from tests.kinds import tiny_experiment

place = Path(sys.argv[1])
turns = np.arange(120) % 3 * 2.0 + np.random.default_rng(0).normal(0, 0.3, 120)
arrays = {"x_train": turns[:90, None], "y_train": np.arange(90) % 3}
arrays |= {"x_test": turns[90:, None], "y_test": np.arange(30) % 3}
np.savez(place / "angle.npz", kind="angle", **arrays)
keys = {"dataset": str(place / "angle.npz"), "data": {}, "public": {"per-class": 0}}
experiment = tiny_experiment("vector", place, rounds=6, train={"lr": 0.1, "batch-size": 8}, **keys)
finished = run(experiment, out=place / "run")
trained = load_trained(finished.folder, 0)
export(trained, place / "model")
print(finished.summary["experiment"]["input"]["kind"], finished.summary["accuracy"]["personal"] > 0.8)
print((place / "model" / "README.md").read_text().splitlines()[0])
"""


def test_a_kind_of_ones_own_is_two_modules(tmp_path: Path) -> None:
    for folder, text in (("arrays", KIND), ("models", MODEL)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "angle.py").write_text(text)
    command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2], check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["angle True", "# Angle classifier of client 0"]
