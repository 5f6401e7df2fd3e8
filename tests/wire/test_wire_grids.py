"""A set of indices has one code that stays what it was, and other grids than its own are read as well."""

import hashlib

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from refprotofl.wire import WireError, indices
from refprotofl.wire.index_grid import Axis, Grid, allows_grid, fit, least_bits
from refprotofl.wire.primitives import Reader, varint


def uneven(seed: int, rows: int, width: int, tail: int = 0) -> tuple[np.ndarray, int]:
    """Indices with busy and silent rows and columns, and the size of the vector that they are of."""
    generator = np.random.default_rng(seed)
    chance = np.outer(generator.random(rows) ** 3, generator.random(width) ** 3)
    mask = np.append(generator.random((rows, width)) < chance, generator.random(tail) < 0.8)
    return np.flatnonzero(mask), mask.size


def test_the_code_is_the_one_that_earlier_versions_wrote() -> None:
    codes = hashlib.sha256()
    for seed, shape in enumerate([(128, 512, 1418), (524, 512, 90), (300, 64, 0), (40, 100, 7), (9000, 33, 1)]):
        codes.update(indices.encode_indices(*uneven(seed, *shape)))
    for seed, size in enumerate([300, 66_954, 267_786, 1 << 33]):
        marked = np.unique(np.random.default_rng(seed).integers(0, size, size // 10 if size < 1 << 20 else 3000))
        codes.update(indices.encode_indices(marked, size))
    assert codes.hexdigest() == "99ee19ba24a2c3959b061849041f923d9e81776c280614baff24f92b807e3f56"


def code_in(grid: Grid | None, marked: np.ndarray, size: int) -> bytes:
    """The indices as they would be written in some grid, the fitting one or not."""
    if grid is None:
        head, bits = b"\x00", indices._gap_bits(marked, np.array([size]), np.array([marked.size]))
    else:
        marks = np.bincount(grid.cells(marked), minlength=grid.sizes.size)
        head, bits = indices._grid_head(grid), indices._grid_bits(grid, marks, marked)
    return varint(marked.size) + head + np.packbits(bits).tobytes()


def accepted(code: bytes, size: int, marked: np.ndarray) -> bool:
    try:
        found = indices.decode_indices(Reader(code), size, most=size)
    except WireError:
        return False
    assert found.tolist() == marked.tolist()
    return True


@st.composite
def grids(draw: st.DrawFn, size: int, total: int) -> Grid | None:
    """Any grid that the decoder would read for this many indices."""
    width = draw(
        st.sampled_from([width for width in (8, 32, 33, 64, 100, 128, 256) if allows_grid(size, width, total)])
    )
    generator = np.random.default_rng(draw(st.integers(0, 1 << 32)))
    depths = draw(st.tuples(st.integers(0, 3), st.integers(0, 3)).filter(any))
    rows, columns = (
        Axis(generator.integers(0, 1 << depth, lines), depth)
        for depth, lines in zip(depths, (-(-size // width), width), strict=True)
    )
    return Grid(rows, columns)


@given(st.integers(0, 1 << 32), st.integers(10, 60), st.sampled_from([32, 64, 100]), st.data())
@settings(max_examples=80)
def test_any_grid_stands_for_the_same_indices(seed: int, rows: int, width: int, data: st.DataObject) -> None:
    marked, size = uneven(seed, rows, width)
    if not 100 < marked.size < size:
        return
    fitted = fit(marked, size)
    own = code_in(fitted and fitted[0], marked, size)
    assert own == indices.encode_indices(marked, size)
    other = code_in(data.draw(st.none() | grids(size, marked.size)), marked, size)
    assert accepted(other, size, marked)
    assert len(own) <= 1.05 * len(other)


def test_every_bit_of_padding_must_be_zero() -> None:
    padded = 0
    for seed in range(12):
        marked, size = uneven(seed, 60, 64, tail=seed)
        code = indices.encode_indices(marked, size)
        fitted = fit(marked, size)
        assert fitted is not None
        bits = indices._grid_bits(*fitted, marked).size
        for place in range(-bits % 8):
            padded += 1
            assert not accepted(code[:-1] + bytes([code[-1] | 1 << place]), size, marked)
    assert padded > 10


@given(st.lists(st.tuples(st.integers(0, 1 << 14), st.floats(0, 1)), min_size=1, max_size=50))
def test_bits_looked_up_and_bits_computed_are_the_same(cells: list[tuple[int, float]]) -> None:
    sizes = np.array([size for size, _ in cells])
    marks = np.array([int(size * share) for size, share in cells])
    computed = least_bits(np.append(sizes, 1 << 30), np.append(marks, 1))  # one large cell: too large to look up
    assert least_bits(sizes, marks).tolist() == computed[:-1].tolist()
