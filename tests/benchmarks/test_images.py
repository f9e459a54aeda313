import contextlib
import io
import struct
import zlib

import numpy as np
import PIL.Image
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks import schema
from benchmarks.errors import DataError
from benchmarks.images import MAX_PIXELS, image_size, load_image, open_image

ORIENTATION = 0x0112


def greys(image):
    pixels = np.asarray(image)
    assert (pixels == pixels[:, :, :1]).all()
    return pixels[0, :, 0].tolist()


def turned(path, tag, size=(200, 100)):
    """A JPEG whose tag turns it; red square at the top left as displayed for tag 6."""
    image = PIL.Image.new("RGB", size)
    # Tag 6: displayed top left is stored bottom left.
    image.paste((255, 0, 0), (0, size[1] - 40, 40, size[1]))
    exif = image.getexif()
    exif[ORIENTATION] = tag
    image.save(path, quality=95, exif=exif)
    return path


def test_orientation_tag_is_applied_to_pixels_and_size(tmp_path):
    path = turned(tmp_path / "a.jpg", 6)
    image = open_image(path)
    assert image.size == image_size(path) == (100, 200)
    assert image.getpixel((10, 10))[0] > 200
    assert image.getpixel((90, 190))[0] < 50


@pytest.mark.parametrize("tag", range(1, 9))
def test_header_size_equals_loaded_size_for_every_tag(tmp_path, tag):
    path = turned(tmp_path / "a.jpg", tag)
    assert image_size(path) == open_image(path).size


def test_record_that_states_the_stored_size_of_a_turned_image_is_refused(tmp_path):
    turned(tmp_path / "a.jpg", 6)
    record_image = schema.Image(path="a.jpg", width=200, height=100)
    with pytest.raises(DataError, match=r"is 100x200 pixels .* the record says 200x100") as caught:
        load_image(tmp_path, record_image, where="rows.csv row 3")
    assert caught.value.where == "rows.csv row 3"


@pytest.mark.parametrize("name", ["a.png", "a.tiff", "a.pgm"])
def test_sixteen_bits_are_scaled_by_the_full_range(tmp_path, name):
    PIL.Image.fromarray(np.array([[0, 257, 25700, 65535]], np.uint16)).save(tmp_path / name)
    assert greys(open_image(tmp_path / name)) == [0, 1, 100, 255]


def test_big_endian_sixteen_bits(tmp_path):
    raw = struct.pack(">4H", 0, 257, 25700, 65535)
    PIL.Image.frombytes("I;16B", (4, 1), raw).save(tmp_path / "a.tiff")
    assert greys(open_image(tmp_path / "a.tiff")) == [0, 1, 100, 255]


def palette_image():
    image = PIL.Image.new("P", (2, 1))
    image.putpalette([10, 20, 30, 200, 100, 50])
    image.putdata([0, 1])
    return image


@pytest.mark.parametrize(
    ("image", "options", "expected"),
    [
        (PIL.Image.new("L", (1, 1), 77), {}, [(77, 77, 77)]),
        (PIL.Image.new("1", (1, 1), 1), {}, [(255, 255, 255)]),
        (PIL.Image.new("LA", (1, 1), (0, 0)), {}, [(255, 255, 255)]),
        (PIL.Image.new("LA", (1, 1), (0, 255)), {}, [(0, 0, 0)]),
        (PIL.Image.new("RGBA", (1, 1), (200, 0, 0, 0)), {}, [(255, 255, 255)]),
        (PIL.Image.new("RGBA", (1, 1), (200, 0, 0, 255)), {}, [(200, 0, 0)]),
        (palette_image(), {}, [(10, 20, 30), (200, 100, 50)]),
        (palette_image(), {"transparency": 0}, [(255, 255, 255), (200, 100, 50)]),
        (PIL.Image.new("L", (1, 1), 5), {"transparency": 5}, [(255, 255, 255)]),
        (PIL.Image.new("RGB", (1, 1), (1, 2, 3)), {"transparency": (1, 2, 3)}, [(255, 255, 255)]),
        (PIL.Image.new("RGB", (1, 1), (1, 2, 3)), {}, [(1, 2, 3)]),
    ],
)
def test_modes_become_rgb_on_a_white_background(tmp_path, image, options, expected):
    image.save(tmp_path / "a.png", **options)
    loaded = open_image(tmp_path / "a.png")
    assert loaded.mode == "RGB"
    assert np.asarray(loaded).tolist() == [[list(pixel) for pixel in expected]]


def test_cmyk_white_stays_white(tmp_path):
    PIL.Image.new("CMYK", (8, 8), (0, 0, 0, 0)).save(tmp_path / "a.jpg")
    assert open_image(tmp_path / "a.jpg").getpixel((3, 3)) == (255, 255, 255)


def test_float_image_from_zero_to_one_is_scaled(tmp_path):
    PIL.Image.fromarray(np.array([[0.0, 0.5, 1.0]], np.float32)).save(tmp_path / "a.tiff")
    assert greys(open_image(tmp_path / "a.tiff")) == [0, 128, 255]


@pytest.mark.parametrize("value", [1.5, -0.1, float("nan"), float("inf")])
def test_float_image_outside_zero_to_one_is_refused(tmp_path, value):
    PIL.Image.fromarray(np.array([[0.0, value]], np.float32)).save(tmp_path / "a.tiff")
    with pytest.raises(DataError, match=r"a\.tiff: pixel mode F .* no rule"):
        open_image(tmp_path / "a.tiff")


def test_thirty_two_bit_values_above_sixteen_bits_are_refused(tmp_path):
    PIL.Image.fromarray(np.array([[0, 70000]], np.int32)).save(tmp_path / "a.tiff")
    with pytest.raises(DataError, match=r"pixel mode I .* no rule"):
        open_image(tmp_path / "a.tiff")


def saved(kind, size=(40, 40), **options):
    buffer = io.BytesIO()
    rng = np.random.default_rng(0)
    PIL.Image.fromarray(rng.integers(0, 255, (size[1], size[0], 3), np.uint8)).save(buffer, kind, **options)
    return buffer.getvalue()


def bomb():
    """A PNG header that claims 20,000 x 20,000 pixels."""

    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", 20000, 20000, 1, 0, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(b"\0")) + chunk(b"IEND", b"")


def large():
    """More pixels than the limit, less than what Pillow itself refuses."""
    width = MAX_PIXELS // 8192 + 1
    buffer = io.BytesIO()
    PIL.Image.new("1", (width, 8192)).save(buffer, "PNG")
    return buffer.getvalue()


def frames():
    buffer = io.BytesIO()
    images = [PIL.Image.new("L", (4, 4), value) for value in (0, 200)]
    images[0].save(buffer, "GIF", save_all=True, append_images=images[1:])
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "cannot be read"),
        (b"not an image", "cannot be read"),
        (saved("JPEG")[:400], "cannot be read"),
        (saved("PNG")[:-200], "cannot be read"),
        (bomb(), "cannot be read|more than the limit"),
        (large(), "more than the limit"),
        (frames(), "holds 2 frames"),
    ],
    ids=["empty", "text", "truncated JPEG", "truncated PNG", "bomb", "too large", "animation"],
)
def test_unusable_file_is_named(tmp_path, data, message):
    path = tmp_path / "scan.img"
    path.write_bytes(data)
    with pytest.raises(DataError, match=message) as caught:
        open_image(path, where="row 7")
    assert "scan.img" in caught.value.message
    assert caught.value.where == "row 7"
    assert caught.value.fix


def test_missing_file_and_folder_are_named(tmp_path):
    for path in (tmp_path / "none.png", tmp_path):
        with pytest.raises(DataError, match="does not exist"):
            open_image(path)


@pytest.mark.parametrize("link_to", ["file", "folder"])
def test_link_out_of_the_root_is_refused(tmp_path, link_to):
    root, outside = tmp_path / "root", tmp_path / "outside"
    root.mkdir()
    outside.mkdir()
    (outside / "a.png").write_bytes(saved("PNG"))
    if link_to == "file":
        (root / "a.png").symlink_to(outside / "a.png")
        path = "a.png"
    else:
        (root / "sub").symlink_to(outside)
        path = "sub/a.png"
    with pytest.raises(DataError, match="leaves the image root"):
        load_image(root, schema.Image(path=path, width=40, height=40), where="row 1")


def test_link_to_the_root_itself_is_fine(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "a.png").write_bytes(saved("PNG"))
    (tmp_path / "link").symlink_to(tmp_path / "real")
    image = load_image(tmp_path / "link", schema.Image(path="a.png", width=40, height=40), where="row 1")
    assert image.size == (40, 40)


@pytest.mark.parametrize("name", ["loop.png", "x" * 300, "a\0b"])
def test_unusable_names_are_refused(tmp_path, name):
    (tmp_path / "loop.png").symlink_to(tmp_path / "loop.png")
    with pytest.raises(DataError):
        load_image(tmp_path, schema.Image(path=name, width=1, height=1), where="row 1")


@pytest.mark.parametrize("path", ["", ".", "..", "/a.png", "a/../../b.png", "c:\\a.png", "a\\b.png"])
def test_paths_that_are_no_relative_paths_are_refused_by_the_schema(path):
    with pytest.raises(ValueError, match="must be relative"):
        schema.Image(path=path, width=1, height=1)


SAMPLES = [saved("PNG"), saved("JPEG"), saved("TIFF"), saved("GIF"), saved("BMP"), saved("WEBP")]


@settings(max_examples=150, deadline=None)
@given(
    sample=st.sampled_from(SAMPLES),
    cut=st.floats(0, 1),
    edits=st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), max_size=6),
)
@pytest.mark.filterwarnings("ignore")
def test_damaged_files_give_a_picture_or_a_data_error(tmp_path_factory, sample, cut, edits):
    data = bytearray(sample[: max(1, int(len(sample) * cut))])
    for place, value in edits:
        # Most of the interest is in the header.
        data[int(min(len(data), 200) * place)] = value
    path = tmp_path_factory.getbasetemp() / "damaged"
    path.write_bytes(data)
    for read in (open_image, image_size):
        with contextlib.suppress(DataError):
            read(path)
