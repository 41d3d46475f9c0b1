"""A node's check as metrics, for the textfile collector of Prometheus' node_exporter.

Only numbers, ids of findings, the GPU's model and the driver's version: no names of hosts, users or
folders, no UUIDs, and no words of a finding. node_exporter adds the node's own label.
Source: Prometheus, "Exposition formats" (text format 0.0.4); node_exporter, "Textfile Collector".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from gpusetup.fleet.facts import GPU_COUNT
from gpusetup.fleet.history import moment
from gpusetup.fleet.node_check import NodeCheckAnswer

FILE_SUFFIX = ".prom"
"""node_exporter reads only files that end so."""

Labels = Mapping[str, str]


def metrics(answer: NodeCheckAnswer, now: float) -> str:
    """The metrics of a node. `now`: seconds since 1970, when the node was checked."""
    findings = Counter((finding.id, finding.severity.value) for finding in answer.findings)
    since: dict[tuple[str, str], float] = {}
    for finding in answer.findings:
        if began := moment(finding.since):
            since[finding.id, finding.severity.value] = began.timestamp()
    facts = answer.facts
    info = {
        "driver": facts.get("driver.version", ""),
        "gpu": facts.get("gpus.name", ""),
    }
    gpu_count = facts.get(GPU_COUNT, "")
    return "".join(
        (
            _metric(
                "gpusetup_node_ok",
                "Whether the node may take jobs: 1 if `gpusetup fleet check` passed, else 0.",
                [({}, float(answer.ok))],
            ),
            _metric(
                "gpusetup_node_check_timestamp_seconds",
                "When the node was checked.",
                [({}, now)],
            ),
            _metric("gpusetup_node_info", "The node's driver and GPU.", [(info, 1.0)]),
            _metric(
                "gpusetup_node_gpus",
                "GPUs that the driver lists.",
                [({}, float(gpu_count))] if gpu_count.isdecimal() else [],
            ),
            _metric(
                "gpusetup_node_finding",
                "Findings of the check, by id and severity.",
                [(_labels(*key), float(count)) for key, count in sorted(findings.items())],
            ),
            _metric(
                "gpusetup_node_finding_since_timestamp_seconds",
                "Since when the node has the finding without interruption.",
                [(_labels(*key), began) for key, began in sorted(since.items())],
            ),
        )
    )


def _labels(id: str, severity: str) -> Labels:
    return {"id": id, "severity": severity}


def _metric(name: str, help_text: str, samples: Iterable[tuple[Labels, float]]) -> str:
    """One gauge in the text format; nothing if it has no sample."""
    lines = [_sample(name, labels, value) for labels, value in samples]
    if not lines:
        return ""
    return "\n".join((f"# HELP {name} {help_text}", f"# TYPE {name} gauge", *lines, ""))


def _sample(name: str, labels: Labels, value: float) -> str:
    """One line of a metric.

    >>> _sample("up", {"gpu": 'a "b"\\\\'}, 1.0), _sample("at", {}, 1795000000.5)
    ('up{gpu="a \\\\"b\\\\"\\\\\\\\"} 1', 'at 1795000000.5')
    """
    pairs = ",".join(f'{label}="{escaped(text)}"' for label, text in labels.items())
    # %g would round a time to six digits.
    number = str(int(value)) if value.is_integer() else repr(value)
    return f"{name}{{{pairs}}} {number}" if pairs else f"{name} {number}"


def escaped(text: str) -> str:
    """A label's value: the format knows three escapes; a line must not end in it otherwise."""
    printable = "".join(letter if letter.isprintable() else "?" for letter in text)
    return printable.replace("\\", r"\\").replace('"', r"\"")
