"""`model.kernel = "fast"` compared with `plain`: the figures of the table in `models/kernels.py`, measured again.

For each model, in turn in one process and in CPU time: a training step and a forward pass of both kernels with the
package's optimiser, and the same step in eager PyTorch: the plain model with `torch.optim.SGD` by its defaults.
"""

from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from refprotofl.bench.measuring import Report, Row, ShowProgress, alternate, ratio, silent, timed
from refprotofl.core import one_compute_thread, stream
from refprotofl.experiment import Experiment
from refprotofl.methods import embed
from refprotofl.methods.base.optimisers import FreshSgd
from refprotofl.models import FORWARD_BATCH, SplitModel, build_model
from refprotofl.models.kernels import FAST

Shape = tuple[int, int, int]

SHAPES: tuple[Shape, ...] = ((1, 28, 28), (3, 32, 32))
CLASSES = 10
WORTH_IT = 1.05  # below it may be noise


def measure_kernels(
    models: Sequence[tuple[str, ...]] = tuple(FAST),
    shapes: Sequence[Shape] = SHAPES,
    repeats: int = 5,
    show_progress: ShowProgress = silent,
) -> Report:
    """Measure each model (a key of the table) and image shape; with ratios above 1, `fast` is faster."""
    with one_compute_thread():
        rows = [measure_kernel(model, shape, repeats, show_progress) for model in models for shape in shapes]
    notes = (
        "training and forward: time of plain / time of fast; eager: the same training step with torch.optim.SGD by its "
        "defaults / time of fast; medians over the passes, CPU time, one thread.",
    )
    return Report("model.kernel: fast compared with plain", rows, notes)


def measure_kernel(model: tuple[str, ...], shape: Shape, repeats: int, show_progress: ShowProgress = silent) -> Row:
    plain, fast = (experiment_of(model, shape, kernel) for kernel in ("plain", "fast"))
    train = plain.train
    images, labels = samples_of_noise(shape, FORWARD_BATCH)
    batch, targets = images[: train.batch_size], labels[: train.batch_size]
    slow, quick, eager = (build_model(experiment) for experiment in (plain, fast, plain))
    measures = {
        "plain": timed(_step(slow, FreshSgd(list(slow.parameters()), train).step, batch, targets)),
        "fast": timed(_step(quick, FreshSgd(list(quick.parameters()), train).step, batch, targets)),
        "eager": timed(_step(eager, _torch_sgd(eager, plain), batch, targets)),
        "plain forward": timed(lambda: embed(slow, images)),
        "fast forward": timed(lambda: embed(quick, images)),
    }
    label, size = " ".join(model), "x".join(map(str, shape))
    found = alternate(measures, repeats, lambda progress: show_progress(f"{label}, {size}: {progress}"))
    measured = FAST[model]
    return {
        "model": label,
        "images": size,
        "products": measured.kernel.products,
        "channels_last": measured.kernel.channels_last,
        "training": ratio(found["plain"], found["fast"]),
        "training_table": measured.training,
        "forward": ratio(found["plain forward"], found["fast forward"]),
        "forward_table": measured.forward,
        "eager": ratio(found["eager"], found["fast"]),
    }


def measure_layouts(
    name: str, shapes: Sequence[Shape] = SHAPES, repeats: int = 5, show_progress: ShowProgress = silent
) -> Report:
    """Measure a training step of a user's backbone in both memory layouts; above 1, channels-last is faster."""
    with one_compute_thread():
        rows = [measure_layout(name, shape, repeats, show_progress) for shape in shapes]
    gain = min(float(str(row["training"])) for row in rows)
    faster = f"Add --set model.layout=channels-last: it is {gain:.2f} times as fast. Results repeat within a layout."
    title = f"model.layout of {name}: as-is over channels-last"
    return Report(title, rows, (faster if gain > WORTH_IT else "Leave model.layout as it is.",))


def measure_layout(name: str, shape: Shape, repeats: int, show_progress: ShowProgress = silent) -> Row:
    tables = {layout: {"name": name, "layout": layout} for layout in ("as-is", "channels-last")}
    experiments = {layout: _experiment(table, shape) for layout, table in tables.items()}
    models = {layout: build_model(experiment) for layout, experiment in experiments.items()}
    train = experiments["as-is"].train
    images, labels = samples_of_noise(shape, train.batch_size)
    steps = {
        layout: timed(_step(model, FreshSgd(list(model.parameters()), train).step, images, labels))
        for layout, model in models.items()
    }
    size = "x".join(map(str, shape))
    found = alternate(steps, repeats, lambda progress: show_progress(f"{name}, {size}: {progress}"))
    return {
        "model": name,
        "images": size,
        "as_is_ms": 1000 * median(found["as-is"]),
        "channels_last_ms": 1000 * median(found["channels-last"]),
        "training": ratio(found["as-is"], found["channels-last"]),
    }


def experiment_of(model: tuple[str, ...], shape: Shape, kernel: str) -> Experiment:
    """Return the experiment for a row of the table: (name, norm) or (name, stem, norm)."""
    table: dict[str, Any] = {"name": model[0], "norm": model[-1], "kernel": kernel}
    if len(model) == 3:
        table["stem"] = model[1]
    return _experiment(table, shape)


def _experiment(table: dict[str, Any], shape: Shape) -> Experiment:
    return Experiment.parse({"model": table, "input": seen_as(shape)})


def seen_as(shape: Shape) -> dict[str, Any]:
    """Return the table [input] of images of noise."""
    names, channels = [str(number) for number in range(CLASSES)], shape[0]
    return {"class-names": names, "shape": shape, "mean": [0.5] * channels, "std": [0.25] * channels}


def samples_of_noise(shape: Shape, count: int) -> tuple[Tensor, Tensor]:
    """Return noise: the cost of a layer does not depend on its values."""
    generator = stream(0, "bench-kernels")
    images = generator.integers(0, 256, (count, *shape)).astype("uint8")
    return torch.from_numpy(images), torch.from_numpy(generator.integers(0, CLASSES, count))


def _step(model: SplitModel, descend: Callable[[Tensor], object], images: Tensor, labels: Tensor) -> Callable[[], None]:
    def step() -> None:
        model.train()
        descend(functional.cross_entropy(model(model.prepare(images)), labels))

    return step


def _torch_sgd(model: SplitModel, experiment: Experiment) -> Callable[[Tensor], None]:
    table = experiment.train
    optimiser = torch.optim.SGD(
        model.parameters(), lr=table.lr, momentum=table.momentum, weight_decay=table.weight_decay
    )

    def descend(loss: Tensor) -> None:
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()

    return descend
