"""The error that users see, and the one place where a command turns it into text.

Every mistake a user can make raises a `UserError`: what is wrong, where (file, record, field) and
what to do. `run_command` prints it without a traceback and exits with status 2; anything else is a
bug of ours and keeps its traceback.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable


class UserError(Exception):
    """Something the user can mend.

    Args:
        message: What is wrong, with the offending value.
        where: File, row, record and field, as far as they are known.
        fix: What to do about it.
    """

    def __init__(self, message: str, *, where: str = "", fix: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.where = where
        self.fix = fix

    def __str__(self) -> str:
        lines = [self.message]
        if self.where:
            lines.append(f"  where: {self.where}")
        if self.fix:
            lines.append(f"  do:    {self.fix}")
        return "\n".join(lines)


class RecipeError(UserError):
    """A recipe that cannot be used; the message lists every mistake found in it."""


def run_command(main: Callable[[], int]) -> int:
    """Runs a command line's `main`; a `UserError` becomes text on stderr and status 2."""
    try:
        return main()
    except UserError as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        return 2
    except BrokenPipeError:
        # Whoever read our output (head, less) has gone; Python would complain again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except KeyboardInterrupt:
        sys.stderr.write("stopped by the user; finished work is kept, the same command continues\n")
        return 130
