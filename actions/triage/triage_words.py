"""By which words triage tells a report from a mention: rows of phrases, each a short pattern.

English, and for "it fails" the commonest words of eight more languages.
"""

from __future__ import annotations

import re

ANY_CASE = re.IGNORECASE | re.MULTILINE


def any_of(*rows: str) -> re.Pattern[str]:
    """One pattern for all rows; in a row `_` stands for one word or none.

    >>> bool(any_of("on my _laptop").search("It runs on my old laptop"))
    True
    """
    return re.compile("|".join(row.replace("_", r"(?:\w+ )?") for row in rows), ANY_CASE)


OTHERS = r"(?:you|people|users?|they|one|he|she|somebody|someone|nobody|everyone|others?)"
MEETS = r"(?:gets?|got|getting|receiv(?:e|ed|ing)|fac(?:e|ed|ing)|hit|encounter(?:ed|ing)?)"
HAVE = r"ha(?:ve|d) (?:this|the|an?|same) \w* ?(?:error|problem|issue)"
RUN = r"(?:run|ran|start|launch|execute|train|use|call|load|click|get|import|install)"
DEVICE = r"(?:machine|laptop|pc|computer|server|workstation|box|gpus?|cards?|system|setup|desktop)"
CARD = r"(?:(?:old|new|nvidia|geforce) )?(?:[gr]tx|geforce|tesla|titan|quadro)"

MINE = any_of(
    rf"\b(?:I|we)\b(?:(?!\b{OTHERS}\b)[^.!?\n]){{0,90}}?\b(?:{MEETS}|r[au]n(?:ning)? into|{HAVE})\b"
    r"(?! (?:asked|confused|that|why))",
    rf"\b(?:when|whenever|after|if) (?:I|we) _{RUN}",
    r"\bI(?:'m| am|'ve| have)? (?:been )?(?:try|tried|trying|unable|stuck)\b",
    rf"\b(?:I|we) (?:can ?not|can't|couldn't) _{RUN}",
    rf"\b(?:on|in|with|does|is|why) (?:my|our) _{DEVICE}\b",
    rf"\bmy {CARD}\b",
    r"\bmy _(?:logs?|output|terminal|console|traceback|environment)\b",
    r"\b(?:what|how) (?:can|should|do|could|shall) (?:I|we) _(?:do|fix|solve|resolve|use|run)\b",
    r"\b(?:it|that|this) (?:did|does|do)(?: not|n't) (?:help|work|start|run)\b",
    r"\bit did not\s*[.,!]",
    r"\bbei mir\b|\bchez moi\b|我的(?:电脑|机器|显卡)",
)
"""The author's own machine, and that it fails there."""

FAILS = any_of(
    r"\b(?:fail(?:s|ed|ing)|crash(?:es|ed|ing)|dies|died|broke|breaks|hangs|restarts|ended)\b",
    r"\b(?:stops?|stopped|not) working\b|\bnot work\b",
    r"\b(?:ends|ended|exits|exited|stops|stopped|aborts|aborted) with\b",
    r"\b(?:does|do|did|wo|can)(?:n't| ?not) _(?:work|start|run|load|find|see|detect|use)\b",
    r"\bafter (?:an?|the|every|upgrading|updating|installing)\b",
    r"\b(?:it|which|then|now|always) (?:says|prints|gives|shows)\b",
    r"\berror (?:is|was|below)\b|\bfollowing error\b|\bany ideas?\b",
    r"\bhow to (?:fix|solve|resolve)\b",
    r"\b(?:log|output|logs|error|says|gives|prints|message)(?: is)?:$",
    r"报错|错误|失败|怎么|如何|无法|エラー|오류|ошибк|не работает",
    r"\bFehler\b|\berreur\b|no funciona|\bfalla\b|\berro\b",
)
"""That something fails, whoever has it."""

HELP = any_of(
    FAILS.pattern,
    r"\b(?:help|error|problem|bug|issue|can ?not|can't|unable)\b",
)
"""The same in a title, of which less is asked."""

VERBS = (
    r"(?:add|support|mention|log|put|label|show|translate|document|make|consider|provide|include"
    r"|allow|rename|handle|catch|print|update the|change the|improve|remove|link|explain|clarify"
    r"|describe)"
)
"""What a wish asks for."""
PAGE = (
    r"(?:readme|faq|manual|documentation|changelog|release notes|blog|tutorial|article|model card"
    r"|guide|wiki|docs|comment|issue|thread)"
)
SAYS = r"(?:says?|said|mentions?|states?|shows?|claims?|lists?|tells?|explains?)"
PEOPLE = r"(?:users|people|nobody|somebody|someone|others|one)"
THEIRS = (
    r"(?:will|would|who|may|might|can|could|has|have|had|are|is|see|saw|get|got|report|ask|posted"
    r"|told|said|wrote)"
)

ELSEWHERE = any_of(
    # a wish, a plan, a change of the project
    r"\bfeature(?:[ -]request)?\s*[:\]?]|\bfeature request\b|\benhancement\b|\bpropos(?:al|e)\b",
    r"\brfc\b|\broad ?map\b|\bwish\b|\bsuggest(?:ion)?\b|\bidea:|\brefactor",
    rf"\bplease (?:also )?{VERBS}\b",
    rf"\b(?:could|can|would) (?:you|we|the \w+|it|this) (?:please )?(?:be )?{VERBS}",
    r"\bwould (?:be|it be|love|like to (?:see|have|propose|add))\b|\bit'd be\b|\bthat'd\b",
    r"\bI'd (?:love|like|suggest)\b|\b(?:it|that|this) would\b|\bwe need\b|\bI'm writing\b",
    r"\b(?:we|it|this|that|there|page|docs|documentation|tests?|message|you) should\b",
    r"\bshould (?:mention|say|be|have|print|show|also)\b|\bshouldn't (?:it|this|that)\b",
    r"\b(?:can|could|may|should|shall) (?:we|I|yours?|an?) (?!do\b|fix\b|solve\b|resolve\b)",
    r"\bwill there be\b|\b(?:is|are) (?:there|\w+ \w+|\w+ \w+ \w+) planned\b",
    r"\bplans? (?:to|for)\b|\bto support\b|\bunit test|\btest (?:case|which|that)\b",
    r"\b(?:CI|GPU-less|CPU) (?:runners?|machines?|jobs?)\b",
    # a page, a message as words
    r"\bdocs?\s*[:\]]|\btypo\b|\bwording\b|\bin the (?:error )?message\b|\bstack ?overflow\b",
    rf"\b{PAGE}\b[^.\n]{{0,60}}\b{SAYS}\b",
    r"\b(?:in|to|of|into|from) (?:the |your |a )?"
    r"(?:readme|faq|manual|documentation|docs|changelog|wiki|troubleshooting)\b",
    r"\bwhat is the difference\b|\bhow (?:would|should|does|could) one\b",
    r"\bwhy (?:is|does) the (?:message|text|error message)\b|\baccording to\b",
    # what others said and had
    r"\b(?:I|we|you|he|she) (?:once |just |also |have |had )?"
    r"(?:read|saw (?:in|that|on|a|the)|heard|noticed (?:in|that)|wrote|found (?:in|on))\b",
    r"\b(?:a|my|our|some|the) _(?:colleagues?|customers?|clients?|friends?|students?|users?)\b",
    rf"\b{PEOPLE} {THEIRS}\b",
    r"功能请求|建议|希望|文档",
)
"""A wish, a page, a plan, or what others said and had."""

TITLE = re.compile(
    rf"\W*(?:\[[^\]]*\]\W*)?(?:{VERBS}|bump|drop|thanks|thank you|solved|fixed|announcement)\b",
    re.IGNORECASE,
)
"""How a title begins that reports nothing."""
