"""The virtual set: the same from the same seed, with classes that can be distinguished."""

import itertools

import numpy as np
import pytest
import torch

from refprotofl.core import streams
from refprotofl.methods.builtin.vhl import vhl
from refprotofl.methods.builtin.vhl.vhl import _virtual_set, draw_shifts, likeness, shifted, virtual_batches

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("generator", ["gaussian", "conv"])
@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 13, 10)])
def test_it_is_made_from_the_seed_alone_and_its_classes_differ(generator, shape):
    images, labels = _virtual_set(3, generator, 4, 12, shape)
    assert images.shape == (48, *shape)
    assert images.dtype == torch.uint8
    assert labels.tolist() == [number for number in range(4) for _ in range(12)]
    _virtual_set.cache_clear()
    again, _ = _virtual_set(3, generator, 4, 12, shape)
    other, _ = _virtual_set(4, generator, 4, 12, shape)
    assert images.equal(again)
    assert not images.equal(other)
    pixels = images.flatten(1).float()
    means = torch.stack([pixels[labels == number].mean(dim=0) for number in range(4)])
    assert (torch.cdist(pixels, means).argmin(dim=1) == labels).float().mean() > 0.9
    assert all(len(pixels[labels == number].unique(dim=0)) > 6 for number in range(4))


def test_gaussian_images_have_the_means_and_the_spread_that_they_should():
    images, _ = _virtual_set(0, "gaussian", 1, 4000, (1, 8, 8))  # no enlargement: each pixel is one draw
    draw = streams.stream(0, "virtual-set")
    means = torch.from_numpy(draw.standard_normal((64,), dtype=np.float32))
    inside = (means > 0.4) & (means < 0.6)
    share_black = torch.special.ndtr(-means / 0.5)  # what lies below 0 is cut off
    assert ((images.flatten(1) == 0).float().mean(dim=0) - share_black).abs().max() < 0.05
    assert inside.any()
    assert (images.flatten(1)[:, inside].float().mean(dim=0) / 255 - 0.5).abs().max() < 0.1


def test_likeness_is_the_mean_squared_covariance_of_different_pixels():
    images = torch.rand(20, 2, 3, 3, dtype=torch.float64)
    covariance = np.cov(images.flatten(1).numpy(), rowvar=False, bias=True)
    between = (covariance**2).sum() - (np.diag(covariance) ** 2).sum()
    assert likeness(images).item() == pytest.approx(between / 18**2)


def test_nudging_makes_a_decoders_pixels_less_alike(monkeypatch):
    def made():
        return vhl._decoded(streams.stream(0, "test"), 256, (1, 8, 8))

    nudged = made()
    monkeypatch.setattr(vhl, "minimise", lambda *arguments: None)
    assert likeness(nudged) < likeness(made())


def test_a_shifted_image_is_a_crop_of_the_bordered_one():
    images = torch.arange(1, 129, dtype=torch.uint8).view(2, 1, 8, 8)
    batch = images[[0] * 40 + [1] * 40]
    found = shifted(batch, draw_shifts(len(batch), (8, 8), np.random.default_rng(0)))
    assert found.shape == batch.shape
    seen = set()
    for before, after in zip(batch, found, strict=True):
        bordered = torch.zeros(1, 10, 10, dtype=torch.uint8)
        bordered[:, 1:9, 1:9] = before
        crops = {
            (top, left, mirrored): bordered[:, top : top + 8, left : left + 8].flip(2) if mirrored
            else bordered[:, top : top + 8, left : left + 8]
            for top, left, mirrored in itertools.product(range(3), range(3), (False, True))
        }  # fmt: skip
        matches = [place for place, crop in crops.items() if crop.equal(after)]
        assert len(matches) == 1
        seen |= set(matches)
    assert len(seen) > 12  # of 18 ways


def test_batches_continue_after_the_set_is_through():
    images, labels = torch.zeros(10, 1, 8, 8, dtype=torch.uint8), torch.arange(10)
    batches = list(itertools.islice(virtual_batches(images, labels, 4, np.random.default_rng(0)), 6))
    assert [len(classes) for _, classes in batches] == [4, 4, 2, 4, 4, 2]
    for half in (batches[:3], batches[3:]):
        assert sorted(torch.cat([classes for _, classes in half]).tolist()) == list(range(10))
    assert batches[0][0].unique().tolist() == [-2.0]  # black, by mean 0.5 and deviation 0.25
