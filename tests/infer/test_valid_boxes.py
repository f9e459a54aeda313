"""Valid boxes or none: against logits that want codes everywhere, and no effect where nothing is to be mended."""

import re
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from benchmarks.dataset import read_records
from benchmarks.errors import DataError
from benchmarks.predictions import read_manifest, read_predictions
from benchmarks.schema import Answer
from collators.codecs.base import Invalid
from collators.codecs.loc_tokens import LocTokens
from collators.codecs.seg_tokens import SegTokens
from collators.encoder import build_encoder
from infer.engines.hf import HfEngine
from infer.engines.valid_boxes import ValidBoxes
from infer.run import Request, run
from models.paligemma_tokens import LOCATIONS, MASKS
from models.registry import family_collator, family_module
from recipes.errors import RecipeError
from recipes.load import dump_recipe
from tests.collators.samples import folder_images

CODES = re.compile(r"(?:<(?:loc[0-9]{4}|seg[0-9]{3})>)+")
PROMPT = 7


@pytest.fixture(scope="module")
def records(phantom_data):
    return list(read_records(phantom_data, "test"))[:8]


@pytest.fixture(scope="module")
def make_collator(make_paligemma_recipe, phantom_data):
    def make(*overrides, generation=1, targets=False):
        recipe = make_paligemma_recipe(*overrides, generation=generation)
        processor = family_module("paligemma").load_processor(recipe.model, recipe.images)
        build = family_collator("paligemma")
        return build(build_encoder(recipe, processor), processor, folder_images(phantom_data), targets=targets)

    return make


@pytest.fixture(scope="module")
def tokenizer(make_collator):
    return make_collator().processor.tokenizer


@pytest.fixture(scope="module")
def codec(make_collator):
    return make_collator().encoder.codec


def ids_of(tokenizer, *tokens):
    return torch.tensor(tokenizer.convert_tokens_to_ids([*tokens]))


def processor(codec, tokenizer, asks, limit):
    return ValidBoxes(codec, tokenizer, asks, width=PROMPT, max_new_tokens=limit, end_ids=[tokenizer.eos_token_id])


def written(rule, logits, tokenizer):
    """The tokens that greedy generation writes from logits float[T, B, V], as `generate` does; int64[B, T]."""
    ids = torch.full((logits.shape[1], PROMPT), tokenizer.bos_token_id)
    ended = torch.zeros(len(ids), dtype=torch.bool)
    for scores in logits:
        chosen = rule(ids, scores.clone()).argmax(dim=1).masked_fill(ended, tokenizer.pad_token_id)
        ids = torch.cat([ids, chosen[:, None]], dim=1)
        ended |= chosen == tokenizer.eos_token_id
    return ids[:, PROMPT:]


def texts_of(tokens, tokenizer):
    """The texts before the end token, of ids int64[B, T]."""
    end = tokenizer.eos_token_id
    rows = [row[: row.index(end)] if end in row else row for row in tokens.tolist()]
    return [tokenizer.decode(row, skip_special_tokens=False, clean_up_tokenization_spaces=False) for row in rows]


def codes_are_whole_boxes(text, ask, codec):
    """Every run of codes is an object by itself, whose box is read; returns how many there are."""
    runs = CODES.findall(text)
    for codes in runs:
        alone = codec.decode(codes, ask)
        assert isinstance(alone, Answer), (codes, alone)
        assert len(alone.boxes) == 1
    read = codec.decode(text, ask)
    # Nothing about codes is left to complain about.
    assert isinstance(read, Answer) or read.reason in {"empty", "empty_field"}, (text, read)
    return len(runs)


def adversarial(tokenizer, shape, seed, *, separators, ends):
    """Random logits float[*shape, V] that favour codes, then the separator, then the end."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(*shape, len(tokenizer), generator=generator)
    logits[..., ids_of(tokenizer, *LOCATIONS)] += 1.5
    logits[..., ids_of(tokenizer, *MASKS)] += 1.5
    logits[..., tokenizer(";")["input_ids"]] += separators
    logits[..., tokenizer.eos_token_id] += ends
    return logits


@pytest.mark.parametrize("kind", [LocTokens, SegTokens])
@pytest.mark.parametrize("limit", [1, 3, 4, 19, 20, 41])
@pytest.mark.parametrize("seed", range(3))
def test_whatever_the_logits_every_code_stands_in_a_whole_valid_box(kind, limit, seed, records, codec, tokenizer):
    codec = kind(codec.canvas)
    asks = [record.ask() for record in records]
    logits = adversarial(tokenizer, (limit, len(asks)), seed, separators=4.5, ends=2.0)
    tokens = written(processor(codec, tokenizer, asks, limit), logits, tokenizer)
    counts = [
        codes_are_whole_boxes(text, ask, codec) for text, ask in zip(texts_of(tokens, tokenizer), asks, strict=True)
    ]
    assert (sum(counts) > 0) == (limit >= 4 + codec.mask_codes)
    # The logits are hostile: without the rule hardly a row is fit.
    free = texts_of(logits.argmax(dim=2).T, tokenizer)
    assert any(isinstance(codec.decode(text, ask), Invalid) for text, ask in zip(free, asks, strict=True))


@pytest.mark.parametrize("seed", range(3))
def test_a_row_is_written_alike_in_any_batch(seed, records, codec, tokenizer):
    asks = [record.ask() for record in records]
    logits = adversarial(tokenizer, (30, len(asks)), seed, separators=4.5, ends=1.0)
    together = written(processor(codec, tokenizer, asks, 30), logits, tokenizer)
    assert len(CODES.findall("".join(texts_of(together, tokenizer)))) > 3
    for row, ask in enumerate(asks):
        alone = written(processor(codec, tokenizer, [ask], 30), logits[:, row : row + 1], tokenizer)
        assert alone[0].tolist() == together[row].tolist()


# Nothing else changes.


def test_every_target_may_be_written_and_no_logit_is_touched(phantom_data, make_collator):
    """The likeliest token of each step is the target's: room for it is all that is needed."""
    collator = make_collator(targets=True)
    tokenizer, codec, seen = collator.processor.tokenizer, collator.encoder.codec, 0
    for record in list(read_records(phantom_data, "train"))[:60]:
        target = tokenizer(collator.encoder.target_text(record), add_special_tokens=False)["input_ids"]
        logits = torch.randn(len(target), len(tokenizer))
        logits[torch.arange(len(target)), target] += 50
        rule = processor(codec, tokenizer, [record.ask()], len(target))
        for step, scores in enumerate(logits):
            ids = torch.tensor([[5] * PROMPT + target[:step]])
            assert rule(ids, scores[None].clone()).equal(scores[None])
        seen += len(record.target.boxes)
    assert seen > 20


def test_rows_whose_likeliest_token_is_no_code_keep_every_logit(records, codec, tokenizer):
    asks = [record.ask() for record in records]
    logits = torch.randn(len(asks), len(tokenizer), generator=torch.Generator().manual_seed(0))
    codes = ids_of(tokenizer, *LOCATIONS, *MASKS)
    logits[::2, codes] -= 100  # the other rows want a code where none may stand
    logits[1::2, codes] += 100
    ids = torch.cat([torch.full((len(asks), PROMPT), 5), ids_of(tokenizer, "abnormal"[:1]).expand(len(asks), 1)], dim=1)
    rule = processor(codec, tokenizer, asks, 30)
    result = rule(ids, logits.clone())
    assert result[::2].equal(logits[::2])
    assert (result[1::2, codes] == -torch.inf).all()
    others = torch.ones(len(tokenizer), dtype=torch.bool).index_fill(0, codes, value=False)
    assert result[:, others].equal(logits[:, others])


@pytest.mark.parametrize("after", [["<eos>"], ["<eos>", "<pad>"], ["<loc0010>", "<eos>", "<pad>"]])
def test_a_row_that_has_ended_is_left_alone(after, records, codec, tokenizer):
    """`generate` goes on with it until the last row is through."""
    ids = torch.cat([torch.full((1, PROMPT), 5), ids_of(tokenizer, *after)[None]], dim=1)
    logits = torch.zeros(1, len(tokenizer)).index_fill(1, ids_of(tokenizer, "<loc1023>"), 9.0)
    assert processor(codec, tokenizer, [records[0].ask()], 30)(ids, logits.clone()).equal(logits)


def test_codes_of_the_prompt_are_not_the_answers(records, codec, tokenizer):
    ids = torch.full((1, PROMPT), ids_of(tokenizer, "<loc1023>").item())
    logits = torch.zeros(1, len(tokenizer)).index_fill(1, tokenizer(";", return_tensors="pt")["input_ids"][0], 9.0)
    assert processor(codec, tokenizer, [records[0].ask()], 30)(ids, logits.clone()).equal(logits)


# In the engine.


@pytest.fixture(scope="module")
def build(make_paligemma_recipe, make_collator):
    """An engine whose model has `favour` added to the logits of codes, and noise that depends on what it has read."""

    def build(generation, *, favour, valid_boxes, limit=24):
        recipe = make_paligemma_recipe(generation=generation)
        collator = make_collator(generation=generation)
        model = family_module("paligemma").load_model(recipe.model).eval()
        codes = ids_of(collator.processor.tokenizer, *LOCATIONS, *MASKS)
        head, generator = model.lm_head.forward, torch.Generator().manual_seed(0)
        noise = torch.randn(model.lm_head.weight.shape, generator=generator)

        def forward(hidden):
            return (head(hidden) + hidden @ noise.T).index_add(
                -1, codes, torch.full((*hidden.shape[:-1], len(codes)), favour)
            )

        model.lm_head.forward = forward
        return HfEngine(model, collator, max_new_tokens=limit, valid_boxes=valid_boxes)

    return build


def test_the_engine_writes_valid_boxes_alone_and_in_batches(build, records, paligemma_generation):
    engine = build(paligemma_generation, favour=8.0, valid_boxes=True)
    results = engine.generate(records)
    codec, counts = engine.collator.encoder.codec, []
    for record, result in zip(records, results, strict=True):
        counts.append(codes_are_whole_boxes(result.text, record.ask(), codec))
    assert sum(counts) >= len(records)
    assert [engine.generate([record])[0].text for record in records] == [result.text for result in results]
    free = build(paligemma_generation, favour=8.0, valid_boxes=False).generate(records)
    read = [codec.decode(result.text, record.ask()) for record, result in zip(records, free, strict=True)]
    assert all(isinstance(each, Invalid) for each in read)


def test_answers_without_codes_are_the_same_in_every_field(build, records, paligemma_generation):
    free, bound = (build(paligemma_generation, favour=-99.0, valid_boxes=on).generate(records) for on in (False, True))
    assert bound == free
    assert any(result.label_scores for result in free)


def test_numbers_that_are_not_finite_still_make_an_error_row(build, records):
    engine = build(1, favour=8.0, valid_boxes=True)
    expected = engine.generate(records)
    forward = engine.model.lm_head.forward

    def spoil(hidden):
        logits = forward(hidden).clone()
        if len(logits) == len(records):  # classes are scored in fewer rows
            logits[1] = torch.nan
        return logits

    engine.model.lm_head.forward = spoil
    results = engine.generate(records)
    assert results[1].error == "logits are not finite in torch.float32"
    assert results[2:] == expected[2:]
    assert results[0] == expected[0]


def test_an_engine_with_another_codec_refuses(build, make_collator, records):
    engine = build(1, favour=0.0, valid_boxes=True)
    engine.collator = make_collator("codec=plain", "prompt.template=plain")
    with pytest.raises(ValueError, match="codec plain has no boxes of location tokens"):
        engine.generate(records)


# In recipes and prediction folders.


def test_a_recipe_with_another_codec_is_refused(make_recipe, make_paligemma_recipe):
    assert make_paligemma_recipe("decoding.valid_boxes=true").decoding.valid_boxes
    assert not make_paligemma_recipe().decoding.valid_boxes
    for make, overrides in ((make_recipe, ()), (make_paligemma_recipe, ("codec=plain",))):
        with pytest.raises(RecipeError, match=r"decoding\.valid_boxes is for boxes of location tokens \(loc_tokens"):
            make(*overrides, "decoding.valid_boxes=true")


@pytest.fixture(scope="module")
def eager(tiny_paligemma, tokenizer, tmp_path_factory):
    """The tiny model with long embeddings of its location tokens, so that it writes hardly anything else."""
    folder = tmp_path_factory.mktemp("eager") / "model"
    shutil.copytree(tiny_paligemma(1), folder)
    weights = load_file(folder / "model.safetensors")
    (name,) = (name for name in weights if name.endswith("embed_tokens.weight"))
    weights[name][ids_of(tokenizer, *LOCATIONS)] *= 30
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


@pytest.fixture
def request_for(eager, make_paligemma_recipe, phantom_data, tmp_path):
    (tmp_path / "recipe.yaml").write_text(dump_recipe(make_paligemma_recipe()))

    def make(*overrides, out="out"):
        places = {"weights": str(eager), "recipe": str(tmp_path / "recipe.yaml"), "out": tmp_path / out}
        return Request(**places, data=phantom_data, split="test", overrides=overrides, limit=6)

    return make


def test_the_manifest_says_it_and_another_choice_is_not_continued(request_for, records, codec):
    out = run(request_for("decoding.valid_boxes=true"))
    manifest = read_manifest(out)
    assert manifest.decoding["valid_boxes"] is True
    assert manifest.recipe["decoding"]["valid_boxes"] is True
    for record, row in zip(records, read_predictions(out), strict=False):
        assert codes_are_whole_boxes(row.text, record.ask(), codec) > 0
    with pytest.raises(DataError, match=r"decoding\.valid_boxes: True -> False"):
        run(request_for())
    assert all(row.invalid for row in read_predictions(run(request_for(out="free"))))
