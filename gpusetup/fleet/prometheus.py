"""Writes the result of `fleet check` as metrics for the textfile collector of Prometheus'
node_exporter.

The metrics contain only numbers, ids of findings, the GPU's model and the driver's version. They
contain no names of hosts, users or folders, no UUIDs, and no titles of findings. node_exporter adds
the label of the node itself. Source: Prometheus, "Exposition formats" (text format 0.0.4);
node_exporter, "Textfile Collector".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from gpusetup.fleet.facts import GPU_COUNT, GPU_NAME
from gpusetup.fleet.names import on_one_line
from gpusetup.fleet.node_check import NodeCheckAnswer

FILE_SUFFIX = ".prom"
"""node_exporter only reads files with this suffix."""
Sample = tuple[Mapping[str, str], int]
"""The labels and the value of one line."""


def metrics(answer: NodeCheckAnswer, now: int) -> str:
    """The metrics of one check, in Prometheus' text format. `now` is the time of the check in
    seconds since 1970."""
    facts = answer.facts
    gpu_count = facts.get(GPU_COUNT, "")
    counts = Counter((finding.id, finding.severity.value) for finding in answer.findings)
    findings = [
        ({"id": id, "severity": severity}, count)
        for (id, severity), count in sorted(counts.items())
    ]
    machine = {"driver": facts.get("driver.version", ""), "gpu": facts.get(GPU_NAME, "")}
    # Without a driver there is no GPU count.
    gpus: list[Sample] = [({}, int(gpu_count))] if gpu_count.isdecimal() else []
    passed = "Whether the node can run jobs: 1 if `gpusetup fleet check` passed, else 0."
    gauges: tuple[tuple[str, str, Sequence[Sample]], ...] = (
        ("ok", passed, [({}, int(answer.ok))]),
        ("check_timestamp_seconds", "When the node was checked.", [({}, now)]),
        ("info", "The node's driver and GPU.", [(machine, 1)]),
        ("gpus", "GPUs that the driver lists.", gpus),
        ("finding", "Findings of the check, by id and severity.", findings),
    )
    lines = []
    for short_name, help_text, samples in gauges:
        name = f"gpusetup_node_{short_name}"
        if samples:
            lines += [f"# HELP {name} {help_text}", f"# TYPE {name} gauge"]
        lines += [_sample(name, labels, value) for labels, value in samples]
    # The format requires a newline after the last line too.
    return "".join(f"{line}\n" for line in lines)


def _sample(name: str, labels: Mapping[str, str], value: int) -> str:
    """One sample line of a metric.

    >>> _sample("up", {"gpu": 'a "b"\\\\'}, 1), _sample("at", {}, 1795000000)
    ('up{gpu="a \\\\"b\\\\"\\\\\\\\"} 1', 'at 1795000000')
    """
    pairs = []
    for label, text in labels.items():
        # Backslashes are escaped first, because escaping quotation marks adds some.
        escaped = on_one_line(text).replace("\\", r"\\").replace('"', r"\"")
        pairs.append(f'{label}="{escaped}"')
    return f"{name}{{{','.join(pairs)}}} {value}" if pairs else f"{name} {value}"
