"""PaliGemma's cost formulas, both generations: against autograd, the profiler, real steps; advice and estimate."""

from __future__ import annotations

import dataclasses
import shutil

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from collators.base import Length
from models.costs import FLIGHT_BYTES, LOGIT_BYTES, MicroBatch
from models.paligemma import load_model, trainable_by_group
from models.paligemma_costs import SIDES, activations, flops
from models.skeleton import skeleton
from recipes.load import load_recipe
from tests.train.costing import (
    SUPERVISED,
    cast_bytes,
    estimated,
    forward,
    peak_bytes,
    saved_bytes,
    step,
    stored_bytes,
    trainable_model,
)
from tests.train.paligemma_costing import mask_bytes, paligemma_batch, small_paligemma
from train.advice import advise
from train.estimate import estimate_recipe
from train.memory import Launch, Part, numerics, read_weights, state_parts
from train.sizing import ModelSize, Workload

FP32 = ("train.precision=fp32", "model.dtype=float32")
BF16 = ("train.precision=bf16", "model.dtype=bfloat16")
WIDE = ("train.precision=bf16", "model.dtype=float32")
KINDS = {
    "lora": ("adapter.dropout=0.0",),
    "lora with dropout": ("adapter.dropout=0.1",),
    "lora and projector": ("adapter.train_also=[projector]",),
    "lora of attention only, eager": ("adapter.roles=[attention]", "model.attention=eager"),
    "lora with vision": ("adapter.vision=true",),
    "lora with vision and dropout, eager": ("adapter.vision=true", "adapter.dropout=0.1", "model.attention=eager"),
    "full": ("adapter.kind=full",),
    "full, vision frozen": ("adapter.kind=full", "freeze=[vision]"),
    "full, language frozen": ("adapter.kind=full", "freeze=[language,embeddings]"),
}
# Samples, tokens and patches along a side of the picture.
SHORT, MIDDLE, LONG, LONGEST = (2, 64, 6), (2, 300, 14), (2, 500, 20), (1, 700, 25)
GENERATION = pytest.mark.parametrize("generation", [1, 2], ids=["first", "second"])
CHECKPOINTING = pytest.mark.parametrize("checkpointing", [False, True], ids=["plain", "checkpointing"])


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    torch.set_num_threads(1)


def make(*overrides, checkpointing=False):
    return load_recipe("demo/paligemma_lora", [*overrides, *["train.gradient_checkpointing=true"] * checkpointing])


def set_up(generation, recipe, size, **shape):
    """The recipe's model and a batch for it, with its labels and shape."""
    return trainable_model(small_paligemma(generation, size[2], **shape), recipe), *paligemma_batch(*size)


# Activations and operations.


def kept(model, recipe, shape):
    """What the formulas say is kept after a forward pass; capped logits are, the others are not held by the model."""
    active = estimated(model, recipe, shape)
    capped = active.logits - LOGIT_BYTES * shape.supervised * model.config.text_config.vocab_size
    return active.inputs + active.vision + active.language + capped + cast_bytes(model, recipe)


@pytest.mark.parametrize(
    ("kind", "types"),
    [
        *[pytest.param(kind, FP32, id=f"{kind} fp32") for kind in KINDS],
        *[pytest.param(kind, BF16, id=f"{kind} bf16") for kind in KINDS],
        pytest.param("lora with vision", WIDE, id="lora with vision bf16 on float32"),
    ],
)
@GENERATION
def test_kept_for_the_backward_pass(generation, kind, types):
    recipe = make(*KINDS[kind], *types)
    model, batch, _, shape = set_up(generation, recipe, MIDDLE)
    real = saved_bytes(model, batch, autocast=types is not FP32)
    assert kept(model, recipe, shape) == pytest.approx(real, rel=0.08)


@pytest.mark.parametrize(
    ("kind", "size"),
    [
        pytest.param("lora", SHORT, id="lora short"),
        pytest.param("lora", MIDDLE, id="lora middle"),
        pytest.param("lora of attention only, eager", MIDDLE, id="eager middle"),
        pytest.param("full, vision frozen", SHORT, id="full, vision frozen short"),
    ],
)
@GENERATION
def test_kept_under_checkpointing(generation, kind, size):
    """A frozen tower is spared."""
    recipe = make(*KINDS[kind], *FP32, checkpointing=True)
    model, batch, _, shape = set_up(generation, recipe, size)
    real = saved_bytes(model, batch, autocast=False) + mask_bytes(model, batch)
    assert kept(model, recipe, shape) == pytest.approx(real, rel=0.08)


def check_peak(generation, recipe, size):
    """The second pass of a step: gradients are there already, so that the peak is the activations'."""
    autocast = recipe.train.precision == "bf16"
    model, batch, labels, shape = set_up(generation, recipe, size)
    step(model, batch, labels, autocast=autocast)
    peak = peak_bytes(lambda: step(model, batch, labels, autocast=autocast))
    active = estimated(model, recipe, shape)
    # The inputs were there before the meter ran.
    assert active.total - active.inputs + cast_bytes(model, recipe) == pytest.approx(peak, rel=0.2)
    return active


@CHECKPOINTING
@pytest.mark.parametrize(
    ("kind", "types"), [("lora with vision", FP32), ("full", BF16)], ids=["lora fp32", "full bf16"]
)
@GENERATION
def test_peak_of_a_pass(generation, kind, types, checkpointing):
    check_peak(generation, make(*KINDS[kind], *types, checkpointing=checkpointing), LONG)


@CHECKPOINTING
@pytest.mark.parametrize(("generation", "types"), [(1, BF16), (2, FP32)], ids=["first bf16", "second fp32"])
def test_scores_in_flight_are_the_peak_where_samples_are_long(generation, types, checkpointing):
    recipe = make(*types, "model.attention=eager", checkpointing=checkpointing)
    active = check_peak(generation, recipe, LONGEST)
    # More than the gated unit has in flight.
    assert active.block > LONGEST[1] * 384 * FLIGHT_BYTES


@GENERATION
def test_logits_are_the_peak_where_the_vocabulary_is_large(generation):
    recipe = make(*FP32)
    model, batch, labels, shape = set_up(generation, recipe, SHORT, vocabulary=150_000)
    step(model, batch, labels, autocast=False)
    active = estimated(model, recipe, shape)
    # Capped logits are kept beside the rest.
    assert active.logits == (12 if generation == 1 else 16) * 2 * SUPERVISED * 150_000
    peak = peak_bytes(lambda: step(model, batch, labels, autocast=False))
    assert active.total - active.inputs == pytest.approx(peak, rel=0.2)


@CHECKPOINTING
@pytest.mark.parametrize("kind", ["lora", "lora with vision", "full", "full, vision frozen"])
@GENERATION
def test_operations_are_those_that_run(generation, kind, checkpointing):
    recipe = make(*KINDS[kind], *FP32, "model.attention=eager", checkpointing=checkpointing)
    model, batch, _, _ = set_up(generation, recipe, (1, 200, 12))
    with FlopCounterMode(display=False) as counter:
        outputs = forward(model, batch, autocast=False)
        outputs.logits.float().logsumexp(-1).sum().backward()
    mine = flops(model.config, recipe, Length(200 - 144 - SUPERVISED, 144, SUPERVISED))
    assert mine == pytest.approx(counter.get_total_flops(), rel=0.05)


@CHECKPOINTING
@pytest.mark.parametrize("kind", KINDS)
@GENERATION
def test_more_of_anything_never_takes_less(generation, kind, checkpointing):
    recipe = make(*KINDS[kind], *FP32, checkpointing=checkpointing)
    shape = MicroBatch(samples=2, width=100, images=128, supervised=8, image_pairs=2 * 64**2)
    config, numbers = small_paligemma(generation, 8), numerics(recipe, Launch(), on_cpu=False)
    base = activations(config, recipe, shape, numbers).total
    for field in ("samples", "width", "images", "supervised", "image_pairs"):
        more = dataclasses.replace(shape, **{field: 3 * getattr(shape, field)})
        assert activations(config, recipe, more, numbers).total >= base
    twice = dataclasses.replace(shape, samples=4, images=256, supervised=16, image_pairs=4 * 64**2)
    assert activations(config, recipe, twice, numbers).total == pytest.approx(2 * base, rel=0.01)


def test_the_second_language_model_is_eager_whatever_the_recipe_says():
    shape = MicroBatch(samples=2, width=100, images=128, supervised=8, image_pairs=2 * 64**2)
    language = {
        (generation, attention): activations(
            small_paligemma(generation, 8),
            make(f"model.attention={attention}", *FP32),
            shape,
            numerics(make(*FP32), Launch(), on_cpu=True),
        ).language
        for generation in (1, 2)
        for attention in ("sdpa", "eager")
    }
    assert language[2, "sdpa"] == language[2, "eager"]
    assert language[1, "sdpa"] < language[1, "eager"]


# Weights and states.


@pytest.fixture(scope="module")
def config_folder(tmp_path_factory):
    """Makes a checkpoint folder without weights: the estimate needs none."""

    def save(generation, side=8):
        folder = tmp_path_factory.mktemp("config")
        small_paligemma(generation, side).save_pretrained(folder)
        return f"model.checkpoint={folder}"

    return save


@pytest.mark.parametrize("types", [FP32, BF16], ids=["fp32", "bf16"])
@pytest.mark.parametrize("kind", ["lora with vision", "lora and projector", "full"])
@GENERATION
def test_weights_gradients_and_states_are_those_of_a_real_step(config_folder, generation, kind, types):
    recipe = make(config_folder(generation), *KINDS[kind], *types)
    model, batch, labels, _ = set_up(generation, recipe, (2, 80, 8))
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained)
    step(model, batch, labels, autocast=types is BF16)
    optimizer.step()
    size = ModelSize.of(recipe, on_cpu=True)
    parts = {part.name: part.bytes for part in state_parts(size.weights, recipe, Launch())}
    assert parts["weights"] == sum(p.numel() * p.element_size() for p in model.parameters())
    assert parts["gradients"] == sum(p.grad.nbytes for p in trained)
    states = [value for state in optimizer.state.values() for value in state.values()]
    assert parts["optimiser states"] == sum(value.nbytes for value in states)


@pytest.mark.parametrize("kind", ["lora with vision", "full"])
@GENERATION
def test_the_model_without_memory_has_the_parameters_of_the_real_one(config_folder, generation, kind):
    recipe = make(config_folder(generation), *KINDS[kind])
    config, bare = skeleton(recipe)
    assert {parameter.device.type for parameter in bare.parameters()} == {"meta"}
    assert read_weights(bare, recipe) == read_weights(trainable_model(config, recipe), recipe)


@GENERATION
def test_4_bit_weights_are_those_that_bitsandbytes_makes(tmp_path, generation):
    pytest.importorskip("bitsandbytes")
    from peft import prepare_model_for_kbit_training
    from transformers import AutoModelForImageTextToText

    config = small_paligemma(generation, 8)
    AutoModelForImageTextToText.from_config(config, dtype=torch.bfloat16).save_pretrained(tmp_path)
    recipe = make(f"model.checkpoint={tmp_path}", "model.quantization=nf4", *BF16)
    model = prepare_model_for_kbit_training(load_model(recipe.model), use_gradient_checkpointing=False)
    base = [weight for weight in ModelSize.of(recipe, on_cpu=True).weights if weight.group != "lora"]
    assert state_parts(base, recipe, Launch())[0].bytes == pytest.approx(stored_bytes(model), rel=1e-3)
    assert sum(weight.count for weight in base) == sum(total for _, total in trainable_by_group(model).values())


# Advice and the whole estimate.


def advice_at(folder, side, *overrides, limit=0):
    """Advice for a run on pictures of `side` pixels."""
    recipe = make(folder, f"canvas.size={side}", "batch.size=4", *BF16, *overrides)
    workload = Workload([Length(60, (side // 14) ** 2, 20)] * 8, 10)
    return recipe, workload, advise(ModelSize.of(recipe, on_cpu=False), recipe, workload, Launch(), limit=limit)


@pytest.mark.parametrize(("side", "smaller"), [(896, [224]), (448, [224]), (224, []), (128, [])])
@GENERATION
def test_a_smaller_canvas_is_one_that_there_are_checkpoints_for(config_folder, generation, side, smaller):
    _, _, advice = advice_at(config_folder(generation, side // 14), side, limit=0)
    sizes = [int(item.change.split("=")[1].split()[0]) for item in advice if item.change.startswith("canvas.size")]
    assert sizes == smaller
    assert set(sizes) < set(SIDES)
    assert not any("images." in item.change for item in advice)


def test_the_larger_of_the_smaller_canvases_comes_first(config_folder):
    folder = config_folder(2, 64)
    _, _, everything = advice_at(folder, 896)
    (place,) = [number for number, item in enumerate(everything) if item.change.startswith("canvas.size=224")]
    limit = everything[place - 1].bytes // 2
    _, _, advice = advice_at(folder, 896, limit=limit)
    assert advice[-1].change == "canvas.size=448 with a checkpoint for pictures of that size (details get lost)"
    assert everything[place].bytes < advice[-1].bytes <= limit


@GENERATION
def test_advice_is_never_refused_by_the_schema_and_each_number_is_that_of_the_changed_recipe(config_folder, generation):
    folder = config_folder(generation, 64)
    recipe, workload, advice = advice_at(folder, 896, "model.quantization=none")
    size, done = ModelSize.of(recipe, on_cpu=False), []
    for item in advice:
        if not item.change.startswith(("2 ", "4 ", "8 ")):
            done += [word for word in item.change.split() if "=" in word]
            changed = make(folder, "canvas.size=896", "batch.size=4", *BF16, *done)
            lengths = [dataclasses.replace(one, images=(changed.canvas.size // 14) ** 2) for one in workload.lengths]
            assert item.bytes == size.total(changed, dataclasses.replace(workload, lengths=lengths), Launch())
    assert {word.split("=")[0] for word in done} >= {"canvas.size", "batch.size", "train.gradient_checkpointing"}


@GENERATION
def test_a_recipe_is_estimated_without_its_weights(make_paligemma_recipe, tiny_paligemma, tmp_path, generation):
    bare = tmp_path / "bare"
    shutil.copytree(tiny_paligemma(generation), bare, ignore=shutil.ignore_patterns("*.safetensors"))
    recipe = make_paligemma_recipe(f"model.checkpoint={bare}", generation=generation)
    estimate = estimate_recipe(recipe)
    assert estimate.fits
    model = trainable_model(load_model(make_paligemma_recipe(generation=generation).model).config, recipe)
    assert estimate.parts[0] == Part("weights", sum(parameter.nbytes for parameter in model.parameters()))
    assert "64 of them of images" in estimate.batch
