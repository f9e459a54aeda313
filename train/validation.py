"""Validation during training: the loss over a split, and generated answers scored by the benchmark."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from accelerate.utils import send_to_device
from torch import nn

from benchmarks.dataset import image_root, load_info, read_records
from benchmarks.errors import DataError
from benchmarks.predictions import PREDICTIONS, Manifest, Prediction, read_manifest, read_predictions
from benchmarks.schema import Record
from collators.sources import FolderImages
from eval.run import LoadedRun, join
from eval.selection import select
from infer.engines.local import local_engine, prediction_blocks
from infer.predict import Job, predict
from models.processes import process_state
from models.vision_cache import VisionCache
from recipes.errors import RecipeError
from train.cuts import cut_step
from train.device_memory import current_launch
from train.loader import batches
from train.loss import summed_loss
from train.prepare import Prepared
from train.trainer import Validate

if TYPE_CHECKING:
    from accelerate import Accelerator
    from transformers import PreTrainedModel

FOLDER = "validation"


def validation_loss(prepared: Prepared, model: nn.Module, accelerator: Accelerator) -> float:
    """The recipe's loss over the whole validation split, each sample once whatever the number of processes.

    Class weights are left out: they are a means of training, not what is wanted.
    """
    split, recipe = prepared.validation, prepared.recipe
    assert split is not None
    samples = [replace(sample, weight=1.0) for sample in split.samples]
    step = cut_step(
        range(len(samples)),
        samples,
        recipe.batch,
        processes=accelerator.num_processes,
        packed=prepared.collator.packs,
    )
    stream = batches(
        split.records,
        prepared.collator,
        iter(step.parts[accelerator.process_index]),
        recipe.batch,
        pin=accelerator.device.type == "cuda",
    )
    total = torch.zeros((), device=accelerator.device)
    model.eval()
    with torch.no_grad():
        for batch in stream:
            moved = send_to_device(batch, accelerator.device)
            targets, weights = moved.pop("targets"), moved.pop("weights")
            total += summed_loss(model(**moved).logits, targets, weights)
    return float(accelerator.reduce(total, reduction="sum")) / step.items


class GenerativeValidation:
    """Answers validation questions with the model as it is and scores them like a finished run.

    Args:
        prepared: The run.
        out: Run folder; predictions go to `out/validation/step-N`.
    """

    def __init__(self, prepared: Prepared, out: Path) -> None:
        recipe = prepared.recipe
        assert recipe.data.validation is not None
        self.prepared = prepared
        self.out = out / FOLDER
        self.data = Path(recipe.data.dataset)
        self.split = recipe.data.validation
        self.info = load_info(self.data)
        if recipe.selection.profile == "published" and self.info.benchmark != "scintiground":
            raise RecipeError(
                f"there is no published rule to choose checkpoints of the benchmark {self.info.benchmark}",
                where="selection.profile",
                fix="set selection.profile: corrected",
            )
        self.records = subset(list(read_records(self.data, self.split)), recipe.selection.limit)
        self._check_defined()

    def __call__(self, model: PreTrainedModel, step: int) -> dict[str, float]:
        """Returns `eval_score` and the headline metrics.

        Raises:
            DataError: The score is not defined on these records.
        """
        folder = self.out / f"step-{step:06d}"
        state = process_state()
        if state.is_main_process:
            shutil.rmtree(folder, ignore_errors=True)  # an interrupted run's, made with weights that are gone
        state.wait_for_everyone()
        self._predict(model, folder, step)
        recipe = self.prepared.recipe
        predictions = join(self.records, read_predictions(folder), where=folder / PREDICTIONS)
        score, metrics = select(self._run(folder, read_manifest(folder), predictions), recipe.selection.profile)
        if score is None:
            raise self._undefined()
        return {"eval_score": score, **{f"eval_{name}": value for name, value in metrics.items()}}

    def _check_defined(self) -> None:
        """Scores the right answers: what is not defined for them never is, and is better known before the first step.

        Raises:
            DataError: The records do not define the selection score.
        """
        recipe = self.prepared.recipe
        perfect = tuple(
            Prediction(id=record.id, text=self.prepared.encoder.target_text(record), answer=record.target)
            for record in self.records
        )
        run = self._run(self.out, self._manifest(0, 0.0), perfect)
        if select(run, recipe.selection.profile)[0] is None:
            raise self._undefined()

    def _undefined(self) -> DataError:
        counts = Counter(f"{record.task} {record.target.label or ''}".strip() for record in self.records)
        return DataError(
            f"the selection score of {len(self.records)} validation records is not defined, a class or a task has no "
            f"record among them: {', '.join(f'{name} {count}' for name, count in sorted(counts.items()))}",
            where=f"{self.data}, split {self.split}",
            fix="raise selection.limit or add such records, or set selection.by: loss",
        )

    def _predict(self, model: PreTrainedModel, folder: Path, step: int) -> None:
        prepared = self.prepared
        cache, configured = model.config.use_cache, model.generation_config
        launch = current_launch()
        whole = not launch.cuts_weights
        model.eval()
        try:
            job = Job(
                records=self.records,
                decode=prepared.encoder.decode,
                out=folder,
                blocks=prediction_blocks(self.records, prepared.recipe, prepared.encoder, whole=whole),
                settings={"step": step},
                lockstep=launch.sharding == "zero3",
            )
            predict(
                job,
                lambda: local_engine(
                    prepared.recipe,
                    model,
                    prepared.encoder,
                    prepared.processor,
                    FolderImages(image_root(self.data)),
                    kept=self._kept(),
                    whole=whole,
                    lockstep=launch.sharding == "zero3",
                ),
                lambda seconds, _: self._manifest(step, seconds),
            )
        finally:
            model.config.use_cache, model.generation_config = cache, configured

    def _kept(self) -> VisionCache | None:
        """The run's vision cache; generation computes features without the training's autocast."""
        kept = self.prepared.kept
        if kept is None or kept.space.precision == "weights":
            return kept
        return kept.computing(f"{kept.space.precision}, generating")

    def _manifest(self, step: int, seconds: float) -> Manifest:
        recipe = self.prepared.recipe
        return Manifest(
            name=f"{recipe.name} step {step}",
            dataset=str(self.data),
            dataset_hash=self.info.content_hash,
            split=self.split,
            records=len(self.records),
            engine="hf",
            codec=recipe.codec,
            encoder_fingerprint=self.prepared.encoder.fingerprint,
            recipe=recipe.model_dump(mode="json"),
            timing={"seconds": round(seconds, 2)},
        )

    def _run(self, folder: Path, manifest: Manifest, predictions: tuple[Prediction, ...]) -> LoadedRun:
        """Predictions of the validation records as the scorers take them."""
        return LoadedRun(
            name=manifest.name,
            folder=folder,
            data=self.data,
            manifest=manifest,
            info=self.info,
            records=tuple(self.records),
            predictions=predictions,
        )


def validation(prepared: Prepared, out: Path) -> Validate | None:
    """What the Trainer calls to validate: the loss, and the score if the recipe selects by it."""
    if prepared.validation is None:
        return None
    generative = GenerativeValidation(prepared, out) if prepared.recipe.selection.by == "score" else None

    def validate(model: nn.Module, accelerator: Accelerator, step: int) -> dict[str, float]:
        metrics = {"eval_loss": validation_loss(prepared, model, accelerator)}
        if generative is not None:
            metrics |= generative(accelerator.unwrap_model(model), step)
        return metrics

    return validate


def subset(records: Sequence[Record], limit: int | None) -> list[Record]:
    """About `limit` records, whole patients or volumes in a fixed random order, in dataset order; `None` takes all."""
    if limit is None or limit >= len(records):
        return list(records)
    groups: dict[str, int] = {}
    for record in records:
        groups[record.group] = groups.get(record.group, 0) + 1
    names = sorted(groups)
    random.Random("validation subset").shuffle(names)
    chosen: set[str] = set()
    taken = 0
    for name in names:
        if taken >= limit:
            break
        chosen.add(name)
        taken += groups[name]
    return [record for record in records if record.group in chosen]
