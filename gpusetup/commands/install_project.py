"""`gpusetup install --project`: prints the smallest edit with which a project or a script gets the
right torch, without writing anything."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from gpusetup import named_file
from gpusetup.catalog.builds import Catalog, completed_from_catalog, index_url
from gpusetup.catalog.file import load_catalog
from gpusetup.choose.choose import choose
from gpusetup.choose.coming import Coming, wanted_family
from gpusetup.choose.constraints import in_scope, pick
from gpusetup.choose.described import for_host, without_torch
from gpusetup.choose.host import Host, host_of, python_tag, question_of
from gpusetup.choose.newest import nothing_fits
from gpusetup.choose.wish import Wish, check_wish
from gpusetup.commands.common import MachineToRead, gather
from gpusetup.commands.reply import Reply
from gpusetup.commands.reply import answer as reply
from gpusetup.commands.words import is_script, refuse_missing_scripts
from gpusetup.errors import BadInput, Unsatisfiable, UsageError
from gpusetup.install.choose_task import wish_of
from gpusetup.model.builds import FAMILY, TorchBuild
from gpusetup.model.documents import DoneStep, InstallAnswer
from gpusetup.model.frozen import replace
from gpusetup.model.logins import without_logins
from gpusetup.model.machine import Snapshot
from gpusetup.model.versions import parsed
from gpusetup.project.ask import Ask
from gpusetup.project.decide import Decision, afterwards, allows_python, decide
from gpusetup.project.edit import (
    JOIN,
    Edit,
    edit_for,
    edit_of_extras,
    extras_named,
    notes_on_tables,
    project_lines,
)
from gpusetup.project.read import ask_of_folder, read_ask
from gpusetup.project.script import block_lines, read_script
from gpusetup.render import install as screens
from gpusetup.render.console import Console

if TYPE_CHECKING:
    from gpusetup.commands.install import InstallQuestion

PROJECT_FILE = "pyproject.toml"


def show_project(question: InstallQuestion, out: Console) -> Reply:
    """The reply with the edit for the project in this folder or, if one is named, for a script."""
    refuse_missing_scripts(question.packages)
    scripts = [word for word in question.packages if is_script(word)]
    if len(scripts) > 1:
        raise UsageError(
            f"`--project` takes one script at a time: {', '.join(scripts)}",
            hint="run it once for each of them",
        )
    if scripts and question.extra:
        raise UsageError("a script has no extras", hint="leave out `--extra`")
    packages = tuple(word for word in question.packages if word not in scripts)
    question = question.replaced(packages=packages)
    catalog = load_catalog()
    machine = gather(MachineToRead(question.machine, question.python), out)
    wish = wish_of(question, machine)
    check_wish(wish, catalog)
    # Ignore the packages that are installed here, because uv locks a project for other machines
    # too.
    host_machine = without_torch(machine)
    if question.for_other_host:
        host_machine = for_host(host_machine, question.gpu, question.driver, catalog)
    host = host_of(completed_from_catalog(host_machine, catalog), catalog)
    root = without_logins(question.root)
    if scripts:
        return _show_script(scripts[0], machine, (wish, host, root))
    ask = _project_here(out)
    is_file_of_uv = ask.has_project or ask.is_poetry or not ask.requests
    if not is_file_of_uv:
        return _show_pips_way(question, ask, machine, out)
    return _show_edit(question, ask, (wish, host, root), catalog)


def _project_here(out: Console) -> Ask:
    """What the project in this folder asks for. A file that cannot be read does not end the
    command, because its lines are only printed."""
    try:
        if named_file.is_there(Path(PROJECT_FILE)):
            ask = read_ask(PROJECT_FILE)
            # A pyproject.toml may only configure tools, beside a requirements.txt.
            if ask.has_project or ask.is_poetry or ask.requests:
                return ask
    except BadInput as problem:
        out.talk(f"{PROJECT_FILE} was not looked at: {problem.message}")
        return Ask(path=PROJECT_FILE, kind="pyproject")
    return ask_of_folder() or Ask(path=PROJECT_FILE, kind="pyproject")


def _show_edit(
    question: InstallQuestion, ask: Ask, case: tuple[Wish, Host, str], catalog: Catalog
) -> Reply:
    """The reply with the edit for a project of uv or Poetry."""
    wish, host, root = case
    host, python_notes = _for_pythons(ask, host, wish, catalog)
    # uv itself chooses a Python for the project, so the one here excludes nothing.
    any_python = replace(ask, python=None)
    decision = Decision(wish=wish)
    if not question.extra:
        decision = decide((any_python,), wish, host, catalog)
    alone = replace(decision.wish, packages=())
    choice = choose(alone, host, catalog)
    build = choice.build
    extras = extras_named(question.extra, ask, build, catalog)
    has_sources = any(source.package == "torch" for source in ask.sources)
    names_torch = bool(ask.family or decision.variant)
    coming = Coming(family=wanted_family(choice, host), packages=wish.packages)
    if question.extra or (extras and not has_sources and not ask.is_poetry):
        chosen = next((one for one in extras if build and one.backend == build.backend), extras[-1])
        edit = edit_of_extras(extras, ask, coming.family, alone, root, catalog, chosen)
        if wish.torch:
            pins = []
            for extra in extras:
                if extra.is_there:
                    option = "--optional" if extra.variant.kind == "extra" else "--group"
                    exact = _exact(build, extra.variant.family, wish.torch)
                    pins.append(("uv", "add", "--no-sync", option, extra.variant.name, *exact))
            edit = replace(edit, steps=(*pins, *edit.steps))
        after: dict[str, str] = {}
    elif build is None:
        raise nothing_fits(choice)
    elif names_torch and not wish.names_build and not wish.family:
        edit = edit_for(ask, build, decision.variant, root, catalog)
        after = _labelled(build, ask.family or ("torch",))
    else:
        edit = _edit_with_pins(ask, build, coming, root, catalog)
        after = _labelled(build, coming.family)
    if wish.packages and not any(step[:2] == ("uv", "add") for step in edit.steps):
        add = ("poetry" if ask.is_poetry else "uv", "add", *wish.packages)
        edit = replace(edit, steps=(add, *edit.steps))
    answer = InstallAnswer(
        state="planned",
        target=ask.path,
        before={},
        after=after,
        steps=tuple(DoneStep(argv=argv) for argv in edit.steps),
        lines=edit.lines,
    )
    notes = [*edit.notes, *python_notes, *decision.notes, *afterwards(decision.later, host.machine)]
    if not named_file.is_there(Path(PROJECT_FILE)):
        notes.append(f"there is no {PROJECT_FILE} here: `uv init --bare` makes one first")
    answer = replace(answer, notes=tuple(notes))
    return reply(answer, partial(screens.project_screen, notes=notes))


def _exact(build: TorchBuild | None, family: tuple[str, ...], torch: str) -> list[str]:
    """Exact requirements for an extra, in the versions of a build; for torch alone without one."""
    if build is None:
        return [f"torch=={torch}"]
    return [f"{name}=={version}" for name, version in build.family(family).items()]


def _labelled(build: TorchBuild, family: tuple[str, ...]) -> dict[str, str]:
    """The versions of a build as its index has them, such as `2.9.1+cu128`."""
    label = f"+{build.backend}" if build.labelled else ""
    return {name: f"{version}{label}" for name, version in build.family(family).items()}


def _edit_with_pins(
    ask: Ask, build: TorchBuild, coming: Coming, root: str, catalog: Catalog
) -> Edit:
    """The edit for a project that does not name torch yet, or for which the user names a torch:
    `uv add` with exact versions, and their index."""
    # The project's torchvision must come from torch's index too, because the one on the default
    # index is built for that index's torch.
    members = {*coming.family, *ask.family}
    pins = build.family(tuple(name for name in FAMILY if name in members))
    url = build.index or index_url(build.backend, root)
    exact = (f"{build.project(name)}=={version}" for name, version in pins.items())
    step = ("uv", "add", *exact, *coming.packages)
    lines = tuple(project_lines(pins, url, build, catalog))
    return Edit(lines=lines, steps=(step,), notes=notes_on_tables(ask, lines))


def _for_pythons(
    ask: Ask, host: Host, wish: Wish, catalog: Catalog
) -> tuple[Host, tuple[str, ...]]:
    """The host with the oldest Python that a project supports, for which uv locks it, and a note if
    no torch inside the bounds has wheels for that Python."""
    named = re.search(r">=?\s*(3\.\d+)", ask.python or "")
    if not named:
        return host, ()
    oldest = replace(host, facts=replace(host.facts, python=named[1]))
    try:
        decision = decide((replace(ask, python=None),), wish, oldest, catalog)
    except Unsatisfiable:
        decision = None
    if decision is not None and pick(question_of(decision.wish, oldest, catalog)):
        return oldest, ()
    builds = in_scope(question_of(wish, host, catalog))
    pythons = {name for one in builds for name in one.pythons if not name.endswith("t")}
    allowed = [name for name in pythons if allows_python(ask.python or "", name)]
    newest = max(allowed, key=parsed, default=None)
    here = host.facts.python
    if newest and not (here and allows_python(ask.python or "", here)):
        host = replace(host, facts=replace(host.facts, python=newest))
    return host, (
        f"requires-python {ask.python}: no torch that fits this machine has wheels for Python "
        f"{named[1]}: raise the lower bound, or `uv lock` resolves an older torch for it",
    )


def _show_pips_way(question: InstallQuestion, ask: Ask, machine: Snapshot, out: Console) -> Reply:
    """The reply for a project without a `[project]` table, to which uv can add nothing: torch
    first, then the project with its other packages."""
    from gpusetup.commands.install_flow import described_reply

    note = (
        f"{ask.path}: there is no pyproject.toml with a [project] table to add to, so torch is "
        "installed first, then the project"
    )
    is_package = ask.kind in ("setup", "pyproject")
    step = ("uv", "pip", "install", "-e", ".") if is_package else None
    if ask.kind == "requirements":
        step = ("uv", "pip", "install", "-r", ask.path)
    with_file = question.replaced(requirements=(*question.requirements, ask.path))
    return described_reply(with_file, machine, out, last_step=step, note=note)


# --- a script -------------------------------------------------------------------------------------

SOURCES = "[tool.uv.sources]"


def _show_script(path: str, machine: Snapshot, case: tuple[Wish, Host, str]) -> Reply:
    """The reply with the lines for a script's metadata block (PEP 723), and the uv commands for the
    script."""
    wish, host, root = case
    catalog = load_catalog()
    choice = choose(wish, host, catalog)
    build = choice.build
    if build is None:
        raise nothing_fits(choice)
    script = read_script(path)
    members = (*wanted_family(choice, host), *script.family)
    pins = build.family(tuple(name for name in FAMILY if name in members))
    exact = tuple(f"{name}=={version}" for name, version in pins.items())
    tables = project_lines(pins, index_url(build.backend, root), build, catalog)
    run = ("uv", "run", path)
    add = ("uv", "add", "--script", path, *exact, *wish.packages)
    # `uv add --script` needs an existing metadata block. Without one, the user pastes the printed
    # block.
    commands = (add, run) if script.has_block else (run,)
    python = python_tag(machine) or "3.10"
    answer = InstallAnswer(
        state="planned",
        target=path,
        before={},
        after=pins,
        steps=tuple(DoneStep(argv=argv) for argv in commands),
        lines=tuple(block_lines(script, tables, (*exact, *wish.packages), python)),
    )
    where = f"the metadata block of {path}, above its last line `# ///`"
    if not script.has_block:
        where = f"the top of {path}, below a line that begins with `#!`"
    # The user must merge a table that is there, because TOML allows each only once.
    notes = [f"the block has `{SOURCES}` already: {JOIN}"] if SOURCES in script.tables else []
    return reply(answer, partial(screens.project_screen, where=where, notes=notes))
