"""The Qwen3-VL family: adapters by role, freezing, counting, loading, what is refused."""

import json
import shutil
from importlib.util import find_spec

import msgspec
import pytest
import torch
from torch import nn

from benchmarks.dataset import read_records
from models.qwen3_vl import LAYOUT, adapt, freeze, group_of, load_model, lora_targets, trainable_by_group
from recipes.errors import RecipeError
from tests.adapters import logits_of, steps, untie
from tests.collators.samples import folder_images, make_collator


@pytest.fixture(scope="module")
def batch(make_recipe, phantom_data):
    """Two records to learn."""
    records = list(read_records(phantom_data, "test"))[:2]
    return make_collator(make_recipe(), folder_images(phantom_data), targets=True)(records)


def changed_groups(before, model):
    return {
        group_of(name) for name, p in model.named_parameters() if name in before and not torch.equal(before[name], p)
    }


def snapshot(model):
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}


# Adapters.


@pytest.mark.parametrize(
    ("roles", "names"),
    [
        ("[attention]", {"q_proj", "k_proj", "v_proj", "o_proj"}),
        ("[mlp]", {"gate_proj", "up_proj", "down_proj"}),
        ("[attention,mlp]", {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}),
    ],
)
def test_targets_are_the_roles_layers_of_the_language_model_only(make_recipe, roles, names):
    """pitfall 28."""
    recipe = make_recipe(f"adapter.roles={roles}")
    found = lora_targets(load_model(recipe.model), recipe.adapter)
    assert {name.rsplit(".", maxsplit=1)[-1] for name in found} == names
    assert len(found) == 2 * len(names)
    assert all(name.startswith("model.language_model.layers.") for name in found)


def test_no_adapter_weight_lies_outside_the_language_model(make_recipe):
    """pitfall 28."""
    from peft import get_peft_model_state_dict

    recipe = make_recipe()
    keys = get_peft_model_state_dict(adapt(load_model(recipe.model), recipe.adapter, seed=0))
    assert keys
    assert not [key for key in keys if any(word in key for word in ("vision", "visual", "merger", "projector"))]


def test_a_model_without_such_layers_is_an_error(make_recipe):
    """pitfall 28."""
    with pytest.raises(RecipeError, match=r"no layer below model\.language_model\. is named q_proj"):
        lora_targets(nn.Sequential(nn.Linear(2, 2)), make_recipe().adapter)


def test_only_the_adapter_learns(make_recipe, batch):
    """pitfall 28: after two steps every weight of the base, vision included, is bit-equal."""
    recipe = make_recipe()
    model = adapt(load_model(recipe.model), recipe.adapter, seed=0)
    before = snapshot(model)
    steps(model, batch)
    assert changed_groups(before, model) == {"lora"}


@pytest.mark.parametrize("also", ["[projector]", "[embeddings]", "[embeddings,head]", "[projector,embeddings]"])
def test_what_is_trained_beside_the_adapter_changes_and_nothing_else_does(make_recipe, batch, also):
    recipe = make_recipe(f"adapter.train_also={also}")
    model = adapt(load_model(recipe.model), recipe.adapter, seed=0)
    before = snapshot(model)
    steps(model, batch)
    # The tiny model's head is its embeddings.
    assert changed_groups(before, model) == {"lora", *recipe.adapter.train_also} - {"head"}
    if "projector" in also:
        changed = [name for name, p in model.named_parameters() if not torch.equal(before[name], p)]
        assert {"merger", "deepstack_merger_list"} <= {part for name in changed for part in name.split(".")}


def test_a_head_of_its_own_is_trained_alone(make_recipe, batch, tiny, tmp_path):
    recipe = make_recipe("adapter.train_also=[head]", f"model.checkpoint={untie(tiny, tmp_path / 'untied')}")
    model = adapt(load_model(recipe.model), recipe.adapter, seed=0)
    before = snapshot(model)
    steps(model, batch)
    assert changed_groups(before, model) == {"lora", "head"}


def test_a_tied_head_is_not_trained_alone(make_recipe):
    recipe = make_recipe("adapter.train_also=[head]")
    with pytest.raises(RecipeError, match="the head is tied to the embeddings in this checkpoint") as raised:
        adapt(load_model(recipe.model), recipe.adapter, seed=0)
    assert "name `embeddings`" in raised.value.fix


def test_the_seed_decides_the_adapters_start(make_recipe):
    recipe = make_recipe()
    states = [snapshot(adapt(load_model(recipe.model), recipe.adapter, seed=seed)) for seed in (1, 1, 2)]
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    assert any(not torch.equal(states[0][name], states[2][name]) for name in states[0])


# Freezing and counting.


@pytest.mark.parametrize("group", ["vision", "projector", "embeddings", "language"])
def test_a_frozen_group_does_not_move_and_the_others_do(make_recipe, batch, group):
    model = load_model(make_recipe().model)
    freeze(model, (group,))
    before = snapshot(model)
    steps(model, batch)
    assert changed_groups(before, model) == {"vision", "projector", "embeddings", "language"} - {group}


def test_a_tied_head_cannot_be_frozen_alone(make_recipe):
    with pytest.raises(RecipeError, match="freeze group 'head' has no parameter") as raised:
        freeze(load_model(make_recipe().model), ("head",))
    assert "freeze `embeddings`" in raised.value.fix


def test_freezing_everything_is_an_error(make_recipe):
    with pytest.raises(RecipeError, match="every parameter is frozen"):
        freeze(load_model(make_recipe().model), ("vision", "projector", "embeddings", "language"))


def test_every_parameter_belongs_to_one_group(make_recipe):
    names = [name for name, _ in load_model(make_recipe().model).named_parameters()]
    prefixes = [prefix for group in LAYOUT.groups.values() for prefix in group]
    assert all(sum(name.startswith(prefix) for prefix in prefixes) == 1 for name in names)


@pytest.mark.parametrize(
    ("overrides", "trained"),
    [
        ((), {"lora"}),
        (("adapter.train_also=[projector]",), {"lora", "projector"}),
        (("adapter.train_also=[embeddings,head]",), {"lora", "embeddings"}),
        (("adapter.kind=full",), {"vision", "projector", "embeddings", "language"}),
    ],
    ids=["lora", "lora and projector", "lora and embeddings", "full"],
)
def test_counts_add_up_to_the_base_model_and_the_adapter(make_recipe, overrides, trained):
    recipe = make_recipe(*overrides)
    base = load_model(recipe.model)
    whole = sum(parameter.numel() for parameter in base.parameters())
    model = adapt(base, recipe.adapter, seed=0)
    counts = trainable_by_group(model)
    assert {group for group, (trainable, _) in counts.items() if trainable} == trained
    assert all(trainable in (0, total) for trainable, total in counts.values())
    assert sum(total for group, (_, total) in counts.items() if group != "lora") == whole
    assert sum(t for t, _ in counts.values()) == sum(p.numel() for p in model.parameters() if p.requires_grad)


# Four bits.


def test_four_bit_base_learns_in_its_adapter_only(make_recipe, batch):
    recipe = make_recipe("model.quantization=nf4")
    base = load_model(recipe.model)
    whole = sum(parameter.numel() for parameter in load_model(make_recipe().model).parameters())
    assert type(base.get_submodule("model.language_model.layers.0.mlp.up_proj")).__name__ == "Linear4bit"
    assert type(base.get_submodule("model.visual.blocks.0.attn.qkv")) is nn.Linear
    model = adapt(base, recipe.adapter, seed=0)
    counts = trainable_by_group(model)
    assert sum(total for group, (_, total) in counts.items() if group != "lora") == whole
    loss = model(**{key: value for key, value in batch.items() if key != "logits_to_keep"}).loss
    loss.backward()
    assert torch.isfinite(loss)
    assert {group_of(name) for name, p in model.named_parameters() if p.grad is not None} == {"lora"}
    assert any(p.grad.abs().max() > 0 for p in model.parameters() if p.grad is not None)


# Forward.


def test_logits_to_keep_are_the_full_logits_at_the_learnt_tokens(make_recipe, batch):
    model = load_model(make_recipe().model)
    inputs = {key: value for key, value in batch.items() if key != "labels"}
    with torch.inference_mode():
        kept = model.eval()(**inputs).logits
    full = logits_of(model, batch)
    assert torch.allclose(kept.reshape(-1, kept.shape[-1]), full[batch["logits_to_keep"]], atol=1e-6)


def test_a_samples_logits_do_not_depend_on_padding_or_its_side(make_recipe, phantom_data):
    recipe = make_recipe()
    short = next(read_records(phantom_data, "test"))
    long = msgspec.structs.replace(short, question=short.question * 3)
    model = load_model(recipe.model)
    for targets in (True, False):
        collator = make_collator(recipe, folder_images(phantom_data), targets=targets)
        alone, beside = collator([short]), collator([short, long])
        real = beside["attention_mask"][0].bool()
        assert not real.all()
        assert torch.allclose(logits_of(model, beside)[0][real], logits_of(model, alone)[0], atol=1e-5)


# What is loaded.


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_weights_have_the_recipes_type(make_recipe, dtype):
    model = load_model(make_recipe(f"model.dtype={dtype}", "train.precision=bf16").model)
    assert {parameter.dtype for parameter in model.parameters()} == {getattr(torch, dtype)}


def test_a_checkpoint_of_another_family_is_refused_whatever_its_name(make_recipe, tmp_path):
    folder = tmp_path / "qwen3_vl"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"model_type": "bert"}))
    with pytest.raises(RecipeError, match="is of type bert, the recipe says family qwen3_vl"):
        load_model(make_recipe(f"model.checkpoint={folder}").model)


def test_pickled_weights_are_not_loaded(make_recipe, tiny, tmp_path):
    from safetensors.torch import load_file

    folder = tmp_path / "pickled"
    shutil.copytree(tiny, folder)
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    with pytest.raises(RecipeError, match="cannot be loaded") as raised:
        load_model(make_recipe(f"model.checkpoint={folder}").model)
    assert "safetensors" in str(raised.value)


@pytest.mark.parametrize(
    ("override", "said", "fix"),
    [
        ("model.quantization=nf4", "requires bitsandbytes", "pip install -e '.[quant]'"),
        ("model.attention=flash_attention_2", "the package flash_attn is not installed", "model.attention=sdpa"),
    ],
)
def test_a_missing_package_is_named_with_the_key_that_needs_it(make_recipe, monkeypatch, override, said, fix):
    from transformers import AutoModelForImageTextToText

    def missing(*arguments, **options):
        raise ImportError(f"Using this {said}: `pip install it`\nsecond line")

    monkeypatch.setattr(AutoModelForImageTextToText, "from_pretrained", missing)
    key, value = override.split("=")
    with pytest.raises(RecipeError, match=f"{key} {value} cannot be used: Using this {said}") as raised:
        load_model(make_recipe(override).model)
    assert raised.value.where == key
    assert fix in raised.value.fix
    assert "second line" not in raised.value.message


def test_what_transformers_says_without_bitsandbytes_is_recognised(make_recipe, monkeypatch):
    import transformers.quantizers.quantizer_bnb_4bit as quantizer

    monkeypatch.setattr(quantizer, "is_bitsandbytes_available", lambda: False)
    with pytest.raises(RecipeError, match=r"model\.quantization nf4 cannot be used"):
        load_model(make_recipe("model.quantization=nf4").model)


@pytest.mark.skipif(find_spec("flash_attn") is not None, reason="the package is there")
def test_what_transformers_says_without_flash_attention_is_recognised(make_recipe):
    with pytest.raises(RecipeError, match=r"model\.attention flash_attention_2 cannot be used"):
        load_model(
            make_recipe("model.attention=flash_attention_2", "model.dtype=bfloat16", "train.precision=bf16").model
        )


@pytest.mark.parametrize("loader", ["load_model", "load_processor"])
def test_a_missing_checkpoint_is_named(make_recipe, tmp_path, loader):
    import models.qwen3_vl as family

    recipe = make_recipe(f"model.checkpoint={tmp_path / 'nothing' / 'here'}")
    arguments = (recipe.model,) if loader == "load_model" else (recipe.model, recipe.images)
    with pytest.raises(RecipeError, match="cannot be loaded") as raised:
        getattr(family, loader)(*arguments)
    assert "nothing" in raised.value.message
