"""Keys and values of image sets with their questions: the prefix once, whatever the number of questions.

A group's tokens stand in one buffer a layer, in the order in which they were computed: the prefix, the questions, then new
tokens of all its answers in turns. Which of them a question may see is a mask, so nothing is copied for a question. A
buffer's room for new tokens doubles when it is full: most answers end long before they may.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from models.shared_prefix import shared_prefix_attention

# New tokens of each question that a buffer has room for at first.
ROOM = 64


class Group:
    """One image set with its R questions.

    Args:
        layout: Tokens of the prefix and of each question.
        new_tokens: Tokens of an answer at most.
        device: Where the model computes.

    Attributes:
        layout: As given.
        prompt: Tokens of prefix and questions.
        used: Tokens that stand in the buffers.
        sees: bool[R, C], which of its C tokens at most each question sees.
    """

    def __init__(self, layout: Sequence[int], new_tokens: int, device: torch.device) -> None:
        self.layout = list(layout)
        prefix, *questions = layout
        self.prompt = self.used = sum(layout)
        self.capacity = self.prompt + len(questions) * new_tokens
        sees = torch.zeros(len(questions), self.capacity, dtype=torch.bool)
        sees[:, :prefix] = True
        for row, (first, last) in enumerate(pairwise(accumulate(questions, initial=prefix))):
            sees[row, first:last] = True
        self.sees = sees.to(device)
        self._buffers: dict[int, tuple[Tensor, Tensor]] = {}

    def write(self, layer: int, first: int, key: Tensor, value: Tensor) -> None:
        """Puts keys and values float[1, K, n, d] of a layer at the places from `first` on."""
        last = first + key.shape[2]
        if layer not in self._buffers or self._buffers[layer][0].shape[2] < last:
            self._enlarge(layer, first, key, value)
        for buffer, new in zip(self._buffers[layer], (key, value), strict=True):
            buffer[:, :, first:last] = new

    def _enlarge(self, layer: int, used: int, key: Tensor, value: Tensor) -> None:
        """Buffers of a layer with more room, which begin with the `used` tokens of those before."""
        room = max(ROOM * len(self.sees), 2 * (used - self.prompt))
        size = min(self.prompt + room, self.capacity)
        larger = tuple(new.new_empty(*new.shape[:2], size, new.shape[3]) for new in (key, value))
        for buffer, old in zip(larger, self._buffers.get(layer, ()), strict=False):
            buffer[:, :, :used] = old[:, :, :used]
        self._buffers[layer] = (larger[0], larger[1])

    def read(self, layer: int, last: int) -> tuple[Tensor, Tensor]:
        """Keys and values float[1, K, last, d] of a layer's first tokens, not copied."""
        keys, values = self._buffers[layer]
        return keys[:, :, :last], values[:, :, :last]


class Prefill:
    """Computes the prompts of groups in one packed row and keeps their keys and values.

    Args:
        groups: In the order of the row; `None` for one that is not kept.
        layouts: Tokens of each group's prefix and questions.
    """

    def __init__(self, groups: Sequence[Group | None], layouts: Sequence[Sequence[int]]) -> None:
        self.groups = groups
        self.layouts = layouts

    def attend(self, module: nn.Module, query: Tensor, key: Tensor, value: Tensor, **keywords: Any) -> Tensor:
        """Attention of one layer: float[1, L, H, d]."""
        start = 0
        for group, layout in zip(self.groups, self.layouts, strict=True):
            end = start + sum(layout)
            if group is not None:
                group.write(_layer(module), 0, key[:, :, start:end], value[:, :, start:end])
            start = end
        return shared_prefix_attention(module, query, key, value, None, groups=self.layouts, **keywords)[0]


class Decode:
    """One new token for each question that is still being answered.

    Args:
        live: Groups with the numbers of such questions, in the order of the tokens.
    """

    def __init__(self, live: Sequence[tuple[Group, Sequence[int]]]) -> None:
        self.live = live
        self.masks: list[Tensor | None] = []
        for group, rows in live:
            places = torch.arange(group.used, group.used + len(rows))
            chosen = torch.tensor(rows)
            group.sees[chosen, places] = True
            # A question that is alone sees all there is.
            alone = len(group.sees) == 1
            self.masks.append(None if alone else group.sees[chosen, : group.used + len(rows)][None, None])

    def attend(self, module: nn.Module, query: Tensor, key: Tensor, value: Tensor, **_: Any) -> Tensor:
        """Attention of one layer: float[1, M, H, d] for M questions."""
        outputs: list[Tensor] = []
        start = 0
        for (group, rows), mask in zip(self.live, self.masks, strict=True):
            end = start + len(rows)
            group.write(_layer(module), group.used, key[:, :, start:end], value[:, :, start:end])
            keys, values = group.read(_layer(module), group.used + len(rows))
            outputs.append(_attention(module, query[:, :, start:end], keys, values, mask))
            start = end
        return torch.cat(outputs, dim=1)

    def advance(self) -> None:
        """To be called after the pass: what it wrote stays."""
        for group, rows in self.live:
            group.used += len(rows)


class Score:
    """Tokens that are tried behind a group's questions and not kept.

    Args:
        group: The group.
        tried: For each run of tokens the number of its question and its length. A run takes the place of the
            question's last token, which is its first.
    """

    def __init__(self, group: Group, tried: Sequence[tuple[int, int]]) -> None:
        self.group = group
        total = sum(length for _, length in tried)
        mask = torch.zeros(total, group.prompt + total, dtype=torch.bool)
        ends = list(accumulate(group.layout))
        prefix = group.layout[0]
        start = 0
        for row, length in tried:
            own = slice(start, start + length)
            mask[own, :prefix] = True
            mask[own, ends[row] : ends[row + 1] - 1] = True
            mask[own, group.prompt + start : group.prompt + start + length] = torch.ones(length, length).tril().bool()
            start += length
        self.mask = mask.to(group.sees.device)[None, None]

    def attend(self, module: nn.Module, query: Tensor, key: Tensor, value: Tensor, **_: Any) -> Tensor:
        """Attention of one layer: float[1, T, H, d] for T tokens in all."""
        keys, values = self.group.read(_layer(module), self.group.prompt)
        return _attention(module, query, torch.cat([keys, key], dim=2), torch.cat([values, value], dim=2), self.mask)


def _layer(module: nn.Module) -> int:
    number: int = module.layer_idx  # type: ignore[assignment]
    return number


def _attention(module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
    """Masked attention float[1, H, n, d] -> float[1, n, H, d], keys and values of K heads never repeated for H.

    Heads that share keys are rows of one query: nothing here depends on the order of rows.
    """
    _, heads, count, width = query.shape
    each = heads // key.shape[1]
    rows = query.reshape(1, key.shape[1], each * count, width)
    scaling: float = module.scaling  # type: ignore[assignment]
    found = functional.scaled_dot_product_attention(
        rows, key, value, attn_mask=None if mask is None else mask.repeat(1, 1, each, 1), scale=scaling
    )
    return found.reshape(1, heads, count, width).transpose(1, 2)
