"""Several pieces of work at a time: every result once, a limit on how many run, an orderly stop."""

import threading
import time

import pytest

from benchmarks.threads import as_finished


@pytest.mark.parametrize("threads", [1, 2, 7])
@pytest.mark.parametrize("count", [0, 1, 20])
def test_every_item_comes_once_with_its_own_result(threads, count):
    found = list(as_finished(lambda item: item * item, range(count), threads=threads))
    assert sorted(found) == [(item, item * item) for item in range(count)]


def test_no_more_run_than_allowed_and_so_many_do():
    lock, together = threading.Lock(), threading.Barrier(3)
    running, most = [0], [0]

    def work(item):
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        # Passes only if three run at the same time.
        together.wait(timeout=30)
        with lock:
            running[0] -= 1

    list(as_finished(work, range(12), threads=3))
    assert most == [3]


def test_one_thread_is_the_callers_own_and_works_only_when_asked():
    done = []

    def work(item):
        done.append((item, threading.current_thread()))

    results = as_finished(work, range(3), threads=1)
    assert not done
    next(results)
    assert done == [(0, threading.current_thread())]


def test_after_an_exception_nothing_begins_and_what_ran_is_given():
    begun = []
    failing = threading.Event()

    def work(item):
        begun.append(item)
        if item == 0:
            while len(begun) < 3:
                time.sleep(0.001)
            failing.set()
            raise KeyError(item)
        failing.wait(timeout=30)
        time.sleep(0.05)
        return item

    found = []

    def consume():
        for item, _ in as_finished(work, range(100), threads=3):
            found.append(item)

    with pytest.raises(KeyError):
        consume()
    assert sorted(begun) == [0, 1, 2]
    assert sorted(found) == [1, 2]
