"""What a run costs beside its training: CPU time over a bare PyTorch loop with the same model, samples and steps.

Three things are measured in turn in one process, in CPU time of the whole process:
`run`, the rounds of a run in this process, from the first request to the last commit on disk (loading data and
building models are set-up, shown apart); `training`, the bare loop; `forward`, bare forward passes over the images
that the method needs prototypes of and over the test images of each evaluation.
The overhead is (run - forward) / training: whatever is neither, be it the alignment loss, messages, selection,
aggregation, digests or files, counts against the run.
"""

from pathlib import Path
from statistics import median

from refprotofl.benchmarks.measuring import Report, Row, Tell, alternate, quotients, silent, spread, timed
from refprotofl.benchmarks.plain import forward_plainly, train_plainly, work_of
from refprotofl.benchmarks.runs import Lap, clocked_run
from refprotofl.benchmarks.synthetic import IMAGES
from refprotofl.benchmarks.watched import looked_on
from refprotofl.compute.process import one_compute_thread
from refprotofl.errors import InputError
from refprotofl.experiment import Experiment
from refprotofl.models import build_model
from refprotofl.simulation.assembly import load_federation

TARGETS = {"cnn": 1.10, "resnet18": 1.05}

# Two clients: with a thousand samples each, as each of ten has in the preset `small`; and with half of what each of ten
# has in the preset `paper`.
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
    experiments: list[Experiment], data: Path | None, repeats: int, tell: Tell = silent, watched: bool = False
) -> Report:
    """`watched`: the run is also done while somebody looks on, in turn with the others."""
    rows = [measure_overhead(experiment, data, repeats, tell, watched) for experiment in experiments]
    notes = [
        "overhead = (run - forward) / training, the median over the passes; CPU seconds are medians; set-up is "
        "wall clock, and not in the run.",
    ]
    if watched:
        notes.append(
            "watched: the same rounds while another process serves the live page and a third one reads it; CPU seconds "
            "of the run's own process, and wall clock, over those without them."
        )
    return Report("A run beside a bare PyTorch loop, CPU time", rows, tuple(notes))


def measure_overhead(
    experiment: Experiment, data: Path | None, repeats: int, tell: Tell = silent, watched: bool = False
) -> Row:
    if experiment.method != "refprotofl":
        raise InputError(
            f"method = {experiment.method!r}: the overhead is measured for refprotofl alone, "
            "whose forward passes are known."
        )
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
            watched_laps.append(clocked_run(experiment, data, beside=looked_on))
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
        found = alternate(measures, repeats, lambda progress: tell(f"{name}: {progress}"))
    besides = [run - forward for run, forward in zip(found["run"], found["forward"], strict=True)]
    overheads = quotients(besides, found["training"])
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
