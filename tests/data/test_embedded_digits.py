"""The digits are read from scikit-learn's file without importing it, and are what it would give."""

import subprocess
import sys

import numpy as np
import pytest
from sklearn.datasets import load_digits as embedded

from refprotofl.data import standard


def test_the_file_holds_what_scikit_learn_gives() -> None:
    pixels, labels = standard.read_embedded()
    given = embedded()
    assert np.array_equal(pixels, given.data)
    assert labels.tolist() == given.target.tolist()
    assert labels.dtype == np.int64


def test_without_the_file_scikit_learn_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    direct = standard.read_embedded()
    monkeypatch.setattr(standard, "find_spec", lambda name: None)
    for ours, theirs in zip(direct, standard.read_embedded(), strict=True):
        assert np.array_equal(ours, theirs)
        assert ours.dtype == theirs.dtype


def test_scikit_learn_is_not_imported() -> None:
    script = (
        "import sys; from refprotofl.data.standard import load_digits; load_digits(); print('sklearn' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
