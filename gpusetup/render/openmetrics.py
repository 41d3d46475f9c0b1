"""Answers as OpenMetrics text, for the text-file collector of node_exporter.

The form: https://prometheus.io/docs/specs/om/open_metrics_spec (1.0, read 2026-11).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from gpusetup.fleet.show import FleetAnswer
from gpusetup.model.frozen import Frozen
from gpusetup.render.language import plain


class Metric(Frozen):
    """A gauge: its name, what it says, and a value for each set of labels."""

    name: str
    help: str
    samples: tuple[tuple[Mapping[str, str], float], ...]


def fleet_metrics(answer: FleetAnswer) -> str:
    """A fleet's state: of each node whether it is sound, its findings and its differences."""
    return exposition(
        (
            Metric(
                name="gpusetup_node_ok",
                help="1 where a node is sound, 0 where it failed or has no record",
                samples=tuple(
                    ({"node": node.name}, float(node.status != "failed")) for node in answer.nodes
                ),
            ),
            Metric(
                name="gpusetup_node_finding",
                help="1 for each finding about a node",
                samples=tuple(_findings(answer)),
            ),
            Metric(
                name="gpusetup_node_drift",
                help="1 for each field in which a node is unlike most of its kind",
                samples=tuple(
                    ({"node": node.name, "field": one.field, "value": one.value}, 1.0)
                    for node in answer.nodes
                    for one in node.drift
                ),
            ),
        )
    )


def _findings(answer: FleetAnswer) -> Iterator[tuple[Mapping[str, str], float]]:
    for node in answer.nodes:
        for severity, id in dict.fromkeys((one.severity.value, one.id) for one in node.findings):
            yield {"node": node.name, "id": id, "severity": severity}, 1.0


def exposition(metrics: Iterable[Metric]) -> str:
    """The text of some gauges, with the line that ends it.

    >>> exposition([Metric(name="up", help="is up", samples=(({"node": 'a"b'}, 1.0),))])
    '# TYPE up gauge\\n# HELP up is up\\nup{node="a\\\\"b"} 1\\n# EOF\\n'
    """
    return "".join((*map(_metric, metrics), "# EOF\n"))


def _metric(metric: Metric) -> str:
    head = f"# TYPE {metric.name} gauge\n# HELP {metric.name} {metric.help}\n"
    return head + "".join(_sample(metric.name, *sample) for sample in metric.samples)


def _sample(name: str, labels: Mapping[str, str], value: float) -> str:
    inside = ",".join(f'{label}="{escaped(text)}"' for label, text in labels.items())
    return f"{name}{{{inside}}} {value:.12g}\n"


def escaped(text: str) -> str:
    """A label's value as OpenMetrics writes it; what a terminal obeys is replaced.

    >>> escaped('a"\\n'), escaped("\\x1b[2J\\u202e\\t")
    ('a\\\\"\\\\n', '?[2J? ')
    """
    text = plain(text).replace("\t", " ")
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
