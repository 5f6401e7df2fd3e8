"""The client side of a method: its context, how it answers requests, trains locally and is scored."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from refprotofl.core import ALL, InputError, Parts, State, shares_backbone, streams, tensor_of
from refprotofl.evaluation import (
    PROTOCOLS,
    TestSet,
    adapter_outputs,
    adapter_predictions,
    backbone_features,
    common_features,
    count_correct,
    personal_scores,
    plan_of,
    predictions,
)
from refprotofl.experiment import Experiment
from refprotofl.methods.base import guards
from refprotofl.methods.base.augmentation import Augment, augmenter
from refprotofl.methods.base.broadcast import FROM_SEED, fingerprint, load_shared
from refprotofl.methods.base.compressor import Compressor
from refprotofl.methods.base.finetuning import OWN, OWN_ROUND, own_model
from refprotofl.methods.base.optimisers import GradHook
from refprotofl.methods.base.samples import Samples
from refprotofl.methods.base.schema import LOST, Lost, MessageSchemas, Refused, Scope, ValidatedMessage, read_request
from refprotofl.methods.base.training import Loss, TrainResult, train
from refprotofl.methods.declaration import FINETUNE
from refprotofl.methods.feedback import Feedback
from refprotofl.models import SplitModel, no_samples
from refprotofl.privacy import Mechanism, OwnEntropy, SampleNoise, open_samples
from refprotofl.wire import Message


class BlobStore(Protocol):
    """Store of the large constant messages that a client was given; equal ones are kept once."""

    def put(self, message: Message) -> str: ...

    def get(self, digest: str) -> Message | None: ...


@dataclass(frozen=True)
class ClientContext:
    """All that a client is given: its id, its data, a model to compute with, its blobs."""

    client_id: int
    experiment: Experiment
    samples: Samples
    test: TestSet
    model: SplitModel
    parts: Parts  # shared with the others
    blobs: BlobStore
    initial_weights: Tensor  # (P,), of the shared parts as the seed gives them
    compressor: Compressor
    privacy: Mechanism
    memo: dict[str, Tensor]  # common to all clients of a process: features under the newest backbone
    options: Any = None  # of the method
    feedback: Feedback = field(default_factory=Feedback)
    messages: MessageSchemas = field(default_factory=dict)
    entropy: OwnEntropy | None = None  # of a device; without it, noise comes from the seed

    def __post_init__(self) -> None:
        """Seal the samples where single ones are protected: no context exists from which they can be read."""
        object.__setattr__(self, "samples", self.privacy.seal(self.samples, self.entropy or self._stream))

    @property
    def num_clients(self) -> int:
        """The number of clients in the federation."""
        return self.experiment.clients

    def _stream(self, purpose: str, round: int) -> np.random.Generator:
        return streams.stream(self.experiment.seed, purpose, client=self.client_id, round=round)

    @property
    def noise(self) -> SampleNoise | None:
        """The noise that is added to all that is computed from the samples, where single ones are protected."""
        return open_samples(self.samples)[1]

    def for_request(self, verb: str, round: int) -> "ClientContext":
        """Return the context for answering one request.

        Where samples are protected, the test data are available for scoring alone: they may be held-out samples of the
        client's own, and reveal its class mix.
        """
        if self.noise is None:
            return self
        self.noise.begin(verb, round)
        return self if verb == "evaluate" else replace(self, test=self.test.emptied())

    @property
    def scope(self) -> Scope:
        return Scope(self.experiment, self.model, self.parts, self.options)


class Client(ABC):
    """A method's client. It answers requests by name; `state` is private and never leaves it as a whole."""

    verbs: ClassVar[tuple[str, ...]] = ("join", "train", "evaluate")
    common: ClassVar[str] = "shared"  # the newest shared vector in the server's state
    options: Any

    def __init__(self, context: ClientContext, state: State) -> None:
        self.context = context
        self.experiment = context.experiment
        self.options = context.options
        self.model = context.model
        self.parts = context.parts
        self.samples = context.samples
        self.state = state
        self.compressor = context.compressor
        self._verb = "train"  # that is being answered
        self._augments: dict[int, Augment | None] = {}  # by round

    def answer(self, verb: str, round: int, message: Message) -> Message:
        finetune = (FINETUNE,) if self.experiment.finetune.passes else ()
        if verb not in (*self.verbs, *finetune, LOST):
            raise Refused(f"there is no {verb!r} to ask this client for")
        self._verb = verb
        handler: Callable[[int, ValidatedMessage], Message] = getattr(self, verb)
        self.context = self.context.for_request(verb, round)
        try:
            return handler(round, read_request(self.context.messages, verb, self.complete(message)))
        except Lost:
            return {LOST: True}

    def complete(self, message: Message) -> Message:
        """Return a request with the initial weights in full where the server only names them."""
        if not any(name.startswith(FROM_SEED) for name in message):
            return message
        initial = self.context.initial_weights
        named = {name: value for name, value in message.items() if name.startswith(FROM_SEED)}
        if {*named.values()} != {fingerprint(initial)}:
            raise InputError(
                "The initial weights that follow from the seed on this device are not the server's: set "
                'first-weights = "sent"'
            )
        rest = {name: value for name, value in message.items() if name not in named}
        return rest | {name.removeprefix(FROM_SEED): initial for name in named}

    def lost(self, round: int, message: ValidatedMessage) -> Message:
        """Answer in place of a request where the client's state is gone; a client may count the bytes of that."""
        raise Lost

    def join(self, round: int, message: ValidatedMessage) -> Message:
        if self.experiment.known_input.field in message:
            self.state["public"] = self.context.blobs.put(message)
        if self.context.feedback.server_memory:
            self.state["memory"] = torch.zeros(sum(self.model.sizes(self.parts)))  # the server resets its copy, too
        return {"samples": len(self.training_samples())}

    @abstractmethod
    def train(self, round: int, message: ValidatedMessage) -> Message: ...

    def finetune(self, round: int, message: ValidatedMessage) -> Message:
        """Make a model of the client's own from the common one, for scoring and export; nothing of it is sent."""
        common = self.load_common(message)
        self.state[OWN], self.state[OWN_ROUND] = own_model(self, round, common), round
        return {}

    def load_common(self, message: ValidatedMessage) -> Tensor:
        """Load the common model (P,) that the server sends for fine-tuning, and return it."""
        return load_shared(self, message)

    @abstractmethod
    def evaluate(self, round: int, message: ValidatedMessage) -> Message: ...

    @classmethod
    def load_final(cls, model: SplitModel, parts: Parts, server: State, own: State) -> None:
        """Load a client's final model into a model as initialised: its private part, and the newest shared part.

        After fine-tuning it is the client's own model.
        """
        model.write_private(own)
        if parts:
            model.write(parts, tensor_of(own, OWN) if OWN_ROUND in own else tensor_of(server, cls.common))

    @property
    def num_classes(self) -> int:
        return self.experiment.known_input.num_classes

    @property
    def num_clients(self) -> int:
        """The number of clients in the federation."""
        return self.context.num_clients

    def local_steps(self, round: int) -> int:
        """Return the number of steps that `fit` takes in a round on the client's training samples."""
        return self.experiment.train_in_round(round).steps(len(self.training_samples()))

    def kept(self, name: str, like: Tensor) -> Tensor:
        """Return the tensor that `self.state` has under this name; zeros like another one before it has any."""
        return tensor_of(self.state, name) if name in self.state else torch.zeros_like(like)

    def shaped(self, vector: Tensor) -> list[Tensor]:
        """Return a vector (P,) as tensors of the shapes of the shared parameters, on the model's device."""
        return self.model.shaped(self.parts, vector)

    def stream(self, purpose: str, round: int) -> np.random.Generator:
        return streams.stream(self.experiment.seed, purpose, client=self.context.client_id, round=round)

    def public_set(self) -> tuple[Tensor, Tensor]:
        """Return public inputs and labels; raise `Lost` if the experiment has them but the store has not."""
        if not self.experiment.public.classes:
            return no_samples(self.experiment.known_input)
        kept = self.context.blobs.get(str(self.state["public"])) if "public" in self.state else None
        if kept is None:
            raise Lost
        public, field = ValidatedMessage(kept), self.experiment.known_input.field
        return public.tensor(field), public.tensor("labels").long()

    def training_samples(self) -> Samples:
        """Return the client's own samples, and the public ones with `public.train-on`."""
        return self.samples.joined(*self.public_set()) if self.experiment.public.train_on else self.samples

    def load(self, shared: Tensor | None = None) -> None:
        """Load the client's private part and the shared vector (P,) into the model, which other clients use as well."""
        self.model.write_private(self.state)
        if shared is not None:
            self.model.write(self.parts, shared)

    def fit(
        self,
        round: int,
        *,
        samples: Samples | None = None,
        loss: Loss | None = None,
        grad_hook: GradHook | None = None,
        parts: Parts = ALL,
        frozen: nn.Module | None = None,
        order: np.random.Generator | None = None,
        epochs: int | None = None,
        lr: float | None = None,
        scheduled: bool = True,
        augment: bool = True,
    ) -> TrainResult:
        """Train the loaded model as [train] says: the one way in which a method's client trains.

        By default it trains all parts on the client's training samples by mean cross-entropy, in batches from the
        round's stream "batches"; several calls in a round share one `order`. `epochs` and `lr` replace those of
        [train]; the schedule multiplies this rate too, unless the training is not `scheduled`, as fine-tuning after the
        last round. `augment` is off where the loss goes with the samples as they are. The rest is described at `train`.
        """
        return train(
            self.model,
            self.training_samples() if samples is None else samples,
            self.experiment.train_in_round(round, epochs=epochs, lr=lr, scheduled=scheduled),
            self.stream("batches", round) if order is None else order,
            loss=loss,
            grad_hook=grad_hook,
            parts=parts,
            frozen=frozen,
            augment=self._augment(round) if augment else None,
        )

    def _augment(self, round: int) -> Augment | None:
        """Return the changes of this request's samples; several calls of `fit` in it draw one after the other."""
        if round not in self._augments:
            request = "" if self._verb == "train" else f"/{self._verb}"
            self._augments[round] = augmenter(self.experiment, lambda purpose: self.stream(purpose + request, round))
        return self._augments[round]

    def keep_trained(self, round: int) -> Tensor:
        """Store what training left in the model, and return its shared vector (P,).

        The private part is stored, and the shared vector for `personal_before`.
        """
        trained = self.model.read_private(self.parts)
        movable = [f"backbone.{name}" for name, one in self.model.backbone.named_parameters() if one.requires_grad]
        guards.backbone_moved([(tensor_of(self.state, name), trained[name]) for name in movable if name in trained])
        self.state |= trained
        local = self.model.read(self.parts)
        self.state["trained"], self.state["trained_round"] = local, round
        return local

    def load_trained(self) -> None:
        """Load the trained shared part into a model that has the private part already, for `personal_before`."""
        self.model.write(self.parts, tensor_of(self.state, "trained"))

    def _test_features(self, test: TestSet, *, keep: bool) -> Tensor:
        """Return the backbone's features of test inputs, (T, width); clients with the same backbone share them."""
        if "backbone" not in self.parts or any(True for _ in self.model.buffers()):
            return backbone_features(self.model, test.inputs)
        return common_features(self.context.memo, self.model, test.inputs, keep=keep)

    def score(
        self, round: int, newest: Tensor, anchors: Tensor | None = None, defined: Tensor | None = None
    ) -> Message:
        """Return loss and correct predictions by protocol, with the newest shared part and straight after training.

        A client that was fine-tuned in this round is scored with its own model instead of the newest shared part. What
        is scored after the round follows from the experiment.
        """
        tuned = self.state.get(OWN_ROUND) == round
        plan = plan_of(self.experiment, round)
        test = self.context.test.planned(plan, self.num_classes)
        self.load(tensor_of(self.state, OWN) if tuned else newest)
        features = self._test_features(test, keep=not tuned)
        embeddings, logits = adapter_outputs(self.model, features, self.num_classes)
        predicted = predictions(self.model, embeddings, logits, anchors, defined)
        counts = count_correct(predicted, test)
        if plan.scores("personal_before") and self.state.get("trained_round") == round:
            self.load_trained()
            if shares_backbone(self.parts):
                features = self._test_features(test, keep=False)
            before = count_correct(adapter_predictions(self.model, features, self.num_classes), test)
            counts["personal_before"] = before["personal"]
        scored = {name: count for name, count in counts.items() if name not in PROTOCOLS or plan.scores(name)}
        return scored | (personal_scores(predicted[""], logits, test) if plan.scores("personal") else {})
