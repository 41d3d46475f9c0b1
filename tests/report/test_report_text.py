"""The way into a thread is undone: encodings, quotes, prefixes, wraps; whatever the bytes are."""

from __future__ import annotations

import random
from functools import cache
from typing import Any

import pytest
from damage import HARMLESS, Way
from each_row import each
from hypothesis import given, settings
from hypothesis import strategies as st
from message_samples import samples

from gpusetup.catalog.file import load_catalog
from gpusetup.diagnosis.diagnose import diagnose
from gpusetup.model.codec import to_json
from gpusetup.model.documents import DoctorAnswer
from gpusetup.report.cleaning import decode, is_binary
from gpusetup.report.read import read_bytes, read_report

TEXTS = tuple({sample.kinds: sample.text for sample in samples() if sample.kinds}.values())


def answer(raw: bytes) -> DoctorAnswer:
    return diagnose(read_bytes(raw), load_catalog())


def told(diagnosis: DoctorAnswer) -> tuple[object, ...]:
    machine = diagnosis.snapshot
    return (
        diagnosis.cause,
        tuple(sorted(finding.id for finding in diagnosis.findings)),
        (diagnosis.resolution.torch, diagnosis.resolution.backend),
        (machine.driver.version, machine.driver.cuda, machine.torch.version, machine.torch.cuda),
        (machine.python.version, machine.os.family),
        tuple(gpu.name for gpu in machine.gpus or ()),
    )


@each("way", HARMLESS)
def test_the_answer_is_the_same_after_a_harmless_way(way: Way) -> None:
    for seed in range(100, 104):
        text, expected = mixed(seed)
        assert told(answer(way(text))) == expected, (seed, way.__name__)


@cache
def mixed(seed: int) -> tuple[str, Any]:
    """A text of several, and what is told of it."""
    text = "\n".join(random.Random(seed).sample(TEXTS, 3))
    return text, told(answer(text.encode()))


@settings(max_examples=40)
@given(st.binary(max_size=400))
def test_any_bytes_are_read(raw: bytes) -> None:
    to_json(answer(raw).snapshot)


@settings(max_examples=25)
@given(st.text(max_size=300), st.sampled_from(TEXTS), st.text(max_size=300))
def test_any_text_around_a_message_is_read(before: str, message: str, after: str) -> None:
    to_json(read_report(before + message + after))


PICTURE = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" + bytes(random.Random(1).randbytes(4000))


@pytest.mark.parametrize(
    "raw", [b"", b"\n\n  \n", b"hello", PICTURE, b"\x00" * 5000, b"\xff\xfe", b"\xef\xbb\xbf"]
)
def test_what_says_nothing_is_unknown(raw: bytes) -> None:
    assert answer(raw).cause == "unknown"


def test_a_picture_is_binary_and_utf_16_is_not() -> None:
    assert is_binary(PICTURE)
    assert not is_binary("NVIDIA-SMI 535.104.05".encode("utf-16"))


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32", "cp1252"])
def test_the_usual_encodings(encoding: str) -> None:
    text = "Ça ne marche pas: libcudart.so.12 à l’écran, NVIDIA-SMI 535.104.05 pas là"
    assert decode(text.encode(encoding)) == text


def test_a_character_cut_at_the_end_loses_only_itself() -> None:
    raw = "CUDA error: 显卡".encode()
    assert decode(raw[:-1]).startswith("CUDA error: 显")


@each(
    "line",
    [
        "CUDA out of memory. Tried to allocate {}.00 GiB. GPU 0 has a total capacity of {}.00 GiB "
        "of which {}.0 MiB is free.",
        "name, memory.total [MiB]\nNVIDIA A100, {} MiB",
        "| N/A   30C    P0    50W / 400W |   {}MiB / {}MiB |      0%      Default |",
        "tmpfs {}G {}T {} 1% /dev/shm",
        "The NVIDIA driver on your system is too old (found version {}). torch {}.{} sm_{}",
    ],
)
def test_numbers_of_hundreds_of_digits_are_no_sizes(line: str) -> None:
    for digits in (400, 5000):
        answer = diagnose(read_report(line.replace("{}", "9" * digits)), load_catalog())
        assert answer.cause
