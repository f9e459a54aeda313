"""How the cases of `perf.gpu` are measured, on the device that accelerate finds."""

from __future__ import annotations

import gc
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from transformers import PrinterCallback, TrainerCallback
from transformers.trainer_utils import SaveStrategy

from benchmarks.schema import Record
from collators.base import Length
from collators.encoder import build_encoder
from collators.packing import image_set
from collators.qwen3_vl import Qwen3VLCollator
from infer.engines.local import local_engine
from models.costs import family_costs
from models.processes import process_state
from models.registry import family_module
from models.shared_prefix import NAME
from perf.gpu_cases import WARM_STEPS, GpuCase
from perf.gpu_inputs import Processor, Slices, volume_records
from perf.gpu_models import DRY, RELEASED, build_config, build_model
from perf.gpu_peaks import utilisation
from perf.phase_hooks import PHASES, time_engine, time_trainer
from perf.phases import REST, PhaseClock, added
from recipes.schema import Recipe
from train.arguments import training_arguments
from train.cuts import Sample
from train.loader import Inputs, StepBatches, StepLoader, batches
from train.loss import summed_loss
from train.plan import Plan
from train.trainer import GroundedTrainer

if TYPE_CHECKING:
    from transformers import PreTrainedModel

VOLUMES = 2  # that are asked about, behind one that warms up
PIXELS, DRY_PIXELS = 320, 32  # 100 tokens, one token


class Lab:
    """Holds the model of the last case, for the next one.

    Args:
        dry: Small shapes, slices of one token and as many as a case of 50 has tens.
    """

    def __init__(self, *, dry: bool) -> None:
        self.dry = dry
        self.device: torch.device = process_state().device
        self.processor: Any = None
        self._built: tuple[str, str] | None = None
        self._model: PreTrainedModel | None = None
        self._texts: dict[GpuCase, list[tuple[int, ...]]] = {}

    @property
    def name(self) -> str:
        """Of the device."""
        return torch.cuda.get_device_name(self.device) if self._on_gpu else self.device.type

    @property
    def _on_gpu(self) -> bool:
        return self.device.type == "cuda"

    def measure(self, case: GpuCase) -> dict[str, Any]:
        """Measures a case.

        Raises:
            MeasurementError: It cannot be measured here.
            UserError: Memory ran out.
        """
        recipe = case.recipe()
        self.processor = Processor()  # anew, for clocks stay on it
        model = self._model_of(case, recipe)
        gc.collect()  # a Trainer and its optimiser refer to themselves
        if self._on_gpu:
            torch.cuda.reset_peak_memory_stats(self.device)
        work = {"equal": self._compare, "train": self._train, "answer": self._answer}[case.work]
        found = work(case, recipe, model)
        if self._on_gpu:
            found["peak_gib"] = torch.cuda.max_memory_allocated(self.device) / 2**30
        return found

    def drop(self) -> None:
        """Forgets the model, as after a failure."""
        self._built = self._model = None
        gc.collect()
        if self._on_gpu:
            torch.cuda.empty_cache()

    def _model_of(self, case: GpuCase, recipe: Recipe) -> PreTrainedModel:
        if self._model is None or self._built != (case.size, case.kind):
            self.drop()
            config = build_config((DRY if self.dry else RELEASED)[case.size], self.processor.tokenizer)
            longest = max(self._collator(recipe).measure(self._records(case, 1)), key=lambda length: length.total)
            self._model = build_model(config, recipe, self.device, longest)
            self._built = (case.size, case.kind)
        _attend(self._model, shared=case.share)
        return self._model

    def _records(self, case: GpuCase, volumes: int) -> list[Record]:
        slices = -(-case.slices // 10) if self.dry else case.slices
        return volume_records(volumes, slices=slices, pixels=DRY_PIXELS if self.dry else PIXELS)

    def _collator(self, recipe: Recipe) -> Qwen3VLCollator:
        encoder = build_encoder(recipe, self.processor)
        return Qwen3VLCollator(encoder, self.processor, Slices(), targets=True, share_images=recipe.batch.share_images)

    def _train(self, case: GpuCase, recipe: Recipe, model: PreTrainedModel) -> dict[str, Any]:
        records, collator = self._records(case, 1), self._collator(recipe)
        steps = SameStep(recipe, records, collator, pin=self._on_gpu)
        clock = PhaseClock(self.device)
        with tempfile.TemporaryDirectory() as folder:
            arguments = training_arguments(recipe, Path(folder), steps=steps.total, quiet=True)
            arguments.save_strategy = SaveStrategy.NO
            trainer = GroundedTrainer(recipe, model.train(), steps, validate=None, args=arguments)
            trainer.remove_callback(PrinterCallback)
            trainer.add_callback(_Spare(recipe, model))
            hooks = time_trainer(clock, trainer)
            trainer.train()
            trainer.accelerator.unwrap_model(model, keep_fp32_wrapper=False)
        for hook in hooks:
            hook.remove()
        laps = clock.laps()[1 + WARM_STEPS :]
        seconds = statistics.median(sum(lap.values()) for lap in laps)
        lengths = collator.measure(records)
        phases = added(laps)
        return {
            "seconds": seconds,
            "questions_per_second": len(records) / seconds,
            "tokens_per_second": steps.tokens / seconds,
            "flops": (flops := step_flops(model, recipe, lengths)),
            "utilisation": utilisation(flops, seconds, self.name),
            "phases": {phase: phases[phase] / len(laps) for phase in (*PHASES, REST) if phase in phases},
        }

    def _answer(self, case: GpuCase, recipe: Recipe, model: PreTrainedModel) -> dict[str, Any]:
        records = self._records(case, 1 + VOLUMES)
        group = len(records) // (1 + VOLUMES)
        encoder = build_encoder(recipe, self.processor)
        engine = local_engine(recipe, model.eval(), encoder, self.processor, Slices())
        engine.end_ids = []  # answers end at the limit alone
        engine.config.eos_token_id = None
        clock = PhaseClock(self.device)
        hooks = time_engine(clock, engine)
        texts: list[tuple[int, ...]] = []
        for start in range(0, len(records), group):
            clock.lap()
            found = engine.generate(records[start : start + group])
            texts += [each.ids for each in found]
        clock.lap()
        for hook in hooks:
            hook.remove()
        self._texts[case] = texts
        laps = clock.laps()[2:]
        seconds, phases = sum(sum(lap.values()) for lap in laps), added(laps)
        other = next((self._texts[each] for each in self._texts if _twins(each, case)), None)
        return {
            "seconds": seconds / VOLUMES,
            "questions_per_second": VOLUMES * group / seconds,
            "tokens_per_second": sum(map(len, texts[group:])) / seconds,
            "phases": {phase: phases[phase] / VOLUMES for phase in (*PHASES, REST) if phase in phases},
            "other_texts": None if other is None else sum(a != b for a, b in zip(texts, other, strict=True)),
            "texts": len(texts),
        }

    def _compare(self, case: GpuCase, recipe: Recipe, model: PreTrainedModel) -> dict[str, Any]:
        """The loss of a step and its gradients, shared and separate."""
        records = self._records(case, 1)
        model.train()
        found: list[tuple[float, Tensor]] = []
        for share in (False, True):
            batch = recipe.batch.model_copy(
                update={"share_images": share, "size": 5 if share else 1, "accumulation": 1 if share else 5}
            )
            changed = recipe.model_copy(update={"batch": batch})
            steps = SameStep(changed, records, self._collator(changed), pin=False)
            found.append(self._gradients(changed, model, next(iter(steps))))
        (separate, apart), (shared, together) = found
        norm = float(apart.norm())
        return {
            "loss_separate": separate,
            "loss_shared": shared,
            "loss_difference": abs(shared - separate) / abs(separate),
            "gradient_difference": float((together - apart).norm()) / norm if norm else None,
        }

    def _gradients(self, recipe: Recipe, model: PreTrainedModel, step: StepBatches) -> tuple[float, Tensor]:
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        total = 0.0
        for batch in step.batches:
            moved = {
                name: value.to(self.device) if isinstance(value, Tensor) else value for name, value in batch.items()
            }
            targets, weights = moved.pop("targets"), moved.pop("weights")
            half = recipe.train.precision == "bf16"
            with torch.autocast(self.device.type, torch.bfloat16, enabled=half):
                loss = summed_loss(model(**moved).logits, targets, weights) / step.items
            loss.backward()  # type: ignore[no-untyped-call]
            total += loss.item()
        gradients = [parameter.grad.float().flatten() for parameter in trained if parameter.grad is not None]
        model.zero_grad()
        return total, torch.cat(gradients)


class SameStep(StepLoader):
    """One step, collated once and repeated: what is measured is the device, not the reading of images.

    Args:
        recipe: The run.
        records: The questions of the step.
        collator: Collator with targets.
        pin: See `train.loader.batches`.

    Attributes:
        tokens: That the passes of the step compute.
    """

    def __init__(self, recipe: Recipe, records: Sequence[Record], collator: Qwen3VLCollator, *, pin: bool) -> None:
        samples = [
            Sample(tokens=length.total, target=length.target, images=image_set(record), prefix=length.prefix)
            for record, length in zip(records, collator.measure(records), strict=True)
        ]
        plan = Plan(samples, recipe.batch, seed=0, processes=1, packed=collator.packs)
        steps = recipe.train.max_steps
        assert steps is not None, "the recipe counts steps"
        super().__init__(plan, records, collator, rank=0, first=0, total=steps, pin=pin)
        step = next(plan.steps(0, 1))
        self._items = step.items
        self._kept: list[Inputs] = list(batches(records, collator, iter(step.parts[0]), plan.batch, pin=pin))
        self.tokens = sum(batch["input_ids"].numel() for batch in self._kept)

    def __iter__(self) -> Iterator[StepBatches]:
        for _ in range(self.total):
            yield StepBatches(iter(self._kept), len(self._kept), self._items)


class _Spare(TrainerCallback):  # type: ignore[misc]
    """As `python -m train` does at the start; see `models.layout.Layout.spare_tower`."""

    def __init__(self, recipe: Recipe, model: PreTrainedModel) -> None:
        self.recipe = recipe
        self.model = model

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        family_module(self.recipe.model.family).spare_tower(self.model)


def step_flops(model: PreTrainedModel, recipe: Recipe, lengths: Sequence[Length]) -> int:
    """Operations that the questions of a step ask for, forward and backward (`models.costs`).

    What questions share is counted once where they are computed together; what checkpointing repeats is left out.
    """
    train = recipe.train.model_copy(update={"gradient_checkpointing": False})
    plain = recipe.model_copy(update={"train": train})
    costs = family_costs(recipe.model.family)

    def of(length: Length) -> int:
        found: int = costs.flops(model.config, plain, length)
        return found

    total = sum(map(of, lengths))
    if not recipe.batch.share_images:
        return total
    first = lengths[0]
    prefix = Length(first.prefix - first.images, first.images, 0, first.pictures, first.prefix)
    return total - (len(lengths) - 1) * of(prefix)


def _attend(model: PreTrainedModel, *, shared: bool) -> None:
    """Attention as a run with or without shared images has it."""
    inner: Any = next(module for module in model.modules() if hasattr(module, "get_rope_index"))
    inner.language_model.set_attn_implementation(NAME if shared else "sdpa")


def _twins(a: GpuCase, b: GpuCase) -> bool:
    return a.share != b.share and (a.size, a.kind, a.slices) == (b.size, b.kind, b.slices)
