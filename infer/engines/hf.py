"""Engine `hf`: batched greedy generation with transformers, left padded, any device; and the scores of classes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from transformers import GenerationConfig, LogitsProcessor, LogitsProcessorList, PreTrainedModel

from benchmarks.schema import Record
from collators.base import Collator, PromptInputs
from collators.codecs.base import ClosedForm
from collators.codecs.loc_tokens import LocTokens
from infer.engines.ahead import ready
from infer.engines.base import Generated
from infer.engines.label_scores import label_scores
from infer.engines.label_tokens import LabelTokens, label_tokens
from infer.engines.valid_boxes import ValidBoxes
from models.registry import family_module
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
        lockstep: Processes hold the weights together (ZeRO-3): each generates until the last one is through, and
            an unreadable record is an error. Classes are not scored, since the answers decide how many passes
            that takes.
        valid_boxes: Boxes of location tokens are whole and valid, or are not written; see `infer.engines.valid_boxes`.
            The recipe schema allows it with the codecs that have such boxes.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        collator: Collator,
        *,
        max_new_tokens: int,
        lockstep: bool = False,
        valid_boxes: bool = False,
    ) -> None:
        self.model = model
        self.collator = collator
        self.max_new_tokens = max_new_tokens
        self.lockstep = lockstep
        self.valid_boxes = valid_boxes
        # Processes that compute together must not each decide which features they have already.
        family = family_module(model.config.model_type)
        self.inputs: PromptInputs = collator if lockstep else family.prompt_inputs(model, collator)
        # Directly after the prompt the tokens of a class are the same for every question of a task.
        self._constant: dict[ClosedForm, LabelTokens] = {}
        ends = model.generation_config.eos_token_id
        self.end_ids: list[int] = sorted({collator.end_id, *(ends if isinstance(ends, list) else [ends])} - {None})
        self.config = GenerationConfig(
            do_sample=False,
            max_new_tokens=max_new_tokens,
            eos_token_id=self.end_ids,
            pad_token_id=collator.pad_id,
            use_cache=True,
            # With the cache, from which classes are scored.
            return_dict_in_generate=True,
        )
        # A checkpoint's own file may ask for a repetition penalty, and `generate` fills the gaps of what it is
        # given from there: the model must hold ours.
        model.generation_config = self.config

    def generate(self, records: Sequence[Record]) -> list[Generated]:
        """See `Engine.generate`.

        Raises:
            UserError: The device has not enough memory for the block.
            DataError: In lockstep, a record cannot be read: without it the others would wait for ever.
        """
        with self._memory(records):
            usable, results, inputs = self._prepare(records)
        if usable:
            for number, generated in zip(usable, self._batch([records[i] for i in usable], inputs), strict=True):
                results[number] = generated
        return [results[number] for number in range(len(records))]

    def _prepare(self, records: Sequence[Record]) -> tuple[list[int], dict[int, Generated], dict[str, Any]]:
        """Numbers of the records whose inputs can be built, an error row for each other, and the inputs."""
        if self.lockstep:
            return list(range(len(records))), {}, self.inputs(records)
        readied = ready(self.inputs, records)
        failed = {number: Generated(error=error) for number, error in readied.failed.items()}
        return readied.usable, failed, readied.inputs

    @torch.inference_mode()
    def _batch(self, records: Sequence[Record], inputs: dict[str, Any]) -> list[Generated]:
        sizes = inputs["attention_mask"].sum(dim=1).tolist()
        finite = FiniteLogits()
        width = inputs["input_ids"].shape[1]
        with self._memory(records):
            inputs = {
                key: value.to(self.model.device) if isinstance(value, Tensor) else value
                for key, value in inputs.items()
            }
            output = self.model.generate(
                **inputs,
                generation_config=self.config,
                # The second one needs numbers that can be compared.
                logits_processor=LogitsProcessorList([finite, *self._constraints(records, width)]),
                synced_gpus=self.lockstep,
            )
            rows = output.sequences[:, width:].tolist()
            results = [self._read(row, size) for row, size in zip(rows, sizes, strict=True)]
            unscored = self.lockstep or self._beyond_window(output.sequences.shape[1])
            plans = [
                None if unscored or number in finite.broken else self._plan(record, row, results[number])
                for number, (record, row) in enumerate(zip(records, rows, strict=True))
            ]
            scores = label_scores(self.model, inputs, output.cache, plans)
        return [
            Generated(error=f"logits are not finite in {self.model.dtype}", prompt_tokens=result.prompt_tokens)
            if number in finite.broken or not all(map(math.isfinite, (found or {}).values()))
            else replace(result, label_scores=found, label_scores_at=plan.at if plan else None)
            for number, (result, plan, found) in enumerate(zip(results, plans, scores, strict=True))
        ]

    def _beyond_window(self, tokens: int) -> bool:
        """Whether some layer has forgotten tokens, so that its cache cannot be cut back to the prompt for scoring.

        Gemma 2 remembers 4,096 tokens in every other layer: PaliGemma 2 at 896 pixels has more.
        """
        window = getattr(self.model.config.get_text_config(), "sliding_window", None)
        return window is not None and tokens >= window

    def _constraints(self, records: Sequence[Record], width: int) -> list[ValidBoxes]:
        """What restricts the tokens of a batch whose prompts have `width` tokens, if anything does."""
        if not self.valid_boxes:
            return []
        codec = self.collator.encoder.codec
        if not isinstance(codec, LocTokens):
            raise ValueError(f"codec {codec.name} has no boxes of location tokens; the recipe schema refuses it")  # noqa: TRY004
        return [
            ValidBoxes(
                codec,
                self.collator.processor.tokenizer,
                [record.ask() for record in records],
                width=width,
                max_new_tokens=self.max_new_tokens,
                end_ids=self.end_ids,
            )
        ]

    @contextmanager
    def _memory(self, records: Sequence[Record]) -> Iterator[None]:
        """Turns a lack of memory into our error."""
        try:
            yield
        except torch.OutOfMemoryError as error:
            longest = max(length.total for length in self.collator.measure(records))
            raise UserError(
                f"out of memory for {len(records)} questions of up to {longest} tokens + {self.max_new_tokens} new ones",
                where=f"records {records[0].id} to {records[-1].id}",
                fix=f"lower decoding.batch_size, {self.collator.smaller}, or use model.quantization=nf4, and give another "
                "--out (rows finished so far stay in the old folder, which takes no other settings)",
            ) from error

    def _plan(self, record: Record, row: list[int], generated: Generated) -> LabelTokens | None:
        """The tokens that score the record's classes; `None` where question, codec or text have no class."""
        codec, ask, text = self.collator.encoder.codec, record.ask(), generated.text or ""
        form = codec.closed_form(ask)
        if form is None:
            return None
        tokenizer = self.collator.processor.tokenizer
        if form.opening is not None:
            if form not in self._constant:
                self._constant[form] = label_tokens(tokenizer, form, form.opening)
            return self._constant[form]
        offset = codec.class_offset(text, ask)
        return None if offset is None else label_tokens(tokenizer, form, text[:offset], row)

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
            ids=tuple(kept),
        )
