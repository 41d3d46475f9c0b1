"""The smallest edit with which a project gets the right torch: lines for its file, and commands.

A torch index is `explicit`, so that no other packages come from it. Only AMD's and Intel's builds
need other packages from it. A platform without that build (a Mac, or an aarch64 host with an old
CUDA version) uses the default index. A project with one extra for each build gets a source for each
of them, and uv is told that no two can be installed together.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from gpusetup.accelerators.amd import INDEX_OF_AMD
from gpusetup.accelerators.makers import maker_of
from gpusetup.catalog.builds import Catalog, index_url
from gpusetup.choose.commands import NEEDS_ITS_INDEX
from gpusetup.choose.wish import Wish, backend_label, specifier
from gpusetup.errors import Unsatisfiable, UsageError
from gpusetup.model.builds import TorchBuild
from gpusetup.model.frozen import Frozen
from gpusetup.model.versions import allows, cuda_of
from gpusetup.project.ask import Ask, Variant, named_family
from gpusetup.project.decide import OF_THE_GPU
from gpusetup.project.pyproject import VARIANT_NAME

PLATFORMS = {
    "sys_platform == 'linux' and platform_machine != 'aarch64'": ("linux", "x86_64"),
    "sys_platform == 'linux' and platform_machine == 'aarch64'": ("linux", "aarch64"),
    "sys_platform == 'win32'": ("windows", "x86_64"),
}
"""The marker of each platform for which torch's own index has builds. The two Linux markers
together cover all of Linux, because uv locks a project for every machine that its `environments`
allow."""
LINUX_MARKERS = tuple(marker for marker, (family, _) in PLATFORMS.items() if family == "linux")
JOIN = "add the lines below the table that is there, and replace a line of the same name"


class Edit(Frozen):
    """What a person does in a project: lines for its file, then commands."""

    lines: tuple[str, ...] = ()
    steps: tuple[tuple[str, ...], ...] = ()
    notes: tuple[str, ...] = ()


def edit_for(
    ask: Ask, build: TorchBuild, variant: Variant | None, root: str, catalog: Catalog
) -> Edit:
    """The edit for a project that names torch itself, or in the extra or group that was chosen. Its
    bounds stay as they are."""
    sync = ("uv", "sync", *(variant.words if variant else ()))
    name = variant.name if variant else None
    family = named_family(one.name for one in ask.of(name))
    sources = {
        source.package: source.index for source in ask.sources if source.variant in (None, name)
    }
    by_name = {index.name: index for index in ask.indexes}
    own = by_name.get(sources.get("torch"))
    url = build.index or index_url(build.backend, root)
    if ask.is_poetry:
        return edit_of_poetry(ask, build, family, url)
    if own is None:
        # An index without sources serves all packages, torch too.
        own = next((one for one in ask.indexes if one.backend and not ask.sources), None)
    if own is not None and own.backend == build.backend:
        missing = [member for member in family if sources and member not in sources]
        if not missing:
            return Edit(steps=(sync,), notes=(f"{ask.path} names {own.backend} already: no edit",))
        rows = [f'{member} = [{{ index = "{own.name}" }}]' for member in missing]
        notes = (f"{ask.path} has `[tool.uv.sources]` already: {JOIN}",)
        return Edit(lines=("[tool.uv.sources]", *rows), steps=(sync,), notes=notes)
    if own is not None:
        label = f"{own.name} ({own.backend})" if own.name else own.url
        named = (f'name = "{own.name}"',) if own.name else ()
        explicit = ("explicit = true",) if own.name else ()
        table = ("[[tool.uv.index]]", *named, f'url = "{url}"', *explicit)
        note = f"{ask.path} has the index {label} already: replace its table with this one"
        return Edit(lines=table, steps=(sync,), notes=(note,))
    lines = tuple(project_lines(family, url, build, catalog))
    return Edit(lines=lines, steps=(sync,), notes=notes_on_tables(ask, lines))


def notes_on_tables(ask: Ask, lines: Sequence[str]) -> tuple[str, ...]:
    """A note on the tables that the file already has, because TOML allows each table only once."""
    there = [name for name in ask.tables if name in lines]
    if not there:
        return ()
    names = ", ".join(f"`{name}`" for name in there)
    return (f"{ask.path} has {names} already: {JOIN}",)


def edit_of_poetry(ask: Ask, build: TorchBuild, family: Sequence[str], url: str) -> Edit:
    """The edit for a project of Poetry: a source of its own, and each package of the family from
    it, with the bounds that are there.

    https://python-poetry.org/docs/repositories/#explicit-package-sources
    """
    own = next((index for index in ask.indexes if index.backend), None)
    steps = (("poetry", "lock"), ("poetry", "install"))
    if own is not None and own.backend == build.backend:
        return Edit(steps=steps[1:], notes=(f"{ask.path} names {own.backend} already: no edit",))
    named = own.name if own and own.name else None
    source = named or f"pytorch-{build.backend.replace('.', '-')}"
    lines = ["[[tool.poetry.source]]", f'name = "{source}"', f'url = "{url}"']
    lines.append('priority = "explicit"')
    members = " and ".join(family)
    notes = (
        f"in `[tool.poetry.dependencies]`, give {members} this source, and leave the versions: "
        f'`torch = {{ version = "...", source = "{source}" }}`',
    )
    return Edit(lines=tuple(lines), steps=steps, notes=notes)


# --- lines of TOML --------------------------------------------------------------------------------


def project_lines(
    names: Iterable[str], url: str, build: TorchBuild, catalog: Catalog
) -> Iterator[str]:
    """Yields the TOML lines that make uv install these packages from torch's index, on all
    platforms for which the index has this build."""
    marker = marker_of(build.torch, build.backend, catalog)
    needs_more_of_index = maker_of(build.backend) in NEEDS_ITS_INDEX
    if needs_more_of_index:
        # Without this limit, uv would look for torch on this index for other platforms too, which
        # have no such build.
        yield from ("[tool.uv]", f'environments = ["{marker}"]', "")
    yield from ("[[tool.uv.index]]", 'name = "pytorch"', f'url = "{url}"')
    # AMD's and Intel's builds need packages that only this index has, such as their Triton, so for
    # them uv may use the index for every package.
    if not needs_more_of_index:
        yield "explicit = true"
    elif url == INDEX_OF_AMD:
        yield "ignore-error-codes = [403]  # its answer for packages that it does not have"
    yield from ("", "[tool.uv.sources]")
    for name in names:
        yield f'{name} = [{{ index = "pytorch", marker = "{marker}" }}]'


def marker_of(torch: str, backend: str, catalog: Catalog) -> str:
    """The environment marker for the platforms on which torch's index has a build; "" if there are
    none."""
    markers = []
    for marker, (family, machine) in PLATFORMS.items():
        platform = f"{family}-{machine}"
        is_of_other_maker = any(
            row.torch == torch and backend in row.seen.get(platform, "").split()
            for row in catalog.other_makers
        ) or any(
            row.torch == torch and backend == f"rocm{row.rocm}" and platform in row.on.split()
            for row in catalog.amd_index
        )
        if is_of_other_maker or catalog.row_of(torch, backend, family, machine):
            markers.append(marker)
    # If both Linux markers are needed, a single marker for all of Linux is enough.
    if set(LINUX_MARKERS) <= set(markers):
        others = [marker for marker in markers if marker not in LINUX_MARKERS]
        markers = ["sys_platform == 'linux'", *others]
    return " or ".join(markers)


# --- one extra for each build, if the user names them ---------------------------------------------


class ExtraBuild(Frozen):
    """An extra or group that gets a torch build of its own."""

    variant: Variant
    backend: str
    is_there: bool = False
    """Whether the project file already has it."""

    @property
    def index_name(self) -> str:
        return f"pytorch-{self.backend.replace('.', '-')}"


def extras_named(
    words: Sequence[str], ask: Ask, build: TorchBuild | None, catalog: Catalog
) -> tuple[ExtraBuild, ...]:
    """The extras that a user names for builds (`cpu`, `train=cu126`); without names, the project's
    own extras and groups whose names stand for a build but that have no source yet.

    Raises UsageError if a named one stands for no build.
    """
    there = {variant.name: variant for variant in ask.variants}
    extras = []
    for word in dict.fromkeys(words) or there:
        name, _, named_backend = word.partition("=")
        if not re.fullmatch(VARIANT_NAME, name):
            raise UsageError(
                f"{name!r} is not the name of an extra", hint="for example `cpu` or `train=cu126`"
            )
        backend = backend_of(named_backend or name, build, catalog)
        if backend is not None:
            variant = there.get(name) or Variant(name=name, family=("torch",))
            extras.append(ExtraBuild(variant=variant, backend=backend, is_there=name in there))
        elif words:
            raise UsageError(
                f"`--extra {word}` does not say which build of torch it is for",
                hint=f"add it: `--extra {name}=cu130` or `--extra {name}=cpu`",
            )
    return tuple(extras)


def backend_of(name: str, build: TorchBuild | None, catalog: Catalog) -> str | None:
    """The backend for which the name of an extra stands; None if it stands for none.

    `gpu` stands for the CUDA build for this machine or, if it has no GPU, for that of the default
    index.
    """
    label = backend_label(name)
    if label in {row.backend for row in catalog.builds if row.channel == "pytorch"}:
        return label
    if name.lower() not in OF_THE_GPU:
        return None
    if build is not None and build.cuda:
        return build.backend
    defaults = [row.backend for row in catalog.default_wheels if row.on == "linux-x86_64"]
    return next((backend for backend in reversed(defaults) if cuda_of(backend)), None)


def edit_of_extras(
    extras: Sequence[ExtraBuild], ask: Ask, family: Sequence[str], wish: Wish,
    root: str, catalog: Catalog, chosen: ExtraBuild,
) -> Edit:  # fmt: skip
    """The edit that gives each extra its torch build, and forbids installing two of them together.
    Extras that the project has keep their requirements."""
    common = common_release([extra.backend for extra in extras], ask, wish, catalog)
    pins: dict[ExtraBuild, Mapping[str, str]] = {}
    for extra in extras:
        torch = common or common_release([extra.backend], ask, wish, catalog)
        rows = (catalog.row_of(torch or "", extra.backend, *on) for on in PLATFORMS.values())
        build = next(filter(None, rows), None)
        if build is None:
            raise Unsatisfiable(
                f"No torch that was asked for has builds for {extra.backend} "
                f"(extra {extra.variant.name})",
                hint="`gpusetup resolve --explain` lists the builds",
            )
        pins[extra] = build.family((*family, *extra.variant.family))
    options = " or ".join(" ".join(extra.variant.words) for extra in extras)
    lines = tuple(extras_lines(pins, root, catalog))
    tables = [name for name in (*ask.tables, "[project.optional-dependencies]") if name in lines]
    there = [name for name in tables if name in ask.tables or any(e.is_there for e in extras)]
    notes = []
    if there:
        names = ", ".join(f"`{name}`" for name in there)
        notes.append(f"{ask.path} has {names} already: {JOIN}")
    if ask.family:
        notes.append(
            "torch is also among the dependencies of the whole project: remove it there, or it "
            "comes from the default index whenever no extra is chosen"
        )
    notes.append(f"`uv sync` installs one of them: {options}")
    if common is None:
        notes.append("no torch has builds for all of these backends: each extra has its newest")
    steps = (("uv", "sync", *chosen.variant.words),)
    return Edit(lines=lines, steps=steps, notes=tuple(notes))


def common_release(backends: Sequence[str], ask: Ask, wish: Wish, catalog: Catalog) -> str | None:
    """The newest torch that meets the request and has a build for each of these backends; None if
    there is none."""
    limits = specifier(wish.torch)
    bounds = [
        one.text.removeprefix("torch")
        for one in ask.requests
        if one.name == "torch" and one.variant is not None
    ]
    for release in reversed(catalog.releases):
        is_wanted = limits is None or allows(str(limits), release.torch)
        is_inside = all(_allows(bound, release.torch) for bound in bounds)
        has_all = all(marker_of(release.torch, backend, catalog) for backend in backends)
        if is_wanted and is_inside and has_all:
            return release.torch
    return None


def _allows(bound: str, torch: str) -> bool:
    versions = bound.partition(";")[0].strip()
    try:
        return not versions or allows(versions, torch)
    except ValueError:
        return True


def extras_lines(
    pins: Mapping[ExtraBuild, Mapping[str, str]], root: str, catalog: Catalog
) -> Iterator[str]:
    """Yields the TOML lines for a project whose extras use different builds: new extras, conflicts,
    indexes and sources."""
    new = [extra for extra in pins if not extra.is_there]
    if new:
        yield "[project.optional-dependencies]"
    for extra in new:
        exact = [f"{name}=={version}" for name, version in pins[extra].items()]
        yield f"{key(extra.variant.name)} = {json.dumps(exact)}"
    yield from ("",) if new else ()
    if len(pins) > 1:
        members = ", ".join(
            f'{{ {extra.variant.kind} = "{extra.variant.name}" }}' for extra in pins
        )
        yield from ("[tool.uv]", f"conflicts = [[{members}]]", "")
    for backend, name in {one.backend: one.index_name for one in pins}.items():
        yield from ("[[tool.uv.index]]", f'name = "{name}"', f'url = "{index_url(backend, root)}"')
        yield from ("explicit = true", "")
    yield "[tool.uv.sources]"
    for name in dict.fromkeys(name for versions in pins.values() for name in versions):
        yield f"{name} = ["
        for extra, versions in pins.items():
            if name in versions:
                marker = marker_of(versions["torch"], extra.backend, catalog)
                yield (
                    f'    {{ index = "{extra.index_name}", {extra.variant.kind} = '
                    f'"{extra.variant.name}", marker = "{marker}" }},'
                )
        yield "]"


def key(name: str) -> str:
    """A name written as a key in TOML.

    >>> key("cu130"), key("cuda-13.0")
    ('cu130', '"cuda-13.0"')
    """
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name)
