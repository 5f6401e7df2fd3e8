"""Worker processes compared with one process: wall-clock time per round on the same experiment, and the same result."""

from pathlib import Path
from statistics import mean, median

from refprotofl.bench.measuring import Measure, Report, Row, ShowProgress, alternate, quotients, ratio, silent, spread
from refprotofl.bench.overhead import IMAGES
from refprotofl.bench.timed_runs import Lap, clocked_run
from refprotofl.core import RunError
from refprotofl.experiment import Experiment

SETTINGS = (
    f"dataset={IMAGES}",
    "clients=10",
    "alpha=0.5",
    "min-size=64",
    "model.name=cnn",
    "public.per-class=50",
    "train.batch-size=64",
    "train.local-epochs=1",
)


def measure_workers(
    experiment: Experiment, data: Path | None, workers: int, repeats: int, show_progress: ShowProgress = silent
) -> Report:
    """Measure the second half of the rounds: in the first, processes start."""
    laps: dict[int, list[Lap]] = {1: [], workers: []}

    def measure(count: int) -> Measure:
        def run() -> float:
            laps[count].append(clocked_run(experiment, data, count))
            return mean(laps[count][-1].rounds[experiment.rounds // 2 :])

        return run

    found = alternate({str(count): measure(count) for count in laps}, repeats, show_progress)
    digests = {lap.state_digest for taken in laps.values() for lap in taken}
    if len(digests) != 1:
        raise RunError(f"The results differ: {len(digests)} state digests from the same experiment.")
    rows: list[Row] = [
        {
            "workers": count,
            "first_commit_s": median(lap.setup + lap.rounds[0] for lap in taken[1:]),
            "round_s": median(found[str(count)]),
            "speed_up": ratio(found["1"], found[str(count)]),
            "spread": spread(quotients(found["1"], found[str(count)])),
        }
        for count, taken in laps.items()
    ]
    notes = [
        f"Wall-clock time of the second half of {experiment.rounds} rounds of {experiment.cohort_size} clients. "
        f"All runs have the state digest {digests.pop()[:16]}…"
    ]
    return Report("Worker processes compared with one process", rows, notes)
