"""Names of people, if a text says that it names one."""

from __future__ import annotations

from gpusetup.redaction.rules import Rule

_WHO = r"(?!<|\d+\b|root\b|nobody\b|user\b|none\b|null\b|true\b|false\b)[\w.@\\$-]+"

PEOPLE: tuple[Rule, ...] = (
    (r"(?:\b(?:[A-Z][\w'.-]+ ){1,3})?<[\w.+-]+@[\w.-]+>", "<user>@<host>"),
    (r"(?<![\w/])git@[\w.-]+:[\w./~-]+", "<user>@<host>:<path>"),
    (r"(?<![\w.+-])(?!dvs-builder@)[\w.+-]{1,64}(?<![=<>~!])@(?!file|git\+|http|\d+\.\d|v\d|main\b|master\b|latest\b|HEAD\b)(?:<\w+>|\[?[A-Za-z0-9][\w-]*(?:\.[\w-]+)*\]?)(?=[\s:,;>)\]\"'/!?]|\.(?:\s|$)|$)", "<user>@<host>"),
    (rf"(?i)(?<![\w-])((?:user(?:[ _-]?name)?|login|logname|owner|author|maintainer|account|sudo_user|run_as|submitted[ _]by|started[ _]by)[\"']?\s*[=:]\s*[\"']?)(?!<){_WHO}(?: [A-Z][\w'-]+(?!\s*[=:\w]))?", r"\1<private>"),
    (rf"(?i)\b((?:logged|signed) in as|authenticated as|log ?in as|running as(?: user)?|as user|for user|by user|(?:current|invalid|unknown) user|user)(:? [\"'(]|: ?)(?!<){_WHO}( \([^)\n]*\))?", r"\1\2<private>"),
    (rf"(?i)\b((?:logged|signed) in as|authenticated as|running as user|as user|for user|by user)( ){_WHO}( \([^)\n]*\))?", r"\1\2<private>"),
    (rf"(?i)(--?(?:user|username|login|owner|account|email|u)[ =])(?![-<])(?=[\"']?[A-Za-z]){_WHO}", r"\1<private>"),
    (r"\b((?:e?uid|e?gid|groups?)=\d+\()(?!root|video|render|<)[^)\n]+", r"\1<private>"),
    (r"(?<=,)(\d+\()(?!root|video|render|docker|<)[\w.-]+(?=\))", r"\1<private>"),
    (r"(?m)(?:^|(?<=[\s\"'(]))([bcdlps-][rwxsStT-]{9}[.+@]? +\d+ +)(?!root )\S+( +)(?!root |video |render )\S+(?= +\d)", r"\1<private>\2<private>"),
    (r"(?m)(?:^|(?<=[\s\"'(]))((?:[bcdlps-][rwxsStT-]{9}[.+@]? +\d+ +)root +)(?!root |video |render |<)\S+(?= +\d)", r"\1<private>"),
    (rf"(?i)\b(of user |user )(?!mode|space|error|code|input|data|defined|process|group|id|name|has|is|was|and|or|not|in|on|with|to|can|should|must|agent|must|site|guide|manual|docs|program){_WHO}(?=[:)])", r"\1<private>"),
    (rf"(?i)\b(of user ){_WHO}", r"\1<private>"),
    (rf"(?i)\b(UserId=|GroupId=|(?:run|started|launched|owned) by )(?!<){_WHO}(?=\(\d|\)|$)", r"\1<private>"),
    (rf"(\b(?:su|sudo -u|sudo -iu|runuser -u)(?: -l?)? ){_WHO}", r"\1<private>"),
    (rf"(\b(?:sudo|logname|chown|useradd|usermod|userdel|passwd):? ){_WHO}(?= ?:|:|$| TTY)", r"\1<private>"),
    (rf"(\blogname ){_WHO}", r"\1<private>"),
    (r"(?<![\w.\\/:])([A-Z][A-Z0-9_-]{1,20}\\)(?!<)[a-z][\w.-]{2,}(?![\w\\])", r"\1<private>"),
    (r"(?m)(^|cc |CC |by |thanks |hi |Hi |\()@(?!<|dataclass|property|torch|staticmethod|classmethod|pytest|triton|register|functools|jit|override)[A-Za-z][\w-]{2,38}(?=[\s:,.)]|$)", r"\1@<private>"),
    (rf"(?m)(?:^|(?<=: ))(?!<)(?=[a-z][\w.-]*[\s])(?!root |user |rank|gpu|pid){_WHO}(\s+\d{{2,7}}\s+\d{{1,3}}\.\d\b)", r"<private>\1"),
    (r"(\b\d+ +[\w-]+ +[\w.-]+ +)(?!<)[a-z][\w.-]*( +(?:R|PD|CG|CD|F|TO|S|CA) +\d+[:-])", r"\1<private>\2"),
    (rf"(?m)(^|\s)(?:\u279c\s+){_WHO}(?= +git:\()", r"\1➜  <private>"),
    (r"(?m)((?:Signed-off|Reported|Reviewed|Tested|Acked|Co-authored|Suggested|Committed)-?(?: |-)?by:? +)(?!<)[A-Z][\w'.-]+(?: [A-Z][\w'.-]+){0,3}", r"\1<private>"),
    (r"((?:[Cc]ommitted|[Aa]uthored|[Ll]icensed to|[Rr]egistered to|[Cc]ontact) ?(?:by|to)?:? +)(?!<)(?:Dr\. |Prof\. |Mr\. |Ms\. )?[A-Z][\w'.-]+(?: [A-Z][\w'.-]+){1,3}", r"\1<private>"),
    (r"(?im)^([^\n:]{0,40}\b(?:full name|display name|gecos|contact)\s*[=:]\s*)(?!<)[^\n]+", r"\1<private>"),
)  # fmt: skip
"""In this order."""
