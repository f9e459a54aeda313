"""Engine `hf`: batched greedy generation with transformers, left padded, any device."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from transformers import GenerationConfig, LogitsProcessor, LogitsProcessorList, PreTrainedModel

from benchmarks.errors import DataError
from benchmarks.schema import Record
from collators.qwen3_vl import Qwen3VLCollator
from infer.engines.base import Generated
from recipes.errors import UserError


class FiniteLogits(LogitsProcessor):  # type: ignore[misc]
    """Remembers the rows whose logits were not finite; their text would be noise, not an answer."""

    def __init__(self) -> None:
        self.broken: set[int] = set()

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:  # noqa: ARG002 - the protocol's arguments
        """Checks one step; scores float[B, V] are returned unchanged."""
        bad = ~torch.isfinite(scores).all(dim=1)
        if bad.any():
            self.broken |= set(bad.nonzero().flatten().tolist())
            scores = torch.nan_to_num(scores)
        return scores


class HfEngine:
    """Generates with a loaded model.

    Args:
        model: Model in evaluation mode, on its device.
        collator: Collator without targets.
        max_new_tokens: Limit on an answer.
    """

    def __init__(self, model: PreTrainedModel, collator: Qwen3VLCollator, *, max_new_tokens: int) -> None:
        self.model = model
        self.collator = collator
        self.max_new_tokens = max_new_tokens
        ends = model.generation_config.eos_token_id
        self.end_ids: list[int] = sorted({collator.end_id, *(ends if isinstance(ends, list) else [ends])} - {None})
        self.config = GenerationConfig(
            do_sample=False,
            max_new_tokens=max_new_tokens,
            eos_token_id=self.end_ids,
            pad_token_id=collator.pad_id,
            use_cache=True,
        )
        # A checkpoint's own file may ask for a repetition penalty, and `generate` fills the gaps of what it is
        # given from there: the model must hold ours.
        model.generation_config = self.config

    def generate(self, records: Sequence[Record]) -> list[Generated]:
        """See `Engine.generate`.

        Raises:
            UserError: The device has not enough memory for the block.
        """
        usable, results, inputs = self._prepare(records)
        if usable:
            for number, generated in zip(usable, self._batch([records[i] for i in usable], inputs), strict=True):
                results[number] = generated
        return [results[number] for number in range(len(records))]

    def _prepare(self, records: Sequence[Record]) -> tuple[list[int], dict[int, Generated], dict[str, Tensor]]:
        """Numbers of the records whose inputs can be built, an error row for each other, and the inputs."""
        try:
            return list(range(len(records))), {}, self.collator(records)
        except DataError:
            pass  # at least one record is bad: find which, one by one
        usable: list[int] = []
        failed: dict[int, Generated] = {}
        for number, record in enumerate(records):
            try:
                self.collator([record])
            except DataError as error:
                failed[number] = Generated(error=str(error))
            else:
                usable.append(number)
        return usable, failed, self.collator([records[number] for number in usable]) if usable else {}

    @torch.inference_mode()
    def _batch(self, records: Sequence[Record], inputs: dict[str, Tensor]) -> list[Generated]:
        sizes = inputs["attention_mask"].sum(dim=1).tolist()
        finite = FiniteLogits()
        try:
            inputs = {key: value.to(self.model.device) for key, value in inputs.items()}
            output = self.model.generate(
                **inputs, generation_config=self.config, logits_processor=LogitsProcessorList([finite])
            )
        except torch.OutOfMemoryError as error:
            raise UserError(
                f"out of memory for {len(records)} questions of up to {max(sizes)} tokens + {self.max_new_tokens} new ones",
                where=f"records {records[0].id} to {records[-1].id}",
                fix="lower decoding.batch_size or images.max_pixels, or use model.quantization=nf4, and give another "
                "--out (rows finished so far stay in the old folder, which takes no other settings)",
            ) from error
        prompt = inputs["input_ids"].shape[1]
        rows = output[:, prompt:].tolist()
        return [
            Generated(error=f"logits are not finite in {self.model.dtype}", prompt_tokens=size)
            if number in finite.broken
            else self._read(row, size)
            for number, (row, size) in enumerate(zip(rows, sizes, strict=True))
        ]

    def _read(self, row: list[int], prompt_tokens: int) -> Generated:
        """Cuts a row at its first end token; what follows it is padding."""
        end = next((position for position, token in enumerate(row) if token in self.end_ids), None)
        kept = row if end is None else row[:end]
        return Generated(
            text=self.collator.processor.tokenizer.decode(
                kept, skip_special_tokens=False, clean_up_tokenization_spaces=False
            ),
            finish="length" if end is None else "stop",
            prompt_tokens=prompt_tokens,
            new_tokens=len(kept) + (end is not None),
        )
