"""No privacy mechanism: answers are used as they are, and nothing is forbidden."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from refprotofl.privacy.mechanism import Mechanism

if TYPE_CHECKING:
    from refprotofl.methods.declaration import Method


class NoPrivacy(Mechanism):
    unit: ClassVar[str] = "none"
    protects: ClassVar[bool] = False
    simulation_only: ClassVar[str] = ""
    repeats_rounds: ClassVar[bool] = True
    compares_answers: ClassVar[bool] = True
    own_aggregator: ClassVar[bool] = True
    exact_statistics: ClassVar[bool] = True

    def undefined_reason(self, method: "Method") -> str:
        return ""

    def spent(self, rounds: int, sizes: Sequence[int], participations: Sequence[int]) -> None:
        return None
