"""GPUs of AMD, Intel and Apple in sentences whose language has another script: `苹果M1`, `맥북 M2`.

Letters of all scripts are letters for a regular expression, so a name that stands between Chinese,
Japanese, Korean or Cyrillic letters has no word boundary. Such a text is read a second time, with
the makers' names in Latin letters and spaces in place of all other letters.
"""

from __future__ import annotations

import re

from gpusetup.messages import search
from gpusetup.messages.search import Text
from gpusetup.model.machine import Event
from gpusetup.model.patterns import lazy
from gpusetup.report import fields, hardware
from gpusetup.report.facts import GUESS, Facts
from gpusetup.report.field_claims import claims
from gpusetup.report.field_patterns import MAC, FieldPattern
from gpusetup.report.maker_words import other_makers_gpu

# Chinese, Japanese, Korean, Cyrillic, Hebrew, Arabic, Hindi and Thai letters.
OTHER_LETTERS = lazy(
    r"[\u0590-\u06ff\u0900-\u097f\u0e00-\u0e7f\u0400-\u04ff\u1100-\u11ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+"
)
LATIN_NAMES = (
    (r"苹果|蘋果|アップル|애플|эпп?л\w{0,2}|[أآ]بل", "Apple"),
    (r"マックブック|맥북 ?(?:프로|에어)?|макбук\w{0,2}|ماك ?بوك|מקבוק|แมคบุ[๊ค]?ก?|मैकबुक", "MacBook"),
    (r"맥 ?미니|мак ?мини", "Mac mini"),
    (r"(?<![가-힣])맥(?= ?(?:에서|은|을|OS|스튜디오|M\d))|(?<!\w)маке?(?!\w)", "my Mac"),
    (r"英特尔|英特爾|インテル|인텔|интел\w{0,2}|[إا]نتل", "Intel"),
    (r"锐炫|銳炫|아크(?= ?[AB]\d{3})|арк(?= ?[AB]\d{3})", "Arc"),
    (r"锐龙|銳龍|ライゼン|라이젠|райзен\w{0,2}", "Ryzen"),
    (r"镭龙|鐳龍|ラデオン|라데온|радеон\w{0,2}", "Radeon"),
    (r"(?<![\d.])[Мм](?=[1-5](?!\d))", "M"),
    (r"芯片|晶片|チップ|칩|чип\w{0,2}", "chip"),
    (r"シリコン|실리콘|силикон\w{0,2}", "Silicon"),
    # `在mac上`; not `windows和mac上`.
    (
        r"(?<=[Mm][Aa][Cc])(?<![和与及或跟/,][Mm][Aa][Cc]) ?(?:电脑|電腦|上|系统|系統|用户|で|の|에서)",
        "on my Mac",
    ),
    (r"(?<=苹果|蘋果) ?(?:电脑|電腦|笔记本|笔电|筆電|系统|系統)", "Mac"),
)
"""Names as a pattern of other letters -> how they are written in Latin letters."""
# A text that shows an NVIDIA GPU, or a second machine, says in its own words which of them failed.
NVIDIA_OR_ANOTHER_MACHINE = lazy(
    r"NVIDIA(?! driver)|GeForce|\b(?:RTX|GTX|Tesla)|nvidia-smi|英伟达|輝達|N卡|エヌビディア|엔비디아|нвидиа"
    r"|服务器|伺服器|サーバ|서버|сервер|ssh\b|colab|kaggle",
    re.I,
)


def in_latin_letters(text: Text) -> Text | None:
    """The text, line by line, with the names of GPUs and Macs in Latin letters and no other letters;
    None if it has only Latin letters, or shows an NVIDIA GPU or a second machine.

    >>> from gpusetup.report.cleaning import text_of
    >>> in_latin_letters(text_of("我用的是苹果M1芯片")).flat
    'Apple M1 chip'
    """
    if not OTHER_LETTERS.search(text.flat) or NVIDIA_OR_ANOTHER_MACHINE.search(text.flat):
        return None
    lines = [_line_in_latin_letters(line) for line in text.lines]
    return search.text_of(lines)


def _line_in_latin_letters(line: str) -> str:
    """A line with each known name in Latin letters, and a space for other letters."""
    for name, latin_name in LATIN_NAMES:
        line = re.sub(name, f" {latin_name} ", line)
    # The letter M may have been Cyrillic, so a space now stands behind it.
    line = re.sub(r"\bM (?=[1-5]\b)", "M", OTHER_LETTERS.sub(" ", line))
    return re.sub(r"\b([Mm][1-5])(?=\W)", lambda chip: chip[1].upper(), line)


# `Ryzen 780M`, `AMD graphics 780M`; GeForce cards of 2014 have such numbers, too.
RYZEN_GRAPHICS = lazy(r"\b(?:Ryzen|AMD)\b[^.\n]{0,24}?[ -]((?:6[68]0|7[468]0|8[24689]0)M)\b")
# `MacBook`, `Mac` beside its chip, `Apple M1`, `Apple Silicon`, `Apple MPS`.
MAC_PATTERNS = (
    FieldPattern(
        fields.OS_FAMILY,
        ("mac", "apple", "chip"),
        rf"{MAC}|\bApple (?:(?:M[1-9]|Silicon|chip|Mac)\b|[^.\n]{{0,6}}\b(?:MPS|mps)\b)|\bM[1-9](?: (?:Pro|Max|Ultra))? {{0,2}}chip\b",
        GUESS,
        value="macos",
    ),
    FieldPattern(
        fields.OS_MACHINE,
        ("mac", "apple", "chip"),
        r"\b(?:Mac(?:Book)?|Mac mini|Apple)\b[^.\n]{0,16}?\bM[1-9]\b|\bM[1-9](?: (?:Pro|Max|Ultra))? {0,2}(?:chip|Mac(?:Book)?)\b|\bApple Silicon\b",
        GUESS,
        value="aarch64",
    ),
)  # fmt: skip


def names_in_other_scripts(text: Text) -> Facts:
    """GPUs of AMD and Intel, and Macs, whose names stand between letters of another script."""
    latin_text = in_latin_letters(text)
    if latin_text is None:
        return
    known_vendors = {event.values["vendor"] for event in _gpus_of(text)}
    for event in _gpus_of(latin_text):
        if event.values["vendor"] not in known_vendors:
            yield event
    graphics = RYZEN_GRAPHICS.search(latin_text.flat)
    if graphics and "amd" not in known_vendors:
        source = latin_text.source(graphics.start())
        yield other_makers_gpu("amd", f"Radeon {graphics[1]}", source)
    yield from claims(latin_text, MAC_PATTERNS)


def _gpus_of(text: Text) -> list[Event]:
    """The events for the GPUs of other makers that a text names."""
    return [fact for fact in hardware.other_makers_gpu_events(text) if isinstance(fact, Event)]
