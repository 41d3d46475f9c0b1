"""The report as JUnit XML, in the form that junit-10.xsd (Jenkins' xUnit plugin) accepts. Pure."""

from __future__ import annotations

from typing import Dict, Sequence
from xml.etree.ElementTree import Element, SubElement, tostring

from ..values import CRASHED, FAILED, SKIPPED, Report, Result, good
from .render import measured, plain, said_of

HEAD = '<?xml version="1.0" encoding="UTF-8"?>\n'
ELEMENT = {FAILED: "failure", CRASHED: "error", SKIPPED: "skipped"}


def as_junit(report: Report) -> str:
    """One suite a device, one case a check. Under `--strict` a skip is a failure here too."""
    root = Element("testsuites", _sums("gpusetup verify", report.results, report))
    names = {row["device"]: row["name"] for row in report.facts["devices"]}
    for device in dict.fromkeys(result.device for result in report.results):
        results = [result for result in report.results if result.device == device]
        suite = SubElement(root, "testsuite", _sums(device, results, report))
        suite.set("skipped", str(sum(_element(each, report) == "skipped" for each in results)))
        # What was tested, so that a report read later still says it.
        known, properties = (
            {**report.facts, "device": names.get(device)},
            SubElement(suite, "properties"),
        )
        for name in ("torch", "cuda", "python", "device"):
            if known.get(name):
                SubElement(properties, "property", {"name": name, "value": plain(known[name])})
        for result in results:
            _add_case(suite, result, report)
    for element in root.iter():
        element.tail = "\n"
        element.text = element.text or ("\n" if len(element) else None)
    return HEAD + tostring(root, encoding="unicode")


def _sums(name: str, results: Sequence[Result], report: Report) -> Dict[str, str]:
    kinds = [_element(result, report) for result in results]
    return {
        "name": plain(name),
        "time": f"{sum(result.seconds for result in results):.3f}",
        "tests": str(len(kinds)),
        "failures": str(kinds.count("failure")),
        "errors": str(kinds.count("error")),
    }


def _add_case(suite: Element, result: Result, report: Report) -> None:
    words = {"name": result.name, "classname": f"gpusetup.verify.{plain(result.device)}"}
    case = SubElement(suite, "testcase", {**words, "time": f"{result.seconds:.3f}"})
    message = {"type": result.outcome.status, "message": plain(result.outcome.detail, "\n")}
    kind, said = _element(result, report), [measured(result), *said_of(result)]
    if not kind:
        kind, message, said = "system-out", {}, said[:1]
    SubElement(case, kind, message).text = plain("\n".join(said), "\n")


def _element(result: Result, report: Report) -> str:
    """The element that a result becomes; empty where it passed."""
    kind = ELEMENT.get(result.outcome.status, "")
    return "failure" if kind == "skipped" and not good(result, report.strict) else kind
