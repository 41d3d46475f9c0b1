"""The node's check against a stand-in of the driver: sound, sick, hung, and against a profile."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
import standin
from standin.machine import WithDriver, bus

from gpusetup.cli import main
from gpusetup.errors import BadInput
from gpusetup.fleet.node_check import NodeCheckAnswer, check_node, read_profile
from gpusetup.model.codec import to_json
from gpusetup.model.frozen import replace
from gpusetup.probe.node import read_node
from gpusetup.system.processes import Output
from gpusetup.system.system import System

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the stand-in is for Linux")

GPU: dict[str, object] = {**standin.A100, "processes": ""}


def node(
    place: Path,
    gpus: int = 8,
    *,
    last: Mapping[str, object] | None = None,
    state: Mapping[str, object] | None = None,
    log: str = "",
) -> System:
    """A node with a driver; `last` changes its last GPU; `log`: what its kernel has said."""
    file = place / "state"
    cards = (*(GPU,) * (gpus - 1), {**GPU, **(last or {})})
    file.write_text(standin.state(cards, **(state or {})))
    environment = {
        **os.environ,
        "GPUSETUP_STANDIN": str(file),
        "LD_LIBRARY_PATH": str(standin.libraries()),
        "PATH": str(place),
    }
    return WithLog(gpus, environment, log)


class WithLog(WithDriver):
    """A node whose kernel has said something."""

    def __init__(self, gpus: int, environment: Mapping[str, str], log: str) -> None:
        super().__init__(gpus, environment)
        self.log = log

    def run(self, argv: Sequence[str], timeout: float) -> Output:
        if self.log and argv[0] == "dmesg":
            return Output(argv=tuple(argv), exit=0, stdout=self.log)
        return super().run(argv, timeout)


def answer(system: System, profile: str = "", limit: float = 60) -> NodeCheckAnswer:
    expected = read_profile(profile, "profile.json") if profile else {}
    return check_node("n1", read_node(system, limit), expected)


def test_a_sound_node_is_ok_and_says_what_it_is(tmp_path: Path) -> None:
    found = answer(node(tmp_path))
    assert found.ok, found.reason
    assert found.reason == "8 x NVIDIA A100-SXM4-40GB, driver 580.95.05"
    assert found.facts["gpus.count"] == "8"


@pytest.mark.parametrize(
    ("last", "finding"),
    [
        ({"recovery_action": 1}, "hardware-fault"),
        ({"ecc_uncorrected": 3}, "ecc-error"),
        ({"handle": 15}, "gpu-fell-off-bus"),
        ({"fabric": 1}, "system-not-ready-fabric-manager"),
    ],
)
def test_a_sick_gpu_fails_the_node_by_name(
    last: Mapping[str, object], finding: str, tmp_path: Path
) -> None:
    found = answer(node(tmp_path, last=last))
    assert not found.ok
    assert found.reason.startswith(f"{finding}: ")
    assert "GPU 7" in found.reason


class Stuck(WithDriver):
    """A node whose log and driver never answer."""

    def run(self, argv: Sequence[str], timeout: float) -> Output:
        return super().run(("sleep", "60"), timeout)


def test_a_node_of_which_everything_hangs_is_judged_in_time(tmp_path: Path) -> None:
    system = node(tmp_path, state={"nvml.init": "@hang"})
    began = time.monotonic()
    found = answer(Stuck(8, system.environ()), limit=0.6)
    took = time.monotonic() - began
    assert found.reason.startswith("driver-does-not-answer")
    assert took < 2.5, "the sources share one limit"


# --- profiles -------------------------------------------------------------------------------------


def record(found: NodeCheckAnswer, **changed: str) -> str:
    return to_json(replace(found, facts={**found.facts, **changed}))


def test_the_record_of_a_sound_node_holds_for_it_and_not_for_another(tmp_path: Path) -> None:
    sound = answer(node(tmp_path))
    profile = record(sound, **{"imex.service": "yes"})
    found = answer(node(tmp_path), profile)
    assert found.ok
    found = answer(node(tmp_path, 7), profile)
    assert not found.ok and "number of GPUs 7, expected 8" in found.reason
    found = answer(node(tmp_path, last={"power_limit_mw": 250_000}), profile)
    assert [one.title for one in found.findings] == [
        "power limit 400 W on 7 GPUs, 250 W on GPU 7, expected 400 W"
    ]
    for field in ("temperature", "power_limit_mw", "vbios"):  # what one GPU does not tell
        found = answer(node(tmp_path, last={field: "!3"}), profile)
        assert found.ok, (field, found.reason)


@pytest.mark.parametrize("text", ["", "{}", "[" * 5000, '{"schema": "gpusetup.verify/1"}'])
def test_what_is_no_record_of_a_sound_node_is_refused_by_name(text: str, tmp_path: Path) -> None:
    sick = record(answer(node(tmp_path, last={"recovery_action": 1})))
    for one in (text, sick, sick.replace('"facts":{', '"facts":{"gpus.count":[8],')):
        with pytest.raises(BadInput, match=r"profile\.json"):
            read_profile(one, "profile.json")


LOG = "[ 12.5] NVRM: Xid (PCI:{slot}): {what}\n"


@pytest.mark.parametrize(
    ("what", "ok"),
    [
        ("63, pid=1, Row Remapper: New row marked for remapping", True),
        ("64, pid=1, Row Remapper: Failed to remap row", False),
        ("154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)", True),
        ("154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)", False),
    ],
)
@pytest.mark.one_in(3)
def test_only_an_xid_that_asks_for_something_of_the_node_fails_it(
    what: str, ok: bool, tmp_path: Path
) -> None:
    slot = bus(0).rpartition(".")[0]
    found = answer(node(tmp_path, 1, log=LOG.format(slot=slot, what=what)))
    assert found.ok == ok, found.reason
    again = LOG.format(slot=slot, what=what) + LOG.format(slot=slot, what="145, RLW_CTRL Fatal XC0")
    assert not answer(node(tmp_path, 1, log=again)).ok
    # A harmless event of a GPU does not explain that none is left.
    left = read_node(node(tmp_path, 1, log=LOG.format(slot=slot, what=what)), 60)
    lost = replace(left, gpus=(), pci_devices=())
    assert not check_node("n1", lost, {}).ok


# --- the command ----------------------------------------------------------------------------------


def test_the_command_prints_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["fleet", "check"])
    said = capsys.readouterr().out
    assert said.count("\n") == 1 and said.startswith("ok: " if code == 0 else "failed: ")
    main(["fleet", "check", "--json"])
    assert json.loads(capsys.readouterr().out)["schema"] == "gpusetup.node-check/1"
    assert main(["fleet", "check", "--profile", str(tmp_path / "none.json")]) == 2
