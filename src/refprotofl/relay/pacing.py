"""When a chunk may go on over a link of so many bits a second, and what becomes of it on the way."""

import asyncio
import random
from dataclasses import dataclass, field


@dataclass
class Lane:
    """One direction of a link, which all connections share; without a rate it is as fast as it comes.

    `flip_every`: a bit is turned over once in so many bytes on average, 0 for never; by a draw of its own, so that a
    fault can be had again.
    """

    rate: float | None = None  # bits a second
    latency: float = 0.0  # seconds
    flip_every: int = 0
    seed: int = 0
    crossed: int = 0  # bytes so far
    flipped: int = 0
    _free: float = 0.0  # when the last chunk is through
    _draw: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self._draw = random.Random(self.seed)

    def due(self, size: int, now: float) -> float:
        """When a chunk of `size` bytes that comes now is at the other end. Chunks wait for those before them."""
        begin = max(now, self._free)
        self._free = begin + (8 * size / self.rate if self.rate else 0.0)
        return self._free + self.latency

    def cross(self, chunk: bytes) -> bytes:
        """Counts a chunk, and spoils it if it is its turn."""
        self.crossed += len(chunk)
        if not self.flip_every or self._draw.random() >= len(chunk) / self.flip_every:
            return chunk
        place = self._draw.randrange(len(chunk))
        self.flipped += 1
        return chunk[:place] + bytes([chunk[place] ^ 1 << self._draw.randrange(8)]) + chunk[place + 1 :]


async def at(moment: float) -> None:
    """Comes back when the loop's clock is there."""
    left = moment - asyncio.get_running_loop().time()
    if left > 0:
        await asyncio.sleep(left)
