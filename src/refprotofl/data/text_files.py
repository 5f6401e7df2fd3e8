"""Text files, one sample each."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from refprotofl.core import DataError, size
from refprotofl.data.array_files import machine_memory

LARGEST = 1 << 24  # bytes of a file
BYTES = 4  # that a character takes in an array


def is_text(path: Path) -> bool:
    return path.suffix.lower() == ".txt" and not path.name.startswith(".")


def read_texts(files: Sequence[Path]) -> NDArray[np.str_]:
    """Read the files (N,); an empty one is refused."""
    return as_texts([_read(file) for file in files], str(files[0].parent) if files else "")


def _read(file: Path) -> str:
    try:
        if file.stat().st_size > LARGEST:
            raise DataError(f"{file} has {size(file.stat().st_size)}, more than {size(LARGEST)}: cut it into parts.")
        text = file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise DataError(f"{file} is not UTF-8 text: save it as UTF-8.") from None
    except OSError as problem:
        raise DataError(f"{file} cannot be read: {problem.strerror or problem}.") from None
    if not text.strip():
        raise DataError(f"{file} is an empty text: remove it or fill it in.")
    return text


def as_texts(texts: Sequence[str], origin: str) -> NDArray[np.str_]:
    """Return texts (N,) as an array, in which each takes as much memory as the longest."""
    longest = max(map(len, texts), default=0)
    needed, memory = BYTES * longest * len(texts), machine_memory()
    if memory is not None and needed > memory / 2:
        raise DataError(
            f"{origin}: {len(texts):,} texts, each as long as the longest of {longest:,} characters, take "
            f"{size(needed)}, more than this machine has: shorten the long ones."
        )
    return np.array(texts, np.str_)
