"""Flower's SuperNode as a process that never stands still.

Flower's own command goes on when it gives up: the thread that serves its executor keeps a process alive that asks for
nothing. This one ends then, so that whoever started it can start it again. And in three cases Flower's waits for ever
although it is online; what it keeps of its messages is mended here, where it has no other seam. And how often it asks
is its owner's to say: a thousand nodes that have nothing to do would keep a SuperLink busy by that alone.
"""

import os
import sys
import time
import traceback
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from flwr.app import Error, Message
from flwr.common.constant import HEARTBEAT_DEFAULT_INTERVAL, Status, SubStatus
from flwr.supercore import heartbeat
from flwr.supercore.constant import TaskType
from flwr.supernode import fleet_http_connection, start_client_internal
from flwr.supernode.nodestate import nodestate_factory
from flwr.supernode.nodestate.in_memory_nodestate import CLIENT_APP_CRASHED_ERROR, InMemoryNodeState

LOOKS = 3.0  # seconds that Flower rests after a look that found no message
LONGEST = 600.0  # seconds that its owner may want
LOOK_EVERY = "look-every"  # in a node's config: how long it is to rest
program = import_module("flwr.supernode.cli.flower_supernode")  # its package has a function of that name
UNFINISHED = (Status.PENDING, Status.STARTING, Status.RUNNING)


class Answering(InMemoryNodeState):
    """The messages that a SuperNode has taken; each is answered before the next is taken.

    - A SuperNode sends what answers it finds after it has taken a message. One that is left of a run that has ended
      would be sent instead of the message's own, which then waits for a next message, as does the server.
    - A message that is taken while its run ends is ignored; it stays there, and its app waits for the rest of it.
    - An app that dies before it has fetched its message, or ends without an answer, is answered for by nobody.
    """

    def get_messages_legacy(
        self, *, run_ids: Sequence[int] | None = None, is_reply: bool | None = None, limit: int | None = None
    ) -> Sequence[Message]:
        if is_reply and self._owes_an_answer():
            return []
        found: Sequence[Message] = super().get_messages_legacy(run_ids=run_ids, is_reply=is_reply, limit=limit)
        return found

    def create_task(self, *given: Any, **more: Any) -> int | None:
        """For the next message: if there is still one before it, that was ignored, and its app need not go on."""
        if self._owes_an_answer():
            for task in self.get_tasks(statuses=UNFINISHED):
                self.finish_task(task.task_id, SubStatus.FAILED, "Its message was ignored.")
        made: int | None = super().create_task(*given, **more)
        return made

    def finish_task(self, task_id: int, sub_status: str, details: str) -> bool:
        finished: bool = super().finish_task(task_id, sub_status, details)
        if finished:
            tasks = self.get_tasks(task_ids=[task_id])
            runs = {task.run_id for task in tasks if task.type == TaskType.CLIENT_APP}
            self._store_error_replies(runs, CLIENT_APP_CRASHED_ERROR)
        return finished

    def _owes_an_answer(self) -> bool:
        self.get_tasks(task_ids=[])  # ends those that show no sign of life any more
        with self.lock_msg_store:
            told = [entry.message.metadata for entry in self.msg_store.values()]
        answered = {one.reply_to_message_id for one in told}
        return any(not one.reply_to_message_id and one.message_id not in answered for one in told)

    def _store_error_replies(self, run_ids: set[int], error: Error) -> None:
        """Also to a message that was not fetched."""
        with self.lock_msg_store:
            for entry in self.msg_store.values():
                entry.is_retrieved |= entry.message.metadata.run_id in run_ids and not _is_reply(entry.message)
        super()._store_error_replies(run_ids, error)


def _is_reply(message: Message) -> bool:
    return bool(message.metadata.reply_to_message_id)


def rest_longer(seconds: float) -> None:
    """From now on nodes of this process rest so long after a look in vain, and tell less often that they are there.

    The server hears how often they tell it, and takes one for gone that misses two.
    """
    pull = start_client_internal._pull_and_store_message

    def pulled(**given: Any) -> int | None:
        run: int | None = pull(**given)
        if run is None:
            time.sleep(max(0.0, seconds - LOOKS))
        return run

    vars(start_client_internal)["_pull_and_store_message"] = pulled
    for module in (heartbeat, fleet_http_connection):
        vars(module)["HEARTBEAT_DEFAULT_INTERVAL"] = max(HEARTBEAT_DEFAULT_INTERVAL, 2 * seconds)


def start(**given: Any) -> None:
    """Flower's loop, at its owner's pace; what is no number is complained of when the node is first asked."""
    asked = given["node_config"].get(LOOK_EVERY, LOOKS)
    if isinstance(asked, int | float):
        rest_longer(min(asked, LONGEST))
    start_client_internal.start_client_internal(**given)


def main() -> None:
    vars(program)["start_client_internal"] = start
    vars(nodestate_factory)["InMemoryNodeState"] = Answering
    code = 1  # to return is to have given up
    try:
        program.flower_supernode()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    main()
