"""How a dataset is cut into the calls of an engine."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

from benchmarks.schema import Record


def consecutive(count: int, size: int) -> list[list[int]]:
    """Positions of `count` records in blocks of `size`, in dataset order."""
    return [list(range(start, min(start + size, count))) for start in range(0, count, size)]


def together(records: Sequence[Record], size: int, key: Callable[[Record], Hashable]) -> list[list[int]]:
    """Positions of records in blocks of up to `size`, those with an equal key in one block.

    Keys come in the order of their first records, however far apart these lie in the dataset. A key with more records
    than a block has makes a longer block of its own.

    Args:
        records: In dataset order.
        size: Records of a block.
        key: What records have in common that belong together.
    """
    sets: dict[Hashable, list[int]] = {}
    for position, record in enumerate(records):
        sets.setdefault(key(record), []).append(position)
    blocks: list[list[int]] = []
    for members in sets.values():
        if blocks and len(blocks[-1]) + len(members) <= size:
            blocks[-1] += members
        else:
            blocks.append(members)
    return blocks
