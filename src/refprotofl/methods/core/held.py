"""The accepted answers of a phase, held until all are in: only together do they show which of them stands out.

What was decoded is kept in memory up to a limit. Above that the answers themselves go to a temporary file, encoded, and
are read once more when their turn comes: memory does not grow with the number of clients.
"""

import os
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import IO, Generic, TypeVar

from torch import Tensor

from refprotofl.errors import MachineError
from refprotofl.wire import Message, Sparse, decode, encode

IN_MEMORY = 1 << 28  # bytes of decoded content

Content = TypeVar("Content")


class Held(Generic[Content]):
    """Decoded answers in the order in which they came. `read` decodes an answer once more."""

    def __init__(self, read: Callable[[int, Message], Content], in_memory: int | None = None) -> None:
        self._read = read
        self._left = IN_MEMORY if in_memory is None else in_memory
        self._file: IO[bytes] | None = None
        self._held: deque[tuple[int, Callable[[], Content], int]] = deque()  # client, its content, bytes in the file
        self._seen: set[int] = set()  # tensors that all have in common count once

    def add(self, client: int, answer: Message, content: Content) -> None:
        size = self._size_of(content)
        if self._file is None and size <= self._left:
            self._left -= size
            self._held.append((client, lambda: content, 0))
        else:
            length = self._spill(encode(answer))
            self._held.append((client, lambda: self._reread(client, length), length))

    def take(self, clients: Iterable[int]) -> Iterator[tuple[int, Content]]:
        """Yield the content of these clients' answers, and release it."""
        wanted = set(clients)
        if self._file is not None:
            self._file.seek(0)
        while self._held:
            client, content, length = self._held.popleft()
            if client in wanted:
                yield client, content()
            elif self._file is not None:
                self._file.seek(length, os.SEEK_CUR)
        if self._file is not None:
            self._file.close()

    def _reread(self, client: int, length: int) -> Content:
        assert self._file is not None
        return self._read(client, decode(self._file.read(length)))

    def _spill(self, data: bytes) -> int:
        try:
            self._file = self._file or tempfile.TemporaryFile()  # noqa: SIM115 - open until all is taken
            return self._file.write(data)
        except OSError as problem:
            raise MachineError(
                f"The answers of a phase take more than memory is used for, and the temporary folder does not take "
                f"them: {problem}. Set TMPDIR to a folder with more room."
            ) from None

    def _size_of(self, content: object) -> int:
        if isinstance(content, Tensor):
            if content.data_ptr() in self._seen:
                return 0
            self._seen.add(content.data_ptr())
            return content.nbytes
        if isinstance(content, Sparse):
            return content.indices.nbytes + content.values.nbytes
        if is_dataclass(content) and not isinstance(content, type):
            return sum(self._size_of(getattr(content, field.name)) for field in fields(content))
        if isinstance(content, Mapping):
            return sum(self._size_of(part) for part in content.values())
        return sum(self._size_of(part) for part in content) if isinstance(content, tuple | list) else 0
