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
from gpusetup.project.ask import Ask
from gpusetup.project.decide import UNCHANGED, Decision, decide, keeps_image


class ProjectHere(Frozen):
    """The project in a folder, as doctor needs it."""

    answer: ProjectAnswer
    wish: Wish | None = None
    """The torch that it asks for; None if nothing fits it, or if its image brings the torch."""
    words: tuple[str, ...] = ()
    """The words with which `gpusetup install` reads the project, such as `-r pyproject.toml`."""


def project_here(ask: Ask, host: Host, catalog: Catalog) -> ProjectHere | None:
    """What a project asks for, and whether the environment meets it; None without a torch."""
    decision = Decision(wish=Wish())
    refusal: Unsatisfiable | None = None
    try:
        if keeps_image(ask):
            sentence = f"{ask.path}: the image {ask.image} brings its own torch: keep that one"
            asks = f"the torch of {ask.image}"
            return ProjectHere(answer=ProjectAnswer(file=ask.path, asks=asks, sentence=sentence))
        decision = decide((ask,), Wish(), host, catalog)
    except Unsatisfiable as problem:
        refusal = problem
    lines = ask.of(decision.variant.name if decision.variant else None)
    names = [one.text for one in lines if one.name in FAMILY]
    names += [f"torch{one.torch}" for one in ask.later if one.torch]
    # The answer is one line: it has room for four names, and for two ways out of a refusal.
    asks = ", ".join(names[:4])
    if refusal:
        ways = [line for line in (refusal.hint or "").splitlines() if line != UNCHANGED]
        sentence = ". ".join((refusal.message.splitlines()[0], *ways[:2]))
        answer = ProjectAnswer(file=ask.path, asks=asks or ask.path, meets=False, sentence=sentence)
        return ProjectHere(answer=answer)
    if not asks:
        return None
    wish, machine = decision.wish.of_torch_alone, host.machine
    is_of_uv = ask.has_project and (decision.variant is not None or bool(ask.sources))
    words = ("--project",) if is_of_uv else ("-r", ask.path)
    installed = machine.torch.version
    is_inside = bool(installed) and allows_torch(wish.torch, public(installed))
    if is_inside and wish.wanted_backend in ("auto", installed_backend(machine, catalog)):
        sentence = f"{ask.path} asks for {asks}: this environment's torch {installed} meets it"
        answer = ProjectAnswer(file=ask.path, asks=asks, meets=True, sentence=sentence)
        return ProjectHere(answer=answer, wish=wish, words=words)
    build = choose(replace(wish, family=("torch",)), host, catalog).build
    fits = f"torch {build.torch} from {build.backend} fits" if build else "no build of it fits here"
    command = shell_line(("gpusetup", "install", *words), machine.os.family)
    has = f"this environment has torch {installed}" if installed else "torch is not installed"
    sentence = f"{ask.path} asks for {asks}, and {has}: {fits}: `{command}`"
    meets = False if installed else None
    answer = ProjectAnswer(file=ask.path, asks=asks, meets=meets, sentence=sentence)
    return ProjectHere(answer=answer, wish=wish, words=words)
