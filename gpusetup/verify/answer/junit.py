"""The report as JUnit XML, in the form that junit-10.xsd (Jenkins' xUnit plugin) accepts."""

from __future__ import annotations

from xml.etree.ElementTree import Element, SubElement, tostring

from ..values import CRASHED, FAILED, SKIPPED, Report, Result
from .render import measured, plain

HEAD = '<?xml version="1.0" encoding="UTF-8"?>\n'
ELEMENT = {FAILED: "failure", CRASHED: "error"}
"""Status -> the XML element of a result; one that passed has none."""


def as_junit(report: Report) -> str:
    """The report as XML, with a suite for each device and a case for each check. Under `--strict`,
    a skipped check counts as a failure."""
    element_of = {**ELEMENT, SKIPPED: "failure" if report.strict else "skipped"}
    root = Element("testsuites")
    # Keep the order in which the devices were tested.
    for device in dict.fromkeys(result.device for result in report.results):
        results = [result for result in report.results if result.device == device]
        elements = [element_of.get(result.outcome.status, "") for result in results]
        counts = {
            "time": f"{sum(result.seconds for result in results):.3f}",
            "tests": str(len(results)),
            "failures": str(elements.count("failure")),
            "errors": str(elements.count("error")),
            "skipped": str(elements.count("skipped")),
        }
        suite = SubElement(root, "testsuite", {"name": plain(device), **counts})
        for result, element in zip(results, elements):
            add_case(suite, result, element)
    return HEAD + tostring(root, encoding="unicode") + "\n"


def add_case(suite: Element, result: Result, element: str) -> None:
    """Add one result and, if it did not pass, what that means and the next step. `element` is empty
    for a result that passed."""
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
    attributes = {"type": outcome.status, "message": plain(outcome.detail, "\n")}
    # In CI, a reader may see only this failure, so it contains everything needed.
    hint = f"hint: {outcome.hint}" if outcome.hint else None
    lines = filter(None, (measured(result), result.means, hint))
    SubElement(case, element, attributes).text = plain("\n".join(lines), "\n")
