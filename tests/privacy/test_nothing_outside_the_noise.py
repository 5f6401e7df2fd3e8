"""Private samples are used through the noised path or not at all, and every use is in epsilon."""

import ast
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.tiny import tiny_keys
from torch import Tensor
from torch.nn import functional

import refprotofl
from refprotofl import Experiment
from refprotofl.core.errors import InputError, PrivacyError, RunError
from refprotofl.engines.local.store import CLIENTS
from refprotofl.federation import Callback, run
from refprotofl.federation.resolution import prepare
from refprotofl.federation.simulation import load_federation
from refprotofl.methods import FedAvgClient, FedAvgServer, Releases, Samples, ValidatedMessage, train
from refprotofl.methods.base.cohort import Cohort
from refprotofl.methods.catalogue import find_method
from refprotofl.methods.common import weights
from refprotofl.methods.declaration import SampleUse
from refprotofl.privacy.accounted_client import MEANS, STEPS
from refprotofl.privacy.sealed_samples import PrivateSamples
from refprotofl.records.folder import read_experiment
from refprotofl.records.manifest import read_manifest
from refprotofl.records.state_files import map_state
from refprotofl.wire import Message, decode

pytestmark = pytest.mark.slow

TINY = tiny_keys(clients=3)
SAMPLE = {"unit": "sample", "noise": 1.0}


def tiny(**keys: Any) -> Experiment:
    return Experiment.parse({**TINY, **keys})


def test_thin_learns_nothing_from_samples_under_overwhelming_noise(tmp_path: Path) -> None:
    """Its tuning after the last round is noised, too. Without noise there it had 0.82 of a client's own class mix."""
    experiment = tiny(
        method="thin",
        rounds=1,
        privacy={**SAMPLE, "noise": 50.0},
        evaluate={"every": 1},
        thin={"server-epochs": 0},
        finetune={"epochs": 20},
        **{"train-limit": 300},
    )
    own = run(experiment, out=tmp_path / "run").summary["accuracy"]["own"]
    assert own is not None
    assert own < 0.4


def test_tuning_after_the_last_round_is_in_epsilon(tmp_path: Path) -> None:
    found = [
        run(tiny(method="thin", privacy=SAMPLE, finetune={"epochs": passes}), out=tmp_path / str(passes)).summary[
            "privacy"
        ]["epsilon"]
        for passes in (0, 2, 4)
    ]
    assert all(one is not None for one in found)
    assert found[0] < found[1] < found[2]  # type: ignore[operator]
    rounds = tiny(method="fedavg", rounds=4, privacy=SAMPLE)  # two rounds and two passes: four passes in all
    assert found[1] == run(rounds, out=tmp_path / "fedavg").summary["privacy"]["epsilon"]


PRIVATE_METHODS: list[dict[str, Any]] = [
    {"method": "fedavg", "train": {"batch-size": 16, "local-epochs": 2}},
    {"method": "fedrep", "fedrep": {"head-epochs": 2}},
    {"method": "fedproto"},
    {"method": "fedprotokd"},
    {"method": "thin"},
    {"method": "thin", "train": {"batch-size": 16, "local-steps": 3, "augment": ["crop", "flip"]}},
    {"method": "thin", "public": {"per-class": 2, "train-on": True}},
    {"method": "refprotofl"},
    {"method": "refprotofl", "public": {"per-class": 2, "classes": [0, 1, 2]}},
    {"method": "refprotofl", "public": {"per-class": 2, "classes": [0, 1, 2]}, "refprotofl": {"timing": "post-train"}},
]


@pytest.mark.parametrize("keys", PRIVATE_METHODS)
def test_every_client_did_what_the_accountant_counts(keys: dict[str, Any], tmp_path: Path) -> None:
    """By each client's ledger, against steps counted by hand from its number of samples."""
    experiment = tiny(privacy=SAMPLE, **keys)
    run(experiment, out=tmp_path / "run")
    uses = find_method(experiment.method).planned_uses(read_experiment(tmp_path / "run"))
    public = 20 if experiment.public.train_on else 0
    for client, state in newest_states(tmp_path / "run").items():
        own = sizes(tmp_path / "run")[client]
        steps = means = 0
        for use in uses.values():
            times = 1 if use.closing else experiment.rounds
            steps += times * (use.passes * -(-(own + (0 if use.own else public)) // 16) + use.steps)
            means += times * use.means
        assert (state[STEPS], state[MEANS]) == (steps, means)


def newest_states(folder: Path) -> dict[int, dict[str, Any]]:
    checkpoint = folder / "checkpoint"
    records = read_manifest(checkpoint)["clients"]
    return {int(client): dict(map_state(checkpoint / CLIENTS / one["file"])[0]) for client, one in records.items()}


def sizes(folder: Path) -> list[int]:
    return [len(own) for own in load_federation(read_experiment(folder), None).data.client_indices]


# Methods of a user's own that go round the noise


class _Own:
    """FedAvg with another client."""

    server: Any = FedAvgServer
    releases = Releases(sample=0, client=1)


class OwnLoop(FedAvgClient):
    def train(self, round: int, message: ValidatedMessage) -> Message:
        received = weights.load_shared(self, message)
        logits = self.model(self.model.prepare(self.training_samples().own_inputs))
        functional.cross_entropy(logits, self.samples.own_labels).backward()
        return weights.write_update(self, round, received, self.keep_trained(round))


class BySeat(FedAvgClient):
    def train(self, round: int, message: ValidatedMessage) -> Message:
        return {"shared": self.context.samples.inputs.to(torch.float32).mean() + message.tensor("shared")}


class Rebuilt(FedAvgClient):
    def train(self, round: int, message: ValidatedMessage) -> Message:
        weights.load_shared(self, message)
        plain = Samples(self.samples.inputs, self.samples.labels, self.samples.rows)
        train(self.model, plain, self.experiment.train, self.stream("batches", round))
        return {"shared": self.keep_trained(round)}


class OnTestImages(FedAvgClient):
    """Trains on what it is scored on, which may be samples of its own that were held out."""

    def train(self, round: int, message: ValidatedMessage) -> Message:
        received, test = weights.load_shared(self, message), self.context.test
        plain = Samples(test.inputs, test.labels, torch.arange(len(test.labels)))
        train(self.model, plain, self.experiment.train, self.stream("batches", round))
        return weights.write_update(self, round, received, self.keep_trained(round))


class TwoPasses(FedAvgClient):
    def train(self, round: int, message: ValidatedMessage) -> Message:
        train(self.model, self.samples, self.experiment.train, self.stream("more", round))
        return super().train(round, message)


class OneClient(TwoPasses):
    """At one client of three."""

    def train(self, round: int, message: ValidatedMessage) -> Message:
        return (
            super().train(round, message) if self.context.client_id == 1 else FedAvgClient.train(self, round, message)
        )


class NoPass(FedAvgClient):
    def train(self, round: int, message: ValidatedMessage) -> Message:
        return {"shared": message.tensor("shared") + 1}


class BeforeScoring(FedAvgClient):
    def evaluate(self, round: int, message: ValidatedMessage) -> Message:
        train(self.model, self.samples, self.experiment.train, self.stream("tune", round))
        return super().evaluate(round, message)


class ByLoss(FedAvgClient):
    """Remembers the samples that its loss is shown."""

    def train(self, round: int, message: ValidatedMessage) -> Message:
        received, seen = weights.load_shared(self, message), list[Tensor]()

        def loss(inputs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor | None]:
            seen.append(inputs.detach())
            return functional.cross_entropy(self.model(inputs), labels), None

        train(self.model, self.training_samples(), self.experiment.train, self.stream("batches", round), loss=loss)
        self.state["seen"] = torch.cat([one.flatten() for one in seen]).clone()
        return weights.write_update(self, round, received, self.keep_trained(round))


class AskedTwice(FedAvgServer):
    def round(self, cohort: Cohort) -> None:
        self.join_newcomers(cohort)
        self.shared = weights.averaged_training(self, cohort, self.shared)
        self.shared = weights.averaged_training(self, cohort, self.shared)


def method(client: type[FedAvgClient], **more: Any) -> type:
    return type(client.__name__, (_Own,), {"client": client, "__doc__": "own", **more})


own_loop, by_seat, rebuilt = method(OwnLoop), method(BySeat), method(Rebuilt)
on_test_images, two_passes, no_pass = method(OnTestImages), method(TwoPasses), method(NoPass)
before_scoring, by_loss = method(BeforeScoring), method(ByLoss)
one_client = method(OneClient)
asked_twice = method(FedAvgClient, server=AskedTwice)
pooled = method(FedAvgClient, pooled=True)
longer = method(
    FedAvgClient,
    sample_uses=staticmethod(lambda experiment: {"train": SampleUse(1), "finish": SampleUse(1, closing=True)}),
)


@pytest.mark.parametrize(
    "name",
    [
        "own_loop",
        "by_seat",
        "rebuilt",
        "two_passes",
        "one_client",
        "no_pass",
        "asked_twice",
    ],
)
def test_a_method_that_goes_round_the_noise_stops_the_run(name: str, tmp_path: Path) -> None:
    with pytest.raises(PrivacyError):
        run(tiny(method=f"{__name__}:{name}", privacy=SAMPLE), out=tmp_path / "run")


def test_what_a_client_is_scored_on_is_not_there_to_train_on(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no client is left"):
        run(tiny(method=f"{__name__}:on_test_images", privacy=SAMPLE), out=tmp_path / "run")


def test_training_before_scoring_is_not_scored(tmp_path: Path) -> None:
    with pytest.raises(PrivacyError):
        run(tiny(method=f"{__name__}:before_scoring", privacy=SAMPLE), out=tmp_path / "run")


def test_a_loss_cannot_keep_the_samples_that_it_is_shown(tmp_path: Path) -> None:
    with pytest.raises(Exception, match=r"no client is left|guard"):
        run(tiny(method=f"{__name__}:by_loss", privacy=SAMPLE), out=tmp_path / "run")


@pytest.mark.parametrize("name", ["by_seat", "rebuilt", "on_test_images", "two_passes", "before_scoring", "by_loss"])
def test_without_privacy_such_methods_are_as_good_as_any(name: str, tmp_path: Path) -> None:
    run(tiny(method=f"{__name__}:{name}"), out=tmp_path / "run")


@pytest.mark.parametrize(("name", "reason"), [("pooled", "all clients' samples"), ("longer", "depends_on_rounds")])
def test_what_cannot_be_accounted_for_is_refused_before_the_run(name: str, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        prepare(tiny(method=f"{__name__}:{name}", privacy=SAMPLE))


@pytest.mark.parametrize("kind", ["labelflip", "backdoor", "alie"])
def test_hostile_clients_train_with_noise_as_well(kind: str, tmp_path: Path) -> None:
    keys: dict[str, Any] = {"method": "fedavg", "attack": {"kind": kind, "fraction": 0.67}}
    run(tiny(privacy=SAMPLE, rounds=1, **keys), out=tmp_path / "run")


def test_sealed_samples_reveal_their_number_and_nothing_else() -> None:
    plain = Samples(torch.zeros(4, 1, 2, 2, dtype=torch.uint8), torch.arange(4), torch.arange(3))
    sealed = PrivateSamples(plain, None)  # type: ignore[arg-type]
    assert len(sealed) == 3
    assert len(sealed.joined(plain.inputs[:2], plain.labels[:2])) == 5
    for name in ("inputs", "labels", "rows", "own_inputs", "own_labels"):
        with pytest.raises(PrivacyError, match="train"):
            getattr(sealed, name)
    with pytest.raises(PrivacyError):
        sealed.inputs_of(torch.arange(1))
    with pytest.raises(PrivacyError):
        sealed.relabelled(torch.arange(3))


def test_only_the_noised_paths_open_private_samples() -> None:
    """By name, in the package: training, class means, where a context finds its noise, attacks, the list of names."""
    root = Path(refprotofl.__file__).parent
    found = {str(file.relative_to(root)) for file in root.rglob("*.py") if "open_samples" in names_in(file)}
    assert found == {
        "federation/attackers.py",
        "methods/common/prototypes.py",
        "methods/base/client.py",
        "privacy/__init__.py",
        "privacy/sealed_samples.py",
        "methods/base/training.py",
    }


def names_in(file: Path) -> set[str]:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names}
    defined = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    used = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    return imported | defined | used


# Clients as a whole

CLIENT = {"unit": "client", "noise": 1.0}


class OwnMean(FedAvgServer):
    """Averages as it likes, and not by its rule."""

    def round(self, cohort: Cohort) -> None:
        self.join_newcomers(cohort)
        answers = self.ask(cohort, "train", {"shared": self.shared}, lambda client, answer: answer.tensor("shared"))
        self.shared = torch.stack([trained for _, trained in answers]).mean(dim=0)


own_mean = method(FedAvgClient, server=OwnMean)


@pytest.mark.parametrize(("name", "reason"), [("own_mean", "made no noised sum"), ("asked_twice", "a second sum")])
def test_a_server_makes_one_noised_sum_a_round(name: str, reason: str, tmp_path: Path) -> None:
    with pytest.raises(PrivacyError, match=reason):
        run(tiny(method=f"{__name__}:{name}", privacy=CLIENT), out=tmp_path / "run")


def test_what_clients_tune_for_themselves_stays_with_them(tmp_path: Path) -> None:
    """Under client privacy tuning needs no noise: its answer is empty."""
    sent: dict[str, set[str]] = {}

    class Seen(Callback):
        def on_message(self, direction: str, phase: str, client: int, round: int, data: bytes, purpose: str) -> None:
            if direction == "up" and purpose == "training":
                sent.setdefault(phase, set()).update(decode(data))

    run(tiny(method="thin", privacy=CLIENT, finetune={"epochs": 1}), out=tmp_path / "run", callback=Seen())
    assert sent["finetune"] == set()


# Statistics of the images


@pytest.mark.parametrize("unit", ["sample", "client"])
def test_a_users_own_images_are_not_normalised_by_private_statistics(unit: str, tmp_path: Path) -> None:
    """One client's images become brighter: nothing that all clients share may change by it."""
    found = []
    for bright in (False, True):
        file = tmp_path / f"{bright}.npz"
        own_inputs(file, bright)
        keys: dict[str, Any] = {"dataset": str(file), "train-limit": 0, "method": "fedavg"}
        experiment = tiny(**keys, privacy={"unit": unit, "noise": 1.0}, public={"per-class": 0})
        found.append(load_federation(experiment, None).experiment.known_input)
        plain = load_federation(tiny(**keys, public={"per-class": 0}), None).experiment.known_input
        assert plain.mean != found[-1].mean
    assert found[0] == found[1]


def own_inputs(file: Path, bright: bool) -> None:
    draw = np.random.default_rng(0)
    images, labels = draw.integers(0, 200, (120, 8, 8), dtype=np.uint8), np.arange(120) % 3
    if bright:
        images[:40] += 50
    np.savez(file, x_train=images, y_train=labels, x_test=images[:30], y_test=labels[:30])
