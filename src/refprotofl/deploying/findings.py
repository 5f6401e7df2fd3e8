"""What `deploy doctor` says of one thing that it looked at."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """`fine` is None where it could not be looked at."""

    subject: str
    fine: bool | None
    words: str
