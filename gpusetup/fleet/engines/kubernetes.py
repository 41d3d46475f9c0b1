"""Kubernetes: the objects that prove a node, or watch it, as plain data.

A Job for each node; or a DaemonSet whose pods set a condition of their node and write an event,
and never a taint.
Sources: the API reference of Kubernetes 1.28 to 1.37 (v1, batch/v1, apps/v1, and v1 of
rbac.authorization.k8s.io).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from shlex import join
from typing import Any

from gpusetup.errors import BadInput
from gpusetup.fleet.names import SAFE
from gpusetup.fleet.work import Work, script
from gpusetup.model.frozen import Frozen

Object = dict[str, Any]
GPU = "nvidia.com/gpu"
RUN_LABEL, NODE_NOTE = "gpusetup.io/run", "gpusetup.io/node"
NAME_LABEL = "app.kubernetes.io/name"
START_SECONDS = 300
"""So long may a pod take to begin: the image has to come first."""
KEPT_SECONDS = 3600
"""A Job that nobody deletes is gone after an hour."""
CHECK_SECONDS = 300
CONDITION = "GpuProblem"
"""The type of the node's condition: `True` where something is wrong, as NPD's own are."""


class Setting(Frozen):
    """What the objects of one run share."""

    image: str
    namespace: str = "default"
    run: str = "gpusetup"
    """This run's own name, on every object."""
    runtime_class: str | None = None
    """`nvidia` where the container runtime's usual class has no GPU."""


def job(setting: Setting, work: Work, node: str, gpus: int) -> Object:
    """A Job on one node that has all of its GPUs and prints the records.

    >>> made = job(Setting(image="train:1"), Work(python="python"), "gpu-1.example", 8)
    >>> made["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"]
    '8'
    """
    labels = {NAME_LABEL: "gpusetup", RUN_LABEL: setting.run}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": job_name(setting.run, node),
            "namespace": setting.namespace,
            "labels": labels,
            "annotations": {NODE_NOTE: node},
        },
        "spec": {
            "backoffLimit": 0,
            "activeDeadlineSeconds": int(work.limit) + START_SECONDS,
            "ttlSecondsAfterFinished": KEPT_SECONDS,
            "template": {"metadata": {"labels": labels}, "spec": _pod(setting, work, node, gpus)},
        },
    }


def job_name(run: str, node: str) -> str:
    """A name that is a DNS label, whatever the node's is.

    >>> job_name("gpusetup-1a", "gpu-1.example.com")
    'gpusetup-1a-gpu-1-example-com-ed45a0'
    """
    told = "".join(char if char.isalnum() else "-" for char in node.lower())[:30].strip("-")
    return f"{run}-{told}-{hashlib.sha256(node.encode()).hexdigest()[:6]}"


def _pod(setting: Setting, work: Work, node: str, gpus: int) -> Object:
    """A pod that only this node may run; the scheduler still sees whether its GPUs are free."""
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    term = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    container = {
        "name": "gpusetup",
        "image": setting.image,
        "command": ["sh", "-c", script(work)],
        "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}],
        **({"resources": {"limits": {GPU: str(gpus)}}} if gpus else {}),
    }
    return {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        **_runtime(setting),
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": term}},
        "tolerations": [{"key": GPU, "operator": "Exists", "effect": "NoSchedule"}],
        "containers": [container],
        "volumes": [{"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "8Gi"}}],
    }


def _runtime(setting: Setting) -> Object:
    return {"runtimeClassName": setting.runtime_class} if setting.runtime_class else {}


# --- the DaemonSet


def watchers(setting: Setting, python: str, selector: Mapping[str, str]) -> tuple[Object, ...]:
    """The DaemonSet, and what it may do: read its node, set its condition, write events."""
    named = {"name": "gpusetup", "labels": {NAME_LABEL: "gpusetup"}}
    here = {**named, "namespace": setting.namespace}
    rules = [
        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]},
        {"apiGroups": [""], "resources": ["nodes/status"], "verbs": ["patch"]},
        {"apiGroups": [""], "resources": ["events"], "verbs": ["create"]},
    ]
    group = "rbac.authorization.k8s.io"
    subject = {"kind": "ServiceAccount", "name": "gpusetup", "namespace": setting.namespace}
    return (
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": here},
        {"apiVersion": f"{group}/v1", "kind": "ClusterRole", "metadata": named, "rules": rules},
        {
            "apiVersion": f"{group}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": named,
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "gpusetup"},
            "subjects": [subject],
        },
        {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": here,
            "spec": {
                "selector": {"matchLabels": {NAME_LABEL: "gpusetup"}},
                "updateStrategy": {"type": "RollingUpdate"},
                "template": {
                    "metadata": {"labels": {NAME_LABEL: "gpusetup"}},
                    "spec": _watcher(setting, python, selector),
                },
            },
        },
    )


def _watcher(setting: Setting, python: str, selector: Mapping[str, str]) -> Object:
    """A pod that takes no GPU from jobs; it is privileged to read the kernel's log."""
    call = join((python, "-I", "-m", "gpusetup", "fleet", "check", "--kubernetes"))
    container = {
        "name": "gpusetup",
        "image": setting.image,
        "command": ["sh", "-c", f"while :; do {call}; sleep {CHECK_SECONDS}; done"],
        "env": [
            {"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
            {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"},
            {"name": "NVIDIA_DRIVER_CAPABILITIES", "value": "utility"},
        ],
        "resources": {
            "requests": {"cpu": "10m", "memory": "64Mi"},
            "limits": {"memory": "512Mi"},
        },
        "securityContext": {"privileged": True},
        "volumeMounts": [{"name": "kmsg", "mountPath": "/dev/kmsg", "readOnly": True}],
    }
    return {
        "serviceAccountName": "gpusetup",
        **_runtime(setting),
        "nodeSelector": dict(selector),
        "tolerations": [{"operator": "Exists"}],
        "containers": [container],
        "volumes": [{"name": "kmsg", "hostPath": {"path": "/dev/kmsg"}}],
    }


# --- nodes


class KubeNode(Frozen):
    """A node of the cluster."""

    name: str
    gpus: int = 0
    """What pods may ask for in all."""
    why_not: str = ""
    """Why no pod would run there; empty where one may."""


class Metadata(Frozen):
    name: str


class Condition(Frozen):
    type: str
    status: str
    message: str | None = None


class NodeStatus(Frozen):
    allocatable: Mapping[str, str] = {}
    conditions: tuple[Condition, ...] = ()


class NodeSpec(Frozen):
    unschedulable: bool = False


class KubeItem(Frozen):
    """A node, as far as it is read."""

    metadata: Metadata
    status: NodeStatus = NodeStatus()
    spec: NodeSpec = NodeSpec()


class KubeItems(Frozen):
    """`kubectl get nodes -o json`."""

    items: tuple[KubeItem, ...]


class Why(Frozen):
    reason: str | None = None
    message: str | None = None


class Container(Frozen):
    state: Mapping[str, Why | None] = {}


class PodStatus(Frozen):
    phase: str = "Unknown"
    conditions: tuple[Condition, ...] = ()
    containerStatuses: tuple[Container, ...] = ()


class Pod(Frozen):
    """A pod, as far as it is read."""

    status: PodStatus = PodStatus()


class Pods(Frozen):
    """`kubectl get pods -o json`."""

    items: tuple[Pod, ...]


def kube_nodes(items: Sequence[KubeItem], used: Mapping[str, int]) -> list[KubeNode]:
    """The nodes with their GPUs; BadInput for what is no node's. `used`: GPUs in use, by node."""
    return [_node(item, used) for item in items]


def _node(item: KubeItem, used: Mapping[str, int]) -> KubeNode:
    name, count = item.metadata.name, item.status.allocatable.get(GPU, "0")
    if not SAFE.fullmatch(name) or not count.isdecimal():
        raise BadInput(f"no node has such a name or number of GPUs: {name[:80]!r}, {count[:20]!r}")
    gpus = int(count)
    ready = [one for one in item.status.conditions if one.type == "Ready"]
    why = ""
    if not ready or ready[0].status != "True":
        why = f"not ready: {(ready[0].message or '') if ready else 'its kubelet says nothing'}"
    elif item.spec.unschedulable:
        why = "cordoned"
    elif used.get(name, 0):
        why = f"{used[name]} of its {gpus} GPUs are in use"
    return KubeNode(name=name, gpus=gpus, why_not=why)


def used_gpus(text: str) -> dict[str, int]:
    """GPUs in use by node, from lines of a pod's node and its containers' limits.

    >>> used_gpus("gpu-1   4,<none>,2\\n<none>  8\\ngpu-2  <none>\\n")
    {'gpu-1': 6}
    """
    found: dict[str, int] = {}
    for line in text.splitlines():
        node, _, limits = line.strip().partition(" ")
        count = sum(int(one) for one in limits.replace(",", " ").split() if one.isdigit())
        if count and node != "<none>":
            found[node] = found.get(node, 0) + count
    return found
