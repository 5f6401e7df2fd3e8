"""A node's data: its labelled samples under the experiment's classes, and its test set."""

from dataclasses import dataclass, replace

import numpy as np
import torch

from refprotofl.core import CPU, stream
from refprotofl.data import LabelledSamples, held_out_rows, load_labelled, reading_of, renumbered, stratified_split
from refprotofl.deploy.node_config import NodeConfig
from refprotofl.evaluation import TestSet
from refprotofl.experiment import Experiment
from refprotofl.federation import ClientData
from refprotofl.methods import Samples, ValidatedMessage


@dataclass(frozen=True, eq=False)
class NodeSamples:
    train: LabelledSamples
    own_test: LabelledSamples


def load_samples(config: NodeConfig, experiment: Experiment, client: int) -> NodeSamples:
    """Load the node's samples; raise DataError if size or classes do not fit the experiment."""
    found = load_labelled(config.data_path, "data-path", None, replace(reading_of(experiment), natural=False))
    return inputs_of(found, config, experiment, client)


def inputs_of(found: LabelledSamples, config: NodeConfig, experiment: Experiment, client: int) -> NodeSamples:
    """Return samples under the experiment's classes, split if they come without test samples."""
    seen = experiment.known_input
    found = renumbered(found, seen, config.data_path)
    if found.test is not None:
        return NodeSamples(found, found.test)
    draw = stream(experiment.seed, "hold-out", client=client)
    if found.groups is None and found.order is None:
        kept, held = stratified_split(found.labels, seen.num_classes, config.hold_out, draw)
    else:
        one = np.zeros(len(found.labels), np.int64)
        test = held_out_rows(found.labels, one, found.groups, found.order, config.hold_out, draw, config.data_path)
        kept, held = np.flatnonzero(~test), np.flatnonzero(test)
    return NodeSamples(_rows(found, kept), _rows(found, held))


def without_own_test(samples: NodeSamples) -> NodeSamples:
    """Return samples none of which is scored for the server."""
    return NodeSamples(samples.train, _rows(samples.own_test, np.arange(0)))


def client_data(
    own_set: NodeSamples, field: str, shared: ValidatedMessage | None, device: torch.device = CPU
) -> ClientData:
    """Return a client's data. `shared`: the common test set, if there is one, its samples under the name `field`."""
    train, own = own_set.train, own_set.own_test
    samples = Samples(
        torch.from_numpy(train.inputs).to(device), torch.from_numpy(train.labels), torch.arange(len(train.labels))
    )
    test_inputs, test_labels = torch.from_numpy(own.inputs), torch.from_numpy(own.labels)
    common = 0
    if shared is not None:
        common = len(shared.tensor("labels"))
        test_inputs = torch.cat([shared.tensor(field), test_inputs])
        test_labels = torch.cat([shared.tensor("labels").long(), test_labels])
    positions = torch.arange(common, len(test_labels))
    return ClientData(samples, TestSet(test_inputs.to(device), test_labels, positions, torch.arange(common)))


def _rows(found: LabelledSamples, rows: np.ndarray) -> LabelledSamples:
    return replace(found, inputs=found.inputs[rows], labels=found.labels[rows], test=None)
