"""One run of `gpusetup install`: its options, and how a plan is shown, confirmed and carried
out."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from gpusetup.commands.reply import Reply
from gpusetup.commands.reply import answer as reply
from gpusetup.install.job import InstallJob
from gpusetup.model.documents import InstallAnswer
from gpusetup.render.clock import CLOCK
from gpusetup.render.console import Console
from gpusetup.render.progress import fetching

if TYPE_CHECKING:
    from gpusetup.commands.install import InstallQuestion

Done = tuple[InstallAnswer, str, bool]
"""The result as a document and as a screen, and whether the installation did what was requested."""


class Session:
    """One run of `gpusetup install`, with its options and console."""

    def __init__(self, question: InstallQuestion, out: Console) -> None:
        self.out = out
        self.request = question
        self.job = InstallJob(show_progress=partial(fetching, out.talk), talk=out.talk)

    def carry_out(self, planned: InstallAnswer, screen: str, do: Callable[[], Done]) -> Reply:
        """Show the plan, ask for confirmation unless `--yes` is given, and carry it out. A dry run
        only shows it."""
        if self.request.dry_run:
            return reply(planned, screen)
        self.out.talk(screen)
        if not self.request.yes and not agreed():
            self.out.talk("Nothing was changed.")
            return Reply(exit_code=1)
        answer, text, has_succeeded = do()
        return reply(answer, text, yes=has_succeeded)


def agreed() -> bool:
    """Ask on stderr for confirmation; True only if the user answers yes."""
    CLOCK.end()
    sys.stderr.write("Proceed? [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")
