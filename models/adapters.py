"""What PEFT needs around it."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quiet_peft() -> Iterator[None]:
    """Hides one deprecation: peft 0.21 asks models for `is_gradient_checkpointing`, the name before transformers 5.24.

    Remove it when peft says `is_activation_checkpointing`.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="`is_gradient_checkpointing` is deprecated", category=FutureWarning)
        yield
