"""Memory of weights, gradients and optimiser states; sharing; advice; the estimate of a recipe."""

from __future__ import annotations

import dataclasses
import shutil
from types import SimpleNamespace

import pytest
import torch

from benchmarks.dataset import read_records
from collators.base import Length
from models.costs import family_costs
from models.qwen3_vl import load_model, trainable_by_group
from recipes.errors import RecipeError
from recipes.load import ROOT as RECIPES
from recipes.load import load_recipe
from tests.train.costing import made_up_batch, small_config, step, stored_bytes, trainable_model
from train.advice import advise
from train.data import load_measured
from train.device_memory import PeakMemory, current_launch, memory_for_run
from train.estimate import GIB, Estimate, compare_peak, estimate_recipe, estimate_run, workload_of
from train.memory import BUCKET, LIVE, NF4_BYTES, Launch, Part, optimizer_bytes, read_weights, state_parts
from train.optimizer import muon_with_adamw
from train.sizing import ModelSize, Workload

WORKLOAD = Workload([Length(60, 128, 20), Length(40, 128, 30)], 10)
FP32 = ("train.precision=fp32", "model.dtype=float32")
BF16 = ("train.precision=bf16", "model.dtype=bfloat16")


@pytest.fixture(scope="module")
def config_folder(tmp_path_factory):
    """A checkpoint folder without weights: the estimate needs none."""
    folder = tmp_path_factory.mktemp("config")
    small_config().save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def make(config_folder):
    return lambda *overrides: load_recipe("demo/lora", [f"model.checkpoint={config_folder}", *overrides])


def parts_of(recipe, launch=None):
    size = ModelSize.of(recipe, on_cpu=True)
    return {part.name: part.bytes for part in state_parts(size.weights, recipe, launch or Launch())}


# Against real tensors.


@pytest.mark.parametrize("types", [FP32, BF16], ids=["fp32", "bf16"])
@pytest.mark.parametrize(
    ("kind", "optimizer"),
    [
        ("adapter.kind=lora", "adamw"),
        ("adapter.kind=full", "adamw"),
        ("adapter.kind=full", "muon"),
        ("adapter.train_also=[projector]", "adamw"),
    ],
)
def test_weights_gradients_and_states_are_those_of_a_real_step(make, kind, optimizer, types):
    recipe = make(kind, f"train.optimizer={optimizer}", *types)
    model = trainable_model(small_config(), recipe)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    inner = muon_with_adamw(model, recipe.train) if optimizer == "muon" else torch.optim.AdamW(trained)
    batch, labels, _ = made_up_batch(2, 64, (8, 16))
    step(model, batch, labels, autocast=types is BF16)
    inner.step()
    parts = parts_of(recipe)
    assert parts["weights"] == sum(p.numel() * p.element_size() for p in model.parameters())
    assert parts["gradients"] == sum(p.grad.nbytes for p in trained)
    states = [value for state in inner.state.values() for value in state.values() if torch.is_tensor(value)]
    assert parts["optimiser states"] == sum(value.nbytes for value in states)


def test_4_bit_weights_are_those_that_bitsandbytes_makes(tmp_path, make):
    pytest.importorskip("bitsandbytes")
    from peft import prepare_model_for_kbit_training
    from transformers import Qwen3VLForConditionalGeneration

    Qwen3VLForConditionalGeneration(small_config()).to(torch.bfloat16).save_pretrained(tmp_path)
    recipe = make(f"model.checkpoint={tmp_path}", "model.quantization=nf4", *BF16)
    model = prepare_model_for_kbit_training(load_model(recipe.model), use_gradient_checkpointing=False)
    size = ModelSize.of(recipe, on_cpu=True)
    base = [weight for weight in size.weights if weight.group != "lora"]
    assert state_parts(base, recipe, Launch())[0].bytes == pytest.approx(stored_bytes(model), rel=1e-3)
    assert sum(weight.count for weight in base) == sum(total for _, total in trainable_by_group(model).values())


@pytest.mark.parametrize("kind", ["adapter.kind=lora", "adapter.kind=full"])
def test_the_model_without_memory_has_the_parameters_of_the_real_one(make, kind):
    recipe = make(kind)
    config, skeleton = family_costs("qwen3_vl").skeleton(recipe)
    assert {parameter.device.type for parameter in skeleton.parameters()} == {"meta"}
    assert read_weights(skeleton, recipe) == read_weights(trainable_model(config, recipe), recipe)


def test_an_untied_head_is_cast_and_its_embeddings_are_not(tmp_path, make):
    full = ("adapter.kind=full", "freeze=[vision,projector,language]", *BF16)
    cast = parts_of(make(*full))["weights cast for products"]
    small_config(tied=False).save_pretrained(tmp_path)
    untied = parts_of(make(f"model.checkpoint={tmp_path}", *full))
    assert cast == untied["weights cast for products"] == 2 * 2000 * 128
    assert untied["gradients"] == 2 * 4 * 2000 * 128


# Sharing.


def test_who_holds_what(make):
    """For W processes and N weights, all trained in bf16: the table of `train.memory`."""
    recipe = make("adapter.kind=full", *BF16)
    size = ModelSize.of(recipe, on_cpu=False)
    count = sum(weight.count for weight in size.weights)
    states = optimizer_bytes(size.weights)
    one = parts_of(recipe)
    ddp = parts_of(recipe, Launch(8, "ddp"))
    assert ddp == {**one, "gradient buckets": 4 * count}
    assert (one["weights"], one["gradients"], one["optimiser states"]) == (4 * count, 4 * count, states)
    assert parts_of(recipe, Launch(8, "zero2")) == {
        "weights": 2 * count,
        "float32 copies of trained weights": _ceil(4 * count, 8),
        "gradients": _ceil(2 * count, 8),
        "optimiser states": _ceil(states, 8),
        "communication buffers": 2 * BUCKET * 2,
    }
    assert parts_of(recipe, Launch(8, "zero3")) == {
        "weights": _ceil(2 * count, 8),
        "float32 copies of trained weights": _ceil(4 * count, 8),
        "gradients": _ceil(2 * count, 8),
        "optimiser states": _ceil(states, 8),
        "communication buffers": BUCKET * 2,
        "gathered weights": min(count, LIVE) * 2,
    }
    fsdp = parts_of(recipe, Launch(8, "fsdp"))
    assert fsdp["weights"] == fsdp["gradients"] == _ceil(4 * count, 8)
    assert fsdp["optimiser states"] == _ceil(states, 8)
    assert fsdp["gathered weights and their gradients"] < 2 * 2 * count


def _ceil(amount, shares):
    return -(-amount // shares)


def test_zero_in_float32_keeps_a_second_copy_only_at_stage_2(make):
    recipe = make("adapter.kind=full", *FP32)
    assert "float32 copies of trained weights" in parts_of(recipe, Launch(2, "zero2"))
    assert "float32 copies of trained weights" not in parts_of(recipe, Launch(2, "zero3"))


# The whole estimate and its advice.


def test_parts_add_up_and_name_the_run(make):
    estimate = estimate_run(make("batch.size=2", *FP32), WORKLOAD)
    assert estimate.total == sum(part.bytes for part in estimate.parts)
    assert estimate.fits
    assert estimate.advice == ()
    text = "\n".join(estimate.lines())
    assert "2 samples of 208 tokens, 256 of them of images and 50 supervised" in text
    assert all(part.name in text for part in estimate.parts)
    # Samples of 208 and 198 tokens.
    assert "406 tokens, 256 of them of images" in text
    assert estimate.run_flops == 10 * estimate.step_flops


def test_operations_grow_with_the_samples_of_a_step(make):
    recipe = make("batch.size=2", *FP32)
    size = ModelSize.of(recipe, on_cpu=True)
    one = size.step_flops(recipe, WORKLOAD, Launch())
    assert size.step_flops(make("batch.size=2", "batch.accumulation=3", *FP32), WORKLOAD, Launch()) == 3 * one
    assert size.step_flops(recipe, WORKLOAD, Launch(4, "ddp")) == 4 * one


def test_a_limit_of_tokens_makes_no_pass_larger_than_the_step(make):
    workload, launch = Workload([Length(5, 4, 1)] * 40, 10), Launch(2, "ddp")
    size = ModelSize.of(make(*FP32), on_cpu=True)

    def cost(*overrides):
        recipe = make(*overrides, *FP32)
        return size.describe_batch(recipe, workload, launch), size.total(recipe, workload, launch)

    assert cost("batch.size=3", "batch.max_tokens=100000") == cost("batch.size=6")
    assert cost("batch.size=3", "batch.max_tokens=40") == cost("batch.size=4")


def test_an_added_gradient_counts_only_if_gradients_are_added(make):
    overrides = ("adapter.kind=full", "freeze=[vision,language]", "batch.size=1", *FP32)
    workload = Workload([Length(5, 4, 1)], 10)

    def last(recipe):
        return ModelSize.of(recipe, on_cpu=True).parts(recipe, workload, Launch())[-1]

    assert last(make(*overrides, "batch.accumulation=2")) == Part("gradient being added", 4 * 2000 * 128)
    assert last(make(*overrides)).name != "gradient being added"


def advice_for(recipe, limit, launch=None, workload=WORKLOAD):
    size = ModelSize.of(recipe, on_cpu=False)
    return size, advise(size, recipe, workload, launch or Launch(), limit=limit)


def changes(advice):
    return [item.change.split("=")[0].split()[0] for item in advice]


HARM = ["train.gradient_checkpointing", "batch.size", "images.max_pixels", "model.quantization", "2", "4", "8"]


def test_advice_is_in_order_of_harm_sufficient_and_not_too_much(make):
    recipe = make("batch.size=4", *BF16)
    workload = dataclasses.replace(WORKLOAD, lengths=list(WORKLOAD.lengths) * 4)
    size, everything = advice_for(recipe, 0, workload=workload)
    total = size.total(recipe, workload, Launch())
    assert advice_for(recipe, total, workload=workload)[1] == ()
    seen = set()
    for limit in range(everything[-1].bytes, total, (total - everything[-1].bytes) // 12):
        advice = advise(size, recipe, workload, Launch(), limit=limit)
        assert [HARM.index(change) for change in changes(advice)] == sorted(map(HARM.index, changes(advice)))
        numbers = [total, *(item.bytes for item in advice)]
        assert numbers == sorted(numbers, reverse=True)
        assert numbers[-1] <= limit < numbers[-2]
        seen |= set(changes(advice))
    assert seen == set(HARM[:3])
    (first,) = advise(size, recipe, workload, Launch(), limit=total - 1)
    assert first.change == "train.gradient_checkpointing=true"


def test_passes_that_share_images_are_not_advised_to_hold_one_sample(make):
    recipe = make("batch.size=4", "batch.share_images=true", *BF16)
    workload = dataclasses.replace(WORKLOAD, lengths=list(WORKLOAD.lengths) * 4, images=range(8))
    words = [
        word for item in advice_for(recipe, 0, workload=workload)[1] for word in item.change.split(" (")[0].split()
    ]
    assert "batch.size=2" in words
    make("batch.size=4", "batch.share_images=true", *BF16, *(word for word in words if "=" in word))


def test_each_number_is_that_of_the_changed_recipe(make):
    recipe = make("batch.size=4", "batch.accumulation=3", "images.max_pixels=1003520", *BF16)
    workload = dataclasses.replace(WORKLOAD, lengths=list(WORKLOAD.lengths) * 3)
    size, advice = advice_for(recipe, 0, workload=workload)
    done = []
    for item in advice:
        if not item.change.startswith(("images.", "2 ", "4 ", "8 ")):
            done += item.change.split()
            changed = make("batch.size=4", "batch.accumulation=3", *BF16, *done)
            assert item.bytes == size.total(changed, workload, Launch())
    assert "batch.size=1" in done
    assert "batch.accumulation=12" in done


def test_smaller_images_are_asked_for_with_a_limit_that_has_an_effect(make):
    recipe = make("batch.size=1", "images.min_pixels=65536", "images.max_pixels=131072", *BF16)
    _, advice = advice_for(recipe, 0)
    (change,) = [item.change for item in advice if item.change.startswith("images.")]
    # 128 tokens of 32 x 32 pixels now, a quarter then.
    assert change == "images.max_pixels=32768 images.min_pixels=32768 (details get lost)"


def test_what_a_later_change_makes_needless_is_left_out(make):
    """Weights that do not fit are no reason to shrink images: sharing them is enough."""
    recipe = make("adapter.kind=full", "batch.size=2", *BF16)
    size = ModelSize.of(recipe, on_cpu=False)
    # So large that DeepSpeed's fixed buffers are small beside it.
    weights = [dataclasses.replace(weight, count=5000 * weight.count) for weight in size.weights]
    size = dataclasses.replace(size, weights=weights)
    shared = size.total(recipe, WORKLOAD, Launch(8, "zero3"))
    advice = advise(size, recipe, WORKLOAD, Launch(8, "ddp"), limit=shared)
    assert [item.change[:16] for item in advice] == ["8 processes with"]
    assert advice[0].bytes == shared


@pytest.mark.parametrize(
    ("overrides", "launch", "never"),
    [
        (("adapter.kind=full",), Launch(), "model.quantization=nf4"),
        (("train.optimizer=muon", "adapter.kind=full"), Launch(8, "ddp"), "zero3.json"),
        ((), Launch(8, "zero3"), "zero3.json"),
        ((), Launch(8, "fsdp"), "model.quantization=nf4"),
        (("train.gradient_checkpointing=true",), Launch(), "train.gradient_checkpointing"),
    ],
)
def test_advice_never_names_what_cannot_be_done(make, overrides, launch, never):
    _, advice = advice_for(make("batch.size=4", *BF16, *overrides), 0, launch)
    assert advice
    assert not any(never in item.change for item in advice)


def test_the_text_says_what_helps_or_that_nothing_does(make):
    estimate = Estimate(
        parts=(Part("weights", 9 * GIB),),
        batch="one sample",
        parameters={"language": (3, 4)},
        step_tokens=1.0,
        step_images=1.0,
        available=8 * GIB,
        device="cuda",
        step_flops=1e12,
        run_flops=1e15,
        advice=(),
    )
    assert "this will not fit" in "\n".join(estimate.lines())
    assert "still more memory or a smaller model" in estimate.lines()[-1]
    tight = dataclasses.replace(estimate, available=9 * GIB + 1)
    assert "this is tight" in "\n".join(tight.lines())
    assert not tight.fits


# On this machine.


def test_a_recipe_is_estimated_without_its_weights(make_recipe, tiny, tmp_path):
    bare = tmp_path / "bare"
    shutil.copytree(tiny, bare, ignore=shutil.ignore_patterns("*.safetensors"))
    recipe = make_recipe(f"model.checkpoint={bare}")
    estimate = estimate_recipe(recipe)
    assert estimate.device == "cpu"
    assert estimate.fits
    model = trainable_model(load_model(make_recipe().model).config, recipe)
    assert estimate.parts[0] == Part("weights", sum(parameter.nbytes for parameter in model.parameters()))
    assert estimate.run_flops == 3 * estimate.step_flops
    assert estimate.parameters == trainable_by_group(model)
    text = "\n".join(estimate.lines())
    assert f"{sum(p.numel() for p in model.parameters() if p.requires_grad):,}" in text
    assert "parameters trained" in text


def test_samples_of_a_mixed_split_cost_what_they_cost_alone(make):
    """Volumes, slices and questions without images: no image pays for those of another sample."""
    recipe = make("batch.size=1", "adapter.kind=full", "model.attention=eager", *FP32)
    size = ModelSize.of(recipe, on_cpu=True)
    lengths = [Length(40, 640, 20, 10), Length(40, 64, 20), Length(60, 0, 20, 0)]
    alone = [size.step_flops(recipe, Workload([length], 1), Launch()) for length in lengths]
    assert size.step_flops(recipe, Workload(lengths, 1), Launch()) == pytest.approx(sum(alone) / 3)
    memory = [size.total(recipe, Workload([length], 1), Launch()) for length in lengths]
    assert memory == sorted(memory, reverse=True)
    assert size.total(recipe, Workload(lengths, 1), Launch()) == memory[0]
    # One image of the same tokens has ten times the pairs.
    assert size.total(recipe, Workload([Length(40, 640, 20)], 1), Launch()) > memory[0]


def test_smaller_images_are_those_of_the_sample_with_most_tokens(make):
    """A volume of slices of 64 tokens, not the larger single slice beside it."""
    recipe = make("batch.size=1", "images.max_pixels=1003520", *BF16)
    workload = Workload([Length(40, 640, 20, 10), Length(40, 100, 20)], 10)
    size, advice = advice_for(recipe, 0, workload=workload)
    (item,) = [item for item in advice if item.change.startswith("images.")]
    assert item.change.startswith(f"images.max_pixels={16 * 1024}")
    changed = make("batch.size=1", "train.gradient_checkpointing=true", *BF16)
    shrunk = Workload([Length(40, 160, 20, 10), Length(40, 16, 20)], 10)
    assert item.bytes == size.total(changed, shrunk, Launch())


def test_a_measured_split_tells_its_images(make_recipe, phantom_data):
    from tests.collators.samples import folder_images, make_collator

    recipe = make_recipe()
    collator = make_collator(recipe, folder_images(phantom_data), targets=True)
    measured = load_measured(recipe, "train", collator, limit=None, quiet=True)
    workload = workload_of(measured, 7, packed=False)
    assert workload.steps == 7
    assert workload.lengths == measured.lengths
    views = [len(record.images) for record in read_records(phantom_data, "train")]
    assert set(views) == {1, 2}
    assert [length.pictures for length in workload.lengths] == views
    assert workload.images == ()
    sets = workload_of(measured, 7, packed=True).images
    assert len(set(sets)) == len({record.images for record in read_records(phantom_data, "train")})


def test_a_checkpoint_of_another_family_is_refused(make, tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(RecipeError, match="of type bert"):
        ModelSize.of(make(f"model.checkpoint={tmp_path}"), on_cpu=True)


@pytest.mark.parametrize(
    ("processes", "variables", "sharding"),
    [
        (1, {}, "none"),
        (4, {}, "ddp"),
        (4, {"ACCELERATE_USE_FSDP": "true"}, "fsdp"),
        (1, {"ACCELERATE_USE_FSDP": "true"}, "none"),
        (2, {"ACCELERATE_USE_DEEPSPEED": "true", "ACCELERATE_DEEPSPEED_CONFIG_FILE": "zero2.json"}, "zero2"),
        (2, {"ACCELERATE_USE_DEEPSPEED": "true", "ACCELERATE_DEEPSPEED_CONFIG_FILE": "zero3.json"}, "zero3"),
    ],
)
def test_the_launch_settings_tell_what_is_shared(monkeypatch, processes, variables, sharding):
    monkeypatch.setattr("train.device_memory.process_state", lambda: SimpleNamespace(num_processes=processes))
    for name, value in variables.items():
        monkeypatch.setenv(name, str(RECIPES / "deepspeed" / value) if value.endswith(".json") else value)
    assert current_launch() == Launch(processes, sharding)


def test_peak_and_free_memory_of_this_process():
    before = memory_for_run()
    assert before > 0
    peak = PeakMemory()
    start = peak.measured()
    block = torch.ones(60_000_000)
    del block
    assert peak.measured() >= start
    assert peak.measured() >= 200_000_000
    estimate = Estimate(
        parts=(Part("weights", 2 * GIB),),
        batch="",
        parameters={"language": (3, 4)},
        step_tokens=1.0,
        step_images=1.0,
        available=before,
        device="cpu",
        step_flops=1.0,
        run_flops=1.0,
        advice=(),
    )
    line = compare_peak(estimate, 3 * GIB)
    assert line.startswith("peak memory of a process on cpu: 3.00 GiB measured (all that it grew by")
    assert "2.00 GiB estimated (the model's part)" in line
    on_gpu = compare_peak(dataclasses.replace(estimate, device="cuda"), 3 * GIB)
    assert on_gpu == "peak memory of a process on cuda: 3.00 GiB measured, 2.00 GiB estimated"


def test_nf4_costs_little_more_than_half_a_byte():
    assert pytest.approx(0.5159, abs=1e-4) == NF4_BYTES
