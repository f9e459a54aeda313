"""Work that waits for others (servers, disks), several pieces at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from itertools import islice
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def as_finished(
    work: Callable[[Item], Result], items: Iterable[Item], *, threads: int
) -> Iterator[tuple[Item, Result]]:
    """Does `work` on each item and gives the results as they come.

    Only as much is begun as can run, so that a stop is soon: after an exception nothing new begins, what is running ends
    and is given, then the exception is raised.

    Args:
        work: What to do; called from several threads.
        items: What to do it on.
        threads: Pieces at a time; 1 does them one after the other in the caller's own thread.
    """
    if threads == 1:
        for item in items:
            yield item, work(item)
        return
    waiting = iter(items)
    running: dict[Future[Result], Item] = {}
    failure: BaseException | None = None
    with ThreadPoolExecutor(threads) as pool:
        while True:
            if failure is None:
                for item in islice(waiting, threads - len(running)):
                    running[pool.submit(work, item)] = item
            if not running:
                break
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                item, error = running.pop(future), future.exception()
                if error is None:
                    yield item, future.result()
                else:
                    failure = failure or error
    if failure is not None:
        raise failure
