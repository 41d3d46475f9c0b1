"""Machines with GPUs of AMD, Intel and Apple, composed from two base tapes and public outputs.

Sources of the forms: Linux, drivers/gpu/drm/amd/amdkfd/kfd_topology.c (properties), udev's rules
(`crw-rw---- root render`), the PCI ID database (ids), Apple's `sysctl`. Nobody recorded them on
such hardware.
"""

from __future__ import annotations

import errno

from machines_named import MACHINES
from tapes import ReplaySystem, Tape, said

from gpusetup.model.codec import from_json
from gpusetup.model.frozen import Frozen
from gpusetup.model.machine import Snapshot
from gpusetup.probe.machine import read_machine
from gpusetup.system.system import Stat

SITE = "/home/user/project/.venv/lib/python3.12/site-packages"
CARD = "/sys/bus/pci/devices/0000:03:00.0"
NODE = "/sys/class/kfd/kfd/topology/nodes/1/properties"
SYSCTL = "sysctl machdep.cpu.brand_string hw.memsize hw.optional.arm64"


class Built(Frozen):
    """A torch as its `version.py` tells it."""

    version: str
    hip: str | None = None
    cuda: str | None = None
    xpu: str | None = None


ROCM = Built(version="2.13.0+rocm7.2", hip="7.2.26015")
OLD_ROCM = Built(version="2.5.1+rocm6.2", hip="6.2.41133")
CUDA = Built(version="2.13.0+cu130", cuda="13.0")
CPU = Built(version="2.13.0+cpu")
XPU = Built(version="2.13.0+xpu", xpu="20250301")


def tape_of(name: str) -> Tape:
    return from_json((MACHINES / name / "tape.json").read_text(), Tape, what=name)


def place(tape: Tape, path: str, text: str | None = None, *, mode: str = "-rw-r--r--") -> None:
    """A file, or a node that this user may open, with the folders above it."""
    folder, _, name = path.rpartition("/")
    names = tape.list.get(folder)
    if not isinstance(names, tuple):
        names = ()
        if folder:
            place(tape, folder, mode="drwxr-xr-x")
    tape.list[folder] = tuple(sorted({*names, name}))
    tape.stat[path] = Stat(mode=mode, readable=True, writable=True)
    if text is not None:
        tape.read[path] = text


def remove(tape: Tape, path: str) -> None:
    folder, _, name = path.rpartition("/")
    names = tape.list.get(folder, ())
    if isinstance(names, tuple):
        tape.list[folder] = tuple(other for other in names if other != name)
    for answers in (tape.read, tape.stat, tape.list):
        answers[path] = errno.ENOENT


def forbid(tape: Tape, *paths: str) -> None:
    """Nodes that belong to a group this user is not in."""
    for path in paths:
        tape.stat[path] = Stat(mode="crw-rw----", readable=False, writable=False)


def with_torch(tape: Tape, torch: Built | None) -> None:
    """The torch of the tape's environment, or none."""
    old = next(name for name in tape.list[SITE] if name.endswith(".dist-info"))
    remove(tape, f"{SITE}/{old}")
    remove(tape, f"{SITE}/torch/version.py")
    if torch is None:
        remove(tape, f"{SITE}/torch")
        return
    lines = (f"__version__ = {torch.version!r}", "debug = False", f"cuda = {torch.cuda!r}",
             f"hip = {torch.hip!r}", f"xpu = {torch.xpu!r}")  # fmt: skip
    place(tape, f"{SITE}/torch/version.py", "\n".join(lines) + "\n")
    record = "torch/lib/libc10.so,sha256=x,1\n"
    place(tape, f"{SITE}/torch-{torch.version}.dist-info/RECORD", record)
    place(tape, f"{SITE}/torch-{torch.version}.dist-info/INSTALLER", "pip\n")


def amd(torch: Built | None = ROCM, *, device: str = "744c", version: int = 110000) -> Tape:
    """A Linux with one AMD card, whose driver and nodes are in order."""
    tape = tape_of("linux-rx7900xtx-rocm")
    with_torch(tape, torch)
    tape.read[f"{CARD}/device"] = f"0x{device}\n"
    tape.read[NODE] = f"simd_count 64\ngfx_target_version {version}\nlocation_id 768\ndomain 0\n"
    return tape


def intel(torch: Built | None = XPU, *, device: str = "e20b", driver: str | None = "xe") -> Tape:
    """A Linux with one Intel card."""
    tape = amd(torch, device=device)
    tape.read[f"{CARD}/vendor"] = "0x8086\n"
    remove(tape, "/dev/kfd")
    remove(tape, "/sys/class/kfd/kfd/topology/nodes")
    with_driver(tape, driver)
    return tape


def with_driver(tape: Tape, driver: str | None) -> Tape:
    """The kernel driver that is bound to the card."""
    link = f"{CARD}/driver"
    tape.link.pop(link, None)
    if driver:
        tape.link[link] = f"../../../../bus/pci/drivers/{driver}"
    return tape


def in_docker(tape: Tape) -> Tape:
    """The same machine seen from a container that was given none of the nodes."""
    place(tape, "/.dockerenv", "")
    for path in ("/dev/kfd", "/dev/dri/renderD128", "/dev/dri"):
        remove(tape, path)
    return tape


def mac(chip: str = "Apple M3 Max", *, macos: str = "15.6", machine: str = "arm64") -> Tape:
    """A Mac with a chip of Apple."""
    tape = tape_of("macos-arm64")
    answer = f"machdep.cpu.brand_string: {chip}\nhw.memsize: 68719476736\nhw.optional.arm64: 1\n"
    tape.run[SYSCTL] = said(answer)
    tape.facts.update({"mac_version": macos, "machine": machine})
    return tape


def snapshot(tape: Tape, **environ: str) -> Snapshot:
    """What the readers make of a tape."""
    tape.environ.update(environ)
    return read_machine(ReplaySystem(tape))
