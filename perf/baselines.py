"""What others do with the same job: a loop of transformers and PEFT, TRL's `SFTTrainer`, and `generate` in batches.

Each is written as its documentation shows it, with what the job asks for and nothing more. Pictures are opened and
prepared for every question anew.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from PIL import Image as PILImage
from torch import Tensor
from transformers import AutoModelForImageTextToText, AutoProcessor, GenerationConfig, PrinterCallback

from models.adapters import quiet_peft
from perf.rows import Row, read_rows
from perf.stopwatch import NEW_TOKENS, Job, Stopwatch, import_rest

if TYPE_CHECKING:
    from peft import PeftModel
    from transformers import PreTrainedModel, ProcessorMixin

END = "<|im_end|>"
PROJECTIONS = r".*\.language_model\..*\.(q_proj|k_proj|v_proj|o_proj|gate_proj|up_proj|down_proj)"
SEED = 0


def train_plain(job: Job, *, watch: type[Stopwatch] = Stopwatch) -> dict[str, Any]:
    """A plain loop: one question a pass, five passes a step, the model's own loss over logits at every position.

    Args:
        job: The job.
        watch: Takes time and memory.

    Returns:
        The figures of `Stopwatch` and the loss of each step.
    """
    model, processor = load(job)
    model = adapt(model)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-3, weight_decay=0.0)
    model.train()
    started = watch()
    losses = []
    for rows in _batches(read_rows(job.data, job.task, job.questions), job.step):
        batches = [with_labels(job, processor, row) for row in rows]
        tokens = sum((batch["labels"] != -100).sum() for batch in batches)
        total = 0.0
        for batch in batches:
            loss = model(**batch, num_items_in_batch=tokens, use_cache=False).loss
            loss.backward()
            total += loss.item()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(total)
    return {**started.figures(job.questions), "losses": losses}


def train_trl(job: Job, *, watch: type[Stopwatch] = Stopwatch) -> dict[str, Any]:
    """TRL's `SFTTrainer` on prompts and completions with pictures, for which it masks the prompt.

    The texts are those of the chat template, given as texts: of messages TRL would learn the line break after the end
    token too. Its defaults for memory and 16 bits, checkpointing of activations and bfloat16, are off as on all sides.

    Args:
        job: The job.
        watch: Takes time and memory.

    Returns:
        The figures of `Stopwatch` and the loss of each step.
    """
    from datasets import Dataset, Image, List
    from trl import SFTConfig, SFTTrainer

    import_rest()
    model, processor = load(job)
    model = adapt(model)
    with tempfile.TemporaryDirectory() as name:
        started = watch()
        rows = [
            {
                "images": [str(job.data / path) for path in row.images],
                "prompt": _prompt(processor, row),
                "completion": row.answer + END,
            }
            for row in read_rows(job.data, job.task, job.questions)
        ]
        config = SFTConfig(
            output_dir=name,
            use_cpu=True,
            bf16=False,
            activation_checkpointing=False,
            max_length=None,
            per_device_train_batch_size=1,
            gradient_accumulation_steps=job.step,
            num_train_epochs=1,
            train_sampling_strategy="sequential",
            learning_rate=1e-3,
            lr_scheduler_type="constant",
            weight_decay=0.0,
            max_grad_norm=1.0,
            logging_steps=1,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            seed=SEED,
        )
        trainer = SFTTrainer(
            model,
            config,
            train_dataset=Dataset.from_list(rows).cast_column("images", List(Image())),
            processing_class=processor,
        )
        trainer.remove_callback(PrinterCallback)
        trainer.train()
        figures = started.figures(job.questions)
    return {**figures, "losses": [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]}


def answer_plain(job: Job, batch: int) -> dict[str, Any]:
    """`generate` on batches padded on the left.

    Args:
        job: The job.
        batch: Questions of a batch.

    Returns:
        The figures of `Stopwatch`, and `answers`: the new tokens of each question.
    """
    model, processor = load(job)
    processor.tokenizer.padding_side = "left"
    # The answers end at the limit alone; what the model's own settings say of ends would fill a gap here.
    config = GenerationConfig(
        do_sample=False, max_new_tokens=NEW_TOKENS, pad_token_id=processor.tokenizer.pad_token_id, use_cache=True
    )
    model.generation_config = config
    model.eval()
    watch = Stopwatch()
    answers: list[list[int]] = []
    for rows in _batches(read_rows(job.data, job.task, job.questions), batch):
        inputs = processor(
            text=[_prompt(processor, row) for row in rows],
            images=[_pictures(job, row) for row in rows],
            padding=True,
            return_tensors="pt",
        )
        with torch.inference_mode():
            tokens = model.generate(**inputs, generation_config=config)
        answers += tokens[:, inputs["input_ids"].shape[1] :].tolist()
    return {**watch.figures(job.questions), "answers": answers}


def load(job: Job) -> tuple[PreTrainedModel, ProcessorMixin]:
    """Model and processor, the weights in memory."""
    model = AutoModelForImageTextToText.from_pretrained(job.model, dtype=torch.float32)
    for parameter in model.parameters():
        parameter.sum()  # weights may be mapped from their file
    return model, AutoProcessor.from_pretrained(job.model)


def adapt(model: PreTrainedModel) -> PeftModel:
    """The model with the job's adapter, whose random half is that of our side."""
    from peft import LoraConfig, get_peft_model

    config = LoraConfig(
        r=8, lora_alpha=16, lora_dropout=0.0, bias="none", target_modules=PROJECTIONS, task_type="CAUSAL_LM"
    )
    torch.manual_seed(SEED)
    with quiet_peft():
        return get_peft_model(model, config)


def _batches(rows: Sequence[Row], size: int) -> list[list[Row]]:
    return [list(rows[start : start + size]) for start in range(0, len(rows), size)]


def _prompt(processor: ProcessorMixin, row: Row) -> str:
    """The question as the processor's chat template writes it, up to where the answer begins."""
    content = [*({"type": "image"} for _ in row.images), {"type": "text", "text": row.question}]
    text: str = processor.apply_chat_template(
        [{"role": "user", "content": content}], tokenize=False, add_generation_prompt=True
    )
    return text


def _pictures(job: Job, row: Row) -> list[PILImage.Image]:
    return [PILImage.open(job.data / path).convert("RGB") for path in row.images]


def with_labels(job: Job, processor: ProcessorMixin, row: Row) -> dict[str, Tensor]:
    """A question with its answer, and labels on the answer and its end; its pictures are opened and prepared.

    Returns:
        The model's inputs with `labels` int64[1, L], -100 outside the target.
    """
    target = row.answer + END
    inputs = processor(text=[_prompt(processor, row) + target], images=_pictures(job, row), return_tensors="pt")
    labels = inputs["input_ids"].clone()
    labels[:, : -len(processor.tokenizer(target)["input_ids"])] = -100
    return {**inputs, "labels": labels}
