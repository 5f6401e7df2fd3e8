"""The interface of compressors: how the change of the shared vector goes up, and the broadcast down.

A compressor is written at the client and read at the server, which averages over the participants. Errors are fed
back by what the server will decode, so both sides always mean the same numbers. A compressed broadcast is a step from
the last one; both sides move by what is decoded, so all clients that follow hold the server's vector.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from refprotofl.core import State, streams
from refprotofl.experiment import Compress
from refprotofl.methods.base import steps
from refprotofl.methods.base.broadcast import FROM_SEED, MISSED, NONE_HELD, Downlink, StepDownlink, fingerprint
from refprotofl.methods.base.schema import Either, Fields, ValidatedMessage
from refprotofl.methods.base.steps import MissedSteps
from refprotofl.methods.feedback import Feedback
from refprotofl.wire import Message, decode, encode

Draw = Callable[[], np.random.Generator]  # the stream of one compressor, client and round, from its start


class Compressor(ABC):
    """The encoding of changes of the shared vector (P,). It has no state: memories belong to the client or the server.

    A new compressor is a module in `methods/compressors/` that defines one subclass; its name is the module's.
    """

    leaves_zeros: ClassVar[bool] = False  # what the server decodes is 0 where nothing was sent
    both_ways: ClassVar[bool] = False  # compress.downlink = "auto" compresses the broadcast, as its authors do
    # Why the choice of what is sent reveals a client's data before any noise; empty: it depends on no data.
    reveals: ClassVar[str] = "it does not declare what its choice of coordinates reveals"
    notes: ClassVar[tuple[str, ...]] = ()  # where it departs from what its authors published

    def __init__(self, table: Compress) -> None:
        self.table = table

    @property
    def feedback(self) -> Feedback:
        """The use that is made of the part of a change that is not sent."""
        return Feedback()

    def stream(self, seed: int, client: int, round: int) -> Draw:
        """Return a function that opens the stream of what is drawn at random; both sides can open it."""
        return partial(streams.stream, seed, self.table.name, client=client, round=round)

    # Up

    @abstractmethod
    def fields(self, size: int) -> Fields:
        """Return the fields of an encoded vector of `size` values."""

    @abstractmethod
    def encode(self, vector: Tensor, draw: Draw) -> Message:
        """Encode a vector (P,)."""

    @abstractmethod
    def decode(self, message: ValidatedMessage, size: int, draw: Draw) -> Tensor:
        """Decode a message to a vector (P,) of `size` values."""

    def write_update(self, trained: Tensor, received: Tensor, state: State, draw: Draw) -> Message:
        """Encode the change from `received` to `trained`, both (P,); the client's memory is kept in its `state`."""
        change, kept = trained - received, state.get("memory")
        memory = kept if isinstance(kept, Tensor) else torch.zeros_like(change)
        target = self.feedback.target(change, memory)
        message = self.encode(target, draw)
        if self.feedback.client_memory:
            sent = self.decode(ValidatedMessage(message), len(change), draw)
            state["memory"] = self.feedback.remember(target, sent, memory)
        return message

    def read_update(self, message: ValidatedMessage, reference: Tensor, draw: Draw) -> Tensor:
        """Return how far a client moved its shared vector (P,) from the `reference` (P,)."""
        return self.decode(message, len(reference), draw)

    # Down

    @property
    def compresses_downlink(self) -> bool:
        return self.table.downlink == "same" or (self.table.downlink == "auto" and self.both_ways)

    @property
    def downlink_feedback(self) -> Feedback:
        """The use that the server makes of the part of a step that is not sent."""
        return self.feedback

    def step_fields(self, size: int) -> Fields:
        """Return the fields of a step from the last broadcast; none if clients are always sent the whole vector."""
        if not self.compresses_downlink:
            return {}
        step = {name: Either((field,), optional=True) for name, field in self.fields(size).items()}
        return step | {MISSED: steps.field(size)}

    def read_missed(self, message: ValidatedMessage, size: int) -> list[ValidatedMessage]:
        """Return the steps before the last one that a client is sent if it missed broadcasts."""
        if MISSED not in message:
            return []
        return steps.split(message.tensor(MISSED), self.fields(size))

    def step_stream(self, seed: int, base: int) -> Draw:
        """Return a function that opens the stream of the step from the broadcast of round `base`."""
        return partial(streams.stream, seed, f"{self.table.name}/downlink", round=base)

    def create_downlink(self, clients: int, size: int, seed: int) -> Downlink | None:
        """Return the server's side of a compressed broadcast; None: the method has its own."""
        return CompressedDownlink(self, clients, size, seed) if self.compresses_downlink else None


class CompressedDownlink(StepDownlink):
    """Broadcasts by compressed steps; the server keeps what it owes, and the steps that clients missed."""

    names: ClassVar[tuple[str, ...]] = ("holds", "residual", "step")

    def __init__(self, compressor: Compressor, clients: int, size: int, seed: int) -> None:
        super().__init__(clients)
        self.residual = torch.zeros(size)  # (P,), what the broadcasts still owe
        self.step = torch.zeros(0, dtype=torch.uint8)  # (bytes,), the message of the last one; none before the first
        self.missed = MissedSteps(size)
        self._compressor, self._seed = compressor, seed

    @property
    def state(self) -> State:
        return super().state | self.missed.state

    def restore(self, state: State) -> None:
        super().restore(state)
        self.missed.restore(state)

    def step_message(self, name: str, vector: Tensor) -> Message | None:
        return decode(self.step.numpy().tobytes()) if len(self.step) else None

    def missed_steps(self, held: int, round: int, name: str) -> Message | None:
        first = 1 if held == NONE_HELD and self.missed.from_seed and self.initial else held
        steps = self.missed.since(first, round - 1) if first != NONE_HELD else None
        if steps is None or len(steps) + len(self.encoded_step()) >= self.missed.whole:
            return None
        initial = {FROM_SEED + name: self.initial} if held == NONE_HELD else {}
        return {**initial, "base": first, **({MISSED: steps} if len(steps) else {})}

    def advance(self, round: int, reference: Tensor, target: Tensor) -> Tensor:
        self._keep_missed(round, reference)
        draw, feedback = self._compressor.step_stream(self._seed, round), self._compressor.downlink_feedback
        owed = feedback.target(target - reference, self.residual)
        message = self._compressor.encode(owed, draw)
        step = self._compressor.decode(ValidatedMessage(message), len(owed), draw).to(torch.float32)
        self.keep(message, step)
        self.residual = feedback.remember(owed, step, self.residual)
        return reference + step

    def _keep_missed(self, round: int, reference: Tensor) -> None:
        """Keep the last step, which led to the broadcast of `round`, for clients that hold an earlier one."""
        unheld = bool((self.holds == NONE_HELD).any())
        if round == 1:
            self.missed.from_seed = unheld and fingerprint(reference) == self.derived
            return
        self.missed.from_seed &= unheld
        late = [int(held) for held in self.holds if held < round and (held != NONE_HELD or self.missed.from_seed)]
        earliest = min((max(held, 1) for held in late), default=round)
        self.missed.add(self.encoded_step(), round - 1, earliest)

    def encoded_step(self) -> bytes:
        """Return the encoded message of the last step."""
        return self.step.numpy().tobytes()

    def keep(self, message: Message, step: Tensor) -> None:
        """Keep what the next broadcast is made of: the step's message."""
        self.step = torch.from_numpy(np.frombuffer(encode(message), np.uint8).copy())
