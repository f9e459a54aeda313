"""Boxes of location tokens, whole and valid or not at all, during greedy generation.

Where the likeliest token of a row may follow on what the row has written, nothing is changed. Otherwise

* inside a box, only the location tokens are left that can complete it to one that lies on a view, then as many
  mask tokens as the codec's objects have;
* elsewhere, location and mask tokens are ruled out, but for those that begin such a box: the codec must have a
  place for an object there, and the limit on new tokens room for all its codes.

So a text that a target could have, and one without codes, comes out as without this.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from transformers import LogitsProcessor

from benchmarks.canvas import BoolMask
from benchmarks.schema import Ask
from collators.codecs.loc_tokens import LocTokens
from models.paligemma_tokens import LOCATIONS, MASKS

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_NUMBERS = 4


class ValidBoxes(LogitsProcessor):  # type: ignore[misc]
    """The rule for one batch.

    Args:
        codec: How the answers are written.
        tokenizer: PaliGemma's.
        asks: The question of each row.
        width: Tokens of the prompts, which are padded on the left; what follows them is generated.
        max_new_tokens: Limit on an answer.
        end_ids: Tokens that end an answer; rows that hold one are left alone.
    """

    def __init__(
        self,
        codec: LocTokens,
        tokenizer: PreTrainedTokenizerBase,
        asks: Sequence[Ask],
        *,
        width: int,
        max_new_tokens: int,
        end_ids: Sequence[int],
    ) -> None:
        self.codec = codec
        self.tokenizer = tokenizer
        self.asks = asks
        self.width = width
        self.max_new_tokens = max_new_tokens
        self.end_ids = frozenset(end_ids)
        self.ids: list[int] = tokenizer.convert_tokens_to_ids([*LOCATIONS, *MASKS])
        self._number = {token: number for number, token in enumerate(self.ids)}

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """One step: where the likeliest token may not follow, all that may not get minus infinity.

        Args:
            input_ids: Prompts and what is written so far, int64[B, L].
            scores: float[B, V], changed in place: `generate` hands over its own copy, and a row's is a megabyte.
        """
        written = input_ids[:, self.width :]
        likeliest = scores.argmax(dim=1).tolist()
        last = written[:, -1:].flatten().tolist() or [-1] * len(likeliest)
        rows, inside, allowed = [], [], []
        for row, tokens in enumerate(zip(likeliest, last, strict=True)):
            if self._number.keys().isdisjoint(tokens):
                continue
            codes, begun = self._allowed(written[row].tolist(), self.asks[row], tokens[0])
            if codes is not None:
                rows.append(row)
                inside.append(begun)
                allowed.append(codes)
        return self._restrict(scores, rows, inside, allowed) if rows else scores

    def _allowed(self, written: list[int], ask: Ask, likeliest: int) -> tuple[BoolMask | None, bool]:
        """The codes that may follow, bool[1024 + 128], and whether only codes may; `None` if the likeliest token may."""
        if not self.end_ids.isdisjoint(written):
            return None, False
        box = self._box(written)
        number = self._number.get(likeliest)
        if not box and number is None:
            return None, False
        allowed = np.zeros(len(self.ids), dtype=np.bool_)
        if len(box) >= _NUMBERS:
            allowed[len(LOCATIONS) :] = True
        elif box or self._may_begin(written, ask):
            allowed[: len(LOCATIONS)] = self.codec.grammar(ask).allowed(box)
        if number is not None and allowed[number]:
            return None, bool(box)
        return allowed, bool(box)

    def _box(self, written: list[int]) -> tuple[int, ...]:
        """The codes of the box that is not complete yet; empty if there is none."""
        codes: list[int] = []
        for token in reversed(written):
            if token not in self._number:
                break
            codes.append(self._number[token])
        return tuple(reversed(codes)) if len(codes) < self._needed else ()

    def _may_begin(self, written: list[int], ask: Ask) -> bool:
        if self.max_new_tokens - len(written) < self._needed:
            return False
        text = self.tokenizer.decode(written, skip_special_tokens=False, clean_up_tokenization_spaces=False)
        return self.codec.takes_object(text, ask)

    @property
    def _needed(self) -> int:
        return _NUMBERS + self.codec.mask_codes

    def _restrict(self, scores: Tensor, rows: list[int], inside: list[bool], allowed: list[BoolMask]) -> Tensor:
        device = scores.device
        ids, chosen = torch.tensor(self.ids, device=device), torch.tensor(rows, device=device)
        places = (chosen[:, None], ids)
        codes = scores[places].masked_fill(~torch.from_numpy(np.stack(allowed)).to(device), -torch.inf)
        scores[chosen[torch.tensor(inside, device=device)]] = -torch.inf
        scores[places] = codes
        return scores
