import io
import tarfile

import numpy as np
import pytest

from refprotofl.core.errors import DataError
from refprotofl.data import load_dataset, locations


def write_cifar10(folder, cifar_records):
    folder.mkdir(parents=True, exist_ok=True)
    for batch in range(1, 6):
        (folder / f"data_batch_{batch}.bin").write_bytes(cifar_records([[batch], [9 - batch]]))
    (folder / "test_batch.bin").write_bytes(cifar_records([[7], [0], [3]]))


def pack(folder, archive, inside):
    with tarfile.open(archive, "w:gz") as tar:
        for file in sorted(folder.iterdir()):
            tar.add(file, f"{inside}/{file.name}")


@pytest.mark.parametrize("below", ["cifar-10-batches-bin", "."])
def test_cifar10(tmp_path, cifar_records, below):
    write_cifar10(tmp_path / below, cifar_records)
    data = load_dataset("cifar10", tmp_path)
    assert data.train_inputs.shape == (10, 3, 32, 32)
    assert data.test_inputs.shape == (3, 3, 32, 32)
    assert data.train_labels.tolist() == [1, 8, 2, 7, 3, 6, 4, 5, 5, 4]  # batches in their order
    assert data.test_labels.tolist() == [7, 0, 3]
    assert [int(data.train_inputs[1, channel, 0, 0]) for channel in range(3)] == [1, 2, 3]  # channels first
    assert data.class_names[3] == "cat"
    assert data.test_inputs.flags.writeable


def test_cifar100_takes_the_fine_label(tmp_path, cifar_records):
    folder = tmp_path / "cifar-100-binary"
    folder.mkdir()
    (folder / "train.bin").write_bytes(cifar_records([[11, 19], [15, 29]]))  # coarse, fine
    (folder / "test.bin").write_bytes(cifar_records([[10, 49]]))
    data = load_dataset("cifar100", tmp_path)
    assert data.train_labels.tolist() == [19, 29]
    assert data.test_labels.tolist() == [49]
    assert [data.class_names[label] for label in (19, 29, 49)] == ["cattle", "dinosaur", "mountain"]
    assert len(set(data.class_names)) == 100


def test_the_published_archive_is_read_in_place(tmp_path, cifar_records):
    write_cifar10(tmp_path / "loose", cifar_records)
    pack(tmp_path / "loose", tmp_path / "cifar-10-binary.tar.gz", "cifar-10-batches-bin")
    assert load_dataset("cifar10", tmp_path).train_labels.tolist() == [1, 8, 2, 7, 3, 6, 4, 5, 5, 4]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cifar-10-binary.tar.gz", "loose"]


def test_paths_in_an_archive_lead_nowhere(tmp_path, cifar_records):
    write_cifar10(tmp_path / "loose", cifar_records)
    (tmp_path / "in").mkdir()
    pack(tmp_path / "loose", tmp_path / "in" / "cifar-10-binary.tar.gz", "../../escaped")
    load_dataset("cifar10", tmp_path / "in")
    assert not list(tmp_path.rglob("escaped"))


def test_a_link_in_an_archive_is_not_followed(tmp_path):
    with tarfile.open(tmp_path / "cifar-100-binary.tar.gz", "w:gz") as tar:
        for name in ("train.bin", "test.bin"):
            link = tarfile.TarInfo(f"cifar-100-binary/{name}")
            link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
            tar.addfile(link)
    with pytest.raises(DataError, match=r"lacks test\.bin, train\.bin"):
        load_dataset("cifar100", tmp_path)


def test_an_archive_that_swells_is_not_unpacked(tmp_path, cifar_records, monkeypatch):
    write_cifar10(tmp_path / "loose", cifar_records)
    pack(tmp_path / "loose", tmp_path / "cifar-10-binary.tar.gz", "cifar-10-batches-bin")
    monkeypatch.setattr(locations, "LARGEST", 1000)
    with pytest.raises(DataError, match=r"data_batch_1\.bin\) is larger than any file of a known set"):
        load_dataset("cifar10", tmp_path)


def test_truncated_archive(tmp_path):
    stored = io.BytesIO()
    with tarfile.open(fileobj=stored, mode="w:gz") as tar:
        member = tarfile.TarInfo("train.bin")
        noise = np.random.Generator(np.random.Philox(0)).bytes(30740)
        member.size = len(noise)
        tar.addfile(member, io.BytesIO(noise))
    (tmp_path / "cifar-100-binary.tar.gz").write_bytes(stored.getvalue()[:20000])
    with pytest.raises(DataError, match=r"cifar-100-binary\.tar\.gz is truncated or corrupt"):
        load_dataset("cifar100", tmp_path)


@pytest.mark.parametrize("kept", [0, 3072, 3074])
def test_truncated_batch_names_the_file(tmp_path, cifar_records, kept):
    write_cifar10(tmp_path, cifar_records)
    (tmp_path / "data_batch_3.bin").write_bytes(bytes(kept))
    with pytest.raises(DataError, match=r"data_batch_3\.bin is truncated or corrupt"):
        load_dataset("cifar10", tmp_path)


def test_a_header_that_swells_is_not_unpacked(tmp_path, monkeypatch):
    """An extended header is read as a whole, whatever size it claims."""
    monkeypatch.setattr(locations, "LARGEST_ARCHIVE", 100_000)
    with tarfile.open(tmp_path / "cifar-100-binary.tar.gz", "w:gz", format=tarfile.PAX_FORMAT) as tar:
        tar.addfile(tarfile.TarInfo("a"))
        member = tarfile.TarInfo("train.bin")
        member.pax_headers = {"comment": "0" * 1_000_000}
        tar.addfile(member)
    assert (tmp_path / "cifar-100-binary.tar.gz").stat().st_size < 5_000
    with pytest.raises(DataError, match="unpacks to more than any known set"):
        load_dataset("cifar100", tmp_path)
