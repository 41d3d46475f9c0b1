"""Removes what forums, mail and logs add to a text: quotes, prefixes, colours, entities, tags.

Nothing of what a program printed is judged here. Each pattern is anchored or has bounded
repetition, so that a line costs time in proportion to its length.
"""

from __future__ import annotations

import re

from gpusetup.messages import search
from gpusetup.messages.search import Text
from gpusetup.model.hidden_marks import INVISIBLE
from gpusetup.model.patterns import lazy
from gpusetup.named_file import SAMPLE, encoding_of

MAX_LINE = 4000
"""Characters of a line that are read: a longer one is a picture, a minified file, a blob."""

BREAKS = lazy(r"\r\n?|[\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")
BARE_COLOUR = r"\[[0-9]{1,3}(?:;[0-9]{1,3}){0,6}m"
"""What is left of a colour where the sign before it is lost."""
ESCAPES = lazy(
    r"\x1b\[[0-9;?]{0,40}[ -/]?[@-~]|\x1b\][^\x07\x1b\n]{0,300}(?:\x07|\x1b\\)|\x1b[@-_=>()][0-9A-B]?"
    rf"|\^\[\[[0-9;]{{0,40}}[A-Za-z]|\\(?:x1b|033|u001b)\[[0-9;]{{0,40}}[A-Za-z]|{BARE_COLOUR}"
)
CONTROLS = lazy(rf"[\x00-\x08\x0e-\x1f\x7f-\x9f{INVISIBLE}]")
TAGS = lazy(
    r"</?(?:pre|code|details|summary|span|b|i|em|strong|blockquote|tt|samp|kbd|font|td|th|tbody|thead"
    r"|table|ul|ol|h[1-6]|sub|sup|a|img)(?:\s[^<>]{0,300})?/?>",
    re.I,
)
LINE_TAGS = lazy(r"</?(?:br|p|div|li|tr|hr)(?:\s[^<>]{0,300})?/?>", re.I)
LINK = lazy(r"(?<!!)\[([^\[\]\n]{1,300})\]\(https?://[^()\s]{1,600}\)")
"""Markdown's link: what is read is its words."""
ENTITY = lazy(r"&(?:lt|gt|amp|quot|apos|nbsp|#\d{1,6}|#x[0-9a-f]{1,5});", re.I)

ASCII_FORMS = {
    **{code: chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F)},
    **dict.fromkeys(map(ord, "\u3000\u00a0\u2002\u2003\u2009\u202f\u2007"), " "),
    **dict.fromkeys(map(ord, "\u2018\u2019\u201a\u2032\u02bc"), "'"),
    **dict.fromkeys(map(ord, "\u201c\u201d\u201e\u2033\u00ab\u00bb"), '"'),
    **dict.fromkeys(map(ord, "\u2010\u2011\u2012\u2013\u2014\u2212"), "-"),
    **dict(
        zip(map(ord, "\u2026\u2502\u2503\u3002\u3001\u3010\u3011"), ("...", *"||.,[]"), strict=True)
    ),
}
"""Full-width and typographic characters -> what programs print."""

MONTH = r"(?:Jan|Feb|Mar|M\u00e4r|Apr|May|Mai|Jun|Jul|Aug|Sep|Oct|Okt|Nov|Dec|Dez)"
CLOCK = r"\d{1,2}:\d{2}(?::\d{2}(?:[.,]\d{1,9})?)?"
DATE = r"\d{4}[-/.]\d{2}[-/.]\d{2}"
WEEKDAY = rf"\w{{3}}\s{MONTH}\s+\d{{1,2}}\s{CLOCK}\s\d{{4}}\s(?=\[|\w+:)"
STAMP = rf"{DATE}[T ]{CLOCK}(?:Z|\s?[+-]\d\d:?\d\d|\s?UTC)?\]?(?:\s?:\s|\s?)"
STREAM = r"(?:stdout|stderr)"
PREFIX = lazy(
    r"\s*(?:>(?!>>)\s?|#\d{1,3}\s\d{1,5}\.\d{1,3}\s"  # Markdown and mail; docker build
    r"|\([\w.]{1,40}(?:\s\w{1,10}=[\w.]{1,40},?){1,3}\)\s?"  # ray, vllm
    rf"|\[{STAMP}"
    rf"|\[(?:\w{{3}}\s)?{MONTH}\s+\d{{1,2}}\s{CLOCK}(?:\s\d{{4}})?\]\s?"  # dmesg -T
    r"|\[\s*\d{1,7}\.\d{6}\]\s?(?:\[\s*[TC]\d+\]\s?)?"  # the kernel's own clock
    r"|\[[\w.-]{1,40}\]\s(?=\[|\d{4}-)"
    rf"|\[rank\d{{1,4}}\]:\s?|\[\d{{1,4}}\]:\s?(?=\S)|\[{STREAM}\]:?\s?"
    rf"|{STAMP}|{WEEKDAY}|\d{{1,2}}:\d{{2}}:\d{{2}}(?:[.,]\d{{1,9}})?\s(?=\S)"
    rf"|{MONTH}\.?\s+\d{{1,2}}\s{CLOCK}\s[\w.-]{{1,64}}\s[\w./@-]{{1,64}}(?:\[\d+\])?:\s?"  # journald
    r"|(?:kern|daemon|user|syslog)\s*:(?:emerg|alert|crit|err|warn|notice|info|debug)\s*:\s"  # dmesg -x
    r"|[A-Za-z][\w.-]{0,60}\s*\|\s(?!packaged)"  # docker compose
    r"|(?:INFO|WARNING|WARN|ERROR|DEBUG|CRITICAL) \d\d-\d\d\s\d\d:\d\d:\d\d\s(?:\[?[\w.]+:\d+\]\s?)?"
    rf"|{STREAM}(?:\s[FP])?:?\s"
    r"|[IWEF]\d{4}\s\d\d:\d\d:\d\d\.\d+\s+\d+\s[\w.-]{1,60}:\d+\]\s?"  # glog
    r")"
)
"""What is put before a line."""
MAX_PREFIXES = 5


def cleaned(text: str) -> list[str]:
    """The lines of a report as the programs printed them, as far as that can be told.

    >>> cleaned("> \\x1b[31mError\\x1b[0m &lt;x&gt;\\r\\n> web-1  | 2025-05-28T03:35:37.857Z boom")
    ['Error <x>', 'boom']
    """
    text = text.translate(ASCII_FORMS)
    for needle, pattern, plain in SUBSTITUTIONS:
        if needle in text:
            text = pattern.sub(plain, text)
    return [_without_prefixes(line[:MAX_LINE]) for line in text.split("\n")]


def text_of(raw: str) -> Text:
    """
    >>> text = text_of("> Found no NVIDIA\\n> driver on your system")
    >>> text.flat, text.line_at(20)
    ('Found no NVIDIA driver on your system', 1)
    """
    return search.text_of(cleaned(raw))


def _unescaped(found: re.Match[str]) -> str:
    import html

    return html.unescape(found[0]).replace("\u00a0", " ")


def _blank_lines(found: re.Match[str]) -> str:
    return "\n" * found[0].count("\n")


SUBSTITUTIONS = (
    ("", BREAKS, "\n"),
    ("[", ESCAPES, ""),
    ("\x1b", ESCAPES, ""),
    ("](http", LINK, r"\1"),
    ("", CONTROLS, ""),
    ("<", LINE_TAGS, "\n"),
    ("<", TAGS, ""),
    ("&", ENTITY, _unescaped),
    ("&", ENTITY, _unescaped),  # a text that was escaped twice
    ("", CONTROLS, ""),
    ("<", TAGS, ""),
    # A build's label with blanks or as an address has it (`2.8.0 + cu129`).
    ("", lazy(r"(?<=\d\.\d)(?: \+ |%2B)(?=cu\d{2,3}\b|cpu\b|rocm\d)"), "+"),
    # The start of `collect_env` that lacks a module of its own, above its report.
    ("collect_env", lazy(r"(?m)^.{0,200}collect_env.*\n(?:.*\n){0,11}?[\s>]*(?:ModuleNotFound|Import)Error: .*\n(?=(?:.*\n){0,9}?.*Collecting environment information)"), _blank_lines),
)  # fmt: skip


def _without_prefixes(line: str) -> str:
    """One line without the prefixes that quoting and logging put before it."""
    line = line.expandtabs(8)
    for _ in range(MAX_PREFIXES):
        found = PREFIX.match(line)
        if found is None:
            break
        line = line[found.end() :]
    return line.rstrip()


BINARY = bytes((*range(0x07), *range(0x0E, 0x1B), *range(0x1C, 0x20)))
"""Control bytes that no text has."""
BINARY_SHARE = 0.05


def decode(raw: bytes) -> str:
    """A text in UTF with some damage, else a Western one.

    >>> decode("GPU".encode("utf-16")), decode("\\u201cNVIDIA\\u201d".encode("cp1252"))
    ('GPU', '“NVIDIA”')
    """
    text = raw.decode(encoding_of(raw), "replace")
    unread = text.count("\ufffd")
    read = unread and sum(letter > "\x7f" for letter in text) - unread
    return raw.decode("cp1252", "replace") if unread > read else text


def is_binary(raw: bytes) -> bool:
    """A picture, an archive: many control bytes, and neither UTF-16 nor UTF-32.

    >>> is_binary(bytes(range(32)) * 10), is_binary(b"plain\\r\\n\\x1b[0m")
    (True, False)
    """
    sample = raw[:SAMPLE]
    if not sample or encoding_of(sample) != "utf-8":
        return False
    controls = len(sample) - len(sample.translate(None, BINARY))
    return controls > len(sample) * BINARY_SHARE
