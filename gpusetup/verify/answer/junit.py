"""The report as JUnit XML, in the form that junit-10.xsd (Jenkins' xUnit plugin) accepts."""

from __future__ import annotations

from typing import Dict, Sequence
from xml.etree.ElementTree import Element, SubElement, tostring

from ..values import CRASHED, FAILED, SKIPPED, Report, Result
from .render import measured, plain

HEAD = '<?xml version="1.0" encoding="UTF-8"?>\n'
ELEMENT = {FAILED: "failure", CRASHED: "error"}
"""Status -> the XML element of a result; one that passed has none."""


def as_junit(report: Report) -> str:
    """The report as XML, with a suite for each device and a case for each check. Under `--strict`,
    a skipped check counts as a failure."""
    names = {**ELEMENT, SKIPPED: "failure" if report.strict else "skipped"}
    root = Element("testsuites", attributes("gpusetup verify", report.results, names))
    # Keep the order in which the devices were tested.
    for device in dict.fromkeys(result.device for result in report.results):
        results = [result for result in report.results if result.device == device]
        suite = SubElement(root, "testsuite", attributes(device, results, names))
        # The schema allows a count of skipped tests on a suite, but not on the root element.
        elements = [names.get(result.outcome.status, "") for result in results]
        suite.set("skipped", str(elements.count("skipped")))
        for result, element in zip(results, elements):
            add_case(suite, result, element)
    # Put each element on its own line, for people who read the file.
    for node in root.iter():
        node.tail = "\n"
        if not node.text and len(node):
            node.text = "\n"
    return HEAD + tostring(root, encoding="unicode")


def attributes(name: str, results: Sequence[Result], names: Dict[str, str]) -> Dict[str, str]:
    """The name of a suite and its counts of results. The root element gets the same attributes."""
    elements = [names.get(result.outcome.status, "") for result in results]
    return {
        "name": plain(name),
        "time": f"{sum(result.seconds for result in results):.3f}",
        "tests": str(len(elements)),
        "failures": str(elements.count("failure")),
        "errors": str(elements.count("error")),
    }


def add_case(suite: Element, result: Result, element: str) -> None:
    """Add one result and, if it did not pass, what that means and the next step."""
    case = SubElement(
        suite,
        "testcase",
        {
            "name": result.name,
            "classname": f"gpusetup.verify.{plain(result.device)}",
            "time": f"{result.seconds:.3f}",
        },
    )
    if not element:
        SubElement(case, "system-out").text = plain(measured(result), "\n")
        return
    outcome = result.outcome
    message = {"type": outcome.status, "message": plain(outcome.detail, "\n")}
    # In CI, a reader may see only this failure, so it contains everything needed.
    hint = f"hint: {outcome.hint}" if outcome.hint else None
    lines = filter(None, (measured(result), result.means, hint))
    SubElement(case, element, message).text = plain("\n".join(lines), "\n")
