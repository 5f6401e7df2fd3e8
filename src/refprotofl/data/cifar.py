"""The binary version of CIFAR: records of a label byte (two in CIFAR-100) and 3,072 of pixels."""

import numpy as np

from refprotofl.data.dataset import Images, Labels
from refprotofl.errors import DataError

PIXELS = 3 * 32 * 32


def parse_cifar(content: bytes, label_bytes: int, origin: str) -> tuple[Images, Labels]:
    """Images (N, 3, 32, 32) and the last label of every record: the fine one in CIFAR-100."""
    record = label_bytes + PIXELS
    if not content or len(content) % record:
        raise DataError(
            f"{origin} is truncated or corrupt: {len(content):,} bytes are not a whole number of records "
            f"of {record:,} bytes. Fetch it again (the binary version, not the Python one)."
        )
    records = np.frombuffer(content, np.uint8).reshape(-1, record)
    images = records[:, label_bytes:].reshape(-1, 3, 32, 32)
    return images, records[:, label_bytes - 1].astype(np.int64)
