"""The steps that clients missed: kept as long as someone needs them and they are shorter than the whole vector."""

import pytest
import torch

from refprotofl.methods.base.schema import Dense, Refused
from refprotofl.methods.base.steps import MissedSteps, split
from refprotofl.wire import encode

FIELDS = {"values": Dense((2,))}


def step(number: int) -> bytes:
    return encode({"values": torch.tensor([float(number), -1.0])})


def numbers(joined: torch.Tensor | None) -> list[int]:
    assert joined is not None
    return [int(message.tensor("values")[0]) for message in split(joined, FIELDS)]


def kept(*bases: int, size: int = 1000, earliest: int = 1) -> MissedSteps:
    steps = MissedSteps(size)
    for base in bases:
        steps.add(step(base), base, earliest)
    return steps


def test_a_client_gets_the_steps_after_the_broadcast_that_it_holds() -> None:
    steps = kept(1, 2, 3)
    assert [numbers(steps.since(base, 4)) for base in (1, 2, 3, 4)] == [[1, 2, 3], [2, 3], [3], []]
    assert steps.since(0, 4) is None  # from before the first
    assert steps.since(1, 5) is None  # up to a broadcast that they do not lead to


def test_steps_that_no_client_needs_are_forgotten() -> None:
    steps = kept(1, 2, 3, 4, earliest=3)
    assert numbers(steps.since(3, 5)) == [3, 4]
    assert steps.since(2, 5) is None
    steps.add(step(5), 5, 6)  # everyone holds the broadcast that it led to
    assert steps.state == {}


def test_steps_that_are_longer_than_the_vector_are_forgotten() -> None:
    length = len(step(1)) + 4
    steps = kept(1, 2, 3, 4, size=(3 * length) // 4)
    assert numbers(steps.since(3, 5)) == [3, 4]
    assert steps.since(2, 5) is None


@pytest.mark.parametrize("from_seed", [False, True])
def test_what_is_kept_outlives_a_round(from_seed: bool) -> None:
    steps, again = kept(2, 3), MissedSteps(1000)
    steps.from_seed = from_seed
    again.add(step(9), 9, 1)  # what a restored state replaces
    again.restore(steps.state)
    assert again.from_seed == from_seed
    assert numbers(again.since(2, 4)) == [2, 3]
    again.restore({})
    assert again.state == {}


@pytest.mark.parametrize(
    "spoilt",
    [
        b"\1",
        (100).to_bytes(4, "little") + step(1),
        (3).to_bytes(4, "little") + step(1),
        b"\0\0\0\0",
        len(encode({"values": torch.zeros(3)})).to_bytes(4, "little") + encode({"values": torch.zeros(3)}),
        len(encode({"other": 1})).to_bytes(4, "little") + encode({"other": 1}),
    ],
)
def test_what_is_no_step_is_refused(spoilt: bytes) -> None:
    with pytest.raises(Refused):
        split(torch.tensor(list(spoilt), dtype=torch.uint8), FIELDS)
