"""Which test cases the report's gallery shows, and what it says of each answer."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Literal

from eval.schema import System
from eval.schema_scores import RowResult

Verdict = Literal["right", "wrong", "invalid", "error", "not scored"]
VERDICTS: tuple[Verdict, ...] = ("right", "wrong", "invalid", "error", "not scored")
HIT = 0.5


def verdict(row: RowResult) -> Verdict:
    """What became of a record.

    `right` needs every target box at IoU >= .5, no box too many, and the class or text right, as far as
    the record asks for them; the region name is not looked at. A record that asks for nothing is
    `not scored`.
    """
    if row.error is not None:
        return "error"
    if not row.valid:
        return "invalid"
    if row.class_correct is None and not row.ious:
        return "not scored"
    hit = all(value >= HIT for value in row.ious) and row.extra_boxes == 0
    return "right" if hit and row.class_correct is not False else "wrong"


def choose_cases(systems: Sequence[System]) -> Iterator[int]:
    """Numbers of all records, in an order in which any head is balanced over task, verdict and system.

    Every combination that occurs gets its turn, in rounds. Within one the order is that of a hash of
    the id: the same each time, and not by patient.
    """
    buckets: dict[tuple[str, Verdict, int], list[int]] = {}
    for number, system in enumerate(systems):
        for place, row in enumerate(system.rows):
            buckets.setdefault((row.task, verdict(row), number), []).append(place)
    rows = systems[0].rows
    turn = [hashlib.sha256(row.id.encode("utf-8", "surrogatepass")).digest() for row in rows]
    ordered = sorted(buckets, key=lambda key: (VERDICTS.index(key[1]), key[0], key[2]))
    queues = [iter(sorted(buckets[key], key=lambda place: turn[place])) for key in ordered]
    seen: set[int] = set()
    while len(seen) < len(rows):
        for queue in queues:
            unseen = next((place for place in queue if place not in seen), None)
            if unseen is not None:
                seen.add(unseen)
                yield unseen
