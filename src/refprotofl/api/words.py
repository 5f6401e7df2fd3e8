"""Errors in the words of Python: arguments in place of the options of the command line."""

import re
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from refprotofl.core import RefProtoFLError

P = ParamSpec("P")
T = TypeVar("T")

_FLAGS = ("resume", "trust-code", "no-runs")
_RENAMED = {
    "trust-code": "trust_code=True",
    "resume": "resume=True",
    "no-runs": "no_runs=True",
    "against none": "against=None",
}
_OPTION = re.compile(r"(?<![\w`-])--(against none|[a-z]+(?:-[a-z]+)*)")


def in_python(message: str) -> str:
    """Return a message with arguments in place of options.

    >>> in_python("a already holds a run: continue it with --resume, or use another --out.")
    'a already holds a run: continue it with `resume=True`, or use another `out`.'
    """
    shorter = message.replace(" (in Python: trust_code=True)", "").replace("run --resume", "--resume")
    shorter = re.sub(r"--set (?=\S+=)", "", shorter)  # keys are arguments of Experiment
    return _OPTION.sub(lambda found: f"`{_RENAMED.get(found[1], found[1].replace('-', '_'))}`", shorter)


def python_words(function: Callable[P, T]) -> Callable[P, T]:
    """Make a function raise our errors in the words of Python."""

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        except RefProtoFLError as problem:
            problem.args = (in_python(str(problem)), *problem.args[1:])
            raise

    return call
