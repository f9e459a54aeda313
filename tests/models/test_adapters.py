"""Adapters: plain peft reads them, wrong ones are refused, they come off without a trace, runs start from them."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from benchmarks.dataset import read_records
from models.adapters import adapter_folder, load_adapter, take_off
from models.qwen3_vl import adapt, load_model
from recipes.errors import RecipeError, UserError
from tests.adapters import logits_of, steps, untie, write_adapter_run
from tests.collators.samples import folder_images, make_collator

ALSO = ["[]", "[projector]", "[embeddings]", "[embeddings,head]"]


@pytest.fixture(scope="module")
def batch(make_recipe, phantom_data):
    """Two records to learn."""
    records = list(read_records(phantom_data, "test"))[:2]
    return make_collator(make_recipe(), folder_images(phantom_data), targets=True)(records)


@pytest.fixture(scope="module")
def untied(tiny, tmp_path_factory):
    """The tiny model with a head of its own."""
    return untie(tiny, tmp_path_factory.mktemp("untied") / "model")


@pytest.fixture(scope="module")
def adapter(make_recipe, tmp_path_factory):
    """An adapter with a projector beside it."""
    recipe = make_recipe("adapter.train_also=[projector]")
    return write_adapter_run(tmp_path_factory.mktemp("runs") / "projector", recipe) / "model"


@pytest.fixture
def copy(adapter, tmp_path):
    """The adapter folder, to spoil."""
    return shutil.copytree(adapter, tmp_path / "adapter")


def change_weights(folder, change):
    """Rewrites the adapter's weights; `change` alters the mapping."""
    path = folder / "adapter_model.safetensors"
    weights = load_file(path)
    change(weights)
    save_file(weights, path)


@pytest.mark.parametrize("tie", ["tied", "untied"])
@pytest.mark.parametrize("also", ALSO)
def test_plain_peft_gives_the_trained_models_logits(make_recipe, tiny, untied, batch, tmp_path, also, tie):
    """pitfalls 29 and 30: equal after saving, with an effect, whatever is trained beside the adapter."""
    from peft import PeftModel
    from transformers import AutoModelForImageTextToText

    checkpoint = tiny if tie == "tied" else untied
    recipe = make_recipe(f"adapter.train_also={also}", f"model.checkpoint={checkpoint}")
    trained = adapt(load_model(recipe.model), recipe.adapter, seed=0)
    steps(trained, batch)
    trained.save_pretrained(tmp_path / "adapter")
    plain = PeftModel.from_pretrained(AutoModelForImageTextToText.from_pretrained(checkpoint), tmp_path / "adapter")
    ours = load_adapter(load_model(recipe.model), tmp_path / "adapter")
    expected = logits_of(trained, batch)
    assert torch.allclose(logits_of(plain, batch), expected, atol=1e-5)
    assert torch.allclose(logits_of(ours, batch), expected, atol=1e-5)
    assert (expected - logits_of(load_model(recipe.model), batch)).abs().max() > 1e-3


@pytest.mark.parametrize("also", ["[embeddings]", "[embeddings,head]"])
def test_tied_embeddings_and_head_stay_one_matrix_while_they_learn(make_recipe, batch, also):
    """pitfall 30."""
    recipe = make_recipe(f"adapter.train_also={also}")
    model = adapt(load_model(recipe.model), recipe.adapter, seed=0)
    before = model.get_output_embeddings().weight.detach().clone()
    steps(model, batch)
    assert model.get_input_embeddings().weight is model.get_output_embeddings().weight
    assert not torch.equal(model.get_output_embeddings().weight, before)


# What is refused.


def _rename(weights):
    old = next(name for name in weights if "layers.1" in name)
    weights[old.replace("language_model", "text_model")] = weights.pop(old)


def _drop_projector(weights):
    del weights[next(name for name in weights if ".visual." in name)]


def _cut(weights):
    name = next(name for name in weights if "lora_A" in name)
    weights[name] = weights[name][:, :-1].clone()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_rename, r"1 weights missing \(.*layers\.1.*\), 1 weights without a place \(.*text_model"),
        (_drop_projector, r"1 weights missing \(base_model\.model\.model\.visual"),
        (_cut, r"1 weights of another shape \(.*lora_A.*: \[16, \d+\] for \[16, \d+\]\)"),
    ],
    ids=["renamed", "projector missing", "another shape"],
)
def test_an_adapter_that_does_not_fit_is_refused(copy, make_recipe, change, message):
    """pitfall 29."""
    change_weights(copy, change)
    with pytest.raises(UserError, match="does not fit its base model: " + message) as raised:
        load_adapter(load_model(make_recipe().model), copy)
    assert raised.value.where == str(copy)
    assert raised.value.fix


def test_an_adapter_for_layers_that_are_not_there_is_refused(copy, make_recipe):
    """pitfall 29: the module names of another library version."""
    path = copy / "adapter_config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps(config | {"target_modules": ["text_model.q_proj"]}))
    with pytest.raises(
        UserError, match="does not fit its base model: No modules were targeted for adaptation"
    ) as raised:
        load_adapter(load_model(make_recipe().model), copy)
    assert "Please" not in raised.value.message
    assert raised.value.where == str(copy)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("adapter_config.json", "{", "not an adapter's configuration"),
        ("adapter_config.json", "{}", "an adapter of type None; only LoRA"),
        ("adapter_config.json", '{"peft_type": "IA3"}', "an adapter of type .*IA3; only LoRA"),
        ("adapter_model.safetensors", "torn", "the adapter's weights cannot be read"),
        ("adapter_model.safetensors", None, "the adapter's weights cannot be read"),
    ],
)
def test_a_broken_adapter_folder_is_named(copy, make_recipe, name, content, message):
    (copy / name).unlink()
    if content is not None:
        (copy / name).write_text(content)
    with pytest.raises(UserError, match=message) as raised:
        load_adapter(load_model(make_recipe().model), copy)
    assert raised.value.where == str(copy / name)


def test_a_pickled_adapter_is_not_loaded(copy, make_recipe):
    weights = load_file(copy / "adapter_model.safetensors")
    torch.save(weights, copy / "adapter_model.bin")
    (copy / "adapter_model.safetensors").unlink()
    with pytest.raises(UserError, match="weights cannot be read") as raised:
        load_adapter(load_model(make_recipe().model), copy)
    assert "other formats are not loaded" in raised.value.fix


# Off again.


@pytest.mark.parametrize("also", ALSO)
def test_an_adapter_comes_off_without_a_trace(make_recipe, batch, tmp_path, also):
    """PEFT's own `unload` leaves a trained projector or embedding matrix in the base."""
    recipe = make_recipe(f"adapter.train_also={also}")
    folder = write_adapter_run(tmp_path / "run", recipe) / "model"
    base = load_model(recipe.model)
    untouched, names = logits_of(base, batch), [name for name, _ in base.named_modules()]
    weights = {name: weight.clone() for name, weight in base.state_dict().items()}
    adapted = load_adapter(base, folder)
    answered = logits_of(adapted, batch)
    bare = take_off(adapted)
    assert [name for name, _ in bare.named_modules()] == names
    assert all(torch.equal(weight, weights[name]) for name, weight in bare.state_dict().items())
    assert bare.get_input_embeddings().weight is bare.get_output_embeddings().weight
    assert torch.equal(logits_of(bare, batch), untouched)
    assert torch.equal(logits_of(load_adapter(bare, folder), batch), answered)


# Starting from one.


def started(make_recipe, folder, *overrides):
    recipe = make_recipe("adapter.train_also=[projector]", f"adapter.init={folder}", *overrides)
    return adapt(load_model(recipe.model), recipe.adapter, seed=5)


@pytest.mark.parametrize("given", ["model folder", "run folder"])
def test_a_run_starts_from_the_weights_of_another(adapter, make_recipe, batch, given):
    model = started(make_recipe, adapter if given == "model folder" else adapter.parent)
    expected = logits_of(load_adapter(load_model(make_recipe().model), adapter), batch)
    assert torch.equal(logits_of(model, batch), expected)
    trained = {name for name, p in model.named_parameters() if p.requires_grad}
    anew = make_recipe("adapter.train_also=[projector]")
    fresh = adapt(load_model(anew.model), anew.adapter, seed=5)
    assert trained == {name for name, p in fresh.named_parameters() if p.requires_grad}


@pytest.mark.parametrize(
    ("override", "difference"),
    [
        ("adapter.rank=8", r"adapter\.rank: 16 -> 8"),
        ("adapter.alpha=8", r"adapter\.alpha: 32\.0 -> 8\.0"),
        ("adapter.roles=[attention]", r"adapter\.roles: \['down_proj', .*'v_proj'\] -> \['k_proj', .*'v_proj'\]"),
        ("adapter.train_also=[]", r"adapter\.train_also: \['model\.visual\.deepstack.* -> \[\]"),
    ],
)
def test_another_form_is_refused_with_the_difference(adapter, make_recipe, override, difference):
    with pytest.raises(RecipeError, match=f"has another form than the recipe's: {difference}") as raised:
        started(make_recipe, adapter, override)
    assert raised.value.where == "adapter.init"


def test_another_dropout_is_no_other_form(adapter, make_recipe):
    started(make_recipe, adapter, "adapter.dropout=0.3")


def _deepen(weights):
    weights.update(
        {name.replace("layers.1", "layers.2"): each.clone() for name, each in weights.items() if "layers.1" in name}
    )


def test_an_adapter_of_a_deeper_model_is_refused(copy, make_recipe):
    """Same rank and roles, more layers."""
    change_weights(copy, _deepen)
    with pytest.raises(UserError, match="14 weights without a place"):
        started(make_recipe, copy)


def test_a_folder_without_an_adapter_is_named(tiny):
    with pytest.raises(RecipeError, match=r"holds no adapter_config\.json") as raised:
        adapter_folder(str(tiny))
    assert raised.value.where == "adapter.init"
