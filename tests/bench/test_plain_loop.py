"""The bare loop computes what a run computes."""

from pathlib import Path

import pytest
import torch

from refprotofl import Experiment
from refprotofl.bench import overhead
from refprotofl.bench.measuring import Measure
from refprotofl.bench.overhead import IMAGES, make_images, train_plainly, work_of
from refprotofl.core.errors import InputError
from refprotofl.core.streams import stream
from refprotofl.federation import run
from refprotofl.federation.participation import draw_cohort
from refprotofl.federation.simulation import load_federation
from refprotofl.methods.base import training
from refprotofl.methods.base.optimisers import FreshSgd
from refprotofl.methods.base.samples import Samples
from refprotofl.models import ALL, SplitModel, build_model


def tiny(**changes: object) -> Experiment:
    values: dict[str, object] = {
        "dataset": IMAGES,
        "train-limit": 230,
        "clients": 3,
        "rounds": 2,
        "min-size": 20,
        "fraction": 0.67,
        "public": {"per-class": 3},
        "model": {"name": "mlp", "embedding": 8},
        "train": {"batch-size": 16, "local-epochs": 2},
        "evaluate": {"every": 2, "test-limit": 50},
    }
    return Experiment.parse(values | changes)


@pytest.mark.parametrize("model", ["mlp", "cnn"])
def test_the_bare_loop_gives_the_same_weights_as_the_products_training(model: str) -> None:
    federation = load_federation(tiny(model={"name": model, "embedding": 8}), None)
    work, resolved = work_of(federation), federation.experiment
    client = draw_cohort(resolved, 1)[0]
    ours, bare = build_model(resolved), build_model(resolved)
    start = ours.read(ALL)
    samples = Samples(work.images, work.labels, torch.from_numpy(federation.data.client_indices[client]))
    order = stream(resolved.seed, "batches", client=client, round=1)
    trained = training.train(ours, samples, resolved.train, order)
    train_plainly(bare, work.images, work.labels, work.batches[0], resolved.train)
    assert trained.steps == len(work.batches[0])
    assert not torch.equal(ours.read(ALL), start)
    assert torch.equal(ours.read(ALL), bare.read(ALL))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"public": {"per-class": 3, "coverage": 0.5}, "evaluate": {"every": 1, "clients": 2, "test-limit": 50}},
        {"public": {"per-class": 3, "train-on": True}, "refprotofl": {"timing": "post-train"}},
        {"refprotofl": {"warmup-rounds": 1}},
        {"refprotofl": {"erpa": False}},
    ],
    ids=["default", "half covered", "trained on, post-train", "warm-up", "no prototypes"],
)
def test_steps_and_forward_passes_are_those_of_the_run(
    changes: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = tiny(**changes)
    seen = {"steps": 0, "trained": 0, "forward": 0}
    step, prepare = FreshSgd.step, SplitModel.prepare

    def counted_step(self: FreshSgd, *arguments: object) -> None:
        seen["steps"] += 1
        step(self, *arguments)  # type: ignore[arg-type]

    def counted_prepare(self: SplitModel, images: torch.Tensor) -> torch.Tensor:
        seen["trained" if self.training else "forward"] += len(images)
        return prepare(self, images)

    monkeypatch.setattr(FreshSgd, "step", counted_step)
    monkeypatch.setattr(SplitModel, "prepare", counted_prepare)
    run(experiment, out=tmp_path / "run")
    work = work_of(load_federation(experiment, None))
    assert seen == {"steps": work.steps, "trained": work.samples, "forward": work.forward_images}


def test_the_overhead_is_what_is_neither_training_nor_forward_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    def measured(measures: dict[str, Measure], repeats: int, show_progress: object) -> dict[str, list[float]]:
        for measure in measures.values():
            measure(), measure()
        return {"run": [10.0, 12.0, 30.0], "training": [4.0, 5.0, 10.0], "forward": [5.0, 6.0, 15.0]}

    monkeypatch.setattr(overhead, "alternate", measured)
    row = overhead.measure_overhead(tiny(), None, 3)
    assert (row["overhead"], row["spread"]) == (1.25, "1.20 to 1.50")
    assert (row["run_s"], row["forward_s"], row["training_s"], row["target"]) == (12.0, 6.0, 5.0, None)


def test_another_methods_overhead_is_refused() -> None:
    with pytest.raises(InputError, match="only measured for refprotofl"):
        overhead.measure_overhead(tiny(method="fedavg"), None, 1)


def test_the_images_are_the_same_again_and_every_class_is_there() -> None:
    first, second = make_images(40, 20), make_images(40, 20)
    assert (first.train_inputs == second.train_inputs).all()
    assert first.shape == (1, 28, 28)
    assert set(first.train_labels.tolist()) == set(first.test_labels.tolist()) == set(range(10))
