"""Attention over packed rows: each segment sees its group's prefix and itself (`collators.packing`).

Chosen implementation: SDPA, twice for each group. The prefix is plain causal attention without a mask, which PyTorch's
flash kernels take; all segments together are a second call on prefix and segments with a mask float[T, N + T], N tokens of
prefix and T of all segments, which all layers share. No mask over all pairs of a row's tokens exists: where T x (N + T) is beyond
`MASK_ELEMENTS`, segments are taken in several calls. A row of separate samples needs no mask at all.

It is registered with transformers as an attention implementation and used by the language model alone; without packed
rows it is its `sdpa`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

if TYPE_CHECKING:
    from transformers import PreTrainedModel

NAME = "shared_prefix"
# Numbers of the largest mask of one call: 32 MiB in 16 bits. A single segment is never cut, so that one of more than
# 2,900 tokens behind a prefix of as many may go beyond it.
MASK_ELEMENTS = 2**24
# Numbers of all masks that are kept.
KEPT_ELEMENTS = 4 * MASK_ELEMENTS
_Mask = tuple[int, tuple[int, ...], torch.dtype, torch.device]
_masks: OrderedDict[_Mask, Tensor] = OrderedDict()


class Reader(Protocol):
    """Attention of a pass that adds to, or reads, keys and values of earlier ones (`infer.engines.group_cache`)."""

    def attend(self, module: nn.Module, query: Tensor, key: Tensor, value: Tensor, **keywords: Any) -> Tensor:
        """Attention of one layer; shapes as in `shared_prefix_attention`."""
        ...


def use_shared_prefix(model: PreTrainedModel) -> None:
    """Lets a model's language part compute packed rows; loading chose `sdpa` (the recipe schema asks for it).

    Args:
        model: The model, adapted or not.
    """
    inner = next(module for module in model.modules() if hasattr(module, "get_rope_index"))
    inner.language_model.set_attn_implementation(NAME)


def shared_prefix_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    groups: Sequence[Sequence[int]] | None = None,
    reader: Reader | None = None,
    **keywords: Any,
) -> tuple[Tensor, None]:
    """Attention of one layer.

    Args:
        module: The attention layer.
        query: float[1, H, L, d].
        key: float[1, K, L, d], K heads of keys and values.
        value: float[1, K, L, d].
        attention_mask: Of rows that are not packed.
        groups: Tokens of each group's prefix and segments, in the order of the row; `None` if it is not packed.
        reader: Computes it in the place of all this, from keys and values that it keeps.
        keywords: For transformers' `sdpa`.

    Returns:
        float[1, L, H, d], and no weights.
    """
    if reader is not None:
        return reader.attend(module, query, key, value, **keywords), None
    if groups is None:
        output: Tensor = sdpa_attention_forward(module, query, key, value, attention_mask, **keywords)[0]
        return output, None

    def attend(first: int, last: int, mask: Tensor | None = None, prefix: slice | None = None) -> Tensor:
        """The tokens from `first` to `last` attend to themselves, causally or as the mask says, and to a prefix."""
        keys, values = key[:, :, first:last], value[:, :, first:last]
        if prefix is not None and prefix.stop == first:
            keys, values = key[:, :, prefix.start : last], value[:, :, prefix.start : last]
        elif prefix is not None:
            keys, values = torch.cat([key[:, :, prefix], keys], 2), torch.cat([value[:, :, prefix], values], 2)
        found: Tensor = sdpa_attention_forward(module, query[:, :, first:last], keys, values, mask, **keywords)[0]
        return found

    outputs: list[Tensor] = []
    start = 0
    for prefix, *segments in groups:
        end = start + prefix
        if len(segments) < 2:
            # One question: nothing is shared, the group is a plain causal row.
            end += sum(segments)
            outputs.append(attend(start, end))
        else:
            if prefix:
                outputs.append(attend(start, end))
            for lengths in _calls(prefix, segments):
                mask = _segment_mask(prefix, lengths, query.dtype, query.device)
                outputs.append(attend(end, end + sum(lengths), mask, slice(start, start + prefix)))
                end += sum(lengths)
        start = end
    return torch.cat(outputs, dim=1), None


def _calls(prefix: int, segments: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Segments that attend in one call, as many as the bound on masks allows."""
    call: list[int] = []
    for length in segments:
        total = sum(call) + length
        if call and total * (prefix + total) > MASK_ELEMENTS:
            yield tuple(call)
            call = []
        call.append(length)
    yield tuple(call)


def _segment_mask(prefix: int, lengths: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """float[1, 1, T, N + T], 0 where a token of a segment may look (the prefix, its own segment up to itself), else -inf.

    Kept for the layers of a pass and its backward pass, the newest up to a bound. In the compute type, since kernels would
    make such a mask out of a truth value themselves, in every layer anew, and autograd would keep each.
    """
    name = (prefix, lengths, dtype, device)
    if name in _masks:
        _masks.move_to_end(name)
        return _masks[name]
    total = sum(lengths)
    # What validation computes could else not be trained on.
    with torch.inference_mode(mode=False):
        mask = torch.full((1, 1, total, prefix + total), -torch.inf, dtype=dtype)
        mask[..., :prefix] = 0
        for first, last in pairwise(accumulate(lengths, initial=0)):
            mask[0, 0, first:last, prefix + first : prefix + last].triu_(1)
        _masks[name] = mask.to(device, non_blocking=True)
    while len(_masks) > 1 and sum(kept.numel() for kept in _masks.values()) > KEPT_ELEMENTS:
        _masks.popitem(last=False)
    return _masks[name]


AttentionInterface.register(NAME, shared_prefix_attention)
AttentionMaskInterface.register(NAME, sdpa_mask)
