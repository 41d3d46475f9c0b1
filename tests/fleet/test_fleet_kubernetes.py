"""Kubernetes: objects that its schemas accept, and Jobs by kubectl."""

from __future__ import annotations

import json
import os
import random
import sys
from pathlib import Path
from typing import Any

import fleet_records
import node_python
import pytest
import yaml

from gpusetup.cli import main
from gpusetup.fleet.engines import kubernetes
from gpusetup.fleet.work import NodeWork


def jobs(monkeypatch: pytest.MonkeyPatch, *setting: str) -> list[Any]:
    """The Jobs for two nodes, one of them without a GPU."""
    nodes = ({"gpu-1.example.com": 8, "n": 0}, {"gpu-1.example.com": "", "n": ""})
    monkeypatch.setattr(kubernetes, "require_program", lambda program: None)
    monkeypatch.setattr(kubernetes, "nodes_of_cluster", lambda: nodes)
    work = NodeWork(python="python", nodes=tuple(nodes[0]))
    return [*yaml.safe_load_all(kubernetes.Kubernetes(work, *setting).plan())]


@pytest.fixture
def objects(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "kubernetes.md").read_text("utf-8")
    watcher = yaml.safe_load(page.rpartition("```yaml\n")[2].partition("```")[0])
    return [*jobs(monkeypatch, "train:1", "nvidia"), *jobs(monkeypatch, "i"), watcher]


# --- the objects ----------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["1.29", "1.37"])
def test_the_schemas_accept_every_object(version: str, objects: list[Any]) -> None:
    kubernetes_validate = pytest.importorskip("kubernetes_validate")
    for one in objects:
        kubernetes_validate.validate(one, version, strict=True)


def test_no_object_sets_a_taint_or_may_ask_the_api(objects: list[Any]) -> None:
    assert "taint" not in json.dumps(objects)
    for one in objects:
        assert one["spec"]["template"]["spec"]["automountServiceAccountToken"] is False


# --- the Jobs -------------------------------------------------------------------------------------

KUBECTL = """\
#!/bin/sh
exec {python} {program} {folder} "$@"
"""
NODES = """\
n1 8 True <none>
n2   8   True   <none>
n3 8 True <none>
used 8 True <none>
cpu <none> True <none>
noimage 8 True <none>
full 8 True <none>
cordoned 8 True true
lost 8 <none> <none>
"""


def fleet(
    folder: Path, monkeypatch: pytest.MonkeyPatch, nodes: str, *words: str
) -> tuple[int, Path]:
    """`fleet run --kubernetes` with a kubectl that knows these nodes."""
    kubectl = folder / "bin" / "kubectl"
    kubectl.parent.mkdir()
    (folder / "jobs").mkdir()
    program = Path(__file__).with_name("kube_api.py")
    kubectl.write_text(KUBECTL.format(python=sys.executable, program=program, folder=folder))
    kubectl.chmod(0o755)
    monkeypatch.setenv("PATH", str(kubectl.parent), prepend=os.pathsep)
    (folder / "nodes").write_text(nodes)
    (folder / "pods").write_text("used   4,<none>,2\n<none>  8\nn1  <none>\n")
    into = folder / "records"
    given = ("--kubernetes", "i", "--into", str(into), *words)
    return main(["fleet", "run", *given]), into


needs_a_shell = pytest.mark.skipif(sys.platform == "win32", reason="kubectl is a shell script here")


@needs_a_shell
def test_jobs_prove_idle_nodes_and_name_those_that_do_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("n1", "n2", "n3"):
        check = {"schema": "gpusetup.node-check/1", "ok": True, "reason": "sound", "node": name}
        answers: dict[str, Any] = {"node-check": check, "snapshot": fleet_records.machine(0)}
        answers["verify"] = fleet_records.report(random.Random(1))
        node_python.record(tmp_path, name, answers)
    python = node_python.recorded_python(tmp_path)
    code, _ = fleet(tmp_path, monkeypatch, NODES, "--node-python", str(python), "--json")
    answer = json.loads(capsys.readouterr().out)
    rows = {one["name"]: one for one in answer["nodes"]}
    assert code == 1
    assert {name: one["status"] for name, one in rows.items()} == {
        "n1": "ok", "n2": "ok", "n3": "ok", "noimage": "failed",
    }  # fmt: skip
    assert rows["noimage"]["problem"].startswith("ImagePullBackOff")
    assert answer["not_asked"] == {
        "used": "6 of its 8 GPUs are in use", "full": "no room: no GPU",
        "cordoned": "cordoned", "lost": "not ready",
    }  # fmt: skip
    assert not [*(tmp_path / "jobs").iterdir()]
