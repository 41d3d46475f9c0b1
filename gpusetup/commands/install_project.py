"""`gpusetup install --project`: prints the smallest edit with which a project or a script gets the
right torch, without writing anything."""

from __future__ import annotations

import re
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from gpusetup import named_file
from gpusetup.catalog.builds import Catalog, index_url
from gpusetup.catalog.file import load_catalog
from gpusetup.choose.choose import choose
from gpusetup.choose.coming import wanted_family
from gpusetup.choose.constraints import pick
from gpusetup.choose.described import without_torch
from gpusetup.choose.host import Host, question_of
from gpusetup.choose.newest import nothing_fits
from gpusetup.choose.wish import Wish
from gpusetup.commands.common import gather
from gpusetup.commands.install_flow import host_for, labelled, show_described, wish_of
from gpusetup.commands.reply import Reply
from gpusetup.commands.words import is_script, refuse_scripts
from gpusetup.errors import Unsatisfiable
from gpusetup.model.documents import DoneStep, InstallAnswer
from gpusetup.model.frozen import replace
from gpusetup.model.logins import without_logins
from gpusetup.project.ask import Ask, named_family
from gpusetup.project.decide import afterwards, allows_python, decide, newest_python
from gpusetup.project.edit import (
    Edit,
    backends_of_variants,
    edit_for,
    edit_of_variants,
    notes_on_tables,
    project_lines,
)
from gpusetup.project.read import ask_of_folder, read_ask
from gpusetup.render import install as screens
from gpusetup.render.console import Console

if TYPE_CHECKING:
    from gpusetup.commands.install import Question as InstallQuestion

PROJECT_FILE = "pyproject.toml"


def show_project(question: InstallQuestion, out: Console) -> Reply:
    """The reply with the edit for the project in this folder or, if one is named, for a script."""
    script = next(filter(is_script, question.packages), None)
    others = tuple(word for word in question.packages if word != script)
    refuse_scripts(others)
    question = question.replaced(packages=others)
    machine = gather(out, question.machine, question.python)
    wish = wish_of(question, machine)
    # Ignore the packages that are installed here, because uv locks a project for other machines
    # too.
    host = host_for(question, wish, without_torch(machine))
    root = without_logins(question.root)
    if script:
        return _show_script(script, wish, host, root)
    ask = _project_here()
    if ask.has_project or ask.is_poetry or not ask.requests:
        return _show_edit(question, ask, wish, host, root)
    # uv can add nothing without a `[project]` table: torch first, then the project with its other
    # packages.
    of_kind = {"requirements": ("-r", ask.path), "setup": ("-e", "."), "pyproject": ("-e", ".")}
    last_step = None
    if ask.kind in of_kind:
        python = machine.python.executable
        target = ("--python", python) if python else ()
        last_step = ("uv", "pip", "install", *target, *of_kind[ask.kind])
    note = (
        f"{ask.path}: there is no pyproject.toml with a [project] table to add to, so torch is "
        "installed first, then the project"
    )
    with_file = question.replaced(requirements=(*question.requirements, ask.path))
    return show_described(with_file, machine, out, last_step=last_step, note=note)


def _project_here() -> Ask:
    """What the project in this folder asks for. Raises BadInput for a pyproject.toml that is not
    valid, because uv and pip refuse such a project too."""
    ask = Ask(path=PROJECT_FILE, kind="pyproject")
    if named_file.is_there(Path(PROJECT_FILE)):
        ask = read_ask(PROJECT_FILE)
    # A pyproject.toml may only configure tools, beside a requirements.txt.
    is_of_project = ask.has_project or ask.is_poetry or ask.requests
    return ask if is_of_project else ask_of_folder() or ask


def _show_edit(question: InstallQuestion, ask: Ask, wish: Wish, host: Host, root: str) -> Reply:
    """The reply with the edit for a project of uv or Poetry: with one extra for each build, with a
    torch of its own, or without one."""
    catalog = load_catalog()
    host, python_notes = _for_pythons(ask, host, wish, catalog)
    # uv itself chooses a Python for the project, so the one here excludes nothing.
    decision = decide((replace(ask, python=None),), wish, host, catalog)
    # uv locks the packages beside torch, so they do not choose the build.
    alone = replace(decision.wish, packages=())
    choice = choose(alone, host, catalog)
    build = choice.build
    family = wanted_family(choice, host)
    names_torch = bool(ask.family or decision.variant)
    after: dict[str, str] = {}
    if backends := backends_of_variants(ask, build, catalog):
        of_backend = [one for one, its in backends.items() if build and its == build.backend]
        # `uv sync` has to be told one, also if none of them is for this machine.
        chosen = (of_backend or [*backends])[-1]
        pinned = build if wish.torch else None
        edit = edit_of_variants(backends, ask, family, root, chosen, pinned)
    elif build is None:
        raise nothing_fits(choice)
    elif names_torch and not wish.names_build and not wish.family:
        edit = edit_for(ask, host, build, decision.variant, root, catalog)
        after = labelled(build, ask.family or ("torch",))
    else:
        # The project does not name torch yet, or the user names one. Its torchvision must come from
        # torch's index too, because the one on the default index is built for that index's torch.
        members = build.family(named_family([*family, *ask.family]))
        exact = (f"{build.project(name)}=={version}" for name, version in members.items())
        url = build.index or index_url(build.backend, root)
        lines = tuple(project_lines(members, url, build, catalog))
        step = ("uv", "add", *exact, *wish.packages)
        edit = Edit(lines=lines, steps=(step,), notes=notes_on_tables(ask, lines))
        after = labelled(build, family)
    steps = edit.steps
    if wish.packages and not any(step[:2] == ("uv", "add") for step in steps):
        steps = (("poetry" if ask.is_poetry else "uv", "add", *wish.packages), *steps)
    notes = [*edit.notes, *python_notes, *decision.notes, *afterwards(decision.later, host.machine)]
    if not named_file.is_there(Path(PROJECT_FILE)):
        notes.append(f"there is no {PROJECT_FILE} here: `uv init --bare` makes one first")
    answer = InstallAnswer(
        state="planned",
        target=ask.path,
        before={},
        after=after,
        steps=tuple(DoneStep(argv=argv) for argv in steps),
        lines=edit.lines,
        notes=tuple(notes),
    )
    return Reply(answer, partial(screens.project_screen, notes=notes))


def _for_pythons(
    ask: Ask, host: Host, wish: Wish, catalog: Catalog
) -> tuple[Host, tuple[str, ...]]:
    """The host with the oldest Python that a project supports, for which uv locks it, and a note if
    no torch inside the bounds has wheels for that Python."""
    named = re.search(r">=?\s*(3\.\d+)", ask.python or "")
    if not named:
        return host, ()
    oldest = replace(host, facts=replace(host.facts, python=named[1]))
    with suppress(Unsatisfiable):
        wish_there = decide((replace(ask, python=None),), wish, oldest, catalog).wish
        if pick(question_of(wish_there, oldest, catalog)):
            return oldest, ()
    here, asked = host.facts.python, ask.python or ""
    if not (here and allows_python(asked, here)):
        usable = newest_python(question_of(wish, host, catalog), asked)
        host = replace(host, facts=replace(host.facts, python=usable[0] if usable else here))
    return host, (
        f"requires-python {ask.python}: no torch that fits this machine has wheels for Python "
        f"{named[1]}: raise the lower bound, or `uv lock` resolves an older torch for it",
    )


def _show_script(path: str, wish: Wish, host: Host, root: str) -> Reply:
    """The reply with the uv commands for a script: uv itself writes the script's metadata block
    (PEP 723), with the index."""
    choice = choose(wish, host, load_catalog())
    build = choice.build
    if build is None:
        raise nothing_fits(choice)
    pins = build.family(wanted_family(choice, host))
    words = (*(f"{build.project(name)}=={version}" for name, version in pins.items()),)
    index = f"pytorch={build.index or index_url(build.backend, root)}"
    commands = (
        ("uv", "add", "--script", path, *words, *wish.packages, "--index", index),
        ("uv", "run", path),
    )
    notes = (
        "uv asks this index for the script's other packages too; `explicit = true` below its url "
        "in the block keeps them on the default index",
    )
    answer = InstallAnswer(
        state="planned",
        target=path,
        before={},
        after=labelled(build, tuple(pins)),
        steps=tuple(DoneStep(argv=argv) for argv in commands),
        notes=notes,
    )
    return Reply(answer, partial(screens.project_screen, notes=notes))
