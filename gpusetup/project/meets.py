"""What the project in a folder asks for, and whether the environment meets it."""

from __future__ import annotations

from gpusetup.catalog.builds import Catalog
from gpusetup.choose.choose import choose
from gpusetup.choose.host import Host
from gpusetup.choose.installed import installed_backend, public
from gpusetup.choose.wish import Wish, allows_torch
from gpusetup.errors import Unsatisfiable
from gpusetup.model.builds import FAMILY
from gpusetup.model.documents import ProjectAnswer
from gpusetup.model.frozen import Frozen, replace
from gpusetup.model.shell import shell_line
from gpusetup.project.ask import Ask, Variant
from gpusetup.project.decide import UNCHANGED, decide, keeps_image


class ProjectHere(Frozen):
    """The project in a folder, as doctor needs it."""

    answer: ProjectAnswer
    wish: Wish | None = None
    """The torch that it asks for; None if nothing fits it, or if its image brings the torch."""
    words: tuple[str, ...] = ()
    """The words with which `gpusetup install` reads the project, such as `-r pyproject.toml`."""


def project_here(ask: Ask, host: Host, catalog: Catalog) -> ProjectHere | None:
    """What a project asks for, and whether the environment meets it; None without a torch."""
    file, machine = ask.path, host.machine
    if keeps_image(ask):
        sentence = f"{file}: the image {ask.image} brings its own torch: keep that one"
        answer = ProjectAnswer(file=file, asks=f"the torch of {ask.image}", sentence=sentence)
        return ProjectHere(answer=answer)
    try:
        decision = decide((ask,), Wish(), host, catalog)
    except Unsatisfiable as refusal:
        # The answer is one line, which has room for two ways out.
        ways = [line for line in (refusal.hint or "").splitlines() if line != UNCHANGED][:2]
        sentence = ". ".join((refusal.message.splitlines()[0], *ways))
        asks = _torch_of(ask) or file
        return ProjectHere(
            answer=ProjectAnswer(file=file, asks=asks, meets=False, sentence=sentence)
        )
    asks = _torch_of(ask, decision.variant)
    if not asks:
        return None
    wish, installed = decision.wish.of_torch_alone, machine.torch.version
    is_of_uv = ask.has_project and (decision.variant is not None or bool(ask.sources))
    words = ("--project",) if is_of_uv else ("-r", file)
    has_backend = wish.wanted_backend in ("auto", installed_backend(machine, catalog))
    if installed and allows_torch(wish.torch, public(installed)) and has_backend:
        meets: bool | None = True
        sentence = f"{file} asks for {asks}: this environment's torch {installed} meets it"
    else:
        meets = False if installed else None
        has = f"this environment has torch {installed}" if installed else "torch is not installed"
        build = choose(replace(wish, family=("torch",)), host, catalog).build
        fits = "no build of it fits here"
        if build:
            fits = f"torch {build.torch} from {build.backend} fits"
        command = shell_line(("gpusetup", "install", *words), machine.os.family)
        sentence = f"{file} asks for {asks}, and {has}: {fits}: `{command}`"
    answer = ProjectAnswer(file=file, asks=asks, meets=meets, sentence=sentence)
    return ProjectHere(answer=answer, wish=wish, words=words)


def _torch_of(ask: Ask, variant: Variant | None = None) -> str:
    """torch and its companions as a project asks for them, in at most four names; "" without."""
    lines = ask.of(variant.name if variant else None)
    names = [one.text for one in lines if one.name in FAMILY]
    names += [f"torch{one.torch}" for one in ask.later if one.torch]
    return ", ".join(names[:4])
