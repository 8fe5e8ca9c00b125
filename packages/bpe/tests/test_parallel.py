"""Work in threads: in order, and over at the first error."""

import threading

import pytest

from bpe.native.parallel import in_threads


@pytest.mark.parametrize("threads", [1, 2, None])
@pytest.mark.parametrize("items", [0, 1, 2, 7, 100])
def test_results_are_in_the_order_of_the_items(threads: int | None, items: int) -> None:
    assert in_threads(lambda item: item * item, range(items), threads) == [item * item for item in range(items)]


@pytest.mark.parametrize("threads", [1, 2])
def test_an_error_is_raised_and_what_waits_is_left(threads: int) -> None:
    done = []

    def work(item: int) -> None:
        if item == 0:
            raise KeyError("the first")
        done.append(item)

    before = threading.active_count()
    with pytest.raises(KeyError, match="the first"):
        in_threads(work, range(10_000), threads)
    assert len(done) < 9_999
    assert threading.active_count() == before


def test_ctrl_c_in_the_caller_leaves_what_waits_and_no_thread() -> None:
    caller = threading.get_ident()
    stopped = threading.Event()
    done = []

    def work(item: int) -> None:
        if threading.get_ident() == caller:
            stopped.set()
            raise KeyboardInterrupt
        stopped.wait()
        done.append(item)

    before = threading.active_count()
    with pytest.raises(KeyboardInterrupt):
        in_threads(work, range(10_000), 2)
    assert len(done) < 10_000
    assert threading.active_count() == before
