import pytest

from refprotofl.core.errors import DataError, InputError
from refprotofl.data import check, fetch, list_datasets


def test_the_list_shows_what_is_here(tmp_path, write_idx_set):
    write_idx_set(tmp_path / "mnist")
    rows = {row.name: row for row in list_datasets(tmp_path)}
    assert list(rows) == ["digits", "mnist", "fashion-mnist", "cifar10", "cifar100"]
    assert rows["mnist"].where == str(tmp_path / "mnist")
    assert rows["mnist"].size == sum(file.stat().st_size for file in (tmp_path / "mnist").iterdir())
    assert rows["cifar10"].where == "not here"
    assert rows["cifar10"].source.startswith("https://www.cs.toronto.edu")
    assert rows["cifar100"].classes == 100
    assert rows["digits"].images == 1797


def test_a_check_counts_and_reports_what_is_not_as_published(tmp_path, write_idx_set):
    write_idx_set(tmp_path / "mnist")
    found = check("mnist", tmp_path)
    assert (found.train_inputs, found.test_inputs, found.shape) == (20, 10, (1, 4, 3))
    assert found.train_counts == (2,) * 10
    assert found.test_counts == (1,) * 10
    assert found.verified == ()
    assert len(found.unverified) == 4


def test_a_check_downloads_nothing(tmp_path):
    with pytest.raises(DataError, match="data fetch cifar10"):
        check("cifar10", tmp_path)


def test_digits_need_no_fetching(tmp_path):
    assert fetch("digits", tmp_path) == "in scikit-learn"
    assert check("digits", None).train_inputs == 1438


def test_only_standard_sets_can_be_fetched(tmp_path):
    with pytest.raises(InputError, match="Choose one of digits, mnist"):
        fetch("emnist", tmp_path)
