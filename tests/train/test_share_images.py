"""Training with shared images equals training on the same samples apart: losses, gradients, weights."""

from __future__ import annotations

from collections import OrderedDict

import pytest
import torch
from transformers import PaliGemmaModel

from models import shared_prefix
from models.registry import family_module
from tests.collators.samples import make_collator, pictures
from tests.groups import grouped_records
from train.loss import summed_loss, supervision, token_weights

EXACT = ("prompt.template=plain", "codec=plain", "data.validation=null", "adapter.dropout=0.0")


def loss_and_gradients(recipe, records, batches, *, share, checkpointing=False, **how):
    """Loss of a step over its passes, divided by what the step holds, and all gradients as one vector."""
    family = family_module(recipe.model.family)
    model = family.adapt(family.load_model(recipe.model), recipe.adapter, seed=0)
    for name, parameter in model.named_parameters():
        if "lora_B" in name:  # zero at the beginning, which would leave half of the adapter without gradients
            torch.nn.init.normal_(parameter, std=0.1, generator=torch.Generator().manual_seed(len(name)))
    if share:
        family.share_images(model, **how)
    if checkpointing:
        model.base_model.model.activation_checkpointing_enable({"use_reentrant": False})
        model.enable_input_require_grads()
    collator = make_collator(recipe, pictures(records), targets=True, share_images=share)
    weights = torch.tensor([1.0, 3.0, 0.5])
    total, items = 0.0, 0.0
    for members in batches:
        batch = collator([records[i] for i in members])
        targets, rows = supervision(batch.pop("labels"))
        owners = batch.pop("owners", rows)
        each = token_weights(owners, weights[torch.tensor(members) % 3], recipe.batch.loss_reduction)
        loss = summed_loss(model.train()(**batch).logits, targets, each)
        loss.backward()
        total += loss.item()
        items += each.sum().item()
    grads = torch.cat([(p.grad / items).flatten() for p in model.parameters() if p.grad is not None])
    return total / items, grads


def distance(a, b):
    return float((a - b).norm() / b.norm())


@pytest.mark.parametrize("checkpointing", [False, True], ids=["kept", "checkpointing"])
@pytest.mark.parametrize("reduction", ["token", "sample"])
@pytest.mark.parametrize("sizes", [(1,), (2,), (5,), (9,), (5, 1, 2, 0, 9, 1)], ids=str)
def test_shared_equals_separate(sizes, reduction, checkpointing, make_recipe):
    recipe = make_recipe(*EXACT, f"batch.loss_reduction={reduction}")
    records = grouped_records(sizes)
    everyone = range(len(records))
    apart = loss_and_gradients(recipe, records, [[i] for i in everyone], share=False)
    shared = loss_and_gradients(recipe, records, [list(everyone)], share=True, checkpointing=checkpointing)
    assert shared[0] == pytest.approx(apart[0], rel=1e-6)
    assert distance(shared[1], apart[1]) < 1e-4


def test_heads_that_share_keys(tiny_grouped_heads, make_recipe):
    recipe = make_recipe(*EXACT, f"model.checkpoint={tiny_grouped_heads}")
    records = grouped_records((5, 1, 2, 0))
    apart = loss_and_gradients(recipe, records, [[i] for i in range(9)], share=False)
    shared = loss_and_gradients(recipe, records, [list(range(9))], share=True)
    assert shared[0] == pytest.approx(apart[0], rel=1e-6)
    assert distance(shared[1], apart[1]) < 1e-4


def test_rows_of_lengths_that_validation_had_can_be_trained_on(make_recipe):
    recipe = make_recipe(*EXACT)
    records = grouped_records((3,))
    family = family_module(recipe.model.family)
    model = family.adapt(family.load_model(recipe.model), recipe.adapter, seed=0)
    family.share_images(model)
    batch = make_collator(recipe, pictures(records), targets=True, share_images=True)(records)
    inputs = {name: value for name, value in batch.items() if name not in ("labels", "owners")}
    shared_prefix._masks.clear()
    with torch.inference_mode():
        expected = model(**inputs).logits
    logits = model(**inputs).logits
    logits.sum().backward()
    assert torch.equal(logits, expected)


def test_masks_are_kept_up_to_a_bound(monkeypatch):
    monkeypatch.setattr(shared_prefix, "KEPT_ELEMENTS", 500)
    monkeypatch.setattr(shared_prefix, "_masks", OrderedDict())
    sizes = []
    for prefix in range(12):
        for _ in range(2):
            mask = shared_prefix._segment_mask(prefix, (4, 5), torch.float32, torch.device("cpu"))
            assert mask is shared_prefix._segment_mask(prefix, (4, 5), torch.float32, torch.device("cpu"))
            assert mask.shape[-2:] == (9, prefix + 9)
        sizes.append(sum(kept.numel() for kept in shared_prefix._masks.values()))
    assert 300 < max(sizes) <= 500


def test_full_fine_tuning_of_the_vision_tower_gets_the_gradients_of_all_questions(make_recipe):
    recipe = make_recipe(*EXACT, "adapter={kind: full}")
    records = grouped_records((5, 2))
    apart = loss_and_gradients(recipe, records, [[i] for i in range(7)], share=False)
    shared = loss_and_gradients(recipe, records, [list(range(7))], share=True)
    assert shared[0] == pytest.approx(apart[0], rel=1e-6)
    assert distance(shared[1], apart[1]) < 1e-4


def test_segments_in_several_calls_equal_segments_in_one(make_recipe, monkeypatch):
    recipe = make_recipe(*EXACT)
    records = grouped_records((9,))
    one = loss_and_gradients(recipe, records, [list(range(9))], share=True)
    shapes = []
    sdpa = shared_prefix.sdpa_attention_forward

    def noted(module, query, key, value, mask, **keywords):
        shapes.append(None if mask is None else tuple(mask.shape[-2:]))
        return sdpa(module, query, key, value, mask, **keywords)

    monkeypatch.setattr(shared_prefix, "MASK_ELEMENTS", 6000)
    monkeypatch.setattr(shared_prefix, "sdpa_attention_forward", noted)
    several = loss_and_gradients(recipe, records, [list(range(9))], share=True)
    assert max(rows * columns for rows, columns in filter(None, shapes)) <= 6000
    assert len(set(filter(None, shapes))) > 1
    assert several[0] == pytest.approx(one[0], rel=1e-6)
    assert distance(several[1], one[1]) < 1e-4


@pytest.fixture
def canvas_recipe(make_paligemma_recipe):
    return make_paligemma_recipe(
        "prompt.template=plain", "codec=plain", "canvas={size: 32}", "data.validation=null", "adapter.dropout=0.0"
    )


def test_paligemma_shares_vision_features_bit_for_bit(canvas_recipe):
    """The features that the language model gets are those of each canvas alone."""
    records = grouped_records((5, 1, 2), images=1)
    family = family_module("paligemma")
    model = family.load_model(canvas_recipe.model)
    alone = make_collator(canvas_recipe, pictures(records), targets=True)
    shared = make_collator(canvas_recipe, pictures(records), targets=True, share_images=True)(records)
    assert len(shared["pixel_values"]) == 3
    wanted = [model.get_image_features(alone([record])["pixel_values"]).pooler_output for record in records]
    calls, seen = [], []
    family.share_images(model)
    model.model.vision_tower.register_forward_hook(lambda *_: calls.append(1))
    model.model.register_forward_pre_hook(
        lambda module, arguments, keywords: seen.append(keywords["mm_encoder_outputs"]["image"].pooler_output),
        with_kwargs=True,
    )
    shared.pop("labels")
    model(**shared)
    assert len(calls) == 3
    assert torch.equal(seen[0], torch.cat(wanted))


@pytest.mark.parametrize("reduction", ["token", "sample"])
@pytest.mark.parametrize("vision", [False, True], ids=["frozen", "adapted"])
def test_paligemma_with_shared_canvases_equals_separate(reduction, vision, canvas_recipe):
    recipe = canvas_recipe.model_copy(
        update={
            "adapter": canvas_recipe.adapter.model_copy(update={"vision": vision}),
            "batch": canvas_recipe.batch.model_copy(update={"loss_reduction": reduction}),
        }
    )
    records = grouped_records((5, 1, 2), images=1)
    apart = loss_and_gradients(recipe, records, [[i] for i in range(8)], share=False)
    shared = loss_and_gradients(recipe, records, [list(range(8))], share=True)
    assert shared[0] == pytest.approx(apart[0], rel=1e-6)
    assert distance(shared[1], apart[1]) < 1e-4


@pytest.mark.parametrize("most", [3, 5])
def test_the_tower_runs_as_often_as_in_the_process_with_most_canvases(most, canvas_recipe, monkeypatch):
    """Of three canvases here, forwards and backwards; what else is run leaves no trace."""
    recipe = canvas_recipe.model_copy(update={"adapter": canvas_recipe.adapter.model_copy(update={"vision": True})})
    records = grouped_records((5, 1, 2), images=1)
    calls = []
    real = PaliGemmaModel.get_image_features

    def counted(self, *arguments, **keywords):
        found = real(self, *arguments, **keywords)
        calls.append("forward")
        found.pooler_output.register_hook(lambda _: calls.append("backward"))
        return found

    expected = loss_and_gradients(recipe, records, [list(range(8))], share=True)
    monkeypatch.setattr(PaliGemmaModel, "get_image_features", counted)
    monkeypatch.setattr(torch.distributed, "all_reduce", lambda counts, op: counts.fill_(most))
    found = loss_and_gradients(recipe, records, [list(range(8))], share=True, lockstep=True)
    assert calls == ["forward"] * most + ["backward"] * most
    assert found[0] == expected[0]
    assert torch.equal(found[1], expected[1])


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_sixteen_bits_share_too(dtype, make_recipe):
    """Under autocast, with weights in either type: a loss as near as rounding lets it be."""
    recipe = make_recipe(*EXACT, f"model.dtype={dtype}")
    records = grouped_records((5, 2, 1))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        apart = loss_and_gradients(recipe, records, [[i] for i in range(8)], share=False)
        shared = loss_and_gradients(recipe, records, [list(range(8))], share=True)
    assert shared[0] == pytest.approx(apart[0], rel=1e-2)
    assert distance(shared[1].float(), apart[1].float()) < 0.1


def test_four_bits_share_too(make_recipe):
    """QLoRA: the base is dequantised alike for packed and for separate rows."""
    recipe = make_recipe(*EXACT, "model.quantization=nf4", "model.dtype=float32")
    records = grouped_records((5, 2, 1))
    apart = loss_and_gradients(recipe, records, [[i] for i in range(8)], share=False)
    shared = loss_and_gradients(recipe, records, [list(range(8))], share=True)
    assert shared[0] == pytest.approx(apart[0], rel=1e-6)
    assert distance(shared[1], apart[1]) < 1e-4
