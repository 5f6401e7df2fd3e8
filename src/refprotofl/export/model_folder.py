"""Exported models: a folder with weights, a model card and, optionally, an ONNX graph.

The weights are one safetensors file, which describes how to rebuild the model.
"""

import json
from pathlib import Path
from typing import Any, Literal, NotRequired

import numpy as np
import safetensors
import safetensors.torch
import torch
from pydantic import TypeAdapter, ValidationError
from typing_extensions import TypedDict

from refprotofl.core import DataError, InputError, is_reference, one_compute_thread, references, refuse_code, size
from refprotofl.data import reading_of
from refprotofl.experiment import Experiment
from refprotofl.export import onnx_graph
from refprotofl.export.card import model_card
from refprotofl.export.trained_model import TrainedModel
from refprotofl.models import SplitModel, build_model
from refprotofl.records import parse_json, write_whole

FILE = "model.safetensors"
SCHEMA = 1
_KEY = "refprotofl"  # one entry of metadata: safetensors keeps no order among several, so bytes would differ


class Description(TypedDict):
    """The entries needed to rebuild the model; the file has more."""

    model: dict[str, Any]
    input: dict[str, Any]
    data: NotRequired[dict[str, Any]]


_DESCRIPTION = TypeAdapter(Description)


def pack(trained: TrainedModel) -> bytes:
    """Return the file's contents: backbone.*, feature.*, head.*, and the description of the model."""
    plain = trained.experiment.plain()
    description = {
        "schema": SCHEMA,
        "model": plain["model"] | {"name": trained.backbone},
        "input": plain["input"],
        **({"data": plain["data"]} if "data" in plain else {}),
        "client": trained.client,
        "client_name": trained.experiment.client_name(trained.client),
        "rounds_done": trained.rounds_done,
        "experiment_hash": trained.experiment.hash,
        "state_digest": trained.state_digest,
    }
    # Copies, because safetensors refuses tensors that share memory, as tied weights of a user's own model do.
    tensors = {name: value.detach().clone().contiguous() for name, value in trained.model.state_dict().items()}
    data: bytes = safetensors.torch.save(tensors, metadata={_KEY: json.dumps(description, sort_keys=True)})
    return data


def load_exported(folder: Path | str, trust_code: bool = False) -> SplitModel:
    """Load an exported model in evaluation mode: `model(model.prepare(inputs))` returns logits.

    A user's own backbone is named as module:function, which is only imported with `trust_code`.
    """
    path = Path(folder) / FILE
    description = _describe(path)
    refuse_code(references({"model": description["model"]}), path, trusted=trust_code)
    experiment = Experiment.parse({"model": description["model"], "input": description["input"]})
    _check_size(experiment, path)
    model = build_model(experiment)
    try:
        model.load_state_dict(safetensors.torch.load_file(path))
    except RuntimeError as problem:
        raise DataError(f"The weights in {path} do not fit the model that it describes: {problem}.") from None
    return model.eval()


def _check_size(experiment: Experiment, path: Path) -> None:
    """Raise DataError, before a model is built, if it would be larger than the file with its weights."""
    if is_reference(experiment.backbones[0]):
        return  # code that was trusted
    with torch.device("meta"):
        described = sum(one.numel() * one.itemsize for one in build_model(experiment).parameters())
    if described > path.stat().st_size:
        raise DataError(
            f"{path} describes a model of {size(described)}, but holds {size(path.stat().st_size)}: export it again."
        )


def class_names(folder: Path | str) -> tuple[str, ...]:
    """Return the class names of an exported model, in the order of its logits."""
    return Experiment.parse({"input": _describe(Path(folder) / FILE)["input"]}).known_input.class_names


def load_inputs(folder: Path | str, array: Any) -> torch.Tensor:
    """Return an array of samples, or a list of texts, as the tensor that an exported model takes."""
    path = Path(folder) / FILE
    described = _describe(path)
    experiment = Experiment.parse({"input": described["input"], "data": described.get("data", {})})
    given, seen, code = np.asarray(array), experiment.known_input, reading_of(experiment).code
    found = seen.input_kind.convert(given, given[:1], "The array", code, seen.vocabulary)
    inputs = seen.input_kind.fit(found.train, found.vocabulary, seen.shape, seen.vocabulary)
    if inputs.shape[1:] != seen.shape:
        raise InputError(f"The array has {seen.input_kind.plural} of shape {inputs.shape[1:]}, not {seen.shape}.")
    return torch.from_numpy(inputs)


def _describe(path: Path) -> Description:
    if not path.is_file():
        raise InputError(f"{path.parent} is not an exported model: it has no {FILE}.")
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            text = (file.metadata() or {}).get(_KEY)
        description = None if text is None else parse_json(text)
    except (OSError, ValueError, RecursionError, safetensors.SafetensorError) as problem:
        raise DataError(f"{path} is truncated or damaged ({problem}): export it again.") from None
    if description is None:
        raise InputError(f"{path} was not exported by refprotofl: it does not describe how to rebuild its model.")
    schema = description.get("schema") if isinstance(description, dict) else None
    if schema != SCHEMA:
        raise InputError(f"{path} has schema {schema!r}; this version reads {SCHEMA}.")
    try:
        return _DESCRIPTION.validate_python(description, strict=True)
    except ValidationError as error:
        where = ".".join(map(str, error.errors(include_url=False)[0]["loc"]))
        raise DataError(f"{path} does not describe a model: its {where} is invalid.") from None


ModelFormat = Literal["safetensors", "onnx"]


def export(trained: TrainedModel, out: Path, format: ModelFormat = "safetensors") -> list[Path]:
    """Write the folder `out` and return its files; nothing is written unless everything could be made."""
    if format not in ("safetensors", "onnx"):
        raise InputError(f"Unknown export format {format!r}. Use safetensors or onnx.")
    _check_free(out)
    contents = {FILE: pack(trained)}
    if format == "onnx":
        with one_compute_thread():
            contents[onnx_graph.FILE] = onnx_graph.to_onnx(trained)
    contents["README.md"] = model_card(trained, with_onnx=format == "onnx").encode()
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise InputError(f"Cannot create the folder {out}: {problem.strerror or problem}.") from None
    for name, data in contents.items():
        write_whole(out / name, data)
    return [out / name for name in contents]


def _check_free(out: Path) -> None:
    """Raise InputError if the folder has files: nothing of the user's is overwritten."""
    if out.exists() and not out.is_dir():
        raise InputError(f"Cannot export to {out}: it is a file; name a new folder.")
    if out.is_dir():
        present = sorted(entry.name for entry in out.iterdir() if not entry.name.startswith("."))
        if present:
            raise InputError(f"Cannot export to {out}: it is not empty ({present[0]}, …); name a new folder.")
