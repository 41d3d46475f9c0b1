"""What an installation leaves in the target: what was there, what is there, and from where."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from gpusetup import __version__
from gpusetup.install.credentials import redacted, without_credentials
from gpusetup.install.fetching.wheels import Wheel
from gpusetup.install.switching.files import write_safely
from gpusetup.install.switching.journal import read_state
from gpusetup.model.documents import DoneStep
from gpusetup.model.frozen import Frozen


class ReceiptWheel(Frozen):
    name: str
    version: str
    url: str
    sha256: str | None = None


class Receipt(Frozen):
    """Written without credentials, servers, users and home folders, so that it may be shared."""

    schema: Literal["gpusetup.receipt/1"] = "gpusetup.receipt/1"
    gpusetup: str = __version__
    installed_at: str
    python: str
    backend: str
    installer: str
    before: Mapping[str, str]
    after: Mapping[str, str]
    wheels: tuple[ReceiptWheel, ...] = ()
    steps: tuple[DoneStep, ...] = ()
    verdict: Mapping[str, Any] | None = None
    revision: int | None = None
    """Of conda: the one that was there before."""


def receipt_wheel(wheel: Wheel) -> ReceiptWheel:
    url = redacted(without_credentials(wheel.url))
    return ReceiptWheel(name=wheel.name, version=wheel.version, url=url, sha256=wheel.sha256)


def shareable(step: DoneStep) -> DoneStep:
    words = tuple(redacted(word) for word in step.argv)
    return DoneStep(argv=words, seconds=step.seconds, exit=step.exit)


def write_receipt(path: Path, receipt: Receipt) -> None:
    from gpusetup.model.codec import to_json, to_plain
    from gpusetup.redaction import redact_document

    write_safely(path, to_json(redact_document(to_plain(receipt)), indent=2) + "\n")


def read_receipt(path: Path) -> Receipt | None:
    from gpusetup.model.codec import from_json

    raw = read_state(path)
    return None if raw is None else from_json(raw, Receipt, what=str(path))


def now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
