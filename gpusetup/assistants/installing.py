"""The install tool: the plan of `gpusetup install`, and the command with which a person runs it."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

from gpusetup.errors import CLASSES, GpuSetupError, ToolFailed, UsageError
from gpusetup.system.processes import Output, how_it_ended, run

PLAN_SECONDS = 600.0


def words_of(values: Mapping[str, Any], python: str | None = None) -> tuple[str, ...]:
    """The words of `gpusetup install`; each value in one word with its option."""
    from packaging.requirements import InvalidRequirement, Requirement

    words = ["install"]
    for package in values.get("packages", ()):
        try:
            is_plain = Requirement(package).url is None
        except InvalidRequirement:
            is_plain = False
        if not is_plain:
            raise UsageError(
                f"{package!r} is no package of an index",
                hint="such as `torchvision` or `vllm>=0.9`",
            )
        words.append(package)
    named = {
        "python": python,
        "torch": values.get("torch"),
        "backend": values.get("backend"),
    }
    words += [f"--{name}={value}" for name, value in named.items() if value]
    return (*words, "--upgrade") if values.get("upgrade") else tuple(words)


def shown(values: Mapping[str, Any], python: str | None) -> dict[str, Any]:
    """The plan, which changes nothing, and how a person runs it."""
    words = words_of(values, python)
    argv = (sys.executable, "-m", "gpusetup", *words, "--dry-run", "--json")
    plan = _answer(run(argv, timeout=PLAN_SECONDS))
    if plan.get("state") != "planned":
        return plan
    way = f"nothing is installed from here; the person runs `gpusetup {' '.join(words)}`"
    return {**plan, "to_install": way}


def _answer(said: Output) -> dict[str, Any]:
    """The document that the child printed. Raises what its error document says."""
    try:
        answer = json.loads(said.stdout)
    except ValueError:
        how = said.problem or how_it_ended(said.exit or 0)
        last = said.stderr.strip().rpartition("\n")[2] or None
        raise ToolFailed(f"install gave no answer: {how}", hint=last) from None
    if answer.get("schema") == "gpusetup.error/1":
        kind = CLASSES.get(answer.get("exit"), GpuSetupError)
        raise kind(answer.get("message"), answer.get("hint"))
    return dict(answer)
