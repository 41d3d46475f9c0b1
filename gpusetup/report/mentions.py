"""Machines that a sentence names beside the one that failed.

"My laptop is a MacBook, I run this on Colab", "it works on the Jetson, on the desktop it fails": the
name of a machine proves nothing if another one failed.
"""

from __future__ import annotations

import re

from gpusetup.model.patterns import lazy

BEFORE, BEHIND = 90, 70
"""Characters around a name that may say what runs there."""
WORKS_OR_RUNS = r"(?<!not )(?<!n't )(?<!to )(?<!never )(?<!I )(?<!we )(?:works?|worked|working|runs?|ran|fine|well|succeeds?|succeeded|no (?:problem|issue)s?)"
REACHED_FROM_THERE = lazy(
    rf"(?i)(?:\b{WORKS_OR_RUNS}(?: \w+){{0,3}} (?:on|for|with|in|under|inside)(?: \w+(?:'s)?){{0,2}}"
    r"|\b(?:from|via|through|unlike|besides)(?: (?:my|an?|the|our))?(?: \w+)?|(?<!I am )(?<!I'm )(?<!are )\busing(?: (?:my|an?|the|our))?(?: \w+)?"
    r"|\b(?:ssh|connect\w*|develop\w*|log(?:ged|ging)? in|remote\w*|prototyp\w+)\b[^.\n]{0,40}"
    r"|\b(?:support|available(?! for execution)|compatible|planned)\w*\b[^.\n]{0,30}) ?$"
)
"""What stands before the name of a machine from which another is reached, or that has no fault."""
WORKS_THERE = lazy(
    rf"(?i)[^.,;\n]{{0,24}}?,? (?:(?:it|this|that|everything|all|which|the same(?: \w+)?|and) )?(?:\w+ly |just |all )?"
    rf"(?:{WORKS_OR_RUNS}\b(?! out of)|is (?:ok(?:ay)?|(?:too |very |so )?slow)\b)(?! (?:on|only|but|in) (?:the )?(?:cpu|mps))"
)
ALL_WORKS_THERE = lazy(
    rf"(?i)(?: too| as well| also)?(?:,? and| there)?,? (?:there )?(?:it|this|that|everything|all|the same \w+)(?: all| just)? {WORKS_OR_RUNS}\b(?! out of)"
)
"""What stands behind a WSL in which all works: that one program there runs says less."""
OTHER_MACHINE = lazy(
    r"(?i)\bon (?:the|an?|my|our|that|this|its|his|her)(?: [\w'-]+){0,3} (?:servers?|vm|cluster|workstation|node|instance|desktop(?! app)|pc|pod|remote|linux (?:box|machine|host))\b"
    r"|\bon (?:the|a|our) (?:dgx|hpc|gpu)\b|\bssh(?:-?ing|ed)? (?:in)?to\b|\bssh from\b|\bremote (?:linux |gpu )?(?:server|machine|host|desktop|box)\b"
    r"|\b(?:colab|kaggle|runpod|vast\.ai|lambda labs|paperspace|ec2|sagemaker)\b|\b[gp]\d(?:dn|de|d|e|en)?\.\d*x?large\b"
    r"|\bto (?:the|an?|my|our)(?: [\w'-]+){0,2} (?:server|workstation|cluster|vm|instance)\b"
    r"|\bthis is (?:an?|my|our|the) (?:[\w'-]+ ){0,2}(?:server|workstation|desktop(?! app)|pc|vm)\b"
)
"""Another machine, on which the failure may be told to be."""
CHARACTERS_READ = 20_000
WORKS_BEFORE = lazy(rf"(?i)\b{WORKS_OR_RUNS}(?: \w+){{0,2}}(?: (?:on|in|with|for))? ?$")


def is_only_mentioned(subject: str, flat: str, first: int, last: int) -> bool:
    """Whether the machine that is named from `first` to `last` is not shown to be the one that failed.

    >>> text = "On a Mac it works fine, here it fails"
    >>> is_only_mentioned("os.family", text, 0, 8)
    True
    >>> is_only_mentioned("os.family", "On a Mac it fails", 0, 8)
    False
    """
    behind = flat[last : last + BEHIND]
    if subject == "os.wsl":
        return ALL_WORKS_THERE.match(behind) is not None
    if REACHED_FROM_THERE.search(flat, max(first - BEFORE, 0), first) or WORKS_THERE.match(behind):
        return True
    return any(
        not WORKS_BEFORE.search(flat, max(other.start() - BEFORE, 0), other.start())
        and not WORKS_THERE.match(flat[other.end() : other.end() + BEHIND])
        for other in OTHER_MACHINE.finditer(flat, 0, CHARACTERS_READ)
    )


OTHER_CARD = lazy(
    r"\b(?:on|in) (?:the|my|an?|our) (?:old|other|previous|second|working)(?: \w+){0,2} ?\(?(?:\d+ ?x )?$"
    r"|\b(?:old(?:er)?|previous|former|last|friend'?s?|swapped (?:the|my|an?)|replaced (?:the|my|an?)|instead of(?: my| an?| the)?|upgraded from(?: my| an?| the)?|came from(?: an?)?|guide for (?:my |the )?(?:old )?|alten?|ancienne?|vieja|antiga|старо\w{1,2})(?: \w+)? (?:GeForce |NVIDIA )?(?:[RG]TX ?)?$",
    re.I,
)
WORKED_THERE = lazy(r"^\W{0,3}(?:it |this |that |everything |the same \w+ )?(?:always |also |still )?(?:worked|works|was fine|ran|had no problem)\b(?! (?:fine |well )?(?:(?:with|until|till|before) |(?:an?|one|two|\d+|(?:a )?few) \w+ ago|yesterday|today|last |this morning))", re.I)  # fmt: skip
"""A card that a text only mentions: another one failed."""
CARD_AROUND = 40


def is_another_card(flat: str, first: int, last: int) -> bool:
    """Whether the card that is named there is one beside the card that failed."""
    before = flat[max(first - CARD_AROUND, 0) : first]
    return bool(OTHER_CARD.search(before) or WORKED_THERE.match(flat[last : last + CARD_AROUND]))


# --- which torch a sentence names -----------------------------------------------------------------

WISHED_FOR = lazy(
    r"(?i)(?:\b(?:requires?|needs?|required|support(?:s|ed|ing)?(?: for)?|please (?:add|support|update to)|compatible with|upgrade to|update to|downgrade to|switch to"
    r"|want(?:s|ed)?|should (?:be|use)|recommend\w*|instructions?|read ?me|docs?|guide|tutorial|requirements?(?:\.txt)?|pins?|pinned)\b"
    r"[^.\n:]{0,24}|(?:要不要|是不是要|需要|支持|要求|推荐|建议)[^。\n]{0,12}) ?$"
)
"""What stands before a release that somebody asks for, or that a document names."""
OF_ANOTHER_ENVIRONMENT = lazy(
    r"(?i)\b(?:(?:an?)?other|old|previous|second|base|global|system(?:'s)?|outside|main) (?:conda )?(?:env\w*|venv|python\S*|machine|pc|laptop|install\w*|computer|server)\b[^.\n]{0,30}$"
    r"|\b(?:works?|worked|working|runs?|ran|fine|ok|okay|succeeds?|no (?:problem|issue|error)s?) (?:fine |well |perfectly )?(?:with|on|in|under|using|for) (?:the |my )?(?:py)?(?:torch)?[ =v]*$"
)
"""What stands before the torch of another environment, or of the one that works."""
WORKS_WITH_IT = lazy(
    r"(?i)^\W{0,3}(?:it |this |that |everything )?(?:still |always |all )?(?:works?|worked|is fine|was fine|runs fine|ran fine|gives True|returns True|(?:where|in which) (?:everything|it|all) works?)\b"
)
"""What stands behind the torch with which it works."""
REQUIREMENT_LIST = lazy(r"(?i)^[^\n]{0,120}? -c (?:pytorch|nvidia|conda-forge)\b")
"""What follows a release in a command of conda."""
TORCH_AROUND = 60


def is_another_torch(flat: str, first: int, last: int) -> bool:
    """Whether the torch that a sentence names there is wished for, or is not the one that failed.

    >>> text = "Please support torch 2.9. I run torch 2.8"
    >>> is_another_torch(text, 15, 24), is_another_torch(text, 32, 41)
    (True, False)
    """
    before = flat[max(first - TORCH_AROUND, 0) : first]
    behind = flat[last : last + 2 * TORCH_AROUND]
    if WISHED_FOR.search(before) or OF_ANOTHER_ENVIRONMENT.search(before):
        return True
    return bool(WORKS_WITH_IT.match(behind) or REQUIREMENT_LIST.match(behind))
