"""Tells Kubernetes of one node: a condition of the node, and an event where it changes.

It runs in a pod on that node, by the pod's own account; a taint is never set.
Source: API reference of Kubernetes, NodeCondition and Event v1; accessing the API from a pod.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from gpusetup.errors import Blocked
from gpusetup.fleet.engines.kubernetes import CONDITION, Object
from gpusetup.model.frozen import Frozen

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
SECONDS = 10.0
LONGEST_MESSAGE = 1024
SOUND = "GpusAreSound"


class Verdict(Frozen):
    """What is said of a node."""

    ok: bool
    reason: str
    """One line."""


def condition(verdict: Verdict, before: Mapping[str, Any] | None, now: str) -> Object:
    """The node's condition; its transition is now only where the status is another one.

    >>> made = condition(Verdict(ok=False, reason="ecc-error: GPU 3"), None, "2026-01-01T00:00:00Z")
    >>> made["status"], made["reason"]
    ('True', 'EccError')
    """
    status = "False" if verdict.ok else "True"
    same = before is not None and before.get("status") == status
    return {
        "type": CONDITION,
        "status": status,
        "reason": SOUND if verdict.ok else camel(verdict.reason),
        "message": verdict.reason[:LONGEST_MESSAGE],
        "lastHeartbeatTime": now,
        "lastTransitionTime": (before or {}).get("lastTransitionTime", now) if same else now,
    }


def camel(reason: str) -> str:
    """A finding's id as Kubernetes writes reasons.

    >>> camel("gpu-fell-off-bus: GPU 7"), camel("number of GPUs 7, expected 8")
    ('GpuFellOffBus', 'UnlikeProfile')
    """
    id, colon, _ = reason.partition(": ")
    if not colon or not all(part.isalnum() for part in id.split("-")):
        return "UnlikeProfile"
    return "".join(part.capitalize() for part in id.split("-"))[:128]


def event(node: Mapping[str, Any], told: Mapping[str, Any]) -> Object:
    """What `kubectl describe node` shows below the node."""
    name, now = node["metadata"]["name"], told["lastHeartbeatTime"]
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": "gpusetup-", "namespace": "default"},
        "involvedObject": {
            "apiVersion": "v1",
            "kind": "Node",
            "name": name,
            "uid": node["metadata"].get("uid", name),
        },
        "type": "Normal" if told["status"] == "False" else "Warning",
        "reason": told["reason"],
        "message": told["message"],
        "source": {"component": "gpusetup", "host": name},
        "reportingComponent": "gpusetup",
        "reportingInstance": name,
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }


def changed(before: Mapping[str, Any] | None, told: Mapping[str, Any]) -> bool:
    """Whether an event is due: not for a node that is sound from the first."""
    if before is None:
        return bool(told["status"] == "True")
    return any(before.get(key) != told[key] for key in ("status", "reason"))


# --- the API


class Api:
    """The API server, as a pod reaches it."""

    def __init__(self) -> None:
        import requests

        host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), "KUBERNETES_SERVICE_PORT"
        account = Path(os.environ.get("GPUSETUP_SERVICE_ACCOUNT", str(ACCOUNT)))
        try:
            token = (account / "token").read_text(encoding="utf-8").strip()
        except OSError as problem:
            raise Blocked(
                f"This is no pod with an account: {problem.strerror}: {problem.filename}",
                hint="`gpusetup fleet run --kubernetes daemonset --print` shows one",
            ) from problem
        if ":" in str(host):
            host = f"[{host}]"
        self.root = f"https://{host}:{os.environ.get(port, '443')}"
        self.session = requests.Session()
        self.session.trust_env = False
        self.session.verify = str(account / "ca.crt")
        self.session.headers["Authorization"] = f"Bearer {token}"

    def asked(self, method: str, path: str, body: object = None, kind: str = "") -> Any:
        """The answer's document. Raises Blocked where there is none."""
        import requests

        headers = {"Content-Type": kind or "application/json"} if body is not None else {}
        data = None if body is None else json.dumps(body)
        try:
            answer = self.session.request(
                method, f"{self.root}{path}", data=data, headers=headers, timeout=SECONDS
            )
            found = answer.json()
        except (requests.RequestException, ValueError) as problem:
            raise Blocked(f"{self.root} does not answer: {problem}") from problem
        if not answer.ok:
            raise Blocked(
                f"Kubernetes refuses {method} {path}: {found.get('message', answer.status_code)}",
                hint="the pod's account needs the ClusterRole that "
                "`gpusetup fleet run --kubernetes daemonset --print` shows",
            )
        return found


def report(verdict: Verdict, name: str) -> str:
    """Set the node's condition, and write an event where it changed; what was done, in words."""
    api, now = Api(), f"{datetime.now(timezone.utc):%Y-%m-%dT%H:%M:%SZ}"
    node = api.asked("GET", f"/api/v1/nodes/{name}")
    conditions = node.get("status", {}).get("conditions", ())
    before = next((one for one in conditions if one.get("type") == CONDITION), None)
    told = condition(verdict, before, now)
    patch = {"status": {"conditions": [told]}}
    merge = "application/strategic-merge-patch+json"
    api.asked("PATCH", f"/api/v1/nodes/{name}/status", patch, merge)
    if changed(before, told):
        api.asked("POST", "/api/v1/namespaces/default/events", event(node, told))
        return f"{CONDITION} of {name} is now {told['status']} ({told['reason']})"
    return f"{CONDITION} of {name} is {told['status']} as before"
