"""Whether somebody complains in a text at all: then nothing of it is healthy by a table alone.

A healthy `nvidia-smi` stands in most texts of people whose program does not work. This reader says
only that something is wrong, in a program's words or in theirs; what is wrong say the messages.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpusetup.model.failing import COMPLAINT
from gpusetup.model.patterns import lazy
from gpusetup.report.facts import Claim, Fact
from gpusetup.report.text import Text

WORDS = {
    "traceback": r"\btraceback \(most recent",
    "error": r"(?<!ecc )(?<!bus )\b(?:[a-z]{2,40})?errors?[\])]?: (?!0|n/a|none|no\b)"
    r"|\b(?:an|this|that|these|same|some|following|fatal|with|get|gets|got|getting|gives?|throws?|raises?|shows?|see|hits?|still) (?:\S{1,30} ){0,3}?errors?\b",
    "exception": r"(?<!without )(?<!no )exceptions?\b",
    "fail": r"\bfail(?:s|ed|ing|ure)?\b(?! ?(?:occurred)? *:)",
    "crash": r"\bcrash\w*",
    "segfault": "",
    "aborted": "",
    "core dumped": "",
    "false": r"^\W*false\W*$|# ?false\b|\b(?:cuda|gpu)\b.{0,40}\bfalse\b",
    "device_count": r"device_count\(\)\W{1,12}0(?!\d)",
    "exit": r"\bexit(?:ed)?(?: with)?(?: (?:code|status))?:? ?-?[1-9]\d{0,2}\b",
    "bug": r"\bbugs?\b(?!.report\.sh)",
    "issue": r"(?<!no )(?<!any )(?<!without )\bissues?\b(?!/)",
    "problem": r"(?<!no )(?<!any )(?<!without )\bproblems?\b",
    "trouble": r"(?<!no )\btrouble\b",
    "not work": "",
    "n't work": "",
    "not run": "",
    "n't run": "",
    "not start": "",
    "n't start": "",
    "not us": r"\bnot us(?:e|ed|ing)\b",
    "n't us": r"n't us(?:e|ed|ing)\b",
    "not detect": "",
    "n't detect": "",
    "not recogni": "",
    "n't recogni": "",
    "not found": r"(?<!: )\bnot found\b",
    "n't find": "",
    "not find": "",
    "n't see": "",
    "not see": r"\bnot see(?:n|s|ing)?\b",
    "not support": r"\b(?:gpu|cuda|card|device)\b[^.\n]{0,40}?\bnot support",
    "cannot ": r"\bcannot (?!collect)",
    "can't ": "",
    "unable to": r"(?<!warning: )\bunable to\b",
    "without gpu": "",
    "no gpu": r"\bno gpus?\b",
    "on cpu": r"\b(?:runs?|running|only|still|entirely|computes?|everything) on (?:the )?cpu\b",
    "the cpu": r"\b(?:using|uses|use|runs?|running|only|still|entirely|back|falls?|instead)\b[^.\n]{0,30}\bthe cpu\b",
    "cpu only": r"\bcpu only\b",
    "slow": r"\b(?:so|very|too|really|extremely|painfully|is|much|how)\b ?slow|\bslow(?:er|ness|down)\b(?! ?(?:threshold|temp)? *:)",
    "hang": r"\b(?:hangs|hanging|hung|hang)\b",
    "stuck": r"\bstuck\b",
    "freez": r"\bfr(?:eez|oz)\w+",
    "wrong": r"\bwrong\b",
    "instead of": "",
    "why ": r"\bwhy (?:is|are|does|do|did|can|it|this|my|the)\b",
    "oom": r"\boom\b",
    "out of memory": "",
    "low gpu": r"\blow gpu (?:usage|util)",
    "报错": "",
    "错误": "",
    "失败": "",
    "无法": "",
    "不能": "",
    "卡住": "",
    "很慢": "",
    "エラー": "",
    "できない": "",
    "ошибк": "",
    "не работ": "",
    "не вид": "",
    "fehler": r"\bfehler",
    "funktioniert n": "",
    "erreur": r"\berreur",
    "ne fonctionne": "",
    "no funciona": "",
    "não funciona": "",
    "오류": "",
}
"""Letters -> how they are said of something that does not work; "" where they say it themselves."""
SAYS_SO = {needle: lazy(pattern or re.escape(needle), re.I) for needle, pattern in WORDS.items()}
OF_A_TABLE = ("|", "+-", "+=", "Vulnerability ", "[pip3]", "[conda]")
"""How the lines begin of what is only printed: nvidia-smi's tables, lscpu's, lists of packages."""
PLACES = 20
"""How often each word is looked at: a log repeats itself."""


def complaints(text: Text) -> Iterator[Fact]:
    """The first line that complains."""
    found = (place for needle in WORDS for place in _said(text, needle))
    place = min(found, default=None)
    if place is not None:
        yield Claim(subject=COMPLAINT, value=True, source=text.source(place))


def _said(text: Text, needle: str) -> Iterator[int]:
    """The first place at which a word complains."""
    at, tries = text.low.find(needle), 0
    while at >= 0 and tries < PLACES:
        tries += 1
        line = text.lines[text.line_at(at)]
        if not line.lstrip().startswith(OF_A_TABLE) and SAYS_SO[needle].search(line):
            yield at
            return
        at = text.low.find(needle, at + 1)
