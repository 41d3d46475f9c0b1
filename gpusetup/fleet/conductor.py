"""Asks many nodes at once: so many at a time, their beginnings apart, each with its own end."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait

from gpusetup.system.processes import Output, end_children

Ask = Callable[[str], Output]
"""A node's name -> what it said; never raises for what the node does."""
AT_ONCE = 32
GAP_SECONDS = 0.1
"""A scheduler sees no more beginnings than one in so many seconds, and never two in step."""


def conducted(
    nodes: Sequence[str], ask: Ask, at_once: int = AT_ONCE, gap: float = GAP_SECONDS
) -> Generator[tuple[str, Output], None, None]:
    """Each node with what it said, in the order in which they end.

    Whatever ends the iteration early ends the children that were started for it.
    """
    pool = ThreadPoolExecutor(max_workers=max(1, min(at_once, len(nodes))))
    turn = threading.Lock()

    def asked(node: str) -> Output:
        with turn:
            time.sleep(gap * random.uniform(0.5, 1.5))
        return ask(node)

    try:
        running: dict[Future[Output], str] = {pool.submit(asked, node): node for node in nodes}
        while running:
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                yield running.pop(future), future.result()
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        end_children()
        raise
    pool.shutdown()
