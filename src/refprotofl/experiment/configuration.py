"""The configuration: one frozen, validated model, its canonical form and its hash."""

import hashlib
import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Field,
    PositiveInt,
    ValidationError,
    create_model,
    model_validator,
)

from refprotofl.core import InputError, is_reference, reference_to
from refprotofl.core.discovery import OWN, check_name
from refprotofl.experiment.keys import Count, Rate, Scalars, Share, Table, Text, at_most, explain, key, known_of
from refprotofl.experiment.passed_arrays import data_reference
from refprotofl.experiment.sections import (
    HASHED_AS,
    Attack,
    Compress,
    Data,
    Evaluate,
    Finetune,
    Input,
    Model,
    Privacy,
    Public,
    Stop,
    Test,
    Train,
    listed_names,
)
from refprotofl.methods import METHODS, TABLES, aggregators

# The key that sets how far a partition is from an even one.
_DEGREES = {
    "dirichlet": "alpha",
    "quantity": "alpha",
    "classes-per-client": "classes-per-client",
    "feature-shift": "shift",
}


VALIDATION = 0.1  # share of their training samples that clients hold out for [stop], unless the experiment sets it


def _method_name(value: object) -> object:
    """Return the name of a method that is passed as a class."""
    return next((name for name, method in METHODS.items() if type(method) is value), reference_to(value))


def _known_aggregator(name: str) -> str:
    return check_name(name, aggregators.NAMES)


class _Keys(Table):
    """All keys except those that a method declares."""

    method: Annotated[str, BeforeValidator(_method_name)] = Field(
        "refprotofl", description="a method's name, or module:Class for one of your own"
    )
    dataset: Annotated[Text, BeforeValidator(data_reference)] = Field(
        "digits", description="a data set's name, a path, hf:owner/name or module:function"
    )
    train_limit: Count = Field(0, description="training samples used, public set included; 0 for all")
    seed: Count = Field(0, description="a whole number, 0 or more")
    clients: Annotated[PositiveInt, at_most(1_000_000)] = key(10, "number of clients, 1 or more", also=("num-clients",))
    fraction: Share = Field(1.0, description="share of clients in a round, above 0 and up to 1")
    over_select: Annotated[float, Field(ge=0, le=10)] = key(
        0.0,
        "in a deployment, further clients asked in a round, as a share of those of fraction; once as many as fraction "
        "says have answered, the others are not waited for, 0 to 10",
        enters="changed",
    )
    rounds: Annotated[PositiveInt, at_most(1_000_000)] = key(50, "number of rounds, 1 or more", also=("num-rounds",))
    partition: Literal["dirichlet", "iid", "shards", "classes-per-client", "quantity", "feature-shift", "natural"] = (
        "dirichlet"
    )
    alpha: Annotated[float, Field(gt=0)] = Field(0.5, description="concentration of the Dirichlet draw, above 0")
    classes_per_client: PositiveInt = key(
        2, 'classes that each client has with partition = "classes-per-client", 1 or more', enters="changed"
    )
    shift: Rate = key(
        0.1,
        "variance of the noise on the last client's inputs with partition = feature-shift, above 0",
        enters="changed",
    )
    min_size: PositiveInt = Field(64, description="samples that every client has at least, 1 or more")
    share: Literal["auto", "adapter", "full"] = Field(
        "auto", description="parts that clients share, if the method leaves it open; auto is what its paper shares"
    )
    first_weights: Literal["seed", "sent"] = key(
        "seed", "source of the initial shared weights: the seed, or the server, in full", enters="changed"
    )
    validation: Annotated[float, Field(ge=0, le=0.9)] = key(
        0.0,
        "share of each client's training samples that is held out and scored instead of the test set, 0 to 0.9",
        enters="changed",
    )
    resize: Annotated[Count, at_most(4096)] = key(
        0, "side in pixels that every image is scaled to, the shorter side with crop; 0 leaves it", enters="changed"
    )
    crop: Annotated[Count, at_most(4096)] = key(
        0, "side in pixels of the square cut out of the middle, after resize; 0 cuts nothing", enters="changed"
    )
    aggregate: Annotated[str, BeforeValidator(reference_to), AfterValidator(_known_aggregator)] = key(
        aggregators.MEAN,
        f"{', '.join(aggregators.NAMES)} or {OWN}: how the clients' changes and class prototypes are aggregated",
        enters="changed",
    )
    trim: Annotated[float, Field(gt=0, lt=0.5)] = key(
        0.2, "share of a coordinate's senders cut off at each end, above 0 and below 0.5", enters="changed"
    )
    clip: Annotated[float, Field(ge=0)] = key(
        0.0, "norm that a client's change is clipped to; 0 for the median of the round's norms", enters="changed"
    )
    min_senders: PositiveInt = key(
        1, "clients that must have sent a coordinate for it to change, 1 or more", enters="changed"
    )
    dropout: Annotated[float, Field(ge=0, lt=1)] = key(
        0.0, "share of the asked clients that drops out at random in each phase, from 0 to below 1", enters="changed"
    )
    value_code: Literal["plain", "entropy"] = key(
        "plain", "how values are written: as they are, or near their entropy, without loss", enters="changed"
    )
    device: Literal["auto", "cpu", "cuda", "mps"] = key("auto", enters="never")
    numerics: Literal["portable", "native"] = key(
        "portable",
        "CPU kernels: the same on x86-64 machines with AVX2 of one maker, or the fastest here",
        enters="carried",
    )
    deadline: Annotated[float, Field(ge=0), at_most(1_000_000_000)] = key(
        0.0, "seconds that a client has for an answer, 0 for no limit", enters="never"
    )
    keep_checkpoints: Annotated[PositiveInt, at_most(1000)] = key(
        3,
        "committed rounds that are kept for rollbacks, 1 or more; each takes the disk space of its states",
        enters="never",
    )
    min_replies: PositiveInt = key(
        1, "clients that must answer in each phase of a round for it to count, 1 or more", enters="never"
    )
    max_samples: Count = key(
        0, "samples that a client may report, 0 for the number of the largest client in a simulation", enters="never"
    )
    max_step: Annotated[float, Field(ge=0)] = key(
        100.0,
        "rejects answers and server steps more than this many times the typical norm, 0 for none",
        enters="changed",
    )
    train: Train = Field(default_factory=lambda: Train())
    model: Model = Field(default_factory=lambda: Model())
    public: Public = Field(default_factory=lambda: Public())
    test: Test = Field(default_factory=lambda: Test())
    data: Data = Field(default_factory=lambda: Data())
    own: Scalars = Field(
        default_factory=dict, description="the options of a method of your own: numbers, texts, true or false"
    )
    compress: Compress = Field(default_factory=lambda: Compress())
    finetune: Finetune = Field(default_factory=lambda: Finetune())
    evaluate: Evaluate = Field(default_factory=lambda: Evaluate())
    stop: Stop = Field(default_factory=lambda: Stop())
    attack: Attack = Field(default_factory=lambda: Attack())
    privacy: Privacy = Field(default_factory=lambda: Privacy())
    input: Input | None = Field(None, description="filled in from the data set")

    def __init__(self, **values: Any) -> None:
        """Raise InputError with a sentence for every wrong key, as for a file."""
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise InputError(explain(error, type(self))) from None

    def asked(self) -> dict[str, Any]:
        """Return the keys that were set, also those outside the hash; `parse` makes the same experiment of them."""
        return self.model_dump(mode="json", by_alias=True, exclude_unset=True)

    @model_validator(mode="after")
    def _resolve_share(self) -> Self:
        """Replace share = "auto" by what it means, so that both are one experiment with one hash.

        For a user's own method this is done when its code is loaded.
        """
        if self.share == "auto":
            self.model_fields_set.discard("share")  # another method resolves it in its own way
            if self.method in METHODS:
                self.__dict__["share"] = METHODS[self.method].auto_share
        return self

    @model_validator(mode="after")
    def _method_agrees(self) -> Self:
        """Check the keys of a built-in method; a user's own method is checked when its code is loaded."""
        if self.method in METHODS:
            METHODS[self.method].check_all(self)  # type: ignore[arg-type]
        return self

    @model_validator(mode="after")
    def _resolve_validation(self) -> Self:
        """Let clients hold out samples where a run may stop early, unless the experiment says how many."""
        if self.stop.enabled and not self.validation:
            if "validation" in self.model_fields_set:
                raise ValueError("has [stop] and validation = 0, but stopping needs samples that clients hold out")
            self.__dict__["validation"] = VALIDATION
        return self

    @model_validator(mode="after")
    def _take_clients_of_data(self) -> Self:
        """Take the clients that data.client names, unless another partition is asked for."""
        if self.data.client and "partition" not in self.model_fields_set:
            self.__dict__["partition"] = "natural"
        if self.data.min_samples is not None and self.partition != "natural":
            raise ValueError(
                f'has data.min-samples = {self.data.min_samples}, which is for partition = "natural", not '
                f'"{self.partition}"'
            )
        return self

    @property
    def least_samples(self) -> tuple[str, int]:
        """Return the key, and the number of samples below which a natural client is left out."""
        least = self.data.min_samples
        return ("min-size", self.min_size) if least is None else ("data.min-samples", least)

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if 0 < self.resize < self.crop:
            raise ValueError(f"has resize = {self.resize}, which is smaller than crop = {self.crop}")
        self._check_partition()
        if self.model.pool != "mean" and "transformer" not in self._named_backbones:
            raise ValueError(f'has model.pool = "{self.model.pool}", which is for model.name = "transformer"')
        if self.train.warmup >= self.rounds:
            raise ValueError(
                f"has train.warmup = {self.train.warmup}, but only rounds = {self.rounds}: no round would have train.lr"
            )
        self._check_aggregate()
        self._check_attack()
        self._check_privacy()
        if self.stop.enabled:
            self._check_stop()
            self._check_scored()
        if self.counts_clients:
            self.check_clients()
        elif "clients" in self.model_fields_set:
            raise ValueError(
                f'has clients = {self.clients}, but with partition = "natural" the clients come from the data: '
                "leave clients out"
            )
        return self

    def _check_partition(self) -> None:
        """Refuse a key of another partition than the chosen one, as it has no effect."""
        for name in ("classes-per-client", "shift"):
            field = name.replace("-", "_")
            default = type(self).model_fields[field].default
            readers = [kind for kind, degree in _DEGREES.items() if degree == name]
            if getattr(self, field) != default and self.partition not in readers:
                raise ValueError(
                    f'has {name} = {getattr(self, field):g}, which is for partition = "{readers[0]}", not '
                    f'"{self.partition}"'
                )

    def _check_aggregate(self) -> None:
        """Refuse a key of another aggregator than the chosen one, as it has no effect; a user's own may read all."""
        for name, reader in (("trim", "trimmed"), ("clip", "clipped")):
            default = type(self).model_fields[name].default
            if getattr(self, name) != default and self.aggregate != reader and not is_reference(self.aggregate):
                raise ValueError(
                    f'has {name} = {getattr(self, name):g}, which is for aggregate = "{reader}", not "{self.aggregate}"'
                )

    def _check_attack(self) -> None:
        """Refuse a key of [attack] that the chosen kind does not read: it would have no effect."""
        table = self.attack
        if table.kind == "none" and table != Attack():
            raise ValueError('has keys of [attack] but attack.kind = "none", so that no client is hostile')
        if table.target and table.kind != "backdoor":
            raise ValueError(f'has attack.target = {table.target}, which is for attack.kind = "backdoor"')
        if table.strength and table.kind in ("labelflip", "backdoor"):
            raise ValueError(f'has attack.strength = {table.strength:g}, but attack.kind = "{table.kind}" has none')

    def _check_privacy(self) -> None:
        """Refuse keys that would have no effect or undo the protection."""
        if self.privacy.unit == "none" and self.privacy != Privacy():
            raise ValueError('has keys of [privacy] but privacy.unit = "none", so that nothing is protected')
        if self.privacy.unit != "none" and self.train.precision != "float32":
            raise ValueError(
                f"has train.precision = {self.train.precision!r} and [privacy], whose bound on what a sample or a "
                "client contributes is for float32"
            )
        if self.privacy.unit == "sample" and self.train.grad_clip:
            raise ValueError(
                f"has train.grad-clip = {self.train.grad_clip:g}, but sample-level privacy clips the gradient of each "
                "sample, before the noise: set privacy.clip"
            )
        if self.privacy.unit == "sample" and self.model.norm == "batch-local":
            raise ValueError(
                'has privacy.unit = "sample", but with model.norm = "batch-local" a sample\'s gradient depends on the '
                'others of its batch, so that it cannot be bounded by itself: use "group" or "none"'
            )
        if self.privacy.unit == "client" and not self.aggregates_plainly:
            raise ValueError(
                'has privacy.unit = "client", whose noised sum over a fixed number of clients needs aggregate = "mean" '
                "and min-senders = 1"
            )

    def _check_stop(self) -> None:
        """Refuse what early stopping contradicts, or what would leave it without effect."""
        if self.privacy.unit != "none":
            raise ValueError(
                "has [stop] and [privacy], but the round in which a run stops depends on exact scores of the clients' "
                "samples, which no noise hides"
            )
        if self.finetune.passes:
            raise ValueError("has [stop] and [finetune], which follows the last round; a run that stops has none")
        if self.evaluate.every != "auto" and self.evaluate.every >= self.rounds:
            raise ValueError(
                f"has [stop], but with evaluate.every = {self.evaluate.every} only the last of {self.rounds} rounds is "
                "evaluated"
            )

    def _check_scored(self) -> None:
        """Refuse an early stop by a protocol that is not scored."""
        named = self.evaluate.protocols
        if named and self.stop.protocol not in named:
            raise ValueError(
                f"has stop.protocol = {self.stop.protocol!r}, which is not in evaluate.protocols = {', '.join(named)}"
            )

    def _check_attackers(self, number: int) -> None:
        least = 2 if self.attack.kind == "alie" else 1  # alie needs the spread of a group
        if not least <= number < self.clients:
            raise ValueError(
                f"has attack.fraction = {self.attack.fraction:g}, which makes {number} of {self.clients} clients "
                f'hostile; attack.kind = "{self.attack.kind}" needs {least} to {self.clients - 1}'
            )

    @property
    def aggregates_plainly(self) -> bool:
        """Return True if the clients' changes are averaged as in the method's paper."""
        return self.aggregate == aggregators.MEAN and self.min_senders == 1

    @property
    def partition_degree(self) -> tuple[str, float] | None:
        """Return the key that sets how uneven the partition is, with its value; None if the partition has none."""
        name = _DEGREES.get(self.partition)
        return None if name is None else (name, getattr(self, name.replace("-", "_")))

    @property
    def partition_title(self) -> str:
        """Return the partition in a few words, such as `Dirichlet 0.5`."""
        if self.partition_degree is None:
            return self.partition
        kind = {"dirichlet": "Dirichlet", "feature-shift": "feature shift"}.get(self.partition, self.partition)
        return f"{kind.replace('-', ' ')} {self.partition_degree[1]:g}"

    @property
    def counts_clients(self) -> bool:
        """Return True if `clients` is their number; natural clients are not known before the data are."""
        return self.partition != "natural" or (self.input is not None and bool(self.input.client_names))

    def check_clients(self) -> None:
        """Raise ValueError if another key does not fit the number of clients."""
        names = self.input.client_names if self.input is not None else ()
        if names and len(names) != self.clients:
            raise ValueError(f"has input.client-names for {len(names)} clients, but clients = {self.clients}")
        self._check_names_fit_clients()
        if self.attack.kind != "none":
            self._check_attackers(self.attack.number(self.clients))
        if self.min_senders > self.cohort_size:
            raise ValueError(
                f"has min-senders = {self.min_senders}, but only {self.cohort_size} clients take part in a round"
            )
        if self.min_replies > self.cohort_size:
            raise ValueError(
                f"has min-replies = {self.min_replies}, but only {self.cohort_size} clients take part in a round"
            )
        if isinstance(self.evaluate.clients, int) and self.evaluate.clients > self.clients:
            raise ValueError(
                f"has evaluate.clients = {self.evaluate.clients}, but there are only clients = {self.clients}"
            )

    def _check_names_fit_clients(self) -> None:
        names = self.model.name
        if isinstance(names, dict) and sum(names.values()) != self.clients:
            raise ValueError(f"has model.name for {sum(names.values())} clients, but clients = {self.clients}")
        if isinstance(names, tuple) and len(names) > self.clients:
            raise ValueError(f"has {len(names)} names in model.name, but there are only clients = {self.clients}")

    def client_name(self, client: int) -> str:
        """Return a client's own name, else its number."""
        names = self.input.client_names if self.input is not None else ()
        return names[client] if names else str(client)

    @property
    def backbones(self) -> tuple[str, ...]:
        """Return the name of each client's backbone."""
        order = self._named_backbones
        return tuple(order[client % len(order)] for client in range(self.clients))

    @property
    def _named_backbones(self) -> tuple[str, ...]:
        names = self.model.name
        return (names,) if isinstance(names, str) else listed_names(names)

    @classmethod
    def preset(cls, name: str, **values: Any) -> "Experiment":
        """Return the experiment of a preset (`quick`, `small`, `full`, `paper`), with other values where given.

        >>> Experiment.preset("quick", rounds=3, train={"lr": 0.1}).rounds
        3
        """
        from refprotofl.experiment.presets import load_experiment

        return load_experiment(preset=name, values=values)

    @classmethod
    def load(cls, file: Path | str, **values: Any) -> "Experiment":
        """Return the experiment in a TOML file, with other values where given."""
        from refprotofl.experiment.presets import load_experiment

        return load_experiment(Path(file).expanduser(), values=values)

    @classmethod
    def parse(cls, values: dict[str, Any]) -> Self:
        """Make an experiment of nested plain values; raise InputError with a sentence for every wrong key."""
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            raise InputError(explain(error, cls)) from None

    def plain(self) -> dict[str, Any]:
        """Return nested plain values without the keys that do not affect results, such as tables of other methods.

        A user's own method may have the server or client of another, whose table is included once it is changed.
        """
        if is_reference(self.method):
            others = {name for name, table in TABLES.items() if getattr(self, name.replace("-", "_")) == table()}
        else:
            others = {*TABLES, "own"} - {self.method}
        if not self.counts_clients:
            others.add("clients")
        return {name: value for name, value in super().plain().items() if name not in others}

    def carried(self) -> dict[str, Any]:
        """Return the plain form for the processes and nodes that compute: with the keys that only they need."""
        names = [name for name, field in type(self).model_fields.items() if known_of(field, "enters") == "carried"]
        return self.plain() | self.model_dump(mode="json", by_alias=True, include=set(names))

    @property
    def hash(self) -> str:
        """The digest of all that affects the models; the evaluations that "auto" adds do not, unless runs may stop."""
        plain = self.plain()
        if self.evaluate.every == "auto" and not self.stop.enabled:
            plain["evaluate"]["every"] = HASHED_AS
        canonical = json.dumps(plain, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
        return hashlib.sha256(canonical.encode()).hexdigest()

    @property
    def evaluated_rounds(self) -> list[int]:
        """The rounds after which models are evaluated: every so many and the last, by default also the first."""
        return [round for round in range(1, self.rounds + 1) if self.is_evaluated(round)]

    def is_evaluated(self, round: int) -> bool:
        every = self.evaluate.every
        if every == "auto":
            return round in (1, self.rounds) or round % math.ceil(self.rounds / 10) == 0
        return round == self.rounds or round % every == 0

    @property
    def known_input(self) -> Input:
        """Return the resolved input; only for experiments that went through `resolve`."""
        assert self.input is not None, "the experiment was not resolved against its data"
        return self.input

    def train_in_round(
        self, round: int, *, epochs: int | None = None, lr: float | None = None, scheduled: bool = True
    ) -> Train:
        """Return the settings of local training in a round: [train], with the rate that its schedule has there."""
        return self.train.in_round(round, self.rounds, epochs=epochs, lr=lr, scheduled=scheduled)

    @property
    def cohort_size(self) -> int:
        """The clients of a round whose answers count."""
        return max(1, round(self.fraction * self.clients))

    @property
    def asked_size(self) -> int:
        """The clients that are asked in a round of a deployment."""
        return min(self.clients, math.ceil(self.cohort_size * (1 + self.over_select)))


if TYPE_CHECKING:

    class Experiment(_Keys):
        """The experiment for type checkers: the tables of methods are typed where they are declared."""

        def __init__(self, **values: Any) -> None: ...

        def __getattr__(self, name: str) -> Any: ...

else:
    _TABLES = {name.replace("-", "_"): (table, Field(default_factory=table)) for name, table in TABLES.items()}
    Experiment = create_model("Experiment", __base__=_Keys, __module__=__name__, **_TABLES)
    Experiment.__doc__ = "A whole experiment: the common keys, and the table of every method with options."


def with_kebab_keys(values: dict[str, Any], model: type[BaseModel] = Experiment) -> dict[str, Any]:
    """Return the same values with known keys in kebab-case, as in TOML."""
    renamed = {}
    for name, value in values.items():
        field = model.model_fields.get(name.replace("-", "_"))
        table = field.annotation if field is not None else None
        if isinstance(value, dict) and isinstance(table, type) and issubclass(table, BaseModel):
            value = with_kebab_keys(value, table)
        renamed[name if field is None else str(field.alias)] = value
    return renamed


def differences(one: dict[str, Any], other: dict[str, Any], prefix: str = "") -> list[str]:
    """Return the dotted keys whose values differ between two plain experiments."""
    found = []
    for name in sorted(one.keys() | other.keys()):
        left, right = one.get(name), other.get(name)
        if isinstance(left, dict) and isinstance(right, dict):
            found += differences(left, right, f"{prefix}{name}.")
        elif left != right:
            found.append(f"{prefix}{name}")
    return found
