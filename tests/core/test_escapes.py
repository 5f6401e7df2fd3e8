"""Text from outside does no harm where it goes, and stays readable."""

import codecs
import csv
import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

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

anything = st.text(st.characters(), max_size=30)  # halves of characters too, as in file names that are not UTF-8


@given(anything)
def test_a_terminal_gets_one_line_without_controls(text: str) -> None:
    shown = for_terminal(text)
    assert not re.search(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]", shown)
    shown.encode()  # no half of a character is left


@pytest.mark.parametrize("name", ["Größe", "猫　犬", "T-shirt/top", "[red]", "\N{WOMAN}\u200d\N{ROCKET}"])
def test_what_does_no_harm_is_left_alone(name: str) -> None:
    assert for_terminal(name) == name


def test_controls_are_spelt_out() -> None:
    assert for_terminal("a\x1b[31mb\nc\u202ed") == r"a\x1b[31mb\nc\u202ed"
    assert lines_for_terminal("a\x07\nb") == "a\\x07\nb"


@pytest.mark.parametrize(
    ("value", "cell"),
    [
        ("=cmd|' /C calc'!A0", "'=cmd|' /C calc'!A0"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("+1+cmd", "'+1+cmd"),
        ("-a.png", "'-a.png"),
        ("-1", "-1"),  # a class may be called so
        ("+2.5e3", "+2.5e3"),
        ("cat", "cat"),
        ("a\x1b\nb", r"a\x1b\nb"),
        ("", ""),
        (-3, -3),
    ],
)
def test_a_spreadsheet_sees_no_formula(value: object, cell: object) -> None:
    assert for_csv(value) == cell


@given(anything)
def test_a_cell_is_one_line_of_a_csv_file(text: str) -> None:
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerow([for_csv(text), "next"])
    assert file.getvalue().count("\n") == 1


def test_markdown_shows_the_text_itself() -> None:
    assert for_markdown("<script>|*a*_`b`\n# c") == r"&lt;script&gt;\|\*a\*\_\`b\`\\n\# c"
    assert for_markdown("[a](javascript:b) & c") == r"\[a\](javascript:b) &amp; c"


@pytest.mark.parametrize(
    ("text", "code"), [("mlp", "`mlp`"), ("a`b", "`` a`b ``"), ("a|b", r"`a\|b`"), ("a\nb", r"`a\nb`")]
)
def test_code_cannot_leave_its_span(text: str, code: str) -> None:
    assert as_code(text) == code


def test_latex() -> None:
    assert for_latex(r"50 % ± 1_a\b{#}") == r"50 \% $\pm$ 1\_a\textbackslash{}b\{\#\}"


@given(anything)
def test_a_file_name_is_one_that_every_system_takes(text: str) -> None:
    assert re.fullmatch(r"[\w-][\w.-]{0,39}", for_file_name(text), re.ASCII)


def test_an_encoding_without_the_character_gets_something_like_it() -> None:
    codecs.register_error("test-spell-out", spell_out)
    assert "1 ± 2 … ─ ü".encode("ascii", "test-spell-out") == b"1 +/- 2 ... - \\xfc"
