"""Recognizes machines, cards and torch versions that a sentence mentions although they are not the
ones that failed.

For example "My laptop is a MacBook, I run this on Colab", or "it works on the Jetson, on the
desktop it fails". The machine that is named may not be the one that failed.
"""

from __future__ import annotations

import re

from gpusetup.model.patterns import lazy
from gpusetup.report import fields

# --- another machine ------------------------------------------------------------------------------

BEFORE, BEHIND = 90, 70
"""The number of characters before and after a machine's name that are searched for words about what
runs there."""
# `works`, `runs fine`, `no problems`; not `does not work`, `I never ran`.
WORKS_OR_RUNS = r"(?<!not )(?<!n't )(?<!to )(?<!never )(?<!I )(?<!we )(?:works?|worked|working|runs?|ran|fine|well|succeeds?|succeeded|no (?:problem|issue)s?)"
# `works on my`, `from my`, `ssh`, `prototyping on`, right before the name.
REACHED_FROM_THERE = lazy(
    rf"(?i)(?:\b{WORKS_OR_RUNS}(?: \w+){{0,3}} (?:on|for|with|in|under|inside)(?: \w+(?:'s)?){{0,2}}"
    r"|\b(?:from|via|through|unlike|besides)(?: (?:my|an?|the|our))?(?: \w+)?|(?<!I am )(?<!I'm )(?<!are )\busing(?: (?:my|an?|the|our))?(?: \w+)?"
    r"|\b(?:ssh|connect\w*|develop\w*|log(?:ged|ging)? in|remote\w*|prototyp\w+)\b[^.\n]{0,40}"
    r"|\b(?:support|available(?! for execution)(?!\W{0,4}(?:False|True)\b)|compatible|planned)\w*\b[^.\n]{0,30}) ?$"
)
"""Words before the name of a machine that works, or from which the person connects to another
machine."""
# `, it works`, ` everything runs fine`, right after the name, but not `works only on the CPU`.
WORKS_THERE = lazy(
    rf"(?i)[^.,;\n]{{0,24}}?,? (?:(?:it|this|that|everything|all|which|the same(?: \w+)?|and) )?(?:\w+ly |just |all )?"
    rf"(?:{WORKS_OR_RUNS}\b(?! out of)|is (?:ok(?:ay)?|(?:too |very |so )?slow)\b)(?! (?:on|only|but|in) (?:the )?(?:cpu|mps))"
)
# Like `WORKS_THERE`, but the sentence must say that everything works.
ALL_WORKS_THERE = lazy(
    rf"(?i)(?: too| as well| also)?(?:,? and| there)?,? (?:there )?(?:it|this|that|everything|all|the same \w+)(?: all| just)? {WORKS_OR_RUNS}\b(?! out of)"
)
"""Words after "WSL" that say that everything works there. It is not enough that one program runs
there."""
# `on the server`, `ssh to`, `Colab`, an instance of a cloud (`p3.2xlarge`).
OTHER_MACHINE = lazy(
    r"(?i)\bon (?:the|an?|my|our|that|this|its|his|her)(?: [\w'-]+){0,3} (?:servers?|vm|cluster|workstation|node|instance|desktop(?! app)|pc|pod|remote|linux (?:box|machine|host))\b"
    r"|\bon (?:the|a|our) (?:dgx|hpc|gpu)\b|\bssh(?:-?ing|ed)? (?:in)?to\b|\bssh from\b|\bremote (?:linux |gpu )?(?:server|machine|host|desktop|box)\b"
    r"|\b(?:colab|kaggle|runpod|vast\.ai|lambda labs|paperspace|ec2|sagemaker)\b|\b[gp]\d(?:dn|de|d|e|en)?\.\d*x?large\b"
    r"|\bto (?:the|an?|my|our)(?: [\w'-]+){0,2} (?:server|workstation|cluster|vm|instance)\b"
    r"|\bthis is (?:an?|my|our|the) (?:[\w'-]+ ){0,2}(?:server|workstation|desktop(?! app)|pc|vm)\b"
)
"""Words for a server, cloud or other machine, which may be the one that failed."""
CHARACTERS_READ = 20_000
"""Another machine is looked for in this many characters, because people name it near the beginning.
"""
# `works on `, right before another machine's name.
WORKS_BEFORE = lazy(rf"(?i)\b{WORKS_OR_RUNS}(?: \w+){{0,2}}(?: (?:on|in|with|for))? ?$")


def is_only_mentioned(subject: str, flat: str, start: int, end: int) -> bool:
    """Whether the machine named from `start` to `end` may not be the one that failed.

    >>> text = "On a Mac it works fine, here it fails"
    >>> is_only_mentioned("os.family", text, 0, 8)
    True
    >>> is_only_mentioned("os.family", "On a Mac it fails", 0, 8)
    False
    """
    words_behind = flat[end : end + BEHIND]
    # WSL and Windows are one machine, so WSL is ruled out only if everything works there.
    if subject == fields.OS_WSL:
        return ALL_WORKS_THERE.match(words_behind) is not None
    if REACHED_FROM_THERE.search(flat, max(start - BEFORE, 0), start):
        return True
    if WORKS_THERE.match(words_behind):
        return True
    return _names_another_machine(flat)


def _names_another_machine(flat: str) -> bool:
    """Whether the text names a server, a cloud or a similar machine without saying that the program
    works there."""
    for machine in OTHER_MACHINE.finditer(flat, 0, CHARACTERS_READ):
        start, end = machine.span()
        if WORKS_BEFORE.search(flat, max(start - BEFORE, 0), start):
            continue
        words_behind = flat[end : end + BEHIND]
        if WORKS_THERE.match(words_behind):
            continue
        return True
    return False


# --- another card ---------------------------------------------------------------------------------

# `on my old `, `instead of my `, `upgraded from a `, right before the card's name.
OTHER_CARD = lazy(
    r"\b(?:on|in) (?:the|my|an?|our) (?:old|other|previous|second|working)(?: \w+){0,2} ?\(?(?:\d+ ?x )?$"
    r"|\b(?:old(?:er)?|previous|former|last|friend'?s?|swapped (?:the|my|an?)|replaced (?:the|my|an?)|instead of(?: my| an?| the)?|(?:upgrad|switch|mov|migrat|chang|swapp)(?:ed|ing) (?:\w+ )?from(?: my| an?| the)?|(?:went|came|coming|going) from(?: my| an?| the)?|guide for (?:my |the )?(?:old )?|alten?|ancienne?|vieja|antiga|старо\w{1,2})(?: \w+)? (?:GeForce |NVIDIA )?(?:[RG]TX ?)?$",
    re.I,
)
# ` always worked`, `换成 ...`, right after the card's name, but not `worked until yesterday`.
WORKED_THERE = lazy(r"^\W{0,3}(?:it |this |that |everything |the same \w+ )?(?:always |also |still |just )?(?:worked|works|was fine|ran|had no problem)\b(?! (?:fine |well )?(?:(?:with|until|till|before) |(?:an?|one|two|\d+|(?:a )?few) \w+ ago|yesterday|today|last |this morning))|^\S{0,6} ?(?:换(?:成|到|为|了)|から|에서|durch|gegen)", re.I)  # fmt: skip
CARD_AROUND = 40
"""The number of characters before and after a card's name that are searched for words such as "my
old"."""


def is_another_card(flat: str, start: int, end: int) -> bool:
    """Whether the card named from `start` to `end` is not the one that failed.

    >>> is_another_card("on my old 3080 it worked", 10, 14)
    True
    """
    words_before = flat[max(start - CARD_AROUND, 0) : start]
    words_behind = flat[end : end + CARD_AROUND]
    if OTHER_CARD.search(words_before):
        return True
    return WORKED_THERE.match(words_behind) is not None


# --- another torch --------------------------------------------------------------------------------

# `requires `, `please support `, `the README pins `, right before the version.
WISHED_FOR = lazy(
    r"(?i)(?:\b(?:requires?|needs?|required|support(?:s|ed|ing)?(?: for)?|please (?:add|support|update to)|compatible with|upgrade to|update to|downgrade to|switch to"
    r"|want(?:s|ed)?|should (?:be|use)|recommend\w*|instructions?|read ?me|docs?|guide|tutorial|requirements?(?:\.txt)?|pins?|pinned)\b"
    r"[^.\n:]{0,24}|(?:要不要|是不是要|需要|支持|要求|推荐|建议)[^。\n]{0,12}) ?$"
)
"""Words before a version that somebody wants, or that a document names."""
# `in another environment `, `works fine with torch `, right before the version.
OF_ANOTHER_ENVIRONMENT = lazy(
    r"(?i)\b(?:(?:an?)?other|old|previous|second|base|global|system(?:'s)?|outside|main) (?:conda )?(?:env\w*|venv|python\S*|machine|pc|laptop|install\w*|computer|server)\b[^.\n]{0,30}$"
    r"|\b(?:works?|worked|working|runs?|ran|fine|ok|okay|succeeds?|no (?:problem|issue|error)s?) (?:fine |well |perfectly )?(?:with|on|in|under|using|for) (?:the |my )?(?:py)?(?:torch)?[ =v]*$"
)
"""Words before a torch that is in another environment or that works."""
# ` works fine`, ` gives True`, right after the version.
WORKS_WITH_IT = lazy(
    r"(?i)^\W{0,3}(?:it |this |that |everything )?(?:still |always |all )?(?:works?|worked|is fine|was fine|runs fine|ran fine|gives True|returns True|(?:where|in which) (?:everything|it|all) works?)\b"
)
"""Words after a torch version that works."""
# ` torchvision==0.20 -c pytorch`, which shows that the version before it was an argument of `conda
# install`.
REQUIREMENT_LIST = lazy(r"(?i)^[^\n]{0,120}? -c (?:pytorch|nvidia|conda-forge)\b")
"""The rest of a conda command after the version."""
TORCH_BEFORE, TORCH_BEHIND = 60, 120
"""The number of characters before and after a version that are searched for words about which torch
is meant."""


def is_another_torch(flat: str, start: int, end: int) -> bool:
    """Whether the torch named from `start` to `end` is only wanted, not installed, or is not the
    one that failed.

    >>> text = "Please support torch 2.9. I run torch 2.8"
    >>> is_another_torch(text, 15, 24), is_another_torch(text, 32, 41)
    (True, False)
    """
    words_before = flat[max(start - TORCH_BEFORE, 0) : start]
    words_behind = flat[end : end + TORCH_BEHIND]
    if WISHED_FOR.search(words_before) or OF_ANOTHER_ENVIRONMENT.search(words_before):
        return True
    if WORKS_WITH_IT.match(words_behind):
        return True
    return REQUIREMENT_LIST.match(words_behind) is not None
