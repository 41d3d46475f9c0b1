"""Names of people, where a text says that it names one."""

from __future__ import annotations

import re

PRIVATE = "<private>"
_WHO = r"(?!<|root\b|nobody\b|user\b|none\b|null\b|true\b|false\b)[\w.@\\$-]+"

_RULES: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"(?:\b(?:[A-Z][\w'.-]+ ){1,3})?<[\w.+-]+@[\w.-]+>"), "<user>@<host>"),
    (re.compile(r"(?<![\w/])git@[\w.-]+:[\w./~-]+"), "<user>@<host>:<path>"),
    (re.compile(r"[\w.+-]{1,64}(?<![=<>~!])@(?!file|git\+|http)(?:<\w+>|\[?[A-Za-z0-9][\w-]*(?:\.[\w-]+)*\]?)(?=[\s:,;>)\]\"'/!?]|\.(?:\s|$)|$)"), "<user>@<host>"),
    (re.compile(rf"(?i)(?<![\w-])((?:user(?:[ _-]?name)?|login|logname|owner|author|maintainer|account|sudo_user|run_as|submitted[ _]by|started[ _]by)[\"']?\s*[=:]\s*[\"']?)(?!<){_WHO}(?: [A-Z][\w'-]+)?"), rf"\1{PRIVATE}"),
    (re.compile(rf"(?i)\b((?:logged|signed) in as|authenticated as|log ?in as|running as(?: user)?|as user|for user|by user|(?:current|invalid|unknown) user|user)(:? [\"'(]|: ?)(?!<){_WHO}( \([^)\n]*\))?"), rf"\1\2{PRIVATE}"),
    (re.compile(rf"(?i)\b((?:logged|signed) in as|authenticated as|running as user|as user|for user|by user)( ){_WHO}( \([^)\n]*\))?"), rf"\1\2{PRIVATE}"),
    (re.compile(rf"(?i)(--?(?:user|username|login|owner|account|email|u)[ =])(?![-<])(?=[\"']?[A-Za-z]){_WHO}"), rf"\1{PRIVATE}"),
    (re.compile(r"\b((?:e?uid|e?gid|groups?)=\d+\()(?!root|video|render|<)[^)\n]+"), rf"\1{PRIVATE}"),
    (re.compile(r"(?<=,)(\d+\()(?!root|video|render|docker|<)[\w.-]+(?=\))"), rf"\1{PRIVATE}"),
    (re.compile(r"(?m)(?:^|(?<=[\s\"'(]))([bcdlps-][rwxsStT-]{9}[.+@]? +\d+ +)(?!root )\S+( +)(?!root |video |render )\S+(?= +\d)"), rf"\1{PRIVATE}\2{PRIVATE}"),
    (re.compile(r"(?m)(?:^|(?<=[\s\"'(]))((?:[bcdlps-][rwxsStT-]{9}[.+@]? +\d+ +)root +)(?!root |video |render |<)\S+(?= +\d)"), rf"\1{PRIVATE}"),
    (re.compile(r"(?im)^([^\n:]{0,40}\b(?:full name|display name|gecos|contact)\s*[=:]\s*)(?!<)[^\n]+"), rf"\1{PRIVATE}"),
)  # fmt: skip


def hide_people(text: str) -> str:
    """Text without the names that it says are somebody's.

    >>> hide_people("wandb: Currently logged in as: alice (lab). uid=1001(alice) bob@box:~$ ls")
    'wandb: Currently logged in as: <private>. uid=1001(<private>) <user>@<host>:~$ ls'
    """
    for pattern, instead in _RULES:
        text = pattern.sub(instead, text)
    return text
