"""A simulated federation as files: the data of each client, the public set and the test set of a deployment."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from refprotofl.core import InputError, for_file_name
from refprotofl.data.arrays import KIND, VOCABULARY
from refprotofl.data.dataset import Inputs, Labels
from refprotofl.data.federated import FederatedData
from refprotofl.experiment import Input
from refprotofl.inputs import IMAGE, find_kind


def client_file(number: int, names: Sequence[str] = ()) -> str:
    """Return the name of a client's file, which has the client's own name, if it has one."""
    return f"client-{number}{'-' + for_file_name(names[number]) if names else ''}.npz"


def export_federation(data: FederatedData, folder: Path, seen: Input | None = None) -> list[Path]:
    """Write one .npz per client with its training and test samples, and public.npz and test.npz where these exist.

    Labels are written as names, together with all classes, and mean and deviation of the experiment or the whole set,
    so that a deployment numbers and scales as the simulation does.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder} already exists and is not empty: export to a new folder.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return [_write(folder / name, data, arrays, seen) for name, arrays in _files(data).items()]
    except OSError as problem:
        raise InputError(f"Cannot write to {folder}: {problem.strerror or problem}.") from None


def _files(data: FederatedData) -> dict[str, dict[str, tuple[Inputs, Labels]]]:
    whole = data.dataset
    test_inputs, test_labels = (
        (whole.train_inputs, whole.train_labels) if data.validates else (whole.test_inputs, whole.test_labels)
    )
    files = {}
    for number, (rows, tests) in enumerate(zip(data.client_indices, data.own_test_indices, strict=True)):
        parts = {"train": (whole.train_inputs[rows], whole.train_labels[rows])}
        if len(tests):
            parts["test"] = (test_inputs[tests], test_labels[tests])
        files[client_file(number, data.client_names)] = parts
    if data.public_size:
        files["public.npz"] = {"": (data.public_inputs, data.public_labels)}
    if len(data.test_indices):
        files["test.npz"] = {"": (data.test_inputs, data.test_labels)}
    return files


def _write(path: Path, data: FederatedData, parts: dict[str, tuple[Inputs, Labels]], seen: Input | None) -> Path:
    whole, kind = data.dataset, find_kind(data.dataset.kind)
    names, known = np.array(whole.class_names), seen or whole
    arrays: dict[str, Any] = {"class_names": names, "mean": known.mean, "std": known.std}
    if kind.name != IMAGE:
        arrays[KIND] = kind.name
    for split, (inputs, labels) in parts.items():
        ending = f"_{split}" if split else ""
        stored, vocabulary = kind.stored(inputs, whole.vocabulary)
        arrays |= {f"x{ending}": stored, f"y{ending}": names[labels]}
        if vocabulary and len(vocabulary) >= len(arrays.get(VOCABULARY, ())):
            arrays[VOCABULARY] = np.array(vocabulary)
    np.savez_compressed(path, **arrays)
    return path
