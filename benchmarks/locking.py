"""One writer per output folder."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.errors import DataError

LOCK = ".lock"


@contextmanager
def locked(folder: Path, *, needed: bool, fix: str = "wait for it, stop it, or give another --out") -> Iterator[None]:
    """Holds a folder's lock, so that two runs cannot write it; only the main process of a run needs it.

    Args:
        folder: The folder; made if it does not exist.
        needed: Whether this process needs the lock.
        fix: What to do if another process holds it.

    Raises:
        DataError: Another process holds it.
    """
    if not needed:
        yield
        return
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOCK).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise DataError(f"another process is writing {folder}", fix=fix) from error
        yield
