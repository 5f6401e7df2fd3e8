"""What a method declares of itself, once, for built-in methods and a user's own alike. Nothing here needs torch."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from inspect import signature
from typing import TYPE_CHECKING, Any, ClassVar, get_args

from refprotofl.core.errors import InputError
from refprotofl.core.parts import ADAPTER, ALL, Parts
from refprotofl.core.user_code import load_object
from refprotofl.experiment.keys import Scalar, Table
from refprotofl.methods.compressors import create_compressor
from refprotofl.methods.feedback import Feedback

if TYPE_CHECKING:
    from refprotofl.experiment import Experiment
    from refprotofl.methods.base.client import Client
    from refprotofl.methods.base.server import Server

Defaults = Mapping[str, Scalar]

SERVER = "refprotofl.methods.base.server:Server"
CLIENT = "refprotofl.methods.base.client:Client"
GUIDE = "docs/add-a-method.md shows how"


@dataclass(frozen=True)
class Cost:
    """Values that a client sends and gets in a round, whatever their type, as formulas.

    The symbols: P shared parameters, m width of the embedding, C classes, N clients, D public images, and what
    `symbols` adds, each as a function of P. A client is taken to hold every class, a round to be one of many.
    """

    up: str = "P"
    down: str = "P"
    symbols: Mapping[str, Callable[[int], int]] | None = None


UNDECLARED = "it does not declare what a round of it releases"


@dataclass(frozen=True)
class Releases:
    """What the accountant of [privacy] counts in a round; a text says why a unit is not defined for the method."""

    sample: int | str = UNDECLARED  # noised class means that a client sends, beside what its noised gradients made
    client: int | str = UNDECLARED  # noised sums of all clients' uploads


@dataclass(frozen=True)
class SampleUse:
    """How a client uses its private samples when it answers one verb, under sample-level privacy.

    The accountant counts on it, and a client whose answer used them otherwise stops the run.
    """

    passes: int = 0  # of noised training over its samples
    means: int = 0  # noised class means
    own: bool = False  # whether the passes leave out the public samples that public.train-on adds
    closing: bool = False  # asked once, when the last round is over, instead of in every round


SampleUses = Mapping[str, SampleUse]  # by verb; what is not here uses none

NAMED_BY_SIZE = (
    "which coordinates it sends is chosen by how far they moved, and that choice reveals the data before any noise"
)
BY_HOLDERS = "it averages a class over the clients that hold it, and how many these are depends on their data"


def releases_of_weights(experiment: "Experiment") -> Releases:
    """Return what a method releases that sends trained weights and nothing else."""
    reason = create_compressor(experiment).reveals
    return Releases(sample=0, client=f"{experiment.compress.setting}: {reason}" if reason else 1)


class Declaration:
    """What a method may say of itself. A built-in one derives from this; a user's own has the same attributes."""

    name: ClassVar[str]  # a user's own is called module:Class
    server: ClassVar["type[Server] | str"]  # the class, or module:Class to be imported when it is needed
    client: ClassVar["type[Client] | str"]
    options: ClassVar[type[Table] | Defaults] = {}  # the keys of its table
    shared: ClassVar[Parts | None] = None  # the model's parts that clients share; None: the key `share` decides
    pooled: ClassVar[bool] = False  # no federation: the server is given all clients' samples
    depends_on_rounds: ClassVar[bool] = False  # what it does in a round depends on how many there are in all
    simulation_only: ClassVar[str] = ""  # why it is for simulation only and must not run on people's devices
    notes: ClassVar[tuple[str, ...]] = ()  # where it departs from what its authors published

    @staticmethod
    def cost(experiment: "Experiment") -> Cost:
        return Cost()

    @staticmethod
    def releases(experiment: "Experiment") -> Releases:
        """For [privacy]; a method that says nothing is refused there."""
        return Releases()

    @staticmethod
    def sample_uses(experiment: "Experiment") -> SampleUses | None:
        """Which verbs use private samples; None: `train` does, by `local_epochs` and the means of `releases`."""
        return None

    @staticmethod
    def extra_outputs(experiment: "Experiment") -> int:
        """Logits beside those of the classes."""
        return 0

    @staticmethod
    def local_epochs(experiment: "Experiment") -> int:
        """Passes over its own data that a client makes in a round."""
        return experiment.train.local_epochs

    @staticmethod
    def finetune_epochs(experiment: "Experiment") -> int:
        """Passes over its own data that each client makes for itself when the last round is over."""
        return 0

    @staticmethod
    def finetune_steps(experiment: "Experiment", samples: int) -> int:
        """Steps that a client with so many samples of its own takes for itself when the last round is over."""
        return 0

    @staticmethod
    def join_payload(experiment: "Experiment") -> bool:
        """Whether a client that joins is sent more than a few bytes."""
        return experiment.public.train_on

    @staticmethod
    def seed_start(experiment: "Experiment") -> bool:
        """Whether clients are sent no weights in the first round, as the seed gives them."""
        return False

    @staticmethod
    def feedback(experiment: "Experiment") -> Feedback:
        """What becomes of the part of a change that is not sent."""
        return create_compressor(experiment).feedback

    @staticmethod
    def warnings(experiment: "Experiment") -> tuple[str, ...]:
        """What a user must be told before such a run begins."""
        return ()

    @staticmethod
    def check(experiment: "Experiment") -> None:
        """The rules that join its options to other keys: a ValueError says what does not go together."""


@dataclass(frozen=True)
class Method:
    """A declared method as the rest of the package uses it."""

    name: str
    line: str  # what it does, in one line
    code: "Callable[[], tuple[type[Server], type[Client]]]"  # imported when it is needed
    options: type[Table] | Defaults
    shared: "Callable[[Experiment], Parts]"
    cost: "Callable[[Experiment], Cost]"
    releases: "Callable[[Experiment], Releases]"
    sample_uses: "Callable[[Experiment], SampleUses]"
    extra_outputs: "Callable[[Experiment], int]"
    local_epochs: "Callable[[Experiment], int]"
    finetune_epochs: "Callable[[Experiment], int]"
    finetune_steps: "Callable[[Experiment, int], int]"
    join_payload: "Callable[[Experiment], bool]"
    seed_start: "Callable[[Experiment], bool]"
    feedback: "Callable[[Experiment], Feedback]"
    check: "Callable[[Experiment], None]"
    warnings: "Callable[[Experiment], tuple[str, ...]]"
    pooled: bool
    depends_on_rounds: bool
    simulation_only: str
    notes: tuple[str, ...]
    page: str  # of the documentation, where there is one

    @property
    def server(self) -> "type[Server]":
        return self.code()[0]

    @property
    def client(self) -> "type[Client]":
        return self.code()[1]

    @property
    def table(self) -> type[Table] | None:
        """Its typed options, where it has such."""
        return self.options if isinstance(self.options, type) else None

    @property
    def read_table(self) -> type[Table] | None:
        """The typed options that its server or client reads, by their annotation."""
        lines = [vars(parent).get("__annotations__", {}) for part in self.code() for parent in part.__mro__]
        kinds = [line["options"] for line in lines if isinstance(line.get("options"), type)]
        return next((kind for kind in kinds if issubclass(kind, Table)), None)

    @property
    def defaults(self) -> Defaults:
        """Its options where they are but names with their default values."""
        return {} if isinstance(self.options, type) else self.options


def by_share(experiment: "Experiment") -> Parts:
    return ALL if experiment.share == "full" else ADAPTER


def declared(name: str, source: type, where: str, page: str = "") -> Method:
    """The method that a class declares by its attributes; what is wrong with them is told with `where` it is named."""

    def said(attribute: str) -> Any:
        return getattr(source, attribute, getattr(Declaration, attribute, None))

    options = _options(where, said("options"))
    releases = _function(where, "releases", said("releases"), Releases)
    local_epochs = _function(where, "local_epochs", said("local_epochs"), int)
    return Method(
        name=name,
        line=(source.__doc__ or name).strip().splitlines()[0].rstrip("."),
        code=_code(where, said("server"), said("client")),
        options=options,
        shared=_shared(where, said("shared")),
        cost=_function(where, "cost", said("cost"), Cost),
        releases=releases,
        sample_uses=_sample_uses(said("sample_uses"), local_epochs, releases),
        extra_outputs=_function(where, "extra_outputs", said("extra_outputs"), int),
        local_epochs=local_epochs,
        finetune_epochs=_function(where, "finetune_epochs", said("finetune_epochs"), int),
        finetune_steps=said("finetune_steps"),
        join_payload=said("join_payload"),
        seed_start=said("seed_start"),
        feedback=said("feedback"),
        check=said("check"),
        warnings=said("warnings"),
        pooled=bool(said("pooled")),
        depends_on_rounds=bool(said("depends_on_rounds")),
        simulation_only=str(said("simulation_only")),
        notes=tuple(said("notes")),
        page=page,
    )


def _code(where: str, server: object, client: object) -> "Callable[[], tuple[type[Server], type[Client]]]":
    @cache
    def code() -> "tuple[type[Server], type[Client]]":
        found_server = _checked_part(where, "server", server, load_object(SERVER, where))
        found_client = _checked_part(where, "client", client, load_object(CLIENT, where))
        _check_constructor(where, found_server)
        unanswered = [verb for verb in found_client.verbs if not hasattr(found_client, verb)]
        if unanswered:
            raise InputError(f"{where}: {found_client.__name__} has no method for its verbs {', '.join(unanswered)}.")
        return found_server, found_client

    return code


def _checked_part(where: str, attribute: str, named: object, kind: Any) -> Any:
    found = load_object(named, where) if isinstance(named, str) else named
    if found is None:
        raise InputError(f"{where} has no attribute {attribute!r}, which must be its {kind.__name__} class; {GUIDE}.")
    if not isinstance(found, type) or not issubclass(found, kind):
        seen = found.__name__ if isinstance(found, type) else repr(found)
        raise InputError(f"{where}: its {attribute} {seen} is not a subclass of refprotofl.methods.{kind.__name__}.")
    missing = sorted(getattr(found, "__abstractmethods__", ()))
    if missing:
        raise InputError(f"{where}: {found.__name__} must still define {', '.join(missing)}; {GUIDE}.")
    return found


def _check_constructor(where: str, server: type) -> None:
    taken = [one for one in signature(server).parameters.values() if one.default is one.empty]
    if len(taken) != 1 or taken[0].kind is taken[0].KEYWORD_ONLY:
        names = ", ".join(one.name for one in taken) or "nothing"
        raise InputError(
            f"{where}: the constructor of {server.__name__} takes {names}; it must take one argument, the desk, which "
            f"holds all that a server has; {GUIDE}."
        )


def _shared(where: str, shared: object) -> "Callable[[Experiment], Parts]":
    """Parts of the model, or a function of the experiment that gives them; None: the key `share` decides."""
    if shared is None:
        return by_share
    if callable(shared):
        return shared
    if not isinstance(shared, tuple) or not set(shared) <= set(ALL):
        raise InputError(f"{where}: shared = {shared!r} is not a tuple of some of {', '.join(ALL)}.")
    return lambda experiment: shared


def _function(where: str, attribute: str, value: object, kind: type) -> Callable[..., Any]:
    """A value of the kind, or a function of the experiment that gives one."""
    if callable(value):
        return value
    if not isinstance(value, kind):
        raise InputError(f"{where}: {attribute} = {value!r} is neither {kind.__name__} nor a function that gives one.")
    return lambda experiment: value


def _sample_uses(
    named: "Callable[[Experiment], SampleUses | None]",
    local_epochs: "Callable[[Experiment], int]",
    releases: "Callable[[Experiment], Releases]",
) -> "Callable[[Experiment], SampleUses]":
    def uses(experiment: "Experiment") -> SampleUses:
        found, means = named(experiment), releases(experiment).sample
        if found is not None or isinstance(means, str):
            return found or {}
        return {"train": SampleUse(passes=local_epochs(experiment), means=means)}

    return uses


def _options(where: str, options: object) -> type[Table] | Defaults:
    if isinstance(options, type) and issubclass(options, Table):
        return options
    if not isinstance(options, Mapping) or not all(isinstance(value, get_args(Scalar)) for value in options.values()):
        raise InputError(
            f"{where}: options = {options!r} is not a dict of names and their default values, nor a subclass of "
            "refprotofl.methods.Table."
        )
    return options
