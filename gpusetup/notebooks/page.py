"""An answer as HTML for a notebook. What strangers wrote is text in it, never markup.

It has no script, no address and no class that a page could know; colours are the page's own, so
that it is read on dark and on light.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from html import escape

from gpusetup.model.documents import DoctorAnswer, ErrorAnswer, ResolveAnswer, VerifyAnswer
from gpusetup.model.finding import Finding, Severity
from gpusetup.render.console import sentence
from gpusetup.render.language import plain
from gpusetup.render.text import answering, built, left_open, titled, unknown_of

BOX = "border-left:4px solid {colour};padding:.2em 0 .2em .9em;margin:.3em 0;max-width:60em"
PRE = (
    "white-space:pre-wrap;overflow-wrap:anywhere;padding:.4em .7em;margin:.4em 0;"
    "border:1px solid rgba(128,128,128,.4);border-radius:4px;background:transparent;color:inherit"
)
RED, YELLOW, GREEN, GREY = "#d1383d", "#c58b00", "#2e9e44", "#8a8a8a"
COLOURS = {Severity.ERROR: RED, Severity.WARNING: YELLOW, Severity.NOTE: GREY}
STATUS = {"passed": GREEN, "failed": RED, "crashed": RED, "skipped": GREY}
EVIDENCE_SHOWN = 6


def html(document: object, text: str, notes: Iterable[str]) -> str:
    """The answer; a document that has no form of its own is shown as its text."""
    return "".join((*_body(document, text), *map(_note, notes)))


def _body(document: object, text: str) -> Iterator[str]:
    if isinstance(document, DoctorAnswer):
        yield from _doctor(document)
        yield _details("All of the answer", block(text))
    elif isinstance(document, ResolveAnswer) and document.torch and not document.packages:
        yield from _resolve(document, text)
    elif isinstance(document, VerifyAnswer):
        yield from _verify(document)
    elif isinstance(document, ErrorAnswer):
        hint = f"<div>{said(document.hint)}</div>" if document.hint else ""
        yield _box(RED, f"<b>{said(document.message)}</b>{hint}")
    else:
        yield block(text)


def shown(text: str) -> str:
    """Foreign text as text.

    >>> shown("<b>&amp;")
    '&lt;b&gt;&amp;amp;'
    """
    return escape(plain(text))


def said(text: str) -> str:
    """A sentence, with what stands in backticks as code.

    >>> said("run `a < b`")
    'run <code>a &lt; b</code>'
    """
    return re.sub(r"`([^`]*)`", r"<code>\1</code>", shown(text))


def block(text: str) -> str:
    """Text to copy, as it stands."""
    return f'<pre style="{PRE}">{shown(text.rstrip())}</pre>'


def _box(colour: str, inside: str) -> str:
    return f'<div style="{BOX.format(colour=colour)}">{inside}</div>'


def _details(title: str, inside: str) -> str:
    return f"<details><summary>{title}</summary>{inside}</details>"


def _note(text: str) -> str:
    return _box(YELLOW, said(text))


def _head(mark: str, name: str, title: str) -> str:
    return f"<div><b>{mark} {shown(name)}</b>: {said(title)}</div>"


# --- doctor ---------------------------------------------------------------------------------------


def _doctor(answer: DoctorAnswer) -> Iterator[str]:
    root = answering(answer)
    if root is not None and answer.cause != "unknown":
        yield _box(COLOURS[root.severity], "".join(_in_full(root, answer)))
    else:
        colour, mark = (GREEN, "✓") if answer.cause == "ok" else (YELLOW, "?")
        told = answer.proof or unknown_of(answer)
        yield _box(colour, _head(mark, answer.cause, told))
        yield from _why_and_what(root) if root else ()
    if answer.next_reading:
        told = f"{shown(left_open(answer))}To find out, run:"
        yield f"<div>{told}</div>{block(answer.next_reading)}"
    others = [finding for finding in answer.findings if finding is not root]
    if others:
        rows = "".join(f"<li><b>{shown(one.id)}</b>: {said(one.title)}</li>" for one in others)
        yield _details(f"Also found: {len(others)}", f"<ul>{rows}</ul>")


def _in_full(finding: Finding, answer: DoctorAnswer) -> Iterator[str]:
    mark = "✗" if finding.severity == Severity.ERROR else "!"
    yield _head(mark, answer.cause, titled(answer, finding))
    yield from _why_and_what(finding)


def _why_and_what(finding: Finding) -> Iterator[str]:
    if finding.detail:
        yield f"<div>{said(finding.detail)}</div>"
    rows = (
        f"<li>{shown(one.text)} <small>({shown(one.source)})</small></li>"
        for one in finding.evidence[:EVIDENCE_SHOWN]
    )
    yield f"<ul>{''.join(rows)}</ul>" if finding.evidence else ""
    if finding.fix is not None:
        yield f"<div><b>What to do.</b> {said(sentence(finding.fix.text))}</div>"
        yield block("\n".join(map(in_a_cell, finding.fix.commands))) if finding.fix.commands else ""


def in_a_cell(command: str) -> str:
    """A command of ours as it is typed in a notebook.

    >>> in_a_cell("gpusetup install --torch 2.5.1"), in_a_cell("sudo reboot")
    ('%gpusetup install --torch 2.5.1', 'sudo reboot')
    """
    return f"%{command}" if command.startswith("gpusetup ") else command


# --- resolve, verify ------------------------------------------------------------------------------


def _resolve(answer: ResolveAnswer, text: str) -> Iterator[str]:
    yield _box(GREEN, f"<b>{shown(built(answer))}</b>")
    for installer in ("uv", "pip"):
        lines = answer.commands.get(installer, ())
        if lines:
            yield f"<div>With {installer}:</div>{block(_lines_after(text, installer, lines))}"
    yield _details("All of the answer", block(text))


def _lines_after(text: str, installer: str, lines: tuple[tuple[str, ...], ...]) -> str:
    """The commands as the text quotes them, else word by word."""
    head = f"With {installer}:\n"
    if head in text:
        rows = text.partition(head)[2].partition("\n\n")[0].splitlines()
        return "\n".join(row.strip() for row in rows)
    return "\n".join(" ".join(words) for words in lines)


def _verify(answer: VerifyAnswer) -> Iterator[str]:
    good = answer.verdict == "passed"
    what = f"torch {answer.torch or 'is not there'}, CUDA {answer.cuda or 'none'}"
    yield _box(GREEN if good else RED, _head("✓" if good else "✗", answer.verdict, what))
    rows = "".join(
        f'<tr style="vertical-align:top"><td style="color:{STATUS[one.status]}">{one.status}</td>'
        f"<td>{shown(one.name)}</td><td>{shown(one.device)}</td>"
        f'<td style="text-align:left">{shown(one.detail)}'
        f"{f'<div>{said(one.hint)}</div>' if one.hint else ''}</td></tr>"
        for one in answer.checks
    )
    yield f'<table style="font-size:inherit"><tbody>{rows}</tbody></table>'
