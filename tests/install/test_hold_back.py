"""Asking the driver changes nothing: a program that it starts gains nothing and makes no node."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest
import standin

from gpusetup.commands.monitor import start_nvml
from gpusetup.system.system import System

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="what is given up is Linux's")

MAY = 1 << 27 | 1 << 16
"""CAP_MKNOD and CAP_SYS_MODULE."""
NOBODY = 65534


class Driver:
    """A driver library that starts a program, as NVML starts nvidia-modprobe."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.node, self.told = folder, folder / "node", folder / "told"
        self.program = folder / "nvidia-modprobe"
        standin.program("helper.c", self.program)
        command = f"{self.program} {self.node} {self.told}"
        deeds: dict[str, Any] = {
            "nvml.init": "@helper 0",
            "cuda.init": "@helper 0",
            "helper": command,
        }
        standin.install(monkeypatch, folder, standin.state(**deeds))

    def setuid(self) -> None:
        """Another user's program with its setuid bit: who starts it becomes that user."""
        os.chown(self.program, NOBODY, NOBODY)
        self.program.chmod(0o4755)
        self.told.touch()
        self.told.chmod(0o666)

    def facts(self) -> dict[str, str]:
        """What the program said of itself, the last time that it was started."""
        lines = self.told.read_text().splitlines()
        self.told.unlink()
        pairs = (line.replace("\t", "").replace(":", "=").partition("=") for line in lines)
        return {name: value for name, _, value in pairs}


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Driver:
    return Driver(tmp_path, monkeypatch)


def held(facts: dict[str, str]) -> bool:
    kept = any(int(facts[name], 16) & MAY for name in ("CapEff", "CapPrm"))
    return facts["NoNewPrivs"] == "1" and not kept and facts["mknod"] == "-1"


@pytest.mark.parametrize("script", ["read_nvml", "read_cuda"])
def test_what_the_drivers_library_starts_can_make_no_node(driver: Driver, script: str) -> None:
    answer = System().ask(script, timeout=60)
    assert answer["init"] == 0
    assert held(driver.facts())
    assert not driver.node.exists()


def test_the_monitors_child_is_held_back_too(driver: Driver) -> None:
    lines = start_nvml(1, 1)
    while not lines.next(60).startswith('{"at"'):
        pass
    lines.end()
    assert held(driver.facts())
    assert not driver.node.exists()
