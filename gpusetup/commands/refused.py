"""What is said about words and options that a command does not take: what they mean here."""

from __future__ import annotations

import re
from argparse import Action, ArgumentParser
from collections.abc import Mapping
from difflib import get_close_matches

COMMANDS: Mapping[str, str] = {
    "install --undo": "uninstall remove rollback undo revert restore",
    "install --upgrade": "upgrade update",
    "--version": "version ver about",
    "monitor --once": "nvidia-smi smi gpustat",
    "resolve --explain": "versions compat",
    "doctor": "check diagnose status detect env collect-env fix why list show info",
    "resolve": "which find choose select match recommend search index",
    "install": "setup add pip uv conda get fetch download sync reinstall recover resume repair",
    "verify": "test prove validate selftest bench benchmark stress",
    "plan": "estimate fit size memory vram calculate predict oom",
    "tune": "optimize optimise autotune config batch-size",
    "monitor": "watch top stat dmon nvtop usage utilization log",
    "snapshot": "record save dump export",
    "snapshot diff": "compare diff",
    "fleet check": "node-check node health",
    "fleet slurm": "slurm prolog",
    "mcp --agents": "agents",
    "doctor --schema": "schema",
}
"""What to type -> what people call it."""

OPTIONS: Mapping[str, str] = {
    "--torch": "version torch-version pytorch pytorch-version torch-release spec",
    "--backend": "cuda cuda-version cudatoolkit toolkit rocm torch-backend variant device cpu",
    "--gpu": "i device devices gpu-name card arch capability sm compute-capability for-gpu",
    "--driver": "for-driver driver-version nvidia-driver",
    "--python": "n p env environment interpreter conda-env venv prefix target name user system",
    "--venv": "t env environment virtualenv prefix target path dir user break-system-packages",
    "--upgrade": "u update latest force-reinstall",
    "--yes": "force assume-yes no-input non-interactive",
    "--dry-run": "simulate preview check what-if",
    "--index": "i index-root index-url extra-index-url default-index mirror",
    "--offline": "f wheelhouse no-index find-links",
    "--undo": "rollback revert restore uninstall remove",
    "--from": "machine host snapshot replay file input load",
    "--report": "log text input stdin file read",
    "--explain": "why reason details",
    "--os": "platform system",
    "--output": "out outfile write to",
    "--level": "quick standard stress full deep",
    "--device": "cpu no-cuda",
    "--seconds": "duration time for timeout",
    "--context": "seq-len seqlen sequence-length max-length max-seq-length ctx context-length",
    "--batch": "b batch-size bs global-batch-size per-device-batch-size",
    "--gpu-mem": "vram memory mem gpu-memory",
    "--gpus": "n-gpus num-gpus world-size nproc nproc-per-node nodes",
    "--amp": "mixed-precision precision autocast bf16 fp16",
    "--checkpointing": "gradient-checkpointing activation-checkpointing recompute",
    "--in-place": "inplace overwrite write apply",
    "--interval": "d delay every period loop l",
    "--keep-private": "raw full no-redact unredacted",
    "--json": "format-json",
}
"""Option -> what other tools and people call it."""
LEFT: Mapping[str, str] = {
    "learn": "`gpusetup fleet check --json > FILE` writes the profile of this node;",
    "project": "`gpusetup install --project FILE` pins torch in a project;",
    "recover": "the next `gpusetup install` finishes what was interrupted;",
    "installer": "uv installs, or conda if conda installed torch;",
    "list": "`gpusetup doctor --explain` without an id lists all findings;",
}
"""An option of earlier editions -> what is done today."""


def command_meant(word: str) -> str | None:
    """The command that a word means; None where none is near.

    >>> command_meant("test"), command_meant("docter"), command_meant("nvtop")
    ('verify', 'doctor', 'monitor')
    """
    plain = word.lower().strip("-")
    by_meaning = [way for way, words in COMMANDS.items() if plain in words.split()]
    return next(iter(by_meaning or get_close_matches(plain, COMMANDS, 1)), None)


def choice_meant(message: str) -> str | None:
    """What was probably meant by a choice that argparse refuses."""
    wrong = re.search(r"invalid choice: '([^']*)' \(choose from (.*)\)", message)
    near = wrong and get_close_matches(wrong[1], wrong[2].replace("'", "").split(", "), 1)
    return f"did you mean `{near[0]}`?" if near else None


def option_meant(name: str, parser: ArgumentParser) -> str | None:
    """A command's own options of the meaning of another one, three at most."""
    options = parser._option_string_actions
    if " " not in parser.prog or name in options:
        return "options come after the command, as in `gpusetup doctor --json`;"
    plain = name.lower().lstrip("-").replace("_", "-")
    if plain in LEFT:
        return LEFT[plain]
    called = [own for own in options if plain in (own[2:], *OPTIONS.get(own, "").split())]
    near = called[:3] or get_close_matches(f"--{plain}", options, 1, 0.8)
    lines = dict.fromkeys(f"`{option_line(options[one])}`" for one in near)
    return f"did you mean {' or '.join(lines)}?" if lines else None


def option_line(action: Action) -> str:
    """`--torch SPEC`, as it can be typed."""
    long = next((n for n in action.option_strings if n.startswith("--")), action.option_strings[0])
    if action.nargs == 0:
        return long
    return f"{long} {action.metavar or '|'.join(map(str, action.choices or ['VALUE']))}"


WORDS = {
    "--report": r"-|.*\.(?:txt|log)|.*(?:\s|://).*",
    "--from": r".*\.json|[a-z\d]+(?:-[a-z\d]+)*",
    "--device": r"cpu|cuda.*",
}
"""An option -> what people give without it."""


def word_refused(word: str, options: Mapping[str, Action]) -> str | None:
    """The option that a bare word is probably a value of."""
    meant = [o for o, p in WORDS.items() if o in options and re.fullmatch(p, word)]
    return f"did you mean `{option_line(options[meant[0]])}`?" if meant else None
