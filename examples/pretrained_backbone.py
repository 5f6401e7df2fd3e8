"""A frozen backbone from an earlier run, as FedPCL needs it; from this folder:

    refprotofl run --preset small --set dataset=mnist --set method=centralised --out runs/pretrained
    refprotofl run --preset small --set dataset=fashion-mnist --set method=fedpcl \
        --set model.name=pretrained_backbone:frozen

`PRETRAINED_RUN` names another run's folder.
"""

import os
from pathlib import Path

from torch import nn

from refprotofl.export import load_trained


def frozen(shape: tuple[int, int, int]) -> nn.Module:
    """The backbone that client 0 of that run ended up with; its weights and statistics stand still."""
    trained = load_trained(Path(os.environ.get("PRETRAINED_RUN", "runs/pretrained")), client=0)
    if trained.shape != shape:
        raise ValueError(f"it was trained on images of shape {trained.shape}")
    return trained.model.backbone.requires_grad_(False)
