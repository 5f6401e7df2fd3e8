"""A run over nodes that keep their data: the server's part."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

from refprotofl.core import InputError, devices
from refprotofl.data import load_server_data, overlaps
from refprotofl.deploy.engine import DEADLINE, DeploymentEngine
from refprotofl.deploy.finals import FinalPart
from refprotofl.deploy.fleet import Fleet
from refprotofl.deploy.registry import NodeRegistry, Place
from refprotofl.deploy.server_side import server_side, shared_test
from refprotofl.deploy.status import StatusCallback
from refprotofl.deploy.transport import Transport
from refprotofl.engines import Record
from refprotofl.experiment import Experiment
from refprotofl.federation import RunResult, Setup, count_steps, run_session
from refprotofl.federation.resolution import resolve_apart
from refprotofl.methods import Server, find_method
from refprotofl.privacy import Spent, create_mechanism
from refprotofl.records import Checkpoint, RunFolder, seen_from
from refprotofl.records.events import read_events
from refprotofl.wire import encode


@dataclass(frozen=True)
class Settings:
    experiment: Experiment
    out: Path
    data: Path | None = None


def deploy(
    transport: Transport, settings: Settings, place: Place, progress: StatusCallback, final: Path | None = None
) -> RunResult:
    """Run an experiment over nodes, or resume the run that is in the folder after its last committed round.

    `final`: the file for the shared part after the last round.
    """
    deployment = Deployment(transport, settings.out, settings.data, place, progress, final)
    return run_session(deployment, settings.experiment, RunFolder(settings.out), settings.data, progress)


@dataclass(frozen=True)
class Deployment:
    """A deployment, as a session runs it (`session.Runtime`)."""

    transport: Transport
    folder: Path
    data_dir: Path | None
    place: Place
    progress: StatusCallback
    final: Path | None = None
    resume_hint: str = DeploymentEngine.info.resume_hint

    def check(self, experiment: Experiment) -> None:
        refuse_undeployable(experiment)

    def resolve_alike(self, experiment: Experiment, stored: Experiment) -> Experiment:
        return resolve_apart(experiment, stored)

    def set_up(self, experiment: Experiment, device: torch.device, note: Callable[[str], None]) -> Setup:
        apart = load_server_data(experiment, self.data_dir, seen_from(self.folder))
        for sentence in overlaps(apart):
            note(sentence)
        side = server_side(experiment, apart, device)
        experiment = side.experiment
        if experiment.privacy.unit == "sample":
            note("Noise comes from the nodes' own entropy: the digests of this run do not repeat.")
        registry = NodeRegistry(self.folder, experiment.clients, self.place)
        fleet = Fleet(self.transport, registry, experiment.carried(), shared_test(apart, experiment), self.progress)

        def open_engine(checkpoint: Checkpoint) -> DeploymentEngine:
            engine = DeploymentEngine(self.transport, fleet, self.progress, checkpoint.records, checkpoint.kept_records)
            registry.keep()
            return engine

        return Setup(
            side=side,
            open_engine=open_engine,
            steps=steps,
            workers=experiment.clients,
            device=devices.describe(device, 1),
            spent=partial(self._spent, experiment),
            run_id=registry.run,
            wait=lambda: fleet.gather(experiment.deadline or DEADLINE, experiment.min_replies),
            finished=lambda server, records, round: self._write_final(registry.run, server, records, round),
            presence=lambda: fleet.presence(experiment.deadline or DEADLINE),
        )

    def _spent(self, experiment: Experiment, server: Server, rounds: int) -> Spent | None:
        """Return the privacy spent: a client counts as asked in a round that is not on record yet."""
        asked: Counter[int] = Counter()
        for event in read_events(self.folder) if rounds else ():
            if event["event"] == "round" and event["round"] < rounds:
                asked.update(event["asked"])
        asked.update(range(experiment.clients))
        joined = [(int(size), asked[client]) for client, size in enumerate(server.samples) if size]
        if not joined:
            return None
        sizes, participations = zip(*joined, strict=True)
        return create_mechanism(experiment).spent(rounds, sizes, participations)

    def _write_final(self, run: str, server: Server, records: Mapping[int, Record], round: int) -> None:
        if self.final is None:
            return
        experiment = server.experiment
        states = {str(client): str(record["digest"]) for client, record in records.items()}
        shared = encode(server.evaluation(), experiment.value_code)
        FinalPart(run, round, experiment.clients, experiment.carried(), states, shared).write(self.final)


def refuse_undeployable(experiment: Experiment) -> None:
    reason = find_method(experiment.method).simulation_only
    if reason:
        raise InputError(f"method = {experiment.method!r} is for simulation only: {reason}.")
    if experiment.attack.kind != "none":
        raise InputError(f"attack.kind = {experiment.attack.kind!r} is for simulation only: leave attack out.")
    privacy = create_mechanism(experiment)
    if privacy.simulation_only:
        raise InputError(f"{privacy.setting} is for simulation only: {privacy.simulation_only}.")
    if experiment.stop.enabled:
        raise InputError("[stop] is for simulation only: nodes hold out samples for scoring alone.")
    if experiment.validation:
        raise InputError(
            f"validation = {experiment.validation:g} is for simulation only: leave it out. What a node holds out "
            "of its samples is up to its owner (hold-out in its config)."
        )
    if experiment.data.statistics == "clients":
        raise InputError(
            'data.statistics = "clients" is for simulation only: leave it out. A deployment takes means, deviations '
            "and vocabulary from public.dataset, test.dataset or [input]."
        )
    if experiment.partition == "natural":
        raise InputError('partition = "natural" is for simulation only: set clients to the number of nodes instead.')


def steps(server: Server, clients: Sequence[int], closing: Sequence[int]) -> int | None:
    """Return the optimiser steps of a round, by the numbers of samples that the clients joined with.

    None if a number is unknown: not all methods ask for it.
    """
    sizes = [int(server.samples[client]) for client in clients]
    if 0 in sizes:
        return None
    experiment = server.experiment
    public = len(server.public) if server.public is not None and experiment.public.train_on else 0
    return count_steps(experiment, sizes, [int(server.samples[client]) - public for client in closing])
