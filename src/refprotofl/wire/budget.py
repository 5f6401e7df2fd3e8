"""Search for the largest number of values that fits into a byte budget."""

from collections.abc import Callable
from functools import cache


def largest_within(size: Callable[[int], int], limit: int, most: int, value_bytes: int) -> int:
    """Return the `keep` that `largest_that_fits` finds for sizes up to `limit`, with fewer evaluations of `size`.

    Sizes grow nearly evenly, so a few evaluations find keeps whose sizes are just below and just above the limit, and
    bisection only searches between them. It ends at the same keep, unless sizes dip by more than `slack`.
    """
    slack = 8 + limit // 1024  # another grid for the indices may save some 20 bytes of 20 kB
    size, per_value = cache(size), value_bytes + 0.5  # an index takes about half a byte
    low, high = 0, most + 1  # up to `low` everything is assumed to fit, from `high` on nothing
    keep = max(1, min(most, int(limit / per_value)))
    for _ in range(6):
        over = size(keep) - limit
        if over < -slack:
            low = keep
        elif over > slack:
            high = keep
        low_is_near, high_is_near = (0 < end <= most and abs(size(end) - limit) <= 3 * slack for end in (low, high))
        aim = 2 * slack if low_is_near else -2 * slack
        last, keep = keep, max(low + 1, min(high - 1, keep + round((aim - over) / per_value)))
        if keep in (last, high) or (low_is_near and high_is_near):
            break
    return largest_that_fits(lambda keep: keep <= low or (keep < high and size(keep) <= limit), most)


def largest_that_fits(fits: Callable[[int], bool], most: int) -> int:
    """Return the `keep` up to `most` that fits where one more does not; 1 is known to fit.

    The length of the code may dip as `keep` grows: a larger keep beyond such a dip may fit too and is not searched for.
    """
    low, high = 1, most + 1  # low fits, high does not
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
