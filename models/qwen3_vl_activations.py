"""Bytes that autograd keeps of a forward pass through Qwen3-VL, from the model's shape.

Our own count of the tensors of transformers' implementation; `tests/train/test_activations.py` holds it to what
`torch.autograd.graph.saved_tensors_hooks` and PyTorch's memory profiler see. Left out is what is small beside a hidden
state per token: rotary tables, inverse deviations of norms, softmax sums, masks of one byte.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from models.costs import Activations, MicroBatch, Numerics
from models.qwen3_vl_shape import Shape, trained_groups
from recipes.schema import Adapter, FreezeGroup, Recipe

if TYPE_CHECKING:
    from transformers import Qwen3VLConfig

# log-softmax, the gradient of the loss and that of the logits, all float32 and alive at once.
LOGIT_BYTES = 12
# Gradients and casts of the inner width inside one block's backward pass: two float32 tensors or their like, measured.
FLIGHT_BYTES = 8
PIXEL_BYTES = 4
INPUT_BYTES = 4 * 8  # ids, mask, types and labels of a token, int64


def activations(config: Qwen3VLConfig, recipe: Recipe, batch: MicroBatch, numerics: Numerics) -> Activations:
    """Bytes of activations at the peak of one forward and backward pass.

    Without checkpointing every block keeps its tensors; with it each keeps its input, and one block at a time is
    recomputed.
    """
    shape = Shape.of(config)
    hidden, layers = shape.text.hidden_size, shape.text.num_hidden_layers
    patches = batch.images * shape.patches_per_token
    block = _language_block(shape, recipe, batch, numerics)
    flight = batch.tokens * shape.text.intermediate_size * FLIGHT_BYTES
    kept = block
    if recipe.train.gradient_checkpointing:
        kept = batch.tokens * hidden * numerics.residual
        flight += block
    # The norm before the head, then the head's input.
    last = batch.tokens * hidden * (4 + numerics.residual * ("language" in trained_groups(recipe)))
    head = batch.supervised * hidden * numerics.compute
    vision, vision_flight = _vision(shape, recipe, batch, numerics)
    return Activations(
        inputs=patches * shape.patch_pixels * PIXEL_BYTES + batch.tokens * INPUT_BYTES,
        vision=vision,
        language=layers * kept + last + head,
        logits=batch.supervised * shape.text.vocab_size * LOGIT_BYTES,
        block=max(flight, vision_flight),
    )


def _vision(shape: Shape, recipe: Recipe, batch: MicroBatch, numerics: Numerics) -> tuple[int, int]:
    """Bytes that tower and mergers keep, and those in flight in one block's backward pass."""
    trained = trained_groups(recipe)
    patches = batch.images * shape.patches_per_token
    mergers = _mergers(shape, trained, patches, numerics)
    if "vision" not in trained:
        return mergers, 0
    block = _vision_block(shape, recipe, batch, numerics)
    flight = patches * shape.vision.intermediate_size * FLIGHT_BYTES
    kept = block
    if recipe.train.gradient_checkpointing:
        kept = patches * shape.vision.hidden_size * numerics.compute
        flight += block
    pixels = patches * shape.patch_pixels * numerics.compute if numerics.autocast else 0
    return shape.vision.depth * kept + mergers + pixels, flight


def _language_block(shape: Shape, recipe: Recipe, batch: MicroBatch, numerics: Numerics) -> int:
    """Bytes that one language block keeps.

    Per token, for hidden width h, query and key widths q and k, inner width i, compute and residual types of a and
    r bytes: two norms keep their input in float32 (4h each), those of queries and keys too (4q + 4k); attention
    keeps its operands and its result; the gated unit keeps three tensors of a*i. Trained weights add what they were
    multiplied with; under autocast that is one cast copy per matrix.
    """
    hidden, query, inner = shape.text.hidden_size, shape.query, shape.text.intermediate_size
    compute, residual = numerics.compute, numerics.residual
    eager = recipe.model.attention == "eager"
    # The other kernels repeat keys and values by themselves, and need no mask if nothing is padded.
    masked = recipe.model.attention == "sdpa" and batch.samples > 1
    key = query if eager or masked else shape.key
    # 4-bit layers hand their result back in the type of their input.
    unit = residual if recipe.model.quantization == "nf4" else compute
    per_token = 8 * hidden + 4 * (query + shape.key) + compute * (2 * query + 2 * key) + unit * 3 * inner
    if "language" in trained_groups(recipe):
        products = 5 if numerics.autocast else 2
        per_token += 2 * residual * hidden + compute * (products * hidden + query + shape.key + inner)
    if recipe.adapter.kind == "lora":
        per_token += _adapters(shape, recipe.adapter, numerics)
    pairs = batch.samples * batch.width**2
    total = batch.tokens * per_token
    if masked:
        total += pairs * compute
    if eager:
        total += pairs * shape.text.num_attention_heads * _score_bytes(numerics)
    return int(total)


def _score_bytes(numerics: Numerics) -> int:
    """Eager attention keeps the softmax in float32, and the copy in the compute type that values are weighted with."""
    return 4 if numerics.compute == 4 else 4 + numerics.compute


def _adapters(shape: Shape, adapter: Adapter, numerics: Numerics) -> int:
    """Bytes per token that LoRA adds to a block.

    Each adapted layer keeps its input after dropout and the rank-wide product; the inputs are shared between layers
    only if neither dropout nor a cast makes a copy.
    """
    hidden, query, inner = shape.text.hidden_size, shape.query, shape.text.intermediate_size
    widths = {"attention": (hidden, hidden, hidden, query), "mlp": (hidden, hidden, inner)}
    # Attention's result is kept anyway.
    shared = {"attention": hidden, "mlp": hidden + inner}
    # Under autocast adapters, and so what dropout sees, are float32.
    mask = (4 if numerics.autocast else numerics.compute) if numerics.on_cpu else 1
    mask = mask if adapter.dropout else 0
    own = numerics.autocast or adapter.dropout > 0
    total = 0
    for role in adapter.roles:
        total += numerics.compute * (adapter.rank * len(widths[role]) + (sum(widths[role]) if own else shared[role]))
        total += mask * sum(widths[role])
    return total


def _vision_block(shape: Shape, recipe: Recipe, batch: MicroBatch, numerics: Numerics) -> int:
    """Bytes that one trained vision block keeps.

    Per patch, for width w and inner width i: the inputs of two norms; the inputs of four matrices; queries and keys
    after rotation, the product they came from with the values in it, and attention's result.
    """
    width, inner = shape.vision.hidden_size, shape.vision.intermediate_size
    patches = batch.images * shape.patches_per_token
    total = patches * (2 * _norm_bytes(numerics) * width + numerics.compute * (9 * width + 2 * inner))
    if recipe.model.attention == "eager":
        # All images are taken to be of the same size.
        pairs = patches**2 // (batch.samples * batch.pictures)
        total += pairs * shape.vision.num_heads * _score_bytes(numerics)
    return int(total)


def _norm_bytes(numerics: Numerics) -> int:
    """Layer norm runs in float32 under CUDA's autocast, in the compute type otherwise."""
    return 4 if numerics.autocast and not numerics.on_cpu else numerics.compute


def _mergers(shape: Shape, trained: frozenset[FreezeGroup], patches: int, numerics: Numerics) -> int:
    """Bytes that the mergers keep: norm and activation inputs, and the inputs of their matrices if trained."""
    if not trained & {"vision", "projector"}:
        return 0
    products = 3 if "projector" in trained else 1
    return int(
        shape.mergers * patches * shape.vision.hidden_size * (_norm_bytes(numerics) + products * numerics.compute)
    )
