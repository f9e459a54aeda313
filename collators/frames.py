"""Which slices of a volume a model is shown, and which target boxes then lie on frames that it cannot see."""

from __future__ import annotations

import msgspec

from benchmarks.schema import Record
from recipes.inputs import Frames


def shown_places(frames: Frames, count: int) -> list[int]:
    """Numbers of the images that are shown of `count` images, from 0, in order.

    Args:
        frames: The recipe's choice.
        count: Images of the record, in frame order.
    """
    if frames.count is None or count <= frames.count:
        return list(range(count))
    if frames.select == "uniform":
        if frames.count == 1:
            return [(count - 1) // 2]
        # Whole-number arithmetic, rounded half up: no float decides which frame is shown.
        steps = frames.count - 1
        return [(2 * place * (count - 1) + steps) // (2 * steps) for place in range(frames.count)]
    middle = (count - 1) // 2 if frames.center is None else frames.center - 1
    first = min(max(middle - (frames.count - 1) // 2, 0), count - frames.count)
    return list(range(first, first + frames.count))


def shown(record: Record, frames: Frames) -> Record:
    """The record as a model is shown it: other images are left out, and so are the target's boxes and masks on them.

    Only records of several images that all have a frame are volumes; any other is returned as it is.
    """
    images = record.images
    if frames.select == "all" or len(images) < 2 or any(image.frame is None for image in images):
        return record
    places = {old: new for new, old in enumerate(shown_places(frames, len(images)))}
    target = record.target
    return msgspec.structs.replace(
        record,
        images=tuple(images[place] for place in places),
        target=msgspec.structs.replace(
            target,
            boxes=tuple(
                msgspec.structs.replace(box, image=places[box.image]) for box in target.boxes if box.image in places
            ),
            masks=tuple(
                msgspec.structs.replace(mask, image=places[mask.image]) for mask in target.masks if mask.image in places
            ),
        ),
    )


def keeps_target(record: Record, seen: Record, frames: Frames) -> bool:
    """Whether a record can be trained on with the frames that are shown of it; see `recipes.inputs.Frames.unseen`.

    Args:
        record: As prepared.
        seen: What `shown` made of it.
        frames: The recipe's choice.
    """
    hidden = len(record.target.boxes) - len(seen.target.boxes)
    return not hidden or (frames.unseen == "cut" and bool(seen.target.boxes))
