"""Image sets of a batch: each once, looked up before anything is opened, and handed over as they are."""

from __future__ import annotations

import pickle

import msgspec
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image as PILImage

from benchmarks.errors import DataError
from benchmarks.schema import Image
from collators.image_sets import ImageSets, collect
from infer.ask import GivenImages
from tests.collators.samples import make_collator
from tests.groups import grouped_records


class Kept:
    """Features by key, in a dictionary; `known` are those that only the computing process has."""

    def __init__(self, features=(), known=()):
        self.features = dict(features)
        self.known = set(known)
        self.asked = []

    def key(self, contents, geometry):
        return f"{list(contents)} {geometry}"

    def find(self, key):
        self.asked.append(key)
        return {} if key in self.known else self.features.get(key)


class Letters:
    """Sets named by a letter; a capital is a copy of the small one's file under another path."""

    def __init__(self):
        self.prepared = []

    def identity(self, shown):
        return shown

    def describe(self, shown):
        return [shown.lower()], {}

    def prepare(self, shown):
        self.prepared.append(shown)
        rows = ord(shown.lower()) - ord("a") + 1
        return {"pixels": torch.full((rows, 2), float(rows)), "grid": torch.full((1, 3), rows)}


def features_of(letter):
    tokens = ord(letter) - ord("a") + 1
    return {"features": torch.full((tokens, 4), float(tokens)), "deepstack": torch.full((2, tokens, 4), -float(tokens))}


def key_of(letter):
    return Kept().key([letter], {})


@settings(deadline=None)
@given(
    places=st.lists(st.sampled_from("abcdABCD"), min_size=1, max_size=12),
    state=st.fixed_dictionaries({letter: st.sampled_from(["kept", "known", "nobody"]) for letter in "abcd"}),
)
def test_each_set_comes_once_in_the_form_that_is_needed(places, state):
    kept = Kept(
        {key_of(letter): features_of(letter) for letter in "abcd" if state[letter] == "kept"},
        {key_of(letter) for letter in "abcd" if state[letter] == "known"},
    )
    family = Letters()
    sets = pickle.loads(pickle.dumps(collect(kept, places, family)))
    letters = [place.lower() for place in places]
    assert list(sets.keys) == [key_of(letter) for letter in dict.fromkeys(letters)]
    assert kept.asked == list(sets.keys)
    assert [sets.keys[number] for number in sets.shown] == [key_of(letter) for letter in letters]
    assert len(family.prepared) == sum(state[letter] == "nobody" for letter in set(letters))
    for key, found, inputs in zip(sets.keys, sets.found(), sets.inputs(), strict=True):
        letter = key[2]
        wanted = features_of(letter) if state[letter] == "kept" else None
        assert (found is None) is (wanted is None)
        assert wanted is None or all(found[name].equal(wanted[name]) for name in wanted)
        pixels = Letters().prepare(letter) if state[letter] == "nobody" else {}
        assert inputs.keys() == pixels.keys()
        assert all(inputs[name].equal(pixels[name]) for name in pixels)


def test_a_batch_is_a_few_tensors_however_many_sets_it_has():
    """Each tensor is an open file on its way from a worker."""
    kept = Kept({key_of(letter): features_of(letter) for letter in "abcdef"})
    sets = collect(kept, "abcdefghij", Letters())
    assert len(sets.features) + len(sets.pixels) == 4


def test_sets_move_to_a_device_as_a_whole():
    sets = collect(Kept({key_of("a"): features_of("a")}), "ab", Letters()).to("meta")
    assert all(tensor.is_meta for tensor in (*sets.features.values(), *sets.pixels.values()))
    assert isinstance(sets, ImageSets)
    assert sets.shown == (0, 1)


# --- families


@pytest.fixture
def recipe(make_recipe):
    return make_recipe("prompt.template=plain", "codec=plain", "images.min_pixels=1024", "images.max_pixels=65536")


def sources(records):
    return GivenImages(
        {
            image.path: PILImage.effect_noise((image.width, image.height), 60).convert("RGB")
            for record in records
            for image in record.images
        }
    )


@settings(deadline=None, max_examples=40)
@given(
    sizes=st.lists(st.tuples(st.integers(1, 400), st.integers(1, 400)), min_size=1, max_size=4),
    tokens=st.none() | st.integers(4, 200),
)
def test_grids_follow_from_sizes_as_the_processor_makes_them(sizes, tokens, recipe_of_tokens):
    if any(max(size) / min(size) > 200 for size in sizes):
        return
    recipe = recipe_of_tokens(tokens)
    images = tuple(Image(path=f"{n}", width=w, height=h) for n, (w, h) in enumerate(sizes))
    record = msgspec.structs.replace(grouped_records((1,))[0], images=images)
    collator = make_collator(recipe, sources([record]), targets=True)
    plain = collator([record])
    collator.kept = Kept()
    batch = collator([record])
    assert batch["image_grid_thw"].equal(plain["image_grid_thw"])
    assert batch["input_ids"].equal(plain["input_ids"])
    assert batch["image_sets"].pixels["pixel_values"].equal(plain["pixel_values"])


@pytest.fixture(scope="module")
def recipe_of_tokens(make_recipe):
    def make(tokens):
        limit = "null" if tokens is None else tokens
        words = ("images.min_pixels=1024", "images.max_pixels=65536", f"images.max_tokens={limit}")
        return make_recipe("prompt.template=plain", "codec=plain", *words)

    return make


@pytest.mark.parametrize("shared", [False, True])
def test_a_batch_has_the_inputs_of_one_without_kept_features_but_for_the_pixels(shared, recipe):
    records = grouped_records((2, 0, 3))
    collator = make_collator(recipe, sources(records), targets=True, share_images=shared)
    plain = collator(records)
    collator.kept = Kept()
    batch = collator(records)
    sets = batch.pop("image_sets")
    pixels = plain.pop("pixel_values")
    assert len(sets.keys) == 2
    assert len(sets.shown) == (2 if shared else 5)
    inputs = sets.inputs()
    assert torch.cat([inputs[number]["pixel_values"] for number in sets.shown]).equal(pixels)
    assert batch.keys() == plain.keys()
    for name, values in plain.items():
        assert values.equal(batch[name]) if isinstance(values, torch.Tensor) else values == batch[name]


def test_images_whose_features_are_kept_are_not_opened(recipe):
    records = grouped_records((2, 1))
    source = sources(records)
    collator = make_collator(recipe, source, targets=True)
    collator.kept = kept = Kept()
    collator(records)
    kept.known = set(kept.asked)
    first = records[0].images[0]
    opened = []

    class Watched(GivenImages):
        def __call__(self, image, where):
            opened.append(image.path)
            return super().__call__(image, where)

    collator.pictures.images = Watched(source.pictures)
    collator(records)
    assert not opened
    source.pictures[first.path].putpixel((0, 0), (1, 2, 3))
    collator(records)
    assert sorted(opened) == sorted({image.path for image in records[0].images})


def test_a_batch_without_images_shows_the_black_set(recipe):
    records = grouped_records((0, 0))
    collator = make_collator(recipe, GivenImages({}), targets=True)
    plain = collator(records)
    collator.kept = Kept()
    sets = collator(records)["image_sets"]
    assert sets.shown == (0,)
    assert sets.pixels["pixel_values"].equal(plain["pixel_values"])


def test_an_image_that_cannot_be_read_is_named_whether_it_is_hashed_or_decoded(recipe, tmp_path):
    from collators.sources import FolderImages

    records = grouped_records((1,), images=1)
    collator = make_collator(recipe, FolderImages(tmp_path), targets=True)
    collator.kept = Kept()
    with pytest.raises(DataError) as missing:
        collator(records)
    assert missing.value.where == records[0].place
    file = tmp_path / records[0].images[0].path
    file.parent.mkdir()
    file.write_bytes(b"no image")
    with pytest.raises(DataError) as broken:
        collator(records)
    assert broken.value.where == records[0].place


def test_a_record_that_states_another_size_is_still_checked_against_the_file(recipe, tmp_path):
    from collators.sources import FolderImages

    (record,) = grouped_records((1,), images=1)
    file = tmp_path / record.images[0].path
    file.parent.mkdir()
    PILImage.new("L", (64, 64)).save(file)
    collator = make_collator(recipe, FolderImages(tmp_path), targets=True)
    collator.kept = kept = Kept()
    collator([record])
    kept.known = set(kept.asked)
    wrong = msgspec.structs.replace(
        record, images=tuple(msgspec.structs.replace(image, width=128) for image in record.images)
    )
    with pytest.raises(DataError, match="64x64"):
        collator([wrong])
