"""Recognises the kind of a program, such as a server or a notebook, from its command line or
process name, and which processes hold a GPU's memory. Pure functions.

The kind matters because advice for a training (workers, accumulation, torchrun) does not suit a
server, a notebook or a simulation.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from gpusetup.model.units import GIB
from gpusetup.monitor.documents import ProcessUse

PROGRAMS = (
    (
        "server",
        r"vllm|sglang|tritonserver|text-generation-(launcher|inference|server)|uvicorn"
        r"|gunicorn|hypercorn|ollama|llama-server|trtllm-serve|torchserve|api_server|lmdeploy"
        r"|(^|[ /_.-])(serve|server|serving|api)([ ._-]|$)|gradio|streamlit|comfyui",
    ),
    (
        "notebook",
        r"jupyter|ipykernel|ipython|(^|[ /])notebook|colab|\.ipynb|marimo|spyder",
    ),
    # Neither trains: simulations of physics, renderers, and models that only answer.
    (
        "inference",
        r"(^|[ /])(gmx(_mpi)?|mdrun|lmp(_\w+)?|namd\d?|pmemd[\w.]*|cp2k[\w.]*|vasp\w*"
        r"|relion\w*|amber\w*|fluent|hashcat|blender|ffmpeg|octane\w*)( |$)|openmm|lammps|gromacs"
        r"|(^|[ /_-])(infer(ence)?|generate|predict|evaluate|eval|sample|transcribe|embed"
        r"|encode|benchmark_throughput)([ ._-]|$)|lm_eval|llama-cli|whisper",
    ),
)
"""A kind, and a pattern for a command's words or a process name in lower case. The first pattern
that matches gives the kind; a command that matches none counts as a training."""


def kind_of(command: Sequence[str] | None, names: Sequence[str] = ()) -> str:
    """The kind of a program, judged by its command line or, if there is none, by the names of its
    processes.

    An unrecognised command counts as `training`; unrecognised process names give `""`.

    >>> kind_of(("python", "-m", "vllm.entrypoints.openai.api_server")), kind_of(None, ("gmx",))
    ('server', 'inference')
    >>> kind_of(("python", "train.py", "--model", "vit-s")), kind_of(None)
    ('training', '')
    """
    # Windows paths contain backslashes.
    text = " ".join(without_options(command) if command else names).lower().replace("\\", "/")
    for kind, pattern in PROGRAMS:
        if re.search(pattern, text):
            return kind
    return "training" if command else ""


def without_options(command: Sequence[str]) -> tuple[str, ...]:
    """The words of a command that are neither options nor (probably) values of options."""
    words = []
    for previous, word in zip(("", *command), command, strict=False):
        # In `--eval yes`, the word after an option may be its value, unless it is a program.
        follows_option = previous.startswith("-") and previous != "-m"
        is_program = word.endswith((".py", ".ipynb", ".sh"))
        if not word.startswith("-") and (is_program or not follows_option):
            words.append(word)
    return tuple(words)


COMPUTES = re.compile(r"python|(^|/)(java|julia|matlab|rscript|pt_main_thread)")
"""Matches interpreters that run computations; `pt_main_thread` is torch's name for its process."""


def is_display(process: ProcessUse) -> bool:
    """Whether a process on a GPU only draws on the screen, judged by its kind and its name.

    On Windows, any program that draws a window is listed with both kinds. On other systems, some
    desktop programs are too.

    >>> is_display(ProcessUse(pid=1, name="python", kind="both")), is_display(ProcessUse(pid=1))
    (False, False)
    >>> is_display(ProcessUse(pid=1, name="msedge.exe", kind="both"))
    True
    """
    name = (process.name or "").lower().replace("\\", "/")
    # An interpreter and a program of a known kind compute, even if they draw too.
    if process.kind == "both":
        return not (COMPUTES.search(name) or kind_of(None, (name,)))
    return process.kind == "graphics"


# --- processes that hold a GPU's memory -----------------------------------------------------------

WAITING_KINDS = ("server", "notebook")
"""Kinds of programs that keep their memory while they wait for users."""


def named_with_size(process: ProcessUse) -> str:
    """The program's name without its folder, the pid, and how much GPU memory it uses.

    >>> named_with_size(ProcessUse(pid=71, name="/usr/bin/ollama", memory_bytes=3 << 30))
    'ollama (PID 71, 3.0 GiB)'
    """
    # nvidia-smi may show options behind the path.
    path = (process.name or "a process").replace("\\", "/").partition(" -")[0]
    name = path.rpartition("/")[2]
    details = f"PID {process.pid}"
    # Windows reports no memory of a process.
    if process.memory_bytes:
        details += f", {process.memory_bytes / GIB:.1f} GiB"
    return f"{name} ({details})"
