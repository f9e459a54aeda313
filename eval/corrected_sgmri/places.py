"""Places in words: taking boxes and frame numbers out of a text, so that words are compared with words.

Every form of box that the benchmark's answers and outputs use is known (sgmri.md, section 8), with fractions and in any
case, and every way to name frames: `Frame 7`, `slice #7`, `on frames 7-9`, `Frames 3, 4 and 5`. In `Frame 7, 3 lesions`
only the 7 is a frame: what a word follows is a number of its own.
"""

from __future__ import annotations

import re

_NUMBER = r"[-+]?\d+(?:\.\d+)?"
_FOUR = rf"\s*{_NUMBER}(?:\s*,\s*{_NUMBER}){{3}}\s*"
_PAIR = rf"\(\s*{_NUMBER}\s*,\s*{_NUMBER}\s*\)"
_BOXES = re.compile(
    r"(?:\bat\s+)?(?:<bb(?:x|o|ox)>[^<]*<[/\\]bb(?:x|o|ox)>"
    r"|<\|box_start\|>[^<]*<\|box_end\|>"
    rf"|\bbbox(?:_2d)?\s*\({_FOUR}\)"
    r"|\{[^{}]*\"(?:bbox_2d|min_x|width)\"[^{}]*\}"
    rf"|{_PAIR}\s*,?\s*{_PAIR}"
    rf"|\[{_FOUR}\])",
    re.IGNORECASE,
)
_FRAME = r"\d{1,6}(?!\d)"
_RANGE = rf"{_FRAME}(?:\s*[-–]\s*{_FRAME})?"
_LIST = rf"{_FRAME}(?:\s*(?:-|–|,\s*and\b|,|&|\band\b|\bto\b|\bthrough\b)\s*{_FRAME})*"
_FRAMES = re.compile(
    r"(?:\b(?:on|in|at|across|from)\s+)?"
    rf"\b(?:(?:frames|slices)\s*#?\s*{_LIST}"
    rf"|(?:frame|slice)(?:\s+(?:number|no\.?))?\s*#?\s*(?:{_LIST}(?=\s*(?:[^\w\s]|$))|{_RANGE}))\s*:?",
    re.IGNORECASE,
)
# What is left of a list of places: marks side by side, empty brackets, an "and" before a full stop.
_TIDY = (
    (re.compile(r"\(\s*[,;:]*\s*\)|\[\s*[,;:]*\s*\]"), " "),
    (re.compile(r"\s+"), " "),
    (re.compile(r"(?:\s*[,;:])+(?:\s*\band\b)?\s*([.,;:])"), r"\1"),
    (re.compile(r"\s+([.,;:!?])"), r"\1"),
    (re.compile(r"([,;:.])(?:\s*\1)+"), r"\1"),
)


def without_places(text: str) -> str:
    """The text without boxes and frame numbers, left-over marks tidied; empty if nothing else was in it."""
    plain = _FRAMES.sub(" ", _BOXES.sub(" ", " ".join(text.split())))
    for pattern, kept in _TIDY:
        plain = pattern.sub(kept, plain)
    plain = plain.strip(" ,;:")
    return plain if any(character.isalnum() for character in plain) else ""
