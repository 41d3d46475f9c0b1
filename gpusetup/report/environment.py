"""Reads environment variables that a text sets."""

from __future__ import annotations

import re

from gpusetup.messages.search import Text
from gpusetup.readings.environment import is_allowed
from gpusetup.report.facts import CHARACTERS_READ, Claim, Facts

NAME = r"[A-Z][A-Z0-9_]{3,40}"
# The forms of an assignment. a: `export CUDA_VISIBLE_DEVICES=2`; b: `os.environ["CUDA_HOME"] =
# "/usr/local/cuda"`; c: `echo $PATH`, followed by its output; d:
# `print(repr(os.environ.get("PATH")))`, followed by its output; e: `CUDA_VISIBLE_DEVICES: all` of a
# compose file. Each form has a group for the name and one for the value.
ASSIGNED = re.compile(
    rf"(?<!consider passing )(?:(?<![\w'\"$])(?P<a>{NAME})=(?P<q>['\"]?)(?P<av>[^\s'\";&]{{0,400}})(?P=q)"
    rf"|environ(?:\.get\()?\[?['\"](?P<b>{NAME})['\"][\])]\s?[:=]\s?(?:[frb]?['\"](?=[^'\"]*['\"]))?(?P<bv>[^\s'\")]{{0,400}})"
    rf"|echo \$\{{?(?P<c>{NAME})\}}?\s+(?P<cv>\S{{1,1000}})"
    rf"|environ\.get\(['\"](?P<d>{NAME})['\"]\)+['\"]?\s+['\"](?P<dv>[^\s'\"]{{1,400}})['\"]"
    r"|(?P<e>(?:CUDA|NVIDIA)_VISIBLE_DEVICES):\s['\"]?(?P<ev>all|none|void|-?\d+(?:,\d+)*)\b)"
)
"""An environment variable and its value, as shells, Python and programs show it.

The advice in torch's own errors ("consider passing CUDA_LAUNCH_BLOCKING=1") is left out, because it
sets nothing.
"""
UNSET_MARKS = ("none", "<not", "not", "unset", "(not", "n/a", "undefined", "...", "$")
"""How a value begins if it says that the variable is not set, or if it stands for the real value:
`$PATH`, `...`."""


def variables(text: Text) -> Facts:
    """A claim for each variable that affects CUDA, torch or an installer, with its first value in
    the text.

    >>> from gpusetup.report.cleaning import text_of
    >>> next(variables(text_of("$ CUDA_VISIBLE_DEVICES=2 python main.py"))).value
    '2'
    """
    already_read: set[str] = set()
    for match in ASSIGNED.finditer(text.flat, 0, CHARACTERS_READ):
        for form in "abcde":
            name, value = match[form], match[f"{form}v"]
            if not name or name in already_read or not is_allowed(name):
                continue
            if not value.lower().startswith(UNSET_MARKS):
                already_read.add(name)
                yield Claim(f"environment.{name}", value, text.source(match.start()))
