"""The names that methods are made of can be imported in any order, and declarations without torch."""

import inspect
import subprocess
import sys
from importlib import import_module

import pytest

from refprotofl.core.lazy import homes_of


@pytest.mark.parametrize("name", ["Cost", "Method", "Table"])
def test_names_of_a_declaration_can_be_imported_first_and_without_torch(name: str) -> None:
    code = f"import sys; from refprotofl.methods import {name}; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert (done.stdout, done.stderr) == ("False\n", "")


@pytest.mark.parametrize("name", ["core", "experiment", "methods", "records"])
def test_a_package_lists_the_names_that_it_loads(name: str) -> None:
    package = import_module(f"refprotofl.{name}")
    assert set(homes_of(inspect.getsource(package))) <= set(package.__all__)
    assert all(getattr(package, public) is not None for public in package.__all__)
