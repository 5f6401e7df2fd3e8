"""Digests of data: other bytes, another digest; the same bytes elsewhere or packed otherwise, the same."""

import gzip
import os
from pathlib import Path

import pytest

from refprotofl.data import digests
from refprotofl.data.digests import digest_data
from refprotofl.data.standard import STANDARD


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digests, "_cache_file", lambda: tmp_path / "cache" / "digests.json")
    monkeypatch.setattr(digests, "_FRESH", -1e9)


def test_a_file_is_identified_by_its_bytes(tmp_path: Path) -> None:
    one, other = tmp_path / "one.npz", tmp_path / "other.npz"
    one.write_bytes(b"data")
    other.write_bytes(b"data")
    assert digest_data(str(one), None) == digest_data(str(other), None)
    other.write_bytes(b"Data")
    assert digest_data(str(one), None) != digest_data(str(other), None)


def test_a_folder_is_identified_by_names_and_bytes(tmp_path: Path) -> None:
    folder = tmp_path / "images"
    (folder / "train" / "cat").mkdir(parents=True)
    (folder / "train" / "dog").mkdir()
    (folder / "train" / "cat" / "1.png").write_bytes(b"1")
    seen = [digest_data(str(folder), None)]
    (folder / ".hidden").write_bytes(b"of the system")
    assert digest_data(str(folder), None) == seen[0]
    (folder / "train" / "cat" / "1.png").rename(folder / "train" / "dog" / "1.png")
    seen.append(digest_data(str(folder), None))
    (folder / "train" / "dog" / "1.png").write_bytes(b"2")
    seen.append(digest_data(str(folder), None))
    assert len(set(seen)) == 3


def test_a_standard_set_is_identified_by_what_its_files_hold(tmp_path: Path) -> None:
    for root, pack in ((tmp_path / "plain", False), (tmp_path / "packed", True)):
        (root / "mnist").mkdir(parents=True)
        for name in STANDARD["mnist"].contents:
            data = name.encode()
            path = root / "mnist" / (f"{name}.gz" if pack else name)
            path.write_bytes(gzip.compress(data) if pack else data)
    plain = digest_data("mnist", tmp_path / "plain")
    assert plain is not None
    assert plain == digest_data("mnist", tmp_path / "packed")
    (tmp_path / "plain" / "mnist" / "train-labels-idx1-ubyte").write_bytes(b"others")
    assert digest_data("mnist", tmp_path / "plain") != plain


def test_what_is_not_here_is_not_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    for name in ("gone.npz", "module:function", "hf:owner/name"):
        assert digest_data(name, None) is None
    assert digest_data("digits", None) == "digits"
    refs = tmp_path / "hub" / "datasets--owner--name" / "refs"
    refs.mkdir(parents=True)
    (refs / "main").write_text("abc123")
    assert digest_data("hf:owner/name", None) == "abc123"


def test_what_was_hashed_once_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "one.npz"
    file.write_bytes(b"data")
    first = digest_data(str(file), None)
    with monkeypatch.context() as patch:
        patch.setattr(digests, "_digest_file", lambda _: pytest.fail("it was read"))
        assert digest_data(str(file), None) == first
    found = file.stat()
    file.write_bytes(b"Data")
    os.utime(file, ns=(found.st_atime_ns, found.st_mtime_ns))  # as if nothing had been written
    assert digest_data(str(file), None) != first


def test_a_file_that_was_just_written_is_hashed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digests, "_FRESH", 1e9)
    file = tmp_path / "one.npz"
    file.write_bytes(b"data")
    digest_data(str(file), None)
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize("text", ["", "[]", '{"a": 1}', "[" * 100_000])
def test_a_broken_cache_costs_no_more_than_to_hash_again(tmp_path: Path, text: str) -> None:
    file = tmp_path / "one.npz"
    file.write_bytes(b"data")
    first = digest_data(str(file), None)
    (tmp_path / "cache" / "digests.json").write_text(text)
    assert digest_data(str(file), None) == first


def test_no_cache_at_all_is_no_problem(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file in the way")
    file = tmp_path / "one.npz"
    file.write_bytes(b"data")
    assert digest_data(str(file), None) == digest_data(str(file), None)
