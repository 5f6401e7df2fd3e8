"""Basics for every package: errors, random streams, state, units, devices.

The names here are those that load without torch; `state`, `devices`, `numerics` and `process` are imported by module.
"""

from refprotofl.core.errors import (
    BudgetError,
    ClientsFailed,
    DataError,
    DiskFull,
    GuardError,
    InputError,
    MachineError,
    PrivacyError,
    RefProtoFLError,
    RunError,
)
from refprotofl.core.escaping import (
    as_code,
    for_csv,
    for_file_name,
    for_latex,
    for_markdown,
    for_terminal,
    lines_for_terminal,
    spell_out,
)
from refprotofl.core.parts import ADAPTER, ALL, BODY, HEAD, WITHOUT_NORMS, Parts, shares_backbone
from refprotofl.core.passed_objects import is_passed, reference_to
from refprotofl.core.streams import stream
from refprotofl.core.units import counted, duration, percent, read_whole, size, three_figures
from refprotofl.core.user_code import blame, digest_code, is_reference, load_object, references, refuse_code

__all__ = [
    "ADAPTER",
    "ALL",
    "BODY",
    "HEAD",
    "WITHOUT_NORMS",
    "BudgetError",
    "ClientsFailed",
    "DataError",
    "DiskFull",
    "GuardError",
    "InputError",
    "MachineError",
    "Parts",
    "PrivacyError",
    "RefProtoFLError",
    "RunError",
    "as_code",
    "blame",
    "counted",
    "digest_code",
    "duration",
    "for_csv",
    "for_file_name",
    "for_latex",
    "for_markdown",
    "for_terminal",
    "is_passed",
    "is_reference",
    "lines_for_terminal",
    "load_object",
    "percent",
    "read_whole",
    "reference_to",
    "references",
    "refuse_code",
    "shares_backbone",
    "size",
    "spell_out",
    "stream",
    "three_figures",
]
