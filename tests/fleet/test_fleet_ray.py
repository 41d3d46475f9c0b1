"""`fleet run --ray`: which nodes of a cluster are asked, with a module that stands in for Ray."""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import fleet_records
import node_python
import pytest

from gpusetup.cli import main

BUSY, GONE = "busy", "gone"
"""A node whose GPUs another job has, and one whose worker dies."""


class Actor:
    """An actor on one node, whose methods run here at once."""

    def __init__(self, kind: type, node: str, gpus: float) -> None:
        assert gpus == 8.0, "the actor takes all GPUs of its node"
        self.worker, self.node = kind(), node
        self.ready = SimpleNamespace(remote=lambda: self.node)
        self.run_work = SimpleNamespace(remote=self.run)

    def run(self, work: Any) -> Any:
        if self.node == GONE:
            raise RuntimeError("traceback\nThe worker died unexpectedly")
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("NODE", self.node)
            return self.worker.run_work(work)


class Affinity:
    def __init__(self, node_id: str, soft: bool) -> None:
        assert not soft
        self.node_id = node_id


def actor_class(kind: type) -> Any:
    def options(num_gpus: float, num_cpus: int, scheduling_strategy: Affinity) -> Any:
        node = scheduling_strategy.node_id
        return SimpleNamespace(remote=lambda: Actor(kind, node, num_gpus))

    return SimpleNamespace(options=options)


def node(name: str, gpus: float) -> dict[str, Any]:
    return {"NodeID": name, "NodeName": name, "NodeManagerAddress": "192.0.2.1", "Alive": True,
            "Resources": {"GPU": gpus} if gpus else {}}  # fmt: skip


def test_each_node_with_gpus_gets_an_actor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    killed: list[str] = []
    ray, util = ModuleType("ray"), ModuleType("ray.util")
    strategies = ModuleType("ray.util.scheduling_strategies")
    cluster = [node("head", 0.0), *(node(name, 8.0) for name in ("n1", "n2", "n3", BUSY, GONE))]
    vars(strategies)["NodeAffinitySchedulingStrategy"] = Affinity
    vars(ray).update(
        init=lambda **how: None, shutdown=lambda: None, nodes=lambda: cluster, remote=actor_class,
        wait=lambda waiting, timeout: ([one for one in waiting if one != BUSY], []),
        get=lambda answer, timeout: answer, kill=lambda actor: killed.append(actor.node),
        exceptions=SimpleNamespace(GetTimeoutError=TimeoutError), util=util,
    )  # fmt: skip
    for module in (ray, util, strategies):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    check = {"schema": "gpusetup.node-check/1", "ok": True, "reason": "sound"}
    for name in ("n1", "n2", "n3"):
        answers = {"node-check": check, "snapshot": fleet_records.machine(0),
                   "verify": fleet_records.report(random.Random(1))}  # fmt: skip
        node_python.record(tmp_path, name, answers)
    python = str(node_python.recorded_python(tmp_path))
    words = ("--into", str(tmp_path / "records"), "--node-python", python, "--json")
    assert main(["fleet", "run", "--ray", "auto", *words]) == 1
    answer = json.loads(capsys.readouterr().out)
    states = {one["name"]: one["status"] for one in answer["nodes"]}
    assert states == {GONE: "failed", "n1": "ok", "n2": "ok", "n3": "ok"}
    assert "The worker died unexpectedly" in answer["nodes"][0]["problem"]
    assert "its GPUs are in use" in answer["not_asked"].pop(BUSY)
    assert answer["not_asked"] == {"head": "it has no GPU in Ray"}
    assert sorted(killed) == [BUSY, GONE, "n1", "n2", "n3"], "no actor stays"
