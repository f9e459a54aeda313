"""Keys of vision features: whatever decides a bit of them enters, and nothing else does.

`FeatureSpace` is what all image sets of a run share: the weights of vision tower and projector, how they are computed,
how pixels are made. A set adds the contents of its image files, in order, and the geometry in which they are shown.
Paths and record ids do not enter: a file that was changed in place has another key, one that was moved keeps its own.

Not covered is what rounds otherwise on the same device with the same packages, such as another number of CPU threads;
features then differ from fresh ones as fresh ones would from each other.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from transformers import PreTrainedModel

# Raise it when `benchmarks.images` or `collators.canvas` make other pixels of the same file.
PIXEL_RULE = 1
# They decode, resize and compute.
PACKAGES = ("pillow", "torch", "torchvision", "transformers")
# Of a PEFT model, before the names of its base.
_WRAPPER = "base_model.model."


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureSpace:
    """What features depend on besides the images.

    Attributes:
        image_processor: Hash of the image processor's settings (`collators.encoder.processor_parts`).
        weights: Hash of vision tower and projector (`tower_hash`); types of the weights included.
        config: Hash of the vision config (`config_hash`): what weights do not say, such as the activation.
        attention: Attention implementation of the tower.
        patches: Class of the layer that embeds patches (`models.patches`).
        precision: What the tower computes in beside the types of its weights: `weights` for nothing else, or an autocast.
        device: What computes (`device_name`).
        versions: Package -> version (`package_versions`).
        pixel_rule: How files become pixels.
    """

    image_processor: str
    weights: str
    config: str
    attention: str
    patches: str
    precision: str
    device: str
    versions: tuple[tuple[str, str], ...]
    pixel_rule: int = PIXEL_RULE

    def key(self, contents: Sequence[str], geometry: Mapping[str, Any]) -> str:
        """The key of an image set.

        Args:
            contents: What identifies the content of each image, in the order in which the model sees them: the SHA-256
                of its file.
            geometry: How they are shown, in values of JSON: pixel budget, canvas, stated sizes.

        Returns:
            SHA-256, 64 hexadecimal digits.
        """
        return json_hash({"space": asdict(self), "contents": list(contents), "geometry": dict(geometry)})


def patch_layer(model: nn.Module) -> str:
    """Class of the convolution, or product, that embeds a model's patches."""
    return next(type(module).__name__ for module in model.modules() if isinstance(module, (nn.Conv2d, nn.Conv3d)))


def tower_hash(model: nn.Module, prefixes: Sequence[str]) -> str:
    """SHA-256 over the parameters and kept buffers below some prefixes; the same seen through PEFT's wrapper.

    Args:
        model: The whole model, on any device; ZeRO-3 and FSDP must not have cut it up yet.
        prefixes: Names of the vision tower and the projector in the base model, each with its closing dot.

    Raises:
        ValueError: No tensor has such a name, or one has no content here.
    """
    named = {name.removeprefix(_WRAPPER): tensor for name, tensor in model.state_dict().items()}
    found = {name: named[name] for name in sorted(named) if name.startswith(tuple(prefixes))}
    if not found:
        raise ValueError(f"no tensor of the model has a name that starts with {', '.join(prefixes)}")
    for name, tensor in found.items():
        if tensor.is_meta or not tensor.numel():
            raise ValueError(f"{name} has no content in this process: hash the model before it is cut up")
    return tensors_hash(found.items())


def tensors_hash(tensors: Iterable[tuple[str, Tensor]]) -> str:
    """SHA-256 over names, types, shapes and bytes of tensors on any device, in the given order."""
    digest = hashlib.sha256()
    for name, tensor in tensors:
        digest.update(f"{json.dumps(name)} {tensor.dtype} {list(tensor.shape)}\n".encode())
        # numpy has no bfloat16; bytes are the same in all types.
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def config_hash(model: PreTrainedModel) -> str:
    """SHA-256 over the config of a model's vision tower."""
    return json_hash(model.config.vision_config.to_dict())


def device_name(device: torch.device) -> str:
    """What decides how a device rounds: the model of a GPU, the vector instructions of a CPU."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{device.type} {torch.backends.cpu.get_cpu_capability()}"


def package_versions() -> tuple[tuple[str, str], ...]:
    """Versions of the packages that make pixels and features."""
    return tuple((package, importlib.metadata.version(package)) for package in PACKAGES)


def json_hash(value: Any) -> str:  # noqa: ANN401 - JSON has no narrower type
    """SHA-256 of a value as JSON, its keys sorted."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()
