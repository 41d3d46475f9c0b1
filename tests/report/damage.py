"""What happens to a text on its way into a thread: harmless ways, and damage.

A harmless way takes nothing from what the programs printed: the answer stays the same.
"""

from __future__ import annotations

import html
import random
from collections.abc import Callable

Way = Callable[[str], bytes]


def _lines(text: str, change: Callable[[int, str], str]) -> bytes:
    return "\n".join(change(n, line) for n, line in enumerate(text.split("\n"))).encode()


def quoted(text: str) -> bytes:
    return _lines(text, lambda n, line: f"> {line}")


def fenced(text: str) -> bytes:
    return f"Here it is:\n\n```shell\n{text}\n```\nThanks!\n".encode()


def entities(text: str) -> bytes:
    return html.escape(text).encode()


def coloured(text: str) -> bytes:
    return _lines(text, lambda n, line: f"\x1b[1;3{n % 8}m{line}\x1b[0m" if line else line)


def journal(text: str) -> bytes:
    return _lines(text, lambda n, line: f"Nov 20 06:01:{n % 60:02} box train.sh[4711]: {line}")


def ranks(text: str) -> bytes:
    return _lines(text, lambda n, line: f"[rank0]: {line}")


def logged(text: str) -> bytes:
    return _lines(text, lambda n, line: f"ERROR 11-20 06:01:{n % 60:02} core.py:210] {line}")


def curly_quotes(text: str) -> bytes:
    return text.translate({ord("'"): "\u2019", ord('"'): "\u201d"}).encode()


def utf16(text: str) -> bytes:
    return text.encode("utf-16")


def western(text: str) -> bytes:
    return f"Voil\u00e0 ce que j\u2019ai \u00e0 l\u2019\u00e9cran\n{text}".encode(
        "cp1252", "replace"
    )


HARMLESS: tuple[Way, ...] = (
    *(quoted, fenced, entities, coloured, journal, ranks, logged, curly_quotes, utf16, western),
)


# --- damage ---------------------------------------------------------------------------------------


def damaged(raw: bytes, draw: random.Random) -> bytes:
    """One to four of the ways in which a text breaks."""
    for _ in range(draw.randint(1, 4)):
        raw = draw.choice(DAMAGE)(raw, draw)
    return raw


def cut(raw: bytes, draw: random.Random) -> bytes:
    return raw[: draw.randint(0, len(raw))]


def noise(raw: bytes, draw: random.Random) -> bytes:
    start = draw.randint(0, len(raw))
    return raw[:start] + draw.randbytes(draw.randint(1, 40)) + raw[start:]


def shuffled(raw: bytes, draw: random.Random) -> bytes:
    lines = raw.split(b"\n")
    draw.shuffle(lines)
    return b"\n".join(lines)


def joined(raw: bytes, draw: random.Random) -> bytes:
    return raw.replace(b"\n", draw.choice((b"", b" ", b"\r", b"\t", b"\x00")))


def digits(raw: bytes, draw: random.Random) -> bytes:
    """Other numbers: absurd versions, indices, sizes."""
    other = draw.choice((b"0", b"9", b"999999999999", b"-1", b".", b"1e9"))
    digit = str(draw.randrange(10)).encode()
    return raw.replace(digit, other, draw.randint(1, 20))


DAMAGE = (cut, noise, shuffled, joined, digits)
