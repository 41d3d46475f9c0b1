"""Hides names of people, which it recognizes by the words around them."""

from __future__ import annotations

from gpusetup.redaction.rules import Rule

_WHO = r"(?!<|\d+\b|root\b|nobody\b|user\b|none\b|null\b|true\b|false\b)[\w.@\\$-]+"
"""A name after a word such as `user`. Excluded are common words that are not names, and names that
are already hidden."""

PEOPLE: tuple[Rule, ...] = (
    # A name with an email address: `Jane Doe <jane@site.org>`.
    (r"(?:\b(?:[A-Z][\w'.-]+ ){1,3})?<[\w.+-]+@[\w.-]+>", "<user>@<host>"),
    # A repository reached over ssh: `git@git.corp:team/model.git`.
    (r"(?<![\w/])git@[\w.-]+:[\w./~-]+", "<user>@<host>:<path>"),
    # `jane@node1` as an address or in a shell prompt, but not `pkg@v1` and `torch @ file:`.
    (r"(?<![\w.+-])(?!dvs-builder@)[\w.+-]{1,64}(?<![=<>~!])@(?!file|git\+|http|\d+\.\d|v\d|main\b|master\b|latest\b|HEAD\b)(?:<\w+>|\[?[A-Za-z0-9][\w-]*(?:\.[\w-]+)*\]?)(?=[\s:,;>)\]\"'/!?]|\.(?:\s|$)|$)", "<user>@<host>"),
    # A label before a name: `user: jane`, `owner=jane`, `"username": "jane"`, `submitted by: Jane
    # Doe`.
    (rf"(?i)(?<![\w-])((?:user(?:[ _-]?name)?|login|logname|owner|author|maintainer|account|sudo_user|run_as|submitted[ _]by|started[ _]by)[\"']?\s*[=:]\s*[\"']?)(?!<){_WHO}(?: [A-Z][\w'-]+(?!\s*[=:\w]))?", r"\1<private>"),
    # A message about a login: `Logged in as "jane"`, `invalid user: jane (uid 1000)`.
    (rf"(?i)\b((?:logged|signed) in as|authenticated as|log ?in as|running as(?: user)?|as user|for user|by user|(?:current|invalid|unknown) user|user)(:? [\"'(]|: ?)(?!<){_WHO}( \([^)\n]*\))?", r"\1\2<private>"),
    # The user of a process: `running as user jane (1000)`.
    (rf"(?i)\b((?:logged|signed) in as|authenticated as|running as user|as user|for user|by user)( ){_WHO}( \([^)\n]*\))?", r"\1\2<private>"),
    # An option that names a user: `--user jane`, `-u=jane`.
    (rf"(?i)(--?(?:user|username|login|owner|account|email|u)[ =])(?![-<])(?=[\"']?[A-Za-z]){_WHO}", r"\1<private>"),
    # `uid=1000(jane)`, printed by the command id.
    (r"\b((?:e?uid|e?gid|groups?)=\d+\()(?!root|video|render|<)[^)\n]+", r"\1<private>"),
    # Each further group of the command id: `groups=27(sudo),1000(acme)`.
    (r"(?<=,)(\d+\()(?!root|video|render|docker|<)[\w.-]+(?=\))", r"\1<private>"),
    # `-rw-r--r-- 1 jane acme 120`: a file's owner and group.
    (r"(?m)(?:^|(?<=[\s\"'(]))([bcdlps-][rwxsStT-]{9}[.+@]? +\d+ +)(?!root )\S+( +)(?!root |video |render )\S+(?= +\d)", r"\1<private>\2<private>"),
    # `-rw-r--r-- 1 root acme 120`: only the group.
    (r"(?m)(?:^|(?<=[\s\"'(]))((?:[bcdlps-][rwxsStT-]{9}[.+@]? +\d+ +)root +)(?!root |video |render |<)\S+(?= +\d)", r"\1<private>"),
    # `session opened for user jane:`, but not `user mode` or `user guide`.
    (rf"(?i)\b(of user |user )(?!mode|space|error|code|input|data|defined|process|group|id|name|has|is|was|and|or|not|in|on|with|to|can|should|must|agent|must|site|guide|manual|docs|program){_WHO}(?=[:)])", r"\1<private>"),
    # A user who owns something: `process of user jane`.
    (rf"(?i)\b(of user ){_WHO}", r"\1<private>"),
    # Slurm's `UserId=jane(1000)`, and `started by jane`.
    (rf"(?i)\b(UserId=|GroupId=|(?:run|started|launched|owned) by )(?!<){_WHO}(?=\(\d|\)|$)", r"\1<private>"),
    # A command that runs as another user: `sudo -u jane`, `su -l jane`.
    (rf"(\b(?:su|sudo -u|sudo -iu|runuser -u)(?: -l?)? ){_WHO}", r"\1<private>"),
    # A log line of sudo, or a command for accounts: `sudo: jane : TTY=pts/0`, `useradd jane`.
    (rf"(\b(?:sudo|logname|chown|useradd|usermod|userdel|passwd):? ){_WHO}(?= ?:|:|$| TTY)", r"\1<private>"),
    # The output of logname: `$ logname jane`.
    (rf"(\blogname ){_WHO}", r"\1<private>"),
    # `ACME\jane`, a user in a Windows domain.
    (r"(?<![\w.\\/:])([A-Z][A-Z0-9_-]{1,20}\\)(?!<)[a-z][\w.-]{2,}(?![\w\\])", r"\1<private>"),
    # `cc @jane` and `thanks @jane!`, but not a decorator such as `@torch.compile`.
    (r"(?m)(^|cc |CC |by |thanks |hi |Hi |\()@(?!<|dataclass|property|torch|staticmethod|classmethod|pytest|triton|register|functools|jit|override)[A-Za-z][\w-]{2,38}(?=[\s:,.)]|$)", r"\1@<private>"),
    # `jane 4242 99.0`: the owner of a process in the output of ps or top.
    (rf"(?m)(?:^|(?<=: ))(?!<)(?=[a-z][\w.-]*[\s])(?!root |user |rank|gpu|pid){_WHO}(\s+\d{{2,7}}\s+\d{{1,3}}\.\d\b)", r"<private>\1"),
    # `1234 gpu train jane R 2-03:00`: the owner of a job in the output of squeue.
    (r"(\b\d+ +[\w-]+ +[\w.-]+ +)(?!<)[a-z][\w.-]*( +(?:R|PD|CG|CD|F|TO|S|CA) +\d+[:-])", r"\1<private>\2"),
    # `\u279c jane git:(main)`: a shell prompt with a theme.
    (rf"(?m)(^|\s)(?:\u279c\s+){_WHO}(?= +git:\()", r"\1➜  <private>"),
    # A git trailer: `Signed-off-by: Jane Doe`.
    (r"(?m)((?:Signed-off|Reported|Reviewed|Tested|Acked|Co-authored|Suggested|Committed)-?(?: |-)?by:? +)(?!<)[A-Z][\w'.-]+(?: [A-Z][\w'.-]+){0,3}", r"\1<private>"),
    # The holder of a licence: `Licensed to: Dr. Jane Doe`.
    (r"((?:[Cc]ommitted|[Aa]uthored|[Ll]icensed to|[Rr]egistered to|[Cc]ontact) ?(?:by|to)?:? +)(?!<)(?:Dr\. |Prof\. |Mr\. |Ms\. )?[A-Z][\w'.-]+(?: [A-Z][\w'.-]+){1,3}", r"\1<private>"),
    # A field with a full name: `Full name: Jane Doe`, `GECOS=Jane Doe`.
    (r"(?im)^([^\n:]{0,40}\b(?:full name|display name|gecos|contact)\s*[=:]\s*)(?!<)[^\n]+", r"\1<private>"),
)  # fmt: skip
"""The rules for names of people, which run in this order. The comment above each rule shows a text
that it changes."""
