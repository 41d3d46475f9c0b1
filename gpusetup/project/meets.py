"""One line on what the project in a folder asks for, and whether the environment meets it."""

from __future__ import annotations

from gpusetup.catalog.builds import Catalog
from gpusetup.choose.choose import choose
from gpusetup.choose.host import Host
from gpusetup.choose.installed import installed_backend, public
from gpusetup.choose.wish import Wish, allows_torch
from gpusetup.errors import Unsatisfiable
from gpusetup.model.documents import ProjectAnswer
from gpusetup.model.frozen import replace
from gpusetup.model.shell import shell_line
from gpusetup.project.ask import Ask, Variant
from gpusetup.project.decide import decide, keeps_image, refuse_image


def project_answer(ask: Ask, host: Host, catalog: Catalog) -> ProjectAnswer | None:
    """What a project asks for, and whether the torch of the environment meets it; None if the
    project names no torch."""
    machine = host.machine
    try:
        if keeps_image(ask):
            refuse_image(ask, host)
            sentence = f"{ask.path}: the image {ask.image} brings its own torch: keep that one"
            return ProjectAnswer(file=ask.path, asks=f"the torch of {ask.image}", sentence=sentence)
        decision = decide((ask,), Wish(), host, catalog)
    except Unsatisfiable as problem:
        lines = [problem.message, *(problem.hint or "").splitlines()]
        ways = [line for line in lines[1:] if line != "nothing was changed"]
        sentence = ". ".join((problem.message.splitlines()[0], *ways[:2]))
        return ProjectAnswer(
            file=ask.path, asks=_asks(ask, None) or ask.path, meets=False, sentence=sentence
        )
    asks = _asks(ask, decision.variant)
    if not asks:
        return None
    wish = decision.wish
    build = choose(replace(wish, packages=(), family=("torch",)), host, catalog).build
    fits = f"torch {build.torch} from {build.backend} fits" if build else "no build of it fits here"
    is_of_uv = ask.has_project and (decision.variant is not None or bool(ask.sources))
    argv = ("gpusetup", "install", "--project" if is_of_uv else "-r")
    command = shell_line((*argv, *(() if is_of_uv else (ask.path,))), machine.os.family)
    installed = machine.torch.version
    if not installed:
        sentence = f"{ask.path} asks for {asks}, and torch is not installed: {fits}: `{command}`"
        return ProjectAnswer(file=ask.path, asks=asks, meets=None, sentence=sentence)
    is_inside = allows_torch(wish.torch, public(installed))
    wanted = wish.wanted_backend
    has_backend = wanted in ("auto", installed_backend(machine, catalog))
    if is_inside and has_backend:
        sentence = f"{ask.path} asks for {asks}: this environment's torch {installed} meets it"
        return ProjectAnswer(file=ask.path, asks=asks, meets=True, sentence=sentence)
    sentence = (
        f"{ask.path} asks for {asks}, and this environment has torch {installed}: {fits}: "
        f"`{command}`"
    )
    return ProjectAnswer(file=ask.path, asks=asks, meets=False, sentence=sentence)


def _asks(ask: Ask, variant: Variant | None) -> str:
    """The requirements of a project for torch and its companions, also by the names of wheels."""
    names = [one.text for one in ask.of(variant.name if variant else None) if one.is_family]
    names += [f"torch{one.torch}" for one in ask.later if one.torch]
    return ", ".join(names[:4])
