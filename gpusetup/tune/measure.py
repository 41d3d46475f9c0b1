"""Trials on the real device, in a child of the target interpreter (`bench_child.py`).

A trial that runs out of memory, crashes or hangs ends alone. What it said is judged here: out of
memory in any spelling is a trial that failed, anything else an error.
"""

from __future__ import annotations

import itertools
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from gpusetup.errors import BadInput, Blocked, ToolFailed, UsageError
from gpusetup.model.frozen import Frozen, replace
from gpusetup.system.processes import Output
from gpusetup.tune.bench_child import answered
from gpusetup.tune.knee import next_for_speed
from gpusetup.tune.oom import is_answer_short, is_killed_for_memory, is_out_of_memory
from gpusetup.tune.search import hopeless, next_batch
from gpusetup.tune.trial import Goal, Trial

SECONDS = 20.0
"""How long the timed steps of one trial go on at most."""
STARTING_SECONDS = 280.0
"""What a trial may take besides: importing torch, building the model."""
COMPILING_SECONDS = 900.0
"""What torch.compile may take besides."""
LEAST_STEPS = 4
"""One to warm up, one that is read, two that are timed."""
MARGIN = 0.02
"""This part of the memory is left free, for fragments and for other programs."""
LEAST_MARGIN_BYTES = 300 << 20
"""At least so much of a GPU: kernels that are loaded later and NCCL take 0.1 to 0.5 GB outside of
the allocator, and 2 % of a card of 4 GB are 80 MB."""

Say = Callable[[str], None]


class Job(Frozen):
    """What is trained, and how; one trial adds its batch size."""

    code: str | None = None
    """`MODULE:FUNCTION`; MODULE may be the path of a file."""
    reference: str | None = None
    pickle: str | None = None
    wish: Mapping[str, int] = {}
    """The reference model's sizes, from the config."""
    amp: Literal["bf16", "fp16"] | None = None
    compile: bool = False
    optimizer: str = "adamw"
    workers: int | None = None
    """Workers of the loader that feeds the steps; None: one batch over and over."""
    device: str = "auto"
    memory_limit_bytes: int | None = None
    steps: int = 12
    warm: int = 1
    timed: bool = True
    """Whether the speed is wanted: more steps, whose memory is not read."""
    seconds: float = SECONDS
    left: float | None = None
    """After so many seconds the trial is ended."""
    python: str | None = None
    folder: str = "."


class Device(Frozen):
    """Where the trials run."""

    device: str
    name: str
    limit_bytes: int
    """What may be used of its memory."""
    half: Literal["bf16", "fp16"] = "bf16"
    """The 16-bit type that it computes in: fp16 below compute capability 8.0."""


def ask(job: Job, mode: str, batch: int = 1) -> Output:
    """One request of the child that is shared, or of one of its own."""
    from gpusetup.model.codec import to_plain

    request = to_plain(job) | {"mode": mode, "batch": batch}
    limit = job.seconds + STARTING_SECONDS + (COMPILING_SECONDS if job.compile else 0.0)
    limit = limit if job.left is None else max(1.0, min(limit, job.left))
    return answered(job.python, job.folder, request, limit)


def limit_of(device: Device, margin: float, beside_bytes: int = 0) -> int:
    """The bytes that a trial may take: without the margin, and without what training adds to it.

    >>> limit_of(Device(device="cuda", name="", limit_bytes=4000 << 20), 0.02) >> 20
    3700
    """
    least = LEAST_MARGIN_BYTES if device.device.startswith("cuda") and margin > 0 else 0
    free = max(int(device.limit_bytes * margin), least)
    return max(1, device.limit_bytes - free - beside_bytes)


def answer_in(said: Output) -> dict[str, Any] | None:
    """The child's answer, or None where it died before."""
    import json

    try:
        answer = json.loads(said.stdout.strip().rpartition("\n")[2])
    except ValueError:
        return None
    return answer if isinstance(answer, dict) else None


def device_of(job: Job) -> Device:
    """Where the trials will run. Raises `Blocked` without torch, `ToolFailed` where it breaks."""
    said = ask(job, "devices")
    answer = answer_in(said)
    if answer is None or answer.get("status") != "ok":
        detail = str((answer or {}).get("detail") or said.problem or said.stderr[-300:].strip())
        if "No module named 'torch'" in detail:
            raise Blocked(
                f"{job.python or sys.executable} has no torch",
                hint="`gpusetup install`, or name another `--python`",
            )
        raise ToolFailed(f"The device cannot be measured: {detail}", hint="`gpusetup doctor`")
    if not answer.get("limit_bytes") or not answer.get("counts"):
        raise Blocked("This system does not tell how much memory a process uses")
    return Device(
        device=str(answer["device"]),
        name=str(answer["name"]),
        limit_bytes=answer["limit_bytes"],
        half="fp16" if answer.get("half") == "fp16" else "bf16",
    )


def trial(job: Job, batch: int, *, smaller_ran: bool = False) -> Trial:
    """Run one size in a child of its own."""
    return judged(batch, ask(job, "steps", batch), smaller_ran=smaller_ran)


def judged(batch: int, said: Output, *, smaller_ran: bool = False) -> Trial:
    """What a child's end means. `smaller_ran`: doubtful spellings count as out of memory too."""
    answer = answer_in(said)
    if answer is None:
        return _died(batch, said, smaller_ran)
    if answer.get("status") == "ok":
        return _ran(batch, answer)
    short = is_answer_short(answer, maybe=smaller_ran)
    detail = f"{answer.get('kind')}: {answer.get('detail')}"
    return Trial(batch=batch, status="oom" if short else "error", detail=detail)


def _died(batch: int, said: Output, smaller_ran: bool) -> Trial:
    if said.problem:
        return Trial(batch=batch, status="error", detail=said.problem)
    short = is_killed_for_memory(said.exit) or is_out_of_memory(said.stderr, maybe=smaller_ran)
    detail = f"ended with exit {said.exit}: {said.stderr.strip()[-300:]}"
    return Trial(batch=batch, status="oom" if short else "error", detail=detail)


def _ran(batch: int, answer: Mapping[str, Any]) -> Trial:
    return Trial(
        batch=batch,
        status="ok",
        peak_bytes=answer["peak_bytes"],
        static_bytes=answer["static_bytes"],
        phases=answer["phases"],
        readings=answer["readings"],
        noise=answer["noise"],
        samples_per_second=answer["samples_per_second"],
        spread_percent=answer["spread_percent"],
        utilization_percent=answer["utilization_percent"],
        leak_bytes=answer.get("leak_bytes"),
        reserved_bytes=answer.get("reserved_bytes"),
        samples=answer.get("samples"),
    )


# --- the search ---------------------------------------------------------------------------------


def find_batch(
    job: Job,
    goal: Goal,
    *,
    objective: str = "fit",
    keep: list[Trial] | None = None,
    say: Say | None = None,
) -> tuple[Trial, ...]:
    """Try sizes until the answer stands, the largest or for `speed` the knee, or time is over.

    Every trial is put into `keep` as soon as it ran, so that a Ctrl-C loses nothing.
    """
    done: list[Trial] = [] if keep is None else keep
    job = job if objective == "speed" else replace(job, timed=False)
    chooser = next_for_speed if objective == "speed" else next_batch
    while not hopeless(done) and (batch := chooser(done, goal)) is not None:
        left = None if goal.ends is None else goal.ends - time.monotonic()
        speed = max((one.samples_per_second or 0.0 for one in done), default=0.0)
        if left is not None and left * speed < LEAST_STEPS * batch and speed:
            break  # its fewest steps would end after the time
        if say:
            say(f"batch {batch}" + ("" if left is None else f", {left:.0f} s left"))
        ran = any(one.status == "ok" and one.batch < batch for one in done)
        if left is not None:
            job = replace(job, left=left, seconds=min(job.seconds, left / 2))
        done.append(trial(job, batch, smaller_ran=ran))
    return tuple(done)


def refuse_errors(job: Job, trials: Sequence[Trial]) -> None:
    """Where the code itself broke: `BadInput` with what it said."""
    broken = next((one for one in trials if one.status == "error"), None)
    if broken is not None and not any(one.status == "ok" for one in trials):
        name = job.code or job.reference or "the model"
        detail, _, hint = (broken.detail or "").partition("\nhint: ")
        raise BadInput(
            f"{name} with batch {broken.batch} failed: {detail}",
            hint=hint
            or "it must run one training step by itself, in time; the batch size is not the reason",
        )


def check_code(code: str | None) -> None:
    """`UsageError` where it is no MODULE:FUNCTION."""
    place, colon, name = (code or "").rpartition(":")
    if code is not None and not (place and colon and name):
        raise UsageError(
            f"`--code {code}` is not MODULE:FUNCTION",
            hint="for example `--code train:build`, or `--code path/to/train.py:build`",
        )


def loader_rate(job: Job, batch: int, workers: int) -> float | None:
    """Samples a second of the loader alone; None where it does not run."""
    said = ask(replace(job, workers=workers, seconds=min(job.seconds, 3.0)), "loader", batch)
    answer = answer_in(said)
    return answer["samples_per_second"] if answer and answer.get("status") == "ok" else None


def losses_of(job: Job, batch: int) -> tuple[float, ...] | None:
    """The loss at each of the first steps from the same weights; None where they do not run."""
    answer = answer_in(ask(job, "losses", batch))
    return tuple(answer["losses"]) if answer and answer.get("status") == "ok" else None


ROUNDS = itertools.count()
"""Every agreement of a process has keys of its own; all ranks ask in the same order."""
STORES: list[Any] = []
"""The store that was opened here: it serves the other ranks as long as it is kept."""


def own_device() -> str:
    """Of several ranks on one machine each measures its own GPU."""
    local = os.environ.get("LOCAL_RANK")
    if local is None:
        return "auto"
    import torch

    return f"cuda:{local}" if torch.cuda.device_count() > int(local) else "auto"


def agreed(size: int, store: Any, rank: int, world: int, round_: int = 0) -> int:
    """The smallest size of all ranks, over torch's store, before any collective; 0: one has none.

    `store` has `set(key, value)` and `get(key)`, as `torch.distributed.TCPStore` has; `get` waits.
    """
    place = f"gpusetup/batch/{round_}"
    store.set(f"{place}/{rank}", str(size))
    return min(int(store.get(f"{place}/{one}")) for one in range(world))


def store_of_ranks() -> Any:
    """The store of the default group, else the one at MASTER_ADDR that torchrun's ranks share."""
    import torch.distributed as dist

    if dist.is_initialized():
        return dist.distributed_c10d._get_default_store()
    if not STORES:
        STORES.append(next(iter(dist.rendezvous("env://")))[0])
    return STORES[0]


# --- a model of the user's process --------------------------------------------------------------


@contextmanager
def saved(model: Any, batch: Any, loss: Any, optimizer: Any) -> Iterator[str]:
    """The model and its batch in a file that a child can load; `BadInput` where they cannot."""
    import json
    import pickle
    import tempfile

    import torch

    main = getattr(sys.modules.get("__main__"), "__file__", None)
    with tempfile.TemporaryDirectory(prefix="gpusetup-") as folder:
        path = str(Path(folder) / "job.pt")
        job = {"model": model, "batch": batch, "loss": loss, "optimizer": optimizer}
        try:
            torch.save(job, path)
        except (pickle.PicklingError, AttributeError, TypeError) as problem:
            raise BadInput(
                f"The model cannot be given to a child process: {problem}",
                hint="define it at the top of a module, or use `gpusetup tune --batch-size --code`",
            ) from problem
        about = {"path": sys.path, "main": main}
        Path(f"{path}.json").write_text(json.dumps(about), encoding="utf-8")
        yield path
