"""PaliGemma's mask decoder: 16 mask codes to a mask, and that mask to pixels of the image.

The decoder half of a VQ-VAE: codebook of 128 x 512, the codes row by row on a grid of 4 x 4, which four transposed
convolutions take to 64 x 64. Architecture and names of the arrays are facts of the published code and file
(big_vision, `evaluators/proj/paligemma/transfers/segmentation.py`, file `vae-oid.npz`; after Ning et al., "All in
Tokens", arXiv:2301.02229). The file was made with PyTorch. The published code transposes its kernels for JAX and
has them flipped back (`transpose_kernel=True`; padding 2 of the dilated input is PyTorch's padding 4 - 1 - 2 = 1),
so the arrays are used here as they lie.

Weights come from a file that the user has; nothing is downloaded. `vae-oid.npz` holds the encoder too (`encoder.*`),
which is not read.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from benchmarks.masks import draw_grid, to_run_lengths
from benchmarks.schema import Image, Mask
from collators.codecs.code_fields import LAST_MASK_CODE
from collators.codecs.seg_tokens import CodedMask
from recipes.errors import UserError

CODEBOOK = "_vq_vae._embedding"
WIDTH = 512
GRID = 4


class _Residual(nn.Module):
    """Two 3 x 3 convolutions and one of 1 x 1, added to their input."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(channels, channels, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(channels, channels, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(channels, channels, 1),
        )

    def forward(self, values: Tensor) -> Tensor:
        added: Tensor = self.net(values)
        return values + added


class MaskDecoder(nn.Module):
    """Mask codes to coarse masks; `load_mask_decoder` makes one with weights."""

    def __init__(self) -> None:
        super().__init__()
        self.codebook = nn.Parameter(torch.empty(LAST_MASK_CODE + 1, WIDTH))
        # The places in the sequence are part of the arrays' names in the published file.
        layers: list[nn.Module] = [nn.Conv2d(WIDTH, 128, 1), nn.ReLU(), _Residual(128), _Residual(128)]
        for before, after in ((128, 128), (128, 64), (64, 32), (32, 16)):
            layers += [nn.ConvTranspose2d(before, after, 4, stride=2, padding=1), nn.ReLU()]
        self.decoder = nn.Sequential(*layers, nn.Conv2d(16, 1, 1))

    def forward(self, codes: Tensor) -> Tensor:
        """Decodes.

        Args:
            codes: int64[N, 16], values 0..127.

        Returns:
            float32[N, 64, 64], about -1 outside and 1 inside the mask. Its border is at 0: mapped to 0..1 by
            (value + 1) / 2, that is the threshold 0.5.
        """
        vectors = self.codebook[codes].reshape(-1, GRID, GRID, WIDTH).permute(0, 3, 1, 2)
        decoded: Tensor = self.decoder(vectors)
        return decoded.squeeze(1)


def load_mask_decoder(path: Path) -> MaskDecoder:
    """The decoder with the weights of a file, on the CPU in float32, not to be trained.

    Args:
        path: `vae-oid.npz` as published, or the same arrays as `.safetensors`.

    Raises:
        UserError: No such file, not one of these two kinds, or an array of the decoder is missing, has another shape,
            does not hold finite real numbers, or is one too many.
    """
    # Nothing is allocated or drawn at random for weights that are replaced.
    with torch.device("meta"):
        model = MaskDecoder()
    names = {name: CODEBOOK if name == "codebook" else name for name in model.state_dict()}
    shapes = {names[name]: tuple(value.shape) for name, value in model.state_dict().items()}
    present, arrays = _read(path, shapes.keys())
    problems = list(_problems(shapes, present, arrays))
    if problems:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        raise UserError(
            f"{problems[0]}{more}", where=str(path), fix="give vae-oid.npz as published, or its arrays as safetensors"
        )
    weights = {name: torch.from_numpy(arrays[stored].astype(np.float32)) for name, stored in names.items()}
    model.load_state_dict(weights, assign=True)
    return model.requires_grad_(requires_grad=False).eval()


def native_masks(decoder: MaskDecoder, coded: Sequence[CodedMask], images: Sequence[Image]) -> tuple[Mask, ...]:
    """Masks as run lengths in native pixels of their images, drawn by the rule of `benchmarks.masks`.

    Args:
        decoder: The decoder with its weights.
        coded: What the codec `seg_tokens` read from a text.
        images: The images of the question.
    """
    if not coded:
        return ()
    with torch.inference_mode():
        grids = decoder(torch.tensor([each.codes for each in coded], device=decoder.codebook.device)).cpu().numpy()
    masks: list[Mask] = []
    for each, grid in zip(coded, grids, strict=True):
        image = images[each.image]
        pixels = draw_grid(grid, each.xyxy, (image.height, image.width))
        masks.append(Mask(image=each.image, rle=to_run_lengths(pixels), label=each.label))
    return tuple(masks)


def _read(path: Path, wanted: AbstractSet[str]) -> tuple[set[str], dict[str, NDArray[Any]]]:
    """The names of all arrays of a file, and those arrays of it that are wanted."""
    from safetensors import SafetensorError, safe_open

    try:
        if path.suffix == ".npz":
            with np.load(path, allow_pickle=False) as file:
                names = set(file.files)
                # What is no array in the archive comes as bytes.
                return names, {name: np.asarray(file[name]) for name in wanted & names}
        if path.suffix == ".safetensors":
            with safe_open(path, framework="numpy") as file:
                names = set(file.keys())
                return names, {name: file.get_tensor(name) for name in wanted & names}
    except (OSError, EOFError, ValueError, TypeError, zipfile.BadZipFile, zlib.error, SafetensorError) as error:
        raise UserError(
            f"weights of the mask decoder cannot be read: {error}", where=str(path), fix="give vae-oid.npz as published"
        ) from error
    raise UserError(
        f"weights of the mask decoder in a file of the kind {path.suffix!r}",
        where=str(path),
        fix="give .npz or .safetensors",
    )


def _problems(
    shapes: Mapping[str, tuple[int, ...]], present: AbstractSet[str], arrays: Mapping[str, NDArray[Any]]
) -> Iterator[str]:
    """What is wrong with the arrays of a file, one sentence each."""
    for name, shape in shapes.items():
        if name not in arrays:
            yield f"array {name} of shape {shape} is missing"
        elif arrays[name].shape != shape:
            yield f"array {name} has the shape {arrays[name].shape}, expected {shape}"
        elif not np.issubdtype(arrays[name].dtype, np.floating) or not np.isfinite(arrays[name]).all():
            yield f"array {name} of type {arrays[name].dtype} does not hold finite real numbers"
    for name in sorted(present - shapes.keys()):
        if name.startswith("decoder."):
            yield f"array {name} is no part of the decoder"
