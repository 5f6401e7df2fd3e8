"""The audit of finished runs: every attack on each run, and one table of all."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from refprotofl.core import InputError, one_compute_thread, percent
from refprotofl.experiment import Experiment
from refprotofl.export.trained_model import load_trained, read_committed
from refprotofl.federation import Federation, load_federation, spent_after
from refprotofl.inputs import IMAGE
from refprotofl.models import SplitModel
from refprotofl.privacy import Spent, create_mechanism, epsilon_cell, epsilon_meaning
from refprotofl.report import Entry, Table
from refprotofl.studies.audit.inversion import Rebuilt, mean_images, rebuild, summed_up
from refprotofl.studies.audit.membership import Bounded, MembershipScores, calibrated, confidence, over_clients

ATTACKS = {
    "loss": "confidence of the client's own model in the true class, which orders samples as the loss does",
    "calibrated": "the same, standardised by the confidence of the other clients' models (offline LiRA)",
}


@dataclass(frozen=True)
class Audited:
    """One run under every attack."""

    folder: Path
    experiment: Experiment
    spent: Spent | None
    accuracy: float | None  # personal
    membership: dict[str, tuple[Bounded, Bounded]]  # AUC and true-positive rate, by attack
    inversion: dict[int, Rebuilt]  # by samples behind a prototype


def audit(folder: Path, data: Path | None, most_clients: int, trust_code: bool = False) -> Audited:
    """Attack the first `most_clients` clients of a run at its last committed round."""
    experiment, manifest = read_committed(folder)
    if experiment.clients < 2:
        raise InputError(f"{folder} has a single client: the calibrated attack needs the models of others.")
    with one_compute_thread():
        federation = load_federation(experiment, data)
        models = [load_trained(folder, client, trust_code).model for client in range(experiment.clients)]
        attacked = range(min(most_clients, experiment.clients))
        scores = [_membership(federation, models, client) for client in attacked]
        scored = manifest["progress"]["accuracy"]
        return Audited(
            folder=folder,
            experiment=experiment,
            spent=spent_after(federation, manifest["progress"]["round"]),
            accuracy=scored["accuracy"]["personal"] if scored else None,
            membership={name: over_clients([one[name] for one in scores], experiment.seed) for name in ATTACKS},
            inversion=_inversion(federation, models, attacked),
        )


def _membership(federation: Federation, models: Sequence[SplitModel], client: int) -> dict[str, MembershipScores]:
    data = federation.client(client)
    groups = (
        (data.samples.own_inputs, data.samples.own_labels),
        (data.test.inputs[data.test.own], data.test.labels[data.test.own]),
    )
    scores = [[confidence(model, *group) for model in models] for group in groups]
    own = [one[client] for one in scores]
    apart = [calibrated(one[client], [*one[:client], *one[client + 1 :]]) for one in scores]
    return {"loss": MembershipScores(*own), "calibrated": MembershipScores(*apart)}


def _inversion(federation: Federation, models: Sequence[SplitModel], clients: Sequence[int]) -> dict[int, Rebuilt]:
    experiment = federation.experiment
    if experiment.known_input.kind != IMAGE:  # it searches for pixels
        return {}
    guesses = mean_images(federation.test_inputs, federation.test_labels, experiment.known_input.num_classes)
    rebuilt = [
        rebuild(models[client], federation.client(client).samples, guesses, create_mechanism(experiment))
        for client in clients
    ]
    return summed_up([one for some in rebuilt for one in some])


def tabulated(audits: Sequence[Audited], names: Sequence[str]) -> Table:
    """Return a table with a row for each run."""
    sizes = sorted({size for one in audits for size in one.inversion})
    headings = ["run", "epsilon", "personal"]
    headings += [f"{attack}: {what}" for attack in ATTACKS for what in ("AUC", "TPR at 1 % FPR")]
    headings += [f"reconstruction from {size}" for size in sizes]
    notes = [f"{attack}: {line}" for attack, line in ATTACKS.items()]
    notes += [
        "AUC: 0.5 is chance; TPR at 1 % FPR: share of members found at a false-positive rate of 1 %; with 95 % "
        "intervals over clients",
        "reconstruction from n: correlation of the image found from a prototype of n samples with these samples, "
        "in brackets that of the class's mean test image; then that of their differences to the mean image",
    ]
    notes += dict.fromkeys(f"epsilon: {epsilon_meaning(one.spent)}" for one in audits if one.spent is not None)
    return Table(
        name="audit",
        title="Attacks with every client's model",
        headings=tuple(headings),
        rows=tuple(_row(name, one, sizes) for name, one in zip(names, audits, strict=True)),
        records=tuple(_record(name, one) for name, one in zip(names, audits, strict=True)),
        notes=tuple(notes),
        about={"runs": [str(one.folder) for one in audits]},
    )


def _row(name: str, one: Audited, sizes: Sequence[int]) -> tuple[Entry, ...]:
    cells = [name, "-" if one.spent is None else epsilon_cell(one.spent), percent(one.accuracy)]
    for area, found in one.membership.values():
        cells += [f"{area.value:.3f} ({area.low:.3f} to {area.high:.3f})"]
        cells += [f"{percent(found.value)} ({100 * found.low:.1f} to {100 * found.high:.1f})"]
    for size in sizes:
        rebuilt = one.inversion.get(size)
        cells.append(
            "-" if rebuilt is None else f"{rebuilt.correlation:.2f} ({rebuilt.guessed:.2f}), {rebuilt.beyond:.2f}"
        )
    return tuple(Entry(cell) for cell in cells)


def _record(name: str, one: Audited) -> dict[str, Any]:
    record: dict[str, Any] = {"run": name, "method": one.experiment.method, "personal": one.accuracy}
    spent = one.spent
    for key in ("unit", "relation", "epsilon", "delta"):
        record[key] = None if spent is None else spent[key]
    for attack, bounds in one.membership.items():
        for what, found in zip(("auc", "found"), bounds, strict=True):
            record |= {f"{attack}_{what}{end}": value for end, value in _ends(found).items()}
    for size, rebuilt in one.inversion.items():
        record |= {
            f"rebuilt_{size}_correlation": rebuilt.correlation,
            f"rebuilt_{size}_psnr": rebuilt.psnr,
            f"guessed_{size}_correlation": rebuilt.guessed,
            f"beyond_{size}_correlation": rebuilt.beyond,
        }
    return record


def _ends(found: Bounded) -> dict[str, float]:
    return {"": found.value, "_low": found.low, "_high": found.high}
