"""The install tool: the plan of `gpusetup install`, and with a token its run in a child process."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from typing import Any

from gpusetup.assistants import permits
from gpusetup.errors import CLASSES, GpuSetupError, ToolFailed, UsageError
from gpusetup.model.frozen import Frozen
from gpusetup.system.processes import Output, how_it_ended, run

LONGEST_SECONDS = 6 * 3600.0
PLAN_SECONDS = 600.0
GENTLY_SECONDS = 120.0
"""How long an installation that is interrupted may take to put back what was there."""


class Installing(Frozen):
    """What the server was started with."""

    python: str | None = None
    is_allowed: bool = False


def words_of(values: Mapping[str, Any], setting: Installing) -> tuple[str, ...]:
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
        "python": setting.python,
        "torch": values.get("torch"),
        "backend": values.get("backend"),
    }
    words += [f"--{name}={value}" for name, value in named.items() if value]
    return (*words, "--upgrade") if values.get("upgrade") else tuple(words)


def shown(values: Mapping[str, Any], setting: Installing) -> dict[str, Any]:
    """The plan, which changes nothing, and how it may be run."""
    words = words_of(values, setting)
    plan = _answer(_child(*words, "--dry-run", "--json", seconds=PLAN_SECONDS))
    if plan.get("state") != "planned" or not plan.get("plan_id"):
        return plan
    if not setting.is_allowed:
        way = f"nothing is installed from here; the person runs `gpusetup {' '.join(words)}`"
        return {**plan, "to_install": way}
    screen = _child(*words, "--dry-run", seconds=PLAN_SECONDS).stdout
    until = time.time() + permits.WAITS_SECONDS
    permit = permits.Permit(words=words, plan_id=plan["plan_id"], screen=screen, until=until)
    permits.ask_for(permit)
    return {**plan, "to_install": f"{permits.NO}; then call install again with it as `token`"}


def installed(token: str, values: Mapping[str, Any], setting: Installing) -> dict[str, Any]:
    """What came of the plan that the token is for. Raises Unsatisfiable for another token."""
    if not setting.is_allowed:
        raise UsageError(
            "This server installs nothing",
            hint="the person starts it by `gpusetup mcp --allow-install`",
        )
    permit = permits.take(token, words_of(values, setting))
    words = (*permit.words, "--yes", "--json", f"--plan-id={permit.plan_id}")
    return _answer(_child(*words, seconds=LONGEST_SECONDS))


def _child(*words: str, seconds: float) -> Output:
    argv = (sys.executable, "-m", "gpusetup", *words)
    return run(argv, timeout=seconds, gently_seconds=GENTLY_SECONDS)


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
