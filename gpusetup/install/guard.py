"""The guard: lines between two marks, in files that installers read, which forbid another torch.

An environment has a constraints file that pins torch and what was built for it, and lines that
make pip, conda and uv read it; a uv project has the pins in its own file. Nothing else in a file
changes, and `--undo` takes out what lies between the marks.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from configparser import Error, RawConfigParser
from difflib import ndiff
from pathlib import Path
from typing import Any, Literal

from packaging.version import InvalidVersion, Version

from gpusetup import named_file
from gpusetup.catalog.companion_table import companion_table, takes_torch
from gpusetup.errors import BadInput, Blocked, Unsatisfiable
from gpusetup.install.project import other_pins, parse, versions_named
from gpusetup.install.settings.pip_config import NAME as PIP
from gpusetup.install.settings.pip_config import pip_settings, without_content
from gpusetup.install.settings.uv_config import MARK, is_guard, names_settings, parse_toml
from gpusetup.install.switching.files import remove, write_safely
from gpusetup.model.frozen import Frozen
from gpusetup.model.shell import OWN_SYSTEM, own_line, setting, shell_for
from gpusetup.model.versions import allows
from gpusetup.system.refused import blocked_by_files

CONSTRAINTS = "gpusetup-constraints.txt"
PINNED = "conda-meta/pinned"
BEGIN, END = MARK, f"{MARK}: to here"
BLOCK = re.compile(rf"(?ms)^{BEGIN}.*?^{END}\r?\n?")
MOST_BYTES = 1 << 18
"""Of a file that is changed."""
CONDA_RECORD = re.compile(
    r"(pytorch|torch|libtorch|torchvision|torchaudio|pytorch-cuda|pytorch-gpu)"
    r"-([\w.!+]+)-([\w.!+]+)\.json"
)
"""conda's record of one of torch's family: name, version, build."""
State = Literal["shown", "written", "unchanged", "restored"]


class GuardFile(Frozen):
    """A file that is written, whole."""

    path: str
    text: str
    added: tuple[str, ...] = ()
    """The lines of it that are new."""


class GuardAnswer(Frozen):
    schema: Literal["gpusetup.guard/1"] = "gpusetup.guard/1"
    state: State
    target: str
    pins: Mapping[str, str] = {}
    """Name -> exact version of what is guarded; empty after `--undo`."""
    files: tuple[GuardFile, ...] = ()
    """Those that differ from what is there, or were written."""
    settings: Mapping[str, str] = {}
    """Tool -> the line that makes it read the constraints in this shell."""
    notes: tuple[str, ...] = ()


class Place(Frozen):
    """A file, and the lines that the guard has in it."""

    path: Path
    rows: tuple[str, ...]
    section: str = ""
    """The head of the section that they belong to; "": the top of the file."""
    read: Callable[[str], Mapping[str, Any]] = lambda _text: {}
    """What the file says: the lines may change nothing else of it."""


# --- what is guarded ------------------------------------------------------------------------------


def guarded(installed: Mapping[str, str]) -> dict[str, str]:
    """Torch and the companions that are installed, with their exact versions; torch first.

    `Unsatisfiable` without a torch. A version that is none cannot be held, and is left out.

    >>> guarded({"numpy": "2.0", "torchvision": "0.28.0+cpu", "torch": "2.13.0+cpu"})
    {'torch': '2.13.0+cpu', 'torchvision': '0.28.0+cpu'}
    """
    found = {}
    for name in sorted(installed, key=lambda name: (name != "torch", name)):
        if name == "torch" or companion_table().project(name):
            try:
                found[name] = str(Version(installed[name].replace("_", ".")))
            except InvalidVersion:
                continue
    if "torch" not in found:
        raise Unsatisfiable(
            "This environment has no torch to guard",
            hint="install it first: `gpusetup install`",
        )
    return found


def require_one_set(pins: Mapping[str, str]) -> None:
    """`Unsatisfiable` for a set that is known to be broken: a guard would keep this mismatch."""
    table = companion_table()
    for name, version in pins.items():
        project = table.project(name)
        if project and takes_torch(project, version, pins["torch"]) is False:
            raise Unsatisfiable(
                f"{name} {version} does not go with torch {pins['torch']}: a guard would keep this "
                "mismatch",
                hint=f"nothing was changed; `gpusetup install {name}` brings one that does",
            )


# --- where it is written --------------------------------------------------------------------------


def places_of(prefix: Path, pins: Mapping[str, str]) -> Iterator[Place]:
    """The files of an environment, and a `uv.toml` next to a `.venv` if no other settings of uv
    count there."""
    ours = named_in_lists(prefix / CONSTRAINTS)
    yield Place(path=prefix / CONSTRAINTS, rows=tuple(f"{n}=={v}" for n, v in pins.items()))
    environ = {name: said for name, said in os.environ.items() if not name.startswith("PIP_")}
    read_now = pip_settings(environ, Path.home(), str(prefix)).get("constraint", "").split()
    others = [one for one in read_now if one != ours]
    rows = (f"constraint = {' '.join((*others, ours))}",)
    yield Place(path=prefix / PIP, rows=rows, section="[install]", read=_ini)
    records = (CONDA_RECORD.fullmatch(one.name) for one in prefix.glob("conda-meta/*.json"))
    specs = sorted(f"{one[1]} =={one[2]} {one[3]}" for one in records if one)
    if specs or (prefix / PINNED).is_file():
        yield Place(path=prefix / PINNED, rows=tuple(specs))
    if place := uv_toml_next_to(prefix):
        yield Place(path=place, rows=_toml_rows(pins), read=parse_toml)


def place_in_project(path: Path, pins: Mapping[str, str]) -> Place:
    """The file of a uv project. In `pyproject.toml` a version has no label: `tool.uv.sources` says
    which build of it comes. `Unsatisfiable` if the project asks for another version itself."""
    path = Path(os.path.realpath(path))
    if path.name == "uv.toml":
        return Place(path=path, rows=_toml_rows(pins), read=parse_toml)
    public = {name: version.partition("+")[0] for name, version in pins.items()}
    for name, said in versions_named(parse(text_of(path)), public).items():
        if not allows(said.partition("+")[0], public[name]):
            raise Unsatisfiable(
                f"The project asks for {name}{said}, the environment has {name}=={public[name]}: "
                "uv could lock neither with a constraint",
                hint="nothing was changed; change that line, or install what it asks for",
            )
    return Place(path=path, rows=_toml_rows(public), section="[tool.uv]", read=parse_toml)


def places_to_clear(prefix: Path) -> tuple[Path, ...]:
    """The files that may hold lines of the guard; what makes others read the constraints first."""
    names = (PIP, PINNED, "../uv.toml", CONSTRAINTS)
    return tuple(Path(os.path.normpath(prefix / name)) for name in names)


def uv_toml_next_to(prefix: Path) -> Path | None:
    """The `uv.toml` that the guard may make: uv uses a `.venv` in its folder without being told."""
    folder, settings = prefix.parent, uv_settings_of(prefix)
    if prefix.name != ".venv" or folder == Path.home() or folder in Path.home().parents:
        return None
    return folder / "uv.toml" if settings is None or is_guard(settings) else None


def uv_settings_of(prefix: Path) -> Path | None:
    """The file of uv's settings that counts in the folder of a `.venv`."""
    folders = (prefix.parent, *prefix.parents[1:]) if prefix.name == ".venv" else ()
    for folder in folders:
        project = folder / "pyproject.toml"
        if (folder / "uv.toml").is_file():
            return folder / "uv.toml"
        if project.is_file() and (folder == prefix.parent or names_settings(project)):
            return project
    return None


def _toml_rows(pins: Mapping[str, str]) -> tuple[str, ...]:
    rows = (f'    "{name}=={version}",' for name, version in pins.items())
    return ("constraint-dependencies = [", *rows, "]")


def named_in_lists(path: Path) -> str:
    """How pip's and uv's lists, which are split at spaces, name a file."""
    return path.as_uri() if len(str(path).split()) > 1 else str(path)


# --- lines between two marks ----------------------------------------------------------------------


def text_of(path: Path) -> str:
    """A plain file's text, "" if it is not there; bytes that are no UTF-8 stay as they are."""
    if path.is_symlink():
        raise Blocked(f"{path} is a symbolic link", hint="nothing was changed; see what it is")
    try:
        return named_file.read(path, MOST_BYTES).decode("utf-8", "surrogateescape")
    except FileNotFoundError:
        return ""
    except OSError as problem:
        raise Blocked(f"{path} cannot be read: {problem.strerror}") from problem


def with_lines(place: Place, text: str, when: str) -> str:
    """The text with the guard's lines, which it may have already; `BadInput` if they would change
    what else it says.

    >>> print(with_lines(Place(path=Path("x"), rows=("a==1",)), "b<2", "today"), end="")
    # gpusetup guard, today: from here
    a==1
    # gpusetup guard: to here
    b<2
    """
    held = BLOCK.search(text)
    inside = held[0].split("\n") if held else ()
    if [one.rstrip("\r") for one in inside if one[:1] not in ("", "#", "[", "\r")] == [*place.rows]:
        return text
    own = without_lines(text)
    after = _inserted(place, own, when)
    wanted = _joined(place.read(own), place.read("\n".join((place.section, *place.rows))))
    if wanted is None or place.read(after) != wanted:
        raise BadInput(
            f"{place.path} has a line about that already, or none can be added to it safely",
            hint="nothing was changed; write this yourself: "
            + "; ".join(filter(None, (place.section, " ".join(place.rows)))),
        )
    return after


def without_lines(text: str) -> str:
    r"""The text as it was before the guard.

    >>> without_lines("a\n# gpusetup guard, today: from here\nx\n# gpusetup guard: to here\nb")
    'a\nb'
    """
    return BLOCK.sub("", text)


def _inserted(place: Place, text: str, when: str) -> str:
    """The lines go below the head of their section, else with that head to the end of the file."""
    end = "\r\n" if "\r\n" in text else "\n"
    head = re.search(rf"(?m)^\ufeff?{re.escape(place.section)}[^\S\n]*(#.*)?(\n|\Z)", text)
    at = (head.end() if head else len(text)) if place.section else 0
    rows = (*((place.section,) if place.section and not head else ()), *place.rows)
    block = end.join((f"{BEGIN}, {when}: from here", *rows, END, "")) if rows else ""
    gap = end if at and text[at - 1] != "\n" else ""
    return text[:at] + gap + block + text[at:]


def _joined(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any] | None:
    """What two texts say together; None if both say something of one thing."""
    found = dict(one)
    for key, value in other.items():
        if key in one:
            both = isinstance(value, dict) and isinstance(one[key], dict)
            value = _joined(one[key], value) if both else None
            if value is None:
                return None
        found[key] = value
    return found


def _ini(text: str) -> dict[str, dict[str, str]]:
    parser = RawConfigParser()
    try:
        parser.read_string(text.removeprefix("\ufeff"))
    except Error as problem:
        raise BadInput(
            f"{PIP} is not a pip configuration: {without_content(str(problem))}",
            hint="nothing was changed; fix it (`pip config debug` shows what pip reads)",
        ) from None
    return {name: dict(parser.items(name)) for name in parser.sections()}


# --- what is shown and done -----------------------------------------------------------------------


def planned(places: Iterable[Place], when: str) -> tuple[GuardFile, ...]:
    """The files that are not yet as they should be."""
    found = []
    for place in places:
        before = text_of(place.path)
        try:
            after = with_lines(place, before, when)
        except ValueError as problem:
            raise BadInput(f"{place.path} is not TOML: {problem}") from problem
        if after != before:
            rows = ndiff(before.splitlines(), after.splitlines())
            added = tuple(row[2:] for row in rows if row.startswith("+ "))
            found.append(GuardFile(path=str(place.path), text=after, added=added))
    return tuple(found)


def write(files: tuple[GuardFile, ...]) -> None:
    """Each file whole or not at all."""
    for file in files:
        hint = "run it as the owner of the file; `gpusetup guard --undo` takes back the rest"
        with blocked_by_files(f"{file.path} cannot be written", hint):
            write_safely(Path(file.path), file.text)


def undo(paths: tuple[Path, ...]) -> tuple[str, ...]:
    """Take the guard's lines out again; the files that had some. One with nothing else goes."""
    had = [(path, text) for path in paths if BLOCK.search(text := text_of(path))]
    for path, text in had:
        left = without_lines(text)
        with blocked_by_files(f"{path} cannot be written", "`gpusetup guard --undo` again goes on"):
            write_safely(path, left) if left else remove(path)
    return tuple(str(path) for path, _text in had)


def settings_for(prefix: Path, pins: Mapping[str, str]) -> dict[str, str]:
    """What to type where none of these files is read."""
    path, shell = named_in_lists(prefix / CONSTRAINTS), shell_for(OWN_SYSTEM)
    settings = uv_settings_of(prefix)
    named = (str(settings),) if settings and uv_toml_next_to(prefix) is None else ()
    found = {
        "pip": setting("PIP_CONSTRAINT", path, shell),
        "uv": setting("UV_CONSTRAINT", path, shell),
        "uv project": own_line("gpusetup", "guard", "--project", *named, "--write"),
        "ComfyUI-Manager": " ".join(f"{name}=={version}" for name, version in pins.items()),
    }
    if (prefix / "conda-meta" / "history").is_file():
        words = ("conda", "env", "config", "vars", "set", "--prefix", str(prefix))
        found["conda"] = own_line(*words, f"UV_CONSTRAINT={path}")
    return found


def notes_on(prefix: Path, pins: Mapping[str, str]) -> Iterator[str]:
    """What counts more than the guard, in this shell and in this environment."""
    environ, named = os.environ, named_in_lists(prefix / CONSTRAINTS)
    if (held := environ.get("PIP_CONSTRAINT", "").split()) and named not in held:
        yield "PIP_CONSTRAINT is set in this shell and counts more: add the file to it"
    if environ.get("PIP_CONFIG_FILE") == os.devnull:
        yield f"PIP_CONFIG_FILE is {os.devnull}: in this shell pip reads no configuration"
    if environ.get("UV_NO_CONFIG") or environ.get("UV_CONFIG_FILE"):
        yield "UV_NO_CONFIG or UV_CONFIG_FILE is set: in this shell uv reads no file of a folder"
    settings = uv_settings_of(prefix)
    if settings and not is_guard(settings):
        line = own_line("gpusetup", "guard", "--project", str(settings), "--write")
        yield f"`uv pip` in {prefix.parent} reads {settings}, which is yours: `{line}`"
    yield from tool_note(prefix, pins)


def notes_on_project(path: Path, pins: Mapping[str, str]) -> Iterator[str]:
    """What the project says that counts more than a constraint."""
    if path.name == "uv.toml":
        return
    document = parse(text_of(Path(os.path.realpath(path))))
    yield from other_pins(document)
    label, uv = pins["torch"].partition("+")[2], document.unwrap().get("tool", {}).get("uv", {})
    if label and "torch" not in uv.get("sources", {}):
        yield (
            f"[tool.uv.sources] names no index for torch: `gpusetup install --project --backend "
            f"{label}` writes it, or uv takes another build of the same version"
        )
    if path.with_name("uv.toml").is_file():
        line = own_line("gpusetup", "guard", "--project", str(path.with_name("uv.toml")), "--write")
        yield f"`uv pip` reads the uv.toml there in place of these: `{line}`"


def tool_note(prefix: Path, pins: Mapping[str, str]) -> tuple[str, ...]:
    """What keeps torch in the environment of a tool: `uv tool upgrade` installs again what the
    tool's receipt names (https://docs.astral.sh/uv/concepts/tools/); () for another environment."""
    if not (prefix / "uv-receipt.toml").is_file():
        return ()
    words = " ".join(f"--with {name}=={version}" for name, version in pins.items())
    label = pins["torch"].partition("+")[2]
    backend = f"--torch-backend {label} " if label else ""
    return (
        f"{prefix} is a tool's environment: `uv tool upgrade` puts back what its receipt names. To "
        f"keep it, give `uv tool install` {backend}{words} plus all that the receipt names",
    )
