"""The check for intermittent faults, and for those under other load: the same products, reductions
and copies again and again, on several threads and CUDA streams, compared bit by bit."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import Any, Callable, Dict, Optional

import torch

from ..judging.answers import normal
from ..values import FAILED, PASSED, WRONG, Outcome, kind

SECONDS = 4.0
"""How long the loop runs: on an H100 some 10,000 rounds, on two CPU cores some hundreds."""
THREADS = 2
"""How many threads repeat the work beside the main one, each on a stream of its own."""
WAIT_SECONDS = 60.0
"""How long a thread may take to end its last round."""


def tasks(device: str) -> Dict[str, Callable[[], Any]]:
    """The products, reductions and copies. None adds in an order that may change from call to call,
    as atomic additions do. Sizes lie around the edges of the kernels' blocks."""
    functional = torch.nn.functional
    a = normal(device, 255, 513, salt="repeats a")
    b = normal(device, 513, 257, salt="repeats b")
    left, right = a.bfloat16(), b.bfloat16()
    batch = normal(device, 17, 33, 65, salt="repeats batch")
    bias = normal(device, 257, salt="repeats bias")
    row = normal(device, 300_007, salt="repeats row")
    images = normal(device, 2, 8, 33, 31, salt="repeats images")
    kernel = normal(device, 8, 8, 3, 3, salt="repeats kernel")
    # 7 shares no factor with 300,007, so each position comes once.
    shuffled = torch.arange(300_007, device=device) * 7 % 300_007

    def gradient_of_convolution() -> Any:
        with torch.enable_grad():
            weights = kernel.clone().requires_grad_()
            functional.conv2d(images, weights).square().sum().backward()
        return weights.grad

    made: Dict[str, Callable[[], Any]] = {
        "product": lambda: a @ b,
        "product in bfloat16": lambda: left @ right,
        "products of a batch": lambda: torch.bmm(batch, batch.transpose(1, 2)),
        "product with a bias": lambda: torch.addmm(bias, a, b),
        "sum": lambda: torch.stack([row.sum(), row.abs().sum(), row.max(), row.min()]),
        "sum of rows": lambda: a.sum(1),
        "softmax": lambda: a.softmax(-1),
        "norm": lambda: functional.layer_norm(a, (513,)),
        "function": lambda: functional.gelu(row.exp()),
        "convolution": lambda: functional.conv2d(images, kernel),
        "gradient of a convolution": gradient_of_convolution,
        "copy": lambda: row.clone(),
        "copy of columns": lambda: a.t().contiguous(),
        "copy in 16 bits": lambda: row.bfloat16(),
        "copy through the host": lambda: shuffled.cpu().to(device),
        "rows by place": lambda: row[shuffled],
        "sorted": lambda: row[:4097].sort()[0],
    }
    if kind(device) == "cuda":
        made["copy through pinned memory"] = lambda: (
            shuffled.cpu().pin_memory().to(device, non_blocking=True)
        )
    return made


class Loop:
    """The rounds of all threads, with their first answers and what differed."""

    def __init__(self, device: str) -> None:
        self.device, self.tasks = device, tasks(device)
        # The first call of a kernel may choose an algorithm; the second is the one to repeat.
        for run in self.tasks.values():
            run()
        self.first = {name: run() for name, run in self.tasks.items()}
        self.end = time.monotonic() + SECONDS
        self.rounds = 0
        self.difference = ""
        """The first answer that was unlike the first one of its task, in words."""
        self.problem: Optional[Exception] = None

    def repeat(self, where: str) -> None:
        """Repeat all tasks on a stream of this thread's own, until an answer differs."""
        stream: Any = contextlib.nullcontext()
        try:
            if kind(self.device) == "cuda":
                own_stream = torch.cuda.Stream(self.device)
                # It starts when the first answers are there.
                own_stream.wait_stream(torch.cuda.default_stream(self.device))
                stream = torch.cuda.stream(own_stream)
            with torch.no_grad(), stream:
                while time.monotonic() < self.end and not self.difference and not self.problem:
                    self._round(where)
        except Exception as problem:
            self.problem = problem

    def _round(self, where: str) -> None:
        """Compute every task once, and compare the answers with the first ones."""
        # Start all tasks before the first comparison, which waits for the device.
        answers = {name: run() for name, run in self.tasks.items()}
        for name, answer in answers.items():
            if not torch.equal(answer, self.first[name]):
                count = int((answer != self.first[name]).sum())
                self.difference = (
                    f"{name}, on {where}, in round {self.rounds}: {count} of {answer.numel()} "
                    "elements differ from the first result"
                )
        self.rounds += 1


def repeats(device: str) -> Outcome:
    """The same work gives the same bits every time, on several threads and streams.

    A chip or memory that is wrong now and then shows, and a kernel that is wrong beside other work
    or from the second call on.
    """
    # cuDNN's fastest algorithms may add in any order.
    setting = torch.backends.cudnn.deterministic
    torch.backends.cudnn.deterministic = True
    try:
        loop = Loop(device)
        threads = [
            threading.Thread(target=loop.repeat, args=(f"thread {number + 1}",), daemon=True)
            for number in range(THREADS)
        ]
        for thread in threads:
            thread.start()
        loop.repeat("the main thread")
        for thread in threads:
            thread.join(WAIT_SECONDS)
    finally:
        torch.backends.cudnn.deterministic = setting
    if loop.problem:
        raise loop.problem
    if loop.difference:
        return Outcome(FAILED, loop.difference, problem=WRONG)
    detail = (
        f"{loop.rounds} rounds of {len(loop.tasks)} computations on {THREADS + 1} threads, "
        "each with the bits of its first answer"
    )
    return Outcome(PASSED, detail)
