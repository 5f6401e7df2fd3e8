"""How commands print: outside text is never markup, a closed pipe is no error, and any encoding will do."""

import codecs
import io
import os
import sys
from typing import Any

from rich.console import Console
from rich.text import Text

from refprotofl.basics.escapes import lines_for_terminal, spell_out

codecs.register_error("spell-out", spell_out)


class PlainConsole(Console):
    """A console that shows every text as it is, and control characters spelt out."""

    def __init__(self, *, stderr: bool = False, **options: Any) -> None:
        # NO_COLOR asks for no colours; bold and dim are styles of the same kind to who sets it.
        system = None if os.environ.get("NO_COLOR") else "auto"
        super().__init__(
            stderr=stderr, markup=False, emoji=False, highlight=False, **({"color_system": system} | options)
        )

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(lines_for_terminal(text), **options)

    def on_broken_pipe(self) -> None:
        """Nobody reads on. The command goes on all the same: what it does beside printing is still wanted."""
        self.quiet = True
        _discard(self.file)


out = PlainConsole()
notes = PlainConsole(stderr=True)


def say(sentence: str, console: Console = out) -> None:
    """A line that the terminal wraps, not we: it can be copied and searched."""
    console.print(Text(lines_for_terminal(sentence)), soft_wrap=True)


def explain(paragraph: str, console: Console = out) -> None:
    """Prose, wrapped between words."""
    console.print(Text(lines_for_terminal(paragraph)))


def complain(sentence: str) -> None:
    notes.print(Text("error: ", style="bold red"), end="")
    say(sentence, notes)


def warn(sentence: str, console: Console = notes) -> None:
    console.print(Text("warning: ", style="yellow"), end="")
    say(sentence, console)


def emit(text: str) -> None:
    """Text for another program, to the letter."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        _discard(sys.stdout)


def as_encoded(text: str, console: Console) -> str:
    """As it will be seen: a character that the terminal's encoding lacks is spelt out, and takes more room."""
    return text.encode(console.encoding, "spell-out").decode(console.encoding)


def take_any_character() -> None:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="spell-out")


def flush() -> None:
    """Before the process ends, so that Python has nothing to complain about then."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BrokenPipeError:
            _discard(stream)


def _discard(stream: Any) -> None:
    """What is still written to a closed pipe goes nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
