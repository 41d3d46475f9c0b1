"""What gpusetup does under Slurm: decisions on tables, and the files on a real cluster."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import standin
from slurm_cluster import Cluster, cluster, missing

from gpusetup.cli import main
from gpusetup.fleet.engines.slurm import (
    NOTHING,
    Action,
    Memory,
    NodeState,
    decide,
    files,
    in_short,
    node_state,
)

SICK, ECC = {"ecc_uncorrected": 3}, "ecc-error"
FREE, PROLOG = NodeState(drained=False), NodeState(drained=True, reason="Prolog error")
OURS = NodeState(drained=True, reason="gpusetup: ecc-error: GPU 1")
THEIRS = NodeState(drained=True, reason="new cables")


@pytest.mark.parametrize(
    ("ok", "state", "memory", "prolog", "action"),
    [
        (False, FREE, Memory(), "", NOTHING),
        (False, FREE, Memory(failed=1), "", Action(kind="drain", reason="gpusetup: hot")),
        (False, OURS, Memory(failed=5), "", NOTHING),
        (False, THEIRS, Memory(failed=5), "", NOTHING),
        (True, THEIRS, Memory(held=5), "", NOTHING),
        (True, OURS, Memory(failed=3), "", NOTHING),
        (True, OURS, Memory(held=1), "", Action(kind="resume")),
        (True, FREE, Memory(failed=1), "", NOTHING),
        (False, PROLOG, Memory(), "cold", Action(kind="reason", reason="gpusetup: hot")),
        (True, PROLOG, Memory(), "cold", Action(kind="reason", reason="gpusetup: cold")),
        (True, PROLOG, Memory(held=9), "", NOTHING),
    ],
)
def test_a_check_leads_to_one_action(
    ok: bool, state: NodeState, memory: Memory, prolog: str, action: Action
) -> None:
    assert decide(ok, "hot", state, memory, prolog)[0] == action


def test_checks_that_alternate_drain_nothing() -> None:
    memory = Memory()
    for ok in (False, True) * 5:
        action, memory = decide(ok, "hot", FREE, memory)
        assert action == NOTHING


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ("State=IDLE ThreadsPerCore=1\n", NodeState(drained=False)),
        ("State=IDLE+DRAIN\n   Reason=Prolog error [root@2026-11-20T10:00:00]\n", PROLOG),
        ("State=MIXED+DRAIN+CLOUD x\nReason=new cables [a@b]\n", THEIRS),
        ("State=DRAINED\nReason=new cables", THEIRS),
        ("", NodeState(drained=False)),
    ],
)
def test_a_nodes_state_is_read_as_scontrol_prints_it(text: str, state: NodeState) -> None:
    assert node_state(text) == state


def test_a_reason_is_one_short_line_whatever_a_driver_says() -> None:
    said = in_short('x\n"; reboot; \x1b[2J' + "y" * 500)
    assert len(said) <= 200 and '"' not in said and "\n" not in said and "\x1b" not in said


def test_the_files_are_shell_that_a_shell_accepts(tmp_path: Path) -> None:
    prefix = tmp_path / "with space"
    code = main(["slurm", "install", "--prefix", str(prefix), "--profile", "/etc/a b.toml"])
    assert code == 0
    written = sorted(path.name for path in prefix.iterdir())
    assert written == sorted(f.path for f in files("python", "/p", "/s", None))
    for name in written:
        if name.endswith((".sh", ".nhc")):
            subprocess.run(("bash", "-n", str(prefix / name)), check=True)
    call = (prefix / "prolog.sh").read_text().splitlines()[-1]
    assert shlex.split(call)[-1] == "/etc/a b.toml"


# --- on a real cluster ----------------------------------------------------------------------------

WRAPPER = """\
#!/bin/sh
export GPUSETUP_STANDIN={folder}/state-$SLURMD_NODENAME LD_LIBRARY_PATH={libraries}
export SLURM_CONF={folder}/cluster/slurm.conf PATH=/usr/sbin:/usr/bin:/sbin:/bin
exec {folder}/files-$SLURMD_NODENAME/{name}
"""
NODES = ("n1", "n2", "n3")


def driver(folder: Path, node: str, **second: object) -> None:
    """The stand-in's state on a node: two GPUs, the second with these values."""
    gpu = {**standin.A100, "processes": ""}
    beside = folder / f"new-{node}"
    beside.write_text(standin.state((gpu, {**gpu, **second})))
    beside.replace(folder / f"state-{node}")


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three nodes whose prolog and health program are ours, each with a stand-in driver."""
    if why := missing():
        pytest.skip(why)
    folder = tmp_path_factory.mktemp("slurm")
    for node in NODES:
        driver(folder, node)
        state = ("--state", str(folder / f"memory-{node}"))
        main(["slurm", "install", "--prefix", str(folder / f"files-{node}"), *state])
    for name in ("prolog.sh", "health.sh"):
        wrapper = folder / name
        wrapper.write_text(WRAPPER.format(folder=folder, libraries=standin.libraries(), name=name))
        wrapper.chmod(0o755)
    conf = {
        "Prolog": folder / "prolog.sh", "HealthCheckProgram": folder / "health.sh",
        "HealthCheckInterval": 2, "HealthCheckNodeState": "ANY", "PrologFlags": "Alloc",
    }  # fmt: skip
    with cluster(folder / "cluster", len(NODES), conf) as running:
        yield running


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="Slurm's daemons need Linux")
def test_a_sick_node_is_drained_with_its_reason_and_resumed_when_it_is_cured(
    slurm: Cluster,
) -> None:
    folder = slurm.folder.parent
    driver(folder, "n2", **SICK)
    slurm.until(lambda: f"n2 gpusetup: {ECC}" in slurm.reasons(), "n2 is not drained")
    assert "GPU 1" in slurm.reasons() and "n1" not in slurm.reasons()
    driver(folder, "n2")
    slurm.until(lambda: not node_state(slurm.node("n2")).drained, "n2 is not resumed")


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="Slurm's daemons need Linux")
def test_a_node_that_somebody_drained_stays_drained(slurm: Cluster) -> None:
    slurm.run("scontrol", "update", "NodeName=n1", "State=DRAIN", "Reason=new cables")
    memory = slurm.folder.parent / "memory-n1" / "health.json"
    slurm.until(lambda: '"held":0' not in memory.read_text(), "n1 is not checked")
    memory.write_text('{"failed": 0, "held": 9}')
    slurm.until(lambda: '"held":1' in memory.read_text(), "n1 is not checked again")
    assert "new cables" in slurm.reasons()
    slurm.run("scontrol", "update", "NodeName=n1", "State=RESUME")


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="Slurm's daemons need Linux")
def test_the_reason_of_a_failed_prolog_is_seen(slurm: Cluster) -> None:
    folder = slurm.folder.parent
    memory = folder / "memory-n3" / "health.json"
    driver(folder, "n3", **SICK)
    slurm.run("srun", "-w", "n3", "true", timeout=60)
    slurm.until(lambda: f"n3 gpusetup: {ECC}" in slurm.reasons(), "the reason is not seen")
    driver(folder, "n3")
    slurm.until(lambda: not node_state(slurm.node("n3")).drained, "n3 is not resumed")
    assert memory.exists()
