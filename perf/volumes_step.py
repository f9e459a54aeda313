"""A few training steps and one answer on volumes, on one side; `perf.volumes` starts it in a process of its own."""

from __future__ import annotations

import itertools
import json
import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from PIL import Image as PILImage
from torch.profiler import ProfilerActivity, profile

from benchmarks.dataset import image_root, read_records, write_dataset
from benchmarks.schema import Answer, Box, Image, Record, Source, Split
from collators.base import IGNORE
from collators.sources import FolderImages
from infer.engines.hf import HfEngine
from models.registry import family_collator
from perf.paligemma_step import Clock, our_trainer
from perf.volumes import VolumeSize
from recipes.load import load_recipe
from recipes.schema import Recipe
from train.device_memory import PeakMemory
from train.loss import summed_loss, supervision
from train.prepare import Prepared, prepare

QUESTION = "Where does this volume show a mass?"
TARGET = '{"answer":"In the middle.","bboxes":[{"frame":,"label":"Mass","bbox":[]}]}'


def run_side(side: str, size: VolumeSize, folder: Path) -> None:
    """Measures one side and prints the result as JSON."""
    print(json.dumps(measure_side(side, size, folder)))


def measure_side(side: str, size: VolumeSize, folder: Path) -> dict[str, Any]:
    """Asks a question, then trains, on volumes of `size.slices` slices of `size.pixels` pixels.

    Args:
        side: `ours` or `stock`.
        size: What is trained and asked.
        folder: Holds datasets and model.

    Returns:
        Median seconds of a step and those of the answer, peaks of the process in MiB above the loaded model, that of
        the tensors of one more forward and backward pass, the losses of the steps, the answer's tokens, and the number
        of tokens of the longest sample.
    """
    prepared = prepare(volume_recipe(size, folder), say=lambda line: None)  # noqa: ARG005
    model = prepared.model
    for parameter in model.parameters():
        parameter.sum()  # weights may be mapped from their file: reading them brings them into memory
    (record,) = read_records(Path(prepared.recipe.data.dataset), "test")
    if side == "ours":
        answer, train, one_pass = _our_answer, _our_losses, _our_pass
    else:
        answer, train, one_pass = _stock_answer, _stock_losses, _stock_pass
    peak = PeakMemory()
    start = time.perf_counter()
    answered = answer(prepared, record)
    answer_seconds, answer_mib = time.perf_counter() - start, peak.measured() / 1024**2
    seconds, losses = train(prepared, folder)
    step_mib = peak.measured() / 1024**2
    return {
        "step_seconds": statistics.median(seconds),
        "step_mib": step_mib,
        "tensor_mib": _tensor_mib(prepared, one_pass),
        "answer_seconds": answer_seconds,
        "answer_mib": answer_mib,
        "losses": losses,
        "answer": list(answered),
        "tokens": max(length.total for length in prepared.train.lengths),
    }


def volume_recipe(size: VolumeSize, folder: Path) -> Recipe:
    """The demo's recipe on the given model and volumes, for a few steps of full fine-tuning as SGMRI-VQA's run had it."""
    return load_recipe(
        "demo/lora",
        [
            f"data={{dataset: {_dataset(folder, size.slices, size.pixels)}, validation: null}}",
            f"model.checkpoint={folder / 'model'}",
            "prompt.template=sgmri_short",
            "codec=sgmri_answer_first",
            "adapter={kind: full}",
            "freeze=[vision, projector]",
            "batch={size: 1, workers: 0}",
            f"train.max_steps={size.steps}",
            "train.learning_rate=1.0e-3",
            "train.schedule=constant",
            "train.min_learning_rate_ratio=0",
            "train.warmup_steps=0",
            "train.log_steps=1",
            f"decoding.max_new_tokens={size.answer}",
        ],
    )


def write_volumes(folder: Path, *, slices: int, pixels: int, steps: int) -> None:
    """Writes a dataset of as many questions as steps and one to answer, each about a volume of noise of its own."""
    data = _dataset(folder, slices, pixels)
    records = [
        *(_record(data, f"v{number}", "train", slices, pixels) for number in range(steps)),
        _record(data, "asked", "test", slices, pixels),
    ]
    write_dataset(
        data, records, name="volumes", benchmark="sgmri", reader="perf@1", image_root=data / "slices", sources={}
    )


def _dataset(folder: Path, slices: int, pixels: int) -> Path:
    return folder / f"data-{slices}-{pixels}"


def _record(data: Path, name: str, split: Split, slices: int, pixels: int) -> Record:
    rng = random.Random(name)
    images = []
    for frame in range(1, slices + 1):
        path = data / "slices" / name / f"{frame:03d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        PILImage.frombytes("L", (pixels, pixels), rng.randbytes(pixels**2)).save(path, compress_level=0)
        images.append(Image(path=f"{name}/{path.name}", width=pixels, height=pixels, frame=frame))
    return Record(
        id=name,
        benchmark="sgmri",
        split=split,
        task="volume_localization",
        group=name,
        images=tuple(images),
        question=QUESTION,
        answer_type="open_ended",
        target=Answer(
            text="In the middle.", boxes=(Box(image=slices // 2, xyxy=(1, 2, rng.randint(9, 30), 20), label="Mass"),)
        ),
        source=Source(id=name, file="none", row=1),
    )


def _images(prepared: Prepared) -> FolderImages:
    return FolderImages(image_root(Path(prepared.recipe.data.dataset)))


def _our_answer(prepared: Prepared, record: Record) -> Sequence[int]:
    recipe = prepared.recipe
    collator = family_collator(recipe.model.family)(
        prepared.encoder, prepared.processor, _images(prepared), targets=False
    )
    engine = HfEngine(prepared.model.eval(), collator, max_new_tokens=recipe.decoding.max_new_tokens)
    return engine.generate([record])[0].ids


def _our_losses(prepared: Prepared, folder: Path) -> tuple[list[float], list[float]]:
    clock = Clock()
    trainer = our_trainer(prepared, folder, clock)
    trainer.train()
    return clock.seconds, [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


def _stock_inputs(prepared: Prepared, record: Record, target: str) -> dict[str, Any]:
    """Text and slices as `Qwen3VLProcessor` turns them into inputs."""
    processor, images = prepared.processor, _images(prepared)
    text = processor.apply_chat_template(
        prepared.encoder.messages(record.ask()), tokenize=False, add_generation_prompt=True
    )
    opened = [images(image, record.place) for image in record.images]
    inputs: dict[str, Any] = processor(text=[text + target], images=opened, return_tensors="pt")
    return inputs


def _stock_answer(prepared: Prepared, record: Record) -> Sequence[int]:
    inputs = _stock_inputs(prepared, record, "")
    limit = prepared.recipe.decoding.max_new_tokens
    with torch.inference_mode():
        tokens = prepared.model.eval().generate(**inputs, do_sample=False, max_new_tokens=limit)
    new: list[int] = tokens[0, inputs["input_ids"].shape[1] :].tolist()
    end = prepared.processor.tokenizer.eos_token_id
    return new[: new.index(end)] if end in new else new


def _stock_losses(prepared: Prepared, folder: Path) -> tuple[list[float], list[float]]:  # noqa: ARG001 - as ours
    """A plain loop: the model's own loss over all logits, AdamW, gradients clipped as in the recipe."""
    model, settings = prepared.model.train(), prepared.recipe.train
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(
        trained, settings.learning_rate, betas=settings.betas, eps=settings.epsilon, weight_decay=settings.weight_decay
    )
    ends, losses = [], []
    for record in _in_order(prepared):
        loss = model(**_stock_batch(prepared, record), use_cache=False).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, settings.clip_norm)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        ends.append(time.perf_counter())
    return [end - start for start, end in itertools.pairwise(ends)], losses


def _in_order(prepared: Prepared) -> Iterator[Record]:
    """The records of the run's steps."""
    for step in prepared.schedule.steps(0, prepared.steps):
        for position in step.parts[0][0].samples:
            yield prepared.train.records[position]


def _stock_batch(prepared: Prepared, record: Record) -> dict[str, Any]:
    """A record with its target, and labels on the target."""
    target = f"{prepared.encoder.target_text(record)}<|im_end|>"
    inputs = _stock_inputs(prepared, record, target)
    count = len(prepared.processor.tokenizer(target, add_special_tokens=False)["input_ids"])
    labels = inputs["input_ids"].clone()
    labels[:, :-count] = IGNORE
    return {**inputs, "labels": labels}


def _our_pass(prepared: Prepared, record: Record) -> Callable[[], None]:
    batch = prepared.collator([record])
    targets, _ = supervision(batch.pop("labels"))

    def forward_and_backward() -> None:
        logits = prepared.model(**batch).logits
        summed_loss(logits, targets, torch.ones(len(targets))).backward()  # type: ignore[no-untyped-call]

    return forward_and_backward


def _stock_pass(prepared: Prepared, record: Record) -> Callable[[], None]:
    batch = _stock_batch(prepared, record)
    return lambda: prepared.model(**batch, use_cache=False).loss.backward()


def _tensor_mib(prepared: Prepared, make: Callable[[Prepared, Record], Callable[[], None]]) -> float:
    """Most MiB of tensors that a pass has at once beside model, gradients and inputs, as PyTorch's profiler counts them."""
    one_pass = make(prepared, next(_in_order(prepared)))
    prepared.model.train()
    one_pass()  # gradients are there from now on
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        one_pass()
    events = [event for event in profiled.profiler.kineto_results.events() if event.name() == "[memory]"]
    changes: list[int] = [event.nbytes() for event in sorted(events, key=lambda event: event.start_ns())]
    return max(itertools.accumulate(changes)) / 1024**2
