"""Numbers with units, as people read and type them."""

import re

_WHOLE = re.compile(r"\d{1,18}", re.ASCII)


def percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.2f} %"


def three_figures(number: float) -> str:
    """Return a number as `0.123`, `12.3` or `1,234`, without powers of ten above 1."""
    return f"{number:,.0f}" if number >= 1000 else f"{number:.3g}"


def size(number: float) -> str:
    """Return bytes in units of 1000, such as `12.34 kB`."""
    for unit in ("B", "kB", "MB"):
        if number < 1000:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.2f} {unit}"
        number /= 1000
    return f"{number:.2f} GB"


def duration(seconds: float) -> str:
    """Return a time in its two largest units, such as `2 h 5 min`."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def read_whole(text: str) -> int | None:
    """Return a number written in up to 18 digits alone; None for anything else."""
    return int(text) if _WHOLE.fullmatch(text) else None


def counted(number: int, noun: str) -> str:
    """Return `1 round` or `20 rounds`; in a noun of several words the last gets the plural."""
    plural = noun[:-1] + "ies" if noun.endswith("y") else noun + ("es" if noun.endswith("s") else "s")
    plural = noun if noun.endswith("series") else plural
    return f"{number:,} {noun if number == 1 else plural}"
