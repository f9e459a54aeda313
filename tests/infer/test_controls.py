"""Controls: what they show, what they say, and that they are exact."""

from collections import Counter, defaultdict

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.dataset import read_records
from benchmarks.errors import DataError
from benchmarks.predictions import read_manifest, read_predictions
from benchmarks.priors import control_text, fit
from benchmarks.schema import Image
from collators.codecs.registry import get_codec
from collators.codecs.scintiground_official import official_row
from collators.sources import BlankImages
from infer.controls import PRIOR_ENGINES, PriorEngine, shuffle_images
from infer.run import Request, run
from recipes.controls import PRIOR_CONTROLS, PRIORS_OF
from tests.collators.samples import plain_record
from tests.eval.cases import write_data
from tests.eval.sgmri_cases import closed
from tests.eval.sgmri_cases import record as sgmri_record

LAYOUTS = [("ANT",), ("POST",), ("ANT", "POST")]


@pytest.fixture(scope="module")
def records(phantom_data):
    return list(read_records(phantom_data, "test"))


def record_of(group, number, views, width, visit):
    images = tuple(Image(path=f"{group}/{visit}/{view}", width=width, height=9, view=view) for view in views)
    record = plain_record("?", name=f"{group}-{number}")
    return msgspec.structs.replace(record, group=group, images=images)


groups = st.lists(
    st.tuples(st.sampled_from("abcdefgh"), st.sampled_from(LAYOUTS), st.sampled_from([8, 9]), st.integers(0, 2)),
    min_size=1,
    max_size=24,
)


def layout_of(images):
    return [(image.view, image.frame, image.width, image.height) for image in images]


@settings(max_examples=150)
@given(groups, st.integers(0, 5))
def test_shuffled_images_are_another_groups_in_the_same_views_and_sizes(rows, seed):
    records = [record_of(row[0], number, *row[1:]) for number, row in enumerate(rows)]
    shown_by = {image.path: record.group for record in records for image in record.images}
    try:
        shuffled = shuffle_images(records, seed)
    except DataError:
        # Only where one group owns more than half of the different image sets of a layout.
        owners = defaultdict(list)
        for group, images in {(record.group, record.images) for record in records}:
            owners[tuple(layout_of(images))].append(group)
        assert any(2 * max(Counter(names).values()) > len(names) for names in owners.values())
        return
    for record, other in zip(records, shuffled, strict=True):
        assert layout_of(other.images) == layout_of(record.images)
        assert all(shown_by[image.path] != record.group for image in other.images)
        assert len({shown_by[image.path] for image in other.images}) == 1
        assert msgspec.structs.replace(other, images=record.images) == record
    assert shuffle_images(records, seed) == shuffled


def test_shuffling_is_a_permutation_of_the_image_sets(records):
    shuffled = shuffle_images(records, 0)
    assert {record.images for record in shuffled} == {record.images for record in records}
    partner = {record.images: other.images for record, other in zip(records, shuffled, strict=True)}
    assert len(set(partner.values())) == len(partner)
    assert all(partner[record.images] == other.images for record, other in zip(records, shuffled, strict=True))


def test_the_seed_decides_the_permutation_and_the_order_of_the_records_does_not(records):
    shuffled = {record.id: record.images for record in shuffle_images(records, 0)}
    assert {record.id: record.images for record in shuffle_images(records[::-1], 0)} == shuffled
    assert any({r.id: r.images for r in shuffle_images(records, seed)} != shuffled for seed in (1, 2, 3))


def volume_of(group, frames, *, side=32):
    images = tuple(Image(path=f"{group}/{frame}", width=side, height=side, frame=frame) for frame in frames)
    return msgspec.structs.replace(plain_record("?", name=group), group=group, images=images)


def test_a_volume_of_a_length_of_its_own_is_shown_another_one_at_its_places():
    """As in the official test split, where one knee volume alone has 45 slices; or a slice whose number is unique."""
    volumes = [volume_of("a", range(1, 4)), volume_of("b", range(1, 4)), volume_of("c", range(1, 7))]
    volumes += [volume_of("d", [9]), volume_of("e", [4])]
    first, second, third, fourth, fifth = shuffle_images(volumes, 0)
    assert {image.path[0] for image in first.images} == {"b"}
    assert {image.path[0] for image in second.images} == {"a"}
    other = third.images[0].path[0]
    assert [image.path for image in third.images] == [f"{other}/{frame}" for frame in (1, 1, 2, 2, 3, 3)]
    assert [fourth.images[0].path, fifth.images[0].path] == ["e/4", "d/9"]
    for record, shown in zip(volumes, (first, second, third, fourth, fifth), strict=True):
        assert [msgspec.structs.replace(image, path="x") for image in record.images] == [
            msgspec.structs.replace(image, path="x") for image in shown.images
        ]
    with pytest.raises(DataError, match="too few other groups"):
        shuffle_images([*volumes, volume_of("f", range(1, 4), side=64)], 0)


def test_a_split_of_one_group_cannot_be_shuffled(records):
    alone = [record for record in records if record.group == records[0].group]
    with pytest.raises(DataError, match="cannot be exchanged: too few other groups") as raised:
        shuffle_images(alone, 0)
    assert repr(records[0].group) in raised.value.message
    assert "blank_image" in raised.value.fix


def test_blank_images_are_black_and_of_the_native_size():
    picture = BlankImages()(Image(path="a", width=7, height=5), "")
    assert (picture.size, picture.mode) == ((7, 5), "RGB")
    assert picture.getextrema() == ((0, 0),) * 3


@pytest.mark.parametrize("control", PRIOR_CONTROLS)
def test_prior_controls_say_what_the_train_split_says(phantom_data, records, control):
    results = PriorEngine(phantom_data, control).generate(records)
    train = list(read_records(phantom_data, "train"))
    priors = fit(official_row(record) for record in train)
    decode = get_codec("scintiground_json").decode
    kind, _, corrected = control.partition("_corrected") if control.endswith("_corrected") else (control, "", "no")
    for record, generated in zip(records, results, strict=True):
        row = official_row(record)
        assert generated.text == control_text(priors, row, control=kind, corrected=corrected == "")
        assert generated.finish == "stop"
        answer = decode(generated.text, record.ask())
        assert (answer.label is None) == (record.task == "grounding")
        assert bool(answer.boxes) == (record.task != "vqa")
    again = PriorEngine(phantom_data, control).generate(records[::-1])
    assert again[::-1] == results


def test_the_majority_answers_one_class_per_task(phantom_data, records):
    results = PriorEngine(phantom_data, "majority").generate(records)
    for task in ("vqa", "grounded_vqa"):
        texts = {g.text for r, g in zip(records, results, strict=True) if r.task == task}
        assert len(texts) == 1


def test_a_prior_sees_no_target(phantom_data, records):
    engine = PriorEngine(phantom_data, "prompt_only_corrected")
    hidden = [
        msgspec.structs.replace(r, target=msgspec.structs.replace(r.target, text="x", label=None, boxes=()))
        for r in records
    ]
    assert engine.generate(hidden) == engine.generate(records)


@pytest.mark.parametrize("control", PRIORS_OF["sgmri"])
def test_sgmri_controls_answer_in_the_published_form(tmp_path, control):
    train = [
        msgspec.structs.replace(each, split="train", group=f"train-{each.group}")
        for each in (
            closed(0, "Yes"),
            closed(1, "Yes"),
            closed(2, "No"),
            sgmri_record(3),
            sgmri_record(4, "image_captioning"),
        )
    ]
    test = [closed(10, "No"), sgmri_record(11), sgmri_record(12, "image_captioning")]
    data = write_data(tmp_path / "data", [*train, *test], benchmark="sgmri")
    request = Request(weights=None, data=data, split="test", out=tmp_path / "out", control=control)
    folder = run(request)
    manifest, rows = read_manifest(folder), read_predictions(folder)
    assert (manifest.codec, manifest.control, manifest.engine) == ("sgmri_json", control, "control")
    assert [row.answer.text for row in rows] == ["Yes", train[3].target.text, train[4].target.text]
    assert [row.answer.boxes for row in rows] == [(), test[1].target.boxes, test[2].target.boxes]
    assert (tmp_path / "out" / "predictions.jsonl").read_bytes().count(b'"text":"{') == 3


def test_a_control_of_another_benchmark_is_refused_by_name(tmp_path):
    data = write_data(tmp_path / "data", [closed(0, "Yes")], benchmark="sgmri")
    request = Request(weights=None, data=data, split="test", out=tmp_path / "out", control="majority_corrected")
    with pytest.raises(DataError, match="majority_corrected does not know these data") as raised:
        run(request)
    assert "choose majority or prompt_only" in raised.value.fix


def test_every_benchmark_with_priors_has_an_engine():
    assert PRIOR_ENGINES.keys() == PRIORS_OF.keys()
