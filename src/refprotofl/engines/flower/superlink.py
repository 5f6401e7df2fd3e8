"""Flower's SuperLink for more than a handful of nodes. What it does is Flower's; what it takes to do it is less.

- Flower opens a connection to its database for each of up to fifteen threads, and SQLite lets one of them write: the
  others sleep and try again, longer each time, and are refused after five seconds. In a row for one connection nobody
  sleeps, and nobody is refused.
- Its threads take turns, as Python has them do, and to hand the turn to another core costs more than many a turn does.
  On one core they are faster; the apps that it starts have all of them.
- A request leaves so many small objects behind that Python looks again and again through all that a SuperLink holds.
"""

import gc
import os
from importlib import import_module
from typing import Any

from flwr.supercore import sql_mixin

PATIENCE = 300.0  # seconds that a thread stands in the row
IN_A_ROW = {"pool_size": 1, "max_overflow": 0, "pool_timeout": PATIENCE}
SELDOM = (20_000, 20, 50)  # new objects, and looks at newer ones, before Python looks for garbage
create_engine = vars(sql_mixin)["create_engine"]  # SQLAlchemy's
program = import_module("flwr.superlink.cli.flower_superlink")  # its package has a function of that name


class OnOneCore(program.SuperLinkLifespan):  # type: ignore[name-defined]
    def startup(self) -> None:
        super().startup()  # starts the process that starts the apps
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})  # this thread, and those that it starts from now on


def opened(address: str, **given: Any) -> Any:
    """One in memory has one connection anyway."""
    return create_engine(address, **(given if "poolclass" in given else {**IN_A_ROW, **given}))


def tune() -> None:
    """This process, before Flower opens its database."""
    vars(sql_mixin)["create_engine"] = opened
    vars(program)["SuperLinkLifespan"] = OnOneCore
    gc.collect()
    gc.freeze()
    gc.set_threshold(*SELDOM)


def main() -> None:
    tune()
    program.flower_superlink()


if __name__ == "__main__":
    main()
