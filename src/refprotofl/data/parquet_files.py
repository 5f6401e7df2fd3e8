"""Parquet files, read in blocks of rows. Needs the extra `tabular`."""

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from refprotofl.core import DataError, InputError
from refprotofl.data.array_files import Budget
from refprotofl.data.delimited_files import BLOCK, Block, Column, TableFile

NUMBERS = ("integer", "floating", "boolean", "decimal")
TEXTS = ("string", "large_string", "date", "timestamp")


@contextmanager
def open_parquet(path: Path) -> Iterator[TableFile]:
    """Open a Parquet file; its claimed sizes are checked before anything is read."""
    try:
        parquet = importlib.import_module("pyarrow.parquet")
    except ModuleNotFoundError:
        raise InputError(
            f"{path} is a Parquet file, which needs the package pyarrow: install it with "
            "pip install 'refprotofl[tabular]', or save it as CSV."
        ) from None
    with _readable(path):
        file = parquet.ParquetFile(path)
    with file:
        _check_size(path, file.metadata)
        yield TableFile(tuple(file.schema_arrow.names), _blocks(path, file), max(1, file.metadata.num_rows))


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Turn the errors of a damaged file into a sentence."""
    try:
        yield
    except (OSError, ValueError, NotImplementedError) as problem:  # pyarrow's are kinds of these
        raise DataError(f"{path} cannot be read as a Parquet file ({problem}): save it again.") from None


def _check_size(path: Path, metadata: Any) -> None:
    """Raise DataError for a file that unpacks to far more than its size."""
    claimed = sum(metadata.row_group(number).total_byte_size for number in range(metadata.num_row_groups))
    Budget(path.stat().st_size).spend(max(claimed, metadata.num_rows * metadata.num_columns * 4), str(path))


def _blocks(path: Path, file: Any) -> Iterator[Block]:
    start, batches = 1, file.iter_batches(batch_size=BLOCK)
    while True:
        with _readable(path):
            batch = next(batches, None)
        if batch is None:
            return
        yield Block(start, [_column(path, batch.schema.names[n], batch.column(n)) for n in range(batch.num_columns)])
        start += batch.num_rows


def _column(path: Path, name: str, values: Any) -> Column:
    """Return numbers as floats with NaN for missing ones, other values as texts with None."""
    types = importlib.import_module("pyarrow.types")
    if types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if any(getattr(types, f"is_{kind}")(values.type) for kind in NUMBERS):
        return np.array([np.nan if one is None else float(one) for one in values.to_pylist()], np.float64)
    if any(getattr(types, f"is_{kind}")(values.type) for kind in TEXTS) or types.is_null(values.type):
        return [None if one is None else _as_text(one) for one in values.to_pylist()]
    return [f"a value of type {values.type}"] * len(values)  # refused where the column is used as numbers


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else str(value.isoformat())
