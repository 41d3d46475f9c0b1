"""What is said about words and options that a command does not take: what they mean here."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from difflib import get_close_matches

from gpusetup.accelerators.makers import LABEL
from gpusetup.model.shell import own_word

OptionsOfEach = Callable[[], Iterable[tuple[str, Container[str]]]]
"""Every command with the names of its options, made when asked for."""

COMMANDS: Mapping[str, str] = {
    "install --undo": "uninstall remove rollback undo revert restore",
    "install --upgrade": "upgrade update",
    "install --recover": "recover resume repair",
    "--version": "version ver about",
    "monitor --once": "nvidia-smi smi gpustat",
    "resolve --explain": "versions matrix compat",
    "doctor": "check diagnose status detect env collect-env fix why list show info",
    "resolve": "which find choose select match recommend search index",
    "install": "setup add pip uv conda get fetch download sync reinstall",
    "verify": "test prove validate selftest bench benchmark stress",
    "plan": "estimate fit size memory vram calculate predict oom",
    "tune": "optimize optimise autotune config batch-size",
    "monitor": "watch top stat dmon nvtop usage utilization log",
    "snapshot": "record save dump export",
}
"""What to type -> what people call it."""

OPTIONS: Mapping[str, str] = {
    "--torch": "version torch-version pytorch pytorch-version torch-release spec",
    "--backend": "cuda-version rocm torch-backend variant build device",
    "--cuda": "cuda-version cudatoolkit toolkit runtime",
    "--gpu": "i device devices gpu-name card arch sm compute-capability",
    "--for-gpu": "gpu device card arch capability target host",
    "--for-driver": "driver driver-version nvidia-driver",
    "--python": "n p env environment interpreter conda-env venv prefix target name",
    "--venv": "t env environment virtualenv prefix target path dir",
    "--upgrade": "u update latest force-reinstall",
    "--yes": "force assume-yes no-input non-interactive",
    "--dry-run": "simulate preview check what-if",
    "--index-root": "i index index-url extra-index-url default-index mirror",
    "--wheelhouse": "f offline no-index find-links",
    "--undo": "rollback revert restore uninstall remove",
    "--from": "machine host snapshot replay file input load",
    "--report": "log text input stdin file read",
    "--explain": "why reason matrix details",
    "--os": "platform system",
    "--verbose": "debug trace log-level",
    "--output": "out outfile write to",
    "--level": "quick standard stress full deep",
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
}
"""Option -> what other tools and people call it."""

QUIET = (
    "what is said besides the answer goes to stderr: `2>/dev/null` hides it, the exit code tells"
)
WAYS: Sequence[tuple[str, str, str]] = (
    ("install resolve", "cpu cpuonly cpu-only no-cuda", "did you mean `--backend cpu`?"),
    ("verify", "cpu no-cuda", "did you mean `--device cpu`?"),
    ("install resolve", "requirement", "did you mean `-r {value}`?"),
    (
        "install resolve",
        "pre prerelease nightly",
        "`--torch nightly` takes the newest nightly, unproven; `--torch latest` is the newest "
        "release",
    ),
    (
        "install",
        "user system break-system-packages",
        "the environment is chosen by `--venv DIR` (made where it is not there) or `--python PATH`",
    ),
    (
        "doctor",
        "fix repair apply install yes y",
        "doctor changes nothing: it prints the commands; `gpusetup install` installs the torch "
        "that fits",
    ),
    ("", "q quiet silent s", QUIET),
)
"""Commands (all, where empty), options of others, and what to do instead: `{value}` followed it."""


def command_meant(word: str) -> str | None:
    """The command that a word means; None where none is near.

    >>> command_meant("test"), command_meant("docter"), command_meant("nvtop")
    ('verify', 'doctor', 'monitor')
    """
    plain = word.lower().strip("-")
    by_meaning = next((way for way, words in COMMANDS.items() if plain in words.split()), None)
    return by_meaning or next(iter(get_close_matches(plain, COMMANDS, 1)), None)


def said_plainly(message: str, options: Mapping[str, argparse.Action]) -> tuple[str, str | None]:
    """argparse's complaint in plain words, and what was probably meant."""
    named = re.match(r"argument ([^\s:]+)", message)
    name = named[1].split("/")[-1] if named else ""
    if given := re.search(r"ignored explicit argument '(.*)'", message):
        return f"`{name}` takes no value, so not {given[1]!r}", f"write `{name}` alone;"
    if number := re.search(r"invalid (float|int|seconds|seed) value: '(.*)'", message):
        is_real = number[1] in ("float", "seconds")
        kind = "a number" if is_real else "a whole number"
        digits = re.search(r"\d+(\.\d+)?" if is_real else r"\d+", number[2])
        meant = f"did you mean `{name} {digits[0]}`?" if digits else None
        return f"argument {name}: {number[2]!r} is not {kind}", meant
    wrong = re.search(r"invalid choice: '([^']*)'", message)
    if wrong is None:
        return message, None
    if name == "--format" and wrong[1] in ("json", "jsonl"):
        return message, "`--json` prints it;"
    known = [one.strip(" ')") for one in message.partition("(choose from")[2].split(",")]
    near = next(iter(get_close_matches(wrong[1], known, 1)), None)
    return message, f"did you mean `{near}`?" if near else None


def option_refused(
    name: str, value: str | None, parser: argparse.ArgumentParser, each: OptionsOfEach
) -> str | None:
    """What to do in place of an option that a command does not have."""
    options = parser._option_string_actions
    command = parser.prog.partition(" ")[2]
    if not command:
        return _before_the_command(name, each)
    if name in options:
        return f"options stand after the command: `{parser.prog} {name}`;"
    if name == "-V" or (name == "--version" and not value):
        return "`gpusetup --version` is about gpusetup itself;"
    plain = name.lower().lstrip("-").replace("_", "-")
    if way := _index_meant(plain, value, options) or _instead(plain, value, command):
        return way if way.endswith("?") else f"{way};"
    called = [own for own in options if plain == own[2:] or plain in OPTIONS.get(own, "").split()]
    near = called or get_close_matches(f"--{plain}", options, 1, 0.7)
    lines = {option_line(options[one]): options[one].help or "" for one in near[:3]}
    if len(lines) == 1:
        return f"did you mean `{next(iter(lines))}`?"
    width = max(map(len, lines), default=0)
    listed = "".join(f"\n  {line:{width}}  {text}".rstrip() for line, text in lines.items())
    return f"did you mean one of these?{listed}" if lines else None


def _before_the_command(name: str, each: OptionsOfEach) -> str | None:
    """An option without a command, or ahead of it: the first command that has it."""
    for command, options in each():
        if name in options:
            return f"options stand after a command: `gpusetup {command} {name}`;"
    near = get_close_matches(name, ("--help", "--version"), 1, 0.7)
    return f"did you mean `gpusetup {near[0]}`?" if near else None


def _instead(plain: str, value: str | None, command: str) -> str | None:
    for commands, names, way in WAYS:
        if plain in names.split() and (not commands or command in commands.split()):
            return way.format(value=own_word(value) if value else "VALUE")
    return None


def _index_meant(plain: str, value: str | None, options: Container[str]) -> str | None:
    """pip's way to a build, `--index-url ROOT/cu124`, in our words.

    >>> _index_meant("index-url", "https://download.pytorch.org/whl/cu124", ("--index-root",))
    'did you mean `--backend cu124`?'
    """
    from gpusetup.install.settings.index_root import root_and_backend

    if not plain.endswith(("index-url", "index-root")) or "--index-root" not in options:
        return None
    words = root_and_backend(value or "")
    return f"did you mean `{' '.join(words)}`?" if words else None


def option_line(action: argparse.Action) -> str:
    """`--torch SPEC`, as it can be typed."""
    long = next((n for n in action.option_strings if n.startswith("--")), action.option_strings[0])
    if action.nargs == 0:
        return long
    return f"{long} {action.metavar or '|'.join(map(str, action.choices or ['VALUE']))}"


GPU = r"((?:nvidia |geforce |tesla |quadro )*(?:[rg]tx|[a-z]{1,2}\d{2,4}|sm_?\d|titan).*|\d{4})"
WORDS = (
    (r"(?:py)?torch\s*(?:={1,2}\s*)?([<>!~\d].*)", "--torch"),
    (r"v?(\d+\.\d+(?:\.\d+)?(?:\+\w+)?)", "--torch"),
    (r"(-|.*\.(?:txt|log))", "--report"),
    (r"(.*\.json)", "--from"),
    (rf"({LABEL})", "--backend"),
    (GPU, "--gpu"),
    (GPU, "--for-gpu"),
)
"""Pattern -> the option that a bare word of it belongs to, where the command has it."""


def word_meant(word: str, options: Container[str]) -> tuple[str, str] | None:
    """The option, and its value, that a bare word stands for.

    >>> word_meant("torch==2.5.1", ("--torch",)), word_meant("2.5", ("--gpu",))
    (('--torch', '2.5.1'), None)
    """
    for pattern, option in WORDS:
        found = re.fullmatch(pattern, word, re.IGNORECASE)
        if found and option in options:
            return option, found[1]
    return None


def word_refused(
    word: str, parser: argparse.ArgumentParser, commands: Container[str]
) -> str | None:
    """What a bare word may mean where only options are taken."""
    from gpusetup.probe.saved import example_machines

    options = parser._option_string_actions
    if word in commands:
        return f"one command at a time: `gpusetup {word}`;"
    if word in example_machines() and "--from" in options:
        return f"did you mean `--from {word}`?"
    if named := word_meant(word, options):
        return f"did you mean `{named[0]} {own_word(named[1])}`?"
    if "--report" in options and re.search(r"\s|://", word):
        return "`--report -` reads a text from standard input, `--report FILE` from a file;"
    return None
