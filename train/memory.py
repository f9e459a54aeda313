"""Weights, gradients and optimiser states in bytes per process, for each way of sharing them out.

    what                  one process, DDP       ZeRO-2           ZeRO-3           FSDP
    weights               whole                  whole            1/W              1/W
    float32 copies        are the weights        trained, 1/W     trained, 1/W     are the weights
    gradients             float32                compute, 1/W     compute, 1/W     float32, 1/W
    optimiser states      float32                float32, 1/W     float32, 1/W     float32, 1/W

for W processes. Without DeepSpeed trained weights are float32 and autocast copies them to the compute type;
DeepSpeed keeps the whole model in the compute type. Sources: `train.prepare` for the types; ZeRO stages as in
Rajbhandari et al., 2020, section 5, with the buffer sizes that DeepSpeed takes by default, as `recipes/deepspeed/` does
(`zero3_sgmri_paper.json` leaves them to accelerate, which makes them smaller); NF4 as in Dettmers et al., 2023,
section 3.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from torch import nn

from models.costs import Numerics, family_costs, trained_groups
from models.registry import family_module
from recipes.schema import Recipe
from train.optimizer import muon_with_adamw

Sharding = Literal["none", "ddp", "zero2", "zero3", "fsdp"]

# Blocks of 64 weights share an 8-bit scale; 256 scales share a float32 one.
NF4_BYTES = 0.5 + 1 / 64 + 4 / (64 * 256)
BUCKET = 500_000_000  # DeepSpeed's reduce_bucket_size, in elements
LIVE = 1_000_000_000  # DeepSpeed's stage3_max_live_parameters


@dataclass(frozen=True, slots=True)
class Launch:
    """How many processes there are and what they share.

    Attributes:
        processes: Number of processes, W.
        sharding: `none` for one process; `ddp` shares nothing; the others as in the table above.
    """

    processes: int = 1
    sharding: Sharding = "none"

    @property
    def deepspeed(self) -> bool:
        """Whether DeepSpeed holds the model."""
        return self.sharding in ("zero2", "zero3")

    @property
    def cuts_weights(self) -> bool:
        """Whether no process holds all weights, so that all must make the same passes."""
        return self.sharding in ("zero3", "fsdp")


@dataclass(frozen=True, slots=True, kw_only=True)
class Weight:
    """One parameter tensor.

    Attributes:
        group: Its freeze group, or `lora`.
        count: Number of elements.
        block: The block it belongs to; empty outside blocks.
        trained: Whether it is trained.
        matrix: Whether it enters matrix products or convolutions.
        muon: Whether Muon trains it.
        quantizable: Whether nf4 would store it in 4 bits.
    """

    group: str
    count: int
    block: str
    trained: bool
    matrix: bool
    muon: bool
    quantizable: bool


@dataclass(frozen=True, slots=True)
class Part:
    """One line of the estimate: what it is, and its bytes on each process."""

    name: str
    bytes: int


def read_weights(model: nn.Module, recipe: Recipe) -> list[Weight]:
    """Describes every parameter tensor of the recipe's adapted model, which may lie on the `meta` device."""
    family, costs = family_module(recipe.model.family), family_costs(recipe.model.family)
    muon: set[int] = set()
    if recipe.train.optimizer == "muon":
        muon = {id(parameter) for parameter in muon_with_adamw(model, recipe.train).param_groups[0]["params"]}
    return [
        Weight(
            group=family.group_of(name),
            count=parameter.numel(),
            block=_block_of(name),
            trained=parameter.requires_grad,
            matrix=parameter.dim() > 1,
            muon=id(parameter) in muon,
            quantizable=costs.is_quantizable(name, parameter),
        )
        for name, parameter in model.named_parameters()
    ]


def _block_of(name: str) -> str:
    """`model.language_model.layers.3.mlp.up_proj.weight` -> `...layers.3`."""
    for mark in (".layers.", ".blocks."):
        before, found, after = name.partition(mark)
        if found:
            return f"{before}{mark}{after.split('.')[0]}"
    return ""


def numerics(recipe: Recipe, launch: Launch, *, on_cpu: bool) -> Numerics:
    """Number formats of a pass: see the table above and `models.costs.Numerics`."""
    compute = 4 if recipe.train.precision == "fp32" else 2
    sharded = launch.deepspeed or launch.sharding == "fsdp"
    wide = recipe.model.dtype == "float32" or recipe.model.quantization == "nf4"
    embeddings_trained = recipe.adapter.kind == "full" and "embeddings" not in recipe.freeze
    return Numerics(
        compute=compute,
        residual=compute if sharded else 4 if wide or embeddings_trained else 2,
        positions=compute if sharded else 4 if wide or "vision" in trained_groups(recipe) else 2,
        autocast=compute == 2 and not launch.deepspeed,
        on_cpu=on_cpu,
    )


def bytes_stored(weight: Weight, recipe: Recipe, launch: Launch) -> float:
    """Bytes per element of a parameter."""
    if launch.deepspeed:
        return 4 if recipe.train.precision == "fp32" else 2
    if weight.trained:
        return 4
    if recipe.model.quantization == "nf4":
        # What stays out of the 4 bits becomes float32 when the model is prepared for training.
        return NF4_BYTES if weight.quantizable else 4
    return 4 if recipe.model.dtype == "float32" else 2


def state_parts(weights: list[Weight], recipe: Recipe, launch: Launch) -> list[Part]:
    """Everything that lives from step to step, and what sharing it needs; per process."""
    share = launch.processes if launch.cuts_weights else 1
    trained = sum(weight.count for weight in weights if weight.trained)
    compute = 4 if recipe.train.precision == "fp32" else 2
    parts = [Part("weights", _split(sum(w.count * bytes_stored(w, recipe, launch) for w in weights), share))]
    if launch.deepspeed:
        copies = 0 if launch.sharding == "zero3" and compute == 4 else 4 * trained
        parts.append(Part("float32 copies of trained weights", _split(copies, launch.processes)))
        parts.append(Part("gradients", _split(compute * trained, launch.processes)))
        parts.append(Part("optimiser states", _split(optimizer_bytes(weights), launch.processes)))
    else:
        parts.append(Part("gradients", _split(4 * trained, share)))
        parts.append(Part("optimiser states", _split(optimizer_bytes(weights), share)))
    parts += _extra_parts(weights, recipe, launch, compute)
    return [part for part in parts if part.bytes]


def optimizer_bytes(weights: Iterable[Weight]) -> int:
    """Bytes of the optimiser states before sharing.

    AdamW keeps two float32 moments, and a step count per tensor; Muon keeps one momentum.
    """
    trained = [weight for weight in weights if weight.trained]
    return sum(4 * weight.count if weight.muon else 8 * weight.count + 4 for weight in trained)


def _extra_parts(weights: list[Weight], recipe: Recipe, launch: Launch, compute: int) -> list[Part]:
    """Buffers and gathered or cast weights."""
    trained = sum(weight.count for weight in weights if weight.trained)
    every = sum(weight.count for weight in weights)
    if launch.sharding == "zero2":
        return [Part("communication buffers", 2 * BUCKET * compute)]
    if launch.sharding == "zero3":
        gathered = min(every, LIVE) * compute
        return [Part("communication buffers", BUCKET * compute), Part("gathered weights", gathered)]
    if launch.sharding == "fsdp":
        return [Part("gathered weights and their gradients", _gathered(weights) * compute)]
    parts = [Part("weights cast for products", _cast_elements(weights, recipe, launch) * compute)]
    if launch.sharding == "ddp":
        parts.append(Part("gradient buckets", 4 * trained))
    return parts


def _gathered(weights: list[Weight]) -> int:
    """Elements that FSDP has whole at once: all outside the blocks, a block in use with its gradients, the next one."""
    blocks: dict[str, int] = {}
    for weight in weights:
        blocks[weight.block] = blocks.get(weight.block, 0) + weight.count
    outside = blocks.pop("", 0)
    return outside + 3 * max(blocks.values(), default=0)


def _cast_elements(weights: list[Weight], recipe: Recipe, launch: Launch) -> int:
    """Elements of float32 matrices whose 16-bit copies live until the backward pass has used them.

    Copies of trained weights are kept for the whole forward pass; of frozen ones only where a gradient flows through
    their product, and under checkpointing only outside the blocks.
    """
    if recipe.train.precision == "fp32":
        return 0
    tied = not any(weight.group == "head" for weight in weights)
    passed = {"language", "head", "embeddings"}
    if recipe.adapter.vision:
        passed |= {"vision", "projector"}
    total = 0
    for weight in weights:
        in_product = weight.matrix and (weight.group != "embeddings" or tied)
        if not in_product or bytes_stored(weight, recipe, launch) != 4:
            continue
        kept = weight.group in passed and not (recipe.train.gradient_checkpointing and weight.block)
        total += weight.count if weight.trained or kept else 0
    return total


def _split(amount: float, shares: int) -> int:
    """Bytes of one of equal shares, rounded up."""
    return -int(-amount // shares)
