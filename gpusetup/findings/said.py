"""Causes that one message decides: every record with a `message` that no check asks about.

It holds for a live machine and for somebody's text alike: both give the same events. What needs
more than the message (a version, a GPU, another event) is a function in the file of its subject.
"""

from __future__ import annotations

from gpusetup.causes.table import CAUSES
from gpusetup.evidence.context import RuleContext, events
from gpusetup.findings.message_rules import case_of, from_message
from gpusetup.model.finding import Findings


def said(context: RuleContext) -> Findings:
    """A finding for every such cause whose message was said."""
    kinds = {event.kind for event in context.snapshot.events}
    for cause in CAUSES:
        if cause.message is None or cause.by_check or kinds.isdisjoint(cause.kinds):
            continue
        messages = events(context, *cause.kinds)
        if messages and all(holds(context) for holds in cause.holds):
            yield from_message(context, cause, *case_of(context, cause.message, messages))


RULES = (said,)
