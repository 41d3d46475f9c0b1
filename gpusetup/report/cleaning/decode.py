"""Bytes in whatever encoding become text; nothing raises, what is unreadable becomes `\\ufffd`."""

from __future__ import annotations

from gpusetup.named_file import SAMPLE, encoding_of

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


def is_wide(raw: bytes) -> bool:
    """Whether a text has two or four bytes a character: its lines cannot be told apart as bytes."""
    return not encoding_of(raw).startswith("utf-8")


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
