"""The report as JUnit XML, in the form that junit-10.xsd (Jenkins' xUnit plugin) accepts. The
functions only return values."""

from __future__ import annotations

from typing import Dict, Sequence
from xml.etree.ElementTree import Element, SubElement, tostring

from ..values import CRASHED, FAILED, SKIPPED, Report, Result, good
from .render import meaning_lines, measured, plain

HEAD = '<?xml version="1.0" encoding="UTF-8"?>\n'
ELEMENT = {FAILED: "failure", CRASHED: "error", SKIPPED: "skipped"}


def as_junit(report: Report) -> str:
    """The report as XML, with a suite for each device and a case for each check. Under `--strict`,
    a skipped check counts as a failure."""
    attributes = suite_attributes("gpusetup verify", report.results, report)
    root = Element("testsuites", attributes)
    # Keep the order in which the devices were tested.
    for device in dict.fromkeys(result.device for result in report.results):
        add_suite(root, device, report)
    # Put each element on its own line, for people who read the file.
    for element in root.iter():
        element.tail = "\n"
        if not element.text and len(element):
            element.text = "\n"
    return HEAD + tostring(root, encoding="unicode")


def add_suite(root: Element, device: str, report: Report) -> None:
    """Add one device's results to the document, with the versions and the tested device."""
    results = [result for result in report.results if result.device == device]
    attributes = suite_attributes(device, results, report)
    suite = SubElement(root, "testsuite", attributes)
    # The schema allows a count of skipped tests on a suite, but not on the root element.
    elements = [element_of(result, report) for result in results]
    suite.set("skipped", str(elements.count("skipped")))
    # People who read the report later need to know what was tested.
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
    """The name of a suite and its counts of results. The root element gets the same attributes."""
    elements = [element_of(result, report) for result in results]
    seconds = sum(result.seconds for result in results)
    return {
        "name": plain(name),
        "time": f"{seconds:.3f}",
        "tests": str(len(elements)),
        "failures": str(elements.count("failure")),
        "errors": str(elements.count("error")),
    }


def add_case(suite: Element, result: Result, report: Report) -> None:
    """Add one result: what it measured and, if it did not pass, what the failure means and what to
    do next."""
    attributes = {
        "name": result.name,
        "classname": f"gpusetup.verify.{plain(result.device)}",
        "time": f"{result.seconds:.3f}",
    }
    case = SubElement(suite, "testcase", attributes)
    element = element_of(result, report)
    if not element:
        SubElement(case, "system-out").text = plain(measured(result), "\n")
        return
    message = {"type": result.outcome.status, "message": plain(result.outcome.detail, "\n")}
    # In CI, a reader may see only this failure, so it contains everything needed.
    lines = [measured(result), *meaning_lines(result)]
    SubElement(case, element, message).text = plain("\n".join(lines), "\n")


def element_of(result: Result, report: Report) -> str:
    """The name of the XML element for a result (`failure`, `error`, `skipped`); empty if the check
    passed."""
    element = ELEMENT.get(result.outcome.status, "")
    # Under `--strict` a skipped check counts as a failure.
    if element == "skipped" and not good(result, report.strict):
        return "failure"
    return element
