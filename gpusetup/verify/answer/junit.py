"""The report as JUnit XML, in the form that junit-10.xsd (Jenkins' xUnit plugin) accepts. Pure."""

from __future__ import annotations

from typing import Dict, Iterable, List
from xml.sax.saxutils import escape, quoteattr

from ..values import CRASHED, FAILED, PASSED, SKIPPED, Report, Result, good

HEAD = '<?xml version="1.0" encoding="UTF-8"?>'
ELEMENT = {FAILED: "failure", CRASHED: "error", SKIPPED: "skipped"}


def as_junit(report: Report) -> str:
    """One suite a device, one case a check. Under `--strict` a skip is a failure here too."""
    devices = list(dict.fromkeys(result.device for result in report.results))
    lines = [HEAD, f"<testsuites{_sums('gpusetup verify', report.results, report)}>"]
    for device in devices:
        lines += _suite(device, report)
    return "\n".join([*lines, "</testsuites>", ""])


def _suite(device: str, report: Report) -> List[str]:
    results = [result for result in report.results if result.device == device]
    skipped = str(sum(element(each, report) == "skipped" for each in results))
    start = f"<testsuite{_sums(device, results, report)}{attributes({'skipped': skipped})}>"
    cases = [line for result in results for line in _case(result, report)]
    return ["  " + start, *_properties(device, report), *cases, "  </testsuite>"]


def _sums(name: str, results: Iterable[Result], report: Report) -> str:
    kinds = [element(result, report) for result in results]
    seconds = sum(result.seconds for result in results)
    return attributes(
        {
            "name": name,
            "time": f"{seconds:.3f}",
            "tests": str(len(kinds)),
            "failures": str(kinds.count("failure")),
            "errors": str(kinds.count("error")),
        }
    )


def _properties(device: str, report: Report) -> List[str]:
    """What was tested, so that a report read later still says it."""
    rows = [row for row in report.facts["devices"] if row["device"] == device]
    known = {"torch": report.facts.get("torch"), "cuda": report.facts.get("cuda")}
    known["python"] = report.facts["python"]
    known["device"] = rows[0]["name"] if rows else None
    said = [
        f"      <property{attributes({'name': name, 'value': str(value)})}/>"
        for name, value in known.items()
        if value is not None
    ]
    return ["    <properties>", *said, "    </properties>"]


def _case(result: Result, report: Report) -> List[str]:
    words = {
        "name": result.name,
        "classname": f"gpusetup.verify.{result.device}",
        "time": f"{result.seconds:.3f}",
    }
    kind, found = element(result, report), result.outcome
    start = f"    <testcase{attributes(words)}"
    if kind is None:
        return [f"{start}>", f"      <system-out>{text(measured(result))}</system-out>", *_END]
    message = attributes({"type": found.status, "message": found.detail})
    said = [measured(result), result.means, f"hint: {found.hint}" if found.hint else None]
    body = text("\n".join(line for line in said if line))
    return [f"{start}>", f"      <{kind}{message}>{body}</{kind}>", *_END]


_END = ("    </testcase>",)


def element(result: Result, report: Report) -> "str | None":
    """The element that a result becomes; None where it passed."""
    if result.outcome.status == PASSED:
        return None
    if result.outcome.status == SKIPPED and not good(result, report.strict):
        return "failure"
    return ELEMENT[result.outcome.status]


def measured(result: Result) -> str:
    """The detail with its figures."""
    found = result.outcome
    if found.value is None:
        return found.detail
    limit = f", limit {found.limit:.3g}" if found.limit is not None else ""
    return f"{found.detail}: {found.value:.3g}{limit} {found.unit or ''}".rstrip()


def attributes(words: Dict[str, str]) -> str:
    """XML attributes, each with a space before it.

    >>> attributes({"name": 'a "b" <c>'})
    ' name=\\'a "b" &lt;c&gt;\\''
    """
    return "".join(f" {name}={quoteattr(allowed(value))}" for name, value in words.items())


def text(said: str) -> str:
    return escape(allowed(said))


def allowed(said: str) -> str:
    """The text with what XML 1.0 cannot carry, nor a terminal should obey, written as escapes.

    >>> allowed("a" + chr(27) + "[1m" + chr(0xFFFE))
    'a\\\\x1b[1m\\\\ufffe'
    """
    return "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in said)
