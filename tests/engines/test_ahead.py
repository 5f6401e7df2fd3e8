"""Requests under way at a time: as many as the engine takes, and few of those that differ."""

from collections.abc import Callable, Iterable, Iterator

import pytest
import torch

from refprotofl.engines.engine import MAX_DIFFERENT, EngineInfo, Record, Request, Result, start_ahead
from refprotofl.federation import Callback
from refprotofl.methods.base.cohort import Cohort
from refprotofl.wire import Ledger, Message, encode

CLIENTS = 1000


class Counting:
    """Answers with the client's number, and remembers how many requests it had when it was first waited for."""

    def __init__(self, max_in_flight: int | None) -> None:
        self.info = EngineInfo(max_in_flight=max_in_flight)
        self.under_way: dict[int, Request] = {}
        self.most = 0
        self.payloads = 0  # of those that were different, the most at a time

    def map(self, requests: Iterable[Request], deadline: float | None) -> Iterator[Result]:
        for request in start_ahead(requests, self.start, self.info.max_in_flight):
            self.most = max(self.most, len(self.under_way))
            self.payloads = max(self.payloads, len({id(one.payload) for one in self.under_way.values()}))
            yield Result(encode({"client": self.under_way.pop(request.client).client}))

    def start(self, request: Request) -> Request:
        self.under_way[request.client] = request
        return request

    def discard(self, client: int) -> None: ...

    def explain(self, client: int) -> str:
        return ""

    def settle(self, round: int) -> dict[int, Record]:
        return {}

    def committed(self, round: int, oldest: int) -> None: ...

    def close(self) -> None: ...


def asked(engine: Counting, message: Message | Callable[[int], Message]) -> list[tuple[int, Message]]:
    cohort = Cohort(engine, Ledger(), {}, 1, range(CLIENTS), Callback().on_message)
    return list(cohort.ask("train", message))


@pytest.mark.parametrize(("max_in_flight", "most"), [(None, CLIENTS), (64, 64), (1, 1)])
def test_as_many_are_asked_at_a_time_as_the_engine_takes(max_in_flight: int | None, most: int) -> None:
    engine = Counting(max_in_flight)
    answers = asked(engine, {"shared": torch.zeros(3)})
    assert (engine.most, engine.payloads) == (most, 1)
    assert answers == [(client, {"client": client}) for client in range(CLIENTS)]


def test_requests_that_differ_are_few_at_a_time_whatever_the_engine_takes() -> None:
    engine = Counting(None)
    answers = asked(engine, lambda client: {"head": torch.full((3,), float(client))})
    assert (engine.most, engine.payloads) == (MAX_DIFFERENT, MAX_DIFFERENT)
    assert [client for client, _ in answers] == list(range(CLIENTS))


def test_one_that_differs_delays_no_other() -> None:
    whole: Message = {"shared": torch.zeros(3)}
    step: Message = {"step": torch.zeros(1)}
    engine = Counting(None)
    asked(engine, lambda client: whole if client % 3 else step)
    assert (engine.most, engine.payloads) == (CLIENTS, 2)
