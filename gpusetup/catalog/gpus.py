"""GPUs by name: whole tokens of the catalog's names and of what `nvidia-smi` prints.

Vendor words may be left out, `80GB` and `80 GB` are the same, and Laptop, Mobile and Max-Q name
one family.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache

from gpusetup.accelerators.amd import BUILT_FOR, RELATIVES
from gpusetup.accelerators.makers import APPLE, Maker
from gpusetup.accelerators.other_gpus import APPLE_CHIP, maker_named, other_gpu
from gpusetup.errors import Unsatisfiable, UsageError
from gpusetup.model.frozen import Frozen
from gpusetup.model.machine import Gpu
from gpusetup.model.versions import Capability

VENDOR_WORDS = frozenset(
    "nvidia corporation gpu graphics card fe founders edition oc asus msi gigabyte zotac tuf "  # noqa: SIM905
    "gaming".split()
)
"""Words that never tell two GPUs apart: NVIDIA's, and those of who makes the boards."""

SERIES_WORDS = frozenset({"geforce", "tesla", "quadro"})
"""Words that may be left out, unless they do tell two GPUs apart (Quadro RTX 6000)."""

LINES = frozenset({"gtx", "rtx"})
"""Lines of cards that people take for each other; the number tells the card ("GTX 5090")."""

SAME_WORD = {
    "mobile": "laptop",
    "maxq": "laptop",
    "design": "",
    "with": "",
    "gb": "",
    "generation": "",
}
"""Spellings of one thing; "" drops the word."""

PARTS = r"max-?q|\d+\s?g(?:i?b)?\b|(?<![a-z])[gr]tx(?=a?\d)|\d+(?=(?:ti|super)\b)|[a-z0-9]+"

WRITTEN_CAPABILITY = r"(?!\d+$)(?:sm|compute|cc|arch)?[\s_-]*(\d{1,2}\.\d|\d{2,3})[af]?"
"""`sm_86`, `sm86`, `8.6`, `compute_90a`, `cc 8.6`."""


class GpuRow(Frozen):
    """One GPU of the catalog."""

    name: str
    capability: Capability
    smi_names: tuple[str, ...] = ()
    on: str | None = None
    """The only platform on which there is such a GPU: `linux-aarch64` of a GB200."""
    memory_gb: float | None = None
    tdp_w: float | None = None

    @property
    def memory_bytes(self) -> int | None:
        """The nominal size (`nvidia-smi` shows a little less)."""
        return None if self.memory_gb is None else int(self.memory_gb * (1 << 30))


@lru_cache(maxsize=1024)
def tokens(name: str) -> frozenset[str]:
    """The words of a GPU's name that count.

    >>> sorted(tokens("NVIDIA A100-SXM4-80GB")), sorted(tokens("rtx3080Ti Max-Q"))
    (['80gb', 'a100', 'sxm'], ['3080', 'laptop', 'rtx', 'ti'])
    """
    found = (_word(part) for part in re.findall(PARTS, name.lower()))
    return frozenset(word for word in found if word) - VENDOR_WORDS


def _word(part: str) -> str:
    part = part.replace("-", "")
    if re.fullmatch(r"\d+\s?gi?b?", part):
        return re.sub(r"\D", "", part) + "gb"
    return SAME_WORD.get(part, re.sub(r"^(sxm|nvl)\d+$", r"\1", part))


def rows_named(text: str, rows: Sequence[GpuRow]) -> tuple[GpuRow, ...]:
    """The GPUs that a text names: those of exactly that name, else all that hold all its words.

    Raises UsageError with the nearest names when there is none.
    """
    hits = rows_or_none(text, rows)
    if hits:
        return hits
    raise UsageError(f"No GPU is called {text!r}", hint=_nearest(text, rows))


def _not_proven(text: str, maker: Maker) -> Unsatisfiable:
    """Another maker's GPU, where only NVIDIA's are judged: its build of torch."""
    gfx = other_gpu(text, maker).target
    if gfx and gfx not in (*BUILT_FOR, *RELATIVES):
        return Unsatisfiable(f"{text!r} is AMD's {gfx}: no ROCm build of torch has kernels for it")
    index = f" --index-url {maker.index}" if maker.index else ""
    return Unsatisfiable(
        f"{text!r} is {maker.name}'s{f' {gfx}' if gfx else ''}: only NVIDIA GPUs are judged here",
        hint=f"`pip install torch torchvision{index}` installs torch for it; `gpusetup resolve "
        "--gpu NAME` says more",
    )


def rows_or_none(text: str, rows: Sequence[GpuRow]) -> tuple[GpuRow, ...]:
    """The same, () when there is none: the nearest names cost more than the whole diagnosis."""
    asked = tokens(text)
    core = asked - SERIES_WORDS
    ways: tuple[Callable[[frozenset[str]], bool], ...] = (
        lambda name: name == asked,
        lambda name: name - {"geforce", "tesla"} == asked - {"geforce", "tesla"},
        lambda name: core <= name,
        lambda name: core - LINES <= name,
    )
    for way in ways if core - LINES else ():
        hits = tuple(r for r in rows if any(way(tokens(one)) for one in (*r.smi_names, r.name)))
        if hits:
            return hits
    return ()


def _nearest(text: str, rows: Sequence[GpuRow]) -> str:
    import difflib

    names = {re.sub("^(geforce|tesla) ", "", row.name.lower()): row.name for row in rows}
    plain = text.strip().lower().removeprefix("nvidia ")
    near = [names[one] for one in difflib.get_close_matches(plain, names, 3, 0.5)]
    shown = f"the nearest: {', '.join(near)}" if near else "use a name that `nvidia-smi -L` prints"
    return f"{shown}; or a capability such as `sm_86`"


def one_capability(text: str, rows: Iterable[GpuRow]) -> Capability:
    """The capability that all hits share; UsageError where they differ."""
    by: dict[Capability, str] = {}
    for row in rows:
        by.setdefault(row.capability, row.name)
    if len(by) > 1:
        each = ", ".join(f"{name} ({capability})" for capability, name in sorted(by.items()))
        raise UsageError(
            f"{text!r} names GPUs of different capability: {each}", hint="name one of them"
        )
    return next(iter(by))


def one_memory(rows: Iterable[GpuRow]) -> int | None:
    """The memory that all hits share, in bytes; None where they differ."""
    sizes = {row.memory_bytes for row in rows}
    return sizes.pop() if len(sizes) == 1 else None


def gpu_described(text: str, rows: Sequence[GpuRow]) -> Gpu:
    """A GPU as somebody writes it: a name, `sm_86`, `sm86` or `8.6`.

    Raises UsageError for an unknown name and for a name of several capabilities, Unsatisfiable for
    another maker's.
    """
    if written := re.fullmatch(WRITTEN_CAPABILITY, text.strip().lower()):
        found = Capability.parse(written[1])
        return Gpu(name=found.sm, compute_capability=found)
    maker = maker_of_name(text, rows)
    if maker is not None:
        raise _not_proven(text, maker)
    hits = rows_named(text, rows)
    shared = one_capability(text, hits)
    name = hits[0].smi_names[0] if len(hits) == 1 and hits[0].smi_names else text.strip()
    return Gpu(name=name, compute_capability=shared, memory_total_bytes=one_memory(hits))


def maker_of_name(text: str, rows: Sequence[GpuRow]) -> Maker | None:
    """The maker of a GPU if it is not NVIDIA's. UsageError for a name that two makers have."""
    maker, nvidia = maker_named(text), rows_or_none(text, rows)
    if maker is None or not nvidia:
        return maker
    is_bare_chip = re.fullmatch(APPLE_CHIP, text.strip().lower())
    if maker is APPLE and is_bare_chip:
        chip = text.strip().upper()
        raise UsageError(
            f"{text!r} is a chip of Apple and a GPU of NVIDIA",
            hint=f"say `Apple {chip}` or `{nvidia[0].name}`",
        )
    return None


def gpu_of_any_maker(text: str, rows: Sequence[GpuRow]) -> Gpu:
    """A GPU as somebody writes it, whoever made it; UsageError for an unknown name."""
    maker = maker_of_name(text, rows)
    return gpu_described(text, rows) if maker is None else other_gpu(text, maker)


def platform_of(text: str, rows: Sequence[GpuRow]) -> str | None:
    """The only platform on which a named GPU is found: `linux-aarch64` of a GB200."""
    platforms = {row.on for row in rows_or_none(text, rows)}
    return platforms.pop() if len(platforms) == 1 else None
