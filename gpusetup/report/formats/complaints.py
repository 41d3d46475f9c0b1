"""Whether somebody complains in a text at all: then nothing of it is healthy by a table alone.

A healthy `nvidia-smi` stands in most texts of people whose program does not work. This reader says
only that something is wrong, in a program's words or in theirs; what is wrong say the messages.
"""

from __future__ import annotations

from gpusetup.messages.search import Text
from gpusetup.model.failing import COMPLAINT
from gpusetup.model.patterns import lazy
from gpusetup.report.facts import Claim, Facts

SAYS_SO = lazy(
    r"\btraceback \(most recent|segfault|aborted|core dumped|\bcrash\w*|out of memory|\boom\b"
    r"|(?<!ecc )(?<!bus )\b(?:[a-z]{2,40})?errors?[\])]?: (?!0|n/a|none|no\b)|(?<!without )(?<!no )exceptions?\b"
    r"|\b(?:an|this|that|these|same|some|following|fatal|with|get|gets|got|getting|gives?|throws?|raises?|shows?|see|hits?|still) (?:\S{1,30} ){0,3}?errors?\b"
    r"|\bfail(?:s|ed|ing|ure)?\b(?! ?(?:occurred)? *:)|^\W*false\W*$|# ?false\b|\b(?:cuda|gpu)\b.{0,40}\bfalse\b|device_count\(\)\W{1,12}0(?!\d)"
    r"|\bexit(?:ed)?(?: with)?(?: (?:code|status))?:? ?-?[1-9]\d{0,2}\b|\bbugs?\b(?!.report\.sh)|(?<!no )(?<!any )(?<!without )\b(?:issues?|problems?|trouble)\b(?!/)"
    r"|n(?:o|')t (?:work|run|start|detect|recogni|find|us(?:e|ed|ing)\b|see(?:n|s|ing)?\b)|(?<!: )\bnot found\b|\b(?:gpu|cuda|card|device)\b[^.\n]{0,40}?\bnot support"
    r"|\bcannot (?!collect)|can't |(?<!warning: )\bunable to\b|without gpu|\bno gpus?\b|\bcpu only\b|instead of|\bwrong\b|\bstuck\b|\b(?:hangs|hanging|hung|hang)\b|\bfr(?:eez|oz)\w+"
    r"|\b(?:runs?|running|only|still|entirely|computes?|everything) on (?:the )?cpu\b|\b(?:using|uses|use|runs?|running|only|still|entirely|back|falls?|instead)\b[^.\n]{0,30}\bthe cpu\b"
    r"|\b(?:so|very|too|really|extremely|painfully|is|much|how)\b ?slow|\bslow(?:er|ness|down)\b(?! ?(?:threshold|temp)? *:)|\blow gpu (?:usage|util)"
    r"|\bwhy (?:is|are|does|do|did|can|it|this|my|the)\b|报错|错误|失败|无法|不能|卡住|很慢|エラー|できない|ошибк|не работ|не вид|\bfehler|funktioniert n|\berreur|ne fonctionne|no funciona|não funciona|오류",
)
OF_A_TABLE = ("|", "+-", "+=", "Vulnerability ", "[pip3]", "[conda]")
"""How the lines begin of what is only printed: nvidia-smi's tables, lscpu's, lists of packages."""


def complaints(text: Text) -> Facts:
    """The first line that complains."""
    for number, line in enumerate(text.lines, 1):
        if not line.lstrip().startswith(OF_A_TABLE) and SAYS_SO.search(line.lower()):
            yield Claim(COMPLAINT, True, f"report, line {number}")
            return
