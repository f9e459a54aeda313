"""Comparing what a scorer gives with what a file of reference cases expects."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.errors import DataError
from recipes.errors import UserError

# What a scorer may stop with, and our refusals of a row; anything else is a bug of ours.
_STOPS = (UserError, TypeError, ValueError, OverflowError, RecursionError, KeyError, IndexError, AttributeError)


@dataclass(frozen=True, slots=True)
class Mismatch:
    """One difference.

    Attributes:
        case: Kind and name of the case.
        field: Path of the field inside what is expected.
        expected: The reference value.
        got: Ours.
    """

    case: str
    field: str
    expected: object
    got: object

    def __str__(self) -> str:
        return f"{self.case}: {self.field}: expected {self.expected!r}, got {self.got!r}"


@dataclass(frozen=True, slots=True)
class Absent:
    """Stands in a mismatch for a value that one side does not have."""

    why: str = "nothing"

    def __repr__(self) -> str:
        return self.why


def outcome(compute: Callable[[], Mapping[str, Any]]) -> Mapping[str, Any]:
    """The computed fields, or `raises` (the exception's type) and `message` where the scorer stops."""
    try:
        return compute()
    except _STOPS as error:
        return {"raises": type(error).__name__, "message": str(error)}


def compare_fields(
    case: str, expected: Mapping[str, Any], got: Mapping[str, Any], *, tolerance: float = 0.0
) -> Iterator[Mismatch]:
    """Compares every expected field; fields that the reference does not list are free.

    An exception on one side only is one mismatch, named `raises`. Numbers may differ by `tolerance`.
    """
    if ("raises" in got) != ("raises" in expected):
        stopped = f"{got['raises']}: {got['message']}" if "raises" in got else Absent("a result")
        yield Mismatch(case, "raises", expected.get("raises", Absent("a result")), stopped)
        return
    for field, value in expected.items():
        if field in got:
            yield from compare(case, field, value, got[field], tolerance=tolerance)
        else:
            yield Mismatch(case, field, value, Absent("a field this scorer does not compute"))


def compare(case: str, field: str, expected: object, got: object, *, tolerance: float = 0.0) -> Iterator[Mismatch]:
    """Compares values all the way down; `1` equals `1.0`, but no number equals a boolean."""
    if isinstance(expected, dict) and isinstance(got, dict):
        for key in [*expected, *(key for key in got if key not in expected)]:
            pair = (expected.get(key, Absent()), got.get(key, Absent()))
            yield from compare(case, f"{field}.{key}", *pair, tolerance=tolerance)
    elif isinstance(expected, list) and isinstance(got, list):
        for index in range(max(len(expected), len(got))):
            first, second = (side[index] if index < len(side) else Absent() for side in (expected, got))
            yield from compare(case, f"{field}[{index}]", first, second, tolerance=tolerance)
    elif not _equal(expected, got, tolerance):
        yield Mismatch(case, field, expected, got)


def _equal(expected: object, got: object, tolerance: float) -> bool:
    if isinstance(expected, bool) != isinstance(got, bool):
        return False
    if isinstance(expected, float) and isinstance(got, float) and math.isnan(expected):
        return math.isnan(got)
    if tolerance and isinstance(expected, int | float) and isinstance(got, int | float):
        return math.isclose(expected, got, rel_tol=0.0, abs_tol=tolerance)
    return expected == got


def need(case: Mapping[str, Any], key: str, kind: type[Any], where: str) -> Any:  # noqa: ANN401 - checked by `kind`
    """The value of a key that every case of its kind has.

    Raises:
        DataError: The key is missing or holds another type.
    """
    value = case.get(key)
    if not isinstance(value, kind):
        raise DataError(
            f"{key!r} must be a {kind.__name__}, it is {value!r:.80}" if key in case else f"{key!r} is missing",
            where=where,
            fix="the layout of reference cases is fixed by the file's `format`",
        )
    return value
