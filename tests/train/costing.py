"""A small Qwen3-VL with grouped heads, made-up batches for it; for every family memory meters and estimates."""

from __future__ import annotations

import weakref
from contextlib import nullcontext

import torch
from torch.profiler import ProfilerActivity, profile
from transformers import AutoModelForImageTextToText, Qwen3VLConfig

from collators.base import Length
from models.costs import MicroBatch, family_costs
from models.registry import family_module
from train.loss import summed_loss, supervision
from train.memory import Launch, numerics, read_weights, state_parts

IMAGE, TEXT, ANSWER = 5, 20, 30
SUPERVISED = 4


def small_config(*, vocabulary=2000, tied=True):
    return Qwen3VLConfig(
        architectures=["Qwen3VLForConditionalGeneration"],
        text_config={
            "vocab_size": vocabulary,
            "hidden_size": 128,
            "intermediate_size": 384,
            "num_hidden_layers": 3,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 32,
            "tie_word_embeddings": tied,
            "pad_token_id": 0,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 5_000_000,
                "mrope_interleaved": True,
                "mrope_section": [8, 4, 4],
            },
        },
        vision_config={
            "depth": 3,
            "hidden_size": 64,
            "intermediate_size": 256,
            "num_heads": 2,
            "out_hidden_size": 128,
            "deepstack_visual_indexes": [0],
            "num_position_embeddings": 256,
        },
        image_token_id=IMAGE,
        video_token_id=6,
        vision_start_token_id=7,
        vision_end_token_id=8,
        tie_word_embeddings=tied,
    )


def mixed_batch(counts, grid, *, text):
    """As `made_up_batch`, with so many images in each sample and so many other tokens; and the samples' lengths."""
    tokens = grid[0] * grid[1] // 4
    lengths = [Length(text - SUPERVISED, count * tokens, SUPERVISED, count) for count in counts]
    width = max(length.total for length in lengths)
    ids = torch.full((len(counts), width), TEXT)
    mask = torch.ones_like(ids)
    labels = torch.full_like(ids, -100)
    for row, (count, length) in enumerate(zip(counts, lengths, strict=True)):
        # Neighbouring images need a token between them to count as two.
        for number in range(count):
            start = 1 + number * (tokens + 1)
            ids[row, start : start + tokens] = IMAGE
        mask[row, length.total :] = 0
        labels[row, length.total - SUPERVISED : length.total] = ANSWER
    batch = _with_images(ids, mask, labels, images=sum(counts), grid=grid)
    return batch, labels, lengths


def _with_images(ids, mask, labels, *, images, grid):
    return {
        "input_ids": ids,
        "attention_mask": mask,
        "mm_token_type_ids": (ids == IMAGE).long(),
        "pixel_values": torch.randn(images * grid[0] * grid[1], 1536),
        "image_grid_thw": torch.tensor([[1, *grid]] * images),
        "logits_to_keep": torch.cat([labels[:, 1:] != -100, torch.zeros(len(ids), 1, dtype=torch.bool)], dim=1),
    }


def trainable_model(config, recipe):
    """The recipe's model with random weights, in the types that training gives them."""
    family = family_module(recipe.model.family)
    attention_of = getattr(family, "attention_of", lambda model, _: model.attention)
    model = AutoModelForImageTextToText.from_config(
        config, attn_implementation=attention_of(recipe.model, config), dtype=getattr(torch, recipe.model.dtype)
    )
    model.config.use_cache = False
    family.freeze(model, recipe.freeze)
    model = family.adapt(model, recipe.adapter, seed=0)
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.data = parameter.data.float()
    if recipe.train.gradient_checkpointing:
        model.activation_checkpointing_enable()
        family.spare_tower(model)
    return model.train()


def cast_bytes(model, recipe):
    parts = {part.name: part.bytes for part in state_parts(read_weights(model, recipe), recipe, Launch())}
    return parts.get("weights cast for products", 0)


def stored_bytes(model):
    """Bytes of all weights, those in 4 bits with their scales."""
    total = 0
    for parameter in model.parameters():
        total += parameter.nbytes
        state = getattr(parameter, "quant_state", None)
        if state is not None:
            total += state.absmax.nbytes + state.state2.absmax.nbytes
    return total


def estimated(model, recipe, shape):
    costs = family_costs(recipe.model.family)
    return costs.activations(model.config, recipe, shape, numerics(recipe, Launch(), on_cpu=True))


def made_up_batch(samples, width, grid):
    """A padded batch with one image of `grid` patches (rows, columns) per sample, and its shape."""
    tokens = grid[0] * grid[1] // 4
    ids = torch.full((samples, width), TEXT)
    ids[:, 2 : 2 + tokens] = IMAGE
    labels = torch.full_like(ids, -100)
    labels[:, -SUPERVISED - 2 : -2] = ANSWER
    mask = torch.ones_like(ids)
    mask[0, -2:] = 0
    batch = _with_images(ids, mask, labels, images=samples, grid=grid)
    shape = MicroBatch(
        samples=samples,
        width=width,
        images=samples * tokens,
        supervised=samples * SUPERVISED,
        image_pairs=samples * tokens**2,
    )
    return batch, labels, shape


def forward(model, batch, *, autocast):
    with torch.autocast("cpu", dtype=torch.bfloat16) if autocast else nullcontext():
        return model(**batch)


def step(model, batch, labels, *, autocast):
    """Forward and backward pass; gradients are added to those that are there."""
    outputs = forward(model, batch, autocast=autocast)
    targets, _ = supervision(labels)
    loss = summed_loss(outputs.logits, targets, torch.ones(len(targets))) / len(targets)
    del outputs
    loss.backward()


class _Held:
    def __init__(self, tensor):
        self.tensor = tensor


def saved_bytes(model, batch, *, autocast):
    """Bytes of all tensors that autograd keeps after a forward pass, and of the inputs; weights left out."""
    held = weakref.WeakSet()

    def pack(tensor):
        item = _Held(tensor)
        held.add(item)
        return item

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda item: item.tensor):
        outputs = forward(model, batch, autocast=autocast)
    given = [value for value in batch.values() if isinstance(value, torch.Tensor)]
    storages = [tensor.untyped_storage() for tensor in [*(item.tensor for item in held), *given]]
    sizes = {storage.data_ptr(): storage.nbytes() for storage in storages}
    for parameter in model.parameters():
        sizes.pop(parameter.untyped_storage().data_ptr(), None)
    del outputs
    return sum(sizes.values())


def peak_bytes(function):
    """Most bytes that a call had allocated at once, seen by PyTorch's profiler."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        function()
    events = [event for event in profiled.profiler.kineto_results.events() if event.name() == "[memory]"]
    now = peak = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        now += event.nbytes()
        peak = max(peak, now)
    return peak
