"""Takes away what the way into a thread adds to a text: quotes, prefixes, colours, entities, wraps.

Nothing of what a program printed is judged here. Each pattern is anchored or has bounded
repetition, so that a line costs time in proportion to its length.
"""

from __future__ import annotations

import re

from gpusetup.model.marks import TURNING
from gpusetup.model.patterns import lazy
from gpusetup.report.cleaning.decode import without_mojibake

LINE_KEPT = 4000
"""Characters of a line that are read: a longer one is a picture, a minified file, a blob."""

BREAKS = lazy(r"\r\n?|[\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")
BARE_COLOUR = r"\[[0-9]{1,3}(?:;[0-9]{1,3}){0,6}m"
"""What is left of a colour where the sign before it is lost."""
COLOURS = lazy(BARE_COLOUR)
ESCAPES = lazy(
    r"\x1b\[[0-9;?]{0,40}[ -/]?[@-~]|\x1b\][^\x07\x1b\n]{0,300}(?:\x07|\x1b\\)|\x1b[@-_=>()][0-9A-B]?"
    rf"|\^\[\[[0-9;]{{0,40}}[A-Za-z]|\\(?:x1b|033|u001b)\[[0-9;]{{0,40}}[A-Za-z]|{BARE_COLOUR}"
)
BEGIN_ESCAPES = ("\x1b", "^[[", "\\x1b[", "\\033[", "\\u001b[")
"""With one of these each of `ESCAPES` begins, but a colour that lost it."""
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
NAMES = (
    *("kern", "daemon", "user", "syslog"),
    *("INFO ", "WARNING ", "WARN ", "ERROR ", "DEBUG ", "CRITICAL "),
    *("stdout", "stderr"),
    *MONTHS,
)
"""How a line begins that `NAMED` may match, beside a weekday, a container's name and glog's."""
WEEKDAY_LETTERS = len("Mon ")
PREFIXES = {">": QUOTED, "#": NUMBERED, "(": WORKER, "[": BRACKETED}
"""What is put before a line, by the sign that it begins with; `TIMED` begins with a digit and
`NAMED` with a letter."""
PREFIXES_A_LINE = 5
JSON_LOG = lazy(r'^\{"log":\s?"(.*?)(?:\\n)?",\s?"(?:stream|time)"')
FENCE = lazy(r"^\s*(?:`{3,}|~{3,})[\w+-]*\s*$")
FRAMED = ("|", "+")
WRAP_MOST = 200
WRAPPED_LINES = 3
NEARLY = 8
LETTERS = 3
"""Different characters that a line of text has at least; a ruled line has fewer."""


def cleaned(text: str) -> list[str]:
    """The lines of a report as the programs printed them, as far as that can be told.

    >>> cleaned("> \\x1b[31mError\\x1b[0m &lt;x&gt;\\r\\n> web-1  | 2025-05-28T03:35:37.857Z boom")
    ['Error <x>', 'boom']
    """
    lines = _characters(without_mojibake(text)).split("\n")
    lines = [_bare(line[:LINE_KEPT]) for line in lines]
    return rejoined([line for line in lines if not _is_fence(line)])


def _is_fence(line: str) -> bool:
    return ("```" in line or "~~~" in line) and FENCE.match(line) is not None


def _characters(text: str) -> str:
    text = _unquoted(text)
    if not text.isascii():
        text = text.translate(ASCII_FORMS)
    if not text.isascii() or any(sign in text for sign in ASCII_BREAKS):
        text = BREAKS.sub("\n", text)
    if "[" in text:
        escaped = any(begin in text for begin in BEGIN_ESCAPES)
        text = (ESCAPES if escaped else COLOURS).sub("", text)
    if "](http" in text:
        text = LINK.sub(r"\1", text)
    if not text.isascii() or not text.translate(SEEN).isprintable():
        text = CONTROLS.sub("", text)
    if "<" in text:
        text = TAGS.sub("", LINE_TAGS.sub("\n", text))
    text = _entities(text) if "&" in text else text
    for form, plain in PLAIN_FORMS:
        text = form.sub(plain, text)
    return text


PLAIN_FORMS = (
    (lazy(r"(?m)^(\s*(?:[-*+] |\d\. )?)(?:\*\*|__)([A-Za-z][^*_\n:]{1,40})(?::(?:\*\*|__)|(?:\*\*|__) ?:) (?=\S)"), r"\1\2: "),
    (lazy(r"(?<=\d\.\d)(?: \+ |%2B)(?=cu\d{2,3}\b|cpu\b|rocm\d)"), "+"),
)  # fmt: skip
"""Bold labels (`**PyTorch version:** 2.6.0`), and a build's label with blanks or as an address has it
(`2.8.0 + cu129`), as programs print them."""


ASCII_BREAKS = "\r\x0b\x0c\x1c\x1d\x1e"
SEEN = {ord(sign): " " for sign in "\t\n\x0b\x0c\r"}
"""Signs that are not printed and that no control is."""
SPACES_QUOTED = ("%20", "%0A", "%0a")


def _unquoted(text: str) -> str:
    """A text that came through an address bar; one that only holds addresses stays as it is.

    >>> _unquoted("RuntimeError%3A%20CUDA%20error%0A"), _unquoted("see http://a/b%20c now")
    ('RuntimeError: CUDA error\\n', 'see http://a/b%20c now')
    """
    quoted = sum(map(text.count, SPACES_QUOTED)) if "%" in text else 0
    if quoted == 0 or quoted <= text.count(" ") + text.count("\n"):
        return text
    from urllib.parse import unquote

    return unquote(text)


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
    if line.startswith('{"log"') and (packed := JSON_LOG.match(line)):
        line = _unpacked(packed.group(1))
    if "\t" in line:
        line = line.expandtabs(8)
    for _ in range(PREFIXES_A_LINE):
        bare = line.lstrip() if line.startswith(" ") else line
        sign = bare[:1]
        prefix = PREFIXES.get(sign) or (TIMED if sign.isdecimal() else NAMED)
        if prefix is NAMED and not _may_be_named(bare):
            break
        found = prefix.match(bare)
        if found is None:
            break
        line = bare[found.end() :]
    return line.rstrip()


def _may_be_named(line: str) -> bool:
    """Whether `NAMED` has to be tried: most lines begin with another word.

    >>> _may_be_named("Jan 12 10:00:00 box kernel: x"), _may_be_named("RuntimeError: CUDA error")
    (True, False)
    """
    begun = line.startswith(NAMES) or line.startswith(MONTHS, WEEKDAY_LETTERS)
    return begun or line.find("|") > 0 or (line[:1] in "IWEF" and line[1:5].isdecimal())


def _unpacked(text: str) -> str:
    r"""What stands in a JSON string; as it is where it is none.

    >>> _unpacked(r"D:\\tmp"), _unpacked("cut \\")
    ('D:\\tmp', 'cut \\')
    """
    import json

    try:
        return CONTROLS.sub("", json.loads(f'"{text}"'))
    except ValueError:
        return text


# --- wraps ----------------------------------------------------------------------------------------


def rejoined(lines: list[str]) -> list[str]:
    """Lines that a terminal or a mail program broke, whole again: frames, and hard wraps.

    >>> rejoined(["| NVIDIA-SMI 535.104.05     CUDA Version:", "12.2     |"])
    ['| NVIDIA-SMI 535.104.05     CUDA Version: 12.2     |']
    """
    width = hard_width(lines)
    kept: list[str] = []
    for line in lines:
        if kept and _continues(kept[-1], line):
            cut = width is not None and len(kept[-1]) == width
            kept[-1] += line if cut else f" {line.lstrip()}"
        elif kept and width is not None and _was_cut(kept, line, width):
            kept[-1] += f" {line}" if _begins_a_word(kept[-1], line) else line
        else:
            kept.append(line)
    return kept


def _begins_a_word(above: str, line: str) -> bool:
    """Whether the cut fell between two words, whose space the program that cut has dropped.

    >>> _begins_a_word("lib.so:", "undefined symbol"), _begins_a_word("lib.so: unde", "fined")
    (True, False)
    """
    return above.endswith((",", ":", ";")) and line[0].isalpha()


def _continues(above: str, line: str) -> bool:
    """The rest of a framed row: it has the frame at its end only."""
    if not line or not above.startswith("|") or len(above) > WRAP_MOST:
        return False
    return line.endswith("|") and not line.startswith(FRAMED)


def _was_cut(kept: list[str], line: str, width: int) -> bool:
    """Whether a line goes on in the next: it is full, and the next one does not begin as it does."""
    above = kept[-1]
    full = 0 < len(above) < LINE_KEPT and len(above) % width == 0 and not above.startswith(FRAMED)
    return full and bool(line) and not line.startswith(FRAMED) and line[:4] != above[:4]


TERMINALS = (72, 76, 78, 79, 80, 100, 120, 132, 160)
"""Widths at which terminals and mail programs cut."""


def hard_width(lines: list[str]) -> int | None:
    """The width at which a terminal cut the lines; None where the text was not cut so.

    >>> hard_width([*("0123456789" * 8,) * 5, "end"]), hard_width(["short", "lines"])
    (80, None)
    """
    lengths = [len(line) for line in lines if not line.startswith(FRAMED)]
    longest = max(lengths, default=0)
    if longest not in TERMINALS or lengths.count(longest) < WRAPPED_LINES:
        return None
    ruled = sum(len(line) == longest and len(set(line)) < LETTERS for line in lines)
    if lengths.count(longest) - ruled < WRAPPED_LINES:
        return None
    # Where words are kept whole, many lines are a little shorter.
    nearly = sum(longest - NEARLY <= length < longest for length in lengths)
    return longest if nearly * 2 <= lengths.count(longest) else None
