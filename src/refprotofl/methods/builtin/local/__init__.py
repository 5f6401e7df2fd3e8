"""No federation: every client alone, which every method with private parts must beat."""

from typing import TYPE_CHECKING

from refprotofl.methods import Cost, Method, Releases, lazy

if TYPE_CHECKING:
    from refprotofl.experiment import Experiment


class Local(Method):
    """no federation: every client alone"""

    name = "local"
    shared = ()
    server = lazy("refprotofl.methods.builtin.local.local:LocalServer")
    client = lazy("refprotofl.methods.builtin.local.local:LocalClient")

    @staticmethod
    def releases(experiment: "Experiment") -> Releases:
        return Releases(sample=0, client="nothing leaves a client")

    @staticmethod
    def cost(experiment: "Experiment") -> Cost:
        return Cost("0", "0")
