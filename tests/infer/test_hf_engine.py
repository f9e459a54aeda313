"""Engine `hf`: batches, padding, end tokens, state, broken numbers and broken samples."""

from types import SimpleNamespace

import pytest
import torch
from transformers import GenerationConfig

from benchmarks.dataset import read_records
from benchmarks.errors import DataError
from infer.engines.hf import HfEngine
from infer.predict import to_row
from models.qwen3_vl import load_model
from recipes.errors import UserError
from tests.collators.samples import PLAIN, folder_images, make_collator, pictures, plain_record

MIXED = [
    plain_record("Is it hot?", name="short", images=[("a", 64, 64)]),
    plain_record("word " * 20 + "?", name="middle", images=[("b", 64, 128), ("c", 128, 64)]),
    plain_record("a long question " * 12, name="long", images=[("d", 640, 320), ("e", 32, 32), ("f", 96, 96)]),
]


@pytest.fixture(scope="module")
def recipe(make_recipe):
    return make_recipe(*PLAIN)


@pytest.fixture(scope="module")
def build(recipe):
    """An engine over the tiny model; every call loads the model anew."""

    def build(*, records=MIXED, max_new_tokens=6, images=None):
        collator = make_collator(recipe, images or pictures(records), targets=False)
        return HfEngine(load_model(recipe.model).eval(), collator, max_new_tokens=max_new_tokens)

    return build


class Scripted:
    """In the place of a model: says the given token ids, then pads, whatever it is asked."""

    device = torch.device("cpu")
    dtype = torch.float32
    config = SimpleNamespace(model_type="qwen3_vl", get_text_config=lambda: None)

    def __init__(self, *rows, ends=None):
        self.rows = rows
        self.generation_config = GenerationConfig(eos_token_id=ends)

    def generate(self, input_ids, generation_config, **inputs):
        limit = generation_config.max_new_tokens
        rows = [row[:limit] for row in self.rows[: len(input_ids)]]
        width = max(len(row) for row in rows)
        padded = [row + [generation_config.pad_token_id] * (width - len(row)) for row in rows]
        return SimpleNamespace(sequences=torch.cat([input_ids, torch.tensor(padded)], dim=1), cache=None)


def scripted(recipe, *texts, end=True, max_new_tokens=64):
    collator = make_collator(recipe, pictures(MIXED), targets=False)
    rows = [collator.processor.tokenizer(text)["input_ids"] + [collator.end_id] * end for text in texts]
    return HfEngine(Scripted(*rows), collator, max_new_tokens=max_new_tokens)


# Batches and state.


def test_texts_do_not_depend_on_the_batch(build):
    engine = build()
    alone = [engine.generate([record])[0] for record in MIXED]
    assert engine.generate(MIXED) == alone
    assert engine.generate(MIXED[::-1]) == alone[::-1]
    assert engine.generate(MIXED[:2]) == alone[:2]
    assert [generated.prompt_tokens for generated in alone] == [
        length.total for length in engine.collator.measure(MIXED)
    ]
    assert len({generated.text for generated in alone}) > 1


def test_no_state_is_left_between_calls(build):
    engine = build()
    engine.generate([MIXED[0]])
    after = engine.generate([MIXED[2]])
    assert after == build().generate([MIXED[2]])


def test_the_first_token_is_the_most_likely_of_a_plain_forward(build):
    engine = build(max_new_tokens=1)
    inputs = engine.collator(MIXED)
    with torch.inference_mode():
        logits = engine.model(**inputs).logits
    # Padded on the left: the last position is the last of every prompt.
    expected = engine.collator.processor.tokenizer.batch_decode(logits[:, -1].argmax(dim=-1)[:, None])
    assert [generated.text for generated in engine.generate(MIXED)] == expected


def test_later_tokens_are_the_most_likely_given_the_earlier_ones(build):
    engine = build(max_new_tokens=4)
    record = MIXED[1]
    inputs = engine.collator([record])
    tokens = []
    for _ in range(4):
        with torch.inference_mode():
            token = engine.model(**inputs, use_cache=False).logits[:, -1].argmax(dim=-1, keepdim=True)
        tokens.append(token.item())
        inputs["input_ids"] = torch.cat([inputs["input_ids"], token], dim=1)
        for key, value in (("attention_mask", 1), ("mm_token_type_ids", 0)):
            inputs[key] = torch.cat([inputs[key], torch.tensor([[value]])], dim=1)
    assert engine.generate([record])[0].text == engine.collator.processor.tokenizer.decode(tokens)


@pytest.mark.parametrize(
    "hidden",
    [
        {"repetition_penalty": 50.0},
        {"no_repeat_ngram_size": 1},
        {"do_sample": True, "temperature": 9.0, "top_k": 3},
        {"min_new_tokens": 6, "suppress_tokens": list(range(300))},
    ],
    ids=lambda hidden: next(iter(hidden)),
)
def test_the_checkpoints_own_decoding_settings_have_no_effect(build, hidden):
    plain = build()
    expected = plain.generate(MIXED)
    model = load_model_with(build, hidden)
    assert HfEngine(model, plain.collator, max_new_tokens=6).generate(MIXED) == expected


def load_model_with(build, settings):
    model = build().model
    ends = model.generation_config.eos_token_id
    model.generation_config = GenerationConfig(eos_token_id=ends, pad_token_id=0, **settings)
    return model


# The end of a text.


def test_special_tokens_stay_and_only_the_end_and_padding_go(recipe):
    texts = ["<|vision_start|>(10,20),(30,40)<|vision_end|> lesion", " no", "<|image_pad|>\n a  b."]
    results = scripted(recipe, *texts).generate(MIXED)
    assert [generated.text for generated in results] == texts
    assert {generated.finish for generated in results} == {"stop"}
    ids = [len(make_ids(recipe, text)) for text in texts]
    assert [generated.new_tokens for generated in results] == [count + 1 for count in ids]


def make_ids(recipe, text):
    return make_collator(recipe, pictures(MIXED), targets=False).processor.tokenizer(text)["input_ids"]


def test_nothing_after_the_first_end_token_counts(recipe):
    engine = scripted(recipe, "yes<|im_end|>no", end=True)
    (result,) = engine.generate(MIXED[:1])
    assert (result.text, result.finish) == ("yes", "stop")


def test_the_checkpoints_other_end_tokens_end_a_text_too(recipe):
    collator = make_collator(recipe, pictures(MIXED), targets=False)
    ids = collator.processor.tokenizer("yes<|endoftext|>")["input_ids"]
    engine = HfEngine(Scripted(ids, ends=[ids[-1]]), collator, max_new_tokens=9)
    assert engine.generate(MIXED[:1])[0].text == "yes"


def test_an_endless_text_stops_at_the_limit_says_so_and_harms_no_other(recipe):
    engine = scripted(recipe, "| " * 40, "no<|im_end|>", end=False, max_new_tokens=64)
    endless, other = engine.generate(MIXED[:2])
    assert (endless.finish, endless.new_tokens) == ("length", 64)
    assert endless.text == "| " * 32
    assert (other.text, other.finish) == ("no", "stop")


def test_a_cut_answer_is_invalid_as_truncated(make_recipe, phantom_data):
    recipe = make_recipe()
    record = next(record for record in read_records(phantom_data, "test") if record.task == "grounding")
    collator = make_collator(recipe, folder_images(phantom_data), targets=False)
    answer = collator.processor.tokenizer(collator.encoder.target_text(record))["input_ids"]
    engine = HfEngine(Scripted(answer), collator, max_new_tokens=len(answer) - 1)
    row = to_row(record, engine.generate([record])[0], collator.encoder.decode)
    assert (row.finish, row.tokens.new, row.answer) == ("length", len(answer) - 1, None)
    assert row.invalid.startswith("truncated: ")
    assert row.text


# What goes wrong.


@pytest.mark.parametrize("weight", ["model.language_model.norm.weight", "model.visual.merger.linear_fc2.weight"])
def test_numbers_that_overflow_make_an_error_row_with_the_type(make_recipe, weight):
    recipe = make_recipe(*PLAIN, "model.dtype=float16", "train.precision=fp16")
    model = load_model(recipe.model).eval()
    with torch.no_grad():
        model.get_parameter(weight).mul_(1e5)
    engine = HfEngine(model, make_collator(recipe, pictures(MIXED), targets=False), max_new_tokens=4)
    for record, generated in zip(MIXED, engine.generate(MIXED), strict=True):
        assert generated.text is None
        row = to_row(record, generated, engine.collator.encoder.decode)
        assert (row.id, row.error, row.text, row.answer) == (
            record.id,
            "logits are not finite in torch.float16",
            None,
            None,
        )


def test_one_broken_row_harms_no_other(build):
    engine = build()
    expected = engine.generate(MIXED)
    forward = engine.model.lm_head.forward

    def spoil(hidden):
        logits = forward(hidden).clone()
        logits[1] = torch.nan
        return logits

    engine.model.lm_head.forward = spoil
    results = engine.generate(MIXED)
    assert results[1].error == "logits are not finite in torch.float32"
    assert [results[0], results[2]] == [expected[0], expected[2]]


@pytest.mark.parametrize("bad", [(0,), (1,), (0, 2), (0, 1, 2)])
def test_a_sample_that_cannot_be_read_is_an_error_row_that_names_it(build, bad):
    source = pictures(MIXED)
    lost = {image.path for number in bad for image in MIXED[number].images}

    def images(image, where):
        if image.path in lost:
            raise DataError(f"image file {image.path} does not exist", where=where, fix="look for it")
        return source(image, where)

    expected = build().generate(MIXED)
    results = build(images=images).generate(MIXED)
    for number, record in enumerate(MIXED):
        if number in bad:
            assert results[number].text is None
            assert f"record {record.id} (rows.jsonl row 3)" in results[number].error
            assert "does not exist" in results[number].error
        else:
            assert results[number] == expected[number]


def full(*arguments, **inputs):
    raise torch.OutOfMemoryError("tried to allocate 9 GiB")


class Unmovable(torch.Tensor):
    """Inputs for which a device has no room."""

    to = full


@pytest.mark.parametrize("when", ["moving the inputs", "generating"])
def test_out_of_memory_says_what_was_tried_and_what_helps(build, monkeypatch, when):
    engine = build()
    longest = max(length.total for length in engine.collator.measure(MIXED))
    if when == "generating":
        monkeypatch.setattr(engine.model, "generate", full)
    else:
        inputs = {key: value.as_subclass(Unmovable) for key, value in engine.collator(MIXED).items()}
        monkeypatch.setattr(engine, "inputs", lambda records: inputs)
    with pytest.raises(UserError, match=rf"out of memory for 3 questions of up to {longest} tokens \+ 6") as raised:
        engine.generate(MIXED)
    assert raised.value.where == "records short to long"
    assert "decoding.batch_size" in raised.value.fix
    # Resuming refuses other settings, so the advice must not end in that refusal.
    assert "another --out" in raised.value.fix
