"""Keys of vision features change with whatever decides a bit of them, and with nothing else."""

import shutil
from dataclasses import fields, replace

import pytest
import torch
from PIL import Image as PILImage
from torch import nn

from benchmarks.errors import DataError
from benchmarks.schema import Image
from collators.sources import BlankImages, FolderImages
from infer.ask import GivenImages
from models.vision_key import FeatureSpace, device_name, package_versions, tensors_hash, tower_hash

SPACE = FeatureSpace(
    image_processor="a" * 64,
    weights="b" * 64,
    config="c" * 64,
    attention="sdpa",
    patches="Conv3d",
    precision="weights",
    device="cpu AVX2",
    versions=(("torch", "2.14.1"), ("transformers", "5.24.0")),
)
OTHER = {
    "image_processor": "d" * 64,
    "weights": "d" * 64,
    "config": "d" * 64,
    "attention": "eager",
    "patches": "PatchProduct",
    "precision": "autocast bf16",
    "device": "NVIDIA H200",
    "versions": (("torch", "2.14.1"), ("transformers", "5.25.0")),
    "pixel_rule": 2,
}
CONTENTS = ("1" * 64, "2" * 64)
GEOMETRY = {"area": [65536, 1003520], "sizes": [[64, 128], [64, 128]]}
TOWER = ("model.visual.", "model.projector.")


def test_a_key_is_the_same_every_time():
    key = SPACE.key(CONTENTS, GEOMETRY)
    assert key == replace(SPACE).key(list(CONTENTS), dict(reversed(GEOMETRY.items())))
    assert len(key) == 64
    assert set(key) <= set("0123456789abcdef")


@pytest.mark.parametrize("field", [field.name for field in fields(FeatureSpace)])
def test_each_part_of_the_space_changes_the_key(field):
    assert replace(SPACE, **{field: OTHER[field]}).key(CONTENTS, GEOMETRY) != SPACE.key(CONTENTS, GEOMETRY)


@pytest.mark.parametrize(
    "contents",
    [CONTENTS[:1], CONTENTS[::-1], (*CONTENTS, CONTENTS[0]), ("1" * 64, "3" * 64), ("1" * 64 + "2" * 64,), ()],
    ids=["fewer", "another order", "more", "another image", "joined", "none"],
)
def test_the_images_in_their_order_change_the_key(contents):
    assert SPACE.key(contents, GEOMETRY) != SPACE.key(CONTENTS, GEOMETRY)


@pytest.mark.parametrize(
    "geometry",
    [{**GEOMETRY, "area": [65536, 65536]}, {**GEOMETRY, "sizes": [[64, 128], [128, 64]]}, {"area": GEOMETRY["area"]}],
    ids=["area", "sizes", "fewer"],
)
def test_the_geometry_changes_the_key(geometry):
    assert SPACE.key(CONTENTS, geometry) != SPACE.key(CONTENTS, GEOMETRY)


def test_versions_are_those_of_the_installed_packages():
    import transformers

    assert dict(package_versions())["transformers"] == transformers.__version__
    assert device_name(torch.device("cpu")).startswith("cpu ")


# --- contents of images


@pytest.fixture
def picture():
    return PILImage.effect_noise((16, 8), 40).convert("RGB")


def test_the_content_of_a_file_is_its_bytes_and_not_its_path(picture, tmp_path):
    picture.save(tmp_path / "a.png")
    (tmp_path / "deep").mkdir()
    shutil.copy(tmp_path / "a.png", tmp_path / "deep" / "b.png")
    picture.transpose(PILImage.Transpose.FLIP_LEFT_RIGHT).save(tmp_path / "c.png")
    source = FolderImages(tmp_path)
    a, b, c = (source.content(Image(path=path, width=16, height=8), "") for path in ("a.png", "deep/b.png", "c.png"))
    assert a == b
    assert a != c
    moved = tmp_path / "elsewhere"
    shutil.copytree(tmp_path / "deep", moved)
    assert FolderImages(moved).content(Image(path="b.png", width=16, height=8), "") == a


def test_a_file_that_changes_while_a_process_runs_has_another_content(picture, tmp_path):
    image, source = Image(path="a.png", width=16, height=8), FolderImages(tmp_path)
    picture.save(tmp_path / "a.png")
    before = source.content(image, "")
    data = bytearray((tmp_path / "a.png").read_bytes())
    data[-20] ^= 1  # of the same length
    (tmp_path / "a.png").write_bytes(data)
    assert source.content(image, "") != before


@pytest.mark.parametrize("path", ["missing.png", "outside.png"])
def test_a_file_that_is_missing_or_outside_is_said_with_its_place(path, tmp_path):
    (tmp_path / "root").mkdir()
    PILImage.new("RGB", (4, 4)).save(tmp_path / "outside.png")
    (tmp_path / "root" / "outside.png").symlink_to(tmp_path / "outside.png")
    with pytest.raises(DataError) as error:
        FolderImages(tmp_path / "root").content(Image(path=path, width=4, height=4), "row 7")
    assert error.value.where == "row 7"


def test_black_pictures_are_told_apart_by_size_and_given_ones_by_pixels(picture):
    one, other = Image(path="a", width=16, height=8), Image(path="b", width=8, height=16)
    blank = BlankImages()
    assert blank.content(one, "") == blank.content(Image(path="c", width=16, height=8), "")
    assert blank.content(one, "") != blank.content(other, "")
    given = GivenImages({"a": picture, "b": picture.copy(), "c": picture.transpose(PILImage.Transpose.FLIP_TOP_BOTTOM)})
    a, b, c = (given.content(Image(path=name, width=16, height=8), "") for name in "abc")
    assert a == b
    assert a != c


# --- weights


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.model = nn.Module()
        self.model.visual = nn.Linear(3, 4)
        self.model.projector = nn.Linear(4, 2)
        self.model.language = nn.Linear(2, 2)


@pytest.fixture
def model():
    torch.manual_seed(0)
    return Small()


def test_the_hash_of_a_tower_covers_tower_and_projector_alone(model):
    before = tower_hash(model, TOWER)
    model.model.language.weight.data += 1
    assert tower_hash(model, TOWER) == before
    model.model.projector.bias.data[0] += 1e-6
    assert tower_hash(model, TOWER) != before


def test_one_bit_of_a_weight_changes_the_hash(model):
    before = tower_hash(model, TOWER)
    weight = model.model.visual.weight.data
    weight.view(torch.int32)[2, 1] ^= 1
    assert tower_hash(model, TOWER) != before


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_the_type_of_the_weights_changes_the_hash(model, dtype):
    for parameter in model.parameters():
        parameter.data.zero_()
    before = tower_hash(model, TOWER)
    assert tower_hash(model.to(dtype), TOWER) != before


def test_the_same_bytes_in_another_type_or_shape_or_under_another_name_are_told_apart():
    values = torch.arange(6, dtype=torch.int16)
    versions = [
        ("a", values.view(torch.float16)),
        ("a", values.view(torch.bfloat16)),
        ("a", values.view(torch.bfloat16).reshape(2, 3)),
        ("a", values.view(torch.bfloat16).reshape(3, 2)),
        ("b", values.view(torch.bfloat16)),
    ]
    assert len({tensors_hash([version]) for version in versions}) == len(versions)
    # Views that lie in memory otherwise hold the same numbers.
    turned = torch.arange(6.0).reshape(2, 3).t()
    assert tensors_hash([("a", turned)]) == tensors_hash([("a", turned.contiguous())])


def test_an_adapter_on_the_language_model_leaves_the_hash_as_it_is_and_one_in_the_tower_does_not(model):
    from peft import LoraConfig, get_peft_model

    before = tower_hash(model, TOWER)
    for target, same in (("language", True), ("visual", False)):
        torch.manual_seed(0)
        adapted = get_peft_model(Small(), LoraConfig(target_modules=[target]))
        assert (tower_hash(adapted, TOWER) == before) is same


def test_a_model_that_is_cut_up_or_has_no_such_part_is_refused(model):
    with pytest.raises(ValueError, match=r"starts with model\.vision"):
        tower_hash(model, ("model.vision.",))
    model.model.visual.weight.data = torch.empty(0)
    with pytest.raises(ValueError, match=r"model\.visual\.weight has no content"):
        tower_hash(model, TOWER)
    with torch.device("meta"):
        empty = Small()
    with pytest.raises(ValueError, match="has no content"):
        tower_hash(empty, TOWER)
