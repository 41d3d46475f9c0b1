"""The smallest edit with which a project gets the right torch: lines for its file, and commands.

A torch index is `explicit`, so that no other packages come from it. Only AMD's and Intel's builds
need other packages from it. A system without that build (a Mac) uses the default index. A project
with one extra for each build gets a source for each of them, and uv is told that no two can be
installed together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from gpusetup.accelerators.amd import INDEX_OF_AMD
from gpusetup.accelerators.makers import maker_of
from gpusetup.catalog.builds import Catalog, index_url
from gpusetup.catalog.companions import default_backend
from gpusetup.choose.commands import NEEDS_ITS_INDEX
from gpusetup.choose.for_project import backend_of_variant
from gpusetup.choose.host import Host
from gpusetup.choose.installed import marker_environment
from gpusetup.model.builds import TorchBuild
from gpusetup.model.frozen import Frozen
from gpusetup.project.ask import Ask, NamedIndex, Variant, named_family

SYSTEMS = {"linux": "sys_platform == 'linux'", "windows": "sys_platform == 'win32'"}
"""The marker of each system for which torch's own index has builds for GPUs."""
SOURCES = "[tool.uv.sources]"
JOIN = "add these lines to that table, and replace lines with the same name"


class Edit(Frozen):
    """What a person does in a project: lines for its file, then commands."""

    lines: tuple[str, ...] = ()
    steps: tuple[tuple[str, ...], ...] = ()
    notes: tuple[str, ...] = ()


def edit_for(
    ask: Ask, host: Host, build: TorchBuild, variant: Variant | None, root: str, catalog: Catalog
) -> Edit:
    """The edit for a project that names torch itself, or in the extra or group that was chosen. Its
    bounds stay as they are. For uv, it depends on what the project has already:

    - this build's index: only the sources that members of torch's family lack, or nothing;
    - the index of another build: the table in its place;
    - sources of other extras: those of the chosen extra in addition;
    - none of these, or only for other systems: an index, and a source for each member.
    """
    variant_name = variant.name if variant else None
    family = named_family(one.name for one in ask.of(variant_name))
    url = build.index or index_url(build.backend, root)
    if ask.is_poetry:
        return edit_of_poetry(ask, family, build, url)
    ask_here = ask.on_machine(marker_environment(host.machine), variant_name)
    sources = {one.package: one.index for one in ask_here.sources}
    index = _index_of_torch(ask, sources.get("torch"))
    sync = ("uv", "sync", *(variant.words if variant else ()))
    if index and index.backend == build.backend:
        # Without any source, uv takes every member from this index already.
        missing = [one for one in family if ask.sources and one not in sources]
        # A companion without a source comes from the default index, and goes with this torch if
        # that index has the same backend.
        usual = default_backend(catalog, build.torch, build.os, build.machine)
        if not missing or usual == build.backend:
            note = f"{ask.path} names {build.backend} already: no edit"
            return Edit(steps=(sync,), notes=(note,))
        rows = (f'{member} = [{{ index = "{index.name}" }}]' for member in missing)
        note = f"{ask.path} already has `{SOURCES}`: {JOIN}"
        return Edit(lines=(SOURCES, *rows), steps=(sync,), notes=(note,))
    if index:
        label = f"{index.name} ({index.backend})" if index.name else index.url
        # No source can name an index without a name, so that one stays open to every package.
        lines = ["[[tool.uv.index]]", f'url = "{url}"']
        if index.name:
            lines = index_lines(index.name, url, build.backend)
        note = f"{ask.path} already has the index {label}: replace its table with this one"
        return Edit(lines=tuple(lines), steps=(sync,), notes=(note,))
    if variant and ask.sources:
        return edit_of_variants({variant: build.backend}, ask, family, root, variant)
    added = tuple(project_lines(family, url, build, catalog))
    return Edit(lines=added, steps=(sync,), notes=notes_on_tables(ask, added))


def _index_of_torch(ask: Ask, source: str | None) -> NamedIndex | None:
    """The index from which a project takes torch: the one that torch's `source` names, or, without
    any sources, the first for a backend, from which uv takes all packages. None if there is none.
    """
    if ask.sources:
        return next((index for index in ask.indexes if source and index.name == source), None)
    return next((index for index in ask.indexes if index.backend), None)


def edit_of_poetry(
    ask: Ask, family: Sequence[str], build: TorchBuild, url: str, added: Sequence[str] = ()
) -> Edit:
    """The edit for Poetry, whose sources are named at the dependencies themselves
    (https://python-poetry.org/docs/repositories/#explicit-package-sources). The `indexes` that are
    read from such a project are its tables `[[tool.poetry.source]]`.

    `added` are the requirements that Poetry adds from this source; without any, the project names
    the family already."""
    install = ("poetry", "install")
    source = next((index for index in ask.indexes if index.backend), None)
    is_there = source is not None and source.backend == build.backend
    if is_there and not added:
        note = f"{ask.path} names {build.backend} already: no edit"
        return Edit(steps=(install,), notes=(note,))
    # Dependencies may name the source that is there, so the new table keeps its name.
    name = (source.name if source else None) or index_name(build.backend)
    # Poetry takes from an explicit source only what names it, and these builds need more of theirs.
    needs_more = maker_of(build.backend) in NEEDS_ITS_INDEX
    priority = "supplemental" if needs_more else "explicit"
    table = ("[[tool.poetry.source]]", f'name = "{name}"', f'url = "{url}"')
    lines = () if is_there else (*table, f'priority = "{priority}"')
    replaces = f"replace the source {name} with the table above"
    notes = [replaces] if source and not is_there else []
    if added:
        step = ("poetry", "add", "--source", name, *added)
        return Edit(lines=lines, steps=(step,), notes=tuple(notes))
    notes.append(
        f"in `[tool.poetry.dependencies]`, give {' and '.join(family)} this source, and leave "
        f'the versions: `torch = {{ version = "...", source = "{name}" }}`'
    )
    return Edit(lines=lines, steps=(("poetry", "lock"), install), notes=tuple(notes))


def notes_on_tables(ask: Ask, lines: Sequence[str]) -> tuple[str, ...]:
    """A note on the tables in `lines` that the file has already, because TOML allows each only
    once; empty if it has none of them."""
    names = ", ".join(f"`{name}`" for name in ask.tables if name in lines)
    return (f"{ask.path} already has {names}: {JOIN}",) if names else ()


# --- lines of TOML --------------------------------------------------------------------------------


def project_lines(names: Iterable[str], url: str, build: TorchBuild, catalog: Catalog) -> list[str]:
    """The TOML lines that make uv install these packages from torch's index, on each system for
    which it has the build."""
    # The build's own system, because the catalog's rows have no builds for AMD's and Intel's GPUs,
    # and those with a row, all of which have x86_64.
    marker = " or ".join(
        marker_of_system
        for system, marker_of_system in SYSTEMS.items()
        if system == build.os or catalog.row_of(build.torch, build.backend, system, "x86_64")
    )
    lines = index_lines("pytorch", url, build.backend)
    if "explicit = true" not in lines:
        # uv reads an index that is not explicit for every platform, also those that lack the build.
        lines = ["[tool.uv]", f'environments = ["{marker}"]', "", *lines]
    rows = (f'{name} = [{{ index = "pytorch", marker = "{marker}" }}]' for name in names)
    return [*lines, "", SOURCES, *rows]


def index_lines(name: str, url: str, backend: str) -> list[str]:
    """The table of torch's index for a backend. AMD's and Intel's builds need packages that only
    this index has, such as their Triton, so for them uv may use the index for every package."""
    lines = ["[[tool.uv.index]]", f'name = "{name}"', f'url = "{url}"']
    if maker_of(backend) not in NEEDS_ITS_INDEX:
        lines.append("explicit = true")
    elif url == INDEX_OF_AMD:
        lines.append("ignore-error-codes = [403]  # its answer for packages that it does not have")
    return lines


# --- one extra for each build ---------------------------------------------------------------------


def backends_of_variants(ask: Ask, build: TorchBuild | None) -> dict[Variant, str]:
    """Maps the extras and groups whose names stand for a backend (`cpu`, `cu130`) to it. `gpu`
    stands for that of `build`, the one that fits this machine.

    Empty for Poetry, which has its own edit, and if one of uv's sources already names torch."""
    if ask.is_poetry or any(source.package == "torch" for source in ask.sources):
        return {}
    backends = {}
    for variant in ask.variants:
        # All of the file counts, because the edit is for every machine.
        backend = backend_of_variant(variant, ask, ask)
        if backend == "auto":
            backend = build.backend if build else None
        # uv takes all packages from AMD's and Intel's indexes, so none can be that of one extra.
        if backend and maker_of(backend) not in NEEDS_ITS_INDEX:
            backends[variant] = backend
    return backends


def edit_of_variants(
    backends: Mapping[Variant, str],
    ask: Ask,
    family: Sequence[str],
    root: str,
    chosen: Variant,
    pinned: TorchBuild | None = None,
) -> Edit:
    """The edit that gives each of these extras and groups its index, and forbids installing two of
    them together. They keep their requirements, unless the user names a torch, whose release is
    then `pinned` in each. `chosen` is the one for this machine."""
    lines = _lines_of_variants(backends, family, root)
    notes = [*notes_on_tables(ask, lines)]
    if ask.sources:
        # Other extras have such tables already, so this one only adds a row to each, and torch
        # among the project's own dependencies is as it was.
        notes = ["the file already has a list of sources for `torch`: add the row to it"]
    elif ask.family:
        notes.append(
            "torch is also among the dependencies of the whole project: remove it there; "
            "otherwise it comes from the default index whenever no extra is chosen"
        )
    options = " or ".join(" ".join(variant.words) for variant in backends)
    notes.append(f"to install one of them, add to `uv sync`: {options}")
    steps = []
    if pinned:
        for variant in backends:
            option = "--optional" if variant.kind == "extra" else "--group"
            versions = pinned.family(variant.family).items()
            exact = (f"{name}=={version}" for name, version in versions)
            steps.append(("uv", "add", "--no-sync", option, variant.name, *exact))
    steps.append(("uv", "sync", *chosen.words))
    return Edit(lines=tuple(lines), steps=tuple(steps), notes=tuple(notes))


def _lines_of_variants(
    backends: Mapping[Variant, str], family: Iterable[str], root: str
) -> list[str]:
    """The TOML tables for extras and groups: that they conflict, an index for each backend, and
    for each package of torch's family one source for each variant."""
    lines = []
    if len(backends) > 1:
        members = ", ".join(f'{{ {one.kind} = "{one.name}" }}' for one in backends)
        lines += ["[tool.uv]", f"conflicts = [[{members}]]", ""]
    for backend in dict.fromkeys(backends.values()):
        lines += [*index_lines(index_name(backend), index_url(backend, root), backend), ""]
    # A Mac takes torch from the default index, because the indexes for GPUs have none for it.
    marker = " or ".join(SYSTEMS.values())
    lines.append(SOURCES)
    for member in named_family([*family, *(name for one in backends for name in one.family)]):
        lines.append(f"{member} = [")
        lines += (
            f'    {{ index = "{index_name(backend)}", {variant.kind} = "{variant.name}", '
            f'marker = "{marker}" }},'
            for variant, backend in backends.items()
            if member in (*family, *variant.family)
        )
        lines.append("]")
    return lines


def index_name(backend: str) -> str:
    """The name of a backend's index in the file, such as `pytorch-cu128`."""
    return f"pytorch-{backend.replace('.', '-')}"
