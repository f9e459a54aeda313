"""The PaliGemma collator: which tokens are learnt, what sees what, the canvas, limits, equality with the stock processor."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image as PILImage

from benchmarks.canvas import compose, plan_layout
from benchmarks.dataset import read_records
from benchmarks.errors import DataError
from collators.base import IGNORE, Length
from collators.paligemma import NEWLINE
from infer.ask import GivenImages
from infer.load import load_system
from recipes.errors import RecipeError, UserError
from tests.adapters import write_adapter_run
from tests.collators.samples import PIECES, PLAIN, folder_images, make_collator, pictures, plain_record

texts = st.lists(st.sampled_from((*PIECES, "<bos>", "<eos>", "<seg000>", "<image>\n")), min_size=1, max_size=6).map(
    "".join
)
VIEWLESS = ("canvas.order=[]", "canvas.missing=leave_out")


@pytest.fixture(scope="module")
def recipe(make_paligemma_recipe):
    return make_paligemma_recipe(*PLAIN, *VIEWLESS)


@pytest.fixture(scope="module")
def records(phantom_data):
    return list(read_records(phantom_data, "test"))


@pytest.fixture(scope="module")
def one_picture(recipe):
    return make_collator(recipe, pictures([plain_record("?")]), targets=True)


def learnt(batch, row):
    labels = batch["labels"][row]
    return labels[labels != IGNORE]


def text_of(collator, ids):
    return collator.processor.tokenizer.decode(ids, skip_special_tokens=False)


def prompt_ids(batch, row):
    return batch["input_ids"][row][(batch["attention_mask"][row] == 1) & (batch["token_type_ids"][row] == 0)]


# Which tokens are learnt.


@settings(max_examples=60, deadline=None)
@given(question=texts, answer=texts)
def test_the_learnt_text_is_the_target_with_one_end_and_the_prompt_holds_no_control_token_of_the_data(
    one_picture, question, answer
):
    """Pitfalls 1, 2, 5, 10."""
    record = plain_record(f"?{question}", answer)
    batch = one_picture([record])
    tokens = learnt(batch, 0).tolist()
    assert text_of(one_picture, tokens) == one_picture.encoder.target_text(record) + "<eos>"
    assert tokens.count(one_picture.end_id) == 1
    prompt = prompt_ids(batch, 0).tolist()
    images = one_picture.image_ids
    assert prompt[: len(images)] == images
    rest = prompt[len(images) :]
    control = {one_picture.begin_id, one_picture.pad_id, one_picture.end_id, images[0]}
    control |= set(one_picture.processor.tokenizer.convert_tokens_to_ids(["<loc0001>", "<seg000>"]))
    assert [token for token in rest if token in control] == [one_picture.begin_id]
    assert rest[0] == one_picture.begin_id
    assert not control - {one_picture.end_id} & set(tokens)


def test_begin_newline_and_end_stand_once_each_around_a_detection_prompt(make_paligemma_recipe, records, phantom_data):
    """Pitfall 5."""
    collator = make_collator(make_paligemma_recipe(), folder_images(phantom_data), targets=True)
    record = next(record for record in records if record.target.boxes)
    batch = collator([record])
    ids = batch["input_ids"][0].tolist()
    (newline,) = collator.processor.tokenizer(NEWLINE, add_special_tokens=False)["input_ids"]
    assert [ids.count(token) for token in (collator.begin_id, newline, collator.end_id)] == [1, 1, 1]
    assert prompt_ids(batch, 0)[-1].item() == newline
    codes = [text_of(collator, [token]) for token in learnt(batch, 0)]
    assert sum(code.startswith("<loc") for code in codes) == 4 * len(record.target.boxes)


@pytest.mark.parametrize("question", ["Hot?\n\nAnswer now\n", "Hot?\r\nAnswer now", "Hot? \n Answer now"])
def test_a_line_break_in_a_question_is_a_blank(recipe, question):
    """Pitfall 5: the newline says that the prompt is over."""
    record = plain_record(question)
    collator = make_collator(recipe, pictures([record]), targets=False)
    assert collator.encoder.prompt_text(record.ask()) == "Hot? Answer now"
    (newline,) = collator.processor.tokenizer(NEWLINE, add_special_tokens=False)["input_ids"]
    assert collator([record])["input_ids"][0].tolist().count(newline) == 1


def test_the_prompt_to_learn_from_is_that_of_prediction(make_paligemma_recipe, records, phantom_data):
    """Pitfall 5: training prompt ids are a prefix of nothing else than the prompt ids of inference."""
    recipe = make_paligemma_recipe()
    learn, predict = (make_collator(recipe, folder_images(phantom_data), targets=flag) for flag in (True, False))
    batch, asked = learn(records[:6]), predict(records[:6])
    for row in range(6):
        assert torch.equal(prompt_ids(batch, row), prompt_ids(asked, row))
    assert torch.equal(batch["pixel_values"], asked["pixel_values"])
    assert set(asked) == {"input_ids", "attention_mask", "token_type_ids", "pixel_values"}


def test_the_end_token_is_learnt_once_though_it_is_the_padding_token_too(recipe):
    """Pitfall 3."""
    records = [plain_record("a", "1", name="a"), plain_record("a", "123456789", name="b")]
    collator = make_collator(recipe, pictures(records), targets=True)
    collator.pad_id = collator.end_id
    batch = collator(records)
    for row, digits in ((0, 1), (1, 9)):
        tokens = learnt(batch, row).tolist()
        assert len(tokens) == digits + 1
        assert tokens.count(collator.end_id) == 1
        assert tokens[-1] == collator.end_id


def test_segments_are_0_for_image_and_prompt_and_1_for_what_is_learnt(recipe):
    """Pitfall 6."""
    records = [plain_record("a", "yes", name="a"), plain_record("a b c d", "none at all", name="b")]
    collator = make_collator(recipe, pictures(records), targets=True)
    batch = collator(records)
    assert torch.equal(batch["token_type_ids"] == 1, batch["labels"] != IGNORE)
    assert make_collator(recipe, pictures(records), targets=False)(records)["token_type_ids"].sum().item() == 0
    for row in range(2):
        places = batch["logits_to_keep"][row].nonzero().flatten() + 1
        assert torch.equal(batch["input_ids"][row][places], learnt(batch, row))


def test_padding_is_right_to_learn_and_left_to_generate(recipe):
    records = [plain_record("a", name="a"), plain_record("a b c d e f g", name="b")]
    for targets, last in ((True, 0), (False, 1)):
        mask = make_collator(recipe, pictures(records), targets=targets)(records)["attention_mask"]
        assert mask[0].tolist() == sorted(mask[0].tolist(), reverse=targets)
        assert mask[0, -1].item() == last
        assert mask[1].all()


def test_an_image_marker_in_the_text_changes_no_label(recipe):
    """Pitfall 7: the marker in the question is text, and the learnt tokens are those without it."""
    records = [plain_record("where?", "left lung", name="a"), plain_record("<image>where?", "left lung", name="b")]
    collator = make_collator(recipe, pictures(records), targets=True)
    batch = collator(records)
    assert torch.equal(learnt(batch, 0), learnt(batch, 1))
    images = [(batch["input_ids"][row] == collator.image_ids[0]).nonzero().flatten().tolist() for row in range(2)]
    assert images[0] == images[1] == list(range(len(collator.image_ids)))


# Equality with the stock processor.


# The stock processor makes arrays of tensors (transformers 5.24): its own affair, ours never calls it.
@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
@pytest.mark.parametrize("generation", [1, 2])
def test_ids_labels_and_pixels_are_those_of_the_stock_processor(
    make_paligemma_recipe, records, phantom_data, generation
):
    recipe = make_paligemma_recipe(generation=generation)
    collator = make_collator(recipe, folder_images(phantom_data), targets=True)
    chosen = records[:6]
    canvases = [
        compose([collator.images(image, "") for image in record.images], plan_layout(recipe.canvas, record.images))
        for record in chosen
    ]
    stock = collator.processor(
        text=[f"<image>{collator.encoder.prompt_text(record.ask())}" for record in chosen],
        images=canvases,
        suffix=[collator.encoder.target_text(record) for record in chosen],
        padding=True,
        padding_side="right",
        return_tensors="pt",
    )
    ours = collator(chosen)
    for key in ("input_ids", "attention_mask", "pixel_values", "labels"):
        assert torch.equal(ours[key], stock[key]), key
    real = ours["attention_mask"] == 1
    assert torch.equal(ours["token_type_ids"][real], stock["token_type_ids"][real])


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(texts, texts), min_size=1, max_size=4))
def test_measured_lengths_are_those_of_the_batch(recipe, rows):
    """A canvas is one picture, whatever stands on it."""
    views = [("a", 64, 64), ("b", 64, 64)]
    records = [
        plain_record(f"?{question}", answer, name=f"{n}", images=views[: 1 + n % 2])
        for n, (question, answer) in enumerate(rows)
    ]
    collator = make_collator(recipe, pictures(records), targets=True)
    batch = collator(records)
    for row, length in enumerate(collator.measure(records)):
        real, target = int(batch["attention_mask"][row].sum()), int((batch["labels"][row] != IGNORE).sum())
        assert length == Length(real - 16 - target, 16, target, 1)


# The canvas.


def test_a_batch_holds_what_its_records_give_alone(make_paligemma_recipe, phantom_data, records):
    collator = make_collator(make_paligemma_recipe(), folder_images(phantom_data), targets=True)
    chosen = records[:6]
    batch, alone = collator(chosen), [collator([record]) for record in chosen]
    for row, single in enumerate(alone):
        real = batch["attention_mask"][row].bool()
        for key in ("input_ids", "labels", "token_type_ids", "logits_to_keep"):
            assert torch.equal(batch[key][row][real], single[key][0]), key
    assert torch.equal(batch["pixel_values"], torch.cat([single["pixel_values"] for single in alone]))


COLOURS = {"ANT": (250, 10, 10), "POST": (10, 250, 10), "second": (10, 10, 250)}


def test_every_view_stands_in_its_panel_whatever_the_order_of_the_images(make_paligemma_recipe):
    """Pitfall 11."""
    import msgspec

    both = plain_record("?", images=[("ANT", 64, 128), ("POST", 64, 128)])
    named = msgspec.structs.replace(
        both, images=tuple(msgspec.structs.replace(image, view=image.path) for image in both.images)
    )
    turned = msgspec.structs.replace(named, id="turned", images=named.images[::-1])
    single = msgspec.structs.replace(named, id="single", images=named.images[1:])
    source = GivenImages({name: PILImage.new("RGB", (64, 128), colour) for name, colour in COLOURS.items()})
    collator = make_collator(make_paligemma_recipe(*PLAIN), source, targets=True)
    image = collator.processor.image_processor
    mean, std = (torch.tensor(values)[:, None, None] for values in (image.image_mean, image.image_std))
    shown = (collator([named, turned, single])["pixel_values"] * std + mean) * 255
    left, right = shown[..., 2:14], shown[..., 18:30]  # the views meet at 16, where resizing mixes them
    for row in (0, 1):
        assert left[row].mean(dim=(1, 2)).tolist() == pytest.approx(COLOURS["ANT"], abs=0.5)
        assert right[row].mean(dim=(1, 2)).tolist() == pytest.approx(COLOURS["POST"], abs=0.5)
    assert left[2].abs().max().item() < 0.5  # the black panel of the missing view
    assert right[2].mean(dim=(1, 2)).tolist() == pytest.approx(COLOURS["POST"], abs=0.5)
    assert "There is no ANT image: its panel is black." not in collator.encoder.prompt_text(single.ask())


def test_a_canvas_that_several_records_share_is_drawn_once(make_paligemma_recipe, phantom_data, records):
    group = [record for record in records if record.images == records[0].images][:3]
    assert len(group) == 3
    source, opened = folder_images(phantom_data), []

    def counted(image, where):
        opened.append(image.path)
        return source(image, where)

    batch = make_collator(make_paligemma_recipe(), counted, targets=True)(group)
    assert sorted(opened) == sorted(image.path for image in records[0].images)
    assert len(batch["pixel_values"]) == 3
    assert torch.equal(batch["pixel_values"][0], batch["pixel_values"][2])


# What is refused.


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("canvas.size=224", "sees pictures of 32x32 pixels, the canvas has 224"),
        ("canvas=null", "paligemma sees one picture: add the section canvas"),
        ("images.max_pixels=5000000", "images sets a pixel budget, which paligemma has not"),
        ("model.attention=flash_attention_2", "drops paligemma's mask over image and prompt"),
        ("adapter={kind: full, vision: true}", "vision is for kind lora"),
    ],
)
def test_what_paligemma_cannot_do_is_refused(make_paligemma_recipe, override, message):
    with pytest.raises(RecipeError, match=message):
        make_collator(make_paligemma_recipe(*PLAIN, override), pictures([]), targets=True)


def test_an_order_that_an_image_has_no_place_in_names_the_record(make_paligemma_recipe):
    record = plain_record("?", images=[("a", 64, 128)])
    collator = make_collator(make_paligemma_recipe(*PLAIN), pictures([record]), targets=True)
    for call in (collator, collator.measure):
        with pytest.raises(DataError, match=r"image 1 \(a\) has the view None") as raised:
            call([record])
        assert raised.value.where == "record r (rows.jsonl row 3)"


def test_a_sample_over_a_limit_is_an_error_that_names_it(recipe):
    """Pitfalls 4 and 9."""
    records = [plain_record("short", name="fine"), plain_record("word " * 64, "123456789", name="too-long")]
    collator = make_collator(recipe, pictures(records), targets=True, max_length=48)
    collator(records[:1])
    with pytest.raises(DataError, match=r"is over batch\.max_length 48; images are never cut") as raised:
        collator(records)
    assert raised.value.where == "record too-long (rows.jsonl row 3)"
    with pytest.raises(DataError, match=r"target of 9 tokens is over batch\.max_target_tokens 8"):
        make_collator(recipe, pictures(records), targets=True, max_target_tokens=8)(records)
    empty = plain_record("?", "")
    with pytest.raises(DataError, match="the target text is empty: nothing to learn"):
        make_collator(recipe, pictures([empty]), targets=True)([empty])


def test_a_record_without_an_image_is_refused(recipe):
    bare = plain_record("?", images=[])
    with pytest.raises(DataError, match="a record without images has no canvas") as raised:
        make_collator(recipe, pictures([bare]), targets=True)([bare])
    assert "record r (rows.jsonl row 3)" in raised.value.where


@pytest.mark.parametrize(
    "override", ["canvas.resize=pad", "canvas.gap=4", "canvas.missing=leave_out", "canvas.arrange=stacked"]
)
def test_another_canvas_is_another_encoder_and_is_refused_by_name(make_paligemma_recipe, tmp_path, override):
    """Pitfall 14."""
    run = write_adapter_run(tmp_path / "run", make_paligemma_recipe())
    key, value = override.split("=")
    with pytest.raises(UserError, match=rf"{key}: .+ -> '?{value}'?"):
        load_system(str(run), recipe_path=None, overrides=[override])
