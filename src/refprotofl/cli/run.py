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
    Settings,
    TrustCode,
    Workers,
    app,
    nothing_kept_yet,
    read_path,
)
from refprotofl.cli.output import complain, emit, notes, out, say
from refprotofl.cli.report import Port, report_beside
from refprotofl.core import numerics
from refprotofl.core.errors import InputError
from refprotofl.core.escaping import for_file_name, for_terminal
from refprotofl.core.units import counted, read_whole

if TYPE_CHECKING:
    from refprotofl.experiment import Experiment
    from refprotofl.federation.session import RunResult
    from refprotofl.federation.session import Workers as Count
    from refprotofl.records.summary import Summary


@app.command(
    epilog="Example: refprotofl run --preset small --set dataset=fashion-mnist --set refprotofl.keep=0.05 --out runs/a"
)
def run(
    file: File = None,
    preset: Preset = None,
    settings: Settings = None,
    out_dir: Annotated[
        Path | None,
        typer.Option("--out", parser=read_path, metavar="DIR", help="The run folder; a new one under runs/ else."),
    ] = None,
    data: DataDir = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the run in --out; --set rounds=… makes it longer.")
    ] = False,
    from_round: Annotated[
        int | None,
        typer.Option(
            "--from-round", metavar="N", min=1, help="With --resume: go back to round N, one of the last that are kept."
        ),
    ] = None,
    trust_code: TrustCode = False,
    workers: Workers = "auto",
    device: Device = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
    baseline: Annotated[
        str | None,
        typer.Option(
            help="Also run this method, such as local, on the same data, and show it beside.", metavar="METHOD"
        ),
    ] = None,
    reported: Annotated[
        bool, typer.Option("--report", help="Write the report page into the run folder at the end.")
    ] = False,
    watched: Annotated[
        bool, typer.Option("--watch", help="Serve the report page on this machine meanwhile; prints the address.")
    ] = False,
    port: Port = 0,
    opened: Annotated[bool, typer.Option("--open", help="With --watch: open the page in a browser.")] = False,
) -> None:
    """Run an experiment, or go on with one. Neither file nor preset means --preset quick.

    A finished run of local on the same data, beside this one's folder, is shown beside its numbers.
    """
    with nothing_kept_yet():
        count = read_workers(workers)
        if resume and out_dir is None:
            raise InputError("--resume needs --out with the folder of the run to go on with.")
        if from_round is not None and not resume:
            raise InputError("--from-round goes back in a run that is there: it needs --resume and --out.")
        if resume and out_dir is not None and file is None and preset is None:
            experiment = _resumed(out_dir, settings or [], device, trust_code)
        else:
            experiment = _named(file, preset, settings or [], device)
        _check_method(baseline)
        numerics.apply(experiment.numerics)
        from refprotofl.cli.progress import ProgressCallback, print_summary
        from refprotofl.federation.session import default_folder
        from refprotofl.federation.session import run as run_experiment

    folder = out_dir or default_folder(experiment)
    callback = ProgressCallback(notes)
    beside_it = _watch(folder, port, opened) if watched else nullcontext()
    try:
        with beside_it:
            finished = run_experiment(
                experiment,
                out=folder,
                data=data,
                workers=count,
                resume=resume,
                from_round=from_round,
                callback=callback,
            )
    except KeyboardInterrupt:
        _tell_what_is_kept(folder, data, experiment)
        raise typer.Exit(INTERRUPTED) from None
    beside = _beside(finished, baseline, data, count, experiment.numerics)
    if as_json:
        emit(json.dumps(finished.summary, indent=2) + "\n")
    else:
        print_summary(out, finished.summary, finished.folder, beside)
    if reported:
        report_beside([finished.folder], finished.folder / "report.html", data)


def _watch(folder: Path, port: int, opened: bool) -> "AbstractContextManager[object]":
    """The page of the run that is about to begin, for as long as it takes."""
    from refprotofl.report.live.web_server import Beside

    beside = Beside(folder, port)
    say(f"Watch at {beside.address}", notes)
    if opened:
        webbrowser.open(beside.address)
    return closing(beside)


def _named(file: Path | None, preset: str | None, settings: list[str], device: str | None) -> "Experiment":
    from refprotofl.experiment.presets import load_experiment

    return load_experiment(file, preset, with_device(settings, device))


def _check_method(name: str | None) -> None:
    """Before anything is run: a name that is none."""
    from refprotofl.methods.catalogue import find_method

    if name is not None:
        find_method(name)


def _beside(
    finished: "RunResult", method: str | None, data: Path | None, workers: "Count", mode: numerics.Mode
) -> "tuple[str, Summary] | None":
    """What to read the run's numbers by: the method that was asked for, or training alone where that was run before."""
    from refprotofl.cli.progress import ProgressCallback
    from refprotofl.experiment import Experiment
    from refprotofl.federation.session import run as run_experiment
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


def _tell_what_is_kept(folder: Path, data: Path | None, experiment: "Experiment") -> None:
    from refprotofl.records.manifest import read_manifest

    if not (folder / "experiment.json").exists():
        complain(NOTHING_KEPT)
        return
    manifest = read_manifest(folder / "checkpoint")
    done = manifest["progress"]["round"] if manifest else 0
    kept = f"{done} of {counted(experiment.rounds, 'round')}" if done else "the experiment, but no round yet"
    say(f"Kept in {for_terminal(folder)}: {kept}.", notes)
    complain(f"Interrupted. Go on with: {_go_on(folder, data, experiment)}")


def _go_on(folder: Path, data: Path | None, experiment: "Experiment") -> str:
    """The command that resumes, ready to be pasted; the code that the user has just run is theirs."""
    from refprotofl.core.user_code import references

    place = [] if data is None else ["--data", str(data)]
    trust = ["--trust-code"] if references(experiment.plain()) else []
    return shlex.join(["refprotofl", "run", "--resume", "--out", str(folder), *place, *trust])


def read_workers(text: str) -> "Count":
    if text == "auto":
        return "auto"
    number = read_whole(text)
    if not number:
        raise InputError(f"--workers {text}: allowed are auto or a whole number of at least 1.")
    return number


def _resumed(out_dir: Path, settings: list[str], device: str | None, trust_code: bool) -> "Experiment":
    """The experiment of the run in `out_dir`, with what was typed over it; where there is none, a new one."""
    from refprotofl.core.user_code import references, refuse_code
    from refprotofl.experiment.presets import load_experiment, read_settings, with_settings
    from refprotofl.records.folder import read_experiment
    from refprotofl.records.safe_io import check_file

    typed = with_device(settings, device)
    if check_file(out_dir / "experiment.json"):
        stored = read_experiment(out_dir)
        known = references(read_settings(settings))
        unknown = [named for named in references(stored.plain()) if named not in known]
        refuse_code(unknown, out_dir, trusted=trust_code)
        return with_settings(stored, [*_recorded_numerics(out_dir), *typed])
    if not settings:
        raise InputError(f"There is no run in {out_dir} to go on with. A file, --preset or --set starts one there.")
    return load_experiment(settings=typed)


def _recorded_numerics(folder: Path) -> list[str]:
    """Return the setting under which the run goes on as it began."""
    from refprotofl.records.manifest import recorded_numerics

    mode = recorded_numerics(folder)
    return [] if mode is None else [f"numerics={mode}"]


def with_device(settings: list[str], device: str | None) -> list[str]:
    """The settings with what --device says, which wins."""
    return settings if device is None else [*settings, f"device={device}"]
