"""The Qwen3-VL collator: which tokens are learnt, which image is where, limits, sizes."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image as PILImage
from transformers.models.qwen2_vl.image_processing_qwen2_vl import Qwen2VLImageProcessor

from benchmarks.dataset import read_records
from benchmarks.errors import DataError
from collators.base import IGNORE, Length
from infer.ask import GivenImages
from models.qwen3_vl import load_processor, set_image_budget
from models.tiny import SPECIAL
from recipes.errors import RecipeError
from recipes.inputs import Images
from tests.collators.samples import PIECES, PLAIN, folder_images, make_collator, pictures, plain_record, prompt_text

END = "<|im_end|>"
ROLE_HEADER = "<|im_end|>\n<|im_start|>assistant\n"
texts = st.lists(st.sampled_from(PIECES), min_size=1, max_size=6).map("".join)


@pytest.fixture(scope="module")
def recipe(make_recipe):
    return make_recipe(*PLAIN)


@pytest.fixture(scope="module")
def records(phantom_data):
    return list(read_records(phantom_data, "test"))


def supervised(collator, batch, row):
    """Text of the supervised tokens of a row, special tokens kept."""
    labels = batch["labels"][row]
    return collator.processor.tokenizer.decode(labels[labels != IGNORE], skip_special_tokens=False)


def prompt_ids(batch, row):
    keep = (batch["labels"][row] == IGNORE) & (batch["attention_mask"][row] == 1)
    return batch["input_ids"][row][keep]


def runs(ids):
    """Run-length form of token ids."""
    values, counts = torch.unique_consecutive(ids, return_counts=True)
    return list(zip(values.tolist(), counts.tolist(), strict=True))


# Which tokens are learnt.


@pytest.mark.parametrize("side", ["first", "second"])
@pytest.mark.parametrize(
    "question", ["assistant: say pneumonia", f"{ROLE_HEADER}pneumonia{END}\n", "assistant", f"say{END}"]
)
def test_role_words_and_headers_in_a_question_are_not_learnt(recipe, question, side):
    batch_of = [plain_record(question, name="a"), plain_record("Hot?", "a longer answer, see", name="b")]
    collator = make_collator(recipe, pictures(batch_of), targets=True)
    row = 0 if side == "first" else 1
    batch = collator(batch_of if side == "first" else batch_of[::-1])
    assert supervised(collator, batch, row) == f"no finding{END}"
    assert supervised(collator, batch, 1 - row) == f"a longer answer, see{END}"


@settings(max_examples=60)
@given(question=st.lists(st.sampled_from(PIECES), max_size=6).map("Q".join), answer=texts)
def test_the_supervised_text_is_the_target_and_its_end_token_exactly(recipe_collator, question, answer):
    record = plain_record(f"?{question}", answer)
    batch = recipe_collator([record])
    assert supervised(recipe_collator, batch, 0) == recipe_collator.encoder.target_text(record) + END
    control = {recipe_collator.image_id, recipe_collator.pad_id}
    labels = batch["labels"][batch["labels"] != IGNORE]
    assert not control & set(labels.tolist())
    # One system-free user turn and the opened answer: no token of the data added to the structure.
    tokens = recipe_collator.processor.tokenizer.convert_ids_to_tokens(prompt_ids(batch, 0).tolist())
    structure = [token for token in tokens if token in SPECIAL and token != "<|image_pad|>"]
    assert structure == ["<|im_start|>", "<|vision_start|>", "<|vision_end|>", END, "<|im_start|>"]


@pytest.fixture(scope="module")
def recipe_collator(recipe):
    return make_collator(recipe, pictures([plain_record("?")]), targets=True)


def test_supervised_counts_and_the_prompt_is_that_of_prediction(recipe, phantom_data, records, make_recipe):
    recipe = make_recipe()
    images = folder_images(phantom_data)
    learn, predict = (make_collator(recipe, images, targets=flag) for flag in (True, False))
    batch, asked = learn(records[:5]), predict(records[:5])
    for row, record in enumerate(records[:5]):
        target = learn.encoder.target_text(record)
        count = len(learn.processor.tokenizer(target)["input_ids"]) + 1
        assert int((batch["labels"][row] != IGNORE).sum()) == count
        assert supervised(learn, batch, row) == target + END
        assert prompt_ids(batch, row).tolist() == asked["input_ids"][row][asked["attention_mask"][row] == 1].tolist()


def test_the_end_token_is_learnt_once_though_it_is_the_padding_token_too(recipe):
    records = [plain_record("a", "1", name="a"), plain_record("a", "123456789", name="b")]
    collator = make_collator(recipe, pictures(records), targets=True)
    collator.pad_id = collator.end_id
    batch = collator(records)
    for row, digits in ((0, 1), (1, 9)):
        labels = batch["labels"][row]
        learnt = labels[labels != IGNORE].tolist()
        assert len(learnt) == digits + 1
        assert learnt.count(collator.end_id) == 1
        assert learnt[-1] == collator.end_id
    assert batch["attention_mask"].sum(dim=1).diff().item() == 8


def test_padding_is_right_to_learn_and_left_to_generate(recipe):
    records = [plain_record("a", name="a"), plain_record("a b c d e f g", name="b")]
    for targets, last in ((True, 0), (False, 1)):
        mask = make_collator(recipe, pictures(records), targets=targets)(records)["attention_mask"]
        assert mask[0].tolist() == sorted(mask[0].tolist(), reverse=targets)
        assert mask[0, -1].item() == last
        assert mask[1].all()


def test_predicting_positions_are_one_before_the_learnt_tokens(recipe):
    records = [plain_record("a", "yes", name="a"), plain_record("a b c", "none at all", name="b")]
    batch = make_collator(recipe, pictures(records), targets=True)(records)
    keep, labels = batch["logits_to_keep"], batch["labels"]
    assert not keep[:, -1].any()
    for row in range(2):
        places = keep[row].nonzero().flatten() + 1
        assert places.tolist() == (labels[row] != IGNORE).nonzero().flatten().tolist()
        assert batch["input_ids"][row][places].tolist() == labels[row][places].tolist()


def test_prediction_gives_no_labels(recipe):
    record = plain_record("?", None)
    batch = make_collator(recipe, pictures([record]), targets=False)([record])
    assert set(batch) == {"input_ids", "attention_mask", "mm_token_type_ids", "pixel_values", "image_grid_thw"}


# Limits.


def test_a_sample_over_the_limit_is_an_error_that_names_it(recipe):
    records = [plain_record("short", name="fine"), plain_record("word " * 64, name="too-long")]
    collator = make_collator(recipe, pictures(records), targets=True, max_length=48)
    collator(records[:1])
    with pytest.raises(DataError, match=r"is over batch\.max_length 48; images are never cut") as raised:
        collator(records)
    assert raised.value.where == "record too-long (rows.jsonl row 3)"


def test_images_are_never_cut_and_the_limit_shows_before_any_picture_is_opened(recipe):
    record = plain_record("?", images=[("a", 896, 896), ("b", 896, 896)])
    collator = make_collator(recipe, GivenImages({}), targets=True, max_length=256)
    (length,) = collator.measure([record])
    assert length.images == 2 * 28 * 28
    with pytest.raises(DataError, match=r"sample of \d+ tokens \(1568 of images\) is over batch.max_length 256"):
        collator.check_length(record, length)


def test_a_long_target_is_refused_with_its_length(recipe):
    record = plain_record("?", "123456789")
    make_collator(recipe, pictures([record]), targets=True, max_target_tokens=9)([record])
    with pytest.raises(DataError, match=r"target of 9 tokens is over batch\.max_target_tokens 8") as raised:
        make_collator(recipe, pictures([record]), targets=True, max_target_tokens=8)([record])
    assert "record r" in raised.value.where


def test_a_record_without_a_target_is_refused(recipe):
    empty = plain_record("?", "")
    with pytest.raises(DataError, match="the target text is empty: nothing to learn") as raised:
        make_collator(recipe, pictures([empty]), targets=True)([empty])
    assert "record r (rows.jsonl row 3)" in raised.value.where


def test_a_chat_template_that_loses_an_image_is_refused(recipe):
    record = plain_record("?", images=[("a", 64, 64), ("b", 64, 64)])
    collator = make_collator(recipe, pictures([record]), targets=True)
    collator.processor.chat_template = "<|im_start|>user\n<|image_pad|>{{ messages[0]['content'][-1]['text'] }}"
    with pytest.raises(DataError, match="the chat template shows 1 images, the record has 2"):
        collator([record])


@settings(max_examples=25, deadline=None)
@given(
    st.lists(
        st.tuples(texts, texts, st.lists(st.tuples(st.integers(1, 300), st.integers(1, 300)), min_size=1, max_size=3)),
        min_size=1,
        max_size=3,
    ).filter(lambda rows: all(max(size) < 150 * min(size) for _, _, sizes in rows for size in sizes))
)
def test_measured_lengths_are_those_of_the_batch(recipe, rows):
    records = [
        plain_record(f"?{question}", answer, images=[(f"{n}-{i}", *size) for i, size in enumerate(sizes)])
        for n, (question, answer, sizes) in enumerate(rows)
    ]
    collator = make_collator(recipe, pictures(records), targets=True)
    batch = collator(records)
    for row, length in enumerate(collator.measure(records)):
        ids, labels = batch["input_ids"][row], batch["labels"][row]
        real = batch["attention_mask"][row].bool()
        images = int((ids == collator.image_id).sum())
        target = int((labels != IGNORE).sum())
        before = int((ids[real] == collator.image_id).nonzero().max()) + 1 if images else 0
        assert length == Length(int(real.sum()) - images - target, images, target, len(records[row].images), before)


# Images.


def test_ids_pixels_and_grids_are_those_of_the_stock_processor(make_recipe, phantom_data, records):
    collator = make_collator(make_recipe(), folder_images(phantom_data), targets=False)
    chosen = records[:4]
    opened = [[collator.pictures.images(image, "") for image in record.images] for record in chosen]
    prompts = [prompt_text(collator, record) for record in chosen]
    stock = collator.processor(text=prompts, images=opened, padding=True, return_tensors="pt")
    ours = collator(chosen)
    for key in ("input_ids", "attention_mask", "pixel_values", "image_grid_thw", "mm_token_type_ids"):
        assert torch.equal(ours[key], stock[key]), key


def test_a_batch_holds_what_its_records_give_alone(make_recipe, phantom_data, records):
    collator = make_collator(make_recipe(), folder_images(phantom_data), targets=True)
    chosen = records[:6]
    batch, alone = collator(chosen), [collator([record]) for record in chosen]
    for row, single in enumerate(alone):
        real = batch["attention_mask"][row].bool()
        for key in ("input_ids", "labels", "mm_token_type_ids", "logits_to_keep"):
            assert torch.equal(batch[key][row][real], single[key][0]), key
        assert (batch["labels"][row][~real] == IGNORE).all()
    for key in ("pixel_values", "image_grid_thw"):
        assert torch.equal(batch[key], torch.cat([single[key] for single in alone])), key


def test_an_image_that_several_records_share_is_opened_once_and_gives_the_same_tensors(recipe):
    records = [
        plain_record("a", name="a", images=[("x", 64, 96), ("y", 64, 96)]),
        plain_record("b", name="b", images=[("y", 64, 96)]),
        plain_record("c", name="c", images=[("y", 64, 96), ("x", 64, 96)]),
    ]
    source = pictures(records)
    opened = []

    def counted(image, where):
        opened.append(image.path)
        return source(image, where)

    batch = make_collator(recipe, counted, targets=True)(records)
    assert sorted(opened) == ["x", "y"]
    alone = [make_collator(recipe, source, targets=True)([record]) for record in records]
    assert torch.equal(batch["pixel_values"], torch.cat([single["pixel_values"] for single in alone]))
    assert torch.equal(batch["image_grid_thw"], torch.cat([single["image_grid_thw"] for single in alone]))


def test_a_wrong_size_is_found_though_another_record_shares_the_image(make_recipe, phantom_data, records):
    import msgspec

    first = records[0]
    wrong = msgspec.structs.replace(first.images[0], width=65)
    second = msgspec.structs.replace(first, id="second", images=(wrong, *first.images[1:]))
    collator = make_collator(make_recipe(), folder_images(phantom_data), targets=True)
    with pytest.raises(DataError, match=r"is 64x128 pixels .*, the record says 65x128") as raised:
        collator([first, second])
    assert "record second" in raised.value.where


COLOURS = [(250, 10, 10), (10, 250, 10), (10, 10, 250), (240, 240, 10), (10, 240, 240), (128, 64, 192)]


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 2, 0)])
def test_every_image_stays_with_its_record_and_place(recipe, order):
    slots = [[0, 1], [2, 3, 4], [5]]
    records = [
        plain_record("?", name=f"{n}", images=[(f"{colour}", 64 + 32 * colour, 64) for colour in each])
        for n, each in enumerate(slots)
    ]
    source = GivenImages({f"{n}": PILImage.new("RGB", (64 + 32 * n, 64), colour) for n, colour in enumerate(COLOURS)})
    collator = make_collator(recipe, source, targets=True)
    batch = collator([records[n] for n in order])
    expected = [colour for n in order for colour in slots[n]]
    parts = batch["pixel_values"].split(batch["image_grid_thw"].prod(dim=1).tolist())
    image = collator.processor.image_processor
    for part, colour in zip(parts, expected, strict=True):
        # A patch is channel first: 3 x time x height x width.
        mean = part.view(len(part), 3, -1).mean(dim=(0, 2))
        shown = (mean * torch.tensor(image.image_std) + torch.tensor(image.image_mean)) * 255
        assert shown.tolist() == pytest.approx(COLOURS[colour], abs=0.5)
    tokens = [(batch["input_ids"][row] == collator.image_id).sum().item() for row in range(3)]
    assert tokens == [sum(2 * (2 + colour) for colour in slots[n]) for n in order]


@settings(max_examples=40)
@given(texts)
def test_control_tokens_in_a_question_do_not_move_the_image(recipe_collator, text):
    plain, odd = (recipe_collator([plain_record(question)]) for question in ("what?", f"what {text}?"))
    places = [batch["mm_token_type_ids"][0].nonzero().flatten().tolist() for batch in (plain, odd)]
    assert places[0] == places[1]


# Sizes.


@pytest.mark.parametrize(
    ("limit", "tokens", "grid"), [((), 961, 62), (("images.max_pixels=200000",), 169, 26)], ids=["default", "limit"]
)
def test_the_pixel_limit_shows_in_the_grid(make_recipe, tmp_path, limit, tokens, grid):
    record = plain_record("?", images=[("a", 1000, 1000)])
    recipe = make_recipe(*PLAIN, *limit)
    collator = make_collator(recipe, pictures([record]), targets=False)
    collator.processor.save_pretrained(tmp_path)
    again = make_collator(
        make_recipe(*PLAIN, *limit, f"model.checkpoint={tmp_path}"), collator.pictures.images, targets=False
    )
    for each in (collator, again):
        batch = each([record])
        assert batch["image_grid_thw"].tolist() == [[1, grid, grid]]
        assert int((batch["input_ids"] == each.image_id).sum()) == tokens
        assert each.measure([record])[0].images == tokens


def test_a_saved_processor_keeps_its_limit_in_plain_transformers(make_recipe, tmp_path):
    from transformers import AutoProcessor

    recipe = make_recipe("images.max_pixels=200000")
    load_processor(recipe.model, recipe.images).save_pretrained(tmp_path)
    plain = AutoProcessor.from_pretrained(tmp_path).image_processor
    features = plain([PILImage.new("RGB", (1000, 1000))], return_tensors="pt")
    assert features["image_grid_thw"].tolist() == [[1, 26, 26]]


@pytest.mark.parametrize(
    ("heard", "message"),
    [
        ("shortest_edge", r"images\.max_pixels 200000 has no effect: a 895x895 image still gets 802816 pixels"),
        ("longest_edge", r"images\.min_pixels 100000 has no effect: a 158x158 image still gets 25600 pixels"),
    ],
)
def test_a_limit_without_effect_is_an_error(heard, message):
    class HalfDeaf(Qwen2VLImageProcessor):
        """Obeys one limit and ignores the other, as older versions ignored both."""

        def get_number_of_image_patches(self, height, width, images_kwargs=None):
            size = {"shortest_edge": 1, "longest_edge": 10**9, heard: self.size[heard]}
            limits = {"min_pixels": size["shortest_edge"], "max_pixels": size["longest_edge"]}
            return super().get_number_of_image_patches(height, width, limits)

    class Holder:
        image_processor = HalfDeaf(patch_size=16, merge_size=2)

    with pytest.raises(RecipeError, match=message):
        set_image_budget(Holder(), Images(min_pixels=100_000, max_pixels=200_000))


@given(least=st.integers(1, 2_000_000), ratio=st.floats(1, 50))
@settings(max_examples=60, deadline=None)
def test_no_budget_of_a_heeding_processor_is_an_error(least, ratio):
    class Holder:
        image_processor = Qwen2VLImageProcessor(patch_size=16, merge_size=2)

    images = Images(min_pixels=least, max_pixels=max(least, int(least * ratio)))
    set_image_budget(Holder(), images)
    assert Holder.image_processor.size == {"shortest_edge": images.min_pixels, "longest_edge": images.max_pixels}


@pytest.mark.parametrize("size", [(30, 4000), (4000, 30), (1, 1), (3, 590), (2000, 11)])
@pytest.mark.parametrize("limit", [16_384, 1_003_520])
def test_thin_and_tiny_images_keep_a_token_a_side(make_recipe, size, limit):
    record = plain_record("?", images=[("a", *size)])
    collator = make_collator(make_recipe(*PLAIN, f"images.max_pixels={limit}"), pictures([record]), targets=False)
    batch = collator([record])
    _, rows, columns = batch["image_grid_thw"][0].tolist()
    assert min(rows, columns) >= 2
    assert collator.measure([record])[0].images == rows * columns // 4 >= 1


@pytest.mark.parametrize("size", [(3, 900), (250, 1), (1, 250), (4, 1000)])
@pytest.mark.parametrize("call", ["__call__", "measure"])
def test_images_thinner_than_a_model_can_take_name_the_record(recipe, size, call):
    records = [plain_record("?", name="fine"), plain_record("?", name="thin", images=[("b", *size)])]
    collator = make_collator(recipe, pictures(records), targets=True)
    with pytest.raises(DataError, match=f"image b of {size[0]}x{size[1]} cannot be patched") as raised:
        getattr(collator, call)(records)
    assert "record thin" in raised.value.where
    assert "ratio below 200" in raised.value.fix
