r"""Training images that no client has: to choose settings by, where the test set must not be looked at.

    python tools/unused_images.py fashion-mnist --seeds 1000,1001,1002 --out unused.npz
    refprotofl run examples/thin.toml --preset small --set dataset=fashion-mnist --set seed=1000 \
        --set test.dataset=unused.npz

They are drawn from what neither a client nor the public set of any of these seeds gets in the preset.
"""

import argparse
from pathlib import Path

import numpy as np

from refprotofl.data import load_federated
from refprotofl.experiment.presets import load_experiment

DRAW = 7  # the seed of the draw


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset")
    parser.add_argument("--preset", default="small")
    parser.add_argument("--seeds", default="1000,1001,1002", help="with commas between")
    parser.add_argument("--images", type=int, default=10_000)
    parser.add_argument("--out", type=Path, default=Path("unused.npz"))
    given = parser.parse_args()
    used: list[np.ndarray] = []
    for seed in given.seeds.split(","):
        settings = [f"dataset={given.dataset}", f"seed={int(seed)}"]
        federated = load_federated(load_experiment(preset=given.preset, settings=settings))
        used += [*federated.client_indices, federated.public_indices]
    dataset = federated.dataset
    unused = np.setdiff1d(np.arange(len(dataset.train_labels)), np.concatenate(used))
    if len(unused) < given.images:
        raise SystemExit(f"Only {len(unused)} images are unused: ask for fewer with --images, or name fewer --seeds.")
    drawn = np.random.default_rng(DRAW).permutation(unused)[: given.images]
    names = np.array(dataset.class_names)
    np.savez(given.out, x=dataset.train_inputs[drawn], y=names[dataset.train_labels[drawn]], class_names=names)
    print(f"{given.out}: {len(drawn)} of {len(unused)} unused images of {given.dataset}")


if __name__ == "__main__":
    main()
