"""FedYogi (Reddi et al. 2021)."""

from refprotofl.methods import lazy
from refprotofl.methods.builtin import fedadam


class Options(fedadam.Options):
    """FedAdam's keys, in a table of their own."""


class FedYogi(fedadam.FedAdam):
    """FedAvg with Yogi at the server"""

    name = "fedyogi"
    options = Options
    server = lazy("refprotofl.methods.builtin.fedyogi.fedyogi:FedYogiServer")
    notes = ("as in the paper's algorithm the mean square starts at tau^2",)
