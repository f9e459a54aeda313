"""The PaliGemma family, both generations: what sees what, adapters by role, freezing, vocabulary, number types."""

import msgspec
import pytest
import torch
from torch import nn

from benchmarks.dataset import read_records
from collators.base import IGNORE
from models.paligemma import (
    adapt,
    freeze,
    group_of,
    load_model,
    load_processor,
    lora_targets,
    spare_tower,
    trainable_by_group,
)
from models.paligemma_tokens import PINNED, check_vocabulary
from models.provenance import weights_hash
from models.tiny import SPECIAL as QWEN_SPECIAL
from models.tiny_paligemma import TinyPaliGemmaSize, build_tiny_paligemma
from recipes.errors import RecipeError
from tests.adapters import logits_of, steps
from tests.collators.samples import folder_images, make_collator

LANGUAGE = {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}


@pytest.fixture(scope="module")
def recipe(make_paligemma_recipe, paligemma_generation):
    return make_paligemma_recipe(generation=paligemma_generation)


@pytest.fixture(scope="module")
def make(make_paligemma_recipe, paligemma_generation):
    """A recipe of the generation, with overrides."""
    return lambda *overrides: make_paligemma_recipe(*overrides, generation=paligemma_generation)


@pytest.fixture(scope="module")
def batch(recipe, phantom_data):
    """Two records to learn, with boxes."""
    records = [record for record in read_records(phantom_data, "test") if record.target.boxes][:2]
    return make_collator(recipe, folder_images(phantom_data), targets=True)(records)


def snapshot(model):
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}


def changed(before, model):
    return [name for name, p in model.named_parameters() if name in before and not torch.equal(before[name], p)]


# What sees what.


def altered(batch, row, place):
    """The batch with another token at one place."""
    ids = batch["input_ids"].clone()
    ids[row, place] = ids[row, place] + 1
    return {**batch, "input_ids": ids}


def test_the_last_answer_token_moves_nothing_before_it(recipe, batch):
    """Pitfall 6."""
    model = load_model(recipe.model)
    place = (batch["labels"][0] != IGNORE).nonzero().max().item()
    before, after = logits_of(model, batch)[0], logits_of(model, altered(batch, 0, place))[0]
    assert (before - after)[:place].abs().max().item() < 1e-6
    assert (before - after)[place].abs().max().item() > 1e-4


def test_an_answer_token_moves_nothing_inside_the_prompt(recipe, batch):
    """Pitfall 6."""
    model = load_model(recipe.model)
    place = (batch["labels"][0] != IGNORE).nonzero().min().item()
    before, after = logits_of(model, batch)[0], logits_of(model, altered(batch, 0, place))[0]
    assert (before - after)[:place].abs().max().item() < 1e-6


def test_the_last_prompt_token_moves_the_output_at_the_first_image_position(recipe, batch):
    """Pitfall 6: image and prompt see each other."""
    model = load_model(recipe.model)
    place = (batch["labels"][0] != IGNORE).nonzero().min().item() - 1
    before, after = logits_of(model, batch)[0], logits_of(model, altered(batch, 0, place))[0]
    assert (before - after)[0].abs().max().item() > 1e-5
    single = {**batch, "token_type_ids": torch.ones_like(batch["token_type_ids"])}
    causal = [logits_of(model, each)[0] for each in (single, altered(single, 0, place))]
    assert (causal[0] - causal[1])[0].abs().max().item() == 0.0


def test_logits_to_keep_are_the_full_logits_at_the_learnt_tokens(recipe, batch):
    model = load_model(recipe.model)
    inputs = {key: value for key, value in batch.items() if key != "labels"}
    with torch.inference_mode():
        kept = model.eval()(**inputs).logits
    assert torch.allclose(kept, logits_of(model, batch)[batch["logits_to_keep"]], atol=1e-6)


def test_a_samples_logits_do_not_depend_on_padding_or_its_side(recipe, phantom_data):
    """Pitfall 8."""
    short = next(read_records(phantom_data, "test"))
    long = msgspec.structs.replace(short, question=short.question * 5)
    model = load_model(recipe.model)
    for targets in (True, False):
        collator = make_collator(recipe, folder_images(phantom_data), targets=targets)
        alone, beside = collator([short]), collator([short, long])
        real = beside["attention_mask"][0].bool()
        assert (~real).sum().item() > 20
        assert torch.allclose(logits_of(model, beside)[0][real], logits_of(model, alone)[0], atol=1e-5)


# Adapters, freezing, counts.


def test_adapters_stay_out_of_the_vision_tower(recipe):
    """Pitfall 28: the tower names its projections alike."""
    found = lora_targets(load_model(recipe.model), recipe.adapter)
    assert {name.rsplit(".", maxsplit=1)[-1] for name in found} == LANGUAGE
    assert len(found) == 2 * len(LANGUAGE)
    assert all(name.startswith("model.language_model.layers.") for name in found)


def test_the_vision_tower_gets_adapters_where_the_recipe_asks(make):
    """As published: its layers that bear the names of the roles are the query, key and value projections."""
    recipe = make("adapter.vision=true")
    found = lora_targets(load_model(recipe.model), recipe.adapter)
    tower = [name for name in found if name.startswith("model.vision_tower.")]
    assert {name.rsplit(".", maxsplit=1)[-1] for name in tower} == {"q_proj", "k_proj", "v_proj"}
    assert len(tower) == 2 * 3
    assert len(found) == 2 * (3 + len(LANGUAGE))


@pytest.mark.parametrize(
    ("overrides", "moved"),
    [
        ((), {"lora"}),
        (("adapter.vision=true",), {"lora"}),
        (("adapter.train_also=[projector]",), {"lora", "projector"}),
        (("adapter.train_also=[embeddings,head]",), {"lora", "embeddings"}),
    ],
    ids=["language", "vision too", "and projector", "and embeddings"],
)
def test_only_what_the_recipe_names_learns(make, batch, overrides, moved):
    """Pitfall 28: after two steps every other weight is bit-equal."""
    recipe = make(*overrides)
    model = adapt(load_model(recipe.model), recipe.adapter, seed=0)
    before = snapshot(model)
    steps(model, batch)
    names = changed(before, model)
    assert {group_of(name) for name in names} == moved
    assert any("vision_tower" in name for name in names) == recipe.adapter.vision


@pytest.mark.parametrize("group", ["vision", "projector", "embeddings", "language"])
def test_a_frozen_group_does_not_move_and_the_others_do(recipe, batch, group):
    model = load_model(recipe.model)
    freeze(model, (group,))
    before = snapshot(model)
    steps(model, batch)
    assert {group_of(name) for name in changed(before, model)} == {"vision", "projector", "embeddings", "language"} - {
        group
    }


def test_counts_add_up_to_the_base_model_and_the_adapter(recipe):
    base = load_model(recipe.model)
    whole = sum(parameter.numel() for parameter in base.parameters())
    model = adapt(base, recipe.adapter, seed=0)
    counts = trainable_by_group(model)
    assert set(counts) == {"lora", "vision", "projector", "embeddings", "language"}
    assert {group for group, (trainable, _) in counts.items() if trainable} == {"lora"}
    assert sum(total for group, (_, total) in counts.items() if group != "lora") == whole


def test_four_bit_base_learns_in_its_adapter_only(make, batch):
    recipe = make("model.quantization=nf4")
    base = load_model(recipe.model)
    assert type(base.get_submodule("model.language_model.layers.0.mlp.up_proj")).__name__ == "Linear4bit"
    assert type(base.get_submodule("model.vision_tower.encoder.layers.0.self_attn.q_proj")) is nn.Linear
    model = adapt(base, recipe.adapter, seed=0)
    loss = model(**{key: value for key, value in batch.items() if key != "logits_to_keep"}).loss
    loss.backward()
    assert torch.isfinite(loss)
    assert {group_of(name) for name, p in model.named_parameters() if p.grad is not None} == {"lora"}


def gradients(model, batch, tower_asked):
    """Gradients by name after one pass; appends whether the tower's output asks for a gradient."""
    tower = next(part for name, part in model.named_modules() if name.endswith("model.vision_tower"))
    tower.register_forward_hook(lambda part, inputs, output: tower_asked.append(output.last_hidden_state.requires_grad))
    model.train()
    model(**{key: value for key, value in batch.items() if key != "logits_to_keep"}).loss.backward()
    return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("vision", ["false", "true"])
def test_checkpointing_spares_a_frozen_tower_and_changes_no_gradient(make, batch, vision):
    recipe = make(f"adapter.vision={vision}")
    found = []
    for checkpointing in (False, True):
        model, asked = adapt(load_model(recipe.model), recipe.adapter, seed=0), []
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if "lora_B" in name:
                    parameter.fill_(0.01)
        if checkpointing:
            model.activation_checkpointing_enable()
            spare_tower(model)
        found.append(gradients(model, batch, asked))
        assert set(asked) == {vision == "true"}
    plain, again = found
    assert plain.keys() == again.keys()
    assert any("vision_tower" in name for name in plain) == (vision == "true")
    assert all(torch.allclose(again[name], grad, atol=1e-6) for name, grad in plain.items())


# Attention and number types.


def test_the_second_generation_caps_its_attention_and_the_first_takes_the_recipes(recipe, paligemma_generation):
    config = load_model(recipe.model).config
    assert config.vision_config._attn_implementation == "sdpa"
    assert config.text_config._attn_implementation == {1: "sdpa", 2: "eager"}[paligemma_generation]
    capped = getattr(config.text_config, "attn_logit_softcapping", None)
    assert capped == {1: None, 2: 50.0}[paligemma_generation]


def test_attention_implementations_agree(make, batch):
    logits = [logits_of(load_model(make(f"model.attention={name}").model), batch) for name in ("sdpa", "eager")]
    real = batch["attention_mask"] == 1
    assert torch.allclose(logits[0][real], logits[1][real], atol=1e-5)


def test_what_fsdp_wraps_by_is_there(recipe):
    model = load_model(recipe.model)
    present = {type(module).__name__ for module in model.modules()}
    assert {"SiglipEncoderLayer"} < set(model._no_split_modules) <= present


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_weights_have_the_recipes_type(make, dtype):
    """Pitfall 38."""
    model = load_model(make(f"model.dtype={dtype}", "train.precision=bf16").model)
    assert {parameter.dtype for parameter in model.parameters()} == {getattr(torch, dtype)}


# Vocabulary.


def test_the_processor_of_a_twin_has_the_tokens_in_the_published_order(recipe):
    tokenizer = load_processor(recipe.model, recipe.images).tokenizer
    ids = {token: tokenizer.convert_tokens_to_ids(token) for token in PINNED}
    shift = ids["<loc0000>"] - PINNED["<loc0000>"]
    assert ids == {token: number + shift for token, number in PINNED.items()}
    for token in PINNED:
        assert tokenizer(token, add_special_tokens=False)["input_ids"] == [ids[token]]


def test_a_bare_language_models_tokenizer_is_refused(make, tmp_path):
    """The stock processor adds the image token first, and so shifts every location number by one."""
    from transformers import AutoProcessor, PaliGemmaProcessor, PreTrainedTokenizerFast

    from models.tiny import train_bpe
    from models.tiny_paligemma import PIECES, SPECIAL

    bare = PreTrainedTokenizerFast(
        tokenizer_object=train_bpe(["left knee"] * 9, 300, SPECIAL, PIECES),
        pad_token="<pad>",
        eos_token="<eos>",
        bos_token="<bos>",
        unk_token="<unk>",
    )
    count = len(bare)
    whole = AutoProcessor.from_pretrained(make().model.checkpoint)
    PaliGemmaProcessor(image_processor=whole.image_processor, tokenizer=bare).save_pretrained(tmp_path)
    assert bare.convert_tokens_to_ids(["<image>", "<loc0000>"]) == [count, count + 1]
    with pytest.raises(RecipeError, match=rf"this is no PaliGemma tokenizer: <image> is {count}, not") as raised:
        load_processor(make(f"model.checkpoint={tmp_path}").model, make().images)
    assert "bare Gemma tokenizer" in raised.value.fix


class Vocabulary:
    """Stands for a tokenizer of Gemma's size."""

    def __init__(self, shift, gemma=256_000, **changes):
        self.ids = {f"word {n}": n for n in range(gemma)} | {token: n + shift for token, n in PINNED.items()}
        self.ids |= changes

    def get_vocab(self):
        return self.ids


def test_ids_of_a_vocabulary_of_gemmas_size_are_pinned():
    check_vocabulary(Vocabulary(0), "there")
    check_vocabulary(Vocabulary(-255_000, gemma=1000), "a twin")
    for wrong in (Vocabulary(1), Vocabulary(-255_000, gemma=1000, **{"<seg127>": 5})):
        with pytest.raises(RecipeError, match="this is no PaliGemma tokenizer") as raised:
            check_vocabulary(wrong, "there")
        assert raised.value.where == "there"
    missing = Vocabulary(0)
    del missing.ids["<image>"]
    with pytest.raises(RecipeError, match="<image> is missing, not 257152"):
        check_vocabulary(missing, "there")


def test_a_checkpoint_with_another_familys_processor_is_refused(make, tiny):
    with pytest.raises(RecipeError, match="has a Qwen3VLProcessor"):
        load_processor(make(f"model.checkpoint={tiny}").model, make().images)
    with pytest.raises(RecipeError, match="is of type qwen3_vl, the recipe says family paligemma"):
        load_model(make(f"model.checkpoint={tiny}").model)


# Tiny twins.


def test_the_auto_classes_load_the_real_classes_and_the_seed_decides_the_weights(tmp_path, paligemma_generation):
    from transformers import (
        AutoModelForImageTextToText,
        AutoProcessor,
        PaliGemmaForConditionalGeneration,
        PaliGemmaProcessor,
    )

    size = TinyPaliGemmaSize(
        generation=paligemma_generation, side=64, patch=16, hidden=32, layers=1, vision_hidden=32, vision_layers=1
    )
    texts = ["vqa: Is the left knee hot?", "yes ; It is.", "<loc0001><loc0002><loc0003><loc0004> left knee"] * 3
    for name, seed in (("one", 1), ("same", 1), ("other", 2)):
        build_tiny_paligemma(tmp_path / name, texts, size, seed=seed)
    assert weights_hash(tmp_path / "same") == weights_hash(tmp_path / "one")
    assert weights_hash(tmp_path / "other") != weights_hash(tmp_path / "one")
    processor = AutoProcessor.from_pretrained(tmp_path / "one", local_files_only=True)
    assert isinstance(processor, PaliGemmaProcessor)
    assert processor.image_seq_length == 16
    assert not set(QWEN_SPECIAL) & set(processor.tokenizer.get_vocab())
    for text in ("Is it?  No – 骨.\n", "<loc0001><loc0512> left knee ; <seg007>", "<eos>a"):
        ids = processor.tokenizer(text, add_special_tokens=False)["input_ids"]
        assert processor.tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False) == text
    model = AutoModelForImageTextToText.from_pretrained(tmp_path / "one", local_files_only=True)
    assert isinstance(model, PaliGemmaForConditionalGeneration)
    assert model.config.text_config.model_type == {1: "gemma", 2: "gemma2"}[paligemma_generation]
    assert not list((tmp_path / "one").glob("*.bin"))
