"""Training on several GPUs, started with torchrun instead of torch's old launcher."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping

from gpusetup.evidence.context import RuleContext, events
from gpusetup.fixes import paste
from gpusetup.model.finding import Fix
from gpusetup.model.shell import Lines, lines

OLD_LAUNCH = "old-launch"
"""The event of a text that shows the old launcher's command line."""

ONE_PROCESS_A_GPU = "torchrun --nproc-per-node=gpu train.py"
"""The command if the text does not show its own."""

TAKEN_AWAY = ("--use_env", "--use-env")
"""Options of the old launcher that torchrun does not have: it always sets LOCAL_RANK."""

MOST_WORDS = 100


def by_torchrun(context: RuleContext, text: str) -> Fix:
    """The command line that the text shows, rewritten for torchrun; without one, an example."""
    for launch in events(context, OLD_LAUNCH):
        if commands := _translated(context, launch.values):
            return Fix(text=text, commands=commands)
    return Fix(
        text=f"{text}. Replace train.py with your own script", commands=lines(ONE_PROCESS_A_GPU)
    )


def _translated(context: RuleContext, values: Mapping[str, str]) -> Lines:
    """A command line of the old launcher rewritten for torchrun, with the variables before it
    kept."""
    words = tuple(_words(values.get("arguments", "")))
    # A shell variable would be quoted, which changes its meaning.
    if not words or any("$" in word or "`" in word for word in words):
        return ()
    settings = []
    for variable in values.get("variables", "").split():
        name, _, value = variable.partition("=")
        settings.append(paste.setting(context, name, value))
    return (*settings, paste.command(context, "torchrun", *words))


def _words(arguments: str) -> Iterator[str]:
    """The words of a command up to a pipe or redirection, without options that torchrun lacks."""
    try:
        words = shlex.split(arguments)
    except ValueError:  # An open quotation mark raises ValueError.
        return
    for word in words[:MOST_WORDS]:
        if re.match(r"\d?[|&;<>]", word):
            return
        if word not in TAKEN_AWAY:
            yield word
