"""Bytes in whatever encoding become text; nothing raises, what is unreadable becomes `\\ufffd`."""

from __future__ import annotations

import re

from gpusetup.named_file import SAMPLE, encoding_of

HIGH = bytes(range(128, 256))
CHINESE = rb"(?:[\xa1-\xf7][\xa1-\xfe])+"
"""GB 2312 in its usual form: both bytes of a character have the high bit."""
BINARY = bytes((*range(0x07), *range(0x0E, 0x1B), *range(0x1C, 0x20)))
"""Control bytes that no text has."""
BINARY_SHARE = 0.05


def decode(raw: bytes) -> str:
    """
    >>> decode("GPU".encode("utf-16")), decode("\\u201cNVIDIA\\u201d".encode("cp1252"))
    ('GPU', '“NVIDIA”')
    >>> decode("\\u663e\\u5361: GPU".encode("gbk"))
    '显卡: GPU'
    """
    if (encoding := encoding_of(raw)) != "utf-8":
        return raw.decode(encoding, "replace")
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return _by_likelihood(raw)


def is_wide(raw: bytes) -> bool:
    """Whether a text has two or four bytes a character: its lines cannot be told apart as bytes."""
    return not encoding_of(raw).startswith("utf-8")


def _by_likelihood(raw: bytes) -> str:
    """A UTF-8 text with some damage, else Chinese where it decodes so, else Western."""
    sample = raw[:SAMPLE]
    high = len(sample) - len(sample.translate(None, HIGH))
    utf8 = raw.decode("utf-8", "replace")
    if utf8[:SAMPLE].count("\ufffd") * 4 <= high:
        return utf8
    pairs = sum(map(len, re.findall(CHINESE, sample)))
    if pairs >= 4 and pairs >= high * 0.7:
        return raw.decode("gb18030", "replace")
    return raw.decode("cp1252", "replace")


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
