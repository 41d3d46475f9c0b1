"""Kubernetes: a DaemonSet whose pods set a condition of their node, and never a taint.

Sources: the API reference of Kubernetes 1.28 to 1.37 (NodeCondition v1, apps/v1, and v1 of
rbac.authorization.k8s.io); accessing the API from a pod.
"""

from __future__ import annotations

import json
import os
import ssl
import urllib.error
import urllib.request
from datetime import datetime, timezone
from pathlib import Path
from shlex import join
from typing import Any

from gpusetup.errors import Blocked
from gpusetup.fleet.engines.kubernetes import NAME_LABEL, Object, Setting, runtime

CHECK_SECONDS = 300
CONDITION = "GpuProblem"
"""The type of the node's condition: `True` if something is wrong, as NPD's own are."""
SELECTOR = {"nvidia.com/gpu.present": "true"}
"""The label that NVIDIA's feature discovery gives a node with GPUs."""
ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
SECONDS = 10.0
LONGEST_MESSAGE = 1024


def watchers(setting: Setting, python: str) -> tuple[Object, ...]:
    """The DaemonSet, and what it may do: read its node and set its condition.

    Its pods take no GPU from jobs; they are privileged to read the kernel's log.
    """
    named = {"name": "gpusetup", "labels": {NAME_LABEL: "gpusetup"}}
    here = {**named, "namespace": setting.namespace}
    rules = [
        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]},
        {"apiGroups": [""], "resources": ["nodes/status"], "verbs": ["patch"]},
    ]
    group = "rbac.authorization.k8s.io"
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
        "resources": {"requests": {"cpu": "10m", "memory": "64Mi"}, "limits": {"memory": "512Mi"}},
        "securityContext": {"privileged": True},
        "volumeMounts": [{"name": "kmsg", "mountPath": "/dev/kmsg", "readOnly": True}],
    }
    pod = {
        "serviceAccountName": "gpusetup",
        **runtime(setting),
        "nodeSelector": SELECTOR,
        "tolerations": [{"operator": "Exists"}],
        "containers": [container],
        "volumes": [{"name": "kmsg", "hostPath": {"path": "/dev/kmsg"}}],
    }
    return (
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": here},
        {"apiVersion": f"{group}/v1", "kind": "ClusterRole", "metadata": named, "rules": rules},
        {
            "apiVersion": f"{group}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": named,
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "gpusetup"},
            "subjects": [{"kind": "ServiceAccount", **{k: here[k] for k in ("name", "namespace")}}],
        },
        {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": here,
            "spec": {
                "selector": {"matchLabels": named["labels"]},
                "updateStrategy": {"type": "RollingUpdate"},
                "template": {"metadata": {"labels": named["labels"]}, "spec": pod},
            },
        },
    )


def report(ok: bool, reason: str, name: str) -> str:
    """Set the node's condition; what was done, in words."""
    now = f"{datetime.now(timezone.utc):%Y-%m-%dT%H:%M:%SZ}"
    node = asked("GET", f"/api/v1/nodes/{name}")
    conditions = node.get("status", {}).get("conditions", ())
    before: Object = next((one for one in conditions if one.get("type") == CONDITION), {})
    told = condition(ok, reason, before, now)
    asked("PATCH", f"/api/v1/nodes/{name}/status", {"status": {"conditions": [told]}})
    since = "now" if told["lastTransitionTime"] == now else "still"
    return f"{CONDITION} of {name} is {since} {told['status']} ({told['reason']})"


def condition(ok: bool, reason: str, before: Object, now: str) -> Object:
    """The node's condition; its transition is now only if the status is another one.

    >>> condition(False, "ecc-error: GPU 3", {}, "2026-01-01T00:00:00Z")["status"]
    'True'
    """
    status = "False" if ok else "True"
    same = before.get("status") == status
    return {
        "type": CONDITION,
        "status": status,
        "reason": "GpusAreSound" if ok else "GpuProblemFound",
        "message": reason[:LONGEST_MESSAGE],
        "lastHeartbeatTime": now,
        "lastTransitionTime": before.get("lastTransitionTime", now) if same else now,
    }


def asked(method: str, path: str, body: object = None) -> Any:
    """The API server's answer to a pod. Raises Blocked if there is none."""
    account = Path(os.environ.get("GPUSETUP_SERVICE_ACCOUNT", str(ACCOUNT)))
    host = str(os.environ.get("KUBERNETES_SERVICE_HOST"))
    host = f"[{host}]" if ":" in host else host
    root = f"https://{host}:{os.environ.get('KUBERNETES_SERVICE_PORT', '443')}"
    try:
        token = (account / "token").read_text(encoding="utf-8").strip()
        trusted = ssl.create_default_context(cafile=str(account / "ca.crt"))
    except OSError as problem:
        raise Blocked(
            f"This is no pod with an account: {account}: {problem.strerror}",
            hint="`gpusetup fleet run --kubernetes daemonset` prints one",
        ) from problem
    request = urllib.request.Request(
        f"{root}{path}",
        data=None if body is None else json.dumps(body).encode(),
        method=method,
        headers={
            "Authorization": f"Bearer {token}",
            "Content-Type": "application/strategic-merge-patch+json",
        },
    )
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=trusted)
    )
    try:
        with opener.open(request, timeout=SECONDS) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as problem:
        problem.close()
        raise Blocked(
            f"Kubernetes refuses {method} {path}: {problem.code} {problem.reason}",
            hint="the pod's account needs the ClusterRole that "
            "`gpusetup fleet run --kubernetes daemonset` prints",
        ) from problem
    except (OSError, ValueError) as problem:
        raise Blocked(f"{root} does not answer: {problem}") from problem
