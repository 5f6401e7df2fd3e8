"""DP-SGD compared with a plain loop over single samples, and with training without noise."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from refprotofl.core.errors import InputError
from refprotofl.experiment.sections import Privacy, Train
from refprotofl.methods import erpa
from refprotofl.methods.base.samples import Samples
from refprotofl.methods.base.training import Loss, cross_entropy, train
from refprotofl.models import SplitModel
from refprotofl.models.inputs.image import pixels
from refprotofl.models.networks import cnn, mlp
from refprotofl.privacy import dp_sgd
from refprotofl.privacy.dp_sgd import SampleNoise, clipped_sums, noised_means
from refprotofl.privacy.sample_level import check_separable
from refprotofl.privacy.sealed_samples import PrivateSamples

CLASSES = 3


def model(kind: str = "mlp") -> SplitModel:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        backbone, width = mlp((1, 4, 4), "group") if kind == "mlp" else cnn((1, 4, 4), "group")
        return SplitModel(backbone, width, 5, CLASSES, pixels([0.5], [0.5], 4, 4))


def samples(number: int = 12) -> Samples:
    random = np.random.default_rng(1)
    images = torch.from_numpy(random.integers(0, 256, (number, 1, 4, 4), dtype=np.uint8))
    return Samples(images, torch.from_numpy(random.integers(0, CLASSES, number)), torch.arange(number))


def mechanism(clip: float, noise: float, seed: int) -> SampleNoise:
    found = SampleNoise(
        Privacy(unit="sample", clip=clip, noise=noise), lambda purpose, round: np.random.default_rng(seed)
    )
    found.begin("train", 1)
    return found


def aligned(one: SplitModel) -> Loss:
    """RefProtoFL's alignment to anchors: a mean over the batch's samples."""
    anchors, defined = torch.ones(CLASSES, 5), torch.tensor([True, False, True])
    return cross_entropy(one, lambda found, labels: 0.3 * erpa.alignment_loss(found, labels, anchors, defined))


def one_by_one(one: SplitModel, loss: Loss, inputs: Tensor, labels: Tensor, clip: float) -> list[Tensor]:
    sums = [torch.zeros_like(parameter) for parameter in one.parameters()]
    for row in range(len(inputs)):
        total, _ = loss(inputs[row : row + 1], labels[row : row + 1])
        found = torch.autograd.grad(total, list(one.parameters()))
        norm = math.sqrt(sum(float(part.square().sum()) for part in found))
        for place, part in enumerate(found):
            sums[place] += part * min(1.0, clip / norm)
    return sums


@pytest.mark.parametrize("kind", ["mlp", "cnn"])
@pytest.mark.parametrize("held", [1, 1 << 25])
def test_clipped_sums_are_those_of_a_loop_over_samples(kind: str, held: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dp_sgd, "HELD", held)  # one sample at a time, or all
    ours, data = model(kind).double(), samples()
    loss, inputs = aligned(ours), ours.prepare(data.inputs).double()
    for clip in (0.05, 1.0, 1e6):
        parameters = dict(ours.named_parameters())
        sums, _, _ = clipped_sums(ours, parameters, loss, inputs, data.labels, clip)
        for one, other in zip(sums, one_by_one(ours, loss, inputs, data.labels, clip), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-7)


def test_without_noise_and_with_a_wide_clip_it_is_plain_training_on_the_same_batches() -> None:
    table = Train(batch_size=100, local_epochs=3, lr=0.1)  # each batch is all samples
    plain, private, data = model(), model(), samples()
    one = train(plain, data, table, np.random.default_rng(0), loss=aligned(plain))
    noise = mechanism(1e9, 0.0, 1)
    sealed = PrivateSamples(data, noise)
    other = train(private, sealed, table, np.random.default_rng(0), loss=aligned(private))
    assert noise.steps == {1: 3}  # three passes of one step
    assert one.steps == other.steps == 3
    assert noise.penalty == pytest.approx(one.penalty, rel=1e-5)
    assert math.isnan(other.loss)  # exact figures of private samples do not reach the method
    assert math.isnan(other.penalty)
    for left, right in zip(plain.parameters(), private.parameters(), strict=True):
        torch.testing.assert_close(left, right, rtol=1e-4, atol=1e-6)


def test_noise_has_the_scale_that_it_says() -> None:
    ours, data = model(), samples(2)
    noise = mechanism(0.5, 4.0, 2)
    parameters = dict(ours.named_parameters())
    inputs, expected = ours.prepare(data.inputs), 8.0
    exact, _, _ = clipped_sums(ours, parameters, cross_entropy(ours), inputs, data.labels, 0.5)
    drawn = []
    for _ in range(5):
        noised, _, _ = noise.gradients(ours, parameters, cross_entropy(ours), inputs, data.labels, 16, 2)
        drawn += [(one * expected - sure).flatten() for one, sure in zip(noised, exact, strict=True)]
    values = torch.cat(drawn)
    assert float(values.std()) == pytest.approx(4.0 * 0.5, rel=0.01)  # some 180,000 values
    assert abs(float(values.mean())) < 5 * 2.0 / math.sqrt(len(values))


def test_batches_are_poisson_samples_that_hold_every_sample_once_a_pass_on_average() -> None:
    data, passes = samples(10), 400
    noise = mechanism(1.0, 1.0, 0)
    table = Train(batch_size=4, local_epochs=passes)
    batches = list(noise.batches(data, table, np.random.default_rng(3), torch.device("cpu")))
    assert len(batches) == 3 * passes  # as many steps as without noise: ceil(10 / 4) a pass
    sizes = [len(rows) for rows, _ in batches]
    assert min(sizes) < 2 < 6 < max(sizes)
    seen = torch.cat([rows for rows, _ in batches]).bincount(minlength=10) / passes
    assert bool(((seen - 1).abs() < 0.2).all())


def test_an_empty_batch_is_noise_alone() -> None:
    ours = model()
    noise = mechanism(1.0, 0.0, 0)
    empty = ours.prepare(samples().inputs[:0])
    gradients, total, _ = noise.gradients(ours, dict(ours.named_parameters()), cross_entropy(ours), empty, empty, 4, 1)
    assert not any(bool(one.any()) for one in gradients)
    assert float(total) == 0


@pytest.mark.parametrize(
    ("layer", "reason"), [(nn.BatchNorm1d(16), "batch norm"), (nn.Dropout(0.5), "draw nothing at random")]
)
def test_a_model_without_gradients_of_single_samples_is_refused(layer: nn.Module, reason: str) -> None:
    odd = SplitModel(nn.Sequential(nn.Flatten(), layer), 16, 5, CLASSES, pixels([0.5], [0.5], 4, 4))
    with pytest.raises(InputError, match=reason):
        check_separable(odd, "mine:f")
    check_separable(model(), "mine:f")


def test_noised_means_are_the_means_where_there_is_no_noise() -> None:
    embeddings = torch.tensor([[3.0, 4.0], [0.3, 0.4], [0.0, 1.0]])
    means, counts = noised_means(embeddings, torch.tensor([0, 0, 2]), 4, 1.0, 0.0, np.random.default_rng(0))
    # The first is shortened from length 5 to 1: (0.6, 0.8).
    torch.testing.assert_close(means, torch.tensor([[0.45, 0.6], [0.0, 0.0], [0.0, 1.0], [0.0, 0.0]]))
    assert counts.tolist() == [2, 0, 1, 0]


def test_the_noise_of_means_covers_sums_and_counts() -> None:
    """A sample moves its class's sum by `clip` and its count by 1, worth `clip`: sqrt(2) * clip in all."""
    many = 4000
    means, counts = noised_means(
        torch.zeros(many * 100, 1), torch.arange(many).repeat(100), many, 2.0, 3.0, np.random.default_rng(4)
    )
    sums = means.squeeze(1) * counts
    spread = 3.0 * math.sqrt(2)
    assert float(sums.std()) == pytest.approx(2.0 * spread, rel=0.05)
    assert float(counts.to(torch.float64).std()) == pytest.approx(spread, rel=0.05)
    assert float(counts.to(torch.float64).mean()) == pytest.approx(100, abs=0.5)
