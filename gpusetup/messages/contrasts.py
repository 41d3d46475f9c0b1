"""How people describe two runs that differ in one thing, where only one of them works.

The cause lies in the difference. For example, if a program crashes with NCCL but not with gloo, its
kernels have no wrong index. `diagnosis.questions` chooses its question by what differs.
"""

from __future__ import annotations

from gpusetup.messages.fragments import IF_ONLY
from gpusetup.messages.row import MessageRow, row

# `works`, `trains fine`.
WELL = r"(?:works?|worked|working|runs?|ran|trains?|trained|completes?|finishe[sd]|succeeds?|passes|passed|(?:is|are|was|were|all|seems?) (?:\w+ )?(?:fine|ok|okay|good|stable|correct|True)|(?:\w+ )?(?:fine|ok\b|okay)|happily|no (?:problem|error|crash|issue)s?|True\b|lists? (?:the|my|it)|可以|正常|没问题|成功|问题なし|問題な|동작|работает|läuft|funktioniert|(?:does not|doesn['’]?t|never) (?:crash|fail|hang))"
"""Words that say that a run went well."""
NEAR = r"(?:[^.;\n]|\.(?=\S)){0,60}?"
"""Words in the same clause. A dot inside a version or a name does not end the clause."""

DIFFERENCES: tuple[tuple[str, str], ...] = (
    (
        "one-gpu",
        r"(?:\b(?:an?|one|only one|each|every|either|the|any) )?\b(?:single|one|each|either|1)[ -](?:GPU|card|device|rank|process)s?\b(?: alone| by itself)?|\bsingle[- ]node\b|\b(?:cards?|GPUs?) alone\b|单卡|シングルGPU|einzelne Karte|одной (?:карте|видеокарте|GPU)",
    ),
    ("gloo", r"\bgloo\b"),
    (
        "kernel",
        r"\b(?:linux-lts|lts(?: kernel| entry)?|(?:old(?:er)?|previous|earlier|other) kernel|kernel \d+\.\d+(?:\.\d+)?)\b",
    ),
    (
        "older-release",
        r"\b(?:downgrad\w+|roll(?:ed|ing) back|went back|going back|revert\w+)\b|\b(?:old(?:er)?|previous|earlier) (?:driver|version|release|rocm|build|image|wheel)\b|(?:降级|回退|退回)",
    ),
    (
        "another-shell",
        r"\b(?:in|from|open\w*) (?:an? |the |my )?(?:normal |plain |new |real |system )?(?:terminal|console|ssh(?: session)?|cmd|powershell|command (?:line|prompt)|shell|jupyter|notebook|IDE)\b(?: window)?",
    ),
    (
        "root",
        r"\b(?:with|as|under|using) (?:sudo|root)\b|\bsudo [\w.-]+\b`?(?= (?:lists?|shows?|sees?|works?)\b)",
    ),
    (
        "cpu",
        r"\b(?:with|on|using|the|device) (?:the )?['\"]?cpu\b['\"]?|^cpu\b|\bon CPU\b|CPU ?(?:上|では|에서)|auf der CPU|на (?:CPU|процессоре)",
    ),
    (
        "small",
        r"\b(?:small(?:er)?|simple|tiny|short(?:er)?|toy|basic|plain) (?:\w+ )?(?:mat(?:rix )?mul\w*|matrix \w+|tensors?|models?|inputs?|batch(?:es)?|images?|scripts?|tests?|ops?|examples?|kernels?|prompts?)\b",
    ),
)
"""The name of a difference, and a pattern for the words that describe the run that works."""

# `with gloo it works`, or `works with gloo`.
BOTH_ORDERS = r"(?:{name}){near}\b{well}(?!\w)|\b{well}(?: {near}| )(?:with|on|in|using|over|under|when|after) (?:\w+ ){{0,2}}?(?:{name})"
CONDITION = IF_ONLY.replace("|when", "")
"""Words that introduce a condition. "when" is left out, because "when I start it in a terminal it
works" reports what happened."""
# `if`, `does not work`, `would run`.
NOT_WELL = (
    rf"{CONDITION}|\b(?:not|n['’]t|no longer|neither|nor|never|should|would|could|maybe|does that)\b"
    rf"[^.;\n]{{0,24}}\b(?:work|works|run|runs|fine|ok|help|train)\b(?!ed)"
)
# A difference -> lower-case strings. Every sentence about the difference contains one of them.
NEEDLES = {
    "one-gpu": ("single", "one ", "each ", "either ", "alone", "1 gpu", "单卡", "シングル"),
    "gloo": ("gloo",),
    "kernel": ("kernel", "lts"),
    "older-release": ("downgrad", "back", "revert", "old", "previous", "earlier", "降级", "退"),
    "another-shell": (
        *("terminal", "console", "ssh", "cmd", "shell", "command", "jupyter", "notebook", "ide"),
    ),
    "root": ("sudo", "root"),
    "cpu": ("cpu",),
    "small": ("small", "simple", "tiny", "short", "toy", "basic", "plain"),
}

ROWS: tuple[MessageRow, ...] = tuple(
    row(
        "works-otherwise",
        BOTH_ORDERS.format(name=words, near=NEAR, well=WELL),
        *NEEDLES[difference],
        unless=NOT_WELL,
        what=difference,
    )
    for difference, words in DIFFERENCES
)
