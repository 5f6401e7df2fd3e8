"""What a node is told by its owner, in --node-config: where its data and its store are, and what it allows."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Self

from platformdirs import user_data_path
from pydantic import Field, ValidationError

from refprotofl.basics.plugins import is_reference
from refprotofl.errors import InputError
from refprotofl.experiment import Experiment
from refprotofl.experiment.references import references
from refprotofl.keys.complaints import explain, keys, no_such_key
from refprotofl.keys.table import Table
from refprotofl.keys.values import Bytes, Count, Switch, Text

OF_FLOWER = ("partition-id", "num-partitions")  # what Flower itself may put into a node's config
CODE_OF_NODES = ("method", "model.name", "own")  # the keys of an experiment whose code would run on a node


class NodeConfig(Table):
    data_path: Text = Field(description="the node's images: a .npz file, a folder of class folders or module:function")
    store: str = Field("", description="the folder that the node keeps its private state in")
    client: Count | None = Field(None, description="which client of the experiment the node is, 0 or more")
    modules: str = Field("", description="code that the node may import, as module:name, separated by commas")
    hold_out: Annotated[float, Field(ge=0, le=0.9)] = Field(
        0.2, description="share of the images kept for testing if they come without test images, 0 to 0.9"
    )
    uplink_budget: Bytes | None = Field(None, description="bytes that the node sends in a round at most")
    keep_runs: Annotated[int, Field(ge=1)] = Field(3, description="runs whose state the node keeps, 1 or more")
    look_every: Annotated[float, Field(ge=3, le=600)] = Field(
        3.0, description="seconds between two looks for work, 3 to 600: more where over fifty nodes share a server"
    )
    worker: Switch = Field(True, description="whether a process of its own keeps data and model between messages")

    @classmethod
    def read(cls, config: Mapping[str, Any], seen_from: Path | None = None) -> Self:
        """A key that nobody knows is refused: a limit that was misspelt would not hold. Flower's own are passed over.

        Relative paths start at `seen_from`, else where this process stands, and are whole from now on.
        """
        given = {name: value for name, value in config.items() if name not in OF_FLOWER and value != ""}
        known = keys(cls)
        if unknown := [name for name in given if name not in known]:
            raise InputError(f"--node-config: {no_such_key(unknown[0], known)}")
        if "data-path" not in given:
            raise InputError(
                "This node has no data-path in its --node-config: give it the .npz file or the folder with its images."
            )
        here = seen_from or Path.cwd()
        for name in ("data-path", "store"):
            if isinstance(given.get(name), str) and not is_reference(given[name]):
                given[name] = str(here / Path(given[name]).expanduser())
        try:
            return cls.model_validate(given)
        except ValidationError as error:
            raise InputError(f"--node-config: {explain(error, cls)}") from None

    @property
    def folder(self) -> Path:
        return Path(self.store) if self.store else user_data_path("refprotofl") / "node"

    @property
    def allowed(self) -> frozenset[str]:
        return frozenset(name.strip() for name in self.modules.split(",") if name.strip())

    def refuse_code(self, experiment: Experiment) -> None:
        """A server must not make a node import what its owner has not named."""
        named = [(key, name) for key, name in references(experiment.plain()) if key.startswith(CODE_OF_NODES)]
        if unknown := [f"{key} = {name!r}" for key, name in named if name not in self.allowed]:
            raise InputError(
                f"The experiment names code that this node does not allow: {', '.join(unknown)}. If you trust it, "
                "name it in modules of the node's config."
            )
