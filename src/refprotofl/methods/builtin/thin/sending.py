"""The way in which the newest model reaches clients in few bits: steps for all, or each client's own difference.

`shared` is the vector of a client that received every message so far: the initial weights moved by all decoded steps.
What a code left out is owed with the next one.
"""

from collections.abc import Callable
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from refprotofl.core import State
from refprotofl.methods import Scope
from refprotofl.methods.builtin.thin import codes
from refprotofl.wire import Message


class Sending(Protocol):
    """The interface of sendings, which bring clients as near to the server's own vector as the bits allow."""

    names: ClassVar[tuple[str, ...]]  # the attributes that must outlive a round
    initial: Tensor  # (P,), at first the same at every client
    shared: Tensor
    version: int

    def advance(self, exact: Tensor, *, anchored: bool) -> None:
        """Move to the next version, if anything changed; with anchors in the message or without."""

    def requests(self, extra: Message) -> Callable[[int], Message]:
        """Return each client's request to reach the newest version."""

    def took(self, client: int) -> None:
        """Record that a client received its request."""

    def forget(self, client: int) -> None:
        """Record that a client has the initial weights alone."""

    def held_by(self, client: int) -> Tensor:
        """Return the vector (P,) of a client that received its request."""


class Steps:
    """The same steps for all; a client that missed some is sent them too, or the whole model where that is shorter."""

    names: ClassVar[tuple[str, ...]] = ("shared", "version", "holds", "step_codes", "step_scales")

    def __init__(self, scope: Scope, initial: Tensor) -> None:
        self._scope = scope
        self.initial = self.shared = initial  # (P,)
        self.version = 0  # of `shared`: the number of steps so far
        self.holds = torch.zeros(scope.experiment.clients, dtype=torch.int64)  # the version that each client has
        self._most = codes.most_steps(scope)  # that are worth to be kept
        self._length = codes.down_length(scope, anchored=False)  # no budget: whatever goes along
        self.step_codes = torch.zeros(0, self._length, dtype=torch.uint8)
        self.step_scales = torch.zeros(0, codes.number_of_scales(scope), dtype=torch.bfloat16)

    def advance(self, exact: Tensor, *, anchored: bool) -> None:
        if exact.equal(self.shared):
            return
        self.version += 1
        draw = codes.sign_draw(self._scope.experiment, "step", self.version)
        coded, said = codes.encode_change(self._scope.options, exact - self.shared, self._length, draw)
        self.shared = self.shared + said
        self.step_codes = torch.cat([self.step_codes, coded.code.unsqueeze(0)])[-self._most :]
        self.step_scales = torch.cat([self.step_scales, coded.scales.unsqueeze(0)])[-self._most :]

    def requests(self, extra: Message) -> Callable[[int], Message]:
        """Return for each client the shortest of: nothing, the steps that it missed, the whole model."""
        newest: Message = {"version": self.version, **extra}
        by_base: dict[int, Message] = {self.version: newest}

        def request(client: int) -> Message:
            base = int(self.holds[client])
            if self.version - base > len(self.step_codes):
                base = -1  # the whole model is the same for any client
            if base not in by_base:
                by_base[base] = {**newest, **(self._steps_from(base) if base >= 0 else self._whole())}
            return by_base[base]

        return request

    def _steps_from(self, base: int) -> Message:
        missed = self.version - base
        code, scales = self.step_codes[-missed:].flatten(), self.step_scales[-missed:].flatten()
        return {"base": base, "code": code, "scales": scales}

    def _whole(self) -> Message:
        draw, length = codes.sign_draw(self._scope.experiment, "whole", self.version), codes.whole_length(self._scope)
        return codes.write(codes.encode_change(self._scope.options, self.shared - self.initial, length, draw)[0])

    def took(self, client: int) -> None:
        self.holds[client] = self.version

    def forget(self, client: int) -> None:
        self.holds[client] = 0

    def held_by(self, client: int) -> Tensor:
        return self.shared  # nearly: what a client holds that was sent the whole model


class Differences:
    """A code for each client, from what it holds to the newest vector: as long as the budget allows.

    A client that missed rounds therefore holds another vector than the others, and comes nearer with every message.
    The vectors that clients hold are kept here, each different one once.
    """

    names: ClassVar[tuple[str, ...]] = ("shared", "version", "vectors", "versions", "holds")

    def __init__(self, scope: Scope, initial: Tensor) -> None:
        self._scope = scope
        self.initial = self.shared = self._exact = initial  # (P,)
        self.version = 0
        self.vectors = initial.unsqueeze(0)  # (rows, P)
        self.versions = torch.zeros(1, dtype=torch.int64)  # at which each of them came to be
        self.holds = torch.zeros(scope.experiment.clients, dtype=torch.int64)  # the row that each client has
        self._length = codes.down_length(scope, anchored=scope.options.drift == "anchors")  # of the newest version
        self._after: dict[int, int] = {}  # the row that follows on a row in this version

    def advance(self, exact: Tensor, *, anchored: bool) -> None:
        self._length = codes.down_length(self._scope, anchored=anchored)
        rows, self.holds = self.holds.unique(return_inverse=True)  # drop vectors that no client holds any more
        self.vectors, self.versions, self._after = self.vectors[rows], self.versions[rows], {}
        self._exact = exact
        if not exact.equal(self.shared):
            self.version += 1
            self.shared = self.shared + self._toward_exact(self.shared)[1]

    def requests(self, extra: Message) -> Callable[[int], Message]:
        newest: Message = {"version": self.version, **extra}
        by_row: dict[int, Message] = {}

        def request(client: int) -> Message:
            row = int(self.holds[client])
            if int(self.versions[row]) == self.version:
                return newest
            if row not in by_row:
                message, said = self._toward_exact(self.vectors[row])
                by_row[row] = {**newest, "base": int(self.versions[row]), **message}
                self._after[row] = self._put(self.vectors[row] + said, self.version)
            return by_row[row]

        return request

    def _toward_exact(self, held: Tensor) -> tuple[Message, Tensor]:
        draw = codes.sign_draw(self._scope.experiment, "step", self.version)
        coded, said = codes.encode_change(self._scope.options, self._exact - held, self._length, draw)
        return codes.write(coded), said

    def _put(self, vector: Tensor, version: int) -> int:
        self.vectors = torch.cat([self.vectors, vector.unsqueeze(0)])
        self.versions = torch.cat([self.versions, torch.tensor([version])])
        return len(self.versions) - 1

    def took(self, client: int) -> None:
        row = int(self.holds[client])
        self.holds[client] = self._after.get(row, row)

    def forget(self, client: int) -> None:
        first = (self.versions == 0).nonzero().flatten().tolist()
        self.holds[client] = first[0] if first else self._put(self.initial, 0)

    def held_by(self, client: int) -> Tensor:
        return self.vectors[self.holds[client]]


def state_of(sending: Sending) -> State:
    return {name: getattr(sending, name) for name in sending.names}


def choose_sending(scope: Scope, initial: Tensor) -> Sending:
    return Steps(scope, initial) if scope.options.downlink_budget is None else Differences(scope, initial)
