#!/usr/bin/env python3
"""Cuts the power at many moments of an installation and sees what the disk tells afterwards.

    sudo python scripts/powercut_install.py                   60 cuts on ext4
    sudo python scripts/powercut_install.py -n 10 --kind xfs

A filesystem of our own lies in a file, mounted by a loop device. At a chosen moment it is shut
down as a power cut would (`EXT4_IOC_SHUTDOWN` without flushing its log: what was not synced is
gone), the program is killed, the filesystem is mounted again and its journal replayed. Then the
recovery that every installation begins with has to bring the environment to exactly the former or
the new state, and whoever was told "Installed" or "Undone" has to find that. Needs root and Linux.
Exit 1 where any cut leaves something else. With `--unsynced` the program syncs nothing, and cuts
after its end must break something: the control that this script can fail.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / folder) for folder in ("", "tests", "tests/install", "scripts")]

from chaos_install import (  # noqa: E402
    RECOVERY_OPERATIONS,
    UNSYNCED,
    Scenario,
    kill,
    recovered,
    small_scenarios,
    summary,
)

SHUTDOWN = 0x8004587D
"""FS_IOC_SHUTDOWN; ext4, xfs, btrfs and f2fs know it."""
NO_LOG_FLUSH = 2
MEGABYTES = 900
MAKE = {"ext4": ("mkfs.ext4", "-q", "-F"), "xfs": ("mkfs.xfs", "-q", "-f")}
MOMENTS = ("step", "end", "step", "after", "step", "during", "step", "recovery")
"""Before one of its file operations; around its end; seconds after it; anywhere within its time;
before a file operation of the recovery that follows such a cut."""


class Disk:
    """A filesystem in a file; the environment lies on it, its caches and the index."""

    def __init__(self, folder: Path, kind: str) -> None:
        self.image, self.at, self.kind = folder / "disk.img", folder / "disk", kind
        self.at.mkdir()

    def make(self) -> None:
        with self.image.open("wb") as file:
            file.truncate(MEGABYTES << 20)
        subprocess.run([*MAKE[self.kind], str(self.image)], check=True)
        self.mount()

    def mount(self) -> None:
        subprocess.run(["mount", "-o", "loop", str(self.image), str(self.at)], check=True)

    def unmount(self) -> None:
        for _ in range(50):
            if subprocess.run(["umount", str(self.at)], capture_output=True).returncode == 0:
                return
            time.sleep(0.1)
        raise RuntimeError(f"{self.at} is still in use")

    def cut(self) -> None:
        """What is not on the disk now never comes there."""
        handle = os.open(self.at, os.O_RDONLY)
        try:
            fcntl.ioctl(handle, SHUTDOWN, struct.pack("I", NO_LOG_FLUSH))
        finally:
            os.close(handle)

    def power_on(self) -> None:
        self.unmount()
        self.mount()


@contextmanager
def disk(folder: Path, kind: str) -> Iterator[Disk]:
    found = Disk(folder, kind)
    found.make()
    try:
        yield found
    finally:
        found.unmount()


def run_case(scenario: Scenario, on: Disk, moment: str, share: float) -> dict[str, Any]:
    scenario.reset()
    os.sync()
    stepwise = moment in ("step", "recovery")
    child = scenario.start(max(1, round(share * scenario.operations)) if stepwise else 0)
    wait = {"during": share * scenario.seconds, "end": scenario.seconds * (0.9 + 0.3 * share)}
    if stepwise:
        child.wait(timeout=180)
    elif moment == "after":
        child.wait(timeout=180)
        time.sleep(share * 3)
    else:
        sleep_or_end(child, wait.get(moment, share * scenario.seconds))
    ended = child.poll()
    on.cut()
    kill(child, "group")
    child.communicate(timeout=60)
    on.power_on()
    if moment == "recovery":
        recovery = scenario.recover(1 + round(share * RECOVERY_OPERATIONS))
        recovery.communicate(timeout=180)
        on.cut()
        on.power_on()
    return judged(scenario, {"moment": moment, "share": round(share, 4), "ended": ended})


def sleep_or_end(child: subprocess.Popen[bytes], seconds: float) -> None:
    try:
        child.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        return


def judged(scenario: Scenario, row: dict[str, Any]) -> dict[str, Any]:
    """Recover and compare; who was told "Installed" must find that."""
    row |= recovered(scenario)
    if row["ended"] == 0 and row["state"] != "new":
        row["state"] = "lost"
    return row


def main() -> int:
    from installing import new_world

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-n", "--cuts", type=int, default=60)
    parser.add_argument("--unsynced", action="store_true", help="the control: sync nothing")
    parser.add_argument("--kind", choices=MAKE, default="ext4")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    options = parser.parse_args()
    if options.unsynced:
        os.environ[UNSYNCED] = "1"
    draw, rows = random.Random(options.cuts), []
    with (
        tempfile.TemporaryDirectory(prefix="powercut-", dir=options.folder) as name,
        disk(Path(name), options.kind) as on,
        new_world(on.at) as world,
    ):
        scenarios = list(small_scenarios(world))
        for one in scenarios:
            one.learn()
            print(f"{one.name}: {one.seconds:.1f} s", flush=True)
        for number in range(options.cuts):
            moment = MOMENTS[(number // len(scenarios)) % len(MOMENTS)]
            rows.append(run_case(scenarios[number % len(scenarios)], on, moment, draw.random()))
            print(json.dumps(rows[-1]), flush=True)
    return summary(rows)


if __name__ == "__main__":
    if os.name != "posix" or os.geteuid() != 0 or shutil.which("mount") is None:
        sys.exit("needs root on Linux: it mounts a filesystem of its own")
    sys.exit(main())
