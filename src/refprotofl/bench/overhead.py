"""The overhead of a run: its CPU time over a bare PyTorch loop with the same model, samples and steps.

Three things are measured in turn in one process, in CPU time of the whole process: `run`, the rounds of a run, from the
first request to the last commit on disk (set-up, which loads data and builds models, is shown separately); `training`,
the bare loop; `forward`, bare forward passes over the images that the method needs prototypes of and over the test
images of each evaluation. The overhead is (run - forward) / training: everything else, be it the alignment loss,
messages, selection, aggregation, digests or files, counts against the run.

The images are synthetic and shaped like Fashion-MNIST, so that no benchmark waits for a download. With `watched`, the
live page is served and read during the run.
"""

import multiprocessing
import time
import urllib.request
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.synchronize import Event
from pathlib import Path
from statistics import median

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from refprotofl.bench.measuring import Report, Row, ShowProgress, alternate, quotients, silent, spread, timed
from refprotofl.bench.timed_runs import Begun, Lap, clocked_run
from refprotofl.core import InputError, one_compute_thread, stream
from refprotofl.data import Dataset, FederatedData
from refprotofl.data.dataset import Images, Labels
from refprotofl.evaluation import plan_of
from refprotofl.experiment import Experiment, Train
from refprotofl.federation import Federation, draw_cohort, draw_evaluated, load_federation
from refprotofl.inputs.image import channel_statistics
from refprotofl.methods.builtin.refprotofl.masked import sends_prototypes
from refprotofl.models import FORWARD_BATCH, SplitModel, build_model
from refprotofl.report.live.web_server import BackgroundServer

CLASSES = 10
SIDE = 28
TESTS = 1000
SAMPLES, MANY_SAMPLES = 6500, 110_000

IMAGES = f"{__name__}:images"  # as in dataset = …
MANY_IMAGES = f"{__name__}:many_images"


def images() -> Dataset:
    return make_images(SAMPLES)


def many_images() -> Dataset:
    return make_images(MANY_SAMPLES)


def make_images(samples: int, tests: int = TESTS) -> Dataset:
    """Make images with a coarse pattern for each class under noise: a model learns them, and losses stay finite."""
    generator = stream(0, "synthetic-images")
    coarse = generator.integers(0, 128, (CLASSES, 1, 7, 7), dtype=np.uint8)
    patterns = coarse.repeat(SIDE // 7, axis=2).repeat(SIDE // 7, axis=3)  # (C, 1, 28, 28)

    def split(count: int) -> tuple[Images, Labels]:
        labels = np.arange(count, dtype=np.int64) % CLASSES
        drawn = generator.integers(0, 128, (count, 1, SIDE, SIDE), dtype=np.uint8)
        drawn += patterns[labels]
        return drawn, labels

    train, test = split(samples), split(tests)
    names = tuple(str(number) for number in range(CLASSES))
    return Dataset(*train, *test, names, *channel_statistics(train[0]))


@dataclass(frozen=True)
class Work:
    """All computations of a RefProtoFL run's rounds with a model."""

    images: Tensor  # (N, channels, H, W) uint8
    labels: Tensor  # (N,)
    batches: list[list[Tensor]]  # rows of each batch, for every client that trains in a round
    forwards: list[Tensor]  # images that pass forward: of prototypes, for every client and round; of evaluations

    @property
    def steps(self) -> int:
        return sum(len(batches) for batches in self.batches)

    @property
    def samples(self) -> int:
        return sum(len(rows) for batches in self.batches for rows in batches)

    @property
    def forward_images(self) -> int:
        return sum(len(images) for images in self.forwards)


def work_of(federation: Federation) -> Work:
    """Return the clients, samples and batches of this experiment's run, in the same order."""
    experiment, data = federation.experiment, federation.data
    images, labels = torch.from_numpy(data.dataset.train_inputs), torch.from_numpy(data.dataset.train_labels)
    public, tests = torch.from_numpy(data.public_inputs), torch.from_numpy(data.test_inputs)
    batches, forwards = [], []
    for round in range(1, experiment.rounds + 1):
        for client in draw_cohort(experiment, round):
            batches.append(client_batches(experiment, data, client, round))
            if uploads_prototypes(experiment, round):
                forwards += [public, images[uncovered(data, client)]]
        if experiment.is_evaluated(round):
            rows = plan_of(experiment, round).rows(data.test_labels, data.dataset.num_classes)
            forwards += [tests if rows is None else tests[rows] for _ in draw_evaluated(experiment)]
    return Work(images, labels, batches, forwards)


def client_batches(experiment: Experiment, data: FederatedData, client: int, round: int) -> list[Tensor]:
    public = [data.public_indices] if experiment.public.train_on else []
    rows = torch.from_numpy(np.concatenate([data.client_indices[client], *public]))
    order = stream(experiment.seed, "batches", client=client, round=round)
    shuffled = [rows[torch.from_numpy(order.permutation(len(rows)))] for _ in range(experiment.train.local_epochs)]
    return [batch for epoch in shuffled for batch in epoch.split(experiment.train.batch_size)]


def uploads_prototypes(experiment: Experiment, round: int) -> bool:
    table = experiment.refprotofl
    return sends_prototypes(table, round) or (
        table.erpa and table.timing == "pre-train" and round > table.warmup_rounds
    )


def uncovered(data: FederatedData, client: int) -> Tensor:
    """Return rows of the client's samples whose class has no public images: their prototypes are the client's own."""
    rows = data.client_indices[client]
    return torch.from_numpy(rows[~np.isin(data.dataset.train_labels[rows], data.public_classes)])


def train_plainly(model: SplitModel, images: Tensor, labels: Tensor, batches: Iterable[Tensor], table: Train) -> None:
    """Minimise the mean cross-entropy by SGD over these batches, with a fresh optimiser."""
    optimiser = torch.optim.SGD(
        model.parameters(), lr=table.lr, momentum=table.momentum, weight_decay=table.weight_decay, fused=True
    )
    model.train()
    for rows in batches:
        inputs = model.prepare(images.index_select(0, rows))
        loss = functional.cross_entropy(model(inputs), labels.index_select(0, rows))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()


@torch.no_grad()
def forward_plainly(model: SplitModel, images: Tensor) -> None:
    model.eval()
    for batch in images.split(FORWARD_BATCH):
        model(model.prepare(batch))


PATIENCE = 120.0  # seconds until the page is served


@contextmanager
def watched_page(folder: Path) -> Iterator[Begun]:
    """Serve and read the live page of a run; yield a function that waits until the page is being read."""
    context = multiprocessing.get_context("spawn")
    reading = context.Event()
    server = BackgroundServer(folder)
    reader = context.Process(target=read_page, args=(server.address, reading), daemon=True)
    reader.start()
    try:
        yield lambda: _await(reading)
    finally:
        reader.terminate()
        reader.join()
        server.close()


def _await(reading: Event) -> None:
    if not reading.wait(PATIENCE):
        raise TimeoutError("the live page is not served")


def read_page(address: str, reading: Event) -> None:
    """Follow the events, and fetch the page's data at most once per second, as page.js does."""
    with suppress(OSError):
        urllib.request.urlopen(address, timeout=PATIENCE).read()
        with urllib.request.urlopen(f"{address}events", timeout=PATIENCE) as events:
            reading.set()
            last = 0.0
            for line in events:
                if line.startswith(b"event:") and time.monotonic() - last > 1:
                    urllib.request.urlopen(f"{address}page.json", timeout=PATIENCE).read()
                    last = time.monotonic()


TARGETS = {"cnn": 1.10, "resnet18": 1.05}

# Two clients: with a thousand samples each, as each of ten has in the preset `small`; and with half as many as each of
# ten has in the preset `paper`.
MODELS = {
    "cnn": ("model.name=cnn", "train-limit=2500", "rounds=2"),
    "resnet18": ("model.name=resnet18", "train-limit=6500", "rounds=1"),
}
SETTINGS = (
    f"dataset={IMAGES}",
    "clients=2",
    "partition=iid",
    "min-size=64",
    "public.per-class=50",
    "train.batch-size=64",
    "train.local-epochs=1",
)


def measure_overheads(
    experiments: list[Experiment],
    data: Path | None,
    repeats: int,
    show_progress: ShowProgress = silent,
    watched: bool = False,
) -> Report:
    """Measure the overhead of each experiment; with `watched`, also that of runs with a live page that is read."""
    rows = [measure_overhead(experiment, data, repeats, show_progress, watched) for experiment in experiments]
    notes = [
        "overhead = (run - forward) / training, the median over the passes; CPU seconds are medians; set-up is "
        "wall-clock time and not part of the run.",
    ]
    if watched:
        notes.append(
            "watched: the same rounds while another process serves the live page and a third one reads it; CPU seconds "
            "of the run's own process, and wall-clock time, over those without them."
        )
    return Report("A run compared with a bare PyTorch loop, CPU time", rows, tuple(notes))


def measure_overhead(
    experiment: Experiment, data: Path | None, repeats: int, show_progress: ShowProgress = silent, watched: bool = False
) -> Row:
    if experiment.method != "refprotofl":
        raise InputError(
            f"method = {experiment.method!r}: the overhead is only measured for refprotofl, "
            "whose forward passes are known."
        )
    others = sorted(experiment.train.plain().keys() - Train().plain().keys())
    if others:
        named = ", ".join(f"train.{key}" for key in others)
        raise InputError(f"The bare loop makes passes by SGD at a constant rate: leave out {named}.")
    experiment = experiment.model_copy(update={"device": "cpu"})
    with one_compute_thread():
        federation = load_federation(experiment, data)
        model, work = build_model(federation.experiment), work_of(federation)
        laps: list[Lap] = []
        watched_laps: list[Lap] = []

        def run_rounds() -> float:
            laps.append(clocked_run(experiment, data))
            return sum(laps[-1].cpu)

        def run_watched() -> float:
            watched_laps.append(clocked_run(experiment, data, companion=watched_page))
            return sum(watched_laps[-1].cpu)

        def train() -> None:
            for batches in work.batches:
                train_plainly(model, work.images, work.labels, batches, experiment.train)

        def forward() -> None:
            for images in work.forwards:
                forward_plainly(model, images)

        name = str(experiment.model.name)
        measures = {"run": run_rounds, "training": timed(train), "forward": timed(forward)}
        if watched:
            measures["watched"] = run_watched
        found = alternate(measures, repeats, lambda progress: show_progress(f"{name}: {progress}"))
    remaining = [run - forward for run, forward in zip(found["run"], found["forward"], strict=True)]
    overheads = quotients(remaining, found["training"])
    return {
        "model": name,
        "kernel": experiment.model.kernel,
        "rounds": experiment.rounds,
        "clients": experiment.cohort_size,
        "samples": work.samples,
        "steps": work.steps,
        "forward_images": work.forward_images,
        "set_up_s": median(lap.setup for lap in laps[1:]),
        "run_s": median(found["run"]),
        "forward_s": median(found["forward"]),
        "training_s": median(found["training"]),
        "overhead": median(overheads),
        "spread": spread(overheads),
        "target": TARGETS.get(name),
        **(_watched(found, laps, watched_laps) if watched else {}),
    }


def _watched(found: dict[str, list[float]], laps: list[Lap], watched: list[Lap]) -> Row:
    walls = quotients([sum(lap.rounds) for lap in watched[1:]], [sum(lap.rounds) for lap in laps[1:]])
    cpus = quotients(found["watched"], found["run"])
    return {"watched_cpu": median(cpus), "watched_cpu_spread": spread(cpus), "watched_wall": median(walls)}
