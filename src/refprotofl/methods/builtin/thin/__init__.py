"""Thin, this project's own method for the thinnest links: its keys, costs and releases."""

from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from refprotofl.core import ALL, InputError
from refprotofl.experiment import Bytes, Count, Switch, Table, Weight, key
from refprotofl.methods import NAMED_BY_SIZE, Cost, Method, Releases, lazy
from refprotofl.methods.feedback import FEEDBACKS, Feedback

if TYPE_CHECKING:
    from refprotofl.experiment import Experiment

BLOCK = 4096  # weights that are rotated together: that of common.rotated_quantiser, which needs torch

Bits = Annotated[float, Field(gt=0, le=8)]

FIXED_SCALES = {"levels": 4, "sparse": 2}  # that go with a code; the rotated one has one a block


class Options(Table):
    up_bits: Bits | None = key(1.0, "bits per weight up, above 0 and up to 8", rival="uplink-budget")
    last_up_bits: Bits | None = key(
        None,
        "bits per weight up in the last round, up to 8, if different; uplink-budget limits it too",
        enters="changed",
    )
    down_bits: Bits | None = key(1.0, "bits per weight down, above 0 and up to 8", rival="downlink-budget")
    uplink_budget: Bytes | None = key(None, "most bytes of a client's upload, such as '20 kB'", rival="up-bits")
    downlink_budget: Bytes | None = key(None, "most bytes of a message to a client", rival="down-bits")
    code: Literal["levels", "rotated", "sparse"] = Field(
        "levels",
        description="code of the changes: an entropy code of all values, a rotation and levels of fixed length, or the "
        "largest values only",
    )
    feedback: Switch = Field(True, description="error feedback for the part that a code leaves out")
    pretrain: Count = Field(0, description="passes of the server over the public set before the first round")
    server_epochs: Count = Field(2, description="passes of the server over the public set after each round's mean")
    distil: Weight = key(
        0.0,
        "weight of distilling the clients' mean prediction on mixed public images, in those passes",
        enters="changed",
    )
    balance: Switch = key(
        False, "correct each client's predictions for its own class mix in the distillation", enters="changed"
    )
    drift: Literal["none", "proximal", "anchors"] = Field(
        "none", description="limit on client drift: none, FedProx's term, or alignment to the public set's class means"
    )
    strength: Weight = Field(0.01, description="weight of that term, 0 or more")
    cooling: Annotated[float, Field(gt=0, le=1)] = Field(
        1.0, description="factor of the learning rate from round to round, above 0 and up to 1"
    )

    @model_validator(mode="before")
    @classmethod
    def _budgets_decide(cls, values: Any) -> Any:
        """Leave out the default rate where there is a budget."""
        if not isinstance(values, dict):
            return values
        for budget, bits in (("uplink-budget", "up-bits"), ("downlink-budget", "down-bits")):
            if values.get(budget) or values.get(budget.replace("-", "_")):
                values = {bits: None, **values}
        return values

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        for name, bits, budget in (
            ("up", self.up_bits, self.uplink_budget),
            ("down", self.down_bits, self.downlink_budget),
        ):
            if (bits is None) == (budget is None):
                raise ValueError(f"takes {name}-bits or {name}link-budget: one of them")
        return self

    def cooled(self, lr: float, round: int) -> float:
        """Return the learning rate of a round."""
        return lr * float(self.cooling ** (round - 1))


class Thin(Method):
    """the whole model in 1 bit per weight in each direction, the public set trained on at the server"""

    name = "thin"
    options = Options
    shared = ALL
    server = lazy("refprotofl.methods.builtin.thin.server:ThinServer")
    client = lazy("refprotofl.methods.builtin.thin.client:ThinClient")
    depends_on_rounds = True  # the last one has its own bits, and is read without bias
    notes = (
        "this project's own, not from a paper. The public set stays at the server unless public.train-on sends it "
        "to clients",
    )

    @staticmethod
    def check_input(experiment: "Experiment") -> None:
        kind = experiment.known_input.input_kind
        if experiment.thin.distil and not kind.normalised:
            raise InputError(
                f"thin.distil = {experiment.thin.distil:g}: the server distils over mixtures of two public "
                f"samples, and {kind.plural} cannot be mixed; set thin.distil = 0."
            )

    @staticmethod
    def cost(experiment: "Experiment") -> Cost:
        """Return the cost; B: scales of a code. A step down names two versions, and the evaluation one more."""
        fixed = FIXED_SCALES.get(experiment.thin.code)
        anchors = " + C*m" if experiment.thin.drift == "anchors" else ""
        return Cost("P + B", "P + B + 2" + anchors, {"B": lambda shared: fixed or -(-shared // BLOCK)})

    @staticmethod
    def releases(experiment: "Experiment") -> Releases:
        """Return the releases: all that leaves a client is made of trained weights."""
        table: Options = experiment.thin
        if table.distil:
            return Releases(sample=0, client="thin.distil asks each client's own model, to which no noise was added")
        return Releases(sample=0, client=1 if table.code != "sparse" else f'thin.code = "sparse": {NAMED_BY_SIZE}')

    @staticmethod
    def join_payload(experiment: "Experiment") -> bool:
        return experiment.public.train_on or experiment.first_weights == "sent"

    @staticmethod
    def seed_start(experiment: "Experiment") -> bool:
        return not experiment.thin.pretrain  # weights that are sent go with joining

    @staticmethod
    def feedback(experiment: "Experiment") -> Feedback:
        return FEEDBACKS["ef" if experiment.thin.feedback else "none"]

    @staticmethod
    def check(experiment: "Experiment") -> None:
        if experiment.compress.enabled:
            raise ValueError(
                f"has {experiment.compress.setting}, but thin codes what it sends by itself: set thin.up-bits"
            )
        if experiment.model.norm == "batch-local":
            raise ValueError(
                'has model.norm = "batch-local", but thin trains and evaluates the whole model at the server: use '
                'model.norm = "group" or "none"'
            )
        table: Options = experiment.thin
        if table.cooling < 1 and experiment.train.schedule != "constant":
            raise ValueError(
                f'has thin.cooling = {table.cooling:g} and train.schedule = "{experiment.train.schedule}", two '
                "schedules of one learning rate: leave one of them out"
            )
        if table.drift != "none" and not table.strength:
            raise ValueError(f'has thin.drift = "{table.drift}" with thin.strength = 0, which has no effect')
        if table.distil and not table.server_epochs:
            raise ValueError("has thin.distil, a part of the server's passes, with thin.server-epochs = 0")
        if table.balance and not table.distil:
            raise ValueError("has thin.balance, which is about what thin.distil asks for, with thin.distil = 0")
        if table.distil and experiment.aggregate != "mean":
            raise ValueError(
                f'has aggregate = "{experiment.aggregate}", but thin.distil weights all clients equally: use '
                "thin.distil = 0"
            )
        if not _has_public_set(experiment):
            _check_without_public_set(table)

    @staticmethod
    def warnings(experiment: "Experiment") -> tuple[str, ...]:
        if not experiment.thin.server_epochs or _has_public_set(experiment):
            return ()
        return ("The public set is empty, so thin's server trains on nothing (thin.server-epochs = 0 says so).",)


def _has_public_set(experiment: "Experiment") -> bool:
    public = experiment.public
    return not (public.per_class == 0 or public.classes == () or (public.classes is None and not public.coverage))


def _check_without_public_set(table: Options) -> None:
    """Refuse keys that need the public set; for those at their defaults `warnings` is enough."""
    if table.drift == "anchors":
        raise ValueError('has thin.drift = "anchors", which are made of the public set: it must not be empty')
    default = Options.model_fields["server_epochs"].default
    for name, value in (
        ("pretrain", table.pretrain),
        ("server-epochs", table.server_epochs if table.server_epochs != default else 0),
        ("distil", table.distil),
    ):
        if value:
            raise ValueError(f"has thin.{name} = {value}, which is done with the public set: it must not be empty")
