"""A card that computes wrongly, made on purpose, and a card that is shared.

Faults are put between torch and the card, as `tests/verify_faults` does on the CPU; each has the
check that must see it. The second process on the card is no fault: nothing may look wrong.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

from acceptance.checks import ran
from acceptance.processes import end
from acceptance.work import ROOT, Said, Work, attempt

sys.path.append(str(ROOT / "tests"))


class Fault(NamedTuple):
    name: str
    check: str
    make: Callable[[], AbstractContextManager[Any]]
    card_only: bool = False


def faults() -> tuple[Fault, ...]:
    import torch
    from verify_faults.layers import Operator, element, kept_as, scaled, shaped, turned_bit

    large = lambda found, _: found.numel() >= 2**22  # noqa: E731
    whole = lambda found, _: found.dtype == torch.int32 and found.numel() == 4096  # noqa: E731
    million, single = shaped(1000, 1000), kept_as("float32")
    return (
        Fault("a bent product", "matmul", lambda: Operator("mm", element(1.0), million)),
        Fault("a product 0.1 % too large", "float32",
              lambda: Operator("mm", scaled(1.001), single)),
        Fault("a flipped bit", "properties", lambda: Operator("clone", turned_bit(2, 77), whole)),
        Fault("a stuck bit of the memory", "memory", lambda: Operator("copy_", _stuck, large)),
        Fault("TF32 where IEEE is set", "matmul", lambda: Operator("mm", _tf32, single)),
        Fault("a read that does not wait", "streams", _unsynchronised, card_only=True),
    )  # fmt: skip


def _stuck(found: Any, _: Any) -> Any:
    import torch

    if not found.is_floating_point():
        found.view(torch.uint8).view(-1)[12345] &= 0xEF
    return found


def _tf32(found: Any, args: Any) -> Any:
    """The product again, with operands that have TF32's 10 bits of mantissa."""
    import torch

    def cut(one: Any) -> Any:
        whole = one.contiguous().view(torch.int32)
        return ((whole + 0x1000) & ~0x1FFF).view(torch.float32)

    return found if len(args) != 2 else cut(args[0]).double().matmul(cut(args[1]).double()).float()


@contextlib.contextmanager
def _unsynchronised() -> Iterator[None]:
    """Streams no longer wait for each other, nor events for streams."""
    import torch

    stream = torch.cuda.Stream
    before = {name: getattr(stream, name) for name in ("wait_stream", "wait_event")}
    for name in before:
        setattr(stream, name, lambda *_: None)
    try:
        yield
    finally:
        for name, method in before.items():
            setattr(stream, name, method)


def run(work: Work) -> None:
    seen: list[tuple[str, bool | None]] = []
    tried = [fault for fault in faults() if work.on_card or not fault.card_only]
    for fault in tried:
        seen.append(_tried(work, fault))
        _told(work, seen, len(tried))
    attempt(work, "shared-card", lambda: _shared(work))
    if work.on_card:
        attempt(work, "doubt-13", lambda: _spoilt(work))


def _told(work: Work, seen: list[tuple[str, bool | None]], every: int) -> None:
    """After each fault, so that a killed part has said what it knew."""
    count = len([name for name, caught in seen if caught])
    missed = [name for name, caught in seen if caught is False]
    unclear = [name for name, caught in seen if caught is None]
    told = f"{count} of {every} caught; missed: {', '.join(missed) or 'none'}"
    told += f"; the check failed without the fault too: {', '.join(unclear)}" if unclear else ""
    whole = len(seen) == every and not unclear
    work.claim("mutants-caught", "fails" if missed else "holds" if whole else "open", told)


def _tried(work: Work, fault: Fault) -> tuple[str, bool | None]:
    """The fault, and whether it was caught; None where the check fails by itself."""
    clean = ran(fault.check, work.device)
    with fault.make():
        found = ran(fault.check, work.device)
    caught = found.status in ("failed", "crashed") if clean.status == "passed" else None
    work.row("mutants", fault=fault.name, check=fault.check, clean=clean.status,
             found=found.status, caught=caught, detail=found.detail)  # fmt: skip
    return fault.name, caught


COMPETITOR = """
import sys, torch
device, size = sys.argv[1], int(sys.argv[2])
a = torch.randn(size, size, device=device)
print("ready", flush=True)
while True:
    a = (a @ a).clamp(-1, 1)
"""


@contextlib.contextmanager
def competitor(work: Work) -> Iterator[bool]:
    """Another process that multiplies on the same card all the time; whether it came to that."""
    argv = [sys.executable, "-c", COMPETITOR, work.device, "8192" if work.on_card else "256"]
    child = subprocess.Popen(argv, stdout=subprocess.PIPE)
    try:
        assert child.stdout is not None
        yield child.stdout.readline() == b"ready\n"
    finally:
        end(child)
        child.stdout.close()


def _shared(work: Work) -> None:
    """verify quick while the card is shared; what complains is named."""
    with competitor(work) as there:
        said = work.gpusetup("verify", "--device", work.device, "--json", name="verify-shared")
    if not there or said.exit is None:
        work.claim("shared-card", "open", said.problem if there else "no other process came up")
        return
    rows = said.document.get("checks", [])
    bad = [row["name"] for row in rows if row["status"] in ("failed", "crashed")]
    told = f"{len(rows)} checks beside another process, bad: {', '.join(bad) or 'none'}"
    work.claim("shared-card", bool(rows) and not bad, told if rows else said.problem)


SPOIL = """
import torch
try:
    torch.zeros(4, device="cuda")[torch.tensor([99], device="cuda")].sum().item()
except Exception as problem:
    from gpusetup.verify.worker import raised
    print("spent" if raised(problem).spent else f"not spent: {problem}"[:200])
"""


def _spoilt(work: Work) -> None:
    """A device-side assertion is an error after which verify takes a new process."""
    spoilt(work, work.program((sys.executable, "-c", SPOIL), limit=30))


def spoilt(work: Work, said: Said) -> None:
    told = said.stdout.strip().rpartition("\n")[2] or said.problem
    work.claim("doubt-13", "open" if said.exit is None else told == "spent", told)
