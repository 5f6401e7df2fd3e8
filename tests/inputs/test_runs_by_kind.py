"""A run of each kind: engines agree to the bit, a run resumes, and every method runs or refuses with a sentence."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.kinds import KINDS, MODELS, tiny_experiment

from refprotofl import Experiment
from refprotofl.core import InputError
from refprotofl.federation import Callback, run
from refprotofl.federation.local_run import OpenEngine
from refprotofl.methods import METHODS
from refprotofl.models.inputs.tokens import Transformer

OTHERS = KINDS[1:]


class Interrupted(Exception):
    pass


class InterruptedAfterOne(Callback):
    def on_round(self, event: dict[str, Any], scores: dict[str, Any] | None) -> None:
        raise Interrupted


@pytest.mark.parametrize("kind", OTHERS)
def test_engines_agree_and_an_interrupted_run_resumes(kind: str, tmp_path: Path, patient: OpenEngine) -> None:
    experiment = tiny_experiment(kind, tmp_path)
    one = run(experiment, out=tmp_path / "one").summary
    two = run(experiment, out=tmp_path / "two", workers=2, engine=patient).summary
    with pytest.raises(Interrupted):
        run(experiment, out=tmp_path / "three", callback=InterruptedAfterOne())
    three = run(experiment, out=tmp_path / "three", resume=True).summary
    assert one["state_digest"] == two["state_digest"] == three["state_digest"]
    assert one["communication"] == two["communication"] == three["communication"]


@pytest.mark.parametrize("kind", OTHERS)
def test_a_model_of_each_kind_learns(kind: str, tmp_path: Path) -> None:
    experiment = tiny_experiment(kind, tmp_path, method="centralised", rounds=8, train={"batch-size": 8, "lr": 0.05})
    accuracy = run(experiment, out=tmp_path / "run").summary["accuracy"]["personal"]
    assert accuracy is not None
    assert accuracy > 0.9  # chance is a third


REFUSED = {
    ("vhl", "vector"): "its virtual set is made of pictures, not of vectors",
    ("vhl", "tokens"): "its virtual set is made of pictures, not of texts",
    ("fast", "tokens"): 'fast.embedder = "pca" has no distances between texts',
}
FROZEN = """
from torch import nn

def backbone(*sizes):
    return (Counted(sizes[1]) if len(sizes) == 2 else nn.Flatten()).requires_grad_(False)

class Counted(nn.Module):
    def __init__(self, tokens):
        super().__init__()
        self.table = nn.Embedding(tokens, 8)

    def forward(self, inputs):
        return self.table(inputs).mean(dim=1)
"""


@pytest.mark.parametrize("kind", ["vector", "tokens"])
@pytest.mark.parametrize("method", METHODS)
def test_every_method_runs_or_refuses(method: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = tiny_experiment(kind, tmp_path, method=method, rounds=1)
    if method == "fedpcl":
        (tmp_path / "frozen_for_kinds.py").write_text(FROZEN)
        monkeypatch.syspath_prepend(tmp_path)
        model = {"name": "frozen_for_kinds:backbone", "norm": "none", "embedding": 8}
        experiment = tiny_experiment(kind, tmp_path, method=method, rounds=1, model=model)
    if (method, kind) in REFUSED:
        with pytest.raises(InputError, match=REFUSED[method, kind]):
            run(experiment, out=tmp_path / "run")
    else:
        assert run(experiment, out=tmp_path / "run").summary["rounds_done"] == 1


@pytest.mark.parametrize("kind", OTHERS)
def test_the_resolved_experiment_records_kind_shape_type_and_rule(kind: str, tmp_path: Path) -> None:
    run(tiny_experiment(kind, tmp_path, rounds=1), out=tmp_path / "run")
    stored = json.loads((tmp_path / "run" / "experiment.json").read_text())["input"]
    assert (stored["kind"], len(stored["mean"])) == (kind, {"vector": 5, "series": 2, "tokens": 0}[kind])
    assert stored["dtype"] == ("int64" if kind == "tokens" else "float32")
    assert stored["normalisation"] == ("public set" if kind == "tokens" else "clients' sums")
    assert bool(stored.get("vocabulary")) == (kind == "tokens")
    assert Experiment.parse({"input": stored}).known_input.shape == tuple(stored["shape"])


@pytest.mark.parametrize("unit", ["sample", "client"])
@pytest.mark.parametrize("kind", OTHERS)
def test_privacy_works_on_every_kind_without_exact_sums(kind: str, unit: str, tmp_path: Path) -> None:
    private = tiny_experiment(kind, tmp_path, method="fedavg", rounds=1, privacy={"unit": unit})
    summary = run(private, out=tmp_path / "run").summary
    assert summary["experiment"]["input"]["normalisation"] == "public set"
    exact = tiny_experiment(
        kind, tmp_path, method="fedavg", privacy={"unit": unit}, data={"kind": kind, "statistics": "clients"}
    )
    with pytest.raises(InputError, match="which \\[privacy\\] does not protect"):
        run(exact, out=tmp_path / "exact")


def test_a_backbone_of_another_kind_and_a_backdoor_are_refused(tmp_path: Path) -> None:
    model = {"name": "resnet18", "norm": "none"}
    with pytest.raises(InputError, match=r"model.name = 'resnet18' does not take vectors. For vectors: mlp."):
        run(tiny_experiment("vector", tmp_path, model=model), out=tmp_path / "a")
    attack = {"kind": "backdoor", "fraction": 0.34}
    with pytest.raises(InputError, match="its trigger is a bright square on images, not on series"):
        run(tiny_experiment("series", tmp_path, attack=attack), out=tmp_path / "b")
    with pytest.raises(InputError, match="texts need a vocabulary"):
        run(tiny_experiment("tokens", tmp_path, public={"per-class": 0}), out=tmp_path / "c")


@pytest.mark.parametrize("norm", ["group", "batch-local"])
@pytest.mark.parametrize("kind", ["vector", "series"])
def test_norms_and_both_kernels_work_on_numbers(kind: str, norm: str, tmp_path: Path) -> None:
    for kernel in ("plain", "fast"):
        model = {"name": MODELS[kind], "norm": norm, "embedding": 8, "kernel": kernel}
        done = run(tiny_experiment(kind, tmp_path, rounds=1, model=model), out=tmp_path / kernel)
        assert done.summary["accuracy"]["personal"] is not None


@pytest.mark.parametrize("pool", ["mean", "last"])
def test_padding_does_not_change_a_text_and_no_text_gives_finite_numbers(pool: str) -> None:
    torch.manual_seed(0)
    short, long = Transformer(4, 9, pool), Transformer(8, 9, pool)
    long.load_state_dict({**long.state_dict(), **short.state_dict(), "positions": long.positions.detach()})
    with torch.no_grad():
        short.positions.copy_(long.positions[:4])
        text = torch.tensor([[2, 5, 8, 0]])
        torch.testing.assert_close(short(text), long(torch.nn.functional.pad(text, (0, 4))))
        assert short(torch.zeros(1, 4, dtype=torch.int64)).isfinite().all()


def test_the_last_token_is_the_output_where_it_is_asked_for() -> None:
    """Without layers a token's output depends on the token and its position alone."""
    torch.manual_seed(0)
    model = Transformer(4, 9, "last")
    model.layers = torch.nn.ModuleList()
    with torch.no_grad():
        output = model(torch.tensor([[2, 5, 8, 0], [7, 3, 8, 0], [2, 5, 0, 0]]))
        assert torch.equal(output[0], model.norm(model.tokens.weight[8] + model.positions[2]))
    assert torch.equal(output[0], output[1])
    assert not torch.equal(output[0], output[2])


def test_the_last_token_is_for_transformers() -> None:
    with pytest.raises(InputError, match=r'has model\.pool = "last", which is for model\.name = "transformer"'):
        Experiment.parse({"model": {"name": "cnn", "pool": "last"}})


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"mean": [0.0]}, "needs a mean, and a std above 0, for each of 2 features"),
        ({"std": [1.0, 0.0]}, "needs a mean, and a std above 0"),
        ({"shape": [1 << 20]}, "has 1,048,576 features, more than 65,536"),
        ({"shape": [2, 2]}, "of vectors it is features, each 1 or more"),
        ({"dtype": "int64"}, "has dtype 'int64'; of vectors it is 'float32'"),
        ({"vocabulary": ["a"]}, "vectors are not made of tokens"),
        ({"kind": "tokens", "shape": [9], "mean": [], "std": []}, "needs a vocabulary of different tokens"),
        ({"kind": "video"}, "is not one of image, series, tokens, vector"),
    ],
)
def test_an_input_that_cannot_be_is_refused(change: dict[str, Any], complaint: str) -> None:
    sound = {"class-names": ["a", "b"], "kind": "vector", "shape": [2], "mean": [0.0, 1.0], "std": [1.0, 1.0]}
    assert Experiment.parse({"input": sound}).known_input.dtype == "float32"
    with pytest.raises(InputError, match=complaint):
        Experiment.parse({"input": sound | change})
