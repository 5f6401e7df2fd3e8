"""What a person sees while a run goes on and when it is done."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table

from refprotofl.basics.units import percent, size
from refprotofl.evaluation.protocols import PROTOCOLS
from refprotofl.experiment import Experiment
from refprotofl.methods.catalogue import find_method
from refprotofl.records.summary import Summary
from refprotofl.simulation.run import Event, Watcher


def title(experiment: Experiment) -> str:
    spread = f"Dirichlet {experiment.alpha:g}" if experiment.partition == "dirichlet" else experiment.partition
    return (
        f"{experiment.method} on {experiment.dataset}: {experiment.clients} clients, {spread}, "
        f"{experiment.rounds} rounds, seed {experiment.seed}"
    )


def _bar(console: Console, status: str) -> Progress:
    """A live bar, which only a terminal shows."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn(status))
    return Progress(*columns, TimeRemainingColumn(), console=console, disable=not console.is_terminal, transient=True)


class ProgressWatcher(Watcher):
    """A live bar on a terminal, a line for each evaluation elsewhere."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bar = _bar(console, "{task.fields[status]}")
        self._task = self._bar.add_task("round", total=None, status="")
        self._answers = 0
        self._uplink = 0
        self._accuracy = ""
        self._rounds = 0
        self._since = ""

    def started(self, experiment: Experiment, folder: Path, workers: int, rounds_done: int) -> None:
        where = "in this process" if workers == 1 else f"in {workers} worker processes"
        where += "" if experiment.device == "cpu" else f" on {experiment.device}"
        self._console.print(f"[bold]{escape(title(experiment))}[/bold], clients run {where}", soft_wrap=True)
        for warning in find_method(experiment.method).warnings(experiment):
            self._console.print(f"[yellow]warning:[/yellow] {escape(warning)}", soft_wrap=True, highlight=False)
        if rounds_done:
            self._console.print(f"Going on after round {rounds_done} of {escape(str(folder))}", soft_wrap=True)
        self._rounds = experiment.rounds
        self._since = f"since round {rounds_done}" if rounds_done else "so far"
        self._bar.update(self._task, total=experiment.rounds, completed=rounds_done)
        self._bar.start()

    def noted(self, sentence: str) -> None:
        self._console.print(sentence, markup=False, highlight=False, soft_wrap=True)

    def crossed(self, direction: str, phase: str, client: int, round: int, data: bytes, purpose: str) -> None:
        if direction == "down":
            self._answers = 0
            return
        self._answers += 1
        if purpose == "training":
            self._uplink += len(data)
        self._show(f"{phase}: {self._answers} answered")

    def committed(self, event: Event, accuracy: dict[str, Any] | None) -> None:
        if accuracy is not None:
            reached = percent(accuracy["accuracy"]["personal"])
            self._accuracy = f"personal {reached}, "
            if not self._console.is_terminal:
                sent = size(self._uplink)
                self._console.print(
                    f"round {event['round']}/{self._rounds}: personal {reached}, {sent} sent up {self._since}"
                )
        self._bar.update(self._task, completed=event["round"])
        self._show("")

    def close(self) -> None:
        self._bar.stop()

    def _show(self, phase: str) -> None:
        self._bar.update(self._task, status=f"{self._accuracy}{size(self._uplink)} up  {phase}")


class GridWatcher:
    """One bar over all rounds of a grid of runs; elsewhere than on a terminal a line for each finished run."""

    def __init__(self, console: Console, rounds: Sequence[int]) -> None:
        self._console = console
        self._rounds = rounds
        self._told: set[str] = set()
        self._bar = _bar(console, "rounds")
        self._task = self._bar.add_task("", total=sum(rounds))
        self._bar.start()

    def cell(self, number: int, name: str, experiment: Experiment) -> Watcher:
        """The watcher of one run of the grid."""
        done_before = sum(self._rounds[:number])
        label = f"{name}, seed {experiment.seed} ({number + 1}/{len(self._rounds)})"
        self._bar.update(self._task, completed=done_before, description=escape(label))
        if not self._console.is_terminal:
            self._console.print(label, highlight=False)
        return _CellWatcher(self._bar, self._task, done_before, self.noted)

    def noted(self, sentence: str) -> None:
        """All runs of a grid share their data: what is to be told of them is told once."""
        if sentence not in self._told:
            self._told.add(sentence)
            self._console.print(sentence, markup=False, highlight=False, soft_wrap=True)

    def close(self) -> None:
        self._bar.stop()


class _CellWatcher(Watcher):
    def __init__(self, bar: Progress, task: TaskID, done_before: int, tell: Callable[[str], None]) -> None:
        self._bar, self._task, self._done_before, self._tell = bar, task, done_before, tell

    def noted(self, sentence: str) -> None:
        self._tell(sentence)

    def committed(self, event: Event, accuracy: dict[str, Any] | None) -> None:
        self._bar.update(self._task, completed=self._done_before + event["round"])


def print_summary(console: Console, summary: Summary, folder: Path) -> None:
    experiment = Experiment.parse(summary["experiment"])
    console.print(
        f"\n[bold]{escape(title(experiment))}[/bold] (method's own numbers of the last round)", soft_wrap=True
    )
    console.print(_accuracy_table(summary))
    console.print(_communication_table(summary))
    one_off = summary["communication"]["one_off"]["payload_bytes"]
    console.print(
        f"Once, beside this: {size(one_off)} to hand out the public set and let clients join. "
        f"Took {summary['seconds']['total']:.1f} s."
    )
    for name, fact in summary.get("facts", {}).items():
        shown = f"{fact:.4g}" if isinstance(fact, float) else str(fact)
        console.print(f"{name.replace('_', ' ')}: {escape(shown)}", soft_wrap=True)
    console.print(f"Run folder: {escape(str(folder))}", soft_wrap=True)
    console.print(f"State digest: {summary['state_digest']}", soft_wrap=True)


def _accuracy_table(summary: Summary) -> Table:
    table = Table(title="Accuracy after the last round, mean over clients", title_justify="left")
    table.add_column("protocol")
    table.add_column("accuracy", justify="right")
    table.add_column("clients", justify="right")
    table.add_column("what it is")
    for protocol, accuracy in summary["accuracy"].items():
        if accuracy is not None:
            scored = sum(value is not None for value in summary["accuracy_per_client"].get(protocol, []))
            known = PROTOCOLS.get(protocol)  # a newer version's run may have others
            table.add_row(protocol, percent(accuracy), str(scored or "-"), known.meaning if known else "")
    return table


def _communication_table(summary: Summary) -> Table:
    """Bytes of this run beside those of FedAvg with the whole model, float32, the same clients and rounds."""
    table = Table(title="Communication of all clients and rounds", title_justify="left")
    for heading in ("", "bytes", "parameters", "prototype values", "full-model FedAvg", "saved"):
        table.add_column(heading, justify="left" if not heading else "right")
    full = 4 * summary["full_model"]["parameters"] * summary["full_model"]["participations"]
    communication = summary["communication"]
    for direction, counts in (("uplink", communication["uplink"]), ("downlink", communication["downlink"])):
        sent = counts["payload_bytes"]
        table.add_row(
            direction,
            size(sent),
            f"{counts['parameters']:,}",
            f"{counts['prototype_values']:,}",
            size(full),
            f"{full / sent:.1f}x" if sent else "-",
        )
    return table
