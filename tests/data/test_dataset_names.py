import subprocess
import sys

import numpy as np
import pytest

from refprotofl.core.errors import InputError
from refprotofl.data import load_dataset


@pytest.mark.parametrize(
    ("name", "nearest"),
    [("fashion_mnist", "fashion-mnist"), ("cifar-10", "cifar10"), ("MNIST", "mnist"), ("digit", "digits")],
)
def test_a_misspelt_name_is_answered_with_the_nearest(name, nearest):
    with pytest.raises(InputError, match=f"Did you mean '{nearest}'\\? Allowed: digits, mnist, .*module:function"):
        load_dataset(name)


def test_a_name_like_none_is_not_guessed_at():
    with pytest.raises(InputError, match=r"'zzzzzz' is unknown\. Allowed"):
        load_dataset("zzzzzz")


@pytest.mark.parametrize("name", ["./nowhere", "nowhere.npz", "/no/such/folder"])
def test_a_path_that_is_not_there(name):
    with pytest.raises(InputError, match="path not found in"):
        load_dataset(name)


def test_a_kind_of_file_that_is_not_read(tmp_path):
    (tmp_path / "table.doc").write_text("1,2")
    with pytest.raises(InputError, match="files of this type are not supported"):
        load_dataset(str(tmp_path / "table.doc"))


def test_digits_split_is_fixed_and_stratified():
    data, other = load_dataset("digits", None, 0), load_dataset("digits", None, 5)
    assert np.array_equal(data.test_inputs, other.test_inputs)
    assert len(data.train_inputs) + len(data.test_inputs) == 1797
    assert data.shape == (1, 8, 8)
    assert data.train_inputs.max() == 255
    whole = np.bincount(np.concatenate([data.train_labels, data.test_labels]))
    assert np.bincount(data.test_labels).tolist() == [round(0.2 * count) for count in whole]


def test_importing_the_package_imports_nothing_heavy():
    heavy = {"torch", "sklearn", "matplotlib", "PIL", "requests"}
    code = f"import sys, refprotofl.data; print({heavy} & set(sys.modules))"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "set()"
