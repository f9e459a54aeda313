"""Packing: questions about the same images in one row, the images and all else that they begin with written once.

A row is a run of groups, a group one prefix and its segments:

    prefix (system turn, images, what the prompts have in common) | question 1, answer 1 | question 2, answer 2 | ...

A segment sees the prefix and itself, and its positions go on from the end of the prefix, as if it stood there alone.
`models.shared_prefix` computes attention so; everything else in a language model looks at one token at a time.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from benchmarks.schema import Record
from collators.base import IGNORE


def image_set(record: Record) -> Hashable:
    """What two records must share to be packed behind one prefix; a record without images shares with none.

    Args:
        record: With the images that the model is shown.
    """
    return record.images or record.id


def common_prefix(rows: Sequence[Sequence[int]]) -> int:
    """Number of tokens that all rows begin with, at most one less than the shortest has.

    The last token of a prompt is never shared: from it the first token of the answer is predicted.
    """
    shortest = min(rows, key=len)
    length = len(shortest) - 1
    for row in rows:
        length = next((i for i in range(length) if row[i] != shortest[i]), length)
    return length


@dataclass(slots=True)
class PackedRow:
    """One row that is being filled.

    Attributes:
        ids: Tokens.
        labels: Supervised tokens, -100 elsewhere.
        positions: int64[3, n] of each run of tokens: time, height, width.
        owners: Number of the sample of each supervised token.
        groups: Tokens of each group's prefix and of its segments.
        order: Number of the sample of each segment.
    """

    ids: list[int] = field(default_factory=list)
    labels: list[int] = field(default_factory=list)
    positions: list[Tensor] = field(default_factory=list)
    owners: list[int] = field(default_factory=list)
    groups: list[list[int]] = field(default_factory=list)
    order: list[int] = field(default_factory=list)

    def begin(self, prefix: Sequence[int], positions: Tensor) -> None:
        """Begins a group.

        Args:
            prefix: Its tokens, image tokens repeated.
            positions: int64[3, n] of them.
        """
        self.ids += prefix
        self.labels += [IGNORE] * len(prefix)
        self.positions.append(positions)
        self.groups.append([len(prefix)])

    def add(self, prompt: Sequence[int], target: Sequence[int], *, start: int, owner: int) -> None:
        """Adds a segment to the last group.

        Args:
            prompt: What its prompt has beyond the prefix, one token at least where there is a target.
            target: Tokens to learn; empty to generate.
            start: Position of its first token.
            owner: Number of the sample.
        """
        length = len(prompt) + len(target)
        self.ids += [*prompt, *target]
        self.labels += [*[IGNORE] * len(prompt), *target]
        self.positions.append(torch.arange(start, start + length).expand(3, -1))
        self.owners += [owner] * len(target)
        self.groups[-1].append(length)
        self.order.append(owner)

    def prompts(self) -> dict[str, Any]:
        """The row to generate from; see `collators.qwen3_vl.Qwen3VLCollator`."""
        return {**self._inputs(), "order": self.order}

    def samples(self) -> dict[str, Any]:
        """The row to learn from; see `collators.qwen3_vl.Qwen3VLCollator`."""
        labels = torch.tensor([self.labels])
        return {
            **self._inputs(),
            "labels": labels,
            # Places and not a mask: to count the places of a mask, a GPU would have to be waited for.
            "logits_to_keep": (labels[:, 1:] != IGNORE).nonzero()[None, :, 1],
            "owners": torch.tensor(self.owners, dtype=torch.long),
        }

    def _inputs(self) -> dict[str, Any]:
        return {
            "input_ids": torch.tensor([self.ids]),
            "position_ids": torch.cat(self.positions, dim=1)[:, None],
            "groups": self.groups,
        }


def rope_positions(ids: Sequence[int], image_id: int, grids: Sequence[tuple[int, int]]) -> tuple[Tensor, int]:
    """Positions of Qwen3-VL's interleaved rotary embedding, on three axes: time, height, width.

    Text counts on equally on all three; an image of `h x w` tokens takes `max(h, w)` positions, its tokens count rows on
    the second and columns on the third. Source: `Qwen3VLModel.get_rope_index` of transformers (5.24), which needs the
    model and waits for the device once an image.

    Args:
        ids: Tokens, image tokens repeated.
        image_id: The image token.
        grids: Height and width of each image in tokens, in order.

    Returns:
        int64[3, n], and the position that follows.
    """
    runs: list[Tensor] = []
    place = position = 0
    waiting = iter(grids)
    while place < len(ids):
        if ids[place] == image_id:
            height, width = next(waiting)
            rows, columns = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
            runs.append(position + torch.stack([torch.zeros_like(rows), rows, columns]).reshape(3, -1))
            place, position = place + height * width, position + max(height, width)
        else:
            end = next((i for i in range(place, len(ids)) if ids[i] == image_id), len(ids))
            runs.append(torch.arange(position, position + end - place).expand(3, -1))
            place, position = end, position + end - place
    return torch.cat(runs, dim=1) if runs else torch.zeros(3, 0, dtype=torch.long), position
