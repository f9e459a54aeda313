"""How SGMRI-VQA texts name frames; readers and codecs share it.

`Frame 7`, `frame #7`, `Slice 7` and `Frame 7-9` name one frame or a range, `Frames 3, 4 and 5` a list. `Frame 7, 3
lesions` names frame 7 only: a list needs the plural.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

# More digits are no frame number; Python also refuses to convert very long ones.
_NUMBER = r"[0-9]{1,6}(?![0-9])"
FRAMES = re.compile(
    rf"\b(?P<word>(?P<many>frames|slices)|frame|slice)(?P<gap>\s*#?\s*)"
    rf"(?P<numbers>(?(many){_NUMBER}(?:\s*(?:-|–|,?\s*and|,|to)\s*{_NUMBER})*|{_NUMBER}(?:\s*[-–]\s*{_NUMBER})?))",
    re.IGNORECASE,
)
_PART = re.compile(rf"({_NUMBER})\s*(?:-|–|to)\s*({_NUMBER})|({_NUMBER})")
# A longer range is no list of places but a remark on the volume.
_LONGEST_RANGE = 200


def frame_numbers(numbers: str) -> Iterator[int]:
    """The frames of `7`, `7-9` or `7, 9 and 11`, the group `numbers` of `FRAMES`."""
    for first, last, single in _PART.findall(numbers):
        if single:
            yield int(single)
        else:
            yield from range(int(first), min(int(last), int(first) + _LONGEST_RANGE) + 1)


def shift_frames(text: str, by: int) -> str:
    """The text with every frame number it names moved: `Frames 3, 4 and 5` -> `Frames 4, 5 and 6`."""

    def moved(match: re.Match[str]) -> str:
        numbers = re.sub("[0-9]+", lambda number: str(int(number[0]) + by), match["numbers"])
        return f"{match['word']}{match['gap']}{numbers}"

    return FRAMES.sub(moved, text)
