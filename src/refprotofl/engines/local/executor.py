"""Who does the work of the clients on this machine, and how long it may take."""

from typing import Protocol

from refprotofl.engines.local.host import Outcome, Task
from refprotofl.errors import MachineError


class Executor(Protocol):
    """Does tasks in any order; outcomes wait until they are called for."""

    def submit(self, task: Task) -> int:
        """A ticket for the outcome."""

    def outcome(self, ticket: int, deadline: float | None) -> Outcome:
        """MachineError if a client has been at its task for more than `deadline` seconds."""

    def forget(self) -> None:
        """Nobody will call for the outcomes that were not called for yet; when this returns, nobody is at them."""

    def close(self) -> None: ...


def too_late(task: Task, deadline: float) -> MachineError:
    """It stops the run: if it cost the client its turn, the result would depend on how fast the machine is."""
    return MachineError(
        f"Round {task.round}, client {task.client}: {task.deed} took longer than deadline = {deadline:g} seconds. "
        "Rounds committed so far are kept: go on with --resume."
    )
