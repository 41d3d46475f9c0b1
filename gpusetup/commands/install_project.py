"""`gpusetup install --project`: prints what to add to a uv project or to a script, without writing
anything."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from gpusetup.catalog.builds import index_url
from gpusetup.catalog.file import load_catalog
from gpusetup.choose.choose import choose
from gpusetup.choose.coming import Coming, wanted_family
from gpusetup.choose.described import without_torch
from gpusetup.choose.host import python_tag
from gpusetup.choose.newest import nothing_fits
from gpusetup.choose.wish import Wish
from gpusetup.commands.common import MachineToRead, gather
from gpusetup.commands.reply import Reply
from gpusetup.commands.reply import answer as reply
from gpusetup.commands.words import is_script, refuse_missing_scripts
from gpusetup.errors import UsageError
from gpusetup.install.choose_task import order_of, wish_of
from gpusetup.install.options import InstallRequest
from gpusetup.install.project import (
    Variant,
    common_release,
    extras_lines,
    pins_of,
    project_lines,
    variants_wanted,
)
from gpusetup.install.project_file import PROJECT_FILE, ProjectFile, read_project
from gpusetup.install.script_file import block_lines, read_script
from gpusetup.model.builds import FAMILY, TorchBuild
from gpusetup.model.documents import DoneStep, InstallAnswer
from gpusetup.model.frozen import Frozen, replace
from gpusetup.model.logins import without_logins
from gpusetup.model.machine import Snapshot
from gpusetup.render import install as screens
from gpusetup.render.console import Console

if TYPE_CHECKING:
    from gpusetup.commands.install import InstallQuestion


class ExtrasQuestion(Frozen):
    """The request for a project whose extras use different torch builds."""

    coming: Coming
    wish: Wish
    root: str
    chosen: Variant
    """The extra whose build fits this machine; if no build fits, the last extra."""


def show_project(question: InstallQuestion, request: InstallRequest, out: Console) -> Reply:
    """The reply with the lines to add to a uv project or, if one is named, to a script."""
    refuse_missing_scripts(request.packages)
    scripts = [word for word in request.packages if is_script(word)]
    packages = tuple(word for word in request.packages if word not in scripts)
    if len(scripts) > 1:
        raise UsageError(
            f"`--project` takes one script at a time: {', '.join(scripts)}",
            hint="run it once for each of them",
        )
    if scripts and question.extra:
        raise UsageError("a script has no extras", hint="leave out `--extra`")
    request = replace(request, packages=packages)
    catalog = load_catalog()
    machine = gather(MachineToRead(question.machine, question.python), out)
    wish = wish_of(request, machine)
    # Ignore the packages that are installed here, because uv locks a project for other machines
    # too.
    order = order_of(request, wish, without_torch(machine))
    project = ProjectFile() if scripts else read_project(Path(PROJECT_FILE), out.talk)
    choice = choose(wish, order.host, catalog)
    build, root = choice.build, without_logins(request.root)
    coming = Coming(family=wanted_family(choice, order.host), packages=wish.packages)
    variants = variants_wanted(question.extra, project, build, catalog)
    if variants:
        chosen = variants[-1]
        for variant in variants:
            if build is not None and variant.backend == build.backend:
                chosen = variant
                break
        extras = ExtrasQuestion(coming=coming, wish=wish, root=root, chosen=chosen)
        return _show_extras(variants, project, extras)
    if build is None:
        raise nothing_fits(choice)
    if scripts:
        return _show_script(scripts[0], machine, (coming, build, root))
    # The project's torchvision must come from torch's index too, because the one on the default
    # index is built for that index's torch.
    members = {*coming.family, *project.base_family}
    family = tuple(name for name in FAMILY if name in members)
    return _show_pins(replace(coming, family=family), build, root)


def _show_pins(coming: Coming, build: TorchBuild, root: str) -> Reply:
    """The reply with the lines for a project that uses a single torch build."""
    pins = build.family(coming.family)
    url = build.index or index_url(build.backend, root)
    add = ("uv", "add", *(f"{build.project(name)}=={version}" for name, version in pins.items()))
    answer = InstallAnswer(
        state="planned",
        target=PROJECT_FILE,
        before={},
        after=pins,
        steps=(DoneStep(argv=(*add, *coming.packages)),),
        lines=tuple(project_lines(pins, url, build, load_catalog())),
    )
    return reply(answer, screens.project_screen)


def _show_extras(
    variants: tuple[Variant, ...],
    project: ProjectFile,
    question: ExtrasQuestion,
) -> Reply:
    """The reply with the lines that give each extra its torch build and forbid installing two of
    these extras together."""
    coming, wish = question.coming, question.wish
    catalog = load_catalog()
    common = common_release([variant.backend for variant in variants], wish, catalog)
    pins = {
        variant: pins_of(variant, coming.family, common, (wish, catalog)) for variant in variants
    }
    steps = [_add_step(variant, pins[variant]) for variant in variants if variant.is_there]
    steps.append(("uv", "sync", *question.chosen.words))
    if coming.packages:
        steps.insert(0, ("uv", "add", "--no-sync", *coming.packages))
    answer = InstallAnswer(
        state="planned",
        target=PROJECT_FILE,
        before={},
        after=dict(next(iter(pins.values()))),
        steps=tuple(DoneStep(argv=argv) for argv in steps),
        lines=tuple(extras_lines(pins, question.root, catalog)),
    )
    options_of_variants = [" ".join(variant.words) for variant in variants]
    notes = [
        *_notes_on_tables(project, variants),
        f"`uv sync` installs one of them: {' or '.join(options_of_variants)}",
    ]
    if common is None:
        notes.append("no torch has builds for all of these backends: each extra has its newest")
    return reply(answer, partial(screens.project_screen, notes=notes))


def _add_step(variant: Variant, pins: dict[str, str]) -> tuple[str, ...]:
    """The `uv add` command that pins these versions in an existing extra or group of the
    project."""
    requirements = [f"{name}=={version}" for name, version in pins.items()]
    option = "--optional" if variant.kind == "extra" else "--group"
    return ("uv", "add", "--no-sync", option, variant.name, *requirements)


def _notes_on_tables(project: ProjectFile, variants: tuple[Variant, ...]) -> list[str]:
    """Notes on existing TOML tables, which the user must merge because TOML allows each table only
    once."""
    new = [variant.name for variant in variants if not variant.is_there]
    tables = [*project.tables]
    if new and project.has_extras:
        tables.insert(0, "[project.optional-dependencies]")
    notes = []
    if tables:
        names = ", ".join(f"`{name}`" for name in tables)
        notes.append(f"{PROJECT_FILE} has {names} already: {JOIN}")
    if project.base_family:
        notes.append(
            "torch is also among the dependencies of the whole project: remove it there, or it "
            "comes from the default index whenever no extra is chosen"
        )
    return notes


JOIN = "add the lines below the table that is there, and replace a line of the same name"
SOURCES = "[tool.uv.sources]"


def _show_script(
    path: str,
    machine: Snapshot,
    question: tuple[Coming, TorchBuild, str],
) -> Reply:
    """The reply with the lines for a script's metadata block (PEP 723), and the uv commands for the
    script."""
    coming, build, root = question
    script = read_script(path)
    family = tuple(name for name in FAMILY if name in (*coming.family, *script.family))
    pins = build.family(family)
    exact = tuple(f"{name}=={version}" for name, version in pins.items())
    tables = project_lines(pins, index_url(build.backend, root), build, load_catalog())
    run = ("uv", "run", path)
    add = ("uv", "add", "--script", path, *exact, *coming.packages)
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
        lines=tuple(block_lines(script, tables, (*exact, *coming.packages), python)),
    )
    where = f"the metadata block of {path}, above its last line `# ///`"
    if not script.has_block:
        where = f"the top of {path}, below a line that begins with `#!`"
    screen = partial(screens.project_screen, where=where, notes=_notes_on_script(script.tables))
    return reply(answer, screen)


def _notes_on_script(tables: tuple[str, ...]) -> list[str]:
    """A note on a sources table that the script's block already has, which the user must merge;
    empty if it has none."""
    if SOURCES not in tables:
        return []
    return [f"the block has `{SOURCES}` already: {JOIN}"]
