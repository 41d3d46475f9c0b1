"""The input of the rules for one machine: its facts, and the build chosen for it."""

from __future__ import annotations

from gpusetup.catalog.builds import Catalog, completed_from_catalog
from gpusetup.choose.choice import Choice
from gpusetup.choose.choose import choose
from gpusetup.choose.commands import answer_of, with_build
from gpusetup.choose.host import host_of
from gpusetup.choose.installed import moved_with
from gpusetup.choose.shown_wish import shown_installer
from gpusetup.choose.wish import Wish
from gpusetup.evidence.context import RuleContext
from gpusetup.model.documents import ResolveAnswer
from gpusetup.model.frozen import replace
from gpusetup.model.machine import Snapshot


def build_case(
    snapshot: Snapshot, catalog: Catalog, choice: Choice | None, *, other_host: bool = False
) -> tuple[RuleContext, ResolveAnswer]:
    """The input of the rules, and the choice as a document. If `choice` is None, a build is chosen
    for the machine."""
    machine = completed_from_catalog(snapshot, catalog)
    if choice is None:
        choice = choose(Wish(), host_of(machine, catalog), catalog)
    answer = answer_of(choice, machine, moved_with(machine, choice.build))
    installer = shown_installer(machine)
    if installer == "conda" and choice.conda:
        # The recommended build is the one that this environment's own installer can install.
        answer = with_build(replace(answer, index_url=None), choice.conda)
    context = RuleContext(
        snapshot=machine,
        catalog=catalog,
        choice=choice,
        commands=answer.commands,
        installer=installer,
        other_host=other_host,
    )
    return context, answer
