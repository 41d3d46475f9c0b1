"""Names of people, where a text says that it names one."""

from __future__ import annotations

import re

PRIVATE = "<private>"
_WHO = r"(?!<|\d+\b|root\b|nobody\b|user\b|none\b|null\b|true\b|false\b)[\w.@\\$-]+"

_RULES: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"(?:\b(?:[A-Z][\w'.-]+ ){1,3})?<[\w.+-]+@[\w.-]+>"), "<user>@<host>"),
    (re.compile(r"(?<![\w/])git@[\w.-]+:[\w./~-]+"), "<user>@<host>:<path>"),
    (re.compile(r"(?<![\w.+-])(?!dvs-builder@)[\w.+-]{1,64}(?<![=<>~!])@(?!file|git\+|http|\d+\.\d|v\d|main\b|master\b|latest\b|HEAD\b)(?:<\w+>|\[?[A-Za-z0-9][\w-]*(?:\.[\w-]+)*\]?)(?=[\s:,;>)\]\"'/!?]|\.(?:\s|$)|$)"), "<user>@<host>"),
    (re.compile(rf"(?i)(?<![\w-])((?:user(?:[ _-]?name)?|login|logname|owner|author|maintainer|account|sudo_user|run_as|submitted[ _]by|started[ _]by)[\"']?\s*[=:]\s*[\"']?)(?!<){_WHO}(?: [A-Z][\w'-]+(?!\s*[=:\w]))?"), rf"\1{PRIVATE}"),
    (re.compile(rf"(?i)\b((?:logged|signed) in as|authenticated as|log ?in as|running as(?: user)?|as user|for user|by user|(?:current|invalid|unknown) user|user)(:? [\"'(]|: ?)(?!<){_WHO}( \([^)\n]*\))?"), rf"\1\2{PRIVATE}"),
    (re.compile(rf"(?i)\b((?:logged|signed) in as|authenticated as|running as user|as user|for user|by user)( ){_WHO}( \([^)\n]*\))?"), rf"\1\2{PRIVATE}"),
    (re.compile(rf"(?i)(--?(?:user|username|login|owner|account|email|u)[ =])(?![-<])(?=[\"']?[A-Za-z]){_WHO}"), rf"\1{PRIVATE}"),
    (re.compile(r"\b((?:e?uid|e?gid|groups?)=\d+\()(?!root|video|render|<)[^)\n]+"), rf"\1{PRIVATE}"),
    (re.compile(r"(?<=,)(\d+\()(?!root|video|render|docker|<)[\w.-]+(?=\))"), rf"\1{PRIVATE}"),
    (re.compile(r"(?m)(?:^|(?<=[\s\"'(]))([bcdlps-][rwxsStT-]{9}[.+@]? +\d+ +)(?!root )\S+( +)(?!root |video |render )\S+(?= +\d)"), rf"\1{PRIVATE}\2{PRIVATE}"),
    (re.compile(r"(?m)(?:^|(?<=[\s\"'(]))((?:[bcdlps-][rwxsStT-]{9}[.+@]? +\d+ +)root +)(?!root |video |render |<)\S+(?= +\d)"), rf"\1{PRIVATE}"),
    (re.compile(rf"(?i)\b(of user |user )(?!mode|space|error|code|input|data|defined|process|group|id|name|has|is|was|and|or|not|in|on|with|to|can|should|must|agent|must|site|guide|manual|docs|program){_WHO}(?=[:)])"), rf"\1{PRIVATE}"),
    (re.compile(rf"(?i)\b(of user ){_WHO}"), rf"\1{PRIVATE}"),
    (re.compile(rf"(?i)\b(UserId=|GroupId=|(?:run|started|launched|owned) by )(?!<){_WHO}(?=\(\d|\)|$)"), rf"\1{PRIVATE}"),
    (re.compile(rf"(\b(?:su|sudo -u|sudo -iu|runuser -u)(?: -l?)? ){_WHO}"), rf"\1{PRIVATE}"),
    (re.compile(rf"(\b(?:sudo|logname|chown|useradd|usermod|userdel|passwd):? ){_WHO}(?= ?:|:|$| TTY)"), rf"\1{PRIVATE}"),
    (re.compile(rf"(\blogname ){_WHO}"), rf"\1{PRIVATE}"),
    (re.compile(r"(?<![\w.\\/:])([A-Z][A-Z0-9_-]{1,20}\\)(?!<)[a-z][\w.-]{2,}(?![\w\\])"), rf"\1{PRIVATE}"),
    (re.compile(r"(?m)(^|cc |CC |by |thanks |hi |Hi |\()@(?!<|dataclass|property|torch|staticmethod|classmethod|pytest|triton|register|functools|jit|override)[A-Za-z][\w-]{2,38}(?=[\s:,.)]|$)"), rf"\1@{PRIVATE}"),
    (re.compile(rf"(?m)(?:^|(?<=: ))(?!<)(?=[a-z][\w.-]*[\s])(?!root |user |rank|gpu|pid){_WHO}(\s+\d{{2,7}}\s+\d{{1,3}}\.\d\b)"), rf"{PRIVATE}\1"),
    (re.compile(r"(\b\d+ +[\w-]+ +[\w.-]+ +)(?!<)[a-z][\w.-]*( +(?:R|PD|CG|CD|F|TO|S|CA) +\d+[:-])"), rf"\1{PRIVATE}\2"),
    (re.compile(rf"(?m)(^|\s)(?:\u279c\s+){_WHO}(?= +git:\()"), rf"\1➜  {PRIVATE}"),
    (re.compile(r"(?m)((?:Signed-off|Reported|Reviewed|Tested|Acked|Co-authored|Suggested|Committed)-?(?: |-)?by:? +)(?!<)[A-Z][\w'.-]+(?: [A-Z][\w'.-]+){0,3}"), rf"\1{PRIVATE}"),
    (re.compile(r"((?:[Cc]ommitted|[Aa]uthored|[Ll]icensed to|[Rr]egistered to|[Cc]ontact) ?(?:by|to)?:? +)(?!<)(?:Dr\. |Prof\. |Mr\. |Ms\. )?[A-Z][\w'.-]+(?: [A-Z][\w'.-]+){1,3}"), rf"\1{PRIVATE}"),
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
