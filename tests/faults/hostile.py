"""One hostile client of six in whole runs: what it sends, and how the honest clients fare."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from tests.altering import Altered
from torch import Tensor

from refprotofl.engines.engine import Engine, Request, Result
from refprotofl.experiment import Experiment
from refprotofl.federation import run
from refprotofl.federation.local_run import OpenEngine, Site, open_engine
from refprotofl.methods import METHODS
from refprotofl.methods.base.schema import is_lost
from refprotofl.methods.builtin.thin import entropy_code
from refprotofl.methods.catalogue import find_method
from refprotofl.records.folder import read_events
from refprotofl.wire import Message, Sparse, WireError, decode, encode

ATTACKER = 1
ROUNDS = 6
SETTING: dict[str, Any] = {
    **{"dataset": "digits", "clients": 6, "rounds": ROUNDS, "min-size": 10, "alpha": 1.0},
    **{"public": {"per-class": 5}, "train": {"batch-size": 32, "lr": 0.1}},
    **{"evaluate": {"every": ROUNDS, "test-limit": 200}, "model": {"name": "mlp", "norm": "none", "embedding": 16}},
}
ROBUST = ("median", "trimmed", "clipped", "geometric-median")
RULES = ("mean", *ROBUST)
SPARED = ("join", "evaluate")  # what the attacker answers as others do

BRIEF = {"pretrain": 1, "server-epochs": 1}
BACKBONES = """
from torch import nn

def small(shape):
    return nn.Sequential(nn.Flatten(), nn.Linear(shape[0] * shape[1] * shape[2], 24), nn.ReLU())

def frozen(shape):
    return small(shape).requires_grad_(False)
"""
OWN_BACKBONES = {"fedpcl": "frozen", "thin": "small"}  # FedPCL asks for one that is not trained; thin codes all weights
SMALL = 64 * 24 + 24 + 24 * 16 + 16 + 16 * 10 + 10  # parameters of the small model

# Every method with clients that send something, and the forms in which changes are sent.
VARIANTS: dict[str, dict[str, Any]] = {
    name: {"method": name, "share": "adapter"} for name in METHODS if name not in ("centralised", "local")
} | {
    "refprotofl, post-train": {"method": "refprotofl", "refprotofl": {"timing": "post-train"}},
    "refprotofl, int8": {"method": "refprotofl", "refprotofl": {"value-type": "int8"}},
    "refprotofl, bfloat16": {"method": "refprotofl", "refprotofl": {"value-type": "bfloat16"}},
    "fedavg, full": {"method": "fedavg", "share": "full"},
    "fedavg, qsgd": {"method": "fedavg", "share": "adapter", "compress": {"name": "qsgd"}},
    "fedavg, qsgd 4": {"method": "fedavg", "share": "adapter", "compress": {"name": "qsgd", "bits": 4}},
    "fedavg, eden": {
        "method": "fedavg",
        "share": "adapter",
        "compress": {"name": "eden", "bits": 1, "downlink": "same"},
    },
    "fedavg, stc": {"method": "fedavg", "share": "adapter", "compress": {"name": "stc"}},
    "fedavg, top-k": {"method": "fedavg", "share": "adapter", "compress": {"name": "top-k"}},
    "fedavg, ef21": {"method": "fedavg", "share": "adapter", "compress": {"name": "ef21"}},
    "feddf, logits": {"method": "feddf", "feddf": {"upload": "logits"}},
    "thin": {"method": "thin", "thin": BRIEF},
    "thin, rotated": {"method": "thin", "thin": {"code": "rotated", **BRIEF}},
    "thin, sparse": {"method": "thin", "thin": {"code": "sparse", **BRIEF}},
}
MASKING = ("top-k", "stc")  # refused together with a median of coordinates

Change = Callable[[Message, Tensor | None], Message]  # of an honest answer, with the shared vector that was broadcast


def on_numbers(change: Callable[[Tensor], Tensor]) -> Change:
    """Alters every floating-point tensor of an answer."""

    def altered(value: Any) -> Any:
        if isinstance(value, Sparse) and value.values.is_floating_point():
            return Sparse(value.indices, change(value.values), value.size)
        return change(value) if isinstance(value, Tensor) and value.is_floating_point() else value

    return lambda answer, _: {name: altered(value) for name, value in answer.items()}


def filled(number: float) -> Change:
    return on_numbers(lambda value: torch.full_like(value, number))


def times(factor: float) -> Change:
    return on_numbers(lambda value: value * factor)


def change_times(factor: float) -> Change:
    """Multiplies the change from the broadcast where weights are sent, and the numbers themselves elsewhere."""

    def scaled(answer: Message, broadcast: Tensor | None) -> Message:
        found = dict(times(factor)(answer, None))
        for name, value in answer.items():
            if name not in ("shared", "adapter") or broadcast is None:
                continue
            if isinstance(value, Sparse):
                before = broadcast[value.indices]
                found[name] = Sparse(value.indices, before + factor * (value.values - before), value.size)
            elif isinstance(value, Tensor):
                found[name] = broadcast + factor * (value - broadcast)
        return found

    return scaled


def forged(answer: Message, _: Tensor | None) -> Message:
    """Every symbol of a code at its edge, every scale 90 times as large."""
    code, scales = answer.get("code"), answer.get("scales")
    if isinstance(code, Tensor) and isinstance(scales, Tensor) and len(scales) == entropy_code.SCALES:
        coded = entropy_code.encode_entropy(torch.full((SMALL,), 127 * float(scales[0])), len(code))
        return {**answer, "code": coded.code, "scales": coded.scales * 90}

    def forge(name: str, value: Any) -> Any:
        if isinstance(value, Sparse):
            edge = torch.full_like(value.values, 127) if value.values.dtype == torch.int8 else 90 * value.values
            return Sparse(value.indices, edge, value.size)
        if isinstance(value, float):
            return 90 * value
        if not isinstance(value, Tensor) or name in ("classes", "counts", "places"):
            return value
        if value.is_floating_point():
            return value * 90
        return torch.full_like(value, {torch.uint8: 0x77, torch.int8: 127}.get(value.dtype, 1))

    return {name: forge(name, value) for name, value in answer.items()}


ATTACKS: dict[str, tuple[Change, int]] = {  # and the round that it begins in
    "1e8": (filled(1e8), 1),
    "1e15": (filled(1e15), 1),
    "1e30": (filled(1e30), 1),
    "-50 times": (times(-50), 1),
    "-99 times": (times(-99), 1),
    "change times -50": (change_times(-50), 1),
    "change times -99": (change_times(-99), 1),
    "forged codes": (forged, 1),
    "sleeper, 1e8": (filled(1e8), ROUNDS * 2 // 3 + 1),
    "sleeper, -99 times": (times(-99), ROUNDS * 2 // 3 + 1),
}


class Attacker:
    """Alters the attacker's answers from some round on."""

    def __init__(self, change: Change | None, start: int) -> None:
        self._change, self._start = change, start
        self._broadcast: Tensor | None = None

    def alter(self, request: Request, result: Result) -> Result:
        if request.client != ATTACKER or request.verb in SPARED or request.round < self._start:
            return result
        message = decode(request.payload)
        sent = message.get("shared", message.get("adapter"))
        self._broadcast = sent if isinstance(sent, Tensor) else self._broadcast
        if not result.payload or is_lost(decode(result.payload)):
            return result
        if self._change is None:
            return Result(code="failed")
        try:
            payload = encode(self._change(decode(result.payload), self._broadcast))
        except WireError:
            payload = b"\xff" * 32
        return dataclasses.replace(result, payload=payload)


def hostile(change: Change | None, start: int = 1) -> OpenEngine:
    """An engine whose attacker alters its answers; with no change it does not answer at all."""

    def opened(site: Site) -> Engine:
        return Altered(open_engine(site), Attacker(change, start).alter)

    return opened


def follows_rules(variant: str) -> bool:
    return find_method(VARIANTS[variant]["method"]).server.averages


def is_allowed(variant: str, aggregator: str) -> bool:
    masking = VARIANTS[variant].get("compress", {}).get("name") in MASKING
    return aggregator == "mean" or (follows_rules(variant) and not (masking and aggregator in ("median", "trimmed")))


def experiment_of(variant: str, aggregator: str, **more: Any) -> Experiment:
    robust = {} if aggregator == "mean" else {"aggregate": aggregator, "min-senders": 3}
    own = OWN_BACKBONES.get(VARIANTS[variant]["method"])
    model = SETTING["model"] | ({"name": f"backbones_under_attack:{own}"} if own else {})
    return Experiment.parse({**SETTING, **VARIANTS[variant], **robust, "model": model, **more})


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The course of a run: why it ended early, dropped clients with reasons, and the honest clients' mean accuracy."""

    stopped: str
    failures: tuple[tuple[int, int, str, str], ...]  # round, client, code, reason
    accuracy: float

    @property
    def dropped(self) -> set[int]:
        return {client for _, client, _, _ in self.failures}


def play(experiment: Experiment, out: Path, engine: OpenEngine = open_engine) -> Outcome:
    stopped, accuracy = "", float("nan")
    try:
        per_client = run(experiment, out=out, engine=engine).summary["accuracy_per_client"]["personal"]
        known = [one for client, one in enumerate(per_client) if client != ATTACKER and one is not None]
        accuracy = sum(known) / len(known)
    except Exception as problem:
        stopped = f"{type(problem).__name__}: {problem}"
    events = [event for event in read_events(out) if event["event"] == "client-failed"]
    failures = tuple((one["round"], one["client"], one["code"], one["reason"]) for one in events)
    return Outcome(stopped, failures, accuracy)
