"""Kubernetes: objects that its schemas accept, Jobs by kubectl, a node's condition and event."""

from __future__ import annotations

import json
import os
import random
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fleet_records
import node_python
import pytest
from kube_api import Api, authority, kube_api

from gpusetup.cli import main
from gpusetup.errors import Blocked
from gpusetup.fleet.engines import kubernetes
from gpusetup.fleet.engines.kubernetes import Setting, job
from gpusetup.fleet.kubernetes_watch import CONDITION, condition, report, watchers
from gpusetup.fleet.work import Work

VERSIONS = ("1.29", "1.33", "1.37")
SETTING = Setting(image="train:1", namespace="ml", runtime_class="nvidia")
OBJECTS = (
    job(SETTING, Work(python="python"), ("gpusetup-1", "gpu-1.example.com"), 8),
    job(Setting(image="i"), Work(python="python"), ("gpusetup-1", "n"), 0),
    *watchers(SETTING, "/opt/env/bin/python"),
)


# --- the objects ----------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_the_schemas_of_three_versions_accept_every_object(version: str) -> None:
    kubernetes_validate = pytest.importorskip("kubernetes_validate")
    for one in OBJECTS:
        kubernetes_validate.validate(one, version, strict=True)
    wrong = {**OBJECTS[0], "spec": {**OBJECTS[0]["spec"], "backofLimit": 0}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, version, strict=True)


def test_what_is_printed_is_what_kubectl_reads(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fleet", "run", "--kubernetes", "daemonset", "--print", "--image", "train:1"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert [one["kind"] for one in printed["items"]] == [one["kind"] for one in OBJECTS[2:]]


@pytest.mark.parametrize(
    "words",
    [
        ("--namespace", "a b"),
        ("--namespace", "a\n---\nkind: Pod"),
        ("--runtime-class", "-x"),
        ("--image", 'x"; rm -rf /'),
    ],
)
def test_what_no_cluster_takes_is_refused_before_anything_is_printed(
    capsys: pytest.CaptureFixture[str], words: tuple[str, str]
) -> None:
    given = ("--print", "--image", "train:1", "--nodes", "n1", *words)
    for kind in ("jobs", "daemonset"):
        assert main(["fleet", "run", "--kubernetes", kind, *given]) == 2
        said = capsys.readouterr()
        assert said.out == "" and words[0] in said.err


def test_no_object_sets_a_taint_and_the_watcher_may_do_two_things() -> None:
    assert "taint" not in json.dumps(OBJECTS)
    (role,) = [one for one in OBJECTS if one["kind"] == "ClusterRole"]
    may = {(r["resources"][0], verb) for r in role["rules"] for verb in r["verbs"]}
    assert may == {("nodes", "get"), ("nodes/status", "patch")}


# --- nodes and conditions -------------------------------------------------------------------------


def test_a_transition_is_kept_while_the_status_is_the_same() -> None:
    first = condition(False, "ecc-error: GPU 3", {}, "t1")
    second = condition(False, "ecc-error: GPU 4", first, "t2")
    third = condition(True, "8 x H100", second, "t3")
    assert [one["lastTransitionTime"] for one in (first, second, third)] == ["t1", "t1", "t3"]
    assert [one["lastHeartbeatTime"] for one in (first, second, third)] == ["t1", "t2", "t3"]


@pytest.mark.parametrize("said", ["hello\n", "../../x 8 True <none>\n", "n x True <none>\n"])
@pytest.mark.skipif(sys.platform == "win32", reason="the stand-in of kubectl is a shell script")
def test_a_kubectl_that_talks_nonsense_is_a_tool_that_failed(
    said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "said").write_text(said)
    kubectl = tmp_path / "kubectl"
    kubectl.write_text(f'#!/bin/sh\nexec cat "{tmp_path}/said"\n')
    kubectl.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    into = tmp_path / "records"
    code = main(["fleet", "run", "--kubernetes", "--image", "i", "--into", str(into)])
    told = capsys.readouterr().err
    assert code == 4, told
    assert told.startswith("error: `kubectl get nodes` gave no list of nodes: ")
    assert not into.exists()


# --- against a server -----------------------------------------------------------------------------

needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes keys")


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return authority(tmp_path_factory.mktemp("tls") / "own")


@pytest.fixture
def api(keys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    with kube_api(tmp_path, keys) as running:
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", running.url.rpartition(":")[2])
        monkeypatch.setenv("GPUSETUP_SERVICE_ACCOUNT", str(tmp_path / "account"))
        yield running


@needs_openssl
def test_a_node_gets_its_condition_and_no_taint(api: Api) -> None:
    api.add_node("n1")
    for ok, reason in ((True, "8 x H100"), (False, "ecc-error: GPU 3"), (True, "8 x H100")):
        report(ok, reason, "n1")
        (node,) = api.of_kind("Node")
        conditions = {one["type"]: one for one in node["status"]["conditions"]}
        assert set(conditions) == {"Ready", CONDITION}
        assert conditions[CONDITION]["status"] == str(not ok)
        assert conditions[CONDITION]["message"] == reason
    assert not any("taint" in json.dumps(one) for one in api.objects.values())


@needs_openssl
def test_what_the_account_may_not_do_is_said(api: Api) -> None:
    api.add_node("n1")
    api.forbidden = ("PATCH /api/v1/nodes/n1/status",)
    with pytest.raises(Blocked, match="refuses PATCH") as problem:
        report(True, "x", "n1")
    assert "ClusterRole" in str(problem.value.hint)
    with pytest.raises(Blocked, match="404"):
        report(True, "x", "n2")


def test_outside_a_pod_it_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GPUSETUP_SERVICE_ACCOUNT", str(tmp_path))
    monkeypatch.delenv("NODE_NAME", raising=False)
    assert main(["fleet", "check", "--kubernetes"]) == 2
    monkeypatch.setenv("NODE_NAME", "n1")
    assert main(["fleet", "check", "--kubernetes"]) == 3
    assert "no pod" in capsys.readouterr().err


# --- with kubectl ---------------------------------------------------------------------------------

needs_kubectl = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not here")


@pytest.mark.slow
@needs_openssl
@needs_kubectl
def test_jobs_prove_idle_nodes_and_name_those_that_do_not_answer(
    api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(kubernetes, "START_SECONDS", 1)
    for name in ("n1", "n2", "n3", "slow", "used", "noimage", "full"):
        api.add_node(name)
        check = {"schema": "gpusetup.node-check/1", "ok": True, "reason": "sound", "node": name}
        verify = fleet_records.report(random.Random(1))
        answers: dict[str, Any] = {"node-check": check, "verify": verify}
        node_python.record(tmp_path, name, {**answers, "snapshot": fleet_records.machine(0)})
    (tmp_path / "slow" / "hang").write_text("snapshot")
    api.add_pod("train", "used", 8)
    api.add_node("cpu", gpus=0)
    api.add_node("cordoned", spec={"unschedulable": True})
    api.add_node("lost")
    api.objects["/api/v1/nodes/lost"]["status"]["conditions"] = []
    python = node_python.recorded_python(tmp_path)
    given = ("--image", "i", "--node-python", str(python), "--into", str(tmp_path / "records"))
    code = main(["fleet", "run", "--kubernetes", *given, "--limit", "10", "--json"])
    answer = json.loads(capsys.readouterr().out)
    rows = {one["name"]: one for one in answer["nodes"]}
    assert code == 1
    sound = {name for name, one in rows.items() if one["status"] == "ok"}
    assert sound == {"n1", "n2", "n3"}, rows
    assert rows["noimage"]["problem"].startswith("ImagePullBackOff: no such image")
    assert "did not end in time" in rows["slow"]["problem"]
    why = {one["name"]: one["why"] for one in answer["not_asked"]}
    assert why == {
        "used": "8 of its 8 GPUs are in use",
        "full": "no room: 0/4 nodes are available",
        "cordoned": "cordoned",
        "lost": "not ready",
    }
    assert api.of_kind("Job") == []
