"""The engine for Kubernetes: creates a Job on each idle node with kubectl.

Sources: kubectl 1.27 to 1.33; the API reference of Kubernetes 1.28 to 1.37 (batch/v1, apps/v1).
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from pathlib import Path
from string import Template

from gpusetup.errors import Blocked, ToolFailed
from gpusetup.fleet.engines.engine import Engine, FleetRequest, require_program
from gpusetup.fleet.nodes import SAFE
from gpusetup.fleet.work import script
from gpusetup.model.frozen import Frozen, replace
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
LIVE_PODS = "status.phase!=Succeeded,status.phase!=Failed"
BUSY = "no room: "


class ClusterSetting(Frozen):
    """The settings that all Kubernetes objects of one run share."""

    image: str
    runtime_class: str | None = None
    """Set this to `nvidia` if the cluster's default runtime class gives containers no GPU."""


class Kubernetes(Engine):
    """Runs the work as a Job on each node by calling kubectl."""

    extra_seconds = START_SECONDS

    def __init__(self, request: FleetRequest, setting: ClusterSetting) -> None:
        require_program("kubectl")
        self.setting = setting
        self.gpus, states = nodes_of_cluster()
        # Nodes without GPUs get work only if the user named them.
        if not request.nodes:
            with_gpus = [name for name in states if self.gpus[name]]
            states = {name: states[name] for name in with_gpus}
        super().__init__(request, states, "this cluster")
        self.title = f"Kubernetes gets a Job ({self.run_name}) for each of"

    def plan(self) -> str:
        """The Jobs for all nodes as YAML, ready for `kubectl create -f`."""
        jobs = map(self.plan_for, self.nodes)
        # `---` separates YAML documents.
        return "---\n".join(jobs)

    def plan_for(self, node: str) -> str:
        """The YAML of a Job that requests all GPUs of the node and prints the node's records."""
        return manifest(
            self.setting,
            name=job_name(self.run_name, node),
            run=self.run_name,
            node=node,
            script=script(self.work),
            seconds=int(self.work.limit) + START_SECONDS,
            gpus=str(self.gpus[node]),
        )

    def ask(self, node: str) -> Output:
        began = time.monotonic()
        job = self.plan_for(node)
        name = f"job/{job_name(self.run_name, node)}"
        # Leave the validation to the API server, which knows its own version.
        created = self._kubectl("create", "--validate=ignore", "-f", "-", stdin=job)
        if not created.ok:
            return created
        limit = self.work.limit + START_SECONDS
        timeout = f"--timeout={limit:.0f}s"
        wait = ("wait", "--for=condition=complete", timeout, name)
        ended = self._kubectl(*wait, seconds=limit + ASK_SECONDS)
        # Read log and state before the Job is deleted, because deleting it also deletes both.
        output = self._kubectl("logs", name, "--tail=-1")
        problem = None if ended.ok else self._pod_problem(node)
        self._kubectl("delete", name, "--wait=false", "--ignore-not-found")
        seconds = time.monotonic() - began
        return replace(output, problem=problem, seconds=seconds)

    def why_busy(self, output: Output) -> str:
        problem = output.problem or ""
        # The node is busy if the pod was created but never got a place.
        is_busy = problem.startswith(BUSY)
        return problem if is_busy else ""

    def end(self) -> None:
        # All Jobs of this run have this label.
        label = f"{RUN_LABEL}={self.run_name}"
        selector = f"--selector={label}"
        self._kubectl("delete", "jobs", selector, "--wait=false", "--ignore-not-found")

    def _pod_problem(self, node: str) -> str:
        """The reason that Kubernetes gives for a pod that did not finish."""
        name = job_name(self.run_name, node)
        selector = f"--selector=job-name={name}"
        state = self._kubectl("get", "pods", selector, "-o", f"jsonpath={POD_STATE}")
        scheduling_problem, _, container_reason = state.stdout.partition("|")
        # If there is a scheduling problem, the pod never ran.
        if scheduling_problem:
            return f"{BUSY}{scheduling_problem}"
        return container_reason.strip() or "its pod did not finish in time"

    def _kubectl(
        self, *words: str, seconds: float = ASK_SECONDS, stdin: str | None = None
    ) -> Output:
        """Run one kubectl command and return its output."""
        # kubectl uses the user's own configuration and rights.
        command = ("kubectl", *words)
        return run(command, timeout=seconds, stdin=stdin)


def nodes_of_cluster() -> tuple[dict[str, int], dict[str, str]]:
    """The number of GPUs of each node, and the reason why a node is not idle ("" if it is idle).
    Raises Blocked if kubectl cannot list the nodes."""
    output = _columns("nodes", NODE_COLUMNS)
    if not output.ok:
        raise Blocked(
            "Kubernetes does not say which nodes it has: "
            f"{output.problem or output.stderr.strip()}",
            hint="`kubectl get nodes` must answer here",
        )
    used_gpus = _gpus_in_use()
    gpus: dict[str, int] = {}
    states: dict[str, str] = {}
    for line in output.stdout.splitlines():
        columns = re.fullmatch(r"(\S+) +(\d+|<none>) +(\S+) +(\S+) *", line)
        if columns is None or not SAFE.fullmatch(columns[1]):
            raise ToolFailed(
                f"`kubectl get nodes` printed no list of nodes: {line[:80]!r}",
                hint="perhaps `kubectl` is another program of that name: `type kubectl` shows it",
            )
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
    live = f"--field-selector={LIVE_PODS}"
    pods = _columns("pods", POD_COLUMNS, "--all-namespaces", live)
    if not pods.ok:
        return {}
    used: dict[str, int] = {}
    for line in pods.stdout.splitlines():
        node, _, limits = line.strip().partition(" ")
        # Add up the numbers, because the column contains one limit for each container of the pod.
        numbers = re.findall(r"\d+", limits)
        pod_gpus = sum(map(int, numbers))
        used[node] = used.get(node, 0) + pod_gpus
    return used


def _columns(kind: str, columns: str, *more: str) -> Output:
    """The output of `kubectl get` with these custom columns, without a heading."""
    output_form = f"custom-columns={columns}"
    # kubectl prints `<none>` in a cell without a value.
    words = ("kubectl", "get", kind, *more, "--no-headers", "-o", output_form)
    return run(words, timeout=ASK_SECONDS)


JOB_TEMPLATE = Path(__file__).parent / "job.yaml"


def manifest(setting: ClusterSetting, **values: object) -> str:
    """The YAML of a Job: the template `job.yaml` with the values filled in as JSON, which is valid
    YAML."""
    text = JOB_TEMPLATE.read_text(encoding="utf-8")
    values |= {"image": setting.image, "runtime_class": setting.runtime_class}
    as_json = {}
    for name, value in values.items():
        # Insert the values as JSON, so that no value can end its line or begin another key.
        as_json[name] = json.dumps(value)
    return Template(text).substitute(as_json)


LONGEST_PART = 30
"""How many characters of the node's name the Job's name contains; a DNS label has at most 63
characters."""


def job_name(run_name: str, node: str) -> str:
    """A name for a node's Job that is a valid DNS label and unique, whatever the node is called.

    >>> job_name("gpusetup-1a", "gpu-1.example.com")
    'gpusetup-1a-gpu-1-example-com-ed45a0'
    """
    label = re.sub(r"[^a-z0-9]", "-", node.lower())
    short_label = label[:LONGEST_PART].strip("-")
    # Add a hash, because two long names may begin alike.
    node_bytes = node.encode()
    name_hash = hashlib.sha256(node_bytes).hexdigest()
    return f"{run_name}-{short_label}-{name_hash[:6]}"
