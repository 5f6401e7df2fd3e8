"""Public names of packages: they can be imported in any order, and those of declarations without torch."""

import inspect
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from refprotofl import methods
from refprotofl.core.lazy import homes_of

PACKAGES = [
    file.parent.name for file in Path(methods.__file__).parents[1].glob("*/__init__.py") if homes_of(file.read_text())
]


@pytest.mark.parametrize("name", ["Cost", "Method", "Table"])
def test_names_of_a_declaration_can_be_imported_first_and_without_torch(name: str) -> None:
    code = f"import sys; from refprotofl.methods import {name}; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert (done.stdout, done.stderr) == ("False\n", "")


@pytest.mark.parametrize("name", PACKAGES)
def test_a_package_lists_the_names_that_it_loads(name: str) -> None:
    package = import_module(f"refprotofl.{name}")
    assert set(homes_of(inspect.getsource(package))) <= set(package.__all__)
    assert all(getattr(package, public) is not None for public in package.__all__)


@pytest.mark.parametrize("name", PACKAGES)
def test_no_module_hides_a_public_name(name: str) -> None:
    package = import_module(f"refprotofl.{name}")
    assert {file.stem for file in Path(package.__path__[0]).iterdir()}.isdisjoint(package.__all__)
