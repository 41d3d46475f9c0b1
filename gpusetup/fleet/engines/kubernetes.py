"""The engine for Kubernetes: creates a Job on each idle node with kubectl.

Sources: kubectl 1.27 to 1.33; the API reference of Kubernetes 1.28 to 1.37 (batch/v1, apps/v1).
"""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from string import Template

from gpusetup.errors import Blocked
from gpusetup.fleet.engines.engine import Engine, require_program
from gpusetup.fleet.names import SAFE
from gpusetup.fleet.work import NodeWork, script
from gpusetup.model.frozen import replace
from gpusetup.system.processes import Output, run

RUN_LABEL = "gpusetup.io/run"
START_SECONDS = 300
"""How many seconds a pod may take to start, because the image must be downloaded first."""
ASK_SECONDS = 60.0
"""How many seconds kubectl may take for a short command."""
GPU_RESOURCE = "nvidia\\.com/gpu"
NODE_COLUMNS = (
    f"N:.metadata.name,G:.status.allocatable.{GPU_RESOURCE},"
    'R:.status.conditions[?(@.type=="Ready")].status,U:.spec.unschedulable'
)
POD_COLUMNS = f"N:.spec.nodeName,G:.spec.containers[*].resources.limits.{GPU_RESOURCE}"
POD_STATE = (
    '{.items[0].status.conditions[?(@.type=="PodScheduled")].message}|'
    "{.items[0].status.containerStatuses[*].state.*.reason}"
)
JOB_TEMPLATE = Path(__file__).parent / "job.yaml"
LIVE_PODS = "status.phase!=Succeeded,status.phase!=Failed"
BUSY = "no room: "


class Kubernetes(Engine):
    """Runs the work as a Job on each node by calling kubectl."""

    extra_seconds = START_SECONDS

    def __init__(self, work: NodeWork, image: str, runtime_class: str | None = None) -> None:
        """`runtime_class`: `nvidia` if the cluster's default one gives containers no GPU."""
        require_program("kubectl")
        self.image, self.runtime_class = image, runtime_class
        self.gpus, states = nodes_of_cluster()
        # Nodes without GPUs get work only if the user named them.
        if not work.nodes:
            states = {name: why for name, why in states.items() if self.gpus[name]}
        super().__init__(work, states, "this cluster")
        self.title = f"Starting a Kubernetes Job ({self.run_name}) on each of"

    def plan(self) -> str:
        """The Jobs for all nodes as YAML, ready for `kubectl create -f`."""
        return "---\n".join(map(self.job, self.nodes))

    def job(self, node: str) -> str:
        """The YAML of a Job that requests all GPUs of the node and prints the node's records."""
        values = {
            "name": self.job_name(node),
            "run": self.run_name,
            "node": node,
            "script": script(self.work),
            "seconds": int(self.work.limit) + START_SECONDS,
            "gpus": str(self.gpus[node]),
            "image": self.image,
            "runtime_class": self.runtime_class,
        }
        # As JSON, which is valid YAML, so that no value can end its line or begin another key.
        as_json = {name: json.dumps(value) for name, value in values.items()}
        return Template(JOB_TEMPLATE.read_text(encoding="utf-8")).substitute(as_json)

    def job_name(self, node: str) -> str:
        # A number, because a node's name may be too long for a label, or have other characters.
        return f"{self.run_name}-{self.nodes.index(node)}"

    def ask(self, node: str) -> Output:
        began = time.monotonic()
        job_name = self.job_name(node)
        # The validation is left to the API server, which knows its own version.
        created = kubectl("create", "--validate=ignore", "-f", "-", stdin=self.job(node))
        if not created.ok:
            return created
        limit, name = self.work.limit + START_SECONDS, f"job/{job_name}"
        wait = ("wait", "--for=condition=complete", f"--timeout={limit:.0f}s", name)
        ended = kubectl(*wait, seconds=limit + ASK_SECONDS)
        # Log and state are read before the Job is deleted, because deleting it also deletes both.
        output = kubectl("logs", name, "--tail=-1")
        problem = None
        if not ended.ok:
            selector = f"--selector=job-name={job_name}"
            pods = ("get", "pods", selector, "-o", f"jsonpath={POD_STATE}")
            unscheduled, _, container_reason = kubectl(*pods).stdout.partition("|")
            problem = container_reason.strip() or "its pod did not finish in time"
            # Why the pod got no place on the node; empty if it got one.
            if unscheduled:
                problem = f"{BUSY}{unscheduled}"
        kubectl("delete", name, "--wait=false", "--ignore-not-found")
        return replace(output, problem=problem, seconds=time.monotonic() - began)

    def why_busy(self, output: Output) -> str:
        # The pod was created but never got a place.
        problem = output.problem or ""
        return problem if problem.startswith(BUSY) else ""

    def end(self) -> None:
        selector = f"--selector={RUN_LABEL}={self.run_name}"
        kubectl("delete", "jobs", selector, "--wait=false", "--ignore-not-found")


def kubectl(*words: str, seconds: float = ASK_SECONDS, stdin: str | None = None) -> Output:
    """Run one kubectl command, with the user's own configuration and rights."""
    return run(("kubectl", *words), timeout=seconds, stdin=stdin)


def nodes_of_cluster() -> tuple[dict[str, int], dict[str, str]]:
    """The number of GPUs of each node, and the reason why a node is not idle ("" if it is idle).
    Raises Blocked if kubectl cannot list the nodes."""
    output = _columns("nodes", NODE_COLUMNS)
    if not output.ok:
        raise Blocked(
            f"Cannot list the nodes of Kubernetes: {output.problem or output.stderr.strip()}",
            hint="`kubectl get nodes` must work on this machine",
        )
    used_gpus = _gpus_in_use()
    gpus: dict[str, int] = {}
    states: dict[str, str] = {}
    for line in output.stdout.splitlines():
        # `gpu-1   8   True   <none>`; the last column is `true` for a cordoned node.
        columns = re.fullmatch(r"(\S+) +(\d+|<none>) +(\S+) +(\S+) *", line)
        if columns is None or not SAFE.fullmatch(columns[1]):
            continue  # no node, such as a warning
        name, gpu_count, ready, cordoned = columns.groups()
        gpus[name] = int(gpu_count) if gpu_count.isdigit() else 0
        if ready != "True":
            states[name] = "not ready"
        elif cordoned == "true":
            states[name] = "cordoned"
        elif used_gpus.get(name):
            states[name] = f"{used_gpus[name]} of its {gpus[name]} GPUs are in use"
        else:
            states[name] = ""
    return gpus, states


def _gpus_in_use() -> dict[str, int]:
    """Maps each node to the number of GPUs that its running pods use; empty if we may not list the
    pods."""
    pods = _columns("pods", POD_COLUMNS, "--all-namespaces", f"--field-selector={LIVE_PODS}")
    used: dict[str, int] = {}
    for line in pods.stdout.splitlines() if pods.ok else ():
        # The second column contains one limit for each container of the pod, or `<none>`.
        node, _, limits = line.strip().partition(" ")
        used[node] = used.get(node, 0) + sum(map(int, re.findall(r"\d+", limits)))
    return used


def _columns(kind: str, columns: str, *more: str) -> Output:
    """The output of `kubectl get` with these custom columns, without a heading."""
    return kubectl("get", kind, *more, "--no-headers", "-o", f"custom-columns={columns}")
