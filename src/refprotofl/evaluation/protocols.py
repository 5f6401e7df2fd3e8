"""The evaluation protocols: each is declared here, and everything that shows or records them reads this."""

import difflib
from dataclasses import dataclass
from typing import Literal

from refprotofl.core import InputError


@dataclass(frozen=True)
class Protocol:
    name: str
    meaning: str  # shown on the screen and in a model card; {all} and {own} are what it is scored on
    out_of: Literal["tested", "own_tested"]  # the whole test set, or the part with the client's own class mix
    per_client: bool = True  # else one value, of the aggregated model
    costly: bool = False  # takes forward passes of its own: scored in the last round only, unless it is named

    def definition(self, validation: float = 0.0) -> str:
        """Return the meaning in words; with `validation` clients hold out the samples that are scored."""
        return self.meaning.format_map(_HELD_OUT if validation else _TESTED)


_TESTED = {"all": "the whole test set", "own": "test data with the client's own class mix"}
_HELD_OUT = {"all": "the samples that all clients hold out", "own": "the samples that the client itself holds out"}


# In the order in which they are shown and recorded. "…_prototype" predicts the class of the nearest prototype.
_DECLARED = (
    Protocol("personal", "private part with the newest shared part, on {all}", "tested"),
    Protocol("personal_before", "straight after local training, before aggregation, on {all}", "tested", costly=True),
    Protocol("global", "the one aggregated model, on {all}", "tested", per_client=False),
    Protocol("own", "{own}", "own_tested"),
    Protocol("personal_prototype", "like personal, by the nearest prototype instead of the head", "tested"),
    Protocol("own_prototype", "like own, by the nearest prototype instead of the head", "own_tested"),
)

PROTOCOLS = {protocol.name: protocol for protocol in _DECLARED}


def check_protocol(name: str) -> None:
    """Raise InputError if --protocol does not name a protocol."""
    if name not in PROTOCOLS:
        close = difflib.get_close_matches(name, PROTOCOLS, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(PROTOCOLS)}."
        raise InputError(f"--protocol {name} is unknown; {hint}")
