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

from gpusetup.catalog.file import load_catalog
from gpusetup.causes.layers import Layer
from gpusetup.diagnosis.diagnose import diagnose
from gpusetup.diagnosis.knowledge import record
from gpusetup.model.finding import Fix
from gpusetup.render.text import looks_of, needs, ways_beside
from gpusetup.report.read import read_bytes


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

This page lists what programs print when CUDA does not work, and what each message means.

- Search this page for a few words of your message, without its numbers. At the end the messages
  stand once more, [program by program](#by-program): vLLM, ollama, TensorFlow, JAX,
  ComfyUI, notebooks, Jetson, WSL, docker, Slurm.
- The first column is a link to the answer: what to do, and the command.
- The last column is a link to the finding: what proves it, what looks like it, and the source.
- If your message is not here, or your text has several, save the text in a file and run
  `gpusetup doctor --report FILE`. It reads all of it and names the root cause.

The sections of this page:

"""


def index(generated: str) -> str:
    parts = [generated, INDEX]
    parts += (f"- [{title}](#{slug(title)})\n" for title in (*entries(), "By program"))
    for title, rows in entries().items():
        parts += [
            "\n",
            heading(title),
            "| message | what it means | finding |\n| --- | --- | --- |\n",
        ]
        parts += map(in_index, rows)
    return "".join((*parts, *by_program()))


PROGRAMS = {
    "vLLM": r"vllm|cache blocks|KV cache|gpu_memory_utilization|infer device type|Bfloat16 is only",
    "llama.cpp and ollama": r"ollama|llama|ggml|gpu-layers|system memory \(|gpu VRAM|gpu\.go",
    "TensorFlow": r"cuda drivers on your machine|dlopen some GPU|dlerror|Num GPUs Available"
    r"|DNN library",
    "JAX": r"jaxlib|GPU/TPU|backend 'cuda'",
    "ComfyUI, Stable Diffusion and their nodes": r"xformers|torch is not able to use GPU"
    r"|not compiled with CUDA|triton|torchvision::nms|numpy",
    "flash-attn, bitsandbytes and other extensions": r"flash_?attn|flash-attn|FlashAttention"
    r"|bitsandbytes|undefined symbol|CUDA_HOME|nvcc",
    "Notebooks": r"No CUDA GPUs are available|Found no NVIDIA driver|No module named 'torch'",
    "Jetson": r"jetson|libcudnn\.so\.8|libcusparseLt",
    "WSL": r"blocked by the operating system|libcuda\.so|sh: nvidia-smi: command",
    "Docker and Kubernetes": r"docker|nvidia-container-cli|OCI|nvidia\.com/gpu|runtime name"
    r"|NVML: Unknown Error",
    "Slurm": r"slurm|srun|sbatch|gres|No CUDA GPUs are available",
}
"""A heading -> what its messages have in their words."""


FIRST = {
    "ComfyUI, Stable Diffusion and their nodes": "ComfyUI's portable version has a Python of its "
    "own; give its path to every command: "
    "[On Windows](../how-to/windows-and-wsl.md#comfyui-portable).\n\n",
    "Notebooks": "A notebook runs in the Python of its kernel, which may be another than the "
    "terminal's, and a lent one has a GPU only where you chose one: "
    "[In a notebook](../how-to/notebooks.md).\n\n",
    "Jetson": "A Jetson takes torch from its JetPack: [On a Jetson](../how-to/jetson.md).\n\n",
    "WSL": "WSL uses the driver of Windows: [In WSL](../how-to/windows-and-wsl.md#in-wsl).\n\n",
    "Docker and Kubernetes": "A container must ask for the GPU (`docker run --gpus all IMAGE`), "
    "and the host needs the driver and nvidia-container-toolkit: "
    "[Docker](../how-to/docker.md).\n\n",
    "Slurm": "A job sees only the GPUs that it asked for: `srun --gres=gpu:1 python train.py`, or "
    "`#SBATCH --gres=gpu:1` in its script. Without that, a program in it says `No CUDA GPUs are "
    "available`: [Slurm](../how-to/slurm.md).\n\n",
}
"""What is to be known first of a program."""


def by_program() -> Iterator[str]:
    """The same messages once more, by the program that prints them."""
    yield "\n" + heading("By program")
    gap = ""
    every = [entry for rows in entries().values() for entry in rows]
    for title, pattern in PROGRAMS.items():
        yield f"{gap}### {title}\n\n{FIRST.get(title, '')}"
        gap = "\n"
        for entry in every:
            if re.search(pattern, entry.message, re.IGNORECASE):
                yield f"- [{code(entry.message)}](../faq.md#{entry.anchor})\n"


def heading(title: str) -> str:
    return f'<a id="{slug(title)}"></a>\n\n## {title}\n\n'


def in_index(entry: Entry) -> str:
    means = "<br>or: ".join(map(meant, entry.rows))
    ids = ", ".join(f"[`{row.finding}`](findings.md#{row.finding})" for row in entry.rows)
    return f"| [{cell(entry.message)}](../faq.md#{entry.anchor}) | {means} | {ids} |\n"


SHOWN = 60


def meant(row: Said) -> str:
    """What a message means, and what else the text must have for it."""
    if not row.beside:
        return plain(told(row))
    line = row.beside.splitlines()[0].strip()
    line = line if len(line) <= SHOWN else f"{line[:SHOWN]}..."
    return f"{plain(told(row))} (if the text also has {cell(line)})"


def told(row: Said) -> str:
    """Doctor's own words: a name at their head stays as it is written."""
    one = found(row.text, row.finding)
    return one.title if one else sentence(record(row.finding).title)


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

Each message below has the answer that `gpusetup doctor --report FILE` gives where FILE has that
message and nothing else. Give doctor your whole log if you can: one message has several causes, and
the rest of the log shows which one it is. The versions in the commands are examples. Run `gpusetup
doctor` on your machine: it prints the commands for it.

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
            others = [one.strip() for one in row.beside.splitlines() if one not in row.message]
            beside = " and ".join(f"`{one}`" for one in others if one not in row.message)
            yield f"If your text also has {beside}:\n\n"
        elif len(entry.rows) > 1:
            yield "If you have only this message:\n\n"
        yield f"**{plain(told(row))}.** "
        yield from way(ways(row))
        yield left_open(row)
        yield f"More: [`{row.finding}`](reference/findings.md#{row.finding})\n\n"


def left_open(row: Said) -> str:
    """What else the message may mean, and the command that decides, where doctor says so."""
    answer = diagnose(read_bytes(row.text.encode()), load_catalog())
    if answer.cause != row.finding or not answer.next_reading:
        return ""
    ids = (f"[`{id}`](reference/findings.md#{id})" for id in answer.other_causes)
    return f"Or it is {' or '.join(ids)}. What decides: {code(answer.next_reading)}.\n\n"


def code(text: str) -> str:
    """
    >>> code("a | b"), code("`GLIBC_2.32'")
    ('`a | b`', "`` `GLIBC_2.32' ``")
    """
    return f"`` {text} ``" if "`" in text else f"`{text}`"


def way(fixes: Mapping[str, Fix]) -> Iterator[str]:
    if not fixes:
        yield "\n\n"
    shown: list[object] = []
    for system, fix in fixes.items():
        yield f"{f'On {system}: ' if system else ''}{plain(fix.text)}{needs(fix)}.\n\n"
        beside = (*looks_of(fix), *ways_beside(fix))
        typed = (fix.commands, [commands for _, commands in beside])
        if typed in shown and fix.commands:
            yield "The commands are the same.\n\n"
            continue
        shown.append(typed)
        yield block(fix.commands, system)
        for title, commands in beside:
            yield f"{plain(title)}\n\n{block(commands, system)}"


def block(commands: Sequence[str], system: str) -> str:
    windows = system == "Windows" or all(".exe" in line for line in commands)
    shell = "powershell" if windows else "sh"
    return f"```{shell}\n{chr(10).join(commands)}\n```\n\n" if commands else ""
