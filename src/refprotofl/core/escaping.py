"""Escaping of text from outside for the terminal and for files: class names, paths and errors may hold anything."""

import re
import unicodedata

_UNSEEN = {"Cc", "Cf", "Cs", "Zl", "Zp"}  # controls, marks of direction, halves of characters, line separators
_JOINERS = "\u200c\u200d"  # within words of some scripts, and within emoji
_IN_ASCII = {
    "±": "+/-",
    "…": "...",
    "\N{MULTIPLICATION SIGN}": "x",
    "≥": ">=",
    "≤": "<=",
    "‖": "||",
    "†": "+",
} | dict.fromkeys("─━\N{EN DASH}\N{EM DASH}", "-")
_MARKDOWN = re.compile(r"([\\`*_\[\]#|~$])")
_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "±": r"$\pm$",
    "†": r"\textdagger{}",
} | {sign: f"\\{sign}" for sign in "&%$#_{}"}


def for_terminal(text: object) -> str:
    """Return one line in which every character that moves the cursor, colours or reverses text is spelt out."""
    return "".join(_spelt(sign) for sign in str(text))


def lines_for_terminal(text: str) -> str:
    """Return a text of several lines, each as `for_terminal` gives it."""
    return "\n".join(map(for_terminal, text.split("\n")))


def for_csv(value: object) -> object:
    """Return a cell that a spreadsheet reads as text, not as a formula; numbers stay as they are."""
    if not isinstance(value, str):
        return value
    shown = for_terminal(value)
    return f"'{shown}" if shown[:1] in ("=", "+", "-", "@") and not _is_number(shown) else shown


def for_markdown(text: object) -> str:
    """Return text for a paragraph or a table cell, without markup, HTML included."""
    shown = _MARKDOWN.sub(r"\\\1", for_terminal(text))
    return shown.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def as_code(text: object) -> str:
    """Return a span of code in Markdown, also for table cells; backquotes in it are within longer ones."""
    shown = for_terminal(text).replace("|", "\\|")
    longest = max(map(len, re.findall("`+", shown)), default=0)
    fence, gap = "`" * (longest + 1), " " if longest else ""
    return f"{fence}{gap}{shown}{gap}{fence}"


def for_latex(text: object) -> str:
    return "".join(_LATEX.get(sign, sign) for sign in for_terminal(text))


def for_file_name(text: object) -> str:
    """Return a short part of a file name that is valid on every system."""
    return re.sub(r"[^\w.-]+", "-", str(text), flags=re.ASCII).strip("-.")[:40] or "unnamed"


def spell_out(problem: UnicodeError) -> tuple[str, int]:
    """Replace a character that an encoding lacks by a similar one, else by its number: an encoding error handler."""
    if not isinstance(problem, UnicodeEncodeError):
        raise problem
    unknown = problem.object[problem.start : problem.end]
    return "".join(_IN_ASCII.get(sign) or _numbered(sign) for sign in unknown), problem.end


def _spelt(sign: str) -> str:
    if sign.isprintable() or sign in _JOINERS or unicodedata.category(sign) not in _UNSEEN:
        return sign
    return _numbered(sign)


def _numbered(sign: str) -> str:
    return sign.encode("unicode_escape").decode("ascii")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
