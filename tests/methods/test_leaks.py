"""No backbone parameter and no sample ever leaves a client: a search through every byte that it sends."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from refprotofl.core.state import State
from refprotofl.engines.local.store import ClientStore, Loaded, Location
from refprotofl.federation.local_run import OpenEngine
from refprotofl.federation.simulation import load_federation
from refprotofl.methods.base.schema import ValidatedMessage
from refprotofl.methods.builtin.refprotofl.client import RefProtoClient
from refprotofl.wire import Message, Sparse, decode, encode

RUN = 8  # this many consecutive values of a backbone are a leak
FACTORS = np.random.default_rng(0).integers(0, 2**63, RUN, dtype=np.uint64) * np.uint64(2) + np.uint64(1)
# Types that a leak may be cast to, and the words that hold their bits.
WORDS = {torch.float32: np.uint32, torch.float16: np.uint16, torch.bfloat16: np.uint16}

Words = NDArray[np.unsignedinteger[Any]]

BACKBONE = "backbone."


def runs(words: Words) -> NDArray[np.uint64]:
    """A number for every run of consecutive words; a run of one and the same word is left out."""
    count = max(0, len(words) - RUN + 1)
    total, varied = np.zeros(count, np.uint64), np.zeros(count, bool)
    for place, factor in enumerate(FACTORS):
        part = words[place : place + count]
        total += part.astype(np.uint64) * factor
        varied |= part != words[:count]
    return total[varied]


def words(tensor: Tensor, dtype: torch.dtype) -> Words:
    data = tensor.detach().to(dtype).contiguous().flatten().view(torch.uint8).numpy()
    return data.view(WORDS[dtype])


class Detector:
    """Knows the runs of values in a client's backbones, at full and at half precision."""

    def __init__(self, states: Iterable[State]) -> None:
        tensors = [
            value
            for state in states
            for name, value in state.items()
            if name.startswith(BACKBONE) and isinstance(value, Tensor)
        ]
        self._known = {
            dtype: np.sort(np.concatenate([runs(words(tensor, dtype)) for tensor in tensors])) for dtype in WORDS
        }

    def finds(self, data: bytes) -> bool:
        """In the bytes as they went, at any offset, and in the decoded tensors, whatever type they were cast to."""
        for dtype, word in WORDS.items():
            for offset in range(dtype.itemsize):
                length = (len(data) - offset) // dtype.itemsize
                if self._knows(np.frombuffer(data, word, max(0, length), offset if length > 0 else 0), dtype):
                    return True
        values = [value.values if isinstance(value, Sparse) else value for value in decode(data).values()]
        tensors = [value for value in values if isinstance(value, Tensor)]
        return any(self._knows(words(tensor, dtype), dtype) for tensor in tensors for dtype in WORDS)

    def _knows(self, words: Words, dtype: torch.dtype) -> bool:
        known, found = self._known[dtype], runs(words)
        places = np.searchsorted(known, found).clip(max=len(known) - 1)
        return bool((known[places] == found).any())


@dataclass(frozen=True)
class Backbones:
    """Every state that a client ever had in the run, by client, and the engine that sees them."""

    states: dict[int, list[State]]
    engine: OpenEngine


@pytest.fixture
def backbones(stored_by: Any) -> Backbones:
    seen: dict[int, list[State]] = defaultdict(list)

    class Open(ClientStore):
        def load(self, client: int, location: Location) -> Loaded:
            loaded = super().load(client, location)
            if not seen[client]:
                seen[client].append(loaded.state)  # the initial one
            return loaded

        def save(self, client: int, round: int, state: State, loaded: Loaded, location: Location) -> Location:
            if state.get("trained_round") != seen[client][-1].get("trained_round"):
                seen[client].append(state)
            return super().save(client, round, state, loaded, location)

    return Backbones(seen, stored_by(Open))


def leaks(simulation: Any, backbones: Backbones) -> set[tuple[int, int, str]]:
    """(round, client, phase) of the uploads with a piece of the sender's backbone."""
    found = set()
    for client, states in backbones.states.items():
        detector = Detector(states)
        sent = [one for one in simulation.tap.select("up") if one.client == client]
        found |= {(one.round, client, one.phase) for one in sent if detector.finds(one.data)}
    return found


@pytest.mark.parametrize(
    "switches",
    [
        {},
        {"apud": False, "timing": "post-train"},
        {"value_type": "float16", "error_feedback": "ef", "normalise": "participants", "keep": 0.5},
    ],
)
def test_no_piece_of_a_backbone_ever_leaves_its_client(
    simulate: Any, backbones: Backbones, switches: dict[str, Any]
) -> None:
    clean = simulate({"public": {"coverage": 0.5}}, engine=backbones.engine, **switches)
    assert {client: len(states) for client, states in backbones.states.items()} == dict.fromkeys(range(4), 4)
    assert len(clean.tap.select("up", "train")) == 12
    assert leaks(clean, backbones) == set()


def field_of_its_own(answer: Message, piece: Tensor) -> Message:
    return {**answer, "extra": piece}


def among_the_prototypes(answer: Message, piece: Tensor) -> Message:
    prototypes = answer["public_prototypes"]
    assert isinstance(prototypes, Tensor)
    hidden = prototypes.flatten().clone()
    hidden[5 : 5 + RUN] = piece
    return {**answer, "public_prototypes": hidden.view_as(prototypes)}


def at_half_precision(answer: Message, piece: Tensor) -> Message:
    return {**answer, "extra": piece.to(torch.bfloat16)}


def at_double_precision(answer: Message, piece: Tensor) -> Message:
    return {**answer, "extra": torch.cat([torch.ones(3), piece]).double()}


def as_bytes_of_an_image(answer: Message, piece: Tensor) -> Message:
    return {**answer, "extra": torch.cat([torch.zeros(3, dtype=torch.uint8), piece.contiguous().view(torch.uint8)])}


@pytest.mark.parametrize(
    ("hide", "when"),
    [
        (field_of_its_own, 1),  # of the initial backbone
        (field_of_its_own, 2),  # of a trained one
        (among_the_prototypes, 2),
        (at_half_precision, 2),
        (at_double_precision, 2),
        (as_bytes_of_an_image, 2),
    ],
)
def test_a_planted_leak_is_found(
    simulate: Any, backbones: Backbones, play: Any, hide: Callable[[Message, Tensor], Message], when: int
) -> None:
    class Leaky(RefProtoClient):
        def prototypes(self, round: int, message: ValidatedMessage) -> Message:
            answer = super().prototypes(round, message)
            if (self.context.client_id, round) != (2, when):
                return answer
            weights = self.state[f"{BACKBONE}1.weight"]
            assert isinstance(weights, Tensor)
            return hide(answer, weights.flatten()[777 : 777 + RUN])

    play(client=Leaky)
    leaky = simulate({"rounds": 2, "evaluate": {"every": 2}}, engine=backbones.engine)
    assert leaks(leaky, backbones) == {(when, 2, "prototypes")}


def test_seven_values_are_below_the_threshold_and_constants_are_no_leak() -> None:
    state: State = {f"{BACKBONE}weight": torch.cat([torch.zeros(50), torch.arange(20.0), torch.ones(50)])}
    detector = Detector([state])

    def found(tensor: Tensor) -> bool:
        return detector.finds(encode({"some": tensor}))

    assert found(torch.arange(8.0))
    assert found(torch.arange(3.0, 11))
    assert not found(torch.arange(7.0))
    assert not found(torch.zeros(60))
    assert not found(torch.ones(60))
    assert not found(torch.arange(8.0).flip(0))


# Samples


def samples(simulation: Any) -> Iterator[tuple[int, bytes]]:
    """Every private image as bytes, with its owner."""
    data = load_federation(simulation.experiment, None).data
    for client, indices in enumerate(data.client_indices):
        for image in data.dataset.train_inputs[indices]:
            yield client, image.tobytes()


def test_no_image_ever_leaves_its_client(simulated: Any) -> None:
    clean = simulated()
    sent = b"".join(one.data for one in clean.tap.select("up"))
    images = list(samples(clean))
    assert len(images) == 150 - 20
    assert {len(image) for _, image in images} == {64}
    assert not any(image in sent for _, image in images)


def test_a_planted_image_is_found(simulate: Any, play: Any) -> None:
    class Leaky(RefProtoClient):
        def train(self, round: int, message: ValidatedMessage) -> Message:
            answer = super().train(round, message)
            if (self.context.client_id, round) == (1, 1):
                answer["extra"] = self.samples.inputs[self.samples.rows[3]]
            return answer

    play(client=Leaky)
    leaky = simulate({"rounds": 1})
    sent = b"".join(one.data for one in leaky.tap.select("up"))
    assert {client for client, image in samples(leaky) if image in sent} == {1}


def test_the_public_set_holds_no_private_image(simulated: Any) -> None:
    run = simulated()
    (shipped,) = {one.data for one in run.tap.select("down", "join")}
    assert not any(image in shipped for _, image in samples(run))
