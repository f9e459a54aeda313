"""Errors about data: releases, records, images and prediction files."""

from __future__ import annotations

from collections.abc import Sequence

from recipes.errors import UserError

SHOWN_FAULTS = 20


class DataError(UserError):
    """Data that is not what the schema or the benchmark promises."""


def fault_list(faults: Sequence[DataError], limit: int | None = None) -> str:
    """Writes faults one below the other, at most `limit` of them, and says how many there are."""
    shown = [str(fault) for fault in faults[:limit]]
    if len(shown) < len(faults):
        shown.append(f"... and {len(faults) - len(shown)} more")
    count = "1 fault" if len(faults) == 1 else f"{len(faults)} faults"
    return "\n".join([*shown, count])
