"""The index of error messages, and the answer to each: what doctor says to that text and no other.

A message stands in the group of its finding; one that two findings share is one entry with an
answer for each.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import NamedTuple

from finding_pages import Said, cell, found, messages, sentence, ways

from gpusetup.diagnosis.knowledge import record
from gpusetup.findings.layers import Layer
from gpusetup.model.finding import Fix
from gpusetup.render.text import needs, ways_beside


class Group(NamedTuple):
    """Messages that somebody looks for together, by the beginnings of their findings' ids, else by
    the layers that those act in."""

    title: str
    layers: tuple[Layer, ...] = ()
    ids: tuple[str, ...] = ()


COMPILING = (
    *("build-isolation-", "compiler-", "cuda-toolkit-", "cxx-standard-", "extension-not-built"),
    *("extension-too-old", "ninja-missing"),
)
KERNELS = (
    *("bf16-", "cuda-library-error", "cuda-program-error", "gpu-too-old-for-", "jit-", "ptx-"),
    *("triton-", "xid-of-a-program"),
)
GROUPS = (
    Group(
        "PyTorch does not use the GPU",
        (Layer.NO_GPU, Layer.PROCESS, Layer.WHEEL),
        ("no-kernel-image", "torch-sees-no-gpu"),
    ),
    Group("The driver, nvidia-smi and the start of CUDA", (Layer.DRIVER, Layer.READINESS)),
    Group("Docker, Kubernetes and WSL", (Layer.BOUNDARY,)),
    Group("Installing with pip, uv or conda", (Layer.INSTALL,)),
    Group("Libraries beside torch", (Layer.LIBRARIES,), ("program-",)),
    Group("Compiling CUDA code", (), COMPILING),
    Group("Kernels, torch.compile and Triton", (), KERNELS),
    Group("Memory and workers of a program", (Layer.RUNNING,), ("torch-internal", "vram-")),
    Group("Several GPUs and nodes", (), ("invalid-device-", "nccl-", "port-in-use", "rdma-")),
    Group("The GPU itself", (Layer.HARDWARE, Layer.LOSSES)),
)


class Entry(NamedTuple):
    """One message with its answers."""

    message: str
    anchor: str
    rows: tuple[Said, ...]


def group_of(id: str) -> Group:
    """
    >>> group_of("nccl-timeout").title, group_of("shm-too-small").title
    ('Several GPUs and nodes', 'Memory and workers of a program')
    """
    named = (group for group in GROUPS if id.startswith(group.ids))
    place = record(id).place
    placed = (group for group in GROUPS if place is not None and place[0] in group.layers)
    return next(named, None) or next(placed)


@cache
def entries() -> Mapping[str, tuple[Entry, ...]]:
    """The title of a group -> its messages, by their letters."""
    by_text: dict[str, list[Said]] = {}
    for row in messages():
        by_text.setdefault(" ".join(row.message.split()), []).append(row)
    grouped: dict[str, list[Entry]] = {group.title: [] for group in GROUPS}
    anchors: set[str] = set()
    for text in sorted(by_text, key=str.lower):
        entry = Entry(text, free(slug(text), anchors), tuple(by_text[text]))
        grouped[group_of(entry.rows[0].finding).title].append(entry)
    return {title: tuple(rows) for title, rows in grouped.items()}


def slug(text: str) -> str:
    """
    >>> slug("RuntimeError: CUDA error: out of memory")
    'runtimeerror-cuda-error-out-of-memory'
    """
    return re.sub(r"[^a-z0-9]+", "-", text.lower())[:60].strip("-")


def free(anchor: str, taken: set[str]) -> str:
    number = 1
    while (name := anchor if number == 1 else f"{anchor}-{number}") in taken:
        number += 1
    taken.add(name)
    return name


# --- the index ------------------------------------------------------------------------------------

INDEX = """# Error messages

What programs print when CUDA does not work, and what it means. The message leads to the answer:
what to do, and the command. The finding says more: what proves it, what looks alike, the source.
Search this page for a few words of your message without its numbers; where it is not here, or
several are, `gpusetup doctor --report FILE` reads the whole text and names the root.

"""


def index(generated: str) -> str:
    parts = [generated, INDEX]
    parts += (f"- [{title}](#{slug(title)})\n" for title in entries())
    for title, rows in entries().items():
        parts += [
            "\n",
            heading(title),
            "| message | what it means | finding |\n| --- | --- | --- |\n",
        ]
        parts += map(in_index, rows)
    return "".join(parts)


def heading(title: str) -> str:
    return f'<a id="{slug(title)}"></a>\n\n## {title}\n\n'


def in_index(entry: Entry) -> str:
    means = " Or: ".join(plain(told(row)) for row in entry.rows)
    ids = ", ".join(f"[`{row.finding}`](findings.md#{row.finding})" for row in entry.rows)
    return f"| [{cell(entry.message)}](../faq.md#{entry.anchor}) | {means} | {ids} |\n"


def told(row: Said) -> str:
    one = found(row.text, row.finding)
    return sentence((one or record(row.finding)).title)


def plain(text: str) -> str:
    r"""A sentence of doctor's as Markdown: signs outside of code mean themselves.

    >>> plain("delete its __pycache__, `a < b*c`, a < b")
    'delete its \\_\\_pycache\\_\\_, `a < b*c`, a &lt; b'
    """
    parts = text.split("`")
    parts[::2] = [re.sub(r"(?=[*|])|(?=__)|(?<=_)(?=_)", r"\\", one) for one in parts[::2]]
    return "`".join(
        part.replace("<", "&lt;") if n % 2 == 0 else part for n, part in enumerate(parts)
    )


# --- the answers ----------------------------------------------------------------------------------

FAQ = """# Answers by error message

Each message has the answer that `gpusetup doctor --report FILE` gives to that line alone. A whole
log says more: the same message can have another cause, and doctor then names that one. Commands are
for an example of such a machine; `gpusetup doctor` on yours prints them for yours.

Search this page for a few words of your message, or use [the index](reference/messages.md).
"""


def answers(generated: str) -> str:
    parts = [generated, FAQ]
    for title, rows in entries().items():
        parts.append(f"\n{heading(title)}")
        for entry in rows:
            parts += answered(entry)
    return "".join(parts).rstrip() + "\n"


def answered(entry: Entry) -> Iterator[str]:
    yield f'<a id="{entry.anchor}"></a>\n\n### {code(entry.message)}\n\n'
    for row in entry.rows:
        if row.beside:
            beside = ", ".join(f"`{line.strip()}`" for line in row.beside.splitlines())
            yield f"Where the text also has {beside}:\n\n"
        elif len(entry.rows) > 1:
            yield "Where nothing else decides:\n\n"
        yield f"**{plain(told(row))}.** "
        yield from way(ways(row))
        yield f"More: [`{row.finding}`](reference/findings.md#{row.finding})\n\n"


def code(text: str) -> str:
    """
    >>> code("a | b"), code("`GLIBC_2.32'")
    ('`a | b`', "`` `GLIBC_2.32' ``")
    """
    return f"`` {text} ``" if "`" in text else f"`{text}`"


def way(fixes: Mapping[str, Fix]) -> Iterator[str]:
    if not fixes:
        yield "\n\n"
    for system, fix in fixes.items():
        yield f"{f'On {system}: ' if system else ''}{plain(fix.text)}{needs(fix)}.\n\n"
        commands, title = fix.commands, ""
        if not commands:
            title, commands = next((w for w in ways_beside(fix) if w[1]), ("", ()))
        yield f"{plain(title)}\n\n" if title else ""
        yield block(commands, system)


def block(commands: Sequence[str], system: str) -> str:
    windows = system == "Windows" or any(".exe" in line for line in commands)
    shell = "powershell" if windows else "sh"
    return f"```{shell}\n{chr(10).join(commands)}\n```\n\n" if commands else ""
