"""Methods compared with their papers' algorithms, written out once more in plain float64 over vectors.

Each client takes three full-batch steps in a round, so that the order of samples does not matter, with momentum,
weight decay and a rate that falls. Who takes part is what the run drew, less those that dropped out.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from refprotofl.export import load_trained
from refprotofl.federation import simulation

CLIENTS, ROUNDS, STEPS, WIDTH = 4, 4, 3, 8
LR, MOMENTUM, DECAY = 0.2, 0.5, 0.01
SETTING: dict[str, Any] = {
    **{
        "clients": CLIENTS,
        "rounds": ROUNDS,
        "fraction": 0.75,
        "dropout": 0.3,
        "seed": 2,
        "evaluate": {"every": ROUNDS},
    },
    "train": {
        **{"batch-size": 1000, "local-epochs": STEPS, "lr": LR, "momentum": MOMENTUM, "weight-decay": DECAY},
        **{"schedule": "step", "step-size": 2, "gamma": 0.5},
    },
}

Objective = Callable[[Tensor], Tensor]  # weights (P,) -> scalar


@dataclass
class Federation:
    """The clients' data, the model as a function of one vector (P,), and who took part in each round of a run."""

    run: Any

    @cached_property
    def loaded(self) -> simulation.Federation:
        return simulation.load_federation(self.run.experiment, None)

    @cached_property
    def model(self) -> nn.Module:
        return self.loaded.model.double()

    @cached_property
    def first(self) -> Tensor:
        return self.vector(self.model.state_dict())

    def vector(self, entries: Mapping[str, Tensor]) -> Tensor:
        return torch.cat([entries[name].double().flatten() for name, _ in self.model.named_parameters()])

    def entries(self, weights: Tensor) -> dict[str, Tensor]:
        likes = dict(self.model.named_parameters())
        pieces = weights.split([like.numel() for like in likes.values()])
        return {name: piece.view_as(like) for (name, like), piece in zip(likes.items(), pieces, strict=True)}

    def samples(self, indices: Any) -> tuple[Tensor, Tensor]:
        dataset = self.loaded.data.dataset
        prepared = self.loaded.model.prepare(torch.from_numpy(dataset.train_inputs[indices])).double()
        return prepared, torch.from_numpy(dataset.train_labels[indices]).long()

    @cached_property
    def clients(self) -> list[tuple[Tensor, Tensor]]:
        return [self.samples(indices) for indices in self.loaded.data.client_indices]

    @cached_property
    def public(self) -> tuple[Tensor, Tensor]:
        return self.samples(self.loaded.data.public_indices)

    def present(self, number: int) -> list[int]:
        return [one.client for one in self.run.tap.select("up", "train") if one.round == number]

    def logits(self, weights: Tensor, inputs: Tensor) -> Tensor:
        found: Tensor = functional_call(self.model, self.entries(weights), (inputs,))
        return found

    def embeddings(self, weights: Tensor, inputs: Tensor) -> Tensor:
        identity = {"head.weight": torch.eye(WIDTH).double(), "head.bias": torch.zeros(WIDTH).double()}
        found: Tensor = functional_call(self.model, self.entries(weights) | identity, (inputs,))
        return found

    def entropy(self, client: int) -> Objective:
        inputs, labels = self.clients[client]
        return lambda weights: functional.cross_entropy(self.logits(weights, inputs), labels)

    def mean(self, values: dict[int, Tensor]) -> Tensor:
        """Return the mean over clients by data size."""
        sizes = torch.tensor([float(len(self.clients[k][1])) for k in values], dtype=torch.float64)
        return (sizes / sizes.sum()) @ torch.stack([*values.values()])

    def mean_of_all(self, values: dict[int, Tensor]) -> Tensor:
        """Return the mean over all clients by data size, of which those without a value have 0 and the usual size."""
        return self.mean(values) * len(values) / CLIENTS


def rate(number: int) -> float:
    return LR * 0.5 ** ((number - 1) // 2)


def descend(start: Tensor, objective: Objective, lr: float, steps: int = STEPS) -> Tensor:
    weights, velocity = start, torch.zeros_like(start)
    for _ in range(steps):
        leaf = weights.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(objective(leaf), leaf)
        velocity = MOMENTUM * velocity + gradient + DECAY * weights
        weights = weights - lr * velocity
    return weights


def adam(weights: Tensor, objective: Objective, steps: int, lr: float) -> Tensor:
    """Kingma and Ba (2015), Algorithm 1."""
    first, second = torch.zeros_like(weights), torch.zeros_like(weights)
    for step in range(1, steps + 1):
        leaf = weights.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(objective(leaf), leaf)
        first, second = 0.9 * first + 0.1 * gradient, 0.999 * second + 0.001 * gradient**2
        weights = weights - lr * (first / (1 - 0.9**step)) / ((second / (1 - 0.999**step)).sqrt() + 1e-8)
    return weights


def weight_of_the_gradients(steps: int) -> float:
    """With momentum the gradient of step j moves the steps j, …, `steps`: its weight is 1 + rho + …"""
    return sum((1 - MOMENTUM ** (steps - j)) / (1 - MOMENTUM) for j in range(steps))


def tilted(objective: Objective, slope: Tensor) -> Objective:
    return lambda weights: objective(weights) + slope @ weights


def near(objective: Objective, centre: Tensor, weight: float) -> Objective:
    return lambda weights: objective(weights) + weight / 2 * ((weights - centre) ** 2).sum()


# Methods with a common model


def fedavg(f: Federation, server: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    shared = f.first
    for t in range(1, ROUNDS + 1):
        after = {k: descend(shared, f.entropy(k), rate(t)) for k in f.present(t)}
        shared = server(shared, f.mean(after) - shared)
    return shared


def fedavgm(f: Federation, momentum: float, server_lr: float) -> Tensor:
    """Hsu et al. (2019): v <- beta v + dw; w <- w + eta v."""
    velocity = torch.zeros_like(f.first)

    def server(shared: Tensor, change: Tensor) -> Tensor:
        velocity.mul_(momentum).add_(change)
        return shared + server_lr * velocity

    return fedavg(f, server)


def adaptive(f: Federation, second: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """Reddi et al. (2021), Algorithm 2, with eta = 0.02, beta_1 = 0.8, tau = 0.01."""
    moments = {"m": torch.zeros_like(f.first), "v": torch.full_like(f.first, 1e-4)}

    def server(shared: Tensor, change: Tensor) -> Tensor:
        moments["m"] = 0.8 * moments["m"] + 0.2 * change
        moments["v"] = second(moments["v"], change**2)
        return shared + 0.02 * moments["m"] / (moments["v"] ** 0.5 + 0.01)

    return fedavg(f, server)


def fedadam(f: Federation) -> Tensor:
    return adaptive(f, lambda v, square: 0.95 * v + 0.05 * square)


def fedyogi(f: Federation) -> Tensor:
    return adaptive(f, lambda v, square: v - 0.05 * square * torch.sign(v - square))


def fedprox(f: Federation, mu: float) -> Tensor:
    """Li et al. (2020): each client minimises its loss + mu / 2 |w - w_t|^2."""
    shared = f.first
    for t in range(1, ROUNDS + 1):
        shared = f.mean({k: descend(shared, near(f.entropy(k), shared, mu), rate(t)) for k in f.present(t)})
    return shared


def scaffold(f: Federation, server_lr: float) -> Tensor:
    """Karimireddy et al. (2020), Algorithm 1, option II."""
    shared, variates = f.first, dict[int, Tensor]()
    for t in range(1, ROUNDS + 1):
        present = f.present(t)
        variates = {k: torch.zeros_like(shared) for k in present} | variates
        common = f.mean_of_all(variates)
        after = {k: descend(shared, tilted(f.entropy(k), common - variates[k]), rate(t)) for k in present}
        length = rate(t) * weight_of_the_gradients(STEPS)
        variates |= {k: variates[k] - common + (shared - after[k]) / length for k in present}
        shared = shared + server_lr * (f.mean(after) - shared)
    return shared


def feddyn(f: Federation, alpha: float) -> Tensor:
    """Acar et al. (2021), Algorithm 1, where h, summed up over the rounds, is the mean of all clients' gradients."""
    shared, gradients = f.first, dict[int, Tensor]()
    for t in range(1, ROUNDS + 1):
        present = f.present(t)
        gradients = {k: torch.zeros_like(shared) for k in present} | gradients
        after = {k: descend(shared, near(tilted(f.entropy(k), -gradients[k]), shared, alpha), rate(t)) for k in present}
        gradients |= {k: gradients[k] - alpha * (after[k] - shared) for k in present}
        shared = f.mean(after) - f.mean_of_all(gradients) / alpha
    return shared


def contrasted(
    f: Federation, client: int, models: tuple[Tensor, Tensor], weight: float, temperature: float
) -> Objective:
    """Cross-entropy over the similarities to the received and to the previous model, of which the first is right."""
    inputs, entropy = f.clients[client][0], f.entropy(client)
    others = [functional.normalize(f.embeddings(one, inputs), dim=1) for one in models]
    first = torch.zeros(len(inputs), dtype=torch.long)

    def objective(weights: Tensor) -> Tensor:
        now = functional.normalize(f.embeddings(weights, inputs), dim=1)
        similarities = torch.stack([(now * other).sum(dim=1) for other in others], dim=1)  # (n, 2)
        return entropy(weights) + weight * functional.cross_entropy(similarities / temperature, first)

    return objective


def moon(f: Federation, weight: float, temperature: float) -> Tensor:
    """Li et al. (2021), Algorithm 1; without a previous model a client has no contrast."""
    shared, previous = f.first, dict[int, Tensor]()
    for t in range(1, ROUNDS + 1):
        objectives = {
            k: contrasted(f, k, (shared, previous[k]), weight, temperature) if k in previous else f.entropy(k)
            for k in f.present(t)
        }
        after = {k: descend(shared, objective, rate(t)) for k, objective in objectives.items()}
        previous |= after
        shared = f.mean(after)
    return shared


def feddf(f: Federation, epochs: int, lr: float, temperature: float) -> Tensor:
    """Lin et al. (2020), Algorithm 1: Adam on T^2 KL(softmax of the mean logits / T, softmax of the student's / T)."""
    shared, inputs = f.first, f.public[0]
    for t in range(1, ROUNDS + 1):
        after = {k: descend(shared, f.entropy(k), rate(t)) for k in f.present(t)}
        shared = f.mean(after)
        if len(after) == 1:  # it is the ensemble, so that every gradient is 0
            continue
        ensemble = torch.stack([f.logits(one, inputs) for one in after.values()]).mean(dim=0).detach()
        teacher = (ensemble / temperature).softmax(dim=1)

        def divergence(weights: Tensor, teacher: Tensor = teacher) -> Tensor:
            student = (f.logits(weights, inputs) / temperature).log_softmax(dim=1)
            return temperature**2 * (teacher * (teacher.log() - student)).sum(dim=1).mean()

        shared = adam(shared, divergence, epochs, lr)
    return shared


# Methods with models of the clients' own


def ditto(f: Federation, weight: float) -> dict[int, Tensor]:
    """Li et al. (2021), Algorithm 1: the clients' personal models."""
    shared, own = f.first, dict[int, Tensor]()
    for t in range(1, ROUNDS + 1):
        present = f.present(t)
        own |= {k: descend(own.get(k, shared), near(f.entropy(k), shared, weight), rate(t)) for k in present}
        shared = f.mean({k: descend(shared, f.entropy(k), rate(t)) for k in present})
    return own


def fedbn(f: Federation) -> dict[int, Tensor]:
    """Li et al. (2021): FedAvg of all entries but those of norm layers, which stay with their clients."""
    norms = {name for name, module in f.model.named_modules() if isinstance(module, nn.GroupNorm)}
    entries = f.model.named_parameters()
    private = torch.cat([torch.full((one.numel(),), name.rpartition(".")[0] in norms) for name, one in entries])
    assert private.any()
    shared, own = f.first, {k: f.first for k in range(CLIENTS)}
    for t in range(1, ROUNDS + 1):
        present = f.present(t)
        own |= {k: descend(torch.where(private, own[k], shared), f.entropy(k), rate(t)) for k in present}
        shared = f.mean({k: own[k] for k in present})
    return {k: torch.where(private, own[k], shared) for k in own}


def fedmd(f: Federation) -> dict[int, Tensor]:
    """Li and Wang (2019), Algorithm 1: transfer learning, then digest and revisit; one pass over the public images."""
    inputs, labels = f.public
    own, consensus = dict[int, Tensor](), torch.zeros(())

    def transfer(weights: Tensor) -> Tensor:
        return functional.cross_entropy(f.logits(weights, inputs), labels)

    def digest(weights: Tensor) -> Tensor:
        return (f.logits(weights, inputs) - consensus).abs().mean()

    for t in range(1, ROUNDS + 1):
        present = f.present(t)
        own |= {k: descend(f.first, transfer, rate(t), steps=1) for k in present if k not in own}
        if t > 1:
            own |= {k: descend(own[k], digest, rate(t), steps=1) for k in present}
        own |= {k: descend(own[k], f.entropy(k), rate(t)) for k in present}
        consensus = torch.stack([f.logits(own[k], inputs) for k in present]).mean(dim=0).detach()
    return own


def played(simulated: Any, method: str, options: dict[str, Any], norm: str = "none") -> Federation:
    table = {method: options} if options else {}
    model = {"name": "mlp", "norm": norm, "embedding": WIDTH}
    federation = Federation(simulated({"method": method, **table, "model": model, **SETTING}))
    taking_part = [federation.present(t) for t in range(1, ROUNDS + 1)]
    assert len({len(one) for one in taking_part}) > 1  # some drop out
    assert {client for one in taking_part for client in one} == {*range(CLIENTS)}
    return federation


ADAPTIVE = {"server-lr": 0.02, "beta1": 0.8, "beta2": 0.95, "tau": 0.01}


def apart(found: Tensor, expected: Tensor, start: Tensor) -> float:
    """How far two results are apart, as a share of the way from the start."""
    return float((found - expected).norm() / (expected - start).norm())


@pytest.mark.parametrize(
    ("method", "options", "algorithm"),
    [
        ("fedavgm", {"momentum": 0.7, "server-lr": 0.5}, partial(fedavgm, momentum=0.7, server_lr=0.5)),
        ("fedadam", ADAPTIVE, fedadam),
        ("fedyogi", ADAPTIVE, fedyogi),
        ("fedprox", {"mu": 0.7}, partial(fedprox, mu=0.7)),
        ("scaffold", {"server-lr": 0.5}, partial(scaffold, server_lr=0.5)),
        ("feddyn", {"alpha": 0.3}, partial(feddyn, alpha=0.3)),
        ("moon", {"weight": 2.0, "temperature": 0.3}, partial(moon, weight=2.0, temperature=0.3)),
        (
            "feddf",
            {"server-epochs": 5, "server-lr": 0.0003, "temperature": 2.0},
            partial(feddf, epochs=5, lr=0.0003, temperature=2.0),
        ),
    ],
)
def test_the_common_model_is_that_of_the_papers_algorithm(
    simulated: Any, method: str, options: dict[str, Any], algorithm: Callable[[Federation], Tensor]
) -> None:
    federation = played(simulated, method, options)
    found = federation.run.server_state()["shared"].double()
    assert apart(found, algorithm(federation), federation.first) < 1e-3


@pytest.mark.parametrize(
    ("method", "options", "norm", "algorithm"),
    [
        ("ditto", {"weight": 0.7}, "none", partial(ditto, weight=0.7)),
        ("fedbn", {}, "group", fedbn),
        ("fedmd", {}, "none", fedmd),
    ],
)
def test_the_clients_models_are_those_of_the_papers_algorithm(
    simulated: Any,
    method: str,
    options: dict[str, Any],
    norm: str,
    algorithm: Callable[[Federation], dict[int, Tensor]],
) -> None:
    federation = played(simulated, method, options, norm)
    expected = algorithm(federation)
    for client in range(CLIENTS):
        found = federation.vector(load_trained(federation.run.folder, client).model.state_dict())
        assert apart(found, expected[client], federation.first) < 1e-3
