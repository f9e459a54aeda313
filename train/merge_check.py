"""Does a merged model answer as the adapter on its base does?

Both are run in float32, so that what differs is the rounding of the merged weights and not that of
activations. Texts are generated greedily; logits are compared along the unmerged model's texts, over
the whole vocabulary. Where all logits agree, texts can only part at a tie, which is counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from tqdm import tqdm
from transformers import GenerationConfig, LogitsProcessor, LogitsProcessorList

from benchmarks.dataset import image_root, load_info, read_records
from benchmarks.errors import DataError
from benchmarks.schema import Record
from collators.sources import FolderImages
from infer.engines.hf import HfEngine
from infer.load import System
from recipes.errors import UserError
from recipes.schema import Recipe

RECORDS = 4
# Largest difference of two logits over the largest logit. float32 only adds in another order; the others
# round every weight by up to 2**-12 and 2**-9 of its size, and some of that adds up over the layers.
TOLERANCE = {"float32": 1e-4, "float16": 1e-2, "bfloat16": 5e-2}
# The adapter is lost where rounding moves the logits by more than this share of what the adapter moves them.
EFFECT_SHARE = 0.5


class MergeError(UserError):
    """A merged model that is not what it was merged from, or that cannot be written."""


@dataclass(frozen=True, slots=True)
class Observed:
    """What a model says on the checked records.

    Attributes:
        texts: Greedy answers, one per record.
        said: Their tokens, without the end token.
        logits: float32[answer tokens + 1, vocabulary] per record, on the CPU, along the unmerged model's answer.
    """

    texts: list[str]
    said: list[tuple[int, ...]]
    logits: list[Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """What was compared and found.

    Attributes:
        dataset: Their dataset, as given.
        records: Ids of the records.
        tolerance: Largest accepted `difference` over `largest_logit`.
        difference: Largest difference of two logits, merged against unmerged.
        largest_logit: Largest logit of the unmerged model, by size.
        effect: Largest difference that the adapter makes to the base's logits.
        ties: Ids of the records whose texts part at a tie.
    """

    dataset: str
    records: list[str]
    tolerance: float
    difference: float
    largest_logit: float
    effect: float
    ties: list[str]


def check_records(recipe: Recipe, data: Path) -> list[Record]:
    """Up to four records, of as many tasks as there are, from the recipe's validation split or the nearest one.

    Raises:
        DataError: No dataset there.
    """
    if not data.is_dir():
        raise DataError(
            f"there is no dataset {data} to check the merged model on", fix="give a prepared dataset with --data"
        )
    counts = load_info(data).counts
    split = next(
        (name for name in (recipe.data.validation, "val", "test", "train") if name in counts), recipe.data.train
    )
    waiting: list[Record] = []
    first: dict[str, Record] = {}
    for record in read_records(data, split):
        if first.setdefault(record.task, record) is not record and len(waiting) < RECORDS:
            waiting.append(record)
    return [*first.values(), *waiting][:RECORDS]


def observe(
    system: System, data: Path, records: Sequence[Record], along: Sequence[tuple[int, ...]] | None = None
) -> Observed:
    """Answers the records and looks at the logits along these answers, or along others.

    Raises:
        MergeError: A record cannot be answered.
    """
    texts, said = _answers(system, data, records)
    return Observed(texts, said, logits_along(system, data, records, said if along is None else along))


def _answers(system: System, data: Path, records: Sequence[Record]) -> tuple[list[str], list[tuple[int, ...]]]:
    # Free texts: under a constraint they may part where no tie of the logits says so.
    engine = HfEngine(
        system.model,
        system.collator(FolderImages(image_root(data))),
        max_new_tokens=system.recipe.decoding.max_new_tokens,
    )
    texts: list[str] = []
    said: list[tuple[int, ...]] = []
    for record in tqdm(records, desc="answering", unit="record"):
        generated = engine.generate([record])[0]
        if generated.text is None:
            raise MergeError(
                f"the model cannot answer: {generated.error}",
                where=f"record {record.id}",
                fix="mend the record's images, or check on another dataset with --data",
            )
        texts.append(generated.text)
        said.append(generated.ids)
    return texts, said


class _Forced(LogitsProcessor):  # type: ignore[misc]
    """Makes `generate` say given tokens and keeps the logits they were chosen against."""

    def __init__(self, ids: list[int]) -> None:
        self.ids = ids
        self.logits: list[Tensor] = []

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:  # noqa: ARG002 - the protocol's arguments
        """Leaves only the next given token possible; scores are float[1, V]."""
        chosen = torch.full_like(scores, float("-inf"))
        chosen[0, self.ids[len(self.logits)]] = 0
        self.logits.append(scores[0].float().cpu())
        return chosen


@torch.inference_mode()
def logits_along(
    system: System, data: Path, records: Sequence[Record], said: Sequence[tuple[int, ...]]
) -> list[Tensor]:
    """Logits while given tokens and the end token after them are said: see `Observed.logits`.

    By way of `generate` and not of one forward pass, for a model may say what stands for an image in a prompt.
    """
    collator = system.collator(FolderImages(image_root(data)))
    model, found = system.model, []
    for record, ids in zip(records, said, strict=True):
        forced = _Forced([*ids, collator.end_id])
        # Held by the model too: `generate` fills gaps from there, and a checkpoint may ask for penalties.
        model.generation_config = GenerationConfig(
            do_sample=False, max_new_tokens=len(forced.ids), eos_token_id=collator.end_id, pad_token_id=collator.pad_id
        )
        inputs = {key: value.to(model.device) for key, value in collator([record]).items()}
        model.generate(**inputs, use_cache=True, logits_processor=LogitsProcessorList([forced]))
        found.append(torch.stack(forced.logits))
    return found


def compare(
    data: Path, records: Sequence[Record], base: Sequence[Tensor], before: Observed, after: Observed, dtype: str
) -> Check:
    """Compares a merged model with the adapter on its base.

    Args:
        data: The records' dataset.
        records: The records.
        base: Logits of the base without the adapter, as in `Observed.logits`.
        before: The adapter on its base.
        after: The merged model.
        dtype: Type of the merged weights; decides the tolerance.

    Raises:
        MergeError: Logits that are not finite or too far apart, the adapter's effect lost in rounding, or another text.
    """
    pairs = list(zip(before.logits, after.logits, strict=True))
    differing = [one != other for one, other in zip(before.texts, after.texts, strict=True)]
    check = Check(
        dataset=str(data),
        records=[record.id for record in records],
        tolerance=TOLERANCE[dtype],
        difference=_largest(new - old for old, new in pairs),
        largest_logit=_largest(before.logits),
        effect=_largest(new - old for old, new in zip(base, before.logits, strict=True)),
        ties=[record.id for record, differs in zip(records, differing, strict=True) if differs],
    )
    wider = "nothing was kept; merge with --dtype float32"
    # Written so that a difference that is not a number fails.
    if not check.difference <= check.tolerance * check.largest_logit:
        raise MergeError(
            f"logits of the merged model are {check.difference:.2e} from the unmerged one's; up to {check.tolerance:.0e} "
            f"of the largest, {check.largest_logit:.1f}, is accepted in {dtype}",
            fix=wider if dtype != "float32" else "nothing was kept; use the adapter as it is and report this",
        )
    if check.difference > EFFECT_SHARE * check.effect:
        raise MergeError(
            f"rounding to {dtype} moves the logits by {check.difference:.2e}, the adapter by {check.effect:.2e}: "
            "what was learnt is lost",
            fix=wider,
        )
    for record, (old, new), differs in zip(records, pairs, differing, strict=True):
        if differs and torch.equal(old.argmax(dim=1), new.argmax(dim=1)):
            raise MergeError(
                "the merged model generates another text although its logits agree",
                where=f"record {record.id}",
                fix="nothing was kept; use the adapter as it is and report this",
            )
    return check


def _largest(tensors: Iterable[Tensor]) -> float:
    """The largest absolute value in several tensors; NaN if any is NaN."""
    return float(torch.stack([tensor.abs().max() for tensor in tensors]).max())
