"""From a folder to a system: which encoder is in force, what fits, what is refused."""

import shutil

import pytest
import torch

from benchmarks.dataset import read_records
from benchmarks.errors import DataError
from infer.load import Loader, describe, load_system, model_folder
from models.provenance import environment, read_encoder, weights_hash
from recipes.errors import RecipeError, UserError
from recipes.load import dump_recipe
from tests.collators.samples import folder_images


def load(weights, *overrides, recipe_path=None, allow_mismatch=False):
    return load_system(str(weights), recipe_path=recipe_path, overrides=overrides, allow_mismatch=allow_mismatch)


@pytest.fixture
def copy(model_run, tmp_path):
    """A model folder to spoil."""
    shutil.copytree(model_run / "model", tmp_path / "model")
    return tmp_path / "model"


def test_a_run_folder_is_its_model_folder(model_run):
    run, model = load(model_run), load(model_run / "model")
    assert model_folder(str(model_run)) == model_run / "model"
    assert run.encoder.fingerprint == model.encoder.fingerprint == read_encoder(model_run / "model").fingerprint
    assert run.weights_hash == model.weights_hash == weights_hash(model_run / "model")
    assert run.base_weights_hash is None
    assert not run.model.training


def test_an_adapter_folder_answers_as_plain_peft_on_plain_transformers(adapter_run, phantom_data):
    from peft import PeftModel
    from transformers import AutoModelForImageTextToText, AutoProcessor

    system = load(adapter_run)
    assert system.base_weights_hash == weights_hash(adapter_run.parent / "base")
    records = list(read_records(phantom_data, "test"))[:4]
    images = folder_images(phantom_data)
    ours = system.engine(images).generate(records)

    base = AutoModelForImageTextToText.from_pretrained(adapter_run.parent / "base")
    plain = PeftModel.from_pretrained(base, str(adapter_run / "model")).eval()
    processor = AutoProcessor.from_pretrained(adapter_run / "model")
    for record, generated in zip(records, ours, strict=True):
        prompt = processor.apply_chat_template(
            system.encoder.messages(record.ask()), tokenize=False, add_generation_prompt=True
        )
        opened = [images(image, "") for image in record.images]
        inputs = processor(text=[prompt], images=opened, return_tensors="pt")
        with torch.inference_mode():
            output = plain.generate(**inputs, max_new_tokens=12, do_sample=False)
        new = output[0, inputs["input_ids"].shape[1] :]
        assert processor.tokenizer.decode(new[: generated.new_tokens]).removesuffix("<|im_end|>") == generated.text
    untuned = load(adapter_run.parent / "base", recipe_path=adapter_run / "model" / "recipe.yaml")
    assert [g.text for g in untuned.engine(images).generate(records)] != [g.text for g in ours]


def test_the_hash_sees_one_changed_weight(copy):
    from safetensors.torch import load_file, save_file

    before = weights_hash(copy)
    path = copy / "model.safetensors"
    weights = load_file(path)
    next(iter(weights.values())).view(-1)[0] += 1
    save_file(weights, path, metadata={"format": "pt"})
    assert weights_hash(copy) != before


@pytest.mark.parametrize(
    ("override", "named"),
    [
        ("images.max_pixels=50176", "max_pixels: 1003520 -> 50176"),
        ("images.min_pixels=2048", "min_pixels: 1024 -> 2048"),
        ("codec=scintiground_old_json", "codec: 'scintiground_json' -> 'scintiground_old_json'"),
        ("prompt.template=plain", "user: '{task}: {question}' -> '{question}'"),
    ],
)
def test_another_encoder_than_trained_with_is_refused_naming_both(model_run, override, named):
    with pytest.raises(UserError, match="the encoder differs from the one these weights were trained with") as raised:
        load(model_run, override)
    assert named in raised.value.message
    assert raised.value.where.endswith("encoder.json")
    assert "--allow-encoder-mismatch" in raised.value.fix
    assert load(model_run, override, allow_mismatch=True).encoder.fingerprint != load(model_run).encoder.fingerprint


def test_another_tokenizer_or_chat_template_in_the_folder_is_refused(copy):
    template = copy / "chat_template.jinja"
    template.write_text(template.read_text() + " ")
    with pytest.raises(UserError, match="chat_template: "):
        load(copy)


def test_what_is_not_the_encoder_may_be_overridden(model_run):
    system = load(model_run, "decoding.max_new_tokens=3", "model.dtype=bfloat16", "train.precision=bf16")
    assert system.recipe.decoding.max_new_tokens == 3
    assert system.model.dtype == torch.bfloat16


def test_bare_weights_need_a_recipe_and_take_one(tiny, make_recipe, tmp_path):
    with pytest.raises(RecipeError, match="no recipe beside") as raised:
        load(tiny)
    assert "--recipe" in raised.value.fix
    path = tmp_path / "recipe.yaml"
    path.write_text(dump_recipe(make_recipe()))
    assert load(tiny, recipe_path=str(path)).weights_hash == weights_hash(tiny)


def test_a_folder_copied_away_needs_nothing_else(model_run, tmp_path):
    shutil.copytree(model_run / "model", tmp_path / "elsewhere")
    moved = load(tmp_path / "elsewhere")
    assert moved.encoder.fingerprint == load(model_run).encoder.fingerprint


def test_an_adapter_that_does_not_fit_is_refused(adapter_run, tmp_path):
    """pitfall 29."""
    from safetensors.torch import load_file, save_file

    shutil.copytree(adapter_run / "model", tmp_path / "model")
    path = tmp_path / "model" / "adapter_model.safetensors"
    weights = load_file(path)
    save_file({name: weight for name, weight in weights.items() if "layers.0.mlp" not in name}, path)
    with pytest.raises(UserError, match="does not fit its base model: 6 weights missing"):
        load(tmp_path)


def test_another_base_than_trained_on_is_refused(adapter_run, tmp_path):
    from safetensors.torch import load_file, save_file

    shutil.copytree(adapter_run.parent / "base", tmp_path / "base")
    path = tmp_path / "base" / "model.safetensors"
    assert load(adapter_run, f"model.checkpoint={tmp_path / 'base'}").base_weights_hash == weights_hash(path.parent)
    weights = load_file(path)
    next(iter(weights.values())).view(-1)[0] += 1
    save_file(weights, path, metadata={"format": "pt"})
    with pytest.raises(UserError, match="are not those this adapter was trained on"):
        load(adapter_run, f"model.checkpoint={tmp_path / 'base'}")


def test_a_base_that_is_used_again_has_its_own_generation_settings_again(adapter_run, phantom_data):
    """An engine leaves its own on the model; the next engine takes the end tokens from there."""
    described = describe(str(adapter_run), recipe_path=None, overrides=())
    loader = Loader()
    first = loader.load(described)
    base, own = first.model.get_base_model(), first.model.generation_config.to_dict()
    first.engine(folder_images(phantom_data)).generate(list(read_records(phantom_data, "test"))[:1])
    again = loader.load(described)
    assert again.model.get_base_model() is base
    assert again.model.generation_config.to_dict() == own


def test_a_missing_base_is_named(adapter_run):
    with pytest.raises(RecipeError, match="checkpoint /nothing/here cannot be loaded"):
        load(adapter_run, "model.checkpoint=/nothing/here")


def test_a_hub_name_that_cannot_be_reached_is_named(make_recipe, tmp_path, monkeypatch):
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    path = tmp_path / "recipe.yaml"
    path.write_text(dump_recipe(make_recipe()))
    with pytest.raises(RecipeError, match="checkpoint nobody/nothing cannot be loaded"):
        load("nobody/nothing", "model.checkpoint=nobody/nothing", recipe_path=str(path))


def test_weights_from_the_hub_are_named_by_their_commit(tiny, adapter_run, make_recipe, tmp_path, monkeypatch):
    """Weights of no folder, played by the tiny model as transformers leaves it after a download."""
    import models.qwen3_vl as family

    def downloaded(model, **options):
        loaded = load_model(model.model_copy(update={"checkpoint": str(base)}), **options)
        loaded.config._commit_hash = "0123abc"
        return loaded

    base = adapter_run.parent / "base"
    load_model, load_processor = family.load_model, family.load_processor
    monkeypatch.setattr(family, "load_model", downloaded)
    monkeypatch.setattr(
        family,
        "load_processor",
        lambda model, images: load_processor(model.model_copy(update={"checkpoint": str(tiny)}), images),
    )
    path = tmp_path / "recipe.yaml"
    path.write_text(dump_recipe(make_recipe("model.checkpoint=some/name")))
    assert load("some/name", recipe_path=str(path)).weights_hash == "hub:0123abc"
    adapted = load(adapter_run, "model.checkpoint=some/name")
    assert adapted.weights_hash == weights_hash(adapter_run / "model")
    assert adapted.base_weights_hash == "hub:0123abc"


def test_an_unfinished_run_is_told_from_a_wrong_path(tmp_path):
    (tmp_path / "checkpoints").mkdir()
    with pytest.raises(UserError, match=r"holds neither adapter_config\.json nor config\.json") as raised:
        load(tmp_path)
    assert "finish the training run" in raised.value.fix
    with pytest.raises(UserError, match="is not a folder with weights"):
        load(tmp_path / "nothing")
    with pytest.raises(RecipeError, match="there is no folder runs/nothing; if it is a name on the hub"):
        load("runs/nothing")


@pytest.mark.parametrize(
    ("content", "message"), [("{", "not an encoder description"), ("{}", "not an encoder description")]
)
def test_a_broken_encoder_description_is_named(copy, content, message):
    (copy / "encoder.json").write_text(content)
    with pytest.raises(DataError, match=message) as raised:
        load(copy)
    assert raised.value.where == str(copy / "encoder.json")


def test_a_missing_encoder_description_is_named(tmp_path):
    with pytest.raises(DataError, match=r"encoder.json is missing"):
        read_encoder(tmp_path)


def test_the_environment_names_versions_but_no_place():
    facts = environment()
    assert {"torch", "transformers", "peft"} <= set(facts["versions"])
    assert "/" not in str(facts)
