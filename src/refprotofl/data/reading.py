"""Options for reading data, from the experiment's keys: `resize`, `crop`, natural clients, kind and text."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from refprotofl.core import DataError
from refprotofl.core.inputs import TextCode
from refprotofl.data.dataset import Images
from refprotofl.experiment import Experiment

if TYPE_CHECKING:
    from PIL.Image import Image


@dataclass(frozen=True)
class Sizing:
    """The sides in pixels that images are resized and cropped to, 0 for none.

    `resize` alone stretches to a square. With `crop` the shorter side becomes `resize`, in proportion, and the square
    in the middle is cut out; `crop` alone cuts it out of the unscaled image.
    """

    resize: int = 0
    crop: int = 0

    def __bool__(self) -> bool:
        return bool(self.resize or self.crop)

    def __str__(self) -> str:
        set_keys = [f"{name} = {side}" for name, side in (("resize", self.resize), ("crop", self.crop)) if side]
        return " and ".join(set_keys)

    def fit(self, image: "Image", origin: str) -> "Image":
        if self.resize and not self.crop:
            return _scaled(image, (self.resize, self.resize))
        if self.resize:
            shorter = min(image.size)
            width, height = (max(self.resize, round(side * self.resize / shorter)) for side in image.size)
            image = _scaled(image, (width, height))
        return self._middle(image, origin) if self.crop else image

    def _middle(self, image: "Image", origin: str) -> "Image":
        width, height = image.size
        if min(width, height) < self.crop:
            raise DataError(
                f"{origin} is {width} x {height}, too small for crop = {self.crop}: "
                f"set resize = {self.crop} or more as well."
            )
        left, top = (width - self.crop) // 2, (height - self.crop) // 2
        return image.crop((left, top, left + self.crop, top + self.crop))

    def fit_all(self, images: Images, origin: str) -> Images:
        """Return images (N, channels, height, width), fitted one by one, so that no large images are copied."""
        if not self or not len(images):
            return images
        first = self._fit_one(images[0], origin)
        fitted = np.empty((len(images), *first.shape), np.uint8)
        for number, image in enumerate(images):
            fitted[number] = self._fit_one(image, origin)
        return fitted

    def _fit_one(self, image: Images, origin: str) -> Images:
        from PIL.Image import fromarray

        grey = len(image) == 1
        picture = fromarray(np.ascontiguousarray(image[0] if grey else image.transpose(1, 2, 0)))
        fitted = np.asarray(self.fit(picture, f"An image of {origin}"))
        return fitted[None] if grey else fitted.transpose(2, 0, 1)


def _scaled(image: "Image", size: tuple[int, int]) -> "Image":
    from PIL.Image import Resampling

    return image if image.size == size else image.resize(size, Resampling.BILINEAR)


AS_IT_IS = Sizing()
AS_IT_READS = TextCode()


@dataclass(frozen=True)
class Roles:
    """The names of columns or arrays by their role, "" for none, and what is done with missing values."""

    label: str = ""
    client: str = ""
    split: str = ""
    text: str = ""
    order: str = ""
    group: str = ""
    ignore: tuple[str, ...] = ()
    missing: Literal["error", "drop", "mean"] = "error"

    @property
    def named(self) -> tuple[str, ...]:
        roles = (self.label, self.client, self.split, self.text, self.order, self.group)
        return (*(name for name in roles if name), *self.ignore)

    def of_one(self, names: Sequence[str]) -> "Roles":
        """Return the roles for a table of one client, with these columns: its clients are not looked at.

        A public set or a node's table need not have the columns that divide a whole data set.
        """
        ignored = tuple(name for name in (*self.ignore, self.client) if name in names)
        there = {role: name for role in ("split", "order", "group") if (name := getattr(self, role)) in names}
        return Roles(self.label, text=self.text, ignore=ignored, missing=self.missing, **there)


NO_ROLES = Roles()


@dataclass(frozen=True)
class Reading:
    """Options for reading data."""

    sizing: Sizing = AS_IT_IS
    natural: bool = False  # clients come from the source
    seen_from: Path | None = None  # also searched for relative paths: the working folder of a stored run at its start
    kind: str = "auto"  # of the samples, where it does not follow from the source
    code: TextCode = AS_IT_READS
    roles: Roles = NO_ROLES

    @property
    def missing(self) -> bool:
        """Return True if NaN marks missing numbers, which take the mean of their feature in training."""
        return self.roles.missing == "mean"


AS_IT_COMES = Reading()


def reading_of(experiment: Experiment, seen_from: Path | None = None) -> Reading:
    sizing, table = Sizing(experiment.resize, experiment.crop), experiment.data
    known = experiment.input
    roles = Roles(
        table.label, table.client, table.split, table.text, table.order, table.group, table.ignore, table.missing
    )
    return Reading(
        sizing,
        experiment.partition == "natural",
        seen_from,
        table.kind if known is None else known.kind,
        TextCode(table.unit, table.length),
        roles,
    )
