"""The names that methods are made of can be imported in any order, and declarations without torch."""

import subprocess
import sys

import pytest

from refprotofl import methods


@pytest.mark.parametrize("name", ["Cost", "Method", "Table"])
def test_names_of_a_declaration_can_be_imported_first_and_without_torch(name: str) -> None:
    code = f"import sys; from refprotofl.methods import {name}; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert (done.stdout, done.stderr) == ("False\n", "")


def test_every_name_has_one_home_and_is_there() -> None:
    assert sorted(methods._HOMES) == sorted(methods.__all__)
    assert all(getattr(methods, name) is not None for name in methods.__all__)
