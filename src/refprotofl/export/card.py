"""The model card of an exported model: description, accuracy, communication, use and limits."""

from pathlib import Path

from refprotofl.core import as_code, counted, for_markdown, is_reference, percent, size
from refprotofl.data.reading import Sizing
from refprotofl.evaluation import PROTOCOLS
from refprotofl.experiment import Experiment
from refprotofl.export.trained_model import TrainedModel
from refprotofl.records import RunFolder


def model_card(trained: TrainedModel, with_onnx: bool) -> str:
    sections = [_description(trained), _accuracy(trained), _cost(trained), _loading(trained)]
    if with_onnx:
        sections.append(_onnx(trained))
    return "\n".join([*sections, _limits(trained), _origin(trained)])


def _description(trained: TrainedModel) -> str:
    experiment = trained.experiment
    name = experiment.client_name(trained.client)
    called = "" if name == str(trained.client) else f", {_plain(name)}"
    return f"""# {experiment.known_input.input_kind.noun.capitalize()} classifier of client {trained.client}{called}

The model of one of {counted(experiment.clients, "client")} after a federated run, in which no client shared its data:
a backbone ({as_code(trained.backbone)}, norm `{experiment.model.norm}`), a feature layer
of width {experiment.model.embedding} and a classifier head.

| | |
|---|---|
| method | {as_code(experiment.method)} |
| data set | {as_code(_public_name(experiment.dataset))} |
| partition | {_partition(experiment)}; this client's share is private and not described here |
| rounds | {trained.rounds_done} of {experiment.rounds} |
| input | {_input(trained)} |
{_features(trained)}| classes | {len(trained.class_names)}: {_classes(trained.class_names)} |
"""


def _features(trained: TrainedModel) -> str:
    """Return the row of the features' names, in the order of the model's inputs, where they have names."""
    names = trained.experiment.known_input.feature_names
    return f"| features | in this order: {', '.join(map(for_markdown, names))} |\n" if names else ""


def _public_name(dataset: str) -> str:
    """Return only the last part of a path: the location of the data is private."""
    return dataset if dataset.startswith("hf:") else Path(dataset).name


def _partition(experiment: Experiment) -> str:
    degree = experiment.partition_degree
    spread = "" if degree is None else f" with {degree[0]} = {degree[1]:g}"
    return f"{experiment.partition}{spread} over {counted(experiment.clients, 'client')}"


def _input(trained: TrainedModel) -> str:
    """Return the input of the model, and how the run brought images to that size."""
    seen = trained.experiment.known_input
    kind, sizing = seen.input_kind, Sizing(trained.experiment.resize, trained.experiment.crop)
    described = f"{kind.describe(seen.shape)}, {kind.values}"
    if kind.normalised:
        described += "; normalised by the model" + (f" with the {seen.normalisation}" if seen.normalisation else "")
    if seen.vocabulary:
        described += f"; a vocabulary of {counted(len(seen.vocabulary), 'entry')}"
    return described + (f"; resized by `{sizing}`" if sizing else "")


def _plain(name: str) -> str:
    return " ".join(name.split()).replace("|", "\\|")


def _classes(names: tuple[str, ...]) -> str:
    shown = ", ".join(map(for_markdown, names[:20]))
    return shown + (", … (all of them are in model.safetensors)" if len(names) > 20 else "")


def _accuracy(trained: TrainedModel) -> str:
    heading = "## Accuracy\n\n"
    if trained.communication is None:
        return f"{heading}Exported on its own device, which does not know its scores.\n"
    summary = RunFolder(trained.folder).read_summary()
    if summary is None:
        return f"{heading}The run was not finished when this model was exported; no accuracy is stated.\n"
    scores = {name: values[trained.client] for name, values in summary["accuracy_per_client"].items()}
    if all(score is None for score in scores.values()):
        return f"{heading}The run did not evaluate this client (`evaluate.clients`); no accuracy is stated.\n"
    limit, held_out = trained.experiment.evaluate.test_limit, trained.experiment.validation
    means = summary["accuracy"]
    rows = [
        f"| `{name}` | {percent(scores[name])} | {percent(means[name])} | {protocol.definition(held_out)} |"
        for name, protocol in PROTOCOLS.items()
        if scores.get(name) is not None
    ]
    lines = ["| protocol | this client | mean of clients | measured |", "|---|---|---|---|", *rows]
    plural = trained.experiment.known_input.input_kind.plural
    drawn = f", on a class-balanced draw of {limit:,} test {plural}" if limit else ""
    if held_out:
        drawn = f", not on test {plural} but on {percent(held_out)} of the clients' training {plural}, held out"
    return heading + f"After the last round ({summary['rounds_done']}){drawn}.\n\n" + "\n".join(lines) + "\n"


def _cost(trained: TrainedModel) -> str:
    if trained.communication is None:
        return "## Communication\n\nThe run's server keeps the account.\n"
    sent, clients = trained.communication["uplink"]["payload_bytes"], trained.experiment.clients
    return f"""## Communication

In {counted(trained.rounds_done, "round")} of training all clients together ({clients}) sent {counted(sent, "byte")}
to the server, {size(sent / clients)} each on average.
"""


def _loading(trained: TrainedModel) -> str:
    seen, name = trained.experiment.known_input, trained.backbone
    own, trust = "", ""
    if is_reference(name):
        trust = ", trust_code=True"
        own = (
            f"\nThe backbone is built by {as_code(name)}, which must be importable. `trust_code=True` imports\n"
            "and runs it: leave it out unless you trust the author of that code.\n"
        )
    shape = ", ".join(map(str, (1, *seen.shape)))
    return f"""## Use

In this folder, where refprotofl is installed:

```python
import torch
from refprotofl.export import class_names, load_exported
model, names = load_exported("."{trust}), class_names(".")
{seen.field} = torch.zeros({shape}, dtype=torch.{seen.dtype})  # your {seen.input_kind.plural}
probabilities = model(model.prepare({seen.field})).softmax(dim=1)
print([names[best] for best in probabilities.argmax(dim=1)])
```

`load_inputs(".", array)`, also of `refprotofl.export`, brings an array of {seen.input_kind.plural} into that form.
{own}"""


def _origin(trained: TrainedModel) -> str:
    return f"""## Licence and origin

The code that made and loads this model, refprotofl, is under the Apache License 2.0. The licence does not cover the
weights: the owners of the data decide how they may be used.

- experiment hash: `{trained.experiment.hash}`
- state digest after round {trained.rounds_done}: `{trained.state_digest}`
"""


def _onnx(trained: TrainedModel) -> str:
    seen = trained.experiment.known_input
    kind, also = seen.input_kind, "; so is the vocabulary" if seen.vocabulary else ""
    axes = ", ".join(kind.axes)
    return f"""`model.onnx` takes {kind.plural} (N, {axes}) of type {seen.dtype} as `{seen.field}`, prepares them as the
model does and returns `logits` and `probabilities`; the names of the classes are in its metadata{also}:

```python
import json, numpy, onnxruntime
session = onnxruntime.InferenceSession("model.onnx")
names = json.loads(session.get_modelmeta().custom_metadata_map["class_names"])
{seen.field} = numpy.zeros((1, *session.get_inputs()[0].shape[1:]), "{seen.dtype}")  # your {kind.plural}
print([names[best] for best in session.run(["probabilities"], {{"{seen.field}": {seen.field}}})[0].argmax(1)])
```
"""


def _limits(trained: TrainedModel) -> str:
    kind = trained.experiment.known_input.input_kind
    return f"""## Intended use and limits

- For {kind.plural} like those of the data set above, of one of the classes above. Any other {kind.noun} is
  assigned one of these classes too, often with a high probability: softmax probabilities are not calibrated.
- The model is fitted to one client. On data with another mix of classes it may be less accurate.
- Weights can reveal information about the training data, and private parts of this model never left the client before
  this export. There is no formal privacy guarantee.
- Made for research on federated learning; not tested for decisions about people.
"""
