"""Kubernetes through kubectl: which nodes are idle, and a Job on each of them.

Source: kubectl 1.27 to 1.33 (get, create, wait, logs, delete).
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping, Sequence

from gpusetup.errors import BadInput, Blocked, ToolFailed, UsageError
from gpusetup.fleet.engines.engine import Engine, needed
from gpusetup.fleet.engines.kubernetes import (
    GPU,
    RUN_LABEL,
    START_SECONDS,
    KubeItems,
    KubeNode,
    Pod,
    Pods,
    Setting,
    job,
    job_name,
    kube_nodes,
    used_gpus,
)
from gpusetup.fleet.show import NotAsked
from gpusetup.fleet.work import Work
from gpusetup.model.codec import from_json
from gpusetup.model.frozen import replace
from gpusetup.system.processes import Output, run

ASK_SECONDS = 60.0
"""So long may kubectl take for a short question."""
USED = f"custom-columns=N:.spec.nodeName,G:.spec.containers[*].resources.limits.{GPU}".replace(
    "nvidia.com", "nvidia\\.com"
)
LIVING = "status.phase!=Succeeded,status.phase!=Failed"
TAKEN = "no room: "


def nodes_of_cluster() -> list[KubeNode]:
    """Every node, and whether it is idle. Raises Blocked where the API does not answer."""
    needed("kubectl")
    said = run(("kubectl", "get", "nodes", "-o", "json"), timeout=ASK_SECONDS)
    if not said.ok:
        why = said.problem or reason_of(said.stderr)
        raise Blocked(
            f"Kubernetes does not say which nodes it has: {why}",
            hint="`kubectl get nodes` must answer here",
        )
    words = ("kubectl", "get", "pods", "--all-namespaces", f"--field-selector={LIVING}")
    pods = run((*words, "--no-headers", "-o", USED), timeout=ASK_SECONDS)
    used = used_gpus(pods.stdout) if pods.ok else {}
    try:
        return kube_nodes(from_json(said.stdout, KubeItems, what="its answer").items, used)
    except BadInput as problem:
        raise ToolFailed(
            f"`kubectl get nodes -o json` gave no list of nodes: {problem.message}",
            hint="is that kubectl, or a script of its name? `type kubectl` shows it",
        ) from problem


def reason_of(stderr: str) -> str:
    """The first sentence of kubectl for people: its log stands before it, a line a try.

    >>> reason_of("E1121 06:03:12.1 20432 memcache.go:265] refused\\nThe connection was refused")
    'The connection was refused'
    """
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    told = [line for line in lines if not re.match(r"[IWEF]\d{4} [\d:.]+ +\d+ \S+:\d+\]", line)]
    return " ".join((told or lines[-1:])[:2])[:300]


def chosen(
    nodes: Sequence[KubeNode], named: Sequence[str]
) -> tuple[dict[str, int], tuple[NotAsked, ...]]:
    """The idle nodes with the number of their GPUs, and the others: of those named, or with GPUs.

    Raises UsageError for a node that does not exist, Blocked where none is idle.
    """
    absent = [name for name in named if name not in {node.name for node in nodes}]
    if absent:
        raise UsageError(
            f"this cluster has no node {', '.join(absent)}", hint="`kubectl get nodes` lists them"
        )
    meant = [node for node in nodes if (node.name in named if named else node.gpus)]
    idle = {node.name: node.gpus for node in meant if not node.why_not}
    rest = tuple(NotAsked(name=n.name, why=n.why_not) for n in meant if n.why_not)
    if not idle:
        first = "; ".join(f"{one.name}: {one.why}" for one in rest[:3]) or f"none has {GPU}"
        raise Blocked(f"No node is idle: {first}")
    return idle, rest


def kubernetes_engine(setting: Setting, work: Work, named: Sequence[str]) -> Engine:
    """Kubernetes as `fleet run` asks it."""
    idle, rest = chosen(nodes_of_cluster(), named)
    asking = _Asking(setting, work, idle)
    return Engine(
        f"Kubernetes gets a Job ({setting.run}, namespace {setting.namespace}) for each of",
        tuple(idle),
        asking.ask,
        "",
        not_asked=rest,
        taken=lambda said: (said.problem or "") if (said.problem or "").startswith(TAKEN) else "",
        end=asking.end,
        more_seconds=START_SECONDS,
    )


class _Asking:
    """The Jobs of one run, each by four calls of kubectl."""

    def __init__(self, setting: Setting, work: Work, gpus: Mapping[str, int]) -> None:
        self.setting, self.work, self.gpus = setting, work, gpus

    def ask(self, node: str) -> Output:
        """Create a node's Job, wait for its end, read what it said, and delete it."""
        name, began = f"job/{job_name(self.setting.run, node)}", time.monotonic()
        wanted = json.dumps(job(self.setting, self.work, node, self.gpus[node]))
        made = self._kubectl("create", "--validate=ignore", "-f", "-", stdin=wanted)
        if not made.ok:
            return made
        limit = self.work.limit + START_SECONDS
        wait = ("wait", "--for=condition=complete", f"--timeout={limit:.0f}s", name)
        ended = self._kubectl(*wait, seconds=limit + ASK_SECONDS)
        said = self._kubectl("logs", name, "--tail=-1")
        problem = None if ended.ok else self._why(node) or reason_of(ended.stderr)
        self._kubectl("delete", name, "--wait=false", "--ignore-not-found")
        return replace(said, problem=problem, seconds=time.monotonic() - began)

    def _why(self, node: str) -> str:
        """What Kubernetes says of a pod that did not come to its end."""
        label = f"--selector=job-name={job_name(self.setting.run, node)}"
        said = self._kubectl("get", "pods", label, "-o", "json")
        try:
            pods = from_json(said.stdout, Pods, what="pods").items if said.ok else ()
        except BadInput:
            return "kubectl does not say what became of its pod"
        return why_not_ended(pods[0]) if pods else "its Job has no pod"

    def _kubectl(
        self, *words: str, seconds: float = ASK_SECONDS, stdin: str | None = None
    ) -> Output:
        asked = ("kubectl", f"--namespace={self.setting.namespace}", *words)
        return run(asked, timeout=seconds, stdin=stdin)

    def end(self) -> None:
        """Delete what is left of the run."""
        label = f"--selector={RUN_LABEL}={self.setting.run}"
        self._kubectl("delete", "jobs", label, "--wait=false", "--ignore-not-found")


def why_not_ended(pod: Pod) -> str:
    """The reason of a pod's state in one line.

    >>> said = '{"status": {"containerStatuses": [{"state": {"waiting": {"reason": "NoImage"}}}]}}'
    >>> why_not_ended(from_json(said, Pod, what="pod"))
    'NoImage'
    """
    status = pod.status
    for one in status.conditions:
        if one.type == "PodScheduled" and one.status == "False":
            return f"{TAKEN}{one.message or ''}"
    for container in status.containerStatuses:
        for state in container.state.values():
            if state and state.reason:
                return f"{state.reason}: {state.message or ''}".rstrip(": ")
    return f"its pod is {status.phase} and did not end in time"
