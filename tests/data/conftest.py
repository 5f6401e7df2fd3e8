"""Every test here sees an empty cache, no $REFPROTOFL_DATA and no network but 127.0.0.1."""

import gzip
import os
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

REAL_DATA = os.environ.get("REFPROTOFL_DATA")  # before it is hidden from the tests


@pytest.fixture(autouse=True)
def nothing_of_this_machine(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / "cache"))
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.delenv("REFPROTOFL_DATA", raising=False)


@pytest.fixture
def real_data() -> Path:
    if not REAL_DATA:
        pytest.skip("set REFPROTOFL_DATA to a folder with mnist, fashion-mnist and cifar-10-batches-bin to run this")
    return Path(REAL_DATA)


def idx_bytes(array: np.ndarray) -> bytes:
    return struct.pack(f">4B{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.astype(np.uint8).tobytes()


@pytest.fixture
def write_idx_set() -> Callable[..., dict[str, np.ndarray]]:
    """Writes four tiny IDX files into a folder; gives the arrays that went in."""

    def write(folder: Path, packed: bool = True, samples: int = 20) -> dict[str, np.ndarray]:
        folder.mkdir(parents=True, exist_ok=True)
        written: dict[str, np.ndarray] = {}
        for split, count in (("train", samples), ("t10k", samples // 2)):
            written[f"{split}-images-idx3-ubyte"] = np.arange(count * 12).reshape(count, 4, 3) % 256
            written[f"{split}-labels-idx1-ubyte"] = np.arange(count) % 10
        for name, array in written.items():
            if packed:
                (folder / f"{name}.gz").write_bytes(gzip.compress(idx_bytes(array)))
            else:
                (folder / name).write_bytes(idx_bytes(array))
        return written

    return write


@pytest.fixture
def pack_idx() -> Callable[[np.ndarray], bytes]:
    return lambda array: gzip.compress(idx_bytes(array))


@pytest.fixture
def cifar_records() -> Callable[[list[list[int]]], bytes]:
    """Records with the given label bytes; image i is filled with the bytes i, i + 1, i + 2 by channel."""

    def write(labels: list[list[int]]) -> bytes:
        records = [
            bytes(label) + b"".join(bytes([(number + channel) % 256]) * 1024 for channel in range(3))
            for number, label in enumerate(labels)
        ]
        return b"".join(records)

    return write
