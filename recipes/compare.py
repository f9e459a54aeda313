"""What differs between two sets of settings, for messages that refuse to continue."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def changes(old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = "") -> list[str]:
    """Lines `section.key: old -> new` for the values in which two nested mappings differ."""
    lines = []
    for key in {**old, **new}:
        before, after = old.get(key), new.get(key)
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            lines += changes(before, after, f"{prefix}{key}.")
        elif before != after:
            lines.append(f"{prefix}{key}: {before!r} -> {after!r}")
    return lines
