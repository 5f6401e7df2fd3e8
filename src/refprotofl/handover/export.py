"""A client's model as a folder to take elsewhere: weights, a model card and, if wanted, an ONNX graph."""

from pathlib import Path
from typing import Literal

from refprotofl.compute.process import one_compute_thread
from refprotofl.errors import InputError
from refprotofl.handover import exported, onnx_graph
from refprotofl.handover.card import model_card
from refprotofl.handover.trained import Trained
from refprotofl.records.files import write_whole

ModelFormat = Literal["safetensors", "onnx"]


def export(trained: Trained, out: Path, format: ModelFormat = "safetensors") -> list[Path]:
    """Writes the folder `out` and gives its files; nothing is written unless all of it could be made."""
    if format not in ("safetensors", "onnx"):
        raise InputError(f"There is no export format {format!r}; it is safetensors or onnx.")
    _check_free(out)
    contents = {exported.FILE: exported.pack(trained)}
    if format == "onnx":
        with one_compute_thread():
            contents[onnx_graph.FILE] = onnx_graph.to_onnx(trained)
    contents["README.md"] = model_card(trained, with_onnx=format == "onnx").encode()
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise InputError(f"Cannot make the folder {out}: {problem.strerror or problem}.") from None
    for name, data in contents.items():
        write_whole(out / name, data)
    return [out / name for name in contents]


def _check_free(out: Path) -> None:
    """Nothing of the user's is overwritten, least of all their README.md."""
    if out.exists() and not out.is_dir():
        raise InputError(f"Cannot export to {out}: it is a file; name a new folder.")
    if out.is_dir():
        strangers = sorted(entry.name for entry in out.iterdir() if not entry.name.startswith("."))
        if strangers:
            raise InputError(f"Cannot export to {out}: it is not empty ({strangers[0]}, …); name a new folder.")
