"""How many bits a cell with randomly placed marks takes, by arithmetic that is the same on every machine."""

import numpy as np
from numpy.typing import NDArray

from refprotofl.wire.bits import Integers

_SQRT_HALF = 0.7071067811865476
_TWO_OVER_LN_2 = 2.8853900817779268


def least_bits(sizes: Integers, marks: Integers) -> Integers:
    """About log2 C(n, k) for each cell of n places with k marks: n H(k / n), to the nearest bit."""
    if sizes.max(initial=0) < _TABLE.size:  # marks never exceed sizes
        bits = _TABLE[sizes] - _TABLE[marks] - _TABLE[sizes - marks]
    else:
        whole, marked, unmarked = _times_log2(np.stack([sizes, marks, sizes - marks]))
        bits = whole - marked - unmarked
    return np.asarray(np.rint(bits, out=bits).astype(np.int64))


def _times_log2(numbers: Integers) -> NDArray[np.float64]:
    """x log2 x, zero at zero.

    Libraries differ in the last bit of a logarithm, and one bit could choose another grid. Sums, products and
    quotients are the same everywhere, so the logarithm is the series of 2 artanh, good to seven digits.
    """
    mantissas, exponents = np.frexp(numbers.astype(np.float64))
    ratios = (mantissas - _SQRT_HALF) / (mantissas + _SQRT_HALF)
    squares = ratios * ratios
    series = ratios * (1 + squares * (1 / 3 + squares * (1 / 5 + squares / 7)))
    logarithms = exponents - 0.5 + _TWO_OVER_LN_2 * series
    return numbers * logarithms


_TABLE = _times_log2(np.arange(1 << 14))  # one look-up instead of a dozen operations; rows and columns are this small
