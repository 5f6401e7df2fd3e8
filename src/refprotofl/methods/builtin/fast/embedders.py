"""Frozen encoders that turn inputs into embeddings whose distances mean something."""

import importlib
import textwrap
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from refprotofl.core import InputError, is_reference, load_object
from refprotofl.methods import Dense, Fields, Samples, ValidatedMessage
from refprotofl.methods.builtin.fast import Options
from refprotofl.wire import Message

COMPONENTS = 64
BATCH = 64
KEY = "fast.embedder"
CLIP = "open_clip:"

Encoder = Callable[[Tensor], Tensor]  # inputs (N, …) to (N, width)


def common_encoder(table: Options, public: Samples | None) -> Message:
    """Return what clients need to embed alike: the PCA of the public set, or nothing."""
    if table.embedder != "pca":
        load_encoder(table.embedder)  # report problems before anything starts
        return {}
    if public is not None:
        return fit_pca(public.inputs[public.rows])
    if table.knn == "pooled":
        raise InputError(
            f'{KEY} = "pca" with fast.knn = "pooled" is fitted on the public set, but there is none: '
            'take public.per-class above 0, another embedder, or fast.knn = "per-client".'
        )
    return {}


def encoder_fields() -> Fields:
    """Return the fields of `common_encoder`."""
    return {"centre": Dense((None,), optional=True), "components": Dense((None, None), optional=True)}


def fit_pca(inputs: Tensor) -> Message:
    """Return centre and main directions of raw pixels or scaled features, as a message for clients to embed with."""
    # Imported here: scikit-learn takes a second, which only this method's users should wait for.
    from sklearn.decomposition import PCA
    from threadpoolctl import threadpool_limits

    values = _flat(inputs).double()
    centre, scale = values.nanmean(dim=0).nan_to_num(0.0), torch.ones(values.shape[1], dtype=torch.float64)
    if inputs.is_floating_point():  # features have units of their own, pixels do not
        values = torch.where(values.isnan(), centre, values)
        spread = values.std(dim=0, correction=0)
        scale = torch.where(spread > 0, spread, 1.0)
        values = values / scale
    directions = max(1, min(COMPONENTS, len(values) - 1, values.shape[1]))  # n points span n - 1
    # Equal images have no variance to take shares of, which only concerns numbers that are not read.
    with threadpool_limits(limits=1), np.errstate(invalid="ignore", divide="ignore"):
        fitted = PCA(directions, svd_solver="full").fit(values.numpy())
    return {
        "centre": torch.from_numpy((fitted.mean_ * scale.numpy()).astype(np.float32)),
        "components": torch.from_numpy((fitted.components_ / scale.numpy()).astype(np.float32)),
    }


def embed_inputs(name: str, inputs: Tensor, fitted: Message) -> Tensor:
    """Return embeddings (N, width) float32; `fitted` is the result of `fit_pca`, and empty for other encoders."""
    if name != "pca":
        return load_encoder(name)(inputs)
    known = ValidatedMessage(fitted)
    return (_flat(inputs) - known.tensor("centre")).nan_to_num(0.0) @ known.tensor("components").T


def _flat(inputs: Tensor) -> Tensor:
    """Return pixels from 0 to 1, or features, (N, values); a missing feature is NaN."""
    flat = inputs.flatten(1).to(torch.float32)
    return flat if inputs.is_floating_point() else flat / 255


@lru_cache(maxsize=1)
def load_encoder(name: str) -> Encoder:
    """Return the encoder that `fast.embedder` names, apart from PCA, which is fitted."""
    if name.startswith(CLIP):
        return _open_clip(name)
    if is_reference(name):
        return _checked(name, load_object(name, KEY))
    raise InputError(f"{KEY} = {name!r} is neither pca nor open_clip:NAME nor module:function.")


def _checked(name: str, function: Callable[[Tensor], Any]) -> Encoder:
    def encode(images: Tensor) -> Tensor:
        try:
            found = torch.as_tensor(function(images)).detach()
        except Exception as error:
            raise InputError(f"{KEY} = {name!r} failed with {type(error).__name__}: {error}.") from error
        if found.dim() != 2 or len(found) != len(images) or not found.is_floating_point():
            raise InputError(
                f"{KEY} = {name!r} must turn {len(images)} images into {len(images)} rows of floating-point numbers; "
                f"it gave {found.dtype} of shape {tuple(found.shape)}."
            )
        if not torch.isfinite(found).all():
            raise InputError(f"{KEY} = {name!r} gave numbers that are not finite.")
        return found.to(torch.float32)

    return encode


def _open_clip(name: str) -> Encoder:
    """Load `open_clip:NAME` or `open_clip:NAME@WEIGHTS`; never with random weights."""
    model_name, _, weights = name.removeprefix(CLIP).partition("@")
    try:
        library = importlib.import_module("open_clip")
    except ImportError:
        raise InputError(
            f"{KEY} = {name!r} needs the package open_clip: install it with pip install 'refprotofl[clip]'."
        ) from None
    known = library.list_pretrained_tags_by_model(model_name)
    try:
        model, prepare = library.create_model_from_pretrained(model_name, weights or (known[0] if known else None))
    except Exception as error:  # downloads, hubs and files fail in many ways
        reason = textwrap.shorten(str(error) or type(error).__name__, 200, placeholder=" …").rstrip(".")
        raise InputError(
            f"{KEY} = {name!r} has no weights that could be loaded: {reason}. They are downloaded once; where there is "
            "no network, open_clip:local-dir:PATH takes them from a folder."
        ) from error

    @torch.no_grad()
    def encode(images: Tensor) -> Tensor:
        pictures = importlib.import_module("PIL.Image")
        coloured = images.expand(-1, 3, -1, -1) if images.shape[1] == 1 else images
        arrays = coloured.permute(0, 2, 3, 1).contiguous().numpy()  # (N, H, W, 3)
        rows = []
        for start in range(0, len(arrays), BATCH):
            batch = [prepare(pictures.fromarray(array)) for array in arrays[start : start + BATCH]]
            rows.append(model.encode_image(torch.stack(batch)))
        return torch.cat(rows)

    model.eval()
    return _checked(name, encode)
