"""The upload of trained adapters: Algorithm 1's masked update, or the compressor of [compress] in its place."""

from functools import partial
from typing import TYPE_CHECKING, ClassVar, Protocol

import numpy as np
import torch
from torch import Tensor

from refprotofl.core import tensor_of
from refprotofl.experiment import Experiment
from refprotofl.methods import FEEDBACKS, Fields, Server, ValidatedMessage, create_compressor
from refprotofl.methods.builtin.refprotofl import Options, masked
from refprotofl.methods.common import weights
from refprotofl.wire import Message, encode

if TYPE_CHECKING:
    from refprotofl.methods.builtin.refprotofl.client import RefProtoClient


class Uplink(Protocol):
    """One experiment's uplink, used by both sides. Vectors are adapters (d,)."""

    @property
    def selects(self) -> bool:
        """Return whether clients choose the coordinates that they send, which the server observes."""

    @property
    def whole(self) -> bool:
        """Return whether whole changes are averaged, 0 where nothing was sent."""

    def fields(self, size: int) -> Fields: ...

    def write(self, client: "RefProtoClient", round: int, local: Tensor, adapter: Tensor, extra: Message) -> Message:
        """Encode the trained adapter together with the fields `extra`."""

    def read(
        self, server: Server, round: int, client: int, adapter: Tensor, answer: ValidatedMessage
    ) -> masked.Update: ...


def create_uplink(experiment: Experiment, table: Options) -> Uplink:
    return CompressedUplink(experiment) if experiment.compress.enabled else MaskedUplink(table)


class MaskedUplink:
    """APUD: the coordinates that moved most, by the switches of [refprotofl]."""

    selects: ClassVar[bool] = True

    def __init__(self, table: Options) -> None:
        self._table = table

    @property
    def whole(self) -> bool:
        return FEEDBACKS[self._table.error_feedback].server_memory

    def fields(self, size: int) -> Fields:
        return masked.fields(self._table, size)

    def write(self, client: "RefProtoClient", round: int, local: Tensor, adapter: Tensor, extra: Message) -> Message:
        memory = tensor_of(client.state, "memory") if "memory" in client.state else torch.zeros_like(local)
        answer, memory = masked.compose(
            self._table,
            client.model.sizes(client.parts),
            local,
            adapter,
            memory,
            partial(self._selection, client, round),
            extra,
            client.spent(round),
            lambda message: len(encode(message, client.experiment.value_code)),
        )
        if FEEDBACKS[self._table.error_feedback].client_memory:
            client.state["memory"] = memory
        return answer

    def _selection(self, client: "RefProtoClient", round: int) -> np.random.Generator:
        """Return the stream of the mask; with clients protected one for all, which the server knows."""
        return client.context.privacy.mask_stream(round) or client.stream("select", round)

    def read(self, server: Server, round: int, client: int, adapter: Tensor, answer: ValidatedMessage) -> masked.Update:
        update = masked.unpack(self._table, answer, adapter)
        draw = server.privacy.mask_stream(round) if self._table.apud else None
        if draw is not None:
            masked.check_selection(self._table, server.model.sizes(server.parts), draw, update)
        return update


class CompressedUplink:
    """A compressor's message of the whole change."""

    selects: ClassVar[bool] = False
    whole: ClassVar[bool] = True

    def __init__(self, experiment: Experiment) -> None:
        self._compressor = create_compressor(experiment)

    def fields(self, size: int) -> Fields:
        return self._compressor.fields(size)

    def write(self, client: "RefProtoClient", round: int, local: Tensor, adapter: Tensor, extra: Message) -> Message:
        return {**extra, **weights.encode_update(client, round, adapter, local)}

    def read(self, server: Server, round: int, client: int, adapter: Tensor, answer: ValidatedMessage) -> masked.Update:
        return masked.whole(adapter, weights.read_change(server, round, adapter, client, answer))
