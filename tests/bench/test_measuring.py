"""Taking turns, quotients, memory."""

import mmap
from collections.abc import Callable

import pytest

from refprotofl.bench.measuring import (
    MemoryWatch,
    alternate,
    conditions,
    private_bytes,
    quotients,
    ratio,
    spread,
    timed,
)


def test_measurements_take_turns_and_the_first_pass_is_thrown_away() -> None:
    turns: list[str] = []

    def measure(name: str) -> Callable[[], float]:
        def note() -> float:
            turns.append(name)
            return float(len(turns))

        return note

    found = alternate({"a": measure("a"), "b": measure("b")}, repeats=3)
    assert "".join(turns) == "baabbaab"
    assert found == {"a": [3.0, 6.0, 7.0], "b": [4.0, 5.0, 8.0]}


def test_every_pass_is_reported() -> None:
    lines: list[str] = []
    alternate({"a": lambda: 0.0}, 2, lines.append)
    assert lines == ["a pass to warm up", "pass 1 of 2", "pass 2 of 2"]


def test_a_time_is_the_difference_of_two_looks_at_the_clock() -> None:
    looks = iter([10.0, 12.5])
    assert timed(lambda: None, lambda: next(looks))() == 2.5


def test_the_ratio_is_of_what_was_measured_in_the_same_pass() -> None:
    slow_machine_in_the_second_pass = ([2.0, 20.0, 3.0], [1.0, 10.0, 1.0])
    assert quotients(*slow_machine_in_the_second_pass) == [2.0, 2.0, 3.0]
    assert ratio(*slow_machine_in_the_second_pass) == 2.0
    assert spread([1.234, 1.0, 1.1]) == "1.00 to 1.23"


def test_the_conditions_name_machine_and_versions() -> None:
    assert {"platform", "cores", "python", "torch", "refprotofl"} <= conditions().keys()


@pytest.mark.skipif(private_bytes() is None, reason="the system does not report private memory")
def test_memory_that_is_used_and_given_back_is_seen() -> None:
    size = 64_000_000
    with MemoryWatch() as memory:
        held = mmap.mmap(
            -1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        )  # the heap may have such a piece to spare
        for page in range(0, size, mmap.PAGESIZE):
            held[page] = 1
        first = memory.lap()
        held.close()
        second = memory.lap()
    assert first is not None
    assert second is not None
    assert memory.before is not None
    assert first - memory.before >= 0.9 * size
    assert second >= 0.9 * size  # it was still there when the second lap began
    assert memory.highest is not None
    assert memory.highest < second - 0.9 * size
