"""Scores of classes: those of a plain forward over the same tokens, in any batch, beside the same texts as ever."""

import math
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
import torch

import models
from benchmarks.dataset import read_records
from benchmarks.schema import Answer
from benchmarks.scintiground_text import CLASS_WORDS
from collators.codecs.base import ClosedForm
from collators.codecs.registry import get_codec
from infer.engines.hf import HfEngine
from infer.engines.label_tokens import label_tokens
from infer.engines.shared_prefix import SharedPrefixEngine
from infer.load import load_system
from models.qwen3_vl import load_model
from tests.collators.samples import PLAIN, folder_images, make_collator, pictures, plain_record

FIRST = "codec=scintiground_class_first"
DEMO = Path(models.__file__).parent / "demo_base"


def record_of(task, question, name, *images):
    return msgspec.structs.replace(plain_record(question, name=name, images=images), task=task)


# Questions of every length and task, so that rows differ in padding, in image tokens and in what is scored.
MIXED = [
    record_of("vqa", "Is it hot?", "short", ("a", 64, 64)),
    record_of("grounding", "Where is " + "the knee " * 9, "none", ("g", 64, 64)),
    record_of("grounded_vqa", "word " * 20 + "?", "middle", ("b", 64, 128), ("c", 128, 64)),
    record_of("vqa", "a long question " * 12, "long", ("d", 640, 320), ("e", 32, 32), ("f", 96, 96)),
]


@pytest.fixture(scope="module")
def build(make_recipe):
    """An engine over the tiny model; every call loads the model anew."""

    def build(*overrides, codec=None, max_new_tokens=5, records=MIXED):
        recipe = make_recipe(*overrides)
        collator = make_collator(recipe, pictures(records), targets=False)
        if codec is not None:
            collator.encoder = replace(collator.encoder, codec=codec)
        return HfEngine(load_model(recipe.model).eval(), collator, max_new_tokens=max_new_tokens)

    return build


def unpacked(engine):
    """A collator of the engine's questions, each in a row of its own."""
    collator = engine.collator
    return type(collator)(collator.encoder, collator.processor, collator.pictures.images, targets=False)


def plain_score(engine, record, context, scored):
    """Sum of log-softmax at the scored tokens, from one forward without padding or cache; context follows the prompt."""
    inputs = unpacked(engine)([record])
    tail = torch.tensor([context + scored])
    inputs["input_ids"] = torch.cat([inputs["input_ids"], tail], dim=1)
    inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
    inputs["mm_token_type_ids"] = torch.cat([inputs["mm_token_type_ids"], torch.zeros_like(tail)], dim=1)
    with torch.inference_mode():
        chances = engine.model(**inputs, use_cache=False).logits[0].double().log_softmax(dim=-1)
    first = len(chances) - len(scored)
    return sum(chances[first + t - 1, token].item() for t, token in enumerate(scored))


class Stub:
    """A codec of any closed form, for the task `vqa`."""

    name = "stub"

    def __init__(self, *labels, opening='{"class":"', closing='"}'):
        self.form = ClosedForm(labels=labels, opening=opening, closing=closing)

    def decode(self, text, ask):
        return Answer(text=text)

    def closed_form(self, ask):
        return self.form if ask.task == "vqa" else None

    def class_offset(self, text, ask):
        return None


# Directly after the prompt.


def test_each_score_is_that_of_the_targets_own_tokens_in_a_plain_forward(build):
    engine = build(FIRST)
    tokenizer = engine.collator.processor.tokenizer
    codec = engine.collator.encoder.codec
    for record, generated in zip(MIXED, engine.generate(MIXED), strict=True):
        if record.task == "grounding":
            assert (generated.label_scores, generated.label_scores_at) == (None, None)
            continue
        assert generated.label_scores_at == "prompt"
        assert tuple(generated.label_scores) == CLASS_WORDS[record.task]
        form = codec.closed_form(record.ask())
        for label, score in generated.label_scores.items():
            ids = tokenizer(form.opening + label + form.closing)["input_ids"]
            if record.task == "vqa":
                ids = ids[:-1]  # the last quote: it shares a token with a sentence that begins with a brace
            first = len(tokenizer(form.opening)["input_ids"])
            assert tokenizer.decode(ids[first:]).startswith(label + form.closing[:-1])
            assert score == pytest.approx(plain_score(engine, record, ids[:first], ids[first:]), abs=1e-4)


LABELS = ("no", "not", "nothing at all", "normal", "yes", "yes and no", "7", "77")


@pytest.mark.parametrize("closing", ['"}', '","answer":"'])
@pytest.mark.parametrize("opening", ['{"class":"', ""])
def test_classes_of_several_tokens_and_with_shared_ones(build, opening, closing):
    codec = Stub(*LABELS, opening=opening, closing=closing)
    engine = build(codec=codec)
    tokenizer = engine.collator.processor.tokenizer
    first, ids = label_tokens(tokenizer, codec.form, opening).context, {}
    for label in LABELS:
        whole = tokenizer(opening + label + closing)["input_ids"]
        assert whole[: len(first)] == first
        ids[label] = whole[len(first) :]
    assert len({len(tokens) for tokens in ids.values()}) > 1
    assert len({tokens[0] for tokens in ids.values()}) < len(ids)
    for record, generated in zip(MIXED, engine.generate(MIXED), strict=True):
        if record.task == "vqa":
            expected = {label: plain_score(engine, record, first, tokens) for label, tokens in ids.items()}
            assert generated.label_scores == pytest.approx(expected, abs=1e-4)
            assert 0 < sum(map(math.exp, generated.label_scores.values())) <= 1 + 1e-6


def test_classes_of_one_token_each_have_the_models_own_probabilities(build):
    # Every token of the vocabulary that stands for whole text is a class, and nothing needs to close it.
    tokenizer = build(FIRST).collator.processor.tokenizer
    words = [tokenizer.decode([i]) for i in range(len(tokenizer))]
    alone = {word for i, word in enumerate(words) if tokenizer(word)["input_ids"] == [i]}
    engine = build(codec=Stub(*sorted(alone)[:150], opening="", closing=""))
    (generated,) = engine.generate(MIXED[:1])
    inputs = engine.collator(MIXED[:1])
    with torch.inference_mode():
        chances = engine.model(**inputs).logits[0, -1].softmax(dim=-1)
    listed = [tokenizer(word)["input_ids"][0] for word in sorted(alone)[:150]]
    assert sum(map(math.exp, generated.label_scores.values())) == pytest.approx(chances[listed].sum().item(), abs=1e-5)


def test_scores_do_not_depend_on_the_batch(build):
    engine = build(FIRST)
    alone = [engine.generate([record])[0] for record in MIXED]
    for order in ([0, 1, 2, 3], [3, 2, 1, 0], [1, 2], [0, 3], [2, 2, 0]):
        for number, generated in zip(order, engine.generate([MIXED[n] for n in order]), strict=True):
            same(generated, alone[number])
    assert engine.generate([MIXED[1]])[0].label_scores is None


def same(one, other):
    assert replace(one, label_scores=None) == replace(other, label_scores=None)
    assert (one.label_scores is None) == (other.label_scores is None)
    if one.label_scores is not None:
        assert one.label_scores == pytest.approx(other.label_scores, abs=1e-4)
        assert list(one.label_scores) == list(other.label_scores)


def test_scores_depend_on_the_image(build):
    engine = build(FIRST)
    other = msgspec.structs.replace(MIXED[0], images=(msgspec.structs.replace(MIXED[0].images[0], path="g"),))
    one, two = engine.generate([MIXED[0], other])
    assert one.label_scores != pytest.approx(two.label_scores, abs=1e-4)


def test_texts_are_those_without_scores(build):
    plain, scored = build(*PLAIN), build("prompt.template=plain", FIRST)
    assert [g.label_scores for g in plain.generate(MIXED)] == [None] * 4
    kept = [replace(g, label_scores=None, label_scores_at=None) for g in scored.generate(MIXED)]
    assert kept == plain.generate(MIXED)


@pytest.mark.parametrize("limit", [1, 2, 9])
def test_scores_do_not_depend_on_the_text(build, limit):
    for one, other in zip(
        build(FIRST).generate(MIXED), build(FIRST, max_new_tokens=limit).generate(MIXED), strict=True
    ):
        assert one.label_scores == pytest.approx(other.label_scores, abs=1e-5)


def test_images_are_seen_once_and_logits_are_made_where_they_are_needed(build, monkeypatch):
    engine = build(FIRST)
    seen, widths = [], []
    vision = engine.model.model.visual.forward
    head = engine.model.lm_head.forward

    def look(*arguments, **named):
        seen.append(1)
        return vision(*arguments, **named)

    def count(hidden):
        widths.append(hidden.shape[1])
        return head(hidden)

    monkeypatch.setattr(engine.model.model.visual, "forward", look)
    monkeypatch.setattr(engine.model.lm_head, "forward", count)
    results = engine.generate(MIXED)
    assert len(seen) == 1
    plans = [engine._plan(r, [], g) for r, g in zip(MIXED, results, strict=True)]
    longest = max(len(ids) for plan in plans if plan for ids in plan.scored.values())
    # Five tokens of text, then one pass for each of the two classes.
    assert widths == [1] * 5 + [longest] * 2


def test_an_adapter_scores_with_its_weights(adapter_run, make_recipe):
    system = load_system(str(adapter_run), recipe_path=None, overrides=[FIRST], allow_mismatch=True)
    engine = system.engine(pictures(MIXED))
    bare = HfEngine(load_model(system.recipe.model).eval(), unpacked(engine), max_new_tokens=2)
    form = system.encoder.codec.closed_form(MIXED[0].ask())
    tokens = label_tokens(engine.collator.processor.tokenizer, form, form.opening)
    found = engine.generate(MIXED)[0].label_scores
    assert found == pytest.approx(
        {label: plain_score(engine, MIXED[0], tokens.context, ids) for label, ids in tokens.scored.items()}, abs=1e-4
    )
    assert found != pytest.approx(bare.generate(MIXED)[0].label_scores, abs=1e-4)


# After generated words: the committed base writes the paper's form.


@pytest.fixture(scope="module", params=["true", "false"], ids=["shared", "separate"])
def demo(phantom_data, request):
    system = load_system(str(DEMO), recipe_path=None, overrides=[f"decoding.share_images={request.param}"])
    by_task = {}
    for record in read_records(phantom_data, "test"):
        by_task.setdefault(record.task, []).append(record)
    records = [record for some in by_task.values() for record in some[:3]]
    return system.engine(folder_images(phantom_data)), records


def test_scores_in_the_papers_form_follow_the_models_own_words(demo):
    engine, records = demo
    tokenizer = engine.collator.processor.tokenizer
    scored = 0
    for record, generated in zip(records, engine.generate(records), strict=True):
        form = engine.collator.encoder.codec.closed_form(record.ask())
        place = generated.text.find('"class":"')
        assert (generated.label_scores is None) == (form is None or place < 0)
        if generated.label_scores is None:
            assert generated.label_scores_at is None
            continue
        scored += 1
        assert generated.label_scores_at == "generated"
        before = tokenizer(generated.text[: place + 9])["input_ids"]
        for label, score in generated.label_scores.items():
            ids = tokenizer(label + form.closing)["input_ids"]
            assert score == pytest.approx(plain_score(engine, record, before, ids), abs=1e-4)
        assert sum(map(math.exp, generated.label_scores.values())) <= 1 + 1e-6
        # Greedy decoding chose the class: it is the likelier one where a class is one token.
        assert generated.text[place + 9 :].startswith(max(generated.label_scores, key=generated.label_scores.get))
    assert scored >= 4


def test_scores_in_the_papers_form_do_not_depend_on_the_batch(demo):
    engine, records = demo
    for record, generated in zip(records, engine.generate(records), strict=True):
        same(generated, engine.generate([record])[0])


def test_a_text_cut_before_the_class_has_no_scores_and_one_cut_behind_it_has(demo, phantom_data):
    engine, records = demo
    record = next(r for r in records if engine.generate([r])[0].label_scores is not None)
    full, usual = engine.generate([record])[0], engine.max_new_tokens
    tokens = engine.collator.processor.tokenizer(full.text[: full.text.find('"class":"') + 9])["input_ids"]
    for limit in (len(tokens) - 1, len(tokens)):
        engine.max_new_tokens = engine.config.max_new_tokens = limit
        cut = engine.generate([record])[0]
        assert cut.finish == "length"
        expected = full.label_scores if limit == len(tokens) else None
        assert cut.label_scores == (expected and pytest.approx(expected, abs=1e-4))
    engine.max_new_tokens = engine.config.max_new_tokens = usual


def test_shared_prefixes_change_neither_texts_nor_scores(phantom_data):
    records = list(read_records(phantom_data, "test"))[:14]
    shared, separate = (
        load_system(str(DEMO), recipe_path=None, overrides=[f"decoding.share_images={share}"]).engine(
            folder_images(phantom_data)
        )
        for share in ("true", "false")
    )
    for one, other in zip(shared.generate(records), separate.generate(records), strict=True):
        same(one, other)


def test_heads_that_share_keys_change_neither_texts_nor_scores(tiny_grouped_heads, phantom_data, make_recipe):
    records = list(read_records(phantom_data, "test"))[:14]
    recipe = make_recipe(FIRST, f"model.checkpoint={tiny_grouped_heads}")
    model = load_model(recipe.model).eval()
    collators = [
        make_collator(recipe, folder_images(phantom_data), targets=False, share_images=share) for share in (True, False)
    ]
    separate = HfEngine(model, collators[1], max_new_tokens=5).generate(records)
    shared = SharedPrefixEngine(model, collators[0], max_new_tokens=5, rows=4).generate(records)
    for one, other in zip(shared, separate, strict=True):
        same(one, other)
    assert any(one.label_scores for one in shared)


def test_an_untrained_model_in_the_papers_form_has_texts_without_scores(build):
    for generated in build("codec=scintiground_json").generate(MIXED):
        assert generated.text is not None
        assert (generated.label_scores, generated.label_scores_at) == (None, None)


# Broken numbers.


def test_logits_that_break_in_a_score_only_make_an_error_row_and_harm_no_other(build, monkeypatch):
    engine = build(FIRST)
    expected = engine.generate(MIXED)
    head = engine.model.lm_head.forward

    def spoil(hidden):
        logits = head(hidden).clone()
        if hidden.shape[1] > 1:  # scores only: texts are made one token at a time
            logits[1, 0, 0] = torch.inf
        return logits

    monkeypatch.setattr(engine.model.lm_head, "forward", spoil)
    results = engine.generate(MIXED)
    # The second scored row is the third of the batch.
    assert results[2].error == "logits are not finite in torch.float32"
    assert (results[2].text, results[2].label_scores) == (None, None)
    for number in (0, 1, 3):
        same(results[number], expected[number])


def test_a_row_that_broke_in_its_text_is_not_scored(build, monkeypatch):
    engine = build(FIRST)
    expected = engine.generate(MIXED)
    head = engine.model.lm_head.forward

    def spoil(hidden):
        logits = head(hidden).clone()
        if hidden.shape[1] == 1:
            logits[0] = torch.nan
        return logits

    monkeypatch.setattr(engine.model.lm_head, "forward", spoil)
    results = engine.generate(MIXED)
    assert (results[0].error, results[0].label_scores) == ("logits are not finite in torch.float32", None)
    for number in (1, 2, 3):
        same(results[number], expected[number])


def test_every_codec_answers_what_scoring_asks():
    for name in (
        "scintiground_json",
        "scintiground_class_first",
        "scintiground_old_json",
        "scintiground_tags",
        "plain",
    ):
        for record in MIXED:
            form = get_codec(name).closed_form(record.ask())
            assert form is None or len(form.labels) == len(set(form.labels)) > 1
