"""Causes that one message decides: every record that no check decides.

It holds for a live machine and for somebody's text alike: both give the same events. What needs
more than the message (a version, a GPU, another event) is a function in the file of its subject.
"""

from __future__ import annotations

from gpusetup.causes.table import CAUSES
from gpusetup.evidence.context import RuleContext, cuda_errors, events
from gpusetup.findings.message_rules import finding, has
from gpusetup.model.finding import Findings


def said(context: RuleContext) -> Findings:
    """A finding for every such cause whose message was said."""
    for cause in CAUSES:
        if cause.by_check:
            continue
        heard = (*events(context, *cause.kinds), *cuda_errors(context, *cause.codes))
        messages = tuple(e for e in heard if not cause.but or not has(e, cause.but))
        if messages and all(holds(context) for holds in cause.where):
            yield finding(context, cause.id, messages)


RULES = (said,)
