"""The report as JUnit XML, in the form that junit-10.xsd (Jenkins' xUnit plugin) accepts. Pure."""

from __future__ import annotations

from typing import Dict, Sequence
from xml.etree.ElementTree import Element, SubElement, tostring

from ..values import CRASHED, FAILED, SKIPPED, Report, Result, good
from .render import meaning_lines, measured, plain

HEAD = '<?xml version="1.0" encoding="UTF-8"?>\n'
ELEMENT = {FAILED: "failure", CRASHED: "error", SKIPPED: "skipped"}


def as_junit(report: Report) -> str:
    """One suite a device, one case a check. Under `--strict` a skip is a failure here too."""
    attributes = suite_attributes("gpusetup verify", report.results, report)
    root = Element("testsuites", attributes)
    # In the order in which the devices were tested.
    for device in dict.fromkeys(result.device for result in report.results):
        add_suite(root, device, report)
    # A line for each element, for people who read the file.
    for element in root.iter():
        element.tail = "\n"
        if not element.text and len(element):
            element.text = "\n"
    return HEAD + tostring(root, encoding="unicode")


def add_suite(root: Element, device: str, report: Report) -> None:
    """The results of one device, with what was tested."""
    results = [result for result in report.results if result.device == device]
    attributes = suite_attributes(device, results, report)
    suite = SubElement(root, "testsuite", attributes)
    kinds = [element_of(result, report) for result in results]
    suite.set("skipped", str(kinds.count("skipped")))
    # What was tested, so that a report read later still says it.
    properties = SubElement(suite, "properties")
    facts = dict(report.facts)
    for row in report.facts["devices"]:
        if row["device"] == device:
            facts["device"] = row["name"]
    for name in ("torch", "cuda", "python", "device"):
        if facts.get(name):
            value = plain(facts[name])
            SubElement(properties, "property", {"name": name, "value": value})
    for result in results:
        add_case(suite, result, report)


def suite_attributes(name: str, results: Sequence[Result], report: Report) -> Dict[str, str]:
    """The name of a suite and the sums of its results."""
    kinds = [element_of(result, report) for result in results]
    seconds = sum(result.seconds for result in results)
    return {
        "name": plain(name),
        "time": f"{seconds:.3f}",
        "tests": str(len(kinds)),
        "failures": str(kinds.count("failure")),
        "errors": str(kinds.count("error")),
    }


def add_case(suite: Element, result: Result, report: Report) -> None:
    """One result: what it measured and, if it did not pass, what that means and the next step."""
    attributes = {
        "name": result.name,
        "classname": f"gpusetup.verify.{plain(result.device)}",
        "time": f"{result.seconds:.3f}",
    }
    case = SubElement(suite, "testcase", attributes)
    kind = element_of(result, report)
    if not kind:
        SubElement(case, "system-out").text = plain(measured(result), "\n")
        return
    message = {"type": result.outcome.status, "message": plain(result.outcome.detail, "\n")}
    # What a person needs who sees the failure in CI.
    lines = [measured(result), *meaning_lines(result)]
    SubElement(case, kind, message).text = plain("\n".join(lines), "\n")


def element_of(result: Result, report: Report) -> str:
    """The element that a result becomes; empty where it passed."""
    kind = ELEMENT.get(result.outcome.status, "")
    if kind == "skipped" and not good(result, report.strict):
        return "failure"
    return kind
