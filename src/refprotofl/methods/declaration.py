"""`Method`: the class by which built-in methods and a user's own are declared. Nothing here imports torch."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from refprotofl.core import ADAPTER, ALL, WITHOUT_NORMS, InputError, Parts, load_object
from refprotofl.experiment import Scalar, Table
from refprotofl.methods.compressors import create_compressor
from refprotofl.methods.feedback import Feedback

if TYPE_CHECKING:
    from refprotofl.experiment import Experiment
    from refprotofl.methods.base.client import Client
    from refprotofl.methods.base.server import Server

Defaults = Mapping[str, Scalar]


@dataclass(frozen=True)
class Cost:
    """Formulas of the number of values that a client sends and receives in a round, whatever their type.

    The symbols: P shared parameters, m width of the embedding, C classes, N clients, D public images, and those of
    `symbols`, each as a function of P. A client is assumed to hold every class, and the round not to be the first.
    """

    up: str = "P"
    down: str = "P"
    symbols: Mapping[str, Callable[[int], int]] | None = None


UNDECLARED = "it does not declare what a round of it releases"


@dataclass(frozen=True)
class Releases:
    """The noised releases of a round that the accountant of [privacy] counts; a text says why a unit is undefined."""

    sample: int | str = UNDECLARED  # noised class means that a client sends, in addition to its noised training
    client: int | str = UNDECLARED  # noised sums of all clients' uploads


@dataclass(frozen=True)
class SampleUse:
    """The use of a client's private samples when it answers one verb, under sample-level privacy.

    The accountant relies on it: an answer that used the samples in another way stops the run.
    """

    passes: int = 0  # of noised training over its samples
    steps: int = 0  # of noised training in addition to those passes
    means: int = 0  # noised class means
    own: bool = False  # whether the passes leave out the public samples that public.train-on adds
    closing: bool = False  # asked once, when the last round is over, instead of in every round


SampleUses = Mapping[str, SampleUse]  # by verb; what is not here uses none

FINETUNE = "finetune"  # the verb of the stage after the last round, which [finetune] asks for

NAMED_BY_SIZE = (
    "which coordinates it sends is chosen by how far they moved, and that choice reveals the data before any noise"
)
BY_HOLDERS = "it averages a class over the clients that hold it, and how many these are depends on their data"


def releases_of_weights(experiment: "Experiment") -> Releases:
    """Return the releases of a method that sends trained weights and nothing else."""
    reason = create_compressor(experiment).reveals
    return Releases(sample=0, client=f"{experiment.compress.setting}: {reason}" if reason else 1)


class _Lazy:
    """A class attribute that is imported when it is first read."""

    def __init__(self, reference: str) -> None:
        self._reference = reference

    def __get__(self, instance: object, owner: type) -> Any:
        return load_object(self._reference, "method")


def lazy(reference: str) -> Any:
    """Return the class attribute `module:Class`, imported when it is read, so that a declaration needs no torch."""
    return _Lazy(reference)


@dataclass(frozen=True)
class ByShare:
    """The parts that the key `share` names: a value of `shared`. `auto` is the choice of the method's paper."""

    auto: Literal["adapter", "full"] = "adapter"

    def __call__(self, experiment: "Experiment") -> Parts:
        chosen = self.auto if experiment.share == "auto" else experiment.share
        return ALL if chosen == "full" else ADAPTER


class Method:
    """A federated learning method: its two sides, its keys, and the facts that the rest of the package asks for.

    Built-in methods and a user's own are subclasses. The docstring's first line is the method's summary. The facts
    below are declared as functions of the experiment or as plain values; an instance has functions for all of them.
    """

    name: str = ""  # a user's own is called module:Class
    server: "ClassVar[type[Server]]"
    client: "ClassVar[type[Client]]"
    options: ClassVar[type[Table] | Defaults] = {}  # the keys of its table
    shared: ClassVar[Any] = ByShare()  # the model's parts that clients share
    cost: ClassVar[Any] = Cost()
    releases: ClassVar[Any] = Releases()  # for [privacy], where a method that does not declare them is refused
    extra_outputs: ClassVar[Any] = 0  # logits in addition to those of the classes
    pooled: ClassVar[bool] = False  # no federation: the server is given all clients' samples
    depends_on_rounds: ClassVar[bool] = False  # a round depends on the number of rounds, so a run cannot be extended
    stateful: ClassVar[bool] = False  # what clients send depends on more that they keep than their private part
    changes_once: ClassVar[str] = ""  # the reason why a change must not count again in later rounds, as under EF21
    sgd_only: ClassVar[str] = ""  # the reason why its clients must train by SGD
    simulation_only: ClassVar[str] = ""  # the reason why it must not run on people's devices
    notes: ClassVar[tuple[str, ...]] = ()  # deviations from what its authors published

    def __init__(self, name: str = "") -> None:
        self.name = name or self.name
        for fact, kind in _FACTS.items():
            declared = getattr(type(self), fact)
            setattr(self, fact, declared if callable(declared) else self._constant(fact, declared, kind))

    def _constant(self, fact: str, value: Any, kind: type[Any]) -> "Callable[[Experiment], Any]":
        where = f"method = {self.name!r}: {fact} = {value!r}"
        if not isinstance(value, kind):
            raise InputError(f"{where} is neither {kind.__name__} nor a function that returns one.")
        if fact == "shared" and not {*value} <= {*ALL, *WITHOUT_NORMS}:
            raise InputError(f"{where} is not a tuple of some of {', '.join(ALL)}.")
        return lambda experiment: value

    @staticmethod
    def sample_uses(experiment: "Experiment") -> SampleUses | None:
        """Return the uses of private samples by verb; None: `train` makes its passes, steps and class means."""
        return None

    @staticmethod
    def local_epochs(experiment: "Experiment") -> int:
        """Return the passes over its own data that a client makes in a round."""
        return experiment.train.passes

    @staticmethod
    def local_steps(experiment: "Experiment") -> int:
        """Return the steps that a client makes in a round in addition to those passes."""
        return experiment.train.local_steps

    @staticmethod
    def join_payload(experiment: "Experiment") -> bool:
        """Return whether a client that joins is sent more than a few bytes."""
        return experiment.public.train_on

    @staticmethod
    def seed_start(experiment: "Experiment") -> bool:
        """Return whether clients derive the first broadcast from the seed, so that the first round sends none."""
        return experiment.first_weights == "seed"

    @staticmethod
    def feedback(experiment: "Experiment") -> Feedback:
        """Return the use that is made of the part of a change that is not sent."""
        return create_compressor(experiment).feedback

    @staticmethod
    def warnings(experiment: "Experiment") -> tuple[str, ...]:
        """Return sentences to print before such a run begins."""
        return ()

    @staticmethod
    def check(experiment: "Experiment") -> None:
        """Raise ValueError("has …") where the method's options and other keys contradict each other."""

    @staticmethod
    def check_input(experiment: "Experiment") -> None:
        """Raise InputError where the method does not work on the data's kind of input, which is known by then."""

    def check_all(self, experiment: "Experiment") -> None:
        """Raise ValueError("has …") where the experiment contradicts the method's own rules or what it declares."""
        optimizer = experiment.train.optimizer
        if self.sgd_only and optimizer != "sgd":
            raise ValueError(f'has train.optimizer = "{optimizer}", but {self.name} needs "sgd": {self.sgd_only}')
        self.check(experiment)

    def planned_uses(self, experiment: "Experiment") -> SampleUses:
        """Return the uses of private samples by verb, as declared or by default, and those of [finetune]."""
        declared, means = self.sample_uses(experiment), self.releases(experiment).sample
        uses = dict(declared or {})
        if declared is None and not isinstance(means, str):
            passes, steps = self.local_epochs(experiment), self.local_steps(experiment)
            uses = {"train": SampleUse(passes=passes, steps=steps, means=means)}
        if experiment.finetune.passes:
            uses[FINETUNE] = SampleUse(passes=experiment.finetune.passes, own=True, closing=True)
        return uses

    def steps_of_round(self, experiment: "Experiment", samples: int) -> int:
        """Return the steps of a client with this many samples in a round."""
        return self.local_epochs(experiment) * experiment.train.steps_per_epoch(samples) + self.local_steps(experiment)

    @property
    def line(self) -> str:
        """The summary: the first line of its docstring."""
        return (type(self).__doc__ or self.name).strip().splitlines()[0].rstrip(".")

    @property
    def reads_share(self) -> bool:
        """True if the key `share` has an effect; it has none on a method that declares its parts itself."""
        return isinstance(type(self).shared, ByShare)

    @property
    def auto_share(self) -> Literal["adapter", "full"]:
        """The value of `share` that "auto" means for this method; "adapter" where the key has no effect."""
        shared = type(self).shared
        return shared.auto if isinstance(shared, ByShare) else "adapter"

    @property
    def page(self) -> str:
        """The page of its documentation; none for a user's own."""
        package, _, module = type(self).__module__.rpartition(".")
        return f"docs/methods/{module}.md" if package == "refprotofl.methods.builtin" else ""

    @property
    def table(self) -> type[Table] | None:
        """The typed options, if it has such."""
        return self.options if isinstance(self.options, type) else None

    @property
    def defaults(self) -> Defaults:
        """The options that are names with default values, if it has such."""
        return {} if isinstance(self.options, type) else self.options

    @property
    def read_table(self) -> type[Table] | None:
        """The typed options that its server or client reads, by their annotation."""
        classes = (*self.server.__mro__, *self.client.__mro__)
        kinds = [vars(parent).get("__annotations__", {}).get("options") for parent in classes]
        return next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, Table)), None)


_FACTS: dict[str, type] = {  # functions of the experiment, and the kind of a value that may replace them
    "shared": tuple,
    "cost": Cost,
    "releases": Releases,
    "sample_uses": Mapping,
    "extra_outputs": int,
    "local_epochs": int,
    "local_steps": int,
    "join_payload": bool,
    "seed_start": bool,
    "feedback": Feedback,
    "warnings": tuple,
    "check": object,
}
