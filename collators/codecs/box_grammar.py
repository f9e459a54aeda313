"""Which location number may come next, so that a box can still be read as one that lies on a view.

A box is four numbers in the text's order, y1 x1 y2 x2. It is read if some panel with an image holds more than
`benchmarks.canvas.MOSTLY` of its area, and that share is a product of one factor for each axis. So a number may
come if its factor, times the best that the numbers still missing can reach, is enough on one of the panels; a
box whose numbers do not increase has the share 0. Shares are computed by `Layout.shares`, as in reading, hence
what is allowed is exactly what can be completed.
"""

from __future__ import annotations

import functools
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from benchmarks.canvas import MOSTLY, BoolMask, Floats, Layout
from collators.codecs.canvas_boxes import reach
from collators.codecs.location import LAST

Axis = Literal[0, 1]


class BoxGrammar:
    """The boxes of one layout, number by number.

    Args:
        layout: The canvas.
    """

    def __init__(self, layout: Layout) -> None:
        numbers = np.arange(LAST + 1)
        self._layout = layout
        self._reach = reach(layout)
        self._edges = (numbers * layout.width / LAST, numbers * layout.height / LAST)
        self._shown = np.array([panel.image is not None for panel in layout.panels])
        self._best = (self._best_shares(0), self._best_shares(1))

    def allowed(self, prefix: tuple[int, ...]) -> BoolMask:
        """The numbers with which some box begins.

        Args:
            prefix: The first 0 to 3 numbers of a box, in the order y1 x1 y2 x2.

        Returns:
            bool[1024], true for each number that may follow; all false if no box begins with the prefix.

        Raises:
            ValueError: The prefix is a whole box or longer.
        """
        across, down = self._best
        everything = np.arange(LAST + 1)
        match prefix:
            case ():
                following, rest = down, across.max(axis=0)
            case (y1,):
                following, rest = across, down[y1]
            case (y1, x1):
                following, rest = self._shares(1, y1, everything[:, None]), across[x1]
            case (y1, x1, y2):
                following, rest = self._shares(0, x1, everything[:, None]), self._shares(1, y1, y2)
            case _:
                raise ValueError(f"a box has four numbers, {len(prefix)} are given already")
        found: BoolMask = ((following * rest > MOSTLY) & self._shown).any(axis=1)
        return found

    def _shares(self, axis: Axis, low: int | NDArray[np.intp], high: int | NDArray[np.intp]) -> Floats:
        edges = self._edges[axis]
        return self._layout.shares(axis, edges[low], edges[high], self._reach[axis])

    def _best_shares(self, axis: Axis) -> Floats:
        """The largest share that a span from each number has on each panel, wherever it is enough: float[1024, P].

        It is that of the span which ends with the panel: a shorter one can at best have as much, and one that goes on
        is more than half a bin outside, which costs a share above a half more than reaching the very end gains.
        """
        panels, edges = self._layout.panels, self._edges[axis]
        ends = np.array([(panel.x + panel.width, panel.y + panel.height)[axis] for panel in panels])
        last = np.searchsorted(edges, ends + self._reach[axis], side="right") - 1
        return self._shares(axis, np.arange(LAST + 1)[:, None], last)


@functools.lru_cache(maxsize=256)
def box_grammar(layout: Layout) -> BoxGrammar:
    """The grammar of a layout; most questions of a benchmark share a few."""
    return BoxGrammar(layout)
