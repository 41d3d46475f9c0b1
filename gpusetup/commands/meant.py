"""What a mistyped or foreign word was probably meant to be: by meaning first, then by spelling.

The words are those of other tools (pip, uv, conda, torchrun, nvidia-smi) and of everyday speech.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Container, Iterable, Mapping, Sequence

from gpusetup.accelerators.makers import LABEL

COMMANDS: Mapping[str, str] = {
    "doctor": "check diagnose diagnosis status detect health env collect-env fix why",
    "resolve": "which find choose select match recommend search index",
    "install": "setup add pip uv conda get fetch download sync reinstall",
    "verify": "test prove validate selftest bench benchmark stress smoke",
    "plan": "estimate fit fits size memory vram calculate predict oom",
    "tune": "optimize optimise autotune config batch-size configure",
    "monitor": "watch top stat stats dmon nvtop live usage utilization log",
    "snapshot": "record save dump export capture",
    "schema": "json format",
    "completion": "complete autocomplete bash zsh",
}
"""Command -> what people call it."""

OPTIONS: Mapping[str, str] = {
    "--torch": "version torch-version pytorch pytorch-version release pin spec",
    "--backend": "b cuda cuda-version rocm hip torch-backend flavor flavour variant build device",
    "--cuda": "cuda-version cudatoolkit toolkit runtime",
    "--gpu": "i device devices gpu-name card accelerator arch sm compute-capability capability "
    "gpus id index",
    "--for-gpu": "gpu device card accelerator arch capability target host",
    "--driver": "driver-version nvidia-driver",
    "--for-driver": "driver driver-version nvidia-driver",
    "--python": "n p env environment interpreter executable py python-version conda-env venv "
    "prefix target name",
    "--venv": "t env environment virtualenv prefix target path root dir directory create location",
    "--upgrade": "u force update newest latest force-reinstall reinstall eager ignore-installed",
    "--yes": "force assume-yes no-input no-confirm non-interactive batch-mode confirm",
    "--dry-run": "simulate preview noop check what-if show print plan",
    "--index-root": "i index index-url extra-index-url default-index mirror registry proxy url "
    "repo repository",
    "--wheelhouse": "f offline no-index find-links links wheels no-network",
    "--download": "fetch download-only only-download dest wheel-dir",
    "--project": "pyproject requirements lock uv-project",
    "--undo": "rollback revert restore back uninstall remove",
    "--recover": "resume repair continue unlock abort",
    "--no-verify": "no-check skip-verify skip-tests no-test",
    "--installer": "tool manager use with mamba micromamba pip uv conda",
    "--from": "f machine host snapshot replay example file input load",
    "--report": "r log text paste input stdin file read",
    "--reports": "dir folder directory batch all-reports",
    "--save": "snapshot record dump out",
    "--keep-private": "raw full no-redact unredacted private",
    "--deep": "full thorough import complete slow extended",
    "--only": "filter id finding select",
    "--list": "ls findings ids",
    "--explain": "why reason reasons describe details matrix",
    "--strict": "werror fail fail-on-warning pedantic warnings-as-errors",
    "--timeout": "limit wait deadline max-time seconds",
    "--refresh": "online live fetch update no-cache sync",
    "--format": "f output-format style as type markdown yaml",
    "--os": "platform system",
    "--machine": "arch architecture cpu processor platform",
    "--glibc": "libc manylinux",
    "--json": "j machine-readable porcelain as-json parse",
    "--output": "out outfile out-file write to file o",
    "--no-color": "no-colour nocolor plain ascii color colour no-ansi",
    "--verbose": "debug trace log-level loglevel",
    "--level": "quick standard stress full deep depth mode",
    "--device": "gpu cuda cpu accelerator",
    "--seconds": "duration time length for timeout",
    "--expect": "assert require check min",
    "--baseline": "compare reference previous",
    "--model": "m name architecture checkpoint config hf huggingface",
    "--params": "size parameters model-size n-params num-params weights billions",
    "--context": "seq-len seqlen sequence-length seq-length max-length max-seq-length ctx "
    "context-length block-size n-ctx tokens max-model-len length",
    "--batch": "b batch-size bs bsz global-batch-size micro-batch-size per-device-batch-size",
    "--gpu-mem": "vram memory mem gpu-memory ram size",
    "--gpus": "n-gpus num-gpus ngpus world-size nproc devices nproc-per-node count nodes",
    "--amp": "mixed-precision precision half autocast bf16 fp16",
    "--dtype": "precision torch-dtype type",
    "--checkpointing": "gradient-checkpointing activation-checkpointing recompute remat",
    "--optimizer": "optim opt optimiser",
    "--strategy": "parallel parallelism ddp fsdp deepspeed zero sharding distributed",
    "--lora": "peft rank qlora lora-r adapter",
    "--frozen": "freeze",
    "--sp": "sequence-parallel ulysses cp context-parallel",
    "--tp": "tensor-parallel tensor-parallel-size",
    "--pp": "pipeline-parallel pipeline-parallel-size",
    "--code": "script module function train entry",
    "--safe": "margin headroom reserve conservative",
    "--max-batch": "find-batch largest-batch",
    "--max-context": "find-context longest",
    "--batch-size": "batch find-batch bs",
    "--grow-batch": "scale-batch bigger larger",
    "--in-place": "inplace overwrite write apply i",
    "--benchmark": "bench measure profile time compare",
    "--objective": "goal target optimise-for for",
    "--max": "limit max-batch ceiling",
    "--interval": "d delay every period rate n sampling refresh loop",
    "--once": "single one oneshot no-loop",
    "--csv": "log table spreadsheet export",
    "--html": "page chart plot",
    "--replay": "from file load recording",
}
"""Option -> what other tools and people call it."""

COMMON_WORDS = (
    "with from this that what where which them they only also there their into than then instead "
    "show given more name file size time such"
)
"""Words of a help text that say nothing about an option."""

MOST = 3

WAYS: Mapping[str, str] = {
    "install --undo": "uninstall remove rollback undo revert restore",
    "install --upgrade": "upgrade update",
    "install --recover": "recover resume repair",
    "--version": "version ver about",
    "doctor": "list show freeze info ls",
    "monitor --once": "nvidia-smi smi nvsmi gpustat",
    "resolve --explain": "versions matrix compat",
}
"""A command with its option -> what people call it."""


def command_meant(word: str) -> str | None:
    """The command that a word means; None where none is near.

    >>> command_meant("test"), command_meant("docter"), command_meant("nvtop")
    ('verify', 'doctor', 'monitor')
    """
    plain = word.lower().strip("-")
    if way := next((way for way, words in WAYS.items() if plain in words.split()), None):
        return way
    by_meaning = (name for name, words in COMMANDS.items() if plain in words.split())
    return next(by_meaning, None) or next(iter(_close(plain, COMMANDS, 0.6)), None)


def _close(text: str, known: Iterable[str], cutoff: float) -> list[str]:
    from difflib import get_close_matches

    return get_close_matches(text, [*known], 1, cutoff)


def options_meant(word: str, actions: Iterable[argparse.Action]) -> list[argparse.Action]:
    """The options of a command that a foreign one may mean, the likeliest first."""
    own = [action for action in actions if action.option_strings]
    plain = word.partition("=")[0].lower().lstrip("-").replace("_", "-")
    for way in (_by_meaning, _by_spelling, _by_parts, _by_help):
        if found := way(plain, own):
            return found[:MOST]
    return []


def _by_meaning(plain: str, own: Sequence[argparse.Action]) -> list[argparse.Action]:
    return [action for action in own if _called(plain, action)]


def _called(plain: str, action: argparse.Action) -> bool:
    return any(
        plain == name.lstrip("-") or plain in OPTIONS.get(name, "").split()
        for name in action.option_strings
    )


def _by_spelling(plain: str, own: Sequence[argparse.Action]) -> list[argparse.Action]:
    by_name = {name.lstrip("-"): action for action in own for name in action.option_strings}
    long = [name for name in by_name if len(name) > 1]
    return [by_name[name] for name in _close(plain, long, 0.7)]


def _by_parts(plain: str, own: Sequence[argparse.Action]) -> list[argparse.Action]:
    """`--torch-release`: the options that one of its words means, most words first."""
    parts = [part for part in plain.split("-") if len(part) > 2]
    score = {id(action): sum(_called(part, action) for part in parts) for action in own}
    best = max(score.values(), default=0)
    return [action for action in own if best and score[id(action)] == best]


def _by_help(plain: str, own: Sequence[argparse.Action]) -> list[argparse.Action]:
    """The options whose own help text speaks of it."""
    parts = {part for part in plain.split("-") if len(part) > 3} - {*COMMON_WORDS.split()}
    return [a for a in own if parts & set(re.findall(r"[a-z0-9]+", (a.help or "").lower()))]


GPU = r"((?:nvidia |geforce |tesla |quadro )*(?:[rg]tx|[a-z]{1,2}\d{2,4}|[tl]4|sm_?\d|titan).*)"
CARD = r"(\d{4}(?:[ -]?(?:ti|super|laptop))*)"
MODEL = r"(.*(?:qwen|llama|gpt|mistral|gemma|phi|bert|falcon|mixtral|deepseek|opt-|t5).*)"
WORDS = (
    (r"(?:py)?torch\s*(?:={1,2}\s*)?([<>!~\d].*)", "--torch"),
    (r"v?(\d+\.\d+(?:\.\d+)?(?:\+\w+)?)", "--torch"),
    (r"(-|.*\.(?:txt|log|md|xml|csv|html))", "--report"),
    (r"(.*\.json|[a-z0-9]+(?:-[a-z0-9]+)*-(?:laptop|desktop|wsl2?|container))", "--from"),
    (rf"({LABEL})", "--backend"),
    (MODEL, "--model"),
    (r"(\d+(?:[.,]\d+)?\s?[bm])", "--params"),
    (r"x?(\d{1,3})x?", "--gpus"),
    (GPU, "--gpu"),
    (GPU, "--for-gpu"),
    (CARD, "--gpu"),
    (CARD, "--for-gpu"),
)
"""Pattern -> the option that a bare word of it belongs to, where the command has it."""


def word_meant(word: str, options: Container[str]) -> tuple[str, str] | None:
    """The option, and its value, that a bare word stands for.

    >>> word_meant("torch==2.5.1", ("--torch",)), word_meant("RTX 4090", ("--for-gpu",))
    (('--torch', '2.5.1'), ('--for-gpu', 'RTX 4090'))
    """
    for pattern, option in WORDS:
        found = re.fullmatch(pattern, word, re.IGNORECASE)
        if found and option in options:
            return option, found[1]
    return None


def option_line(action: argparse.Action) -> str:
    """`--torch SPEC`, as it can be typed."""
    long = next((n for n in action.option_strings if n.startswith("--")), action.option_strings[0])
    if action.nargs == 0:
        return long
    return f"{long} {action.metavar or '|'.join(map(str, action.choices or ['VALUE']))}"
