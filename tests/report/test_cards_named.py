"""The card that a person has is taken from their sentence; one that is gone or a number is not."""

from __future__ import annotations

from each_row import each

from gpusetup.api import read_report

NO_KERNEL = "\nCUDA error: no kernel image is available for execution on the device"
NAMED = (
    ("I switched from an RTX 3060 to an RTX 5070", "RTX 5070"),
    ("Moved from my GTX 1060 to a 5080 last week", "RTX 5080"),
    ("5070显卡报错", "RTX 5070"),
    ("グラボを5070に変えたらエラー", "RTX 5070"),
)
NO_CARDS = ("在2050年和2080个样本上", "图片1080的")


@each("sentence, name", NAMED)
def test_a_card_is_read_as_people_call_it(sentence: str, name: str) -> None:
    gpus = read_report(sentence + NO_KERNEL).snapshot.gpus
    assert [gpu.name for gpu in gpus or ()] == [name]


@each("sentence", NO_CARDS)
def test_a_number_is_no_card(sentence: str) -> None:
    assert not read_report(sentence + NO_KERNEL).snapshot.gpus


def test_a_card_that_was_replaced_by_another_makers_is_gone() -> None:
    text = "I switched from an RTX 3060 to an RX 9070 XT.\nFound no NVIDIA driver on your system"
    assert read_report(text).cause == "amd-gpu"
