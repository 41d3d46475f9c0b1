"""Whether an answer about a text is certain.

It is if the cause's record names a proof that the text contains (`certain_if`: a message that
states the cause, or two values that do not fit together), and a program printed it. Everything else
is likely, and begins with a check.
"""

from __future__ import annotations

from gpusetup.causes.record import RECORDS
from gpusetup.evidence.context import RuleContext, is_report, line_of, lines_of_a_person
from gpusetup.evidence.wording import is_program_output
from gpusetup.model.finding import Finding


def is_proven(context: RuleContext, cause: Finding) -> bool:
    """Whether the text proves the cause; always on a probed machine, where everything was read."""
    if not is_report(context):
        return True
    proof = RECORDS[cause.id].certain_if
    return proof is not None and proof(context) and not only_a_person_says_it(context, cause)


def only_a_person_says_it(context: RuleContext, cause: Finding) -> bool:
    """Whether only a person's words support the cause. "It falls off the bus" is a person's
    conclusion, but a line of the kernel log is a fact."""
    quotes = [quote for quote in cause.evidence if line_of(quote.source)]
    own_lines = lines_of_a_person(context)
    for quote in quotes:
        if line_of(quote.source) not in own_lines or is_program_output(quote.text):
            return False
    return bool(quotes)
