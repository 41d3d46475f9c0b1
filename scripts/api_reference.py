"""The page about `gpusetup.api`, from its signatures, the commands' own help and the documents."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from gpusetup import api
from gpusetup.commands.parser import command
from gpusetup.commands.question import Option, takes
from gpusetup.errors import CLASSES
from gpusetup.model.frozen import fields

COMMAND = {
    "diagnose": "doctor",
    "read_report": "doctor",
    "resolve": "resolve",
    "plan": "plan",
    "verify": "verify",
}
"""Function -> the command that it asks."""
EXAMPLES = {
    "diagnose": """
        >>> answer = diagnose("rtx3050-laptop")    # without an argument: this machine
        >>> answer.cause
        'torch-cpu-build'
        >>> answer.findings[0].fix.commands[0]
        'gpusetup install --python C:\\\\Users\\\\user\\\\project\\\\.venv\\\\Scripts\\\\python.exe'
    """,
    "read_report": """
        >>> read_report("CUDA driver version is insufficient for CUDA runtime version").cause
        'driver-too-old'
    """,
    "resolve": """
        >>> build = resolve(machine="rtx3050-laptop", torch="2.5.1")
        >>> build.backend, build.commands["pip"][0][-1]
        ('cu124', 'torchaudio==2.5.1+cu124')
    """,
    "plan": """
        >>> plan(model="qwen3-8b", context=32768, gpu="A100 80GB", gpus=4).recipe
        'SP=4'
        >>> plan(serve="vllm", model="qwen3-8b", gpu="RTX 4090").fits
        True
    """,
    "verify": """
        >>> verify(device="cpu", level="quick").verdict    # the torch of the active environment
        'passed'
    """,
}
"""Function -> what it answers, in a Python; `tests/commands/test_api.py` runs each."""
DOCUMENTS = (
    api.DoctorAnswer,
    api.ResolveAnswer,
    api.PlanAnswer,
    api.ServePlan,
    api.VerifyAnswer,
    api.Finding,
)


def page() -> str:
    """The whole page."""
    parts = ["# Python\n\n", f"{inspect.getdoc(api)}\n"]
    for name in COMMAND:
        parts += ["\n", *_function(name)]
    parts += ["\n## Errors\n\n", _errors(), "\n## Documents\n"]
    for kind in DOCUMENTS:
        parts += ["\n", *_document(kind)]
    return "".join(parts)


def _function(name: str) -> Iterator[str]:
    function: Callable[..., object] = getattr(api, name)
    yield f"## {name}\n\n{inspect.getdoc(function)}\n\n"
    yield f"```python\n{textwrap.dedent(EXAMPLES[name]).strip()}\n```\n\n"
    yield "| keyword | type | what |\n| --- | --- | --- |\n"
    for keyword, kind in keywords(name):
        yield f"| `{keyword}` | {_code(kind)} | {_cell(_help(COMMAND[name], keyword))} |\n"
    answers = inspect.signature(function).return_annotation
    yield f"\nReturns {' or '.join(_link(one) for one in answers.split(' | '))}.\n"


def keywords(name: str) -> list[tuple[str, str]]:
    """The parameters of a function with their types, as written."""
    if name == "plan":
        options = options_of(name)
        names = (key for key in options if key not in LEFT_OUT)
        return [(key, takes(options[key])) for key in ("machine", *names)]
    parameters = inspect.signature(getattr(api, name)).parameters.values()
    return [(str(one).partition(":")[0], str(one.annotation)) for one in parameters]


LEFT_OUT = ["machine", "cells"]
"""Options of `plan` that stand elsewhere in the table, or that nobody needs in Python."""


def options_of(name: str) -> dict[str, Option]:
    """The options of a command, by their names in Python."""
    options: dict[str, Option] = dict(command(name).QUESTION.OPTIONS)
    return options


OWN_WORDS = {
    "machine": "instead of this machine: an example machine's name, a snapshot's `Path`, or a "
    "`Snapshot`",
    "text": "the text to read: a string, or bytes in any encoding",
    "*packages": "packages to install together with torch, such as `vllm` or `jax[cuda13]`; "
    "gpusetup looks them up on your package index",
    "os": "the operating system: `linux`, `windows` or `macos`",
    "architecture": "the processor architecture: `x86_64` or `aarch64`",
    "requirements": "requirements files, each with packages that must fit together with torch",
    "explain": "list all reasons for each build that does not fit",
    "offline": "choose the versions of the packages from gpusetup's own table, without a network",
    "name": "print conda commands that create a new environment with this name",
    "params": "instead of `model`: the number of parameters, such as 7B",
    "optimizer": "the optimizer, such as adamw, adamw8bit or adafactor",
    "embedding": "embedding tables to add to the model, such as users=6040x64",
    "offload": "what to keep in RAM: optimizer, checkpoints",
    "sp": "the degree of sequence parallelism",
    "tp": "the degree of tensor parallelism",
    "pp": "the number of pipeline stages",
    "cp": "the degree of context parallelism",
    "ep": "the degree of expert parallelism",
    "strategy": "how the GPUs share the work: ddp, fsdp, zero2, dp (DataParallel), ...",
    "only": "run only these checks, and the checks that they need; `CHECK/CASE` repeats a single "
    "case of `operators`",
    "seconds": "how many seconds the level `stress` runs (default: 60)",
    "seed": "the seed of all random numbers",
    "strict": "also fail if a check is skipped",
    "junit": "a file to which a JUnit XML report is also written",
}
"""Descriptions that differ from the help of the command line."""


def _help(command_name: str, keyword: str) -> str:
    if keyword in OWN_WORDS:
        return OWN_WORDS[keyword]
    option = options_of(command_name)[keyword]
    choices = ", ".join(f"`{choice}`" for choice in option.choices or ())
    return (option.help or choices).replace("%%", "%")


def _errors() -> str:
    rows = "".join(
        f"| `{kind.__name__}` | {code} | {_first(kind)} |\n" for code, kind in CLASSES.items()
    )
    return (
        "Every error is a `GpuSetupError` with `message`, `hint` and `exit_code`. If the "
        "cause is a bug in gpusetup, `exit_code` is 5 and `__cause__` is the original error.\n\n"
        f"| class | `exit_code` | what |\n| --- | --- | --- |\n{rows}"
    )


def _first(kind: type) -> str:
    return _cell((inspect.getdoc(kind) or "").partition("\n\n")[0])


def _document(kind: type) -> Iterator[str]:
    yield f"### {kind.__name__}\n\n"
    if kind.__doc__ and "(" not in kind.__doc__.partition("\n")[0][:20]:
        yield f"{_first(kind)}\n\n"
    yield "| field | type | what |\n| --- | --- | --- |\n"
    told = dict(_told(kind))
    for field in fields(kind):
        kind_of, what = told.get(field.name, ("", ""))
        if field.name == "schema":
            what = "The name and the version of the document's format."
        yield f"| `{field.name}` | {_code(kind_of)} | {_cell(what)} |\n"


def _told(kind: type) -> Iterator[tuple[str, tuple[str, str]]]:
    """Each field with its type as written and the text below it; those of bases too."""
    for base in reversed(kind.__mro__):
        if base.__module__.startswith("gpusetup.model") and base.__name__ != "Frozen":
            yield from _fields_of(ast.parse(inspect.getsource(base)).body[0].body)  # type: ignore[attr-defined]


def _fields_of(body: Iterable[Any]) -> Iterator[tuple[str, tuple[str, str]]]:
    lines = list(body)
    for line, after in zip(lines, [*lines[1:], None], strict=True):
        if isinstance(line, ast.AnnAssign):
            yield ast.unparse(line.target), (ast.unparse(line.annotation), _text(after))


def _text(node: object) -> str:
    """The text that a statement is; empty where it is another."""
    value = node.value if isinstance(node, ast.Expr) else None
    said = value.value if isinstance(value, ast.Constant) else None
    return said if isinstance(said, str) else ""


def _link(name: str) -> str:
    return f"[`{name}`](#{name.lower()})"


def _code(kind: str) -> str:
    return f"`{kind}`".replace("|", "\\|")


def _cell(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip().replace("|", "\\|")
