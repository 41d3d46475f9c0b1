"""Takes away what the way into a thread adds to a text: quotes, prefixes, colours, entities, wraps.

Nothing of what a program printed is judged here. Each pattern is anchored or has bounded
repetition, so that a line costs time in proportion to its length.
"""

from __future__ import annotations

import re

from gpusetup.model.marks import TURNING
from gpusetup.model.patterns import lazy

LINE_KEPT = 4000
"""Characters of a line that are read: a longer one is a picture, a minified file, a blob."""

BREAKS = lazy(r"\r\n?|[\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")
BARE_COLOUR = r"\[[0-9]{1,3}(?:;[0-9]{1,3}){0,6}m"
"""What is left of a colour where the sign before it is lost."""
ESCAPES = lazy(
    r"\x1b\[[0-9;?]{0,40}[ -/]?[@-~]|\x1b\][^\x07\x1b\n]{0,300}(?:\x07|\x1b\\)|\x1b[@-_=>()][0-9A-B]?"
    rf"|\^\[\[[0-9;]{{0,40}}[A-Za-z]|\\(?:x1b|033|u001b)\[[0-9;]{{0,40}}[A-Za-z]|{BARE_COLOUR}"
)
CONTROLS = lazy(rf"[\x00-\x08\x0e-\x1f\x7f-\x9f{TURNING}]")
TAGS = lazy(
    r"</?(?:pre|code|details|summary|span|b|i|em|strong|blockquote|tt|samp|kbd|font|td|th|tbody|thead"
    r"|table|ul|ol|h[1-6]|sub|sup|a|img)(?:\s[^<>]{0,300})?/?>",
    re.I,
)
LINE_TAGS = lazy(r"</?(?:br|p|div|li|tr|hr)(?:\s[^<>]{0,300})?/?>", re.I)
LINK = lazy(r"(?<!!)\[([^\[\]\n]{1,300})\]\(https?://[^()\s]{1,600}\)")
"""Markdown's link: what is read is its words."""
ENTITY = lazy(r"&(?:lt|gt|amp|quot|apos|nbsp|#\d{1,6}|#x[0-9a-f]{1,5});", re.I)

ASCII_FORMS = {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)} | {
    ord(char): form
    for form, chars in (
        (" ", "\u3000\u00a0\u2002\u2003\u2009\u202f\u2007"),
        ("'", "\u2018\u2019\u201a\u2032\u02bc"),
        ('"', "\u201c\u201d\u201e\u2033\u00ab\u00bb"),
        ("-", "\u2010\u2011\u2012\u2013\u2014\u2212"),
        ("...", "\u2026"),
        ("|", "\u2502\u2503"),
        (".", "\u3002"),
        (",", "\u3001"),
        ("[", "\u3010"),
        ("]", "\u3011"),
    )
    for char in chars
}
"""Full-width and typographic characters -> what programs print."""

MONTHS = (
    *("Jan", "Feb", "Mar", "M\u00e4r", "Apr", "May", "Mai", "Jun", "Jul", "Aug", "Sep"),
    *("Oct", "Okt", "Nov", "Dec", "Dez"),
)
MONTH = rf"(?:{'|'.join(MONTHS)})"
CLOCK = r"\d{1,2}:\d{2}(?::\d{2}(?:[.,]\d{1,9})?)?"
DATE = r"\d{4}[-/.]\d{2}[-/.]\d{2}"
WEEKDAY = rf"\w{{3}}\s{MONTH}\s+\d{{1,2}}\s{CLOCK}\s\d{{4}}\s(?=\[|\w+:)"
STAMP = rf"{DATE}[T ]{CLOCK}(?:Z|\s?[+-]\d\d:?\d\d|\s?UTC)?\]?(?:\s?:\s|\s?)"
STREAM = r"(?:stdout|stderr)"
QUOTED = lazy(r">(?!>>)\s?")
"""Markdown and e-mail quotes."""
NUMBERED = lazy(r"#\d{1,3}\s\d{1,5}\.\d{1,3}\s")
"""`docker build`."""
WORKER = lazy(r"\([\w.]{1,40}(?:\s\w{1,10}=[\w.]{1,40},?){1,3}\)\s?")
"""ray, vllm."""
BRACKETED = lazy(
    rf"\[{STAMP}"
    rf"|\[(?:\w{{3}}\s)?{MONTH}\s+\d{{1,2}}\s{CLOCK}(?:\s\d{{4}})?\]\s?"  # dmesg -T
    r"|\[\s*\d{1,7}\.\d{6}\]\s?(?:\[\s*[TC]\d+\]\s?)?"  # the kernel's own clock
    r"|\[[\w.-]{1,40}\]\s(?=\[|\d{4}-)"
    rf"|\[rank\d{{1,4}}\]:\s?|\[\d{{1,4}}\]:\s?(?=\S)|\[{STREAM}\]:?\s?"
)
TIMED = lazy(rf"{STAMP}|{WEEKDAY}|\d{{1,2}}:\d{{2}}:\d{{2}}(?:[.,]\d{{1,9}})?\s(?=\S)")
NAMED = lazy(
    rf"{MONTH}\.?\s+\d{{1,2}}\s{CLOCK}\s[\w.-]{{1,64}}\s[\w./@-]{{1,64}}(?:\[\d+\])?:\s?"  # journald
    rf"|{WEEKDAY}"
    r"|(?:kern|daemon|user|syslog)\s*:(?:emerg|alert|crit|err|warn|notice|info|debug)\s*:\s"  # dmesg -x
    r"|[A-Za-z][\w.-]{0,60}\s*\|\s(?!packaged)"  # docker compose
    r"|(?:INFO|WARNING|WARN|ERROR|DEBUG|CRITICAL) \d\d-\d\d\s\d\d:\d\d:\d\d\s(?:\[?[\w.]+:\d+\]\s?)?"
    rf"|{STREAM}(?:\s[FP])?:?\s"
    r"|[IWEF]\d{4}\s\d\d:\d\d:\d\d\.\d+\s+\d+\s[\w.-]{1,60}:\d+\]\s?"  # glog
)
PREFIXES = {">": QUOTED, "#": NUMBERED, "(": WORKER, "[": BRACKETED}
"""What is put before a line, by the sign that it begins with; `TIMED` begins with a digit and
`NAMED` with a letter."""
PREFIXES_A_LINE = 5


def cleaned(text: str) -> list[str]:
    """The lines of a report as the programs printed them, as far as that can be told.

    >>> cleaned("> \\x1b[31mError\\x1b[0m &lt;x&gt;\\r\\n> web-1  | 2025-05-28T03:35:37.857Z boom")
    ['Error <x>', 'boom']
    """
    return _without_a_first_try([_bare(line[:LINE_KEPT]) for line in _characters(text).split("\n")])


REPORTS = "Collecting environment information"
ABOVE_A_REPORT = 12
LACKS = lazy(r"^\s*(?:ModuleNotFound|Import)Error: ")


def _without_a_first_try(lines: list[str]) -> list[str]:
    """Without the start of `collect_env` that lacks a module of its own, above its report.

    >>> _without_a_first_try(["python collect_env.py", "ImportError: x", REPORTS])
    ['', '', 'Collecting environment information']
    """
    report = next((n for n, line in enumerate(lines) if REPORTS in line), 0)
    above = range(max(report - ABOVE_A_REPORT, 0), report)
    first = next((n for n in above if "collect_env" in lines[n]), report)
    last = max((n for n in above if LACKS.match(lines[n])), default=first)
    return (
        [*lines[:first], *([""] * (last + 1 - first)), *lines[last + 1 :]]
        if last > first
        else lines
    )


def _characters(text: str) -> str:
    text = BREAKS.sub("\n", text.translate(ASCII_FORMS))
    text = CONTROLS.sub("", LINK.sub(r"\1", ESCAPES.sub("", text)))
    text = _entities(TAGS.sub("", LINE_TAGS.sub("\n", text)))
    for form, plain in PLAIN_FORMS:
        text = form.sub(plain, text)
    return text


PLAIN_FORMS = (
    (lazy(r"(?m)^([^\S\n]*(?:[-*+] |\d\. )?)(?:\*\*|__)([A-Za-z][^*_\n:]{1,40})(?::(?:\*\*|__)|(?:\*\*|__) ?:) (?=\S)"), r"\1\2: "),
    (lazy(r"(?<=\d\.\d)(?: \+ |%2B)(?=cu\d{2,3}\b|cpu\b|rocm\d)"), "+"),
)  # fmt: skip
"""Bold labels (`**PyTorch version:** 2.6.0`), and a build's label with blanks or as an address has it
(`2.8.0 + cu129`), as programs print them."""


def _entities(text: str) -> str:
    """Twice where a text was escaped twice."""
    for _ in range(2):
        text = ENTITY.sub(_entity, text)
    return CONTROLS.sub("", TAGS.sub("", text))


def _entity(found: re.Match[str]) -> str:
    import html

    return html.unescape(found.group()).replace("\u00a0", " ")


def _bare(line: str) -> str:
    """One line without the prefixes that quoting and logging put before it."""
    if "\t" in line:
        line = line.expandtabs(8)
    for _ in range(PREFIXES_A_LINE):
        bare = line.lstrip() if line.startswith(" ") else line
        sign = bare[:1]
        prefix = PREFIXES.get(sign) or (TIMED if sign.isdecimal() else NAMED)
        found = prefix.match(bare)
        if found is None:
            break
        line = bare[found.end() :]
    return line.rstrip()
