"""Numbers as a person reads and types them."""

import re

_WHOLE = re.compile(r"\d{1,18}", re.ASCII)


def percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.2f} %"


def three_figures(number: float) -> str:
    """`0.123`, `12.3`, `1,234`: without powers of ten above 1."""
    return f"{number:,.0f}" if number >= 1000 else f"{number:.3g}"


def size(number: float) -> str:
    """Bytes in units of 1000."""
    for unit in ("B", "kB", "MB"):
        if number < 1000:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.2f} {unit}"
        number /= 1000
    return f"{number:.2f} GB"


def duration(seconds: float) -> str:
    """In the two largest units, such as `2 h 5 min`."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def read_whole(text: str) -> int | None:
    """A number of digits alone, up to 18 of them; None for anything else."""
    return int(text) if _WHOLE.fullmatch(text) else None


def counted(number: int, noun: str) -> str:
    """`1 round`, `20 rounds`; of a noun in several words the last is counted."""
    plural = noun[:-1] + "ies" if noun.endswith("y") else noun + ("es" if noun.endswith("s") else "s")
    return f"{number:,} {noun if number == 1 else plural}"
