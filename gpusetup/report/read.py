"""Reads any text as a snapshot, with one reader after the other. It does not touch the machine and
never raises an exception."""

from __future__ import annotations

from functools import partial

from gpusetup.causes.table import ROWS
from gpusetup.messages import owners
from gpusetup.messages.search import events_of
from gpusetup.model.frozen import replace
from gpusetup.model.machine import Snapshot
from gpusetup.report import (
    cuda_errors,
    environment,
    fields,
    files,
    gpus,
    hardware,
    installers,
    nvidia_smi,
    paths,
    statements,
    timeline,
    typed,
)
from gpusetup.report.cleaning import decode, is_binary, text_of
from gpusetup.report.facts import Reader
from gpusetup.report.merge import merge

READERS: tuple[Reader, ...] = (
    nvidia_smi.nvidia_smi,
    fields.field_claims,
    gpus.gpus,
    hardware.pci_devices_and_nodes,
    installers.packages,
    installers.request_claims,
    paths.paths,
    environment.variables,
    typed.typed,
    gpus.capability_warnings,
    cuda_errors.cuda_errors,
    # The known messages of programs.
    partial(events_of, rows=(*ROWS, *owners.ROWS)),
    statements.statements,
    files.files,
    timeline.timeline,
    timeline.failing_program,
)
"""One reader for each format. Each reads the whole text. Among equally trusted claims, that of the
first reader counts."""


def read_report(text: str) -> Snapshot:
    """The snapshot of the machine that a text describes.

    >>> read_report("RuntimeError: Found no NVIDIA driver on your system.").events[0].kind
    'no-nvidia-driver'
    """
    cleaned = text_of(text)
    snapshot = merge(fact for reader in READERS for fact in reader(cleaned))
    return replace(snapshot, makers=hardware.stack_named(snapshot))


def read_bytes(raw: bytes) -> Snapshot:
    """The snapshot of the machine that a file describes, in any encoding; empty for a picture or an
    archive."""
    if is_binary(raw):
        return Snapshot(origin="report")
    return read_report(decode(raw))
