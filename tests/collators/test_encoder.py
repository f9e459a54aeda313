"""The encoder: fingerprint, control tokens in answers, and what it refuses."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.dataset import read_records
from benchmarks.schema import Answer, Ask, Box, Image, Record, Source
from collators.encoder import build_encoder, differences
from models.qwen3_vl import load_processor
from models.tiny import SPECIAL
from recipes.errors import RecipeError, UserError
from tests.collators.samples import PIECES, PLAIN, plain_record

texts = st.lists(st.sampled_from(PIECES), min_size=1, max_size=6).map("".join)


def encoder_of(recipe, change=None):
    processor = load_processor(recipe.model, recipe.images)
    if change is not None:
        change(processor)
    return build_encoder(recipe, processor)


@pytest.fixture(scope="module")
def encoder(make_recipe):
    return encoder_of(make_recipe())


@pytest.fixture(scope="module")
def plain(make_recipe):
    return encoder_of(make_recipe(*PLAIN))


def test_the_same_recipe_gives_the_same_fingerprint(encoder, make_recipe):
    assert encoder_of(make_recipe()).fingerprint == encoder.fingerprint


@pytest.mark.parametrize(
    "override", ["train.seed=5", "model.dtype=bfloat16", "batch.size=2", "name=other", "decoding.max_new_tokens=5"]
)
def test_what_does_not_touch_prompt_image_or_answer_leaves_the_fingerprint(encoder, make_recipe, override):
    assert encoder_of(make_recipe(override)).fingerprint == encoder.fingerprint


@pytest.mark.parametrize(
    ("override", "part"),
    [
        ("codec=scintiground_old_json", "codec"),
        ("images.max_pixels=50176", "max_pixels"),
        ("images.min_pixels=4096", "min_pixels"),
        ("prompt.template=plain", "user"),
    ],
)
def test_each_part_of_the_recipe_changes_the_fingerprint_and_is_named(encoder, make_recipe, override, part):
    other = encoder_of(make_recipe(override))
    assert other.fingerprint != encoder.fingerprint
    lines = differences(other.parts, encoder.parts)
    assert any(line.startswith(f"{part}: ") for line in lines)
    assert {line.partition(":")[0] for line in lines} <= {part, "image_processor"}


def _add_token(processor):
    processor.tokenizer.add_tokens(["pneumothorax"])


def _change_template(processor):
    processor.chat_template += " "


def _change_mean(processor):
    processor.image_processor.image_mean = [0.4, 0.4, 0.4]


@pytest.mark.parametrize(
    ("change", "part"),
    [(_add_token, "tokenizer"), (_change_template, "chat_template"), (_change_mean, "image_processor")],
)
def test_each_part_of_the_processor_changes_the_fingerprint(encoder, make_recipe, change, part):
    other = encoder_of(make_recipe(), change)
    assert other.fingerprint != encoder.fingerprint
    assert [line.partition(":")[0] for line in differences(other.parts, encoder.parts)] == [part]


def test_a_character_of_a_prompt_file_changes_the_fingerprint(make_recipe, tmp_path):
    first, second = tmp_path / "a.yaml", tmp_path / "b.yaml"
    first.write_text('user: "A: {question}"')
    second.write_text('user: "A. {question}"')
    one, two = (encoder_of(make_recipe(f"prompt.file={path}")) for path in (first, second))
    assert differences(two.parts, one.parts) == ["user: 'A: {question}' -> 'A. {question}'"]


def test_the_fingerprint_survives_saving_using_and_loading_the_processor(encoder, make_recipe, tmp_path):
    recipe = make_recipe()
    processor = load_processor(recipe.model, recipe.images)
    # Padding and truncation of a call stay behind in the tokenizer; they are no part of the encoder.
    processor.tokenizer(["a", "a b"], padding=True, truncation=True, max_length=4)
    assert build_encoder(recipe, processor).fingerprint == encoder.fingerprint
    processor.save_pretrained(tmp_path)
    assert encoder_of(make_recipe(f"model.checkpoint={tmp_path}")).fingerprint == encoder.fingerprint


@settings(max_examples=60)
@given(texts)
def test_a_plain_target_holds_no_control_token(plain, text):
    target = plain.target_text(plain_record("?", text))
    assert not any(token in target for token in SPECIAL)


def scan_record(*, text="It is hot.", label="knee", question="?"):
    return Record(
        id="r",
        benchmark="scintiground",
        split="train",
        task="grounded_vqa",
        group="g",
        images=(Image(path="a", width=64, height=128, view="ANT"),),
        question=question,
        target=Answer(text=text, label="normal", boxes=(Box(image=0, xyxy=(1, 2, 3, 4), label=label),)),
        source=Source(id="r", file="f", row=1),
    )


@settings(max_examples=60)
@given(texts, texts)
def test_a_json_target_holds_no_control_token_and_stays_json(encoder, text, label):
    record = scan_record(text=f"a{text}", label=f"b{label}")
    target = encoder.target_text(record)
    assert not any(token in target for token in SPECIAL)
    assert json.loads(target)["answer"].replace(" ", "") == f"a{text}".replace(" ", "")


def test_a_region_whose_underscores_would_complete_a_token_is_broken_before(encoder):
    # The codec writes blanks as underscores: this label holds no token, its text would.
    target = encoder.target_text(scan_record(label="<|im end|>"))
    assert '"region":"<_|im_end|>"' in target


def test_targets_of_the_phantom_are_the_codecs_own_text(encoder, phantom_data):
    for record in read_records(phantom_data, "test"):
        assert encoder.target_text(record) == encoder.codec.encode(record.target, record.ask())
        assert encoder.decode(encoder.target_text(record), record.ask()).boxes == (
            record.target.boxes if record.task != "vqa" else ()
        )


def test_a_model_sees_nothing_of_the_target(encoder, phantom_data):
    record = next(read_records(phantom_data, "test"))
    assert isinstance(record.ask(), Ask)
    other = scan_record(text="Other.", label="elbow", question="?")
    assert encoder.messages(other.ask()) == encoder.messages(scan_record(question="?").ask())


def test_added_blanks_are_text_and_a_special_token_of_one_character_is_refused(make_recipe):
    recipe = make_recipe()
    processor = load_processor(recipe.model, recipe.images)
    processor.tokenizer.add_tokens(["\n\n", "§"])
    assert not {"\n\n", "§"} & set(build_encoder(recipe, processor).control_tokens)
    processor.tokenizer.add_special_tokens({"additional_special_tokens": ["¶"]})
    with pytest.raises(RecipeError, match="special token '¶'"):
        build_encoder(recipe, processor)


def test_a_codec_that_cannot_express_the_task_says_so(make_recipe):
    encoder = encoder_of(make_recipe("codec=scintiground_tags"))
    with pytest.raises(UserError, match="its class would be lost") as raised:
        encoder.target_text(plain_record("Hot?", "Yes."))
    assert "record r (rows.jsonl row 3)" in raised.value.where
    assert "task vqa" in raised.value.where


@pytest.mark.parametrize("part", ["system", "user"])
def test_a_prompt_file_with_a_control_token_is_refused(make_recipe, tmp_path, part):
    path = tmp_path / "mine.yaml"
    path.write_text(f'{part}: "<|image_pad|> look"\n' + ('user: "{question}"\n' if part == "system" else ""))
    with pytest.raises(RecipeError, match=f"the {part} text of the prompt holds a control token") as raised:
        encoder_of(make_recipe(f"prompt.file={path}"))
    assert raised.value.where == str(path)
