"""The one training loop compared with torch's own optimiser, and its guarantees on batches and state."""

from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from refprotofl.experiment.sections import Train
from refprotofl.methods.base.samples import Samples
from refprotofl.methods.base.training import Diverged, cross_entropy, embed, train
from refprotofl.models import ADAPTER, SplitModel
from refprotofl.models.inputs.image import pixels
from refprotofl.models.networks import mlp

SAMPLES = 21


def model(seed: int = 0) -> SplitModel:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        backbone, width = mlp((1, 2, 2), "none")
        return SplitModel(backbone, width, 5, 3, pixels([0.5], [0.5]))


def samples() -> Samples:
    random = np.random.default_rng(1)
    images = torch.from_numpy(random.integers(0, 256, (40, 1, 2, 2), dtype=np.uint8))
    labels = torch.from_numpy(random.integers(0, 3, 40))
    return Samples(images, labels, torch.from_numpy(random.permutation(40)[:SAMPLES]))


def penalty(embeddings: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return 0.1 * (embeddings.square().sum(dim=1) * (labels + 1)).mean()


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("weight_decay", [0.0, 0.01])
@pytest.mark.parametrize("batch_size", [4, 64])
def test_training_agrees_with_torchs_sgd_on_all_batches_the_last_included(
    momentum: float, weight_decay: float, batch_size: int
) -> None:
    table = Train(local_epochs=2, batch_size=batch_size, lr=0.05, momentum=momentum, weight_decay=weight_decay)
    ours, theirs, data = model(), model(), samples()
    trained = train(ours, data, table, np.random.default_rng(2), loss=cross_entropy(ours, penalty))

    optimiser = torch.optim.SGD(theirs.parameters(), 0.05, momentum, weight_decay=weight_decay)
    order, losses = np.random.default_rng(2), []
    for _ in range(2):
        rows = data.rows[torch.from_numpy(order.permutation(SAMPLES))]
        for start in range(0, SAMPLES, batch_size):
            batch = rows[start : start + batch_size]
            embeddings = theirs.embed(theirs.prepare(data.inputs[batch]))
            extra = penalty(embeddings, data.labels[batch])
            loss = functional.cross_entropy(theirs.head(embeddings), data.labels[batch]) + extra
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            losses.append((loss.item(), extra.item()))
    for name, value in ours.state_dict().items():
        assert value.allclose(theirs.state_dict()[name], atol=1e-6), name
    assert trained.steps == len(losses) == 2 * -(-SAMPLES // batch_size)
    assert (trained.loss, trained.penalty) == pytest.approx(np.mean(losses, axis=0), rel=1e-4)


def test_momentum_does_not_outlive_a_round() -> None:
    """Two rounds in a row are two rounds from where the first one ended, in any process."""
    table, data = Train(batch_size=4, lr=0.05), samples()
    once = model()
    train(once, data, table, np.random.default_rng(2))
    stranger = model(seed=9)
    stranger.load_state_dict(once.state_dict())
    for one in (once, stranger):
        train(one, data, table, np.random.default_rng(3))
    assert once.read(ADAPTER).equal(stranger.read(ADAPTER))


def test_what_does_not_require_a_gradient_is_left_as_it_is() -> None:
    frozen = model()
    frozen.backbone.requires_grad_(False)
    before = frozen.read_private(ADAPTER)
    train(frozen, samples(), Train(weight_decay=0.1), np.random.default_rng(0))
    assert all(value.equal(before[name]) for name, value in frozen.read_private(ADAPTER).items())
    assert not frozen.read(ADAPTER).equal(model().read(ADAPTER))


@pytest.mark.parametrize("batch_size", [4, 1000])  # with a single batch the loss itself is still finite
def test_training_that_diverges_is_an_error(batch_size: int) -> None:
    with pytest.raises(Diverged, match=r"training diverged; a smaller train\.lr than 3e"):
        train(model(), samples(), Train(lr=3e38, weight_decay=1e3, batch_size=batch_size), np.random.default_rng(0))


@pytest.mark.parametrize("count", [0, 1, 40])
def test_embeddings_are_computed_in_evaluation_mode_for_any_number_of_images(count: int) -> None:
    network: Any = model()
    network.backbone.append(torch.nn.Dropout(0.9))
    network.train()
    images = samples().inputs[:count]
    embeddings = embed(network, images)
    assert embeddings.shape == (count, 5)
    assert not embeddings.requires_grad
    assert embeddings.equal(embed(network, images))  # nothing was dropped
