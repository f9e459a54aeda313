"""Packed rows behind one another: prompts of several image sets in one pass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from models.vision_sets import OUTPUTS


def joined(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """One packed row of several; `order` counts on over the records of all.

    Args:
        rows: Of the collator without targets, or with features in the place of pixels.
    """
    first, *others = rows
    if not others:
        return first
    records = 0
    order: list[int] = []
    for row in rows:
        order += [records + number for number in row["order"]]
        records += len(row["order"])
    result: dict[str, Any] = {
        "input_ids": torch.cat([row["input_ids"] for row in rows], dim=1),
        "position_ids": torch.cat([row["position_ids"] for row in rows], dim=2),
        "groups": [group for row in rows for group in row["groups"]],
        "order": order,
    }
    if OUTPUTS in first:
        parts = [row[OUTPUTS]["image"] for row in rows]
        levels = zip(*(part.deepstack_features for part in parts), strict=True)
        result[OUTPUTS] = {
            "image": type(parts[0])(
                pooler_output=tuple(each for part in parts for each in part.pooler_output),
                deepstack_features=[tuple(each for level in same for each in level) for same in levels],
            )
        }
    else:
        for name in ("pixel_values", "image_grid_thw"):
            result[name] = torch.cat([row[name] for row in rows])
    return result
