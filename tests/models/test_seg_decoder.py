"""The mask decoder: equal to its definition in numpy, strict about weights, masks in native pixels."""

import re
import zipfile

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

from benchmarks.masks import draw_grid, from_run_lengths
from benchmarks.schema import Ask, Image
from collators.codecs.seg_tokens import CodedMask, SegTokens
from models.seg_decoder import load_mask_decoder, native_masks
from recipes.errors import UserError
from recipes.inputs import Canvas
from tests.mask_weights import SHAPES, UPWARDS, random_weights


@pytest.fixture(scope="module")
def arrays():
    """Random weights by name."""
    return random_weights()


@pytest.fixture(scope="module")
def file(arrays, tmp_path_factory):
    """A file in the published form, encoder included."""
    path = tmp_path_factory.mktemp("weights") / "vae-oid.npz"
    np.savez(path, **arrays, **{"encoder.0.bias": np.zeros(3, np.float32)})
    return path


def convolve(values, weight, bias):
    """Values (in, h, w), weight (out, in, k, k), zeros around: each output is a sum over its neighbourhood."""
    k = weight.shape[-1]
    padded = np.pad(values, ((0, 0), (k // 2, k // 2), (k // 2, k // 2)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (k, k), axis=(1, 2))
    return np.einsum("ihwyx,oiyx->ohw", windows, weight, optimize=True) + bias[:, None, None]


def scatter(values, weight, bias):
    """Transposed convolution of stride 2: each input adds its kernel, the outermost ring is cut off."""
    _, height, width = values.shape
    k = weight.shape[-1]
    out = np.zeros((weight.shape[1], 2 * (height - 1) + k, 2 * (width - 1) + k))
    for y in range(height):
        for x in range(width):
            out[:, 2 * y : 2 * y + k, 2 * x : 2 * x + k] += np.einsum("i,ioyx->oyx", values[:, y, x], weight)
    return out[:, 1:-1, 1:-1] + bias[:, None, None]


def reference(arrays, codes):
    """The decoder by definition, in float64."""
    exact = {name: array.astype(np.float64) for name, array in arrays.items()}

    def layer(name, values, how=convolve):
        return how(values, exact[f"{name}.weight"], exact[f"{name}.bias"])

    def relu(values):
        return np.maximum(values, 0)

    values = np.zeros((512, 4, 4))
    for place, code in enumerate(codes):
        values[:, place // 4, place % 4] = exact["_vq_vae._embedding"][code]
    values = relu(layer("decoder.0", values))
    for block in ("decoder.2.net", "decoder.3.net"):
        inner = relu(layer(f"{block}.0", values))
        inner = relu(layer(f"{block}.2", inner))
        values = values + layer(f"{block}.4", inner)
    for name in UPWARDS:
        values = relu(layer(name, values, scatter))
    return layer("decoder.12", values)[0]


def test_the_decoder_equals_its_definition(arrays, file):
    codes = np.random.default_rng(1).integers(0, 128, (2, 16))
    codes[0, :2] = (0, 127)
    decoder = load_mask_decoder(file)
    expected = np.stack([reference(arrays, row) for row in codes])
    assert expected.shape == (2, 64, 64)
    assert 1 < np.abs(expected).max() < 3
    single = decoder(torch.from_numpy(codes)).numpy()
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, expected, rtol=0, atol=1e-5)
    double = decoder.double()(torch.from_numpy(codes)).numpy()
    np.testing.assert_allclose(double, expected, rtol=0, atol=1e-12)


def test_both_kinds_of_file_give_the_same_decoder_which_is_not_trained(arrays, file, tmp_path):
    save_file(arrays, tmp_path / "vae.safetensors")
    before = torch.get_rng_state()
    one, other = load_mask_decoder(file), load_mask_decoder(tmp_path / "vae.safetensors")
    assert torch.equal(torch.get_rng_state(), before)
    assert not one.training
    assert not any(weight.requires_grad for weight in one.parameters())
    for (name, left), (also, right) in zip(one.state_dict().items(), other.state_dict().items(), strict=True):
        assert name == also
        assert torch.equal(left, right)


@pytest.mark.parametrize("kind", ["npz", "safetensors"])
@pytest.mark.parametrize(
    ("name", "array", "said"),
    [
        ("decoder.6.weight", None, "array decoder.6.weight of shape (128, 64, 4, 4) is missing"),
        (
            "decoder.6.weight",
            np.zeros((64, 128, 4, 4), np.float32),
            "array decoder.6.weight has the shape (64, 128, 4, 4), expected (128, 64, 4, 4)",
        ),
        ("decoder.12.bias", np.zeros((1, 1), np.float32), "has the shape (1, 1), expected (1,)"),
        ("_vq_vae._embedding", np.zeros((128, 512), np.int64), "of type int64 does not hold finite real numbers"),
        ("decoder.0.bias", np.full(128, np.nan, np.float32), "decoder.0.bias of type float32 does not hold finite"),
        ("decoder.14.weight", np.zeros(1, np.float32), "array decoder.14.weight is no part of the decoder"),
    ],
)
def test_arrays_that_are_not_the_decoders_are_refused_by_name(arrays, tmp_path, kind, name, array, said):
    changed = {key: value for key, value in arrays.items() if key != name}
    if array is not None:
        changed[name] = array
    path = tmp_path / f"weights.{kind}"
    if kind == "npz":
        np.savez(path, **changed)
    else:
        save_file(changed, path)
    with pytest.raises(UserError, match=re.escape(said)) as raised:
        load_mask_decoder(path)
    assert raised.value.where == str(path)


def test_a_file_of_several_faults_says_how_many(tmp_path):
    np.savez(tmp_path / "w.npz", other=np.zeros(1))
    with pytest.raises(UserError, match=rf"is missing \(and {2 * len(SHAPES) - 2} more\)"):
        load_mask_decoder(tmp_path / "w.npz")


def test_a_member_that_is_no_array_is_refused(arrays, tmp_path):
    np.savez(tmp_path / "w.npz", **{name: array for name, array in arrays.items() if name != "decoder.0.bias"})
    with zipfile.ZipFile(tmp_path / "w.npz", "a") as archive:
        archive.writestr("decoder.0.bias.npy", b"not an array")
    with pytest.raises(UserError, match=re.escape("decoder.0.bias has the shape (), expected (128,)")):
        load_mask_decoder(tmp_path / "w.npz")


def test_files_that_cannot_be_read_are_refused(arrays, tmp_path):
    pickled = arrays | {"decoder.0.bias": np.array([{}], dtype=object)}
    np.savez(tmp_path / "pickled.npz", **pickled)
    (tmp_path / "text.npz").write_text("weights")
    (tmp_path / "empty.npz").touch()
    (tmp_path / "text.safetensors").write_text("weights")
    with (tmp_path / "single.npz").open("wb") as single:
        np.save(single, np.zeros(3))
    np.savez(tmp_path / "cut.npz", **arrays)
    (tmp_path / "cut.npz").write_bytes((tmp_path / "cut.npz").read_bytes()[:100_000])
    for path in (*sorted(tmp_path.iterdir()), tmp_path / "none.npz", tmp_path / "none.safetensors", tmp_path / "w.pt"):
        with pytest.raises(UserError, match="of the mask decoder") as raised:
            load_mask_decoder(path)
        assert raised.value.where == str(path)


def test_a_text_becomes_masks_in_native_pixels_of_the_right_image(file):
    images = tuple(Image(path=f"{view}.png", width=40, height=90, view=view) for view in ("ANT", "POST"))
    ask = Ask(task="grounding", images=images, question="Where?")
    codes = [f"<seg{code:03d}>" for code in range(32)]
    text = (
        f"<loc0100><loc0050><loc0600><loc0450>{''.join(codes[:16])} left knee ; "
        f"<loc0200><loc0512><loc0300><loc0900>{''.join(codes[16:])}"
    )
    coded = SegTokens(Canvas(size=224, order=("ANT", "POST"))).coded_masks(text, ask)
    decoder = load_mask_decoder(file)
    masks = native_masks(decoder, coded, images)
    assert [(mask.image, mask.label) for mask in masks] == [(0, "left knee"), (1, None)]
    for mask, each in zip(masks, coded, strict=True):
        grid = decoder(torch.tensor([each.codes]))[0].numpy()
        pixels = from_run_lengths(mask.rle)
        assert pixels.shape == (90, 40)
        assert 0 < pixels.sum() < pixels.size
        # Batches of other sizes may round otherwise: values at the border are left out.
        low, high = (draw_grid(grid - shift, each.xyxy, (90, 40)) for shift in (1e-4, -1e-4))
        assert (low <= pixels).all()
        assert (pixels <= high).all()
    assert native_masks(decoder, (), images) == ()


def test_a_mask_that_fills_its_box_is_the_box(file):
    decoder = load_mask_decoder(file)
    with torch.no_grad():
        decoder.get_parameter("decoder.12.weight").zero_()
        decoder.get_parameter("decoder.12.bias").fill_(1.0)
    coded = CodedMask(image=0, xyxy=(2.0, 3.0, 7.4, 9.6), codes=tuple(range(16)), label=None)
    (mask,) = native_masks(decoder, [coded], [Image(path="a.png", width=12, height=14)])
    expected = np.zeros((14, 12), dtype=np.bool_)
    expected[3:10, 2:7] = True
    assert (from_run_lengths(mask.rle) == expected).all()
