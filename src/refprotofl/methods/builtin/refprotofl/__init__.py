"""RefProtoFL (Wu, Li et al. 2026): its keys, costs and releases; server.py and client.py follow the paper."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import Field, PositiveInt, model_validator

from refprotofl.core import ADAPTER
from refprotofl.experiment import Bytes, Count, Share, Switch, Table, Weight, key
from refprotofl.experiment.keys import number_of
from refprotofl.methods import (
    NAMED_BY_SIZE,
    Cost,
    Method,
    Releases,
    SampleUse,
    SampleUses,
    lazy,
    releases_of_weights,
)
from refprotofl.methods.compressors import built_in_compressor
from refprotofl.methods.feedback import FEEDBACKS, Feedback, FeedbackName

if TYPE_CHECKING:
    from refprotofl.experiment import Experiment


class Options(Table):
    keep: Share | None = key(0.1, "share of adapter parameters sent, above 0 and up to 1", rival="uplink-budget")
    uplink_budget: Bytes | None = key(
        None, "most bytes a client sends in a round, such as '20 kB'", rival="keep", also=("budget",)
    )
    align: Weight = key(1.0, "weight of the alignment to the anchors, 0 or more", also=("lambda",))
    erpa: Switch = Field(True, description="prototypes and anchors")
    apud: Switch = Field(True, description="sparse uploads")
    select: Literal["top", "random", "probabilistic"] = Field("top", description="the parameters to send")
    selection_scope: Literal["global", "per-tensor"] = Field("global", description="the scope of select")
    normalise: Literal["senders", "participants"] = Field("senders", description="divisor of the average")
    error_feedback: FeedbackName = Field("none", description="use of the part of a change that is not sent")
    warmup_rounds: Count = Field(0, description="rounds without alignment at the start, 0 or more")
    timing: Literal["pre-train", "post-train"] = Field("pre-train", description="when prototypes are made")
    downlink: Literal["dense", "sparse"] = Field("dense", description="the whole adapter, or what changed in it")
    value_type: Literal["float32", "float16", "bfloat16", "int8"] = Field("float32", description="of what is sent up")
    prototype_type: Literal["float32", "float16", "bfloat16"] = key(
        "float32", "of prototypes and anchors, in both directions", enters="changed"
    )
    retain: Switch = key(True, "whether a class that no client of a round serves keeps its anchor", enters="changed")
    min_count: PositiveInt = key(1, "least samples behind a client's own prototype, 1 or more", enters="changed")
    backbone: Literal["private", "frozen"] = key("private", "trained by its client, or not trained", enters="changed")

    @model_validator(mode="before")
    @classmethod
    def _budget_decides(cls, values: Any) -> Any:
        """Leave out the default share where there is a budget."""
        if isinstance(values, dict) and (values.get("uplink-budget") or values.get("uplink_budget")):
            return {"keep": None, **values}
        return values

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.uplink_budget is not None and self.keep is not None:
            raise ValueError("takes keep or uplink-budget, not both: remove one of them")
        if self.uplink_budget is None and self.keep is None:
            raise ValueError("needs keep or uplink-budget")
        if not self.apud and (self.uplink_budget is not None or self.error_feedback != "none"):
            raise ValueError(
                "has apud = off, which sends the whole adapter: uplink-budget and error-feedback need apud = on"
            )
        if self.error_feedback != "none" and self.normalise == "senders":
            raise ValueError(
                f'has error-feedback = "{self.error_feedback}", which needs normalise = "participants": averaged over '
                "its senders alone, what comes late would count as much as if all had sent it"
            )
        return self

    @property
    def share(self) -> float | None:
        """The share of the adapter that is sent; None where a budget decides."""
        return self.keep if self.apud else 1.0


class RefProtoFL(Method):
    """private backbones, shared adapter, anchors from a public set"""

    name = "refprotofl"
    options = Options
    shared = ADAPTER
    server = lazy("refprotofl.methods.builtin.refprotofl.server:RefProtoServer")
    client = lazy("refprotofl.methods.builtin.refprotofl.client:RefProtoClient")
    notes = (
        "Eqs. (17), (18) sum over samples; here the losses are means, so that their weights do not depend on the batch",
        "the public set is shipped to every client once, and counted; the paper takes it as given",
    )

    @staticmethod
    def cost(experiment: "Experiment") -> Cost:
        """Return the cost with every class public; others come with class id and count. K: parameters kept."""
        table: Options = experiment.refprotofl
        share, anchors = table.share, " + C*m" if table.erpa else ""
        kept = {"K": lambda shared: shared if share is None else number_of(share, shared)}
        return Cost(("K" if table.apud else "P") + anchors, "P" + anchors, kept)

    @staticmethod
    def releases(experiment: "Experiment") -> Releases:
        """Return the releases; prototypes of classes outside the public set are made of own samples."""
        table: Options = experiment.refprotofl
        classes = None if experiment.input is None else experiment.input.num_classes
        own = table.erpa and len(experiment.public.classes or ()) != classes
        return Releases(sample=int(own), client=_noised_sums(experiment, table, own and classes is not None))

    @staticmethod
    def sample_uses(experiment: "Experiment") -> SampleUses:
        means = RefProtoFL.releases(experiment).sample
        trained = SampleUse(passes=experiment.train.passes, steps=experiment.train.local_steps)
        if not isinstance(means, int) or not means:
            return {"train": trained}
        if experiment.refprotofl.timing == "pre-train":
            return {"prototypes": SampleUse(means=means), "train": trained}
        return {"train": replace(trained, means=means)}

    @staticmethod
    def feedback(experiment: "Experiment") -> Feedback:
        table: Options = experiment.refprotofl
        return Method.feedback(experiment) if experiment.compress.enabled else FEEDBACKS[table.error_feedback]

    @staticmethod
    def check(experiment: "Experiment") -> None:
        if experiment.share == "full":
            raise ValueError('has share = "full", but refprotofl keeps its backbones private: use share = "adapter"')
        if experiment.compress.enabled:
            _check_compressor(experiment)


def _check_compressor(experiment: "Experiment") -> None:
    table, setting = experiment.refprotofl, experiment.compress.setting
    if table.apud:
        raise ValueError(f"has {setting}, but refprotofl drops parameters by itself: set refprotofl.apud = off")
    if table.value_type != "float32":
        raise ValueError(f'has {setting}, which needs refprotofl.value-type = "float32"')
    compressor = built_in_compressor(experiment) if table.downlink == "sparse" else None
    if compressor is not None and compressor.compresses_downlink:
        raise ValueError(f'has {setting}, whose own downlink needs refprotofl.downlink = "dense"')


def _noised_sums(experiment: "Experiment", table: Options, own: bool) -> int | str:
    """Return the noised sums of a round, of anchors and adapter; `own`: some classes are not in the public set."""
    if experiment.compress.enabled:
        weights = releases_of_weights(experiment).client
        if isinstance(weights, str):
            return weights
    elif table.apud and table.select != "random":
        return f'refprotofl.select = "{table.select}": {NAMED_BY_SIZE}; use select = "random", one mask for all'
    if own:
        return (
            "the anchor of a class that the public set does not cover is a mean over the clients that hold it, and how "
            "many these are depends on their data: cover all classes"
        )
    if table.error_feedback == "ef21":
        return 'refprotofl.error-feedback = "ef21": every client counts in every round, whether drawn or not'
    return 2 if table.erpa else 1
