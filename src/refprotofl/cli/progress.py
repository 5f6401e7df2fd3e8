"""The progress of runs on the terminal, and the summary of a finished run."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from refprotofl.cli.output import Column, PlainConsole, explain, say, show, warn
from refprotofl.core import counted, duration, for_terminal, percent, size
from refprotofl.evaluation import PROTOCOLS, most_confused
from refprotofl.experiment import Experiment
from refprotofl.federation import Callback
from refprotofl.methods import create_compressor, find_method
from refprotofl.privacy import epsilon_sentence
from refprotofl.records import Event, Seconds, StopRecord, Summary, fedavg_bytes
from refprotofl.report import spread
from refprotofl.report.costs import shared_by
from refprotofl.report.page.elements import title
from refprotofl.studies import Trial

LOWEST = 3  # clients and classes in the summary


def _bar(console: Console, status: str) -> Progress:
    """Return a live progress bar, shown on a terminal only."""
    name, state = (TextColumn(text, markup=False) for text in ("{task.description}", status))
    columns = (name, BarColumn(), MofNCompleteColumn(), state)
    return Progress(*columns, TimeRemainingColumn(), console=console, disable=not console.is_terminal, transient=True)


class ProgressCallback(Callback):
    """A live bar on a terminal, a line for each evaluation elsewhere."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console = console or PlainConsole(stderr=True)
        self._bar = _bar(console, "{task.fields[status]}")
        self._task = self._bar.add_task("round", total=None, status="")
        self._answers = 0
        self._uplink = 0
        self._accuracy = ""
        self._rounds = 0
        self._since = ""

    def on_start(self, experiment: Experiment, folder: Path, workers: int, rounds_done: int) -> None:
        where = "in this process" if workers == 1 else f"in {workers} worker processes"
        where += "" if experiment.device == "cpu" else f" on {experiment.device}"
        _head(self._console, title(experiment), f", sharing {shared_by(experiment)}, clients run {where}")
        for warning in find_method(experiment.method).warnings(experiment):
            warn(for_terminal(warning), self._console)
        if rounds_done:
            say(f"Resuming {for_terminal(folder)} after round {rounds_done}", self._console)
        self._rounds = experiment.rounds
        self._since = f"since round {rounds_done}" if rounds_done else "so far"
        self._bar.update(self._task, total=experiment.rounds, completed=rounds_done)
        self._bar.start()

    def on_note(self, sentence: str) -> None:
        say(sentence, self._console)

    def on_message(self, direction: str, phase: str, client: int, round: int, data: bytes, purpose: str) -> None:
        if direction == "down":
            self._answers = 0
            return
        self._answers += 1
        if purpose == "training":
            self._uplink += len(data)
        self._show(f"{phase}: {self._answers} answered")

    def on_round(self, event: Event, accuracy: dict[str, Any] | None) -> None:
        if accuracy is not None:
            reached = _reached(accuracy)
            self._accuracy = f"{reached}, "
            if not self._console.is_terminal:
                sent = size(self._uplink)
                say(f"round {event['round']}/{self._rounds}: {reached}, uplink {sent} {self._since}", self._console)
        self._bar.update(self._task, completed=event["round"])
        self._show("")

    def on_close(self) -> None:
        self._bar.stop()

    def _show(self, phase: str) -> None:
        self._bar.update(self._task, status=f"{self._accuracy}uplink {size(self._uplink)}  {phase}")


def _reached(evaluation: Event) -> str:
    """Return the first accuracy that an evaluation has, and what it was scored on if not on the whole test set."""
    known = {protocol: value for protocol, value in evaluation["accuracy"].items() if value is not None}
    protocol = next(iter(known), "personal")
    on = f" of {counted(evaluation['subset'], 'test sample')}" if "subset" in evaluation else ""
    return f"{protocol} {percent(known.get(protocol))}{on}"


class RunNumbers:
    """The runs of a study, numbered in the order in which it asks for them."""

    def __init__(self, total: int | None) -> None:
        """`total` is None for a study that decides by its results how many runs follow."""
        self._total = total
        self._numbers: dict[str, int] = {}  # by hash

    def add(self, trials: Sequence[Trial]) -> None:
        for trial in trials:
            self._numbers.setdefault(trial.hash, len(self._numbers) + 1)

    def of(self, trial: Trial) -> str:
        """Return the number of a run, such as 3/12."""
        number = self._numbers[trial.hash]
        return str(number) if self._total is None else f"{number}/{max(self._total, len(self._numbers))}"


class StudyProgress:
    """One bar over all rounds of a batch of trials; off a terminal, a line when a run begins and one when it ends.

    Rounds that were done before, or by another process, count once this process has found them.
    """

    def __init__(self, console: Console, trials: Sequence[Trial], numbers: "RunNumbers | None" = None) -> None:
        """`numbers`: those of the whole study, if this is one of several batches."""
        self._console = console
        self._numbers = numbers or RunNumbers(len(trials))
        self._numbers.add(trials)
        self._places = {trial.hash: place for place, trial in enumerate(trials)}
        self._done = [0] * len(trials)
        self._noted: set[str] = set()
        self._bar = _bar(console, "rounds")
        self._task = self._bar.add_task("", total=sum(trial.experiment.rounds for trial in trials))
        self._bar.start()

    def watch(self, trial: Trial) -> Callback:
        """Return the callback of a run; it is silent until the run begins here, as others may run it."""
        label = f"{for_terminal(trial.name)}, seed {trial.experiment.seed} ({self._numbers.of(trial)})"
        return _TrialProgress(self, self._places[trial.hash], trial.experiment.rounds, label)

    def begin(self, label: str) -> None:
        self._bar.update(self._task, description=label)
        self.print_line(label)

    def update(self, number: int, rounds: int) -> None:
        """Set the finished rounds of a run."""
        self._done[number] = rounds
        self._bar.update(self._task, completed=sum(self._done))

    def print_line(self, line: str) -> None:
        if not self._console.is_terminal:
            say(line, self._console)

    def on_note(self, sentence: str) -> None:
        """Print a note once: all runs of a study share their data."""
        if sentence not in self._noted:
            self._noted.add(sentence)
            say(sentence, self._console)

    def on_close(self) -> None:
        self._bar.stop()


class _TrialProgress(Callback):
    def __init__(self, study: StudyProgress, number: int, rounds: int, label: str) -> None:
        self._study, self._number, self._rounds, self._label = study, number, rounds, label
        self._since = time.perf_counter()

    def on_start(self, experiment: Experiment, folder: Path, workers: int, rounds_done: int) -> None:
        self._study.begin(self._label)
        self._study.update(self._number, rounds_done)

    def on_reuse(self) -> None:
        self._study.update(self._number, self._rounds)

    def on_note(self, sentence: str) -> None:
        self._study.on_note(sentence)

    def on_round(self, event: Event, accuracy: dict[str, Any] | None) -> None:
        self._study.update(self._number, event["round"])
        if event["round"] == self._rounds and accuracy is not None:
            took = duration(time.perf_counter() - self._since)
            self._study.print_line(f"{self._label}: {_headline(accuracy['accuracy'])}, {took}")


def _headline(accuracy: dict[str, float | None]) -> str:
    """Return the headline accuracy: that of the global model, if there is one."""
    scored = [protocol for protocol, value in accuracy.items() if value is not None]
    protocol = "global" if "global" in scored else next(iter(scored), "personal")
    return f"{protocol} {percent(accuracy.get(protocol))}"


def print_summary(
    console: Console, summary: Summary, folder: Path, baseline: tuple[str, Summary] | None = None
) -> None:
    """Print a run's summary. `baseline`: name and summary of another method on the same data."""
    experiment = Experiment.parse(summary["experiment"])
    say("", console)
    _head(console, title(experiment), f", sharing {shared_by(experiment)}, results of the last round")
    _show_accuracy(console, summary, baseline)
    if "stop" in summary:
        say(_stopped(summary["stop"], experiment), console)
    if "privacy" in summary:
        say(epsilon_sentence(summary["privacy"]), console)
    _show_lowest_clients(console, summary, experiment)
    _show_lowest_classes(console, summary, experiment.known_input.class_names)
    _show_communication(console, summary)
    one_off = summary["communication"]["one_off"]["payload_bytes"]
    say(f"One-time setup traffic: {size(one_off)} (joining, public set if used)", console)
    say(_run_time(summary["seconds"]), console)
    for name, fact in summary.get("facts", {}).items():
        shown = f"{fact:.4g}" if isinstance(fact, float) else for_terminal(fact)
        say(f"{for_terminal(name.replace('_', ' '))}: {shown}", console)
    for note in (*find_method(experiment.method).notes, *create_compressor(experiment).notes):
        explain(f"note: {for_terminal(note)}", console)
    say(f"Run folder: {for_terminal(folder)}", console)
    say(f"State digest: {summary['state_digest']}", console)


def _run_time(seconds: Seconds) -> str:
    total, scoring = seconds["total"], seconds["evaluate"]
    share = f", of which evaluation {scoring:.1f} s ({scoring / total:.0%})" if total > 0 else ""
    return f"Run time: {total:.1f} s{share}"


def _stopped(stop: StopRecord, experiment: Experiment) -> str:
    """Return when and why a run ended, and how to train for as long on all data."""
    reasons = {"target": f"it reached {percent(experiment.stop.target)}", "patience": "it became no better"}
    best = f"best {percent(stop['best'])} in round {stop['best_round']}"
    scored = f"{stop['protocol']} on samples that clients hold out: {best}"
    if stop["reason"] == "rounds":
        return f"Not stopped early ({scored})"
    return (
        f"Stopped after round {stop['round']} of {experiment.rounds}: {reasons[stop['reason']]} ({scored}). "
        f"To train on all samples and score the test set, leave out [stop] and set rounds={stop['round']}"
    )


def _head(console: Console, title: str, rest: str) -> None:
    console.print(Text.assemble((title, "bold"), rest), soft_wrap=True)


def _show_accuracy(console: Console, summary: Summary, baseline: tuple[str, Summary] | None) -> None:
    rows, held_out = [], summary["experiment"].get("validation", 0.0)
    for protocol, accuracy in summary["accuracy"].items():
        if accuracy is not None:
            scored = sum(value is not None for value in summary["accuracy_per_client"].get(protocol, []))
            known = PROTOCOLS.get(protocol)  # another version's run may have others
            others = [percent(baseline[1]["accuracy"].get(protocol))] if baseline else []
            definition = known.definition(held_out) if known else ""
            rows.append((protocol, percent(accuracy), *others, scored or "-", definition))
    headings = ["accuracy", *([for_terminal(baseline[0])] if baseline else []), "clients"]
    columns = (Column("protocol"), *(Column(one, numbers=True) for one in headings), Column("definition", wraps=20))
    where = ", on validation data held out by the clients" if held_out else ""
    show(columns, rows, f"Accuracy after the last round, mean over clients{where}", console=console)


def _show_lowest_clients(console: Console, summary: Summary, experiment: Experiment) -> None:
    """Print the clients with the lowest accuracy on data like their own, and the spread over all clients."""
    for protocol in ("own", "personal"):
        shares = dict(enumerate(summary["accuracy_per_client"].get(protocol, [])))
        known = {client: share for client, share in shares.items() if share is not None}
        if len(known) < 2:
            continue
        found = spread(list(known.values()))
        assert found is not None
        lowest = sorted(known, key=lambda client: known[client])[:LOWEST]
        named = ", ".join(
            f"{for_terminal(experiment.client_name(client))} {percent(known[client])}" for client in lowest
        )
        say(f"Lowest clients ({protocol}): {named}; standard deviation {100 * found.deviation:.2f} points", console)
        return


def _show_lowest_classes(console: Console, summary: Summary, names: Sequence[str]) -> None:
    """Print the classes with the lowest accuracy and their most frequent wrong prediction."""
    shares = {label: share for label, share in enumerate(summary.get("accuracy_per_class", [])) if share is not None}
    counts, lowest = np.array(summary.get("confusion", [])), []
    for label in sorted(shares, key=lambda label: shares[label])[:LOWEST]:
        wrong = most_confused(counts, label)
        predicted = "" if wrong is None else f" (often predicted as {for_terminal(names[wrong])})"
        lowest.append(f"class {for_terminal(names[label])}: {percent(shares[label])}{predicted}")
    if lowest:
        say(f"Lowest recall by class (personal, all clients): {', '.join(lowest)}", console)


def _show_communication(console: Console, summary: Summary) -> None:
    """Print the bytes of this run and those of full-model FedAvg in float32, for the same clients and rounds."""
    communication, fedavg = summary["communication"], fedavg_bytes(summary, summary["full_model"]["parameters"])
    rows = []
    directions = (("uplink", communication["uplink"]), ("downlink", communication["downlink"]))
    for (direction, counts), full in zip(directions, fedavg, strict=True):
        sent, values = counts["payload_bytes"], (counts["parameters"], counts["prototype_values"])
        saved = f"{full / sent:.1f}x" if sent else "-"
        rows.append((direction, size(sent), *(f"{value:,}" for value in values), size(full), saved))
    headings = ("bytes", "parameters", "prototype values", "full-model FedAvg", "reduction")
    columns = (Column(""), *(Column(heading, numbers=True) for heading in headings))
    show(columns, rows, "Communication, all clients and rounds", console=console)
