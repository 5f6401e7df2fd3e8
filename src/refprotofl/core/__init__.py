"""Basics for every package: errors, random streams, state, units, devices.

Those that need torch are loaded when they are first used.
"""

from typing import TYPE_CHECKING

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
from refprotofl.core.lazy import lazy_names
from refprotofl.core.parts import ADAPTER, ALL, BODY, HEAD, WITHOUT_NORMS, Parts, shares_backbone
from refprotofl.core.passed_objects import is_passed, reference_to
from refprotofl.core.streams import stream
from refprotofl.core.units import counted, duration, percent, read_whole, size, three_figures
from refprotofl.core.user_code import (
    Reference,
    blame,
    digest_code,
    is_reference,
    load_object,
    references,
    refuse_code,
    search_code_in,
)

if TYPE_CHECKING:
    from refprotofl.core.devices import CPU, make_repeatable
    from refprotofl.core.network import LOOPBACK, Link, Links, read_host, read_link, read_links, with_port
    from refprotofl.core.process import (
        interrupts_ignored,
        keep_freed_memory,
        live_with_parent,
        main_hidden,
        one_compute_thread,
    )
    from refprotofl.core.state import State, digest_run, digest_state, digest_value, tensor_of
else:
    __getattr__, __dir__ = lazy_names(__name__)

__all__ = [
    "ADAPTER",
    "ALL",
    "BODY",
    "CPU",
    "HEAD",
    "LOOPBACK",
    "WITHOUT_NORMS",
    "BudgetError",
    "ClientsFailed",
    "DataError",
    "DiskFull",
    "GuardError",
    "InputError",
    "Link",
    "Links",
    "MachineError",
    "Parts",
    "PrivacyError",
    "RefProtoFLError",
    "Reference",
    "RunError",
    "State",
    "as_code",
    "blame",
    "counted",
    "digest_code",
    "digest_run",
    "digest_state",
    "digest_value",
    "duration",
    "for_csv",
    "for_file_name",
    "for_latex",
    "for_markdown",
    "for_terminal",
    "interrupts_ignored",
    "is_passed",
    "is_reference",
    "keep_freed_memory",
    "lazy_names",
    "lines_for_terminal",
    "live_with_parent",
    "load_object",
    "main_hidden",
    "make_repeatable",
    "one_compute_thread",
    "percent",
    "read_host",
    "read_link",
    "read_links",
    "read_whole",
    "reference_to",
    "references",
    "refuse_code",
    "search_code_in",
    "shares_backbone",
    "size",
    "spell_out",
    "stream",
    "tensor_of",
    "three_figures",
    "with_port",
]
