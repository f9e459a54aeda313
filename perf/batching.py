"""How far answers depend on the batch they are made in, by number type.

    python -m perf batching RUN_OR_MODEL --data DATASET

Answers the same questions one by one and in batches, in float32 and in bfloat16, on one process. In float32 the texts
must not differ. In 16 bits a sum has other rounding in another shape, so that two tokens which are almost equally
likely may change places; this says how often that happens with these weights, and whether an answer's class or boxes
change with the text. The baseline is the answer given alone in the same type. The last line is JSON.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path

from tqdm import tqdm

from benchmarks.dataset import image_root, read_records
from benchmarks.schema import Record
from collators.sources import FolderImages
from infer.engines.base import Generated
from infer.load import System, load_system
from recipes.errors import UserError

TYPES = ("float32", "bfloat16")


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """What changed between answers given alone and in batches.

    Attributes:
        questions: Questions asked.
        texts: Texts that differ.
        answers: Decoded answers that differ: class, boxes, sentence or validity.
        score: Largest difference of a class's log probability; `None` where no question has such scores in both.
    """

    questions: int
    texts: int
    answers: int
    score: float | None


def run_batching(weights: str, data: Path, *, split: str, recipe: str | None, limit: int, batch: int) -> None:
    """Measures and prints.

    Args:
        weights: Run folder, model folder or hub name.
        data: Prepared dataset.
        split: Split to ask about.
        recipe: Recipe, if there is none beside the weights.
        limit: Only the first N questions.
        batch: Questions per batch.

    Raises:
        UserError: The weights or the dataset cannot be used, or a question failed.
    """
    records = list(islice(read_records(data, split), limit))
    gaps: dict[str, Gap] = {}
    for dtype in TYPES:
        system = load_system(
            weights, recipe_path=recipe, overrides=[f"model.dtype={dtype}", f"decoding.batch_size={batch}"]
        )
        alone, together = (_answers(system, records, data, size, dtype) for size in (1, batch))
        gaps[dtype] = compare(system, records, alone, together)
    print(
        f"{'':<9} {'questions':>9} {'other text':>11} {'other answer':>13} {'largest change of a log probability':>36}"
    )
    for dtype, gap in gaps.items():
        change = "-" if gap.score is None else f"{gap.score:.2e}"
        print(f"{dtype:<9} {gap.questions:>9} {gap.texts:>11} {gap.answers:>13} {change:>36}")
    print(f"answers in batches of {batch} against answers given alone, in the same type")
    print(
        json.dumps(
            {"benchmark": "batching", "batch": batch, "types": {name: asdict(gap) for name, gap in gaps.items()}}
        )
    )


def _answers(system: System, records: Sequence[Record], data: Path, size: int, dtype: str) -> list[Generated]:
    engine = system.engine(FolderImages(image_root(data)))
    answers: list[Generated] = []
    with tqdm(total=len(records), desc=f"{dtype}, {size} at a time", unit="question") as bar:
        for start in range(0, len(records), size):
            block = records[start : start + size]
            answers += engine.generate(block)
            bar.update(len(block))
    failed = [(record, answer) for record, answer in zip(records, answers, strict=True) if answer.text is None]
    if failed:
        record, answer = failed[0]
        raise UserError(
            f"{len(failed)} questions failed in {dtype}; the first: {answer.error}",
            where=f"record {record.id}",
            fix="mend the data, or give other weights",
        )
    return answers


def compare(system: System, records: Sequence[Record], alone: list[Generated], together: list[Generated]) -> Gap:
    """Counts what differs between two answers to each question."""
    texts = answers = 0
    changes: list[float] = []
    for record, first, second in zip(records, alone, together, strict=True):
        texts += first.text != second.text
        decoded = [system.encoder.decode(answer.text or "", record.ask()) for answer in (first, second)]
        answers += decoded[0] != decoded[1]
        # Read after words of the model's own, scores belong to these words: other words, other scores.
        if first.label_scores and second.label_scores and first.text == second.text:
            changes += [abs(first.label_scores[word] - second.label_scores[word]) for word in first.label_scores]
    return Gap(questions=len(records), texts=texts, answers=answers, score=max(changes, default=None))
