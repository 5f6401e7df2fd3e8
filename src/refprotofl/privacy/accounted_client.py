"""Uses of private samples: the plan that the accountant counts, and the check that a client did exactly that.

A client's ledger is part of its state. The method's code does not write it.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from refprotofl.core import PrivacyError, State
from refprotofl.experiment import Experiment
from refprotofl.methods import SampleUse, find_method, is_lost
from refprotofl.privacy.interface import setting
from refprotofl.wire import Message

if TYPE_CHECKING:
    from refprotofl.methods import ClientContext

STEPS, MEANS, LAST = "privacy/steps", "privacy/means", "privacy/last"  # in a client's state


@dataclass(frozen=True)
class Done:
    """Noised steps by steps per pass (the inverse of a sample's probability to be in a batch), and class means."""

    steps: Counter[int] = field(default_factory=Counter)
    means: int = 0

    def __str__(self) -> str:
        return f"{self.steps.total()} noised steps and {self.means} noised class means"


def planned(experiment: Experiment, use: SampleUse, training_size: int) -> Done:
    """Return what one answer does at a client that trains on this many samples, public ones included."""
    samples = training_size - public_size(experiment) if use.own else training_size
    per_pass = experiment.train.steps_per_epoch(samples)
    steps = use.passes * per_pass + use.steps
    return Done(Counter({per_pass: steps} if steps else {}), use.means)


def public_size(experiment: Experiment) -> int:
    """Return the number of public samples that every client trains on in addition to its own."""
    public = experiment.public
    return (public.per_class or 0) * len(public.classes or ()) if public.train_on else 0


class Answering(Protocol):
    """A method's client, or an attacker in its place."""

    @property
    def state(self) -> State: ...

    def answer(self, verb: str, round: int, message: Message) -> Message: ...


MakeClient = Callable[["ClientContext", State], Answering]


class AccountedClient:
    """A client whose use of private samples is checked, whatever its method's code does."""

    def __init__(self, make: MakeClient, context: "ClientContext", state: State) -> None:
        self._make = make
        self._context = context
        self.state = state

    def answer(self, verb: str, round: int, message: Message) -> Message:
        context, before = self._context.for_request(verb, round), dict(self.state)
        client = self._make(context, self.state)
        answer = client.answer(verb, round, message)
        self.state = settle(context, verb, round, answer, before, client.state)
        return answer


def settle(context: "ClientContext", verb: str, round: int, answer: Message, before: State, after: State) -> State:
    """Check what an answer did with private samples against what is accounted for; return the state with its ledger.

    `before` is the client's state when the request came, `after` as its method left it.
    """
    noise = context.noise
    if noise is None:
        return after
    done, last = Done(noise.steps, noise.means), _last(before)
    use = find_method(context.experiment.method).planned_uses(context.experiment).get(verb, SampleUse())
    due = planned(context.experiment, use, len(context.samples) + public_size(context.experiment))
    due = Done() if is_lost(answer) else due
    if done != due:
        raise PrivacyError(
            f"{setting('sample')}: {verb!r} took {done} of private samples, but {due} are accounted for: "
            "sample_uses of the method must declare the uses of each verb"
        )
    if done == Done():
        return after | {name: before[name] for name in (STEPS, MEANS, LAST) if name in before}
    if last.get(verb) == round:
        raise PrivacyError(
            f"{setting('sample')}: {verb!r} was asked twice in round {round}, but only one answer is accounted for"
        )
    return after | {
        STEPS: _number(before, STEPS) + done.steps.total(),
        MEANS: _number(before, MEANS) + done.means,
        LAST: " ".join(f"{name}:{number}" for name, number in sorted({**last, verb: round}.items())),
    }


def _number(state: State, name: str) -> int:
    found = state.get(name, 0)
    return found if isinstance(found, int) else 0


def _last(state: State) -> dict[str, int]:
    """Return the round in which each verb was last answered with noise."""
    pairs = (one.rpartition(":") for one in str(state.get(LAST, "")).split())
    return {verb: int(round) for verb, _, round in pairs}
