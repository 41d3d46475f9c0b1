"""Finds GPUs by name: compares whole words with the catalog's names and with what `nvidia-smi`
prints.

Vendor words may be left out, `80GB` and `80 GB` are the same, and Laptop, Mobile and Max-Q mean the
same family.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache

from gpusetup.accelerators.makers import APPLE, Maker
from gpusetup.accelerators.other_gpus import maker_named, other_gpu
from gpusetup.errors import UsageError
from gpusetup.model.frozen import Frozen
from gpusetup.model.machine import Gpu
from gpusetup.model.versions import Capability

VENDOR_WORDS = frozenset(
    "nvidia corporation gpu graphics card fe founders edition oc asus msi gigabyte zotac tuf "  # noqa: SIM905
    "gaming".split()
)
"""Words that never distinguish two GPUs: NVIDIA's own, and those of board makers."""

SERIES_WORDS = frozenset({"geforce", "tesla", "quadro"})
"""Words that may be left out, unless they distinguish two GPUs (Quadro RTX 6000)."""

LINES = frozenset({"gtx", "rtx"})
"""Product lines that people confuse, for example in "GTX 5090". They may be wrong, because the
number alone identifies the card."""

SAME_WORD = {
    "mobile": "laptop",
    "maxq": "laptop",
    "design": "",
    "with": "",
    "gb": "",
    "generation": "",
}
"""Maps a word to its usual spelling; "" drops the word."""

SIZE = r"\d+(?:\.\d+)?\s?g(?:i?b)?\b"
"""A memory size in a name, such as `80GB`, `95.6 GiB` or `11G`."""

PARTS = re.compile(
    # GPUs for thin laptops: `Max-Q` or `maxq`.
    r"max-?q"
    rf"|{SIZE}"
    # The product line at the beginning of `rtx3080`, `gtx1080` or `RTXA6000`.
    r"|(?<![a-z])[gr]tx(?=a?\d)"
    # The number at the beginning of `3080Ti`, `4070super` or `4090D`.
    r"|\d+(?=(?:ti|super|d)\b)"
    r"|[a-z0-9]+"
)
"""Matches the words of a name in lower case. A text that people write as one word, such as
`rtx3080`, matches as two."""

WRITTEN_CAPABILITY = re.compile(
    # A number without a dot or prefix (`86`, `3090`) is a GPU's name and not a capability.
    r"(?!\d+$)"
    r"(?:sm|compute|cc|arch)?[\s_-]*"
    r"(\d{1,2}\.\d|\d{2,3})[af]?"
)
"""A compute capability as people write it: `sm_86`, `sm86`, `8.6`, `compute_90a`, `cc 8.6`."""


class GpuRow(Frozen):
    """A GPU in the catalog."""

    name: str
    capability: Capability
    smi_names: tuple[str, ...] = ()
    on: str | None = None
    """The only platform that has this GPU, such as `linux-aarch64` for a GB200."""
    memory_gb: float | None = None
    pci: str = ""
    """The PCI device ids of its boards, in hexadecimal, separated by spaces."""

    @property
    def memory_bytes(self) -> int | None:
        """The nominal memory size; `nvidia-smi` shows a little less."""
        return None if self.memory_gb is None else int(self.memory_gb * (1 << 30))


JETSON = frozenset({"orin", "thor", "xavier", "nano"})
"""Words in the names of Jetson boards and their GPUs."""
UNIFIED = JETSON | {"gb10"}
"""Words in the names of GPUs that share the machine's memory."""


@lru_cache(maxsize=1024)
def tokens(name: str) -> frozenset[str]:
    """The words of a GPU's name that matter for a comparison.

    >>> sorted(tokens("NVIDIA A100-SXM4-80GB")), sorted(tokens("rtx3080Ti Max-Q"))
    (['80gb', 'a100', 'sxm'], ['3080', 'laptop', 'rtx', 'ti'])
    """
    # `_word` returns "" for a word without a meaning.
    return frozenset(map(_word, PARTS.findall(name.lower()))) - {""} - VENDOR_WORDS


def shares_memory(name: str, jetson: str | None = None) -> bool:
    """Whether a GPU of this name uses the machine's own memory. `jetson`: the release of Jetson
    Linux on the machine, if it runs one."""
    return bool(jetson) or not UNIFIED.isdisjoint(tokens(name))


def _word(part: str) -> str:
    """Normalise a word of a name, for example `80gb` for `80 GiB`, or `laptop` for `mobile`."""
    part = part.replace("-", "")
    if re.fullmatch(SIZE, part):
        digits = re.sub(r"[^\d.]", "", part)
        return f"{round(float(digits))}gb"
    # SXM4 and SXM5 are generations of one socket, which the GPU's name determines anyway.
    without_generation = re.sub(r"^(sxm|nvl)\d+$", r"\1", part)
    return SAME_WORD.get(part, without_generation)


def rows_named(text: str, rows: Sequence[GpuRow]) -> tuple[GpuRow, ...]:
    """The GPUs that the user means with a text. Raises UsageError with the most similar names if
    there is none."""
    matching_rows = rows_or_none(text, rows)
    if not matching_rows:
        raise UsageError(f"No GPU is called {text!r}", hint=_nearest(text, rows))
    return matching_rows


SIZE_WORD = re.compile(r"(\d+)gb")
SAME_SIZE = 0.08
"""By how much the memory size in a name may differ from the card's size in the catalog, as a
fraction.

Cards are sold with a round number and report less: an H20 with 96 GB reports 95 GiB, a T4 with 16
GB 15 GiB, and a B200 with 192 GB has 180. The two closest sizes in which a card is sold, 11 and 12
GB, differ by 8.3 %, so they stay distinct.
"""


def rows_or_none(text: str, rows: Sequence[GpuRow]) -> tuple[GpuRow, ...]:
    """The GPUs with exactly this name, otherwise all whose names contain all its words; empty if
    there are none.

    If the catalog's name has no memory size, one in the text selects among the cards ("L40S 48GB").
    No similar names are searched, because that takes longer than a whole diagnosis.
    """
    words = tokens(text)
    sizes = {word for word in words if SIZE_WORD.fullmatch(word)}
    # Require a word other than a memory size or a single letter, because these do not identify a
    # card: `../../x` is not a TITAN X.
    has_a_telling_word = any(len(word) > 1 for word in words - sizes)
    if not has_a_telling_word:
        return ()
    matching_rows = _rows_holding(words, rows)
    # A name may contain several sizes: `GH200 480GB (96 GB HBM3)` also names the CPU's memory.
    if matching_rows or len(sizes) != 1:
        return matching_rows

    # The text contains a memory size that the catalog's names lack, so it selects among the cards.
    # If a card's memory is unknown, accept every size.
    size = int(sizes.pop().removesuffix("gb"))
    return tuple(
        row
        for row in _rows_holding(words - {f"{size}gb"}, rows)
        if row.memory_gb is None or abs(row.memory_gb - size) <= SAME_SIZE * size
    )


def _rows_holding(words: frozenset[str], rows: Sequence[GpuRow]) -> tuple[GpuRow, ...]:
    """The rows whose name (or name in `nvidia-smi`) equals or contains all these words. The
    comparisons are tried from strict to loose, and the first one that any row passes decides. So
    `A10` does not match an `A10G`."""
    core = words - SERIES_WORDS
    core_without_line = core - LINES
    # Return nothing for words such as "GeForce RTX", because they do not identify a card.
    if not core_without_line:
        return ()
    # Unlike GeForce and Tesla, Quadro distinguishes two GPUs (Quadro RTX 6000 and RTX 6000 Ada).
    optional = frozenset({"geforce", "tesla"})
    comparisons: tuple[Callable[[frozenset[str]], bool], ...] = (
        lambda name: name == words,
        lambda name: name - optional == words - optional,
        lambda name: core <= name,
        lambda name: core_without_line <= name,
    )
    for matches in comparisons:
        matching_rows = tuple(
            row for row in rows if any(matches(tokens(name)) for name in (*row.smi_names, row.name))
        )
        if matching_rows:
            return matching_rows
    return ()


def _nearest(text: str, rows: Sequence[GpuRow]) -> str:
    """A hint that lists the names most similar to a text."""
    # Imported here because the import takes longer than most answers, and only a typing error needs
    # it.
    import difflib

    names = {re.sub("^(geforce|tesla) ", "", row.name.lower()): row.name for row in rows}
    typed = text.strip().lower().removeprefix("nvidia ")
    # Names that share less than half of their letters are not what the user meant.
    near = [names[name] for name in difflib.get_close_matches(typed, names, n=3, cutoff=0.5)]
    advice = "use a name that `nvidia-smi -L` prints"
    if near:
        advice = f"similar names are {', '.join(near)}"
    return f"{advice}, or a capability such as `sm_86`"


def one_capability(text: str, rows: Iterable[GpuRow]) -> Capability:
    """The compute capability of all rows for a name. Raises UsageError if the rows differ."""
    names: dict[Capability, str] = {}
    for row in rows:
        names.setdefault(row.capability, row.name)
    if len(names) > 1:
        variants = (f"{name} ({capability})" for capability, name in sorted(names.items()))
        raise UsageError(
            f"{text!r} names GPUs of different capability: {', '.join(variants)}",
            hint="name one of them",
        )
    return next(iter(names))


def one_memory(rows: Iterable[GpuRow]) -> int | None:
    """The memory size in bytes of all rows for a name; None if the rows differ."""
    sizes = {row.memory_bytes for row in rows}
    return sizes.pop() if len(sizes) == 1 else None


def gpu_described(text: str, rows: Sequence[GpuRow]) -> Gpu:
    """The GPU of any maker that a user describes with a name, `sm_86`, `sm86` or `8.6`. Raises
    UsageError for an unknown name and for a name with several capabilities."""
    written_capability = WRITTEN_CAPABILITY.fullmatch(text.strip().lower())
    if written_capability is not None:
        capability = Capability.parse(written_capability[1])
        return Gpu(name=capability.sm, compute_capability=capability)
    maker = maker_of_name(text, rows)
    if maker is not None:
        return other_gpu(text, maker)

    matching_rows = rows_named(text, rows)
    capability = one_capability(text, matching_rows)
    name = text.strip()
    # If the text means exactly one GPU, use the name that the driver would print.
    if len(matching_rows) == 1 and matching_rows[0].smi_names:
        name = matching_rows[0].smi_names[0]
    memory = one_memory(matching_rows)
    return Gpu(name=name, compute_capability=capability, memory_total_bytes=memory)


def maker_of_name(text: str, rows: Sequence[GpuRow]) -> Maker | None:
    """The maker of a GPU with this name; None if it is NVIDIA, or unknown."""
    maker = maker_named(text)
    # `GeForce 840M` is a name of NVIDIA's although `840M` is one of AMD's. But `M4` is Apple's chip
    # although NVIDIA has a Tesla M4, of which `maker_named` says None.
    is_of_nvidia = maker is not APPLE and rows_or_none(text, rows)
    return None if is_of_nvidia else maker


def platform_of(text: str, rows: Sequence[GpuRow]) -> str | None:
    """The platform of a GPU that only exists on one, such as `linux-aarch64` for a GB200; None for
    any other GPU."""
    platforms = {row.on for row in rows_or_none(text, rows)}
    return platforms.pop() if len(platforms) == 1 else None
