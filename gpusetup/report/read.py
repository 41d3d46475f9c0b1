"""Reads a text of any kind as a snapshot, reader by reader. Pure; never raises on any input."""

from __future__ import annotations

from collections.abc import Iterator

from gpusetup.causes.table import ROWS
from gpusetup.messages.search import Text, events_of
from gpusetup.model.machine import Event, Snapshot
from gpusetup.report import (
    cuda_errors,
    environment,
    failures,
    field_patterns,
    gpus,
    hardware,
    installers,
    nvidia_smi,
    paths,
)
from gpusetup.report.cleaning import decode, is_binary, text_of
from gpusetup.report.facts import Facts, Reader
from gpusetup.report.merge import merge


def messages(text: Text) -> Iterator[Event]:
    yield from events_of(text, ROWS)


READERS: tuple[Reader, ...] = (
    hardware.collect_env,
    nvidia_smi.nvidia_smi,
    field_patterns.field_claims,
    gpus.gpus,
    hardware.pci_devices_and_nodes,
    installers.packages,
    installers.request_claims,
    paths.paths,
    environment.environment,
    gpus.capability_warnings,
    cuda_errors.cuda_errors,
    messages,
    failures.failures,
    failures.complaints,
    failures.failing_program,
)
"""One reader a format; each takes the whole text and gives what it finds."""


def read_report(text: str) -> Snapshot:
    """The machine that a text shows.

    >>> read_report("RuntimeError: Found no NVIDIA driver on your system.").events[0].kind
    'no-nvidia-driver'
    """
    return merge(facts(text_of(text)))


def facts(text: Text) -> Facts:
    for reader in READERS:
        yield from reader(text)


def read_bytes(raw: bytes) -> Snapshot:
    """The same for bytes in any encoding; a picture or an archive shows nothing."""
    return Snapshot(origin="report") if is_binary(raw) else read_report(decode(raw))
