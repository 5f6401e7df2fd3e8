"""Resuming the run in a folder: whether it may be used, and from which checkpoint it continues."""

from collections.abc import Callable
from pathlib import Path

from refprotofl.core import DataError, InputError
from refprotofl.engines import check_state, remove_others
from refprotofl.experiment import Experiment
from refprotofl.federation.callbacks import Callback
from refprotofl.federation.loop import put_back
from refprotofl.federation.provenance import refuse_changed
from refprotofl.federation.server_side import ServerSide
from refprotofl.methods import depends_on_rounds, find_method
from refprotofl.records import Busy, Checkpoint, RunFolder, Summary, check_experiment, go_back, is_longer
from refprotofl.records.manifest import kept_name
from refprotofl.records.rollback import choose


def open_run(
    folder: RunFolder,
    experiment: Experiment,
    resume: bool,
    data_dir: Path | None,
    from_round: int | None,
    alike: Callable[[Experiment, Experiment], Experiment],
) -> Summary | None:
    """Open the folder, if it may be used for this experiment, and return the summary if the run in it is finished.

    `alike` fills the experiment in as the stored one was.
    """
    stored = folder.open(resume)
    if stored is None:
        if from_round is not None:
            raise InputError(f"--from-round {from_round} goes back in a run, but there is none in {folder.path}.")
        return None
    wanted = alike(experiment, stored)
    longer = is_longer(stored, wanted)
    if longer:
        refuse_dependent(folder, stored, wanted)
    else:
        folder.refuse_other(stored, wanted)
    refuse_changed(folder.path, stored, data_dir, experiment.numerics)
    return None if longer or from_round is not None else folder.read_summary()


def refuse_dependent(folder: RunFolder, stored: Experiment, wanted: Experiment) -> None:
    """Refuse more rounds where the first ones depend on their number; elsewhere they end as if planned."""
    if depends_on_rounds(stored):
        raise InputError(
            f"The run in {folder.path} was planned for rounds = {stored.rounds} and cannot be extended to "
            f"{wanted.rounds}: {_fixed_by(stored)}. Use another --out."
        )


def _fixed_by(stored: Experiment) -> str:
    """Return why the number of rounds is fixed."""
    if find_method(stored.method).depends_on_rounds:
        return f"each round of method = {stored.method!r} depends on the number of all rounds"
    if stored.train.depends_on_rounds:
        return f'train.schedule = "{stored.train.schedule}" depends on the number of all rounds'
    if stored.stop.enabled and not stored.finetune.passes:
        return "the evaluations that [stop] decides by depend on it, unless evaluate.every is a number"
    return "its clients were fine-tuned after the last round ([finetune])"


def rollback(folder: RunFolder, experiment: Experiment, from_round: int | None, callback: Callback) -> None:
    """Return the folder to the checkpoint that the run resumes from, with a note if that is not the newest."""
    chosen = choose(folder, from_round, check_state)
    if not chosen.manifest:
        return
    check_experiment(folder.path, experiment, chosen.manifest)
    if not chosen.reason:
        return
    done = go_back(folder, chosen)
    round = chosen.manifest["progress"]["round"]
    if done is not None:
        why = "" if from_round is not None else f"{chosen.reason} "
        callback.on_note(
            f"{why}The run resumes after round {round}, not {done['before']}; the events of later rounds are in "
            f"{done['events']}."
        )
    elif from_round is None:
        callback.on_note(f"{chosen.reason} Its copy, {kept_name(round)}, is whole and was put in its place.")


def restore(side: ServerSide, checkpoint: Checkpoint) -> None:
    """Restore the server's state of the last committed round, if there is one."""
    try:
        put_back(side.server, checkpoint)
    except (LookupError, TypeError, ValueError, AttributeError, RuntimeError) as problem:
        raise DataError(
            f"The server's state in {checkpoint.folder} does not fit the experiment ({problem}); is it of another run?"
        ) from None


def keep_last_round(path: Path) -> None:
    """Remove the states of all rounds but the last from a finished run, unless another process is using it."""
    folder = RunFolder(path)
    try:
        experiment = folder.open(resume=True)
        if experiment is None or folder.read_summary() is None:
            return
        checkpoint = Checkpoint(folder.checkpoint, [""] * experiment.clients)
        remove_others(folder.checkpoint, checkpoint.records.values())
    except Busy:
        return
    finally:
        folder.close()
