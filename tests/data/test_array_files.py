"""Headers are believed only as far as the bytes go, and nothing is read that does not fit into memory."""

import io
import zipfile
from pathlib import Path

import numpy as np
import pytest

from refprotofl.core.errors import DataError
from refprotofl.data import array_files, load_dataset
from refprotofl.data.array_files import machine_memory, npz_contents, read_npy, read_npz
from refprotofl.data.labelled_samples import load_labelled
from refprotofl.data.reading import AS_IT_COMES


def npy(shape: tuple[int, ...], content: bytes, dtype: str = "|u1") -> bytes:
    """A .npy whose header may claim anything."""
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"descr": dtype, "fortran_order": False, "shape": shape})
    return stream.getvalue() + content


def write_npz(path: Path, **members: bytes) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in members.items():
            file.writestr(f"{name}.npy", content)
    return path


@pytest.mark.parametrize("shape", [(10**6, 1000, 1000), (2**33, 2**31, 1), (11, 2, 2)])
def test_a_header_that_claims_more_than_is_there(tmp_path: Path, shape: tuple[int, ...]) -> None:
    bad, good = npy(shape, bytes(40)), npy((10,), bytes(10))
    path = write_npz(tmp_path / "own.npz", x_train=bad, y_train=good, x_test=bad, y_test=good)
    with pytest.raises(DataError, match=r"own\.npz: x_train is truncated or corrupt: its header claims [\d,]+ bytes"):
        load_dataset(str(path))
    (tmp_path / "own.npy").write_bytes(bad)
    with pytest.raises(DataError, match="40 are there"):
        read_npy(tmp_path / "own.npy")


def test_a_bomb_is_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A million zeros are a kilobyte in the file; with little memory that is a bomb."""
    path = write_npz(tmp_path / "own.npz", x=npy((1_000_000,), bytes(1_000_000)), y=npy((900,), bytes(900)))
    assert path.stat().st_size < 5_000
    monkeypatch.setattr(array_files, "machine_memory", lambda: 500_000)
    with pytest.raises(DataError, match=r"x takes 1\.00 MB, more than the memory of this machine"):
        read_npz(path, lambda names: names)
    assert read_npz(path, lambda _: ["y"])["y"].shape == (900,)
    monkeypatch.setattr(array_files, "machine_memory", lambda: 1_000_500)
    with pytest.raises(DataError, match="y takes 900 B"):  # together they do not fit
        read_npz(path, lambda names: names)


def test_negative_lengths_and_strange_versions_are_refused(tmp_path: Path) -> None:
    (tmp_path / "own.npy").write_bytes(npy((-1, 5), bytes(5)))
    with pytest.raises(ValueError, match="negative"):
        read_npy(tmp_path / "own.npy")
    (tmp_path / "own.npy").write_bytes(b"\x93NUMPY\x09\x00" + bytes(100))
    with pytest.raises(ValueError):
        read_npy(tmp_path / "own.npy")


def test_what_numpy_saves_is_read_as_numpy_reads_it(tmp_path: Path) -> None:
    arrays: dict[str, np.ndarray] = {
        "a": np.asfortranarray(np.arange(12).reshape(3, 4)),
        "b": np.array(["x", "yy"]),
        "c": np.array(3, np.float16),
    }
    for save in (np.savez, np.savez_compressed):
        save(tmp_path / "own.npz", a=arrays["a"], b=arrays["b"], c=arrays["c"])
        found = read_npz(tmp_path / "own.npz", lambda names: names)
        assert all(np.array_equal(found[name], array) for name, array in arrays.items())


def test_a_single_array_called_npz(tmp_path: Path) -> None:
    np.save(tmp_path / "own.npy", np.zeros(3))
    (tmp_path / "own.npy").rename(tmp_path / "own.npz")
    with pytest.raises(DataError, match="holds a single array; save x_train"):
        load_dataset(str(tmp_path / "own.npz"))


def zeros_npz(path: Path, megabytes: int, name: str = "x_train") -> Path:
    """An archive of zeros, a thousandth of its content; written piece by piece."""
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file,
        file.open(f"{name}.npy", "w", force_zip64=True) as member,
    ):
        member.write(npy((megabytes, 1024, 1024), b""))
        for _ in range(megabytes):
            member.write(bytes(1 << 20))
    return path


def test_zeros_are_not_unpacked_though_there_is_memory_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = zeros_npz(tmp_path / "own.npz", 80)
    assert path.stat().st_size < 100_000
    monkeypatch.setattr(array_files, "machine_memory", lambda: 1 << 60)
    monkeypatch.setattr(np.lib.format, "read_array", None)  # nothing is read, so no memory is taken
    with pytest.raises(DataError, match=r"more than 100 times its size, as a decompression bomb.*numpy\.savez"):
        load_dataset(str(path))


def test_many_small_arrays_of_zeros_count_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(array_files, "UNSUSPECTED", 1_000_000)
    path = write_npz(tmp_path / "own.npz", **{f"a{n}": npy((300_000,), bytes(300_000)) for n in range(5)})
    with pytest.raises(DataError, match="a3 would unpack"):
        read_npz(path, lambda names: names)


def test_stored_without_compression_zeros_are_data_like_any(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(array_files, "UNSUSPECTED", 1000)
    np.savez(tmp_path / "own.npz", x=np.zeros((50, 28, 28), np.uint8))
    assert read_npz(tmp_path / "own.npz", lambda names: names)["x"].shape == (50, 28, 28)


def test_the_memory_of_a_container_is_the_memory_there_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limit = tmp_path / "memory.max"
    monkeypatch.setattr(array_files, "CONTAINER_LIMIT", limit)
    whole = machine_memory()
    limit.write_text("123456\n")
    assert machine_memory() == 123456
    limit.write_text("max\n")
    assert machine_memory() == whole


def test_a_file_without_the_arrays_that_are_needed_is_described(tmp_path: Path) -> None:
    np.savez(tmp_path / "other.npz", images=np.zeros((4, 2, 2)), labels=np.zeros(4))
    with pytest.raises(DataError, match=r"lacks x_train.*It holds images, labels\."):
        load_dataset(str(tmp_path / "other.npz"))
    with pytest.raises(DataError, match=r"must hold x and y.*It holds images, labels\."):
        load_labelled(str(tmp_path / "other.npz"), "test.dataset", None, AS_IT_COMES)
    write_npz(tmp_path / "many.npz", **{f"a{number}": b"" for number in range(12)})
    assert npz_contents(tmp_path / "many.npz").endswith("a9 and 2 more.")
