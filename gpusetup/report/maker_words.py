"""GPUs of AMD, Intel and Apple that a text names in its labels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpusetup.accelerators.makers import AMD
from gpusetup.accelerators.other_gpus import maker_named
from gpusetup.messages.search import Text, line_source
from gpusetup.model.machine import Event
from gpusetup.model.patterns import lazy

NVIDIA_WORD = lazy(r"NVIDIA(?! driver)|GeForce|\b(?:RTX|GTX|Tesla)\b")


def other_makers_gpu(vendor: str, name: str, source: str) -> Event:
    """The event for a GPU that is not from NVIDIA."""
    return Event(
        kind="foreign-gpu",
        values={"vendor": vendor, "name": name},
        source=source,
        text=name,
    )


# --- labels ---------------------------------------------------------------------------------------

LABEL_WORDS = (
    *("gpu", "graphics", "video card", "videocard", "display adapter", "vga", "accelerator"),
    *("grafikkarte", "carte graphique", "tarjeta gráfica", "placa de vídeo", "scheda video"),
    *("karta graficzna", "видеокарта", "显卡", "顯示卡", "グラボ", "グラフィックボード", "그래픽"),
)
"""Words for a GPU in labels, in lower case."""
LABEL = (
    r"(?:my |your )?(?:gpus?|graphics(?: (?:card|adapter))?|video ?card|display adapter|vga|accelerator"
    r"|grafikkarte|carte graphique|tarjeta gráfica|placa de vídeo|scheda video|karta graficzna"
    r"|видеокарта|显卡|顯示卡|グラボ|グラフィックボード|그래픽 ?카드)(?: ?(?:model|name|型号|モデル))?"
)
# `GPU: Instinct MI60`, `- Graphics card = Intel Data Center GPU Flex 170`, `| GPU | RX 6800 |`.
LABELLED = lazy(rf"(?i)^\W{{0,6}}{LABEL}\W{{0,4}}[:=：|]\W{{0,4}}(\S.{{1,60}})$")
"""A line that names the GPU after a label, and its value."""
# `### GPU`, `**Graphics card**`, `GPU:`; an issue's form has the answer below its heading.
HEADING = lazy(rf"(?i)^(?:#{{1,6}} |\*\*)?{LABEL}(?: \([^)]{{0,40}}\))?[:：?]?(?:\*\*)?[:：]?$")
"""A line with nothing but a label."""
LONGEST_NAME = 60
"""The most characters of a GPU's name in a line of its own. A longer line is a sentence."""


def labelled_gpus(text: Text) -> Iterator[Event]:
    """The GPUs of other makers that the text's own labels name, read as the option `--gpu` reads
    them."""
    if not text.has_any(LABEL_WORDS):
        return
    for index, line in enumerate(text.lines):
        label = LABELLED.match(line)
        if label is not None:
            yield from _gpu_in_a_value(label[1], index + 1)
        elif HEADING.match(line.strip()):
            yield from _gpu_below(text.lines, index + 1)


def _gpu_below(lines: Sequence[str], first: int) -> Iterator[Event]:
    """The GPU in the first line with words from index `first` on, if that line is short."""
    for index, line in enumerate(lines[first : first + LINES_TO_AN_ANSWER], first):
        value = line.strip()
        if not value:
            continue
        if len(value) <= LONGEST_NAME:
            yield from _gpu_in_a_value(value, index + 1)
        return


LINES_TO_AN_ANSWER = 3
"""The answer stands at most this many lines below its heading, the empty ones counted."""


def _gpu_in_a_value(value: str, line_number: int) -> Iterator[Event]:
    """The GPU that the value of a label names, if another maker than NVIDIA made it."""
    name = value.strip(" *`|-")
    # `GPU: NVIDIA RTX 3060 and the processor's Radeon` names a GPU that CUDA can use.
    if NVIDIA_WORD.search(name):
        return
    maker = maker_named(name)
    if maker is None:
        return
    # "Intel" alone may be the old graphics of a processor, which torch has no build for. AMD's
    # processors, on the other hand, are rarely called a GPU.
    names_a_model = any(character.isdigit() for character in name)
    if names_a_model or maker is AMD:
        yield other_makers_gpu(maker.id, name, line_source(line_number))
