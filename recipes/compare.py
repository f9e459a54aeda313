"""What differs between two sets of settings, for messages that refuse to continue."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# Where vision features are kept, and how many, changes no bit of a run: a full disk or bound is no reason to start anew.
FREE = ("recipe.vision_cache_dir", "recipe.vision_cache_gib")


def changes(old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = "") -> list[str]:
    """Lines `section.key: old -> new` for the values in which two nested mappings differ, `FREE` ones apart."""
    lines = []
    for key in {**old, **new}:
        before, after = old.get(key), new.get(key)
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            lines += changes(before, after, f"{prefix}{key}.")
        elif before != after and f"{prefix}{key}" not in FREE:
            lines.append(f"{prefix}{key}: {before!r} -> {after!r}")
    return lines
