"""Engine `hf` for questions that share images: the prompt's common part is computed once, all answers are decoded together.

As many questions as `decoding.batch_size` allows are answered at a time. A question that is through leaves the passes at
once, and as soon as there is room the next image set takes its place: no pass computes padding. What is greedy
here is greedy in `generate` too; sums in another order can decide a tie otherwise (`python -m perf infer` counts that).
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from benchmarks.schema import Record
from collators.base import Collator
from collators.packing import image_set
from infer.engines.ahead import Readied, prepared_ahead, ready
from infer.engines.answering import Answering, Question, Unit, Waiting
from infer.engines.base import Generated
from infer.engines.group_cache import Decode, Group, Prefill, Score
from infer.engines.hf import HfEngine
from infer.engines.label_tokens import LabelTokens
from infer.engines.packed_inputs import joined
from models.shared_prefix import use_shared_prefix
from models.vision_sets import KeptInputs

# Prompts of several image sets are computed in one pass up to so many tokens: enough to fill a GPU.
PREFILL_TOKENS = 4096


class SharedPrefixEngine(HfEngine):
    """Generates with a loaded Qwen3-VL.

    Args:
        model: Model in evaluation mode, on its device; its language part computes attention with `sdpa`.
        collator: Collator without targets that packs.
        max_new_tokens: Limit on an answer.
        rows: Questions that are answered at a time.
        workers: Processes that read and prepare the images of blocks announced by `expect`; 0 prepares them here.
    """

    def __init__(
        self, model: PreTrainedModel, collator: Collator, *, max_new_tokens: int, rows: int, workers: int = 0
    ) -> None:
        super().__init__(model, collator, max_new_tokens=max_new_tokens)
        self.rows = rows
        self.workers = workers
        self._ahead: Iterator[Readied] | None = None
        use_shared_prefix(model)

    def expect(self, blocks: Sequence[Sequence[Record]]) -> None:
        """See `LooksAhead.expect`."""
        if self.workers:
            units = [[block[number] for number in unit] for block in blocks for unit in self._units(block)]
            pin = self.model.device.type == "cuda"
            self._ahead = prepared_ahead(self.collator, units, workers=self.workers, pin=pin)

    @torch.inference_mode()
    def generate(self, records: Sequence[Record]) -> list[Generated]:
        """See `Engine.generate`.

        Raises:
            UserError: The device has not enough memory for the block.
            ValueError: Other blocks were announced.
        """
        results: dict[int, Generated] = {}
        waiting = Waiting(self._readied(records, results))
        answering: list[Answering] = []
        with self._memory(records):
            while waiting or answering:
                answering += self._admit(waiting, answering)
                for each in [each for each in answering if not each.live]:
                    answering.remove(each)
                    results |= self._finish(records, each)
                if answering:
                    self._decode(answering)
        return [results[number] for number in range(len(records))]

    def _units(self, records: Sequence[Record]) -> Iterator[list[int]]:
        """Numbers of the records of each image set, at most as many as are answered at a time."""
        sets: dict[Hashable, list[int]] = {}
        for number, record in enumerate(records):
            sets.setdefault(image_set(self.collator.encoder.shown(record)), []).append(number)
        for members in sets.values():
            for start in range(0, len(members), self.rows):
                yield members[start : start + self.rows]

    def _next(self, records: Sequence[Record]) -> Readied:
        """The inputs of the next image set; waits for a worker if there are any."""
        return ready(self.collator, records) if self._ahead is None else next(self._ahead)

    def _readied(self, records: Sequence[Record], results: dict[int, Generated]) -> Iterator[Unit]:
        """The inputs of each image set, prepared ahead or now; records without any get an error row."""
        for members in self._units(records):
            chosen = [records[number] for number in members]
            readied = self._next(chosen)
            if readied.ids != tuple(record.id for record in chosen):
                raise ValueError(f"{chosen[0].id} was not announced: the next would be {readied.ids[0]}")
            results |= {members[place]: Generated(error=error) for place, error in readied.failed.items()}
            if readied.usable:
                yield Unit([members[place] for place in readied.usable], readied.inputs)

    def _admit(self, waiting: Waiting, answering: Sequence[Answering]) -> list[Answering]:
        """Computes the prompts of the next image sets, if there is room for their questions."""
        room = self.rows - sum(len(each.live) for each in answering)
        units: list[Unit] = []
        while waiting and len(waiting.next.numbers) <= room - sum(len(unit.numbers) for unit in units):
            if units and sum(unit.tokens for unit in [*units, waiting.next]) > PREFILL_TOKENS:
                break
            units.append(waiting.take())
        if not units:
            return []
        # Features of kept image sets come from the process that computes.
        encode = self.inputs.encode if isinstance(self.inputs, KeptInputs) else dict
        inputs = joined([encode(unit.inputs) for unit in units])
        return self._prefill(inputs, [number for unit in units for number in unit.numbers])

    def _prefill(self, inputs: dict[str, Any], numbers: Sequence[int]) -> list[Answering]:
        """One packed pass over prompts, which also gives each answer's first token.

        Args:
            inputs: The collator's batch.
            numbers: Of its records.
        """
        layouts, order = inputs.pop("groups"), iter(inputs.pop("order"))
        ids, positions = inputs["input_ids"][0].tolist(), inputs["position_ids"][0, 0].tolist()
        groups = [
            # The black image of a row without images asks nothing.
            Group(layout, self.max_new_tokens, self.model.device) if len(layout) > 1 else None
            for layout in layouts
        ]
        found: list[Answering] = []
        last: list[int] = []
        start = 0
        for group, (prefix, *lengths) in zip(groups, layouts, strict=True):
            end = start + prefix
            if group is None:
                start = end
                continue
            questions = []
            for row, length in enumerate(lengths):
                end += length
                last.append(end - 1)
                number = numbers[next(order)]
                questions.append(Question(number, row, prefix + length, ids[end - 1], positions[end - 1] + 1))
            found.append(Answering(group, questions, list(questions)))
            start = end
        inputs["logits_to_keep"] = torch.tensor([last])
        moved = {
            name: value.to(self.model.device) if isinstance(value, Tensor) else value for name, value in inputs.items()
        }
        logits = self.model(**moved, reader=Prefill(groups, layouts), use_cache=False).logits
        self._take(found, logits[0])
        return found

    def _decode(self, answering: Sequence[Answering]) -> None:
        """One more token for every question that is still being answered."""
        questions = [question for each in answering for question in each.live]
        reader = Decode([(each.group, [question.row for question in each.live]) for each in answering])
        positions = torch.tensor([question.position for question in questions], device=self.model.device)
        for question in questions:
            question.position += 1
        logits = self.model(
            input_ids=torch.tensor([[question.tokens[-1] for question in questions]], device=self.model.device),
            position_ids=positions.expand(3, 1, -1),
            reader=reader,
            use_cache=False,
        ).logits
        reader.advance()
        self._take(answering, logits[0])

    def _take(self, answering: Sequence[Answering], logits: Tensor) -> None:
        """Adds the likeliest token to each answer; logits float[M, V] of the M live questions."""
        finite = torch.isfinite(logits).all(dim=1)
        # One wait for the device a pass.
        tokens, good = torch.stack([logits.argmax(dim=1), finite]).tolist()
        taken = zip(tokens, good, strict=True)
        for each in answering:
            for question, (token, is_finite) in zip(each.live, taken, strict=False):
                question.tokens.append(token)
                question.broken |= not is_finite
            each.live = [
                question
                for question in each.live
                if not question.broken
                and question.tokens[-1] not in self.end_ids
                and len(question.tokens) < self.max_new_tokens
            ]

    def _finish(self, records: Sequence[Record], answered: Answering) -> dict[int, Generated]:
        """Texts and class scores of a group's questions."""
        texts = [self._read(question.tokens, question.prompt_tokens) for question in answered.questions]
        plans = [
            None if question.broken else self._plan(records[question.number], question.tokens, text)
            for question, text in zip(answered.questions, texts, strict=True)
        ]
        scores = self._scores(answered, plans)
        return {
            question.number: Generated(
                error=f"logits are not finite in {self.model.dtype}", prompt_tokens=text.prompt_tokens
            )
            if question.broken or not all(map(math.isfinite, (found or {}).values()))
            else replace(text, label_scores=found, label_scores_at=plan.at if plan else None)
            for question, text, plan, found in zip(answered.questions, texts, plans, scores, strict=True)
        }

    def _scores(self, answered: Answering, plans: Sequence[LabelTokens | None]) -> list[dict[str, float] | None]:
        """Log probability of each class of each planned question, all of a group in one pass.

        A run of tokens is the prompt's last one and the answer up to what closes the class.
        """
        runs = [
            (question, label, plan)
            for question, plan in zip(answered.questions, plans, strict=True)
            if plan is not None
            for label in plan.scored
        ]
        if not runs:
            return [None] * len(plans)
        ids: list[int] = []
        positions: list[int] = []
        keep: list[int] = []
        wanted: list[int] = []
        for question, label, plan in runs:
            run = [question.last, *plan.context, *plan.scored[label]]
            first = len(ids) + len(plan.context)
            keep += range(first, first + len(plan.scored[label]))
            wanted += plan.scored[label]
            start = question.position - len(question.tokens)
            ids += run[:-1]
            positions += range(start, start + len(run) - 1)
        device = self.model.device
        tried = [(question.row, len(plan.context) + len(plan.scored[label])) for question, label, plan in runs]
        logits = (
            self.model(
                input_ids=torch.tensor([ids], device=device),
                position_ids=torch.tensor(positions, device=device).expand(3, 1, -1),
                reader=Score(answered.group, tried),
                logits_to_keep=torch.tensor([keep], device=device),
                use_cache=False,
            )
            .logits[0]
            .float()
        )
        chances = logits.log_softmax(dim=-1).gather(1, torch.tensor(wanted, device=device)[:, None])[:, 0]
        chances = chances.masked_fill(~torch.isfinite(logits).all(dim=-1), torch.nan)
        parts = iter(chances.split([len(plan.scored[label]) for _, label, plan in runs]))
        sums: dict[int, dict[str, float]] = {}
        for question, label, _ in runs:
            sums.setdefault(question.row, {})[label] = float(next(parts).sum())
        return [sums.get(row) for row in range(len(plans))]
