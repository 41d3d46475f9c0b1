"""`fleet run --slurm` on a real Slurm with three nodes, each with a stand-in of the driver."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import node_python
import pytest
import standin
from slurm_cluster import Cluster, cluster, missing

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="Slurm's daemons need Linux"),
]
NODES = ("n1", "n2", "n3")
GPU = {**standin.A100, "processes": ""}
ON_NODE = """\
#!/bin/sh
# gpusetup's Python on a node, with this node's driver; `hang` names the command that hangs.
export GPUSETUP_STANDIN={folder}/state-$SLURMD_NODENAME LD_LIBRARY_PATH={libraries}
test -f {folder}/hang-$SLURMD_NODENAME && [ "$4" = verify ] && exec sleep 600
exec {python} "$@"
"""


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    if why := missing():
        pytest.skip(why)
    folder = tmp_path_factory.mktemp("fleet")
    for node in NODES:
        (folder / f"state-{node}").write_text(standin.state((GPU, GPU)))
    node_python.cuda_environment(folder / "env")
    wrapper = folder / "node-python"
    libraries, python = standin.libraries(), shlex.quote(sys.executable)
    wrapper.write_text(ON_NODE.format(folder=folder, libraries=libraries, python=python))
    wrapper.chmod(0o755)
    with cluster(folder / "cluster", len(NODES), gpus=2) as running:
        yield running


def fleet(slurm: Cluster, into: str, *words: str) -> tuple[int, dict[str, Any], str]:
    """`fleet run --slurm` from a login node of the cluster."""
    folder = slurm.folder.parent
    given = ("--slurm", "--device", "cpu", "--into", str(folder / into), "--json", *words)
    pythons = ("--node-python", f"{folder}/node-python", "--python", f"{folder}/env/bin/python")
    said = subprocess.run(
        (sys.executable, "-m", "gpusetup", "fleet", "run", *pythons, *given),
        env=slurm.environment, cwd=folder, text=True, capture_output=True, check=False,
    )  # fmt: skip
    return said.returncode, json.loads(said.stdout), said.stderr


def states(answer: dict[str, Any]) -> dict[str, str]:
    return {one["name"]: one["status"] for one in answer["nodes"]}


def test_a_node_that_hangs_is_named_in_time_and_the_others_shown(slurm: Cluster) -> None:
    began = time.monotonic()
    fleet(slurm, "before")
    limit = max(15, round(time.monotonic() - began))  # a busy machine needs more
    hang = slurm.folder.parent / "hang-n2"
    hang.write_text("")
    began = time.monotonic()
    code, answer, _ = fleet(slurm, "hung", "--limit", str(limit))
    took = time.monotonic() - began
    hang.unlink()
    assert (code, states(answer)) == (1, {"n1": "ok", "n2": "failed", "n3": "ok"})
    waited = min(2 * limit, limit + 60)
    assert answer["nodes"][0]["problem"] == f"no answer in {waited} s (no verify)"
    assert took < 2 * waited
    slurm.until(lambda: slurm.run("squeue", "--noheader").stdout == "", "a job is left")
    slurm.until(lambda: "idle" in slurm.run("sinfo", "-hN", "-n", "n2").stdout, "n2 not idle")


def test_a_sick_node_and_one_that_is_not_idle_are_told_apart(slurm: Cluster) -> None:
    folder = slurm.folder.parent
    slurm.run("scontrol", "update", "NodeName=n1", "State=DRAIN", "Reason=new cables")
    (folder / "state-n3").write_text(standin.state((GPU, {**GPU, "ecc_uncorrected": 3})))
    code, answer, _ = fleet(slurm, "sick")
    slurm.run("scontrol", "update", "NodeName=n1", "State=RESUME")
    assert (code, states(answer)) == (1, {"n3": "failed", "n2": "ok"})
    assert answer["not_asked"] == {"n1": "drained (new cables)"}
    assert "ecc-error" in {one["id"] for one in answer["nodes"][0]["findings"]}
