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


def details(text: str) -> bytes:
    return f"<details><summary>log</summary>\n<pre>{text}</pre>\n</details>".encode()


def entities(text: str) -> bytes:
    return html.escape(text).encode()


def coloured(text: str) -> bytes:
    return _lines(text, lambda n, line: f"\x1b[1;3{n % 8}m{line}\x1b[0m" if line else line)


def carriage_returns(text: str) -> bytes:
    return text.replace("\n", "\r\n").encode()


def journal(text: str) -> bytes:
    return _lines(text, lambda n, line: f"Nov 20 06:01:{n % 60:02} box train.sh[4711]: {line}")


def compose(text: str) -> bytes:
    return _lines(text, lambda n, line: f"vllm-1  | {line}")


def ci(text: str) -> bytes:
    return _lines(text, lambda n, line: f"2026-11-20T06:01:{n % 60:02}.1234567Z {line}")


def ranks(text: str) -> bytes:
    return _lines(text, lambda n, line: f"[rank0]: {line}")


def logged(text: str) -> bytes:
    return _lines(text, lambda n, line: f"ERROR 11-20 06:01:{n % 60:02} core.py:210] {line}")


def curly_quotes(text: str) -> bytes:
    return text.translate({ord("'"): "\u2019", ord('"'): "\u201d"}).encode()


def utf16(text: str) -> bytes:
    return text.encode("utf-16")


def chinese(text: str) -> bytes:
    return f"\u8bf7\u95ee\u8fd9\u662f\u4ec0\u4e48\u95ee\u9898\uff1f\u8c22\u8c22\n{text}".encode(
        "gbk", "replace"
    )


def western(text: str) -> bytes:
    return f"\u00c7a ne marche pas \u00e0 l\u2019\u00e9cran\n{text}".encode("cp1252", "replace")


def blank_lines(text: str) -> bytes:
    return text.replace("\n", "\n\n").encode()


HARMLESS: tuple[Way, ...] = (
    quoted, fenced, details, entities, coloured,
    carriage_returns, journal, compose, ci, ranks, logged,
    curly_quotes, utf16, chinese, western,
    blank_lines,
)  # fmt: skip


# --- damage ---------------------------------------------------------------------------------------


def damaged(raw: bytes, draw: random.Random) -> bytes:
    """One to four of the ways in which a text breaks."""
    for _ in range(draw.randint(1, 4)):
        raw = draw.choice(DAMAGE)(raw, draw)
    return raw


def cut(raw: bytes, draw: random.Random) -> bytes:
    return raw[: draw.randint(0, len(raw))]


def hole(raw: bytes, draw: random.Random) -> bytes:
    start = draw.randint(0, len(raw))
    return raw[:start] + raw[start + draw.randint(1, 200) :]


def noise(raw: bytes, draw: random.Random) -> bytes:
    start = draw.randint(0, len(raw))
    return raw[:start] + draw.randbytes(draw.randint(1, 40)) + raw[start:]


def shuffled(raw: bytes, draw: random.Random) -> bytes:
    lines = raw.split(b"\n")
    draw.shuffle(lines)
    return b"\n".join(lines)


def repeated(raw: bytes, draw: random.Random) -> bytes:
    start = draw.randint(0, len(raw))
    return (
        raw[:start] + raw[start : start + draw.randint(1, 60)] * draw.randint(2, 20) + raw[start:]
    )


def joined(raw: bytes, draw: random.Random) -> bytes:
    return raw.replace(b"\n", draw.choice((b"", b" ", b"\r", b"\t", b"\x00")))


def digits(raw: bytes, draw: random.Random) -> bytes:
    """Other numbers: absurd versions, indices, sizes."""
    other = draw.choice((b"0", b"9", b"999999999999", b"-1", b".", b"1e9"))
    digit = str(draw.randrange(10)).encode()
    return raw.replace(digit, other, draw.randint(1, 20))


DAMAGE = (cut, hole, noise, shuffled, repeated, joined, digits)
