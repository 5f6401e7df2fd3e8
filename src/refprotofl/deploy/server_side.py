"""The server side of a deployment, built from what the server has: a public set, a test set, or the keys of [input]."""

import torch

from refprotofl.core import CPU, InputError
from refprotofl.data import ServerData, covered_classes, draw_from_own
from refprotofl.data.federated import limited
from refprotofl.experiment import Experiment, Input
from refprotofl.federation import ServerSide, build_server_side, prepare_models
from refprotofl.federation.resolution import fill_in
from refprotofl.methods import Samples, class_ids
from refprotofl.models import no_samples
from refprotofl.wire import encode


def server_side(experiment: Experiment, apart: ServerData, device: torch.device) -> ServerSide:
    """Return the server side, with the experiment resolved."""
    seen = apart.input or experiment.input
    if seen is None:
        raise InputError(
            "The format of the nodes' data is unknown: set public.dataset or test.dataset, or the keys of [input] "
            "(class-names, shape, mean, std; kind where they are not images)."
        )
    refuse_impossible(seen)
    asked = experiment.public
    classes = covered_classes(seen.num_classes, asked.coverage, asked.classes, experiment.seed)
    public, covered = None, tuple[int, ...]()
    if apart.public is not None:
        labels = apart.public.labels
        rows, covered = draw_from_own(labels, seen.class_names, asked.per_class, classes, experiment.seed)
        if len(rows):
            inputs = torch.from_numpy(apart.public.inputs[rows])
            public = Samples(inputs, torch.from_numpy(labels[rows]), torch.arange(len(rows)))
    resolved = fill_in(experiment, seen, covered, len(public) // len(covered) if public is not None else 0)
    resolved = resolved.model_copy(update={"device": device.type})
    return build_server_side(
        resolved, prepare_models(resolved, device), public=public, test=tested_on(apart, resolved, device)
    )


def refuse_impossible(seen: Input) -> None:
    """Refuse keys of [input] that no data can have: they may be mistyped."""
    features, problems = seen.input_kind.features(seen.shape), dict[str, str]()
    if len(seen.mean) != features:
        problems["mean"] = f"a number for each of {features} {seen.input_kind.axes[0]}"
    if len(seen.std) != features or min(seen.std, default=1) <= 0:
        problems["std"] = f"a number above 0 for each of {features} {seen.input_kind.axes[0]}"
    if not seen.class_names or len(set(seen.class_names)) != len(seen.class_names):
        problems["class-names"] = "a list of different names"
    for key, allowed in problems.items():
        given = list(getattr(seen, key.replace("-", "_")))
        raise InputError(f"input.{key} = {given}: it must be {allowed}.")


def tested_on(apart: ServerData, experiment: Experiment, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the inputs and labels that one aggregated model is scored on; none without a test set."""
    if apart.test is None:
        return no_samples(experiment.known_input)
    labels, classes, limit = apart.test.labels, experiment.known_input.num_classes, experiment.evaluate.test_limit
    rows = limited(labels, classes, limit, experiment.seed, "test-limit")
    return torch.from_numpy(apart.test.inputs[rows]).to(device), torch.from_numpy(labels[rows])


def shared_test(apart: ServerData, experiment: Experiment) -> bytes:
    """Return the test set as every node gets it; empty without one."""
    seen = experiment.known_input
    inputs, labels = tested_on(apart, experiment, CPU)
    if not len(labels):
        return b""
    return encode({seen.field: inputs, "labels": class_ids(labels, seen.num_classes)})
