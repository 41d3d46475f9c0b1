"""Reads any text as a snapshot, with one reader after the other. It does not touch the machine and
never raises an exception."""

from __future__ import annotations

from collections.abc import Iterator

from gpusetup.causes.table import ROWS
from gpusetup.messages.search import Text, events_of, line_source
from gpusetup.model.machine import Event, Snapshot
from gpusetup.model.patterns import lazy
from gpusetup.report import (
    bare_answer,
    cuda_errors,
    environment,
    failures,
    field_claims,
    files,
    gpus,
    hardware,
    hip_errors,
    installers,
    launches,
    nvidia_smi,
    other_scripts,
    outcomes,
    owners,
    paths,
    person,
    questions,
    runs,
    typed,
    works,
)
from gpusetup.report.cleaning import decode, is_binary, text_of
from gpusetup.report.facts import Facts, Reader
from gpusetup.report.merge import merge

# Words about a forum post that somebody read, or about a log that does not contain the message: "I
# read on a forum that ...", "a post says ...", "I don't see it in dmesg".
QUOTED_FROM_ELSEWHERE = lazy(
    r"(?i)\b(?:I|we)(?: have|'ve)? (?:read|heard)\b.{0,60}?\b(?:forum|reddit|post|thread|article|blog|somewhere)"
    r"|\b(?:forum|reddit|post|thread|article|blog)\b[^.]{0,40}?\b(?:says?|said|claims?|suggests?)\b"
    r"|n(?:o|')?t (?:see|find|get|have) (?:it|that|this|any|one|such)\b.{0,30}?\b(?:dmesg|logs?|journal\w*)\b",
)
"""The words around a message that a person quotes although this machine did not print it."""


def messages(text: Text) -> Iterator[Event]:
    """The known program messages that this machine printed, without those that a person quotes from
    elsewhere."""
    printed = [
        event
        for event in events_of(text, ROWS)
        if not QUOTED_FROM_ELSEWHERE.search(event.text or "")
    ]
    for event in printed:
        if not any(_says_more(other, event) for other in printed):
            yield event


TITLE = line_source(1)


def _says_more(event: Event, title: Event) -> bool:
    """Whether a message below a post's title is the message that the title quotes, with more values
    than the title has (such as the kernel's file)."""
    is_title = title.source == TITLE and event.source != TITLE and event.kind == title.kind
    return is_title and title.values.items() < event.values.items()


READERS: tuple[Reader, ...] = (
    hardware.collect_env,
    nvidia_smi.nvidia_smi,
    field_claims.field_claims,
    gpus.gpus,
    hardware.pci_devices_and_nodes,
    other_scripts.names_in_other_scripts,
    installers.packages,
    installers.request_claims,
    paths.paths,
    environment.environment,
    typed.typed,
    gpus.capability_warnings,
    cuda_errors.cuda_errors,
    messages,
    bare_answer.bare_answer,
    bare_answer.kernels_and_capability,
    launches.old_launches,
    person.person,
    questions.questions,
    files.files,
    owners.owners,
    runs.runs,
    works.works,
    outcomes.outcomes,
    failures.failures,
    failures.complaints,
    failures.failing_program,
)
"""One reader for each format. Each reads the whole text. Among equally trusted claims, that of the
first reader counts."""


def read_report(text: str) -> Snapshot:
    """The snapshot of the machine that a text describes.

    >>> read_report("RuntimeError: Found no NVIDIA driver on your system.").events[0].kind
    'no-nvidia-driver'
    """
    return merge(facts(text_of(text)))


def facts(text: Text) -> Facts:
    """The facts of all readers, in the order of `READERS`."""
    text = hip_errors.with_hips_own_words(text)
    for reader in READERS:
        yield from reader(text)


def read_bytes(raw: bytes) -> Snapshot:
    """The snapshot of the machine that a file describes, in any encoding; empty for a picture or an
    archive."""
    if is_binary(raw):
        return Snapshot(origin="report")
    text = decode(raw)
    return read_report(text)
