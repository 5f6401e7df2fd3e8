"""Log lines of servers, runs and nodes: sentences for people, or a JSON object per line for collectors of logs."""

import json
import os
import time
from collections.abc import Mapping
from typing import Any, Literal

from refprotofl.core import for_terminal

LogFormat = Literal["text", "json"]

VARIABLE = "REFPROTOFL_LOG_FORMAT"  # in the environment, so that the processes of runs have it from their server


def set_format(chosen: LogFormat) -> None:
    """Choose the format of this process and of those that it starts."""
    os.environ[VARIABLE] = chosen


def is_json() -> bool:
    return os.environ.get(VARIABLE) == "json"


def log(sentence: str, event: str = "note", **fields: Any) -> None:
    """Write a line; `event` and `fields` are for programs, and part of JSON lines only."""
    print(as_line(sentence, event, fields), flush=True)


def as_line(sentence: str, event: str, fields: Mapping[str, Any]) -> str:
    if not is_json():
        return "\n".join(for_terminal(line) for line in sentence.splitlines())
    now = time.time()
    moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now % 1 * 1000):03d}Z"
    return json.dumps({"time": moment, "event": event, "message": sentence, **fields})


def sentence_of(line: str) -> str:
    """Return the sentence of a line in either format."""
    if not line.startswith("{"):
        return line
    try:
        return str(json.loads(line)["message"])
    except (ValueError, LookupError, TypeError):
        return line
