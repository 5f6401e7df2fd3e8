"""Encoders: PCA as scikit-learn has it, the user's own, and open_clip when it is there."""

import sys
import types

import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA

from refprotofl.core.errors import InputError
from refprotofl.methods.builtin.fast.embedders import embed_inputs, fit_pca, load_encoder


@pytest.fixture(autouse=True)
def forget():
    load_encoder.cache_clear()


def images(number, channels=1):
    generator = torch.Generator().manual_seed(number)
    return torch.randint(0, 256, (number, channels, 6, 6), generator=generator, dtype=torch.uint8)


@pytest.mark.parametrize("number", [10, 80])
def test_pca_gives_what_scikit_learn_gives(number):
    public, own = images(number), images(7)
    width = min(64, 36, number - 1)
    expected = (
        PCA(width, svd_solver="full").fit(public.flatten(1).numpy() / 255).transform(own.flatten(1).numpy() / 255)
    )
    assert np.allclose(embed_inputs("pca", own, fit_pca(public)).numpy(), expected, atol=1e-5)


@pytest.mark.parametrize("number", [1, 4])
def test_equal_images_are_embedded_alike(number):
    same = images(1).expand(number, -1, -1, -1)
    assert embed_inputs("pca", same, fit_pca(same)).abs().max() < 1e-5


@pytest.fixture
def module(tmp_path, monkeypatch):
    (tmp_path / "encoders_of_mine.py").write_text(
        "import torch\n"
        "good = lambda images: images.flatten(1).double() * 2\n"
        "flat = lambda images: images.flatten().float()\n"
        "endless = lambda images: images.flatten(1) / 0\n"
        "def broken(images): raise RuntimeError('no weights')\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "encoders_of_mine"
    sys.modules.pop("encoders_of_mine", None)


def test_a_function_of_ones_own(module):
    assert embed_inputs(f"{module}:good", images(3), {}).equal(images(3).flatten(1).float() * 2)
    for name, words in (
        ("flat", "must turn 3 images into 3 rows"),
        ("endless", "not finite"),
        ("broken", "no weights"),
    ):
        with pytest.raises(InputError, match=words):
            embed_inputs(f"{module}:{name}", images(3), {})
    with pytest.raises(InputError, match=r"fast\.embedder = 'siglip' is neither"):
        load_encoder("siglip")


def test_without_open_clip_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "open_clip", None)
    with pytest.raises(InputError, match=r"pip install 'refprotofl\[clip\]'"):
        load_encoder("open_clip:RN50")


def test_open_clip_is_asked_for_pretrained_weights_and_gets_pictures_in_colour(monkeypatch):
    asked = []

    class Encoder(torch.nn.Module):
        def encode_image(self, batch):
            return batch.flatten(1)

    def create(name, pretrained):
        asked.append((name, pretrained))
        if name != "ViT":
            raise RuntimeError("nothing\nfound. " + "x" * 900)
        return Encoder(), lambda picture: torch.from_numpy(np.array(picture)).float()

    library = types.SimpleNamespace(
        create_model_from_pretrained=create,
        list_pretrained_tags_by_model=lambda name: ["first", "second"] if name == "ViT" else [],
    )
    monkeypatch.setitem(sys.modules, "open_clip", library)
    rows = embed_inputs("open_clip:ViT", images(70), {})
    assert rows.equal(images(70).expand(-1, 3, -1, -1).permute(0, 2, 3, 1).flatten(1).float())
    assert embed_inputs("open_clip:ViT@second", images(3, channels=3), {}).shape == (3, 108)
    assert asked == [("ViT", "first"), ("ViT", "second")]
    with pytest.raises(InputError, match="has no weights that could be loaded: nothing found") as refusal:
        load_encoder("open_clip:other")
    assert len(str(refusal.value)) < 500
