"""Decides which torch a project gets on a host, and whether an environment meets that. Pure.

1. The torch is inside all bounds of the project, and those of the wheels that it names by URL.
2. The backend is the one in a local label (`2.6.0+cu124`), which is part of the pin. Otherwise
   it is the one that the project names by an index, a source or its CUDA, if a build of it
   fits this host; a note says if none does.
3. If extras or groups choose the CUDA, the one with the newest torch that fits is taken.
4. If no build inside the bounds fits, the answer is no: with the pin, the reason and the
   nearest build that works.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from gpusetup.accelerators.makers import AMD, LABEL, maker_of
from gpusetup.catalog.builds import Catalog
from gpusetup.choose.choose import choose
from gpusetup.choose.constraints import best_build, in_scope, main_reason, nearest_build, preference
from gpusetup.choose.host import BuildQuestion, Host, question_of
from gpusetup.choose.installed import installed_backend, marker_environment, public_version
from gpusetup.choose.wish import (
    Wish,
    allows_torch,
    backend_label,
    label_of,
    specifier_text,
    torch_of_companions,
)
from gpusetup.errors import Unsatisfiable
from gpusetup.model.builds import FAMILY, TorchBuild
from gpusetup.model.documents import ProjectAnswer
from gpusetup.model.frozen import Frozen, replace
from gpusetup.model.logins import without_logins
from gpusetup.model.machine import Snapshot
from gpusetup.model.shell import shell_line
from gpusetup.model.versions import cuda_of, parsed
from gpusetup.project.ask import Ask, DirectReference, Requested, Variant, named_family

OF_THE_GPU = ("gpu", "cuda", "nvidia")
"""Extras with these names stand for the build that fits the user's GPU."""
UNCHANGED = "nothing was changed"
MOST_LISTED = 4
"""How many packages or lines of a file a note lists; `uv pip compile` writes a hundred."""
LAST_PATCH = 99
"""A number that no patch release of Python reaches."""


class Decision(Frozen):
    """The wish for torch of a project on a host, and what the user should know about it."""

    wish: Wish
    variant: Variant | None = None
    """The extra or group that chooses the build for this host."""
    notes: tuple[str, ...] = ()


def decide(asks: Sequence[Ask], wish: Wish, host: Host, catalog: Catalog) -> Decision:
    """The wish for what these files ask for on a host, together with `wish`, the options of the
    command.

    Raises Unsatisfiable if no build inside the bounds or for the extras fits, if the Python here is
    excluded, or if an image's own torch must stay."""
    environment = marker_environment(host.machine)
    chosen: Variant | None = None
    requests, limits = list[Requested](), list[Requested]()
    direct, notes, preferred = list[DirectReference](), list[str](), list[tuple[str, str]]()
    for ask in asks:
        if keeps_image(ask):
            others = " ".join(one.name for one in ask.of())
            raise Unsatisfiable(
                f"{ask.path}: the image {ask.image} has its own torch, which no wheel can replace",
                hint=f"install only the other packages in the image: `pip install {others}`",
            )
        # A torch or a backend that the command names decides instead of the project's extras.
        variant = None if wish.names_build else variant_for(ask, host, catalog)
        chosen = variant or chosen
        ask_here = ask.on_machine(environment, variant.name if variant else None)
        requests += ask_here.requests
        limits += ask_here.limits
        direct += ask_here.direct
        notes += notes_of(ask)
        preferred += named_backends(ask, ask_here)
    bounds = bounds_of([*requests, *limits], direct, catalog)
    torch = wish.torch
    if bounds.torch:
        # `--torch 2.9.1` becomes `==2.9.1`, as the bounds of the files are.
        torch = ",".join(filter(None, (bounds.torch, specifier_text(wish.torch))))
    # A backend that the user names takes precedence over the one in a pin.
    backend = wish.wanted_backend
    if backend == "auto":
        backend = bounds.backend or "auto"
    texts = (one.text for one in requests if one.name not in FAMILY)
    combined = replace(
        wish,
        torch=torch,
        backend=backend,
        family=named_family((*wish.family, *(one.name for one in requests))),
        packages=tuple(dict.fromkeys((*wish.packages, *texts))),
        from_project=bool(requests),
    )
    for ask in asks:
        refuse_python(ask, combined, host, catalog)
    if combined.backend == "auto":
        combined, reason = with_preferred(combined, preferred, host, catalog)
        notes += [reason] if reason else []
    # Without a bound, it is not the project that excludes builds, and `choose` gives the reason.
    if bounds.place:
        # For the message only, which names the backend of a pin, or else the first that is named.
        named = bounds.backend or next((backend for backend, _ in preferred), None)
        refuse_bound(combined, bounds.place, named, host, catalog)
    notes += notes_on_direct(direct, host.machine)
    return Decision(wish=combined, variant=chosen, notes=tuple(dict.fromkeys(notes)))


def named_backends(ask: Ask, ask_here: Ask) -> Iterator[tuple[str, str]]:
    """Yields the backends that a file names, each with its place, the one that counts most first.
    `ask_here` is what counts of the file on this machine.

    A wheel is built for one CUDA, so it counts most; then what the file says for torch itself, and
    last an index, which may be for other packages."""
    # From an index that a source names, uv takes only the packages of such sources.
    of_sources = [source.index for source in ask.sources]
    for backend, place in (
        *((one.backend, one.place) for one in ask_here.direct),
        (ask.backend, f"{ask.path}'s CUDA"),
        (source_backend(ask_here), ask.path),
        *((one.backend, one.place) for one in ask.indexes if one.name not in of_sources),
    ):
        if backend:
            yield backend, place


def notes_of(ask: Ask) -> Iterator[str]:
    """Yields a sentence each for what was left out, the torch that the image brings, every index
    that will not be asked, and the lines that were not understood."""
    if ask.left_out:
        names = ", ".join(ask.left_out[:MOST_LISTED])
        more = ", ..." if len(ask.left_out) > MOST_LISTED else ""
        yield (
            f"{ask.path}: left out {names}{more}, which torch's own wheel requires in the "
            "versions for its CUDA"
        )
    # The reader adds the image's own torch, at the place "the image", unless a line installs one.
    if ask.image and any("the image" in one.place for one in ask.requests):
        yield f"{ask.path}: the image {ask.image} brings its own torch: keep that one"
    elif ask.image:
        brings = f"the image's torch {ask.image_torch}" if ask.image_torch else "the image's torch"
        yield f"{ask.path}: a pip line in this file replaces {brings} ({ask.image})"
    # uv itself reads the indexes of a pyproject.toml, in whose folder it runs.
    is_of_pip = ask.kind in ("requirements", "environment", "dockerfile")
    for index in ask.indexes if is_of_pip else ():
        # torch's own index and its mirrors need no note: the command to install names the index.
        if not (index.backend or "/whl" in index.url or "pytorch" in index.url):
            shown = without_logins(index.url)
            yield f"{index.place}: gpusetup does not use {shown}; to use it, set UV_INDEX to it"
    if ask.unread:
        lines = "; ".join(without_logins(line) for line in ask.unread[:MOST_LISTED])
        hidden = len(ask.unread) - MOST_LISTED
        yield f"not read: {lines}{f'; and {hidden} more' if hidden > 0 else ''}"


class Bounds(NamedTuple):
    """What a project's lines, and the names of its wheels, allow for torch."""

    torch: str
    """The versions as a specifier; "" for any."""
    backend: str | None
    """The backend of a local label, which is part of a pin."""
    place: str
    """The place of the first exact pin of torch, or else of the first bound; "" without one."""


def bounds_of(
    lines: Iterable[Requested], direct: Iterable[DirectReference], catalog: Catalog
) -> Bounds:
    """The bounds on torch that satisfy all of these lines and wheels of a project."""
    bounded = [one for one in lines if one.name in FAMILY and one.versions]
    of_torch = [one for one in bounded if one.name == "torch"]
    of_wheels = filter(None, (wheel.torch for wheel in direct))
    torch = ",".join(dict.fromkeys((*map(_without_label, of_torch), *of_wheels)))
    companions = [(one.name, _without_label(one)) for one in bounded if one.name != "torch"]
    is_pinned = re.fullmatch(r"==[\d.]+", torch)
    # `torchvision>=0.20.1` also bounds torch, unless it is pinned: they are released in pairs.
    if companions and not is_pinned:
        pair = torch_of_companions(companions, torch or None, catalog)
        torch = ",".join(filter(None, (torch, pair)))
    labels = (label_of(part) for one in bounded for part in one.versions.split(","))
    # A nightly's or a vendor's label (`+git1234`, `+nv25.3`) names no backend.
    backends = (label for label in labels if label == "cpu" or maker_of(label))
    # An exact pin is named as the reason before a range.
    pins = [one for one in of_torch if "==" in one.versions]
    places = [one.place for one in (*pins, *bounded)]
    places += [wheel.place for wheel in direct if wheel.torch]
    return Bounds(torch, next(backends, None), places[0] if places else "")


def _without_label(one: Requested) -> str:
    """The versions of a requirement without local labels: `==2.6.0` of `==2.6.0+cu124`."""
    return ",".join(part.partition("+")[0] for part in one.versions.split(","))


def with_preferred(
    wish: Wish, preferred: Sequence[tuple[str, str]], host: Host, catalog: Catalog
) -> tuple[Wish, str | None]:
    """The wish with the first preferred backend of which a build fits. If none fits, the same wish
    and why not the first; None if a build fits or none is preferred.

    `preferred` are backends with the places that name them."""
    reasons = []
    for backend, place in preferred:
        # If no NVIDIA GPU was found, or it is unknown, the project may choose the CPU.
        if backend == "cpu" and host.facts.presence == "some":
            reasons.append(f"{place} uses the index of CPU builds, which do not use the GPU")
            continue
        names = [backend]
        if backend not in catalog.backends:
            # `cu12` of a wheel is any CUDA 12, `rocm` any ROCm: the newest that fits is chosen.
            names = sorted(
                (name for name in catalog.backends if name.startswith(backend)),
                key=lambda name: parsed(cuda_of(name) or name.removeprefix("rocm")),
                reverse=True,
            )
        for name in names:
            question = question_of(replace(wish, backend=name), host, catalog)
            if best_build(question):
                return replace(wish, backend=name), None
            reasons.append(f"{place} asks for {name}, which {main_reason(question)}")
    return wish, next(iter(reasons), None)


# --- extras and groups that choose a CUDA ---------------------------------------------------------


def source_backend(ask: Ask) -> str | None:
    """The backend of the index that the first source for torch names; None if it or its backend is
    unknown."""
    backends = {index.name: index.backend for index in ask.indexes}
    of_torch = (backends.get(one.index) for one in ask.sources if one.package == "torch")
    return next(of_torch, None)


def backend_of_variant(variant: Variant, ask: Ask, ask_here: Ask) -> str | None:
    """The backend for which an extra or a group stands, by its source or else by its name; `auto`
    for the one that fits the GPU, None if it stands for none. `ask_here` is what counts of the file
    on this machine with this variant."""
    # With a separate source, the name no longer counts, even if the source does not apply here.
    if any(one.variant == variant.name for one in ask.sources):
        of_variant = [one for one in ask_here.sources if one.variant == variant.name]
        return source_backend(replace(ask_here, sources=of_variant))
    if variant.name.lower() in OF_THE_GPU:
        return "auto"
    label = backend_label(variant.name)
    # `rocm` names no version, but whose build it is; `custom` begins like a label and is none.
    return label if re.fullmatch(rf"{LABEL}|{AMD.label}", label) else None


def variant_for(ask: Ask, host: Host, catalog: Catalog) -> Variant | None:
    """The extra or group with the newest torch that fits this host, of those that choose a build;
    None if there is none, or if none fits.

    Raises Unsatisfiable if the project has a torch only in such extras, and none fits this host."""
    fitting: list[tuple[TorchBuild, Variant]] = []
    reasons: list[str] = []
    # Whether the project also gets a torch without these extras: from its own dependencies, or from
    # an extra that names no CUDA.
    has_other = bool(ask.family)
    for variant in ask.variants:
        ask_here = ask.on_machine(marker_environment(host.machine), variant.name)
        backend = backend_of_variant(variant, ask, ask_here)
        if backend is None:
            has_other = True
            continue
        # `decide` judges limits and wheels, of the chosen extra alone.
        torch = bounds_of(ask_here.requests, (), catalog).torch or None
        question = question_of(Wish(torch=torch, backend=backend), host, catalog)
        build = best_build(question)
        if build is None:
            reasons.append(f"{variant.name}: {main_reason(question)}")
        # A build for the CPU would leave an NVIDIA GPU unused.
        elif maker_of(build.backend) or host.facts.presence != "some":
            fitting.append((build, variant))
    if fitting:
        # The build that would be chosen among them without the extras sorts first.
        sort_key = preference(question_of(Wish(), host, catalog))
        return min(fitting, key=lambda pair: sort_key(pair[0]))[1]
    if reasons and not has_other:
        lines = ("None of the project's extras has a torch for this machine", *reasons)
        hint = f"{UNCHANGED}; add an extra for a build that fits: `gpusetup resolve` shows one"
        raise Unsatisfiable("\n  ".join(lines), hint=hint)
    return None


def newest_python(question: BuildQuestion, allowed: str = "") -> tuple[str, TorchBuild] | None:
    """The newest Python that a project allows (any by default) and for which a build fits, with
    that build; None if there is none."""
    pythons = {name for build in in_scope(question) for name in build.pythons}
    for name in sorted(pythons, key=parsed, reverse=True):
        # `3.13t` is the Python without the GIL, for which few packages have wheels.
        if not name.endswith("t") and allows_python(allowed, name):
            build = best_build(replace(question, host=replace(question.host, python=name)))
            if build:
                return name, build
    return None


def refuse_python(ask: Ask, wish: Wish, host: Host, catalog: Catalog) -> None:
    """Raise Unsatisfiable if a project excludes the Python of the environment; the hint names a
    Python that the project allows, and the torch for it. An unknown Python counts as allowed."""
    # An environment.yml or an image creates the environment with the Python that it names.
    if ask.brings_python or not ask.python or not host.facts.python:
        return
    # Only a Python that was read from the machine has a patch version.
    version = host.machine.python.version or host.facts.python
    if allows_python(ask.python, version):
        return
    hint = f"{UNCHANGED}; use an environment with a Python that fits: `--python PATH`"
    usable = newest_python(question_of(wish, host, catalog), ask.python)
    if usable:
        name, build = usable
        hint = (
            f"`uv venv --python {name}`, then run this again with `--python .venv`, which gives "
            f"torch {build.torch} from {build.backend}"
        )
    raise Unsatisfiable(
        f"{ask.path} needs Python {ask.python}, but this environment has {version}", hint=hint
    )


def allows_python(versions: str, python: str) -> bool:
    """Whether a specifier of Python versions allows a version; a bad specifier allows all.

    >>> allows_python(">=3.9,<3.13", "3.12"), allows_python(">=3.9,<3.13", "3.13.1")
    (True, False)
    """
    try:
        allowed = SpecifierSet(versions)
    except InvalidSpecifier:
        return True
    # `3.13t`, the Python without the GIL, counts as 3.13.
    numbers = python.rstrip("t")
    # A series counts as its last patch release (`>=3.10.4` allows 3.10) and as itself (`==3.10`).
    last = numbers if numbers.count(".") > 1 else f"{numbers}.{LAST_PATCH}"
    return allowed.contains(last, prereleases=True) or allowed.contains(numbers, prereleases=True)


def refuse_bound(wish: Wish, place: str, backend: str | None, host: Host, catalog: Catalog) -> None:
    """Raise Unsatisfiable if no build inside a project's bounds fits this host, with the reason and
    the nearest that works. The message names the bound's `place` and the project's `backend`."""
    question = question_of(wish, host, catalog)
    # `choose` itself refuses a backend of AMD or Intel, and names the GPU.
    if maker_of(wish.wanted_backend) not in (None, "nvidia") or best_build(question):
        return
    # What would work instead, the nearest first: another Python, another backend, another torch.
    hints = [UNCHANGED]
    other = newest_python(question)
    if other and other[0] != host.facts.python:
        python, build = other
        hints.append(f"with Python {python}, you get torch {build.torch} from {build.backend}")
    any_backend = replace(question.wish, backend="auto")
    near = best_build(replace(question, wish=any_backend))
    torch = (wish.torch or "").removeprefix("==")
    # The first version of the bound: 2.6 of `>=2.6,<2.8`.
    number = re.search(r"\d+(?:\.\d+)*", torch)
    if near is None and number:
        any_torch = replace(question, wish=replace(any_backend, torch=None))
        near = nearest_build(number[0], any_torch)
    if near:
        works = f"torch {near.torch} from {near.backend}"
        if not allows_torch(wish.torch, near.torch):
            works += ": change the pin, then run this again"
        hints.append(f"the nearest version that works is {works}")
    label = f" from {backend}" if backend else ""
    raise Unsatisfiable(
        f"{place} asks for torch {torch}{label}, which {main_reason(question)}",
        hint="\n".join(hints),
    )


def keeps_image(ask: Ask) -> bool:
    """Whether a Dockerfile builds on an image with NVIDIA's own torch, whose release the image's
    name does not show, and installs no other torch."""
    return bool(ask.image) and not (ask.image_torch or "torch" in ask.family)


def described_python(asks: Sequence[Ask], machine: Snapshot) -> Snapshot:
    """The machine with the Python that the first of these files brings, as an image or an
    environment.yml does; the machine itself if none does."""
    for ask in asks:
        if ask.brings_python:
            python = replace(machine.python, version=ask.python, executable=None, prefix=None)
            return replace(machine, python=python)
    return machine


def notes_on_direct(direct: Sequence[DirectReference], machine: Snapshot) -> tuple[str, ...]:
    """One note with the command that installs these after torch; empty if there are none."""
    if not direct:
        return ()
    words: list[str] = []
    for reference in direct:
        line = without_logins(reference.text)
        # `-e .` is an option and its value, and `name @ https://...` is one word.
        words += line.split(" ", 1) if line.startswith("-") else [line]
    python = machine.python.executable
    target = ("--python", python) if python else ()
    command = shell_line(("uv", "pip", "install", *target, *words), machine.os.family)
    return (f"some packages are on no index, so install them after torch: `{command}`",)


# --- whether an environment meets it --------------------------------------------------------------


class ProjectHere(Frozen):
    """The project in a folder, as doctor needs it."""

    answer: ProjectAnswer
    wish: Wish | None = None
    """The torch that it asks for; None if nothing fits it, or if its image brings the torch."""
    words: tuple[str, ...] = ()
    """The words with which `gpusetup install` reads the project, such as `-r pyproject.toml`."""


def project_here(ask: Ask, host: Host, catalog: Catalog) -> ProjectHere | None:
    """What a project asks for, and whether the environment meets it; None if it names no torch."""
    file, machine = ask.path, host.machine
    if keeps_image(ask):
        sentence = f"{file}: the image {ask.image} brings its own torch: keep that one"
        answer = ProjectAnswer(file=file, asks=f"the torch of {ask.image}", sentence=sentence)
        return ProjectHere(answer=answer)
    try:
        decision = decide((ask,), Wish(), host, catalog)
    except Unsatisfiable as refusal:
        # doctor changes nothing anyway, and shows the hints in the same line.
        hints = [line for line in (refusal.hint or "").splitlines() if line != UNCHANGED]
        sentence = ". ".join((refusal.message.splitlines()[0], *hints))
        asks = _torch_of(ask) or file
        answer = ProjectAnswer(file=file, asks=asks, meets=False, sentence=sentence)
        return ProjectHere(answer=answer)
    asks = _torch_of(ask, decision.variant)
    if not asks:
        return None
    wish, installed = decision.wish.of_torch_alone, machine.torch.version
    # What the project's own extras and sources install, only uv installs in that way.
    has_uv_choice = ask.has_project and (decision.variant is not None or bool(ask.sources))
    words = ("--project",) if has_uv_choice else ("-r", file)
    has_backend = wish.wanted_backend in ("auto", installed_backend(machine, catalog))
    if installed and allows_torch(wish.torch, public_version(installed)) and has_backend:
        meets: bool | None = True
        sentence = f"{file} asks for {asks}, and this environment has torch {installed}"
    else:
        # Without a torch, there is nothing to judge.
        meets = False if installed else None
        has = f"this environment has torch {installed}" if installed else "torch is not installed"
        # A project may only name companions, but this sentence needs torch.
        build = choose(replace(wish, family=("torch",)), host, catalog).build
        fits = "No build of it fits here"
        if build:
            fits = f"Torch {build.torch} from {build.backend} fits"
        command = shell_line(("gpusetup", "install", *words), machine.os.family)
        sentence = f"{file} asks for {asks}, but {has}. {fits}: `{command}`"
    answer = ProjectAnswer(file=file, asks=asks, meets=meets, sentence=sentence)
    return ProjectHere(answer=answer, wish=wish, words=words)


def _torch_of(ask: Ask, variant: Variant | None = None) -> str:
    """The first few lines that ask for torch or a companion, joined by commas, with those of an
    extra or a group only if it is given; "" if none does. Of a wheel's URL, it has the version."""
    chosen_by = variant.name if variant else None
    names = [one.text for one in ask.of(chosen_by) if one.name in FAMILY]
    wheels = [one for one in ask.direct if one.variant in (None, chosen_by)]
    names += [f"torch{one.torch}" for one in wheels if one.torch]
    return ", ".join(names[:MOST_LISTED])
