"""`%load_ext gpusetup`, then `%gpusetup doctor`: a command's answer as its text.

The environment that is read is this kernel's, unless the line names another. A line that fails
shows its error as an answer, without a traceback.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Container, Iterator, Mapping
from pathlib import Path
from typing import Any

from gpusetup.causes.lenders import LENDERS, Lender
from gpusetup.commands.calling import Catcher
from gpusetup.commands.parser import COMMANDS, command, no_such_command, read_words
from gpusetup.errors import GpuSetupError, UsageError
from gpusetup.model.documents import DoctorAnswer, ErrorAnswer, InstallAnswer, VerifyAnswer
from gpusetup.render.console import told
from gpusetup.render.html import drawn
from gpusetup.render.language import plain

LIVE = ("doctor", "verify", "install")
ELSEWHERE = {"--from", "--report", "--project"}
"""Options about another machine than this one, or about a file."""
TARGETS = ELSEWHERE | {"--python", "--venv"}
"""Options that say what is read; without one it is this kernel's environment."""
LEFT_TO_TERMINALS = ("mcp", "completion", "fleet")
KINDS = {"--dry-run", "--yes", "-y", "--undo"}
WORTH_TELLING = ("install", "verify", "tune")
"""What takes long enough that its progress is shown."""


class Answer:
    """What a line answered: its document, and the text that a cell shows."""

    def __init__(self, document: object, text: str) -> None:
        self.document = document
        self.text = text

    def __repr__(self) -> str:
        return self.text.rstrip()

    def _repr_html_(self) -> str:
        return drawn(repr(self))


def load_ipython_extension(shell: Any) -> None:
    """What `%load_ext gpusetup` calls."""

    def gpusetup(line: str) -> Answer | None:
        """A command of gpusetup: `%gpusetup doctor`, `%gpusetup resolve`, `%gpusetup help`."""
        return asked(line)

    shell.register_magic_function(gpusetup, "line", "gpusetup")


def unload_ipython_extension(shell: Any) -> None:
    """What `%unload_ext gpusetup` calls."""
    shell.magics_manager.magics["line"].pop("gpusetup", None)


def asked(line: str) -> Answer | None:
    """The answer to a line; an error is one too. None where the line asked for what is printed."""
    try:
        words = words_of(line)
        parser, options = read_words(words)
        talks = options.command in WORTH_TELLING
        out = Catcher(
            lambda text: print(plain(text), file=sys.stderr) if talks else None, json=False
        )
        if options.command is None:
            return Answer(None, parser.format_help())
        out.output = options.output
        module = command(options.command)
        getattr(module, "caught", module.run)(options, out)
    except SystemExit:  # --help, --version and `--from list` print and end
        return None
    except Exception as problem:
        return _failed(problem)
    text = f"The answer is in {plain(out.output)}\n" if out.output else "".join(out.said)
    if isinstance(out.document, VerifyAnswer):
        text = verify_text(out.document)
    is_live = not ELSEWHERE & {word.partition("=")[0] for word in words}
    found = notes(out.document, lender_of(os.environ), loaded()) if is_live else ()
    return Answer(out.document, "\n\n".join((text.rstrip(), *map(plain, found))))


def _tell(text: str) -> None:
    sys.stderr.write(f"{plain(text)}\n")


def words_of(line: str) -> list[str]:
    """The line's words, with this kernel's Python as the target, and an installation that only
    shows its plan unless it says `--yes`. Raises UsageError."""
    lexer = shlex.shlex(line, posix=True)
    lexer.whitespace_split, lexer.commenters = True, ""
    lexer.escape = "" if sys.platform == "win32" else lexer.escape  # a backslash is a path's
    try:
        words = list(lexer) or ["doctor"]
    except ValueError as problem:
        raise UsageError(f"The line cannot be read: {problem}", "is a quote missing?") from None
    if words[0] not in COMMANDS and not words[0].startswith("-"):
        raise no_such_command(words[0])
    if words[0] in LEFT_TO_TERMINALS:
        raise UsageError(f"`gpusetup {words[0]}` is for a terminal", hint=f"`!gpusetup {line}`")
    said = {word.partition("=")[0] for word in words}
    if words[0] in LIVE and not said & TARGETS:
        words.append(f"--python={sys.executable}")
    if words[0] == "install" and not said & KINDS:
        words.append("--dry-run")
    return words


def verify_text(answer: VerifyAnswer) -> str:
    """The checks, one a line."""
    rows = (f"{c.status:8} {c.name} on {c.device}: {c.detail}".rstrip(": ") for c in answer.checks)
    return plain("\n".join((f"{answer.verdict}: torch {answer.torch}, CUDA {answer.cuda}", *rows)))


def _failed(problem: Exception) -> Answer:
    if not isinstance(problem, GpuSetupError):
        fault = f"gpusetup itself failed: {type(problem).__name__}: {problem}"
        problem = GpuSetupError(fault, hint="please report it")
    message, hint = told(problem)
    text = plain(f"error: {message}" + (f"\n\nhint: {hint}" if hint else ""))
    return Answer(ErrorAnswer(message=message, hint=hint, exit=problem.exit_code), text)


# --- what a notebook adds -----------------------------------------------------------------------

SIGNS = {
    "KAGGLE_KERNEL_RUN_TYPE": "Kaggle",
    "COLAB_GPU": "Google Colab",
    "COLAB_RELEASE_TAG": "Google Colab",
    "/opt/ml/metadata/resource-metadata.json": "SageMaker",
}
"""A variable or a file -> who lends the machine. Kaggle's image is made from Colab's, and has its
variables, too (mlflow/mlflow#21612, clearml/clearml#515, oegedijk/explainerdashboard#245)."""


def lender_of(environ: Container[str]) -> Lender | None:
    """Who lends the machine, if anybody."""
    found = (name for sign, name in SIGNS.items() if sign in environ or Path(sign).exists())
    return LENDERS.get(next(found, ""))


def loaded() -> dict[str, str]:
    """The packages of torch's family that this kernel has imported -> their versions."""
    modules = {name: sys.modules.get(name) for name in ("torch", "torchvision", "torchaudio")}
    found = {name: getattr(module, "__version__", None) for name, module in modules.items()}
    return {name: str(version) for name, version in found.items() if version}


def notes(document: object, lender: Lender | None, loaded: Mapping[str, str]) -> Iterator[str]:
    """Sentences below an answer about this machine: how its lender gives a GPU, and when to start
    the kernel again. `loaded`: packages that this kernel imported, with their versions."""
    installed: Mapping[str, str | None] = {}
    lacks_a_gpu = False
    if isinstance(document, InstallAnswer) and document.state == "planned":
        yield "Nothing was changed. `%gpusetup install --yes`, with the same options, does it"
    elif isinstance(document, InstallAnswer):
        installed = document.after
    elif isinstance(document, DoctorAnswer):
        installed = {"torch": document.snapshot.torch.version}
        lacks_a_gpu = not document.snapshot.gpus
    elif isinstance(document, VerifyAnswer):
        lacks_a_gpu = document.verdict == "failed" and not document.devices
    if lender and lacks_a_gpu:
        yield f"{lender.name} gave this notebook no GPU. {lender.gives_a_gpu}"
    for name, version in installed.items():
        if version and loaded.get(name, version) != version:
            yield (
                f"This kernel still has {name} {loaded[name]} loaded, installed is {version}. "
                f"Restart it: {lender.restart if lender else 'Kernel, Restart Kernel'}"
            )
