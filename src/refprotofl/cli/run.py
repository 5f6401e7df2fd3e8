"""The command `run`."""

import json
import shlex
import webbrowser
from contextlib import AbstractContextManager, closing, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from refprotofl.cli.app import (
    INTERRUPTED,
    NOTHING_KEPT,
    DataDir,
    Device,
    File,
    Preset,
    Seed,
    Settings,
    TrustCode,
    Workers,
    app,
    nothing_kept_yet,
    read_path,
    read_workers,
    with_device,
    with_seed,
)
from refprotofl.cli.next_command import comparison, show_next
from refprotofl.cli.output import complain, emit, notes, out, say
from refprotofl.cli.report import Port, report_finished
from refprotofl.core import InputError, counted, for_file_name, for_terminal, numerics

if TYPE_CHECKING:
    from refprotofl.experiment import Experiment
    from refprotofl.federation import RunResult
    from refprotofl.federation import Workers as Count
    from refprotofl.records import Summary


OutDir = Annotated[
    Path | None,
    typer.Option("--out", parser=read_path, metavar="DIR", help="The run folder (default: a new one under runs/)."),
]
Resume = Annotated[bool, typer.Option("--resume", help="Resume the run in --out; --set rounds=… extends it.")]
FromRound = Annotated[
    int | None,
    typer.Option(
        "--from-round", metavar="N", min=1, help="With --resume: roll back to round N, one of the kept checkpoints."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")]
Baseline = Annotated[
    str | None,
    typer.Option(help="Also run this method, such as local, on the same data, for comparison.", metavar="METHOD"),
]
Reported = Annotated[bool, typer.Option("--report", help="Write the report page into the run folder at the end.")]
Watched = Annotated[
    bool, typer.Option("--watch", help="Serve the live report page during the run and print its address.")
]
Opened = Annotated[bool, typer.Option("--open", help="With --watch: open the page in a browser.")]


@app.command(
    epilog="Example: refprotofl run --preset small --set dataset=fashion-mnist --set refprotofl.keep=0.05 --out runs/a"
)
def run(
    file: File = None,
    preset: Preset = None,
    settings: Settings = None,
    seed: Seed = None,
    out_dir: OutDir = None,
    data: DataDir = None,
    resume: Resume = False,
    from_round: FromRound = None,
    trust_code: TrustCode = False,
    workers: Workers = "auto",
    device: Device = None,
    as_json: AsJson = False,
    baseline: Baseline = None,
    reported: Reported = False,
    watched: Watched = False,
    port: Port = 0,
    opened: Opened = False,
) -> None:
    """Run an experiment, or resume one. Without a file or preset, --preset quick is used.

    If the parent folder has a finished run of local on the same data, its accuracy is shown for comparison.
    """
    with nothing_kept_yet():
        count, settings = read_workers(workers), with_seed(settings, seed)
        _check_resume(resume, out_dir, from_round)
        if resume and out_dir is not None and file is None and preset is None:
            experiment = _resumed(out_dir, settings, device, trust_code)
        else:
            experiment = _named(file, preset, settings, device)
        _check_method(baseline)
        numerics.apply(experiment.numerics)
        from refprotofl.federation import default_folder

    folder = out_dir or default_folder(experiment)
    live_page = _watch(folder, port, opened) if watched else nullcontext()
    with live_page:
        finished = _run(experiment, folder, data, count, resume, from_round)
    reference = _reference(finished, baseline, data, count, experiment.numerics)
    if as_json:
        emit(json.dumps(finished.summary, indent=2) + "\n")
    else:
        from refprotofl.cli.progress import print_summary

        print_summary(out, finished.summary, finished.folder, reference)
        if not resume:
            show_next(comparison(experiment, file, preset, settings or [], finished.folder))
    if reported:
        report_finished([finished.folder], finished.folder / "report.html", data)


def _run(
    experiment: "Experiment", folder: Path, data: Path | None, workers: "Count", resume: bool, from_round: int | None
) -> "RunResult":
    """Run the experiment with progress on the terminal; an interrupt is reported with the command that resumes it."""
    from refprotofl.cli.progress import ProgressCallback
    from refprotofl.federation import run as run_experiment

    callback = ProgressCallback(notes)
    try:
        return run_experiment(
            experiment,
            out=folder,
            data=data,
            workers=workers,
            resume=resume,
            from_round=from_round,
            callback=callback,
        )
    except KeyboardInterrupt:
        _report_interrupt(folder, data, experiment)
        raise typer.Exit(INTERRUPTED) from None


def _check_resume(resume: bool, out_dir: Path | None, from_round: int | None) -> None:
    if resume and out_dir is None:
        raise InputError("--resume needs --out, the folder of the run to resume.")
    if from_round is not None and not resume:
        raise InputError("--from-round rolls back an existing run: it needs --resume and --out.")


def _watch(folder: Path, port: int, opened: bool) -> "AbstractContextManager[object]":
    """Serve the live page of the run that is about to start, until the run ends."""
    from refprotofl.report.live.web_server import BackgroundServer

    server = BackgroundServer(folder, port)
    say(f"Live report: {server.address}", notes)
    if opened:
        webbrowser.open(server.address)
    return closing(server)


def _named(file: Path | None, preset: str | None, settings: list[str], device: str | None) -> "Experiment":
    from refprotofl.experiment import load_experiment

    return load_experiment(file, preset, with_device(settings, device))


def _check_method(name: str | None) -> None:
    """Raise InputError for an unknown method, before anything is run."""
    from refprotofl.methods import find_method

    if name is not None:
        find_method(name)


def _reference(
    finished: "RunResult", method: str | None, data: Path | None, workers: "Count", mode: numerics.Mode
) -> "tuple[str, Summary] | None":
    """Return name and summary of the baseline: the method asked for, or a finished run of local on the same data."""
    from refprotofl.cli.progress import ProgressCallback
    from refprotofl.experiment import Experiment
    from refprotofl.federation import run as run_experiment
    from refprotofl.report.comparable import baseline_of, finished_run

    ran = Experiment.parse(finished.summary["experiment"])
    name = method or "local"
    if ran.method == name:
        return None
    wanted = baseline_of(ran, name).model_copy(update={"numerics": mode})
    summary = finished_run(finished.folder.absolute().parent, wanted, data)
    if summary is None and method is not None:
        place = finished.folder.with_name(f"{finished.folder.name}-{for_file_name(name)}")
        callback = ProgressCallback(notes)
        summary = run_experiment(wanted, out=place, data=data, workers=workers, resume=True, callback=callback).summary
    return None if summary is None else (name, summary)


def _report_interrupt(folder: Path, data: Path | None, experiment: "Experiment") -> None:
    from refprotofl.records import read_manifest

    if not (folder / "experiment.json").exists():
        complain(NOTHING_KEPT)
        return
    manifest = read_manifest(folder / "checkpoint")
    done = manifest["progress"]["round"] if manifest else 0
    kept = f"{done} of {counted(experiment.rounds, 'round')}" if done else "the experiment, but no round yet"
    say(f"Kept in {for_terminal(folder)}: {kept}.", notes)
    complain(f"Interrupted. Resume with: {_resume_command(folder, data, experiment)}")


def _resume_command(folder: Path, data: Path | None, experiment: "Experiment") -> str:
    """Return the command that resumes the run; code that the user has just run is trusted."""
    from refprotofl.core import references

    place = [] if data is None else ["--data", str(data)]
    trust = ["--trust-code"] if references(experiment.plain()) else []
    return shlex.join(["refprotofl", "run", "--resume", "--out", str(folder), *place, *trust])


def _resumed(out_dir: Path, settings: list[str], device: str | None, trust_code: bool) -> "Experiment":
    """Return the experiment of the run in `out_dir` with the given settings, or a new one if there is no run."""
    from refprotofl.core import references
    from refprotofl.experiment import load_experiment, read_settings, with_settings
    from refprotofl.records import allow_code, check_file, read_experiment

    typed = with_device(settings, device)
    if check_file(out_dir / "experiment.json"):
        stored = read_experiment(out_dir)
        known = references(read_settings(settings))
        unknown = [named for named in references(stored.plain()) if named not in known]
        allow_code(unknown, out_dir, trusted=trust_code)
        return with_settings(stored, [*_recorded_numerics(out_dir), *typed])
    if not settings:
        raise InputError(f"No run to resume in {out_dir}. Give a file, --preset or --set to start one there.")
    return load_experiment(settings=typed)


def _recorded_numerics(folder: Path) -> list[str]:
    """Return the numerics setting that the run was started with."""
    from refprotofl.records import recorded_numerics

    mode = recorded_numerics(folder)
    return [] if mode is None else [f"numerics={mode}"]
