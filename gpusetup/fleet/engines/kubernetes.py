"""Kubernetes through kubectl: a Job on each idle node.

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
"""How long a pod may take to begin: the image has to come first."""
ASK_SECONDS = 60.0
"""How long kubectl may take for a short question."""
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


class Setting(Frozen):
    """What the objects of one run share."""

    image: str
    runtime_class: str | None = None
    """`nvidia` if the container runtime's usual class has no GPU."""


class Kubernetes(Engine):
    """A Job on each node, by four calls of kubectl."""

    extra_seconds = START_SECONDS

    def __init__(self, request: FleetRequest, setting: Setting) -> None:
        require_program("kubectl")
        self.setting = setting
        self.gpus, states = nodes_of_cluster()
        if not request.nodes:
            states = {name: why for name, why in states.items() if self.gpus[name]}
        super().__init__(request, states, "this cluster")
        self.title = f"Kubernetes gets a Job ({self.run_name}) for each of"

    def plan(self) -> str:
        return "---\n".join(map(self.plan_for, self.nodes))

    def plan_for(self, node: str) -> str:
        """A Job that has all GPUs of the node and prints the records."""
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
        name, began = f"job/{job_name(self.run_name, node)}", time.monotonic()
        job = self.plan_for(node)
        created = self._kubectl("create", "--validate=ignore", "-f", "-", stdin=job)
        if not created.ok:
            return created
        limit = self.work.limit + START_SECONDS
        wait = ("wait", "--for=condition=complete", f"--timeout={limit:.0f}s", name)
        ended = self._kubectl(*wait, seconds=limit + ASK_SECONDS)
        output = self._kubectl("logs", name, "--tail=-1")
        problem = None if ended.ok else self._pod_problem(node)
        self._kubectl("delete", name, "--wait=false", "--ignore-not-found")
        return replace(output, problem=problem, seconds=time.monotonic() - began)

    def why_busy(self, output: Output) -> str:
        return output.problem if output.problem and output.problem.startswith(BUSY) else ""

    def end(self) -> None:
        label = f"--selector={RUN_LABEL}={self.run_name}"
        self._kubectl("delete", "jobs", label, "--wait=false", "--ignore-not-found")

    def _pod_problem(self, node: str) -> str:
        """What Kubernetes says of a pod that did not come to its end."""
        label = f"--selector=job-name={job_name(self.run_name, node)}"
        output = self._kubectl("get", "pods", label, "-o", f"jsonpath={POD_STATE}").stdout
        room, _, reason = output.partition("|")
        return f"{BUSY}{room}" if room else reason.strip() or "its pod did not finish in time"

    def _kubectl(
        self, *words: str, seconds: float = ASK_SECONDS, stdin: str | None = None
    ) -> Output:
        return run(("kubectl", *words), timeout=seconds, stdin=stdin)


def nodes_of_cluster() -> tuple[dict[str, int], dict[str, str]]:
    """Every node's GPUs, and why it is not idle, empty if it is. Raises Blocked if the API does not
    answer."""
    output = _columns("nodes", NODE_COLUMNS)
    if not output.ok:
        raise Blocked(
            "Kubernetes does not say which nodes it has: "
            f"{output.problem or output.stderr.strip()}",
            hint="`kubectl get nodes` must answer here",
        )
    used: dict[str, int] = {}
    pods = _columns("pods", POD_COLUMNS, "--all-namespaces", f"--field-selector={LIVE_PODS}")
    for line in pods.stdout.splitlines() if pods.ok else ():
        node, _, limits = line.strip().partition(" ")
        used[node] = used.get(node, 0) + sum(map(int, re.findall(r"\d+", limits)))
    gpus, states = dict[str, int](), dict[str, str]()
    for line in output.stdout.splitlines():
        found = re.fullmatch(r"(\S+) +(\d+|<none>) +(\S+) +(\S+) *", line)
        if not found or not SAFE.fullmatch(found[1]):
            raise ToolFailed(
                f"`kubectl get nodes` printed no list of nodes: {line[:80]!r}",
                hint="perhaps `kubectl` is another program of that name: `type kubectl` shows it",
            )
        name, ready, cordoned = found[1], found[3] == "True", found[4] == "true"
        gpus[name] = int(found[2]) if found[2].isdigit() else 0
        in_use = f"{used[name]} of its {gpus[name]} GPUs are in use" if used.get(name) else ""
        states[name] = "not ready" if not ready else "cordoned" if cordoned else in_use
    return gpus, states


def _columns(kind: str, columns: str, *more: str) -> Output:
    words = ("kubectl", "get", kind, *more, "--no-headers", "-o", f"custom-columns={columns}")
    return run(words, timeout=ASK_SECONDS)


def manifest(setting: Setting, **values: object) -> str:
    """The Job of the file beside this one, whose values are JSON, as YAML takes it too."""
    template = Template((Path(__file__).parent / "job.yaml").read_text(encoding="utf-8"))
    values |= {name: getattr(setting, name) for name in ("image", "runtime_class")}
    return template.substitute({name: json.dumps(value) for name, value in values.items()})


def job_name(run_name: str, node: str) -> str:
    """A name that is a DNS label, whatever the node's is.

    >>> job_name("gpusetup-1a", "gpu-1.example.com")
    'gpusetup-1a-gpu-1-example-com-ed45a0'
    """
    label = re.sub(r"[^a-z0-9]", "-", node.lower())[:30].strip("-")
    return f"{run_name}-{label}-{hashlib.sha256(node.encode()).hexdigest()[:6]}"
