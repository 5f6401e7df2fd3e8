"""The tables of keys that every experiment has, independent of its method."""

import math
from typing import Annotated, Literal, Self, get_args

from pydantic import AfterValidator, BeforeValidator, Field, PositiveInt, field_serializer, model_validator

from refprotofl import inputs
from refprotofl.core import reference_to
from refprotofl.core.discovery import OWN, check_name
from refprotofl.core.inputs import InputKind
from refprotofl.experiment.keys import Count, Rate, Share, Switch, Table, Weight, at_most, key
from refprotofl.experiment.passed_arrays import data_reference
from refprotofl.experiment.schedules import Steps, rate_factor
from refprotofl.methods import compressors


def _without_repeats(values: tuple[int, ...]) -> tuple[int, ...]:
    if len(set(values)) != len(values):
        raise ValueError("names a class twice")
    return values


def _read_names(value: object) -> object:
    """Read one name, a list of names, or a table of counts."""
    value = reference_to(value)
    if isinstance(value, dict):
        whole = all(type(count) is int and count > 0 for count in value.values())
        if not value or not whole or not all(isinstance(name, str) for name in value):
            raise ValueError("does not give each name a whole number of clients, 1 or more")
    elif isinstance(value, list | tuple):
        if not value or not all(isinstance(name, str) for name in value):
            raise ValueError("is not a list of names")
        return tuple(value)
    elif not isinstance(value, str):
        raise ValueError("is neither a name, nor a list of names, nor a table of counts")
    return value


Names = Annotated[str | tuple[str, ...] | dict[str, int], BeforeValidator(_read_names)]


def listed_names(names: tuple[str, ...] | dict[str, int]) -> tuple[str, ...]:
    """Return the list of names that a table of counts stands for."""
    return names if isinstance(names, tuple) else tuple(one for one, count in names.items() for _ in range(count))


def _read_list(value: object) -> object:
    """Read a list, or a text with commas."""
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


def _named_once(names: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(names)) != len(names):
        raise ValueError("names one twice")
    return names


def _two_decays(values: tuple[float, ...]) -> tuple[float, ...]:
    if len(values) != 2 or not all(0 <= value < 1 for value in values):
        raise ValueError("is not a list of two numbers from 0 to below 1")
    return values


class Train(Table):
    """Local training by a method's clients; servers that train have keys of their own."""

    local_epochs: Annotated[PositiveInt, at_most(1_000_000)] = key(
        1, "passes over a client's data in a round, 1 or more", also=("epochs",), rival="local-steps"
    )
    local_steps: Annotated[Count, at_most(1_000_000_000)] = key(
        0,
        "steps of a client in a round, in place of local-epochs; 0 for passes",
        enters="changed",
        also=("steps", "max-steps", "local-iterations"),
        rival="local-epochs",
    )
    batch_size: Annotated[PositiveInt, at_most(1_000_000)] = Field(64, description="samples in a batch, 1 or more")
    optimizer: Literal["sgd", "adam", "adamw"] = key(
        "sgd", "the clients' optimiser; its state is new in every round", enters="changed", also=("optimiser", "optim")
    )
    lr: Rate = key(0.01, "learning rate, above 0", also=("learning-rate",))
    momentum: Annotated[float, Field(ge=0, lt=1)] = Field(0.9, description="SGD's momentum, from 0 to below 1")
    weight_decay: Weight = Field(
        1e-4, description="weight decay, 0 or more: added to the gradient by sgd and adam, apart from it by adamw"
    )
    betas: Annotated[tuple[float, ...], Field(strict=False), AfterValidator(_two_decays)] = key(
        (0.9, 0.999), "Adam's decay of the mean gradient and of its square, from 0 to below 1", enters="changed"
    )
    eps: Rate = key(1e-8, "Adam's summand of the denominator, above 0", enters="changed")
    schedule: Literal["constant", "cosine", "step", "linear"] = key(
        "constant",
        "learning rate over the rounds",
        enters="changed",
        also=("lr-schedule", "scheduler", "lr-scheduler"),
    )
    step_size: Annotated[Count, at_most(1_000_000)] = key(
        0, "rounds between the steps of schedule = step, 0 for a third of the rounds", enters="changed"
    )
    gamma: Share = key(0.1, "factor of the rate at each of those steps, above 0 and up to 1", enters="changed")
    warmup: Annotated[Count, at_most(1_000_000)] = key(
        0, "first rounds, in which the rate rises to train.lr", enters="changed", also=("warmup-rounds",)
    )
    grad_clip: Weight = key(
        0.0,
        "norm that the gradient of a batch is clipped to, 0 for no limit",
        enters="changed",
        also=("clip-grad-norm", "max-grad-norm", "gradient-clipping", "clip-grad"),
    )
    precision: Literal["float32", "bf16"] = key(
        "float32",
        "arithmetic of the backbone in training and scoring; bf16: bfloat16 with float32 weights, for "
        'numerics = "native"',
        enters="changed",
        also=("dtype", "amp", "mixed-precision"),
    )
    augment: Annotated[
        tuple[Literal["crop", "flip", "jitter"], ...],
        Field(strict=False),
        BeforeValidator(_read_list),
        AfterValidator(_named_once),
    ] = key(
        (),
        "random changes of training samples: crop and flip of images, jitter of series",
        enters="changed",
        also=("augmentation",),
    )

    @model_validator(mode="after")
    def _has_no_idle_key(self) -> Self:
        """Refuse passes next to steps, and keys of another optimiser or schedule: they would have no effect."""
        if self.local_steps and self.local_epochs > 1:
            raise ValueError(
                f"has local-steps = {self.local_steps} and local-epochs = {self.local_epochs}: leave one of them out"
            )
        adaptive = self.optimizer != "sgd"
        for name, works, reader in (
            ("momentum", not adaptive, 'optimizer = "sgd"; Adam has betas'),
            ("betas", adaptive, 'optimizer = "adam" or "adamw"'),
            ("eps", adaptive, 'optimizer = "adam" or "adamw"'),
            ("step_size", self.schedule == "step", 'schedule = "step"'),
            ("gamma", self.schedule == "step", 'schedule = "step"'),
        ):
            if not works and getattr(self, name) != type(self).model_fields[name].default:
                shown = getattr(self, name)
                value = list(shown) if isinstance(shown, tuple) else shown
                raise ValueError(f"has {name.replace('_', '-')} = {value}, which is for {reader}")
        return self

    @property
    def depends_on_rounds(self) -> bool:
        """True where the rate of a round depends on the number of rounds, so that a run cannot be extended."""
        return self.schedule in ("cosine", "linear") or (self.schedule == "step" and not self.step_size)

    def in_round(
        self, round: int, rounds: int, *, epochs: int | None = None, lr: float | None = None, scheduled: bool = True
    ) -> "Train":
        """Return the settings of a round, counted from 1, of `rounds`: its rate by schedule and warm-up.

        `epochs` and `lr` are a method's own in place of these. A rate that is not `scheduled` is the same in any round.
        """
        steps = Steps(self.step_size, self.gamma)
        factor = rate_factor(self.schedule, round, rounds, self.warmup, steps) if scheduled else 1.0
        changed = {"lr": (self.lr if lr is None else lr) * factor}
        return self.model_copy(update=changed | ({} if epochs is None else {"local_epochs": epochs, "local_steps": 0}))

    @property
    def passes(self) -> int:
        """The passes over a client's samples in a round; none where steps are counted instead."""
        return 0 if self.local_steps else self.local_epochs

    def steps_per_epoch(self, samples: int) -> int:
        """Return the number of batches in a pass over the samples, the last incomplete one included."""
        return math.ceil(samples / self.batch_size)

    def steps(self, samples: int) -> int:
        """Return the number of local steps of a client with this many samples."""
        return self.local_steps or self.local_epochs * self.steps_per_epoch(samples)


class Model(Table):
    name: Names = Field(
        "resnet18",
        description="resnet18, cnn, mlp or module:function for a backbone of your own; a list of them, assigned to the "
        "clients in turn; or a table of counts of clients by name",
    )
    stem: Literal["imagenet", "cifar"] = Field("imagenet", description="resnet18's first layers")
    norm: Literal["group", "batch-local", "none"] = "group"
    embedding: Annotated[PositiveInt, at_most(65_536)] = Field(128, description="width of the embedding, 1 or more")
    kernel: Literal["plain", "fast"] = "fast"
    pool: Literal["mean", "last"] = key(
        "mean",
        "transformer's output: the mean over a text's tokens, or its last token, to predict the next",
        enters="changed",
    )
    layout: Literal["auto", "as-is", "channels-last"] = key(
        "auto",
        "of a backbone's weights in memory; auto: for a backbone of your own by its layers, channels-last where there "
        "are convolutions or max-pooling over images and no group norm",
        enters="changed",
    )

    @field_serializer("name", when_used="json")
    def _spell_out(self, name: str | tuple[str, ...] | dict[str, int]) -> str | list[str]:
        """Return a table as the list that it stands for: the order matters, and a hash ignores that of a table."""
        return name if isinstance(name, str) else list(listed_names(name))


class Public(Table):
    per_class: Annotated[Count, at_most(1_000_000)] | None = Field(
        None, description="public samples of each covered class, 0 or more"
    )
    coverage: Annotated[float, Field(ge=0, le=1)] = key(1.0, "share of classes covered, 0 to 1", rival="classes")
    classes: Annotated[tuple[Count, ...], Field(strict=False), AfterValidator(_without_repeats)] | None = key(
        None, "the covered classes by number, instead of coverage", rival="coverage"
    )
    train_on: Switch = Field(False, description="whether clients train on the public samples too")
    dataset: Annotated[str, BeforeValidator(data_reference)] = key(
        "",
        "the source of the public samples, as for dataset; empty to hold them out of the clients' data",
        enters="changed",
    )


class Test(Table):
    dataset: Annotated[str, BeforeValidator(data_reference)] = key(
        "", "the source of the test samples, as for dataset; empty for the data set's own", enters="changed"
    )


def _known_compressor(name: str) -> str:
    return check_name(name, compressors.NAMES)


class Compress(Table):
    name: Annotated[str, BeforeValidator(reference_to), AfterValidator(_known_compressor)] = Field(
        compressors.NONE, description=f"{', '.join(compressors.NAMES)} or {OWN}"
    )
    keep: Share = Field(0.1, description="share of the shared parameters sent, above 0 and up to 1, where not all are")
    bits: Annotated[int, Field(ge=1, le=8)] = Field(8, description="bits per value: 8 or 4 with qsgd, 1 to 8 with eden")
    bucket: PositiveInt = Field(512, description="values under one norm with qsgd, 1 or more")
    decay: Annotated[float, Field(ge=0, le=1)] = Field(
        1.0, description="share of the unsent rest that is kept from round to round with top-k-ef and stc, 0 to 1"
    )
    downlink: Literal["auto", "none", "same"] = key(
        "auto", "compression of the broadcast: as its authors do (stc's alone), none, or as uploads", enters="changed"
    )

    @model_validator(mode="after")
    def _has_a_compressor(self) -> Self:
        if self.downlink == "same" and not self.enabled:
            raise ValueError('has downlink = "same" without a compressor: set compress.name')
        return self

    @property
    def enabled(self) -> bool:
        return self.name != compressors.NONE

    @property
    def setting(self) -> str:
        """Return the setting that chooses the compressor, as errors show it."""
        return f'compress.name = "{self.name}"'


def _leaves_samples(value: int) -> int:
    if value == 1:
        raise ValueError("is 1, which holds out every sample")
    return value


HASHED_AS = 5  # evaluate.every = "auto" in hashes: those of experiments that leave it open stay what they were


ScoredProtocol = Literal["personal", "personal_before", "global", "own", "personal_prototype", "own_prototype"]


def _in_order(names: tuple[str, ...]) -> tuple[str, ...]:
    """Sort protocols as they are shown, so that one choice has one hash."""
    return tuple(name for name in get_args(ScoredProtocol) if name in names)


class Evaluate(Table):
    every: Literal["auto"] | PositiveInt = Field(
        "auto",
        description="rounds between evaluations, 1 or more; auto for about ten, in the first and last round too",
    )
    clients: Literal["all"] | PositiveInt = Field("all", description="'all' or the number of evaluated clients")
    test_limit: Count = Field(0, description="test samples used, 0 for all")
    protocols: Annotated[
        tuple[ScoredProtocol, ...],
        Field(strict=False),
        BeforeValidator(_read_list),
        AfterValidator(_named_once),
        AfterValidator(_in_order),
    ] = key(
        (),
        "the protocols that are scored, in every evaluation; none named: all, personal_before in the last round only",
        enters="changed",
    )
    subset: Count = key(
        1_000, "test samples that are scored before the last round, class-balanced; 0 for all", enters="changed"
    )


class Finetune(Table):
    """Fine-tuning of the common model at each client, after the last round."""

    epochs: Annotated[Count, at_most(1_000_000)] = key(
        0, "fine-tuning passes of each client over its own data after the last round, 0 for none", enters="changed"
    )
    head_epochs: Annotated[Count, at_most(1_000_000)] = key(
        0, "passes that train the head alone before those of the whole model (LP-FT)", enters="changed"
    )
    rate: Annotated[float, Field(gt=0, le=1)] = key(
        1.0, "factor of the learning rate in these passes, above 0 and up to 1", enters="changed"
    )
    validation: Annotated[Count, AfterValidator(_leaves_samples)] = key(
        10,
        "one in this many own samples is held out to choose the mix of common and fine-tuned weights, 2 or more; "
        "0 takes the fine-tuned ones",
        enters="changed",
    )

    @model_validator(mode="after")
    def _has_passes(self) -> Self:
        if not self.passes and (self.rate, self.validation) != (1.0, 10):
            raise ValueError("has rate or validation but no epochs or head-epochs, so that nothing is fine-tuned")
        return self

    @property
    def passes(self) -> int:
        """The passes over a client's own data, those of the head included; 0: there is no fine-tuning."""
        return self.head_epochs + self.epochs

    def held_out(self, samples: int) -> int:
        """Return how many of this many own samples choose the mix instead of being trained on."""
        return samples // self.validation if self.validation else 0


class Stop(Table):
    """Early stopping, by an accuracy on samples that clients hold out."""

    patience: Annotated[Count, at_most(1_000_000)] = key(
        0, "evaluations in a row without a better accuracy after which a run stops, 0 for no limit", enters="changed"
    )
    min_delta: Annotated[float, Field(ge=0, lt=1)] = key(
        0.0, "gain in accuracy above which one is better, as a share of 1", enters="changed"
    )
    target: Annotated[float, Field(ge=0, le=1)] = key(
        0.0, "accuracy at which a run stops, as a share of 1; 0 for none", enters="changed"
    )
    protocol: Literal["personal", "global", "own"] = key(
        "personal", "the accuracy that decides", enters="changed", also=("monitor",)
    )

    @model_validator(mode="after")
    def _has_no_idle_key(self) -> Self:
        if self.min_delta and not self.patience:
            raise ValueError(f"has min-delta = {self.min_delta:g}, which is for patience, and patience = 0")
        if not self.enabled and self != Stop.model_construct():
            raise ValueError("has protocol but neither patience nor target, so that no run stops early")
        return self

    @property
    def enabled(self) -> bool:
        return bool(self.patience or self.target)


AttackKind = Literal[
    "none",
    "signflip",
    "scaling",
    "alie",
    "ipm",
    "squat",
    "freerider",
    "prototype-shift",
    "labelflip",
    "backdoor",
]


class Attack(Table):
    """Hostile clients in simulation; `attack_kinds` describes the kinds."""

    kind: AttackKind = key("none", "the attack of hostile clients", enters="changed")
    fraction: Annotated[float, Field(ge=0, lt=1)] = key(
        0.0, "share of the clients that are hostile, from 0 to below 1", enters="changed"
    )
    strength: Weight = key(0.0, "strength of the attack, 0 for the default of its kind", enters="changed")
    target: Count = key(0, "class that a backdoor predicts, by number", enters="changed")

    def number(self, clients: int) -> int:
        return round(self.fraction * clients)


PrivacyUnit = Literal["none", "sample", "client"]


class Privacy(Table):
    """Differential privacy of client messages; docs/privacy.md describes the guarantee and its limits."""

    unit: PrivacyUnit = key("none", "unit of protection: one sample or a whole client", enters="changed")
    clip: Rate = key(1.0, "norm that a sample's gradient or a client's change is clipped to, above 0", enters="changed")
    noise: Weight = key(
        1.0, "standard deviation of the noise, in multiples of the bound that it hides, 0 or more", enters="changed"
    )
    delta: Annotated[float, Field(gt=0, lt=1)] = key(
        1e-5, "probability with which epsilon may be exceeded, between 0 and 1", enters="changed"
    )
    prototype_clip: Rate = key(
        1.0, "norm that an embedding or a class prototype is clipped to, above 0", enters="changed"
    )


def _known_kind(name: str) -> str:
    if name not in inputs.NAMES:
        raise ValueError(f"is not one of {', '.join(inputs.NAMES)}")
    return name


Kind = Annotated[str, AfterValidator(_known_kind)]


def _known_or_auto(name: str) -> str:
    return name if name == "auto" else _known_kind(name)


def _read_column(value: object) -> object:
    """Read the name of a column; a number is that of a column in a file without names."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


ColumnName = Annotated[str, BeforeValidator(_read_column)]


class Data(Table):
    """Reading of the data: columns or arrays by role, missing values, the kind of samples, normalisation."""

    label: ColumnName = key("", "column with the classes", enters="changed")
    client: ColumnName = key("", "column with the client of each sample", enters="changed")
    split: ColumnName = key("", "column with train or test", enters="changed")
    text: ColumnName = key("", "column with the texts, which are the samples then", enters="changed")
    order: ColumnName = key(
        "", "column of times or numbers: the latest fifth of each client is held out for testing", enters="changed"
    )
    group: ColumnName = key(
        "", "column of groups, such as recordings, which are never on both sides of a split", enters="changed"
    )
    ignore: Annotated[tuple[ColumnName, ...], Field(strict=False)] = key(
        (), "columns that are not read as features", enters="changed"
    )
    missing: Literal["error", "drop", "mean"] = key(
        "error", "what is done with missing values: refuse them, leave the rows out, or take the mean", enters="changed"
    )
    min_samples: PositiveInt | None = key(
        None, "samples below which a natural client is left out; min-size if not given", enters="changed"
    )
    kind: Annotated[str, AfterValidator(_known_or_auto)] = key(
        "auto",
        f"what a sample is: {', '.join(inputs.NAMES)}; auto for what the arrays look like",
        enters="changed",
    )
    statistics: Literal["auto", "clients", "public", "none"] = key(
        "auto",
        "source of means and deviations by feature, and of a vocabulary: clients' sums in a first exchange, the public "
        "set, or none; auto is clients for numbers and the public set for texts",
        enters="changed",
    )
    unit: Literal["characters", "words"] = key("characters", "what a text is split into", enters="changed")
    length: Annotated[Count, at_most(1024)] = key(
        0, "tokens of a text, the rest is cut; 0 for the longest text, at most 256", enters="changed"
    )
    vocabulary: Annotated[PositiveInt, at_most(65_536)] = key(
        5_000, "most entries of the vocabulary, the most common ones", enters="changed"
    )


class Input(Table):
    """The kind, shape, classes and statistics of the data, filled in from the data set: a node checks its own data."""

    class_names: Annotated[tuple[str, ...], Field(strict=False)]
    shape: Annotated[tuple[int, ...], Field(strict=False)]
    mean: Annotated[tuple[float, ...], Field(strict=False)]
    std: Annotated[tuple[float, ...], Field(strict=False)]
    client_names: Annotated[tuple[str, ...], Field(strict=False)] = key((), enters="changed")  # of natural clients
    kind: Kind = key(inputs.IMAGE, enters="changed")
    dtype: str = key("uint8", enters="changed")
    normalisation: str = key("", enters="changed")  # the source of mean and std, where it is not the data set
    vocabulary: Annotated[tuple[str, ...], Field(strict=False)] = key((), enters="changed")  # of tokens
    feature_names: Annotated[tuple[str, ...], Field(strict=False)] = key((), enters="changed")  # of a table's columns

    @model_validator(mode="after")
    def _is_of_its_kind(self) -> Self:
        """Refuse a shape for which no model is built: a received file may claim any."""
        self.input_kind.check_shape(self.shape)
        if "dtype" in self.model_fields_set and self.dtype != self.input_kind.dtype:
            raise ValueError(f"has dtype {self.dtype!r}; of {self.input_kind.plural} it is {self.input_kind.dtype!r}")
        self.__dict__["dtype"] = self.input_kind.dtype
        self.input_kind.check_facts(self.shape, self.mean, self.std, self.vocabulary)
        return self

    @property
    def input_kind(self) -> InputKind:
        return inputs.find_kind(self.kind)

    @property
    def field(self) -> str:
        """Return the name of samples in messages."""
        return self.input_kind.field

    @property
    def num_classes(self) -> int:
        return len(self.class_names)
