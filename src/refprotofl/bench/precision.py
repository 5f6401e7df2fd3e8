"""`train.precision = "bf16"` compared with float32: a training step and a forward pass, in CPU time.

Native kernels are compared; with those of portable numerics bfloat16 is refused.
"""

from collections.abc import Sequence
from typing import Any

from torch import nn
from torch.nn import functional

from refprotofl.bench.kernels import samples_of_noise, seen_as
from refprotofl.bench.measuring import Measure, Report, Row, ShowProgress, alternate, ratio, silent, timed
from refprotofl.core import one_compute_thread
from refprotofl.experiment import Experiment
from refprotofl.methods import embed
from refprotofl.methods.base.optimisers import FreshSgd
from refprotofl.models import FORWARD_BATCH, build_model

SHAPE = (1, 28, 28)
PLAIN_CNN = f"{__name__}:plain_cnn"

# The tables [model] that are measured, by the name of their row.
MODELS: dict[str, dict[str, Any]] = {
    "plain CNN": {"name": PLAIN_CNN},
    "cnn, no norm": {"name": "cnn", "norm": "none"},
    "cnn": {"name": "cnn"},
    "resnet18": {"name": "resnet18"},
}


def plain_cnn(shape: tuple[int, int, int]) -> nn.Module:
    """Build two 5x5 convolutions with max-pooling and a layer of 512, a common model of 28 x 28 images."""
    channels, height, width = shape
    rows, columns = (((side - 4) // 2 - 4) // 2 for side in (height, width))
    return nn.Sequential(
        *(nn.Conv2d(channels, 32, 5), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(32, 64, 5), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(64 * rows * columns, 512), nn.ReLU()),
    )


def measure_precision(
    models: Sequence[str] = tuple(MODELS), repeats: int = 5, show_progress: ShowProgress = silent
) -> Report:
    """Measure these models; above 1, bfloat16 or the layout is faster than float32 as the layers come."""
    with one_compute_thread():
        rows = [_measure(name, MODELS[name], repeats, show_progress) for name in models]
    notes = (
        'float32, as is / each: model.layout = "as-is" in float32 over "auto" in float32, and over "auto" in bfloat16; '
        "training: batches of 64; forward: of 512; medians over the passes, CPU time, one thread.",
    )
    return Report("train.precision and model.layout, compared with float32 as is", rows, notes)


def _measure(label: str, table: dict[str, Any], repeats: int, show_progress: ShowProgress) -> Row:
    variants = {"as is": ("as-is", "float32"), "auto": ("auto", "float32"), "bf16": ("auto", "bf16")}
    measures: dict[str, Measure] = {}
    for name, (layout, precision) in variants.items():
        training, forward = _works({**table, "layout": layout}, precision)
        measures |= {f"{name} training": training, f"{name} forward": forward}
    found = alternate(measures, repeats, lambda progress: show_progress(f"{label}: {progress}"))
    return {
        "model": label,
        **{
            f"{name}_{work}": ratio(found[f"as is {work}"], found[f"{name} {work}"])
            for name in ("auto", "bf16")
            for work in ("training", "forward")
        },
    }


def _works(table: dict[str, Any], precision: str) -> tuple[Measure, Measure]:
    """Return the measurements of eight training steps, and of a forward pass."""
    experiment = Experiment.parse({"model": table, "train": {"precision": precision}, "input": seen_as(SHAPE)})
    model = build_model(experiment)
    inputs, labels = samples_of_noise(SHAPE, FORWARD_BATCH)
    optimiser = FreshSgd(list(model.parameters()), experiment.train)

    def steps() -> None:
        model.train()
        size = experiment.train.batch_size
        for batch, targets in zip(inputs.split(size), labels.split(size), strict=True):
            optimiser.step(functional.cross_entropy(model(model.prepare(batch)), targets))

    return timed(steps), timed(lambda: embed(model, inputs))
