"""How much memory a file may take: counted before anything in it is decompressed."""

import contextlib
import os
from pathlib import Path

from irleed._io.npz import printable
from irleed.errors import DataError

EXPANSION = 100.0  # times its own size that a file may take; real recordings stay below 50
ALWAYS = 1 << 28  # bytes that any file may take
EPISODE = 1000  # bytes that an episode takes besides its arrays, while a data set is put together


class Budget:
    """Bytes that the arrays of one file, or of the files of one folder, may take in memory.

    A reader calls `admit` for every file it opens, and `take` with the size that an array claims before it allocates
    or decompresses it.
    """

    def __init__(self, expansion: float = EXPANSION) -> None:
        self.expansion, self._size, self._taken = expansion, 0, 0

    def admit(self, path: str | os.PathLike[str]) -> None:
        """Allow for one more file; one that is not there is for its reader to refuse."""
        with contextlib.suppress(OSError, ValueError):
            self._size += Path(path).stat().st_size

    @property
    def left(self) -> int:
        """Bytes that may still be taken."""
        return max(ALWAYS, int(self.expansion * self._size)) - self._taken

    def take(self, where: str | os.PathLike[str], size: int) -> None:
        """Count so many bytes; refuse them if they are more than are left."""
        if size > self.left:
            got = f"{size + self._taken:,} bytes in memory from {self._size:,} on disk"
            expected = f"at most {self.left + self._taken:,}"
            remedy = "do not trust this file; if you do, raise the limit with --expansion"
            raise DataError(printable(where), got=got, expected=expected, remedy=remedy)
        self._taken += size
