"""A node's data: its labelled images under the experiment's classes, and its test set."""

from dataclasses import dataclass

import numpy as np
import torch

from refprotofl.core import stream
from refprotofl.core.devices import CPU
from refprotofl.data.draws import stratified_split
from refprotofl.data.labelled_images import LabelledImages, load_labelled, renumbered
from refprotofl.data.reading import Reading, Sizing
from refprotofl.deploy.node_config import NodeConfig
from refprotofl.evaluation.scoring import TestSet
from refprotofl.experiment import Experiment
from refprotofl.federation.client_side import ClientData
from refprotofl.methods.base.samples import Samples
from refprotofl.methods.base.schema import ValidatedMessage


@dataclass(frozen=True, eq=False)
class NodeImages:
    train: LabelledImages
    own_test: LabelledImages


def load_images(config: NodeConfig, experiment: Experiment, client: int) -> NodeImages:
    """Load the node's images; raise DataError if size or classes do not fit the experiment."""
    found = load_labelled(config.data_path, "data-path", None, Reading(Sizing(experiment.resize, experiment.crop)))
    return images_of(found, config, experiment, client)


def images_of(found: LabelledImages, config: NodeConfig, experiment: Experiment, client: int) -> NodeImages:
    """Return images under the experiment's classes, split if they come without test images."""
    seen = experiment.known_input
    found = renumbered(found, seen.class_names, seen.shape, config.data_path)
    if found.test is not None:
        return NodeImages(found, found.test)
    draw = stream(experiment.seed, "hold-out", client=client)
    kept, held = stratified_split(found.labels, seen.num_classes, config.hold_out, draw)
    return NodeImages(_rows(found, kept), _rows(found, held))


def client_data(images: NodeImages, shared: ValidatedMessage | None, device: torch.device = CPU) -> ClientData:
    """Return a client's data. `shared`: the common test set, if there is one."""
    train, own = images.train, images.own_test
    samples = Samples(
        torch.from_numpy(train.images).to(device), torch.from_numpy(train.labels), torch.arange(len(train.labels))
    )
    test_images, test_labels = torch.from_numpy(own.images), torch.from_numpy(own.labels)
    common = 0
    if shared is not None:
        common = len(shared.tensor("labels"))
        test_images = torch.cat([shared.tensor("images"), test_images])
        test_labels = torch.cat([shared.tensor("labels").long(), test_labels])
    positions = torch.arange(common, len(test_labels))
    return ClientData(samples, TestSet(test_images.to(device), test_labels, positions, torch.arange(common)))


def _rows(found: LabelledImages, rows: np.ndarray) -> LabelledImages:
    return LabelledImages(found.images[rows], found.labels[rows], found.class_names, found.mean, found.std)
