"""Removes what forums, mail and logs add to a text: quotes, prefixes, colors, HTML entities and
tags.

Nothing is interpreted here. Each pattern is anchored or has bounded repetition, so the time for a
line is proportional to its length.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from gpusetup.messages import search
from gpusetup.messages.search import Text
from gpusetup.model.hidden_marks import INVISIBLE
from gpusetup.named_file import SAMPLE, encoding_of

MAX_LINE = 4000
"""Only this many characters of a line are read. Longer lines are embedded pictures, minified files
or other binary data."""

# All characters that programs use to end a line, including Unicode's line separators.
LINE_BREAKS = re.compile(r"\r\n?|[\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")
# `[31m`, `[1;32m`.
BARE_COLOUR = r"\[[0-9]{1,3}(?:;[0-9]{1,3}){0,6}m"
"""What is left of an ANSI colour code if its escape character is lost."""
# `ESC[31m`, a command that sets the window title (`ESC]0;name BEL`), and escape sequences written
# out as text: `^[[31m`, `\x1b[0m`, `\033[0m`.
ESCAPES = re.compile(
    r"\x1b\[[0-9;?]{0,40}[ -/]?[@-~]|\x1b\][^\x07\x1b\n]{0,300}(?:\x07|\x1b\\)|\x1b[@-_=>()][0-9A-B]?"
    rf"|\^\[\[[0-9;]{{0,40}}[A-Za-z]|\\(?:x1b|033|u001b)\[[0-9;]{{0,40}}[A-Za-z]|{BARE_COLOUR}"
)
# Control characters except tabs and line breaks, and invisible marks such as a zero-width space.
CONTROLS = re.compile(rf"[\x00-\x08\x0e-\x1f\x7f-\x9f{INVISIBLE}]")
# HTML tags that only change how a text looks: `<code>`, `</details>`, `<img src="...">`.
TAGS = re.compile(
    r"</?(?:pre|code|details|summary|span|b|i|em|strong|blockquote|tt|samp|kbd|font|td|th|tbody|thead"
    r"|table|ul|ol|h[1-6]|sub|sup|a|img)(?:\s[^<>]{0,300})?/?>",
    re.I,
)
# HTML tags that end a line: `<br/>`, `</p>`.
LINE_TAGS = re.compile(r"</?(?:br|p|div|li|tr|hr)(?:\s[^<>]{0,300})?/?>", re.I)
# `&lt;`, `&#39;`, `&#x27;`.
ENTITY = re.compile(r"&(?:lt|gt|amp|quot|apos|nbsp|#\d{1,6}|#x[0-9a-f]{1,5});", re.I)

ASCII_FORMS = {
    # The full-width forms of ASCII (U+FF01 to U+FF5E) have a fixed offset from ASCII.
    **{code: chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F)},
    **dict.fromkeys(map(ord, "\u3000\u00a0\u2002\u2003\u2009\u202f\u2007"), " "),
    **dict.fromkeys(map(ord, "\u2018\u2019\u201a\u2032\u02bc"), "'"),
    **dict.fromkeys(map(ord, "\u201c\u201d\u201e\u2033\u00ab\u00bb"), '"'),
    # Trademark signs, which are removed: `GeForce RTX\u2122 3080`.
    **dict.fromkeys(map(ord, "\u2122\u00ae\u00a9"), ""),
    **dict.fromkeys(map(ord, "\u2010\u2011\u2012\u2013\u2014\u2212"), "-"),
    **dict(
        zip(map(ord, "\u2026\u2502\u2503\u3002\u3001\u3010\u3011"), ("...", *"||.,[]"), strict=True)
    ),
}
"""Full-width and typographic characters -> the ASCII characters that programs print instead."""

# Parts of a timestamp in a log: `May`, `Okt`; `03:35:37.857`; `2025-05-28`.
MONTH = r"(?:Jan|Feb|Mar|M\u00e4r|Apr|May|Mai|Jun|Jul|Aug|Sep|Oct|Okt|Nov|Dec|Dez)"
CLOCK = r"\d{1,2}:\d{2}(?::\d{2}(?:[.,]\d{1,9})?)?"
DATE = r"\d{4}[-/.]\d{2}[-/.]\d{2}"
# `Wed May 28 03:35:37 2025`, if `[` or `name:` follows.
WEEKDAY = rf"\w{{3}}\s{MONTH}\s+\d{{1,2}}\s{CLOCK}\s\d{{4}}\s(?=\[|\w+:)"
# `2025-05-28T03:35:37.857Z`, `2025-05-28 03:35:37 +02:00: `.
STAMP = rf"{DATE}[T ]{CLOCK}(?:Z|\s?[+-]\d\d:?\d\d|\s?UTC)?\]?(?:\s?:\s|\s?)"
STREAM = r"(?:stdout|stderr)"
# `> `, `[rank0]: `, `web-1  | `, `(EngineCore pid=12) `, `INFO 05-28 03:35:37 [core.py:12] `.
PREFIX = re.compile(
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
"""A prefix that mail, containers, launchers and loggers put before a line."""
MAX_PREFIXES = 5
"""The most prefixes that are removed from one line. A line from a container, in a launcher's log
that somebody quotes, has four."""


def text_of(raw: str) -> Text:
    """The cleaned text, as lines and also joined to one line, with the numbers of its logged lines.

    >>> text = text_of("> Found no NVIDIA\\n> driver on your system")
    >>> text.flat, text.line_at(20)
    ('Found no NVIDIA driver on your system', 1)
    """
    plain = raw.translate(ASCII_FORMS)
    for needle, pattern, replacement in SUBSTITUTIONS:
        # Most texts contain few of the needles, and a substring search is faster than a pattern.
        if needle in plain:
            plain = pattern.sub(replacement, plain)
    cleaned = [_without_prefixes(line[:MAX_LINE]) for line in plain.split("\n")]
    logged = (number for number, (_, is_logged) in enumerate(cleaned, 1) if is_logged)
    return search.text_of((line for line, _ in cleaned), logged)


def _without_prefixes(line: str) -> tuple[str, bool]:
    """One line without the prefixes that quoting and logging put before it, and whether a program
    logged it, so that no person wrote it."""
    # The readers of tables look for spaces.
    line = line.expandtabs(8)
    is_logged = False
    for _ in range(MAX_PREFIXES):
        prefix = PREFIX.match(line)
        if prefix is None:
            break
        # Only a quote's prefix has this sign; the others come from programs.
        is_logged = is_logged or ">" not in prefix[0]
        line = line[prefix.end() :]
    return line.rstrip(), is_logged


def _unescaped(entity: re.Match[str]) -> str:
    """The character that an HTML entity stands for; a space for `&nbsp;`."""
    # Imported only here, because `html` loads a table of 2,200 entities, which most texts do not
    # need.
    import html

    return html.unescape(entity[0]).replace("\u00a0", " ")


SUBSTITUTIONS: tuple[tuple[str, re.Pattern[str], str | Callable[[re.Match[str]], str]], ...] = (
    ("", LINE_BREAKS, "\n"),
    ("[", ESCAPES, ""),
    ("\x1b", ESCAPES, ""),
    ("&", ENTITY, _unescaped),
    ("", CONTROLS, ""),
    ("<", LINE_TAGS, "\n"),
    ("<", TAGS, ""),
    # A label in bold: `- **torch**: 2.3.1+cu121`.
    ("**", re.compile(r"\*\*([\w ./-]{1,40})(?:\*\*:|:\*\*)"), r"\1:"),
    # A build label with spaces, or URL-encoded: `2.8.0 + cu129`, `2.8.0%2Bcu129`.
    ("", re.compile(r"(?:(?<=\d\.\d) \+ |(?<=\d)%2B)(?=cu\d{2,3}\b|cpu\b|rocm\d|xpu\b)"), "+"),
    # A first run of `collect_env` that failed because a module was missing, followed by the report
    # of a second run. Later lines keep their numbers.
    ("collect_env", re.compile(r"(?m)^.{0,200}collect_env.*\n(?:.*\n){0,11}?[\s>]*(?:ModuleNotFound|Import)Error: .*\n(?=(?:.*\n){0,9}?.*Collecting environment information)"), lambda match: "\n" * match[0].count("\n")),
)  # fmt: skip
"""A string that every match contains ("" if there is none), a pattern, and what replaces its matches.
The order matters: a replacement may uncover text that a later one replaces."""


BINARY = bytes((*range(0x07), *range(0x0E, 0x1B), *range(0x1C, 0x20)))
"""All control bytes except those that occur in text: tab, line breaks, backspace, bell, escape."""
BINARY_SHARE = 0.05
"""A file with a larger share of such bytes is not text. A damaged log contains a few."""


def decode(raw: bytes) -> str:
    """The text of these bytes, decoded as UTF-8, UTF-16 or UTF-32 (even if slightly damaged), or
    else as cp1252.

    >>> decode("GPU".encode("utf-16")), decode("\\u201cNVIDIA\\u201d".encode("cp1252"))
    ('GPU', '“NVIDIA”')
    """
    text = raw.decode(encoding_of(raw), "replace")
    damaged = text.count("\ufffd")
    # If the text is UTF-8, most of its non-ASCII letters decode without damage. If it is in a
    # Western 8-bit encoding, hardly any do.
    if damaged and damaged > sum(letter > "\x7f" for letter in text) - damaged:
        return raw.decode("cp1252", "replace")
    return text


def is_binary(raw: bytes) -> bool:
    """Whether a file is not text but, for example, a picture or an archive. Such a file has many
    control bytes and is not UTF-16 or UTF-32.

    >>> is_binary(bytes(range(32)) * 10), is_binary(b"plain\\r\\n\\x1b[0m")
    (True, False)
    """
    sample = raw[:SAMPLE]
    # In UTF-16 every second byte may be zero, so counting control bytes would be misleading.
    if encoding_of(sample) != "utf-8":
        return False
    binary_bytes = len(sample) - len(sample.translate(None, BINARY))
    return binary_bytes > len(sample) * BINARY_SHARE
