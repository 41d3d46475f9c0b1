"""Reads a config file, and replaces it in a single step."""

from __future__ import annotations

import shutil
from pathlib import Path

from gpusetup import named_file
from gpusetup.configs.config import Config, edited
from gpusetup.errors import BadInput
from gpusetup.install.switching.files import write_safely
from gpusetup.model.frozen import replace
from gpusetup.system.refusals import blocked_by, blocked_by_files
from gpusetup.tune.answer import TuneAnswer
from gpusetup.tune.case import Proposal

SUFFIX = ".gpusetup-previous"
"""The suffix of the file that keeps the previous config when a config is changed in place."""


def read_bytes(path: str) -> bytes:
    """The content of a file; BadInput if it does not exist, Blocked if it cannot be read."""
    try:
        return named_file.read(path)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as problem:
        hint = "`ls` shows which configs are there"
        raise BadInput(f"{path}: {problem.strerror}", hint=hint) from problem
    except OSError as problem:
        raise blocked_by(problem, f"Cannot read {path}") from problem


def with_proposal(
    answer: TuneAnswer, config: Config, proposal: Proposal, *, source: str, target: str | None
) -> TuneAnswer:
    """The answer with the proposed changes of the config at `source`, which are written to `target`
    if there is one; a file that is there is copied first."""
    tuned = edited(config, proposal.edits)
    # A config that is changed in place is only written, and copied, if something changes.
    if target and named_file.is_there(target) and Path(target).samefile(source):
        target = source if config.raw != tuned.raw else None
    previous = target + SUFFIX if target and named_file.is_there(target) else None
    if target:
        if previous:
            with blocked_by_files(f"Cannot keep the previous {target}"):
                shutil.copy(target, previous)
        with blocked_by_files(f"Cannot write {target}"):
            # A link stays, and the file that it points to is replaced. Bytes of any encoding pass
            # unchanged.
            text = tuned.raw.decode("utf-8", "surrogateescape")
            write_safely(Path(target).resolve(), text)
    return replace(
        answer,
        changes=proposal.changes,
        cannot_fit=proposal.cannot_fit,
        recommendations=proposal.words,
        written=target or None,
        previous=previous,
    )
