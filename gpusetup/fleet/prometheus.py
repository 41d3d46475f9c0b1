"""Writes the result of `fleet check` as metrics for the textfile collector of Prometheus'
node_exporter.

The metrics contain only numbers, ids of findings, the GPU's model and the driver's version. They
contain no names of hosts, users or folders, no UUIDs, and no titles of findings. node_exporter adds
the label of the node itself. Source: Prometheus, "Exposition formats" (text format 0.0.4);
node_exporter, "Textfile Collector".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from gpusetup.fleet.facts import GPU_COUNT
from gpusetup.fleet.folder import on_one_line
from gpusetup.fleet.node_check import NodeCheckAnswer

FILE_SUFFIX = ".prom"
"""node_exporter only reads files with this suffix."""

Labels = Mapping[str, str]


def metrics(answer: NodeCheckAnswer, now: float) -> str:
    """The metrics of one check, in Prometheus' text format. `now` is the time of the check in
    seconds since 1970."""
    counts = Counter((finding.id, finding.severity.value) for finding in answer.findings)
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
            _machine(answer.facts),
            _metric(
                "gpusetup_node_finding",
                "Findings of the check, by id and severity.",
                [(_labels(*key), float(count)) for key, count in sorted(counts.items())],
            ),
        )
    )


def _machine(facts: Mapping[str, str]) -> str:
    """The metrics that describe the node: driver version, GPU model and number of GPUs."""
    driver = facts.get("driver.version", "")
    gpu = facts.get("gpus.name", "")
    info = {"driver": driver, "gpu": gpu}
    text = _metric("gpusetup_node_info", "The node's driver and GPU.", [(info, 1.0)])
    gpu_count = facts.get(GPU_COUNT, "")
    # Without a driver there is no GPU count.
    if gpu_count.isdecimal():
        samples: list[tuple[Labels, float]] = [({}, float(gpu_count))]
        text += _metric("gpusetup_node_gpus", "GPUs that the driver lists.", samples)
    return text


def _labels(id: str, severity: str) -> Labels:
    return {"id": id, "severity": severity}


def _metric(name: str, help_text: str, samples: Iterable[tuple[Labels, float]]) -> str:
    """One gauge metric in Prometheus' text format; "" if it has no samples."""
    lines = [f"# HELP {name} {help_text}", f"# TYPE {name} gauge"]
    heading_length = len(lines)
    for labels, value in samples:
        lines.append(_sample(name, labels, value))
    if len(lines) == heading_length:
        return ""
    # The format requires a newline after the last line too.
    text = "\n".join(lines)
    return f"{text}\n"


def _sample(name: str, labels: Labels, value: float) -> str:
    """One sample line of a metric.

    >>> _sample("up", {"gpu": 'a "b"\\\\'}, 1.0), _sample("at", {}, 1795000000.5)
    ('up{gpu="a \\\\"b\\\\"\\\\\\\\"} 1', 'at 1795000000.5')
    """
    # `:g` would round a time to six digits.
    number = repr(value)
    if value.is_integer():
        number = str(int(value))
    if not labels:
        return f"{name} {number}"
    pairs = []
    for label, text in labels.items():
        pairs.append(f'{label}="{escaped(text)}"')
    all_labels = ",".join(pairs)
    return f"{name}{{{all_labels}}} {number}"


def escaped(text: str) -> str:
    """A label's value, escaped for Prometheus' text format and without line breaks or control
    characters."""
    printable = on_one_line(text)
    # Escape backslashes first, because the other replacement adds some.
    without_backslashes = printable.replace("\\", r"\\")
    return without_backslashes.replace('"', r"\"")
