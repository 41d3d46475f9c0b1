"""`gpusetup resolve`: which build fits this machine, or a described one, and why not the others."""

from __future__ import annotations

import re
from datetime import date
from functools import partial

from gpusetup.accelerators.makers import APPLE, LABEL
from gpusetup.catalog.builds import with_catalog
from gpusetup.catalog.file import load_catalog
from gpusetup.commands.common import MachineToRead, gather, words_with_files
from gpusetup.commands.reply import Reply
from gpusetup.commands.reply import answer as reply
from gpusetup.commands.resolve_question import ResolveQuestion
from gpusetup.diagnosis.request import choose_request, decision_for
from gpusetup.errors import Unsatisfiable, UsageError
from gpusetup.install.live_index import LiveIndex, ask_index
from gpusetup.install.packages import requested_packages
from gpusetup.install.request import index_root_of
from gpusetup.install.script_file import refuse_scripts
from gpusetup.install.together import choose_together
from gpusetup.installers import tool_command
from gpusetup.model.documents import ResolveAnswer
from gpusetup.model.frozen import Frozen, replace
from gpusetup.model.machine import Snapshot, Torch
from gpusetup.model.resolution import FAMILY, Offer, Request, Resolution
from gpusetup.probe.own_files import interruptions
from gpusetup.render.console import Console
from gpusetup.render.resolution import family, requirement, resolution_text
from gpusetup.render.screen import plural
from gpusetup.resolver.companions import beside_in_words, environment_of, pinned
from gpusetup.resolver.conda_environment import conda_name, new_environment
from gpusetup.resolver.decide import check_request, resolve, to_answer
from gpusetup.resolver.described import Description, completed_by_gpus, described
from gpusetup.resolver.joint import Asked, Joint, by_name, by_table, name_of
from gpusetup.resolver.least import Decision
from gpusetup.resolver.nightly import is_nightly, nightly_answer
from gpusetup.resolver.notes import age_note
from gpusetup.resolver.offer import at_root, newest_of
from gpusetup.resolver.other_makers import maker_to_serve, resolve_for_maker
from gpusetup.resolver.situation import label_of
from gpusetup.system.system import System
from gpusetup.uv.logins import without_logins
from gpusetup.uv.settings import person_settings

SUMMARY = (
    "Says which PyTorch build fits this machine or a described one, and why the others do not. "
    "What you do not give is read from this machine."
)
EXAMPLES = (
    "gpusetup resolve",
    'gpusetup resolve --os linux --driver 580.95.05 --gpu "GTX 1080 Ti" --python 3.11',
    "gpusetup resolve --from rtx3050-laptop --torch 2.5.1 --installer pip",
    "gpusetup resolve --backend cu134 --refresh",
    "gpusetup resolve --torch 2.5.1 --name torch-cu124",
    'gpusetup resolve vllm --gpu "A100 80GB" --driver 580.95.05 --os linux',
)


QUESTION = ResolveQuestion


def run(question: ResolveQuestion, out: Console) -> Reply:
    packages = words_with_files(question.packages, question.requirements, out, installs=False)
    refuse_scripts(packages)
    question = _with_torch_of_words(question.replaced(packages=packages))
    return _answer(question.replaced(installer=_installer_of(question)), out)


def _with_torch_of_words(question: ResolveQuestion) -> ResolveQuestion:
    """The question, in which a torch among the words is what `--torch` asks for."""
    if not question.packages:
        return question
    requested = requested_packages(question.packages, {})
    if question.torch and requested.torch and question.torch != requested.torch:
        raise UsageError(
            f"`--torch {question.torch}` and torch {requested.torch} exclude each other"
        )
    question = question.replaced(torch=question.torch or requested.torch)
    names_torch_alone = not requested.packages and {*requested.named} <= {"torch"}
    return question.replaced(packages=()) if names_torch_alone else question


def _installer_of(question: ResolveQuestion) -> str | None:
    """The installer that was asked for; the name of a conda environment asks for conda."""
    if question.name is None:
        return question.installer
    conda_name(question.name)
    if question.installer not in (None, "conda"):
        raise UsageError(
            f"`--name` names a conda environment, and {question.installer} creates none",
            hint="leave out `--installer`, or use `gpusetup install --venv DIR` for a new folder",
        )
    return "conda"


class Chosen(Frozen):
    """The build for a machine, and what the answer needs beside it."""

    resolution: Resolution
    newest: Offer | None = None
    joint: Joint | None = None
    """The set that was chosen together, where packages were named."""
    is_other_makers: bool = False
    """Whether the build is for GPUs of AMD or Intel."""


def _answer(question: ResolveQuestion, out: Console) -> Reply:
    root = index_root_of(question.index)
    request = Request(
        torch=question.torch,
        backend=question.backend,
        installer=question.installer or "auto",
    )
    live = _live_index(question, root, out)
    catalog = live.catalog if live else load_catalog()
    given = completed_by_gpus(question.description(), catalog)
    if is_nightly(request.torch):
        return _answer_nightly(question, out, given, replace(request, torch=None))
    check_request(request, catalog)
    snapshot = with_catalog(described(_machine(question, given, out), given, catalog), catalog)
    asked = Asked(machine=snapshot, request=request, catalog=catalog)
    chosen = _chosen(question, asked, out, is_described=given != Description())
    resolution = at_root(chosen.resolution, without_logins(root))
    notes = (*_notes(resolution, snapshot, root), *_live_notes(live, resolution, snapshot))
    chosen = replace(chosen, resolution=replace(resolution, notes=notes))
    document = _document(question, asked, chosen)
    if live:
        is_new = live.lists(resolution.build)
        document = replace(document, live=is_new, asked_index=live.url)
    screen = partial(
        resolution_text,
        snapshot=snapshot,
        installer=question.installer or "uv",
        explain=question.explain,
    )
    return reply(document, screen, yes=document.torch)


def _chosen(question: ResolveQuestion, asked: Asked, out: Console, *, is_described: bool) -> Chosen:
    """The build: with the packages that were named, for another maker's GPUs, or by itself."""
    snapshot, catalog = asked.machine, asked.catalog
    root = index_root_of(question.index)
    maker = maker_to_serve(snapshot, asked.request)
    if question.packages and maker:
        raise Unsatisfiable(
            f"Packages are chosen together with torch for NVIDIA GPUs only, not for {maker.name}'s",
            hint="leave out the packages to see torch's build, and install them after it",
        )
    if question.packages:
        joint, resolution = _together(question, asked, root, out)
        return Chosen(resolution=resolution, joint=joint)
    if maker:
        resolution = resolve_for_maker(snapshot, asked.request, catalog, maker)
        return Chosen(resolution=resolution, is_other_makers=True)
    decision = _decision(asked, is_described=is_described)
    at_mirror = at_root(decision.newest, without_logins(root))
    newest = newest_of(replace(decision, newest=at_mirror), snapshot)
    return Chosen(resolution=decision.resolution, newest=newest)


def _document(question: ResolveQuestion, asked: Asked, chosen: Chosen) -> ResolveAnswer:
    """The answer as a document, with the commands of every installer."""
    snapshot, resolution, joint = asked.machine, chosen.resolution, chosen.joint
    created = new_environment(snapshot, question.name)
    if joint:
        packages = joint.packages
        named = (requirement(one) for one in packages if one.asked and one.name not in FAMILY)
        document = to_answer(resolution, snapshot, (*family(packages), *named), created)
        document = replace(document, packages=packages, held_back=joint.held_back)
    else:
        build, names = resolution.build, [*FAMILY]
        if build is not None and snapshot.python.executable and not chosen.is_other_makers:
            # What of the environment must move with torch, and what is to be said of it.
            names += [one.name for one in pinned(snapshot, build) if one.can_follow]
            notes = (*resolution.notes, *beside_in_words(snapshot, build, asked.catalog))
            resolution = replace(resolution, notes=notes)
        document = to_answer(resolution, snapshot, tuple(names), created)
        document = replace(document, newest=chosen.newest)
    if any(gpu.maker == APPLE.id for gpu in snapshot.gpus or ()):
        document = replace(document, notes=(*document.notes, ON_APPLE))
    return _with_tools(question, document)


ON_APPLE = (
    "torch's ordinary wheel for macOS computes on the GPU of Apple's chips: `torch.device(\"mps\")`"
)


def _answer_nightly(
    question: ResolveQuestion, out: Console, given: Description, request: Request
) -> Reply:
    """The nightly index for this machine and its commands; nothing is installed."""
    if question.packages:
        raise UsageError(
            "`--torch nightly` chooses torch without packages",
            hint="leave them out: few packages support a nightly build",
        )
    catalog = load_catalog()
    machine = with_catalog(described(_machine(question, given, out), given, catalog), catalog)
    root = without_logins(index_root_of(question.index))
    found = nightly_answer(machine, request, catalog, root)
    screen = partial(resolution_text, snapshot=machine, installer=question.installer or "uv")
    return reply(found, screen, yes=found.torch)


# --- the index, asked now ------------------------------------------------------------------------


def _live_index(question: ResolveQuestion, root: str, out: Console) -> LiveIndex | None:
    """What torch's index lists now; None without `--refresh`."""
    if not question.refresh:
        return None
    if question.offline:
        raise UsageError("`--refresh` asks an index, and `--offline` uses no network")
    if is_nightly(question.torch):
        raise UsageError(
            "`--refresh` looks for releases, and `--torch nightly` is none",
            hint="leave out `--refresh`: the nightly index is printed without asking it",
        )
    backend = label_of(question.torch) or question.backend
    if backend != "auto" and not re.fullmatch(LABEL, backend):
        raise UsageError(
            f"{backend!r} is no backend of torch", hint="such as `cpu`, `cu134` or `rocm7.2`"
        )
    return ask_index(root, backend, load_catalog(), out.talk)


def _live_notes(
    live: LiveIndex | None, resolution: Resolution, machine: Snapshot
) -> tuple[str, ...]:
    """What the index said that the table does not know."""
    if live is None:
        return ()
    build, table = resolution.build, load_catalog()
    if not live.lists(build) or build is None:
        count = live.count_on(machine.os.family or "linux")
        news = f"{plural(count, 'build')} for this system" if count else "nothing for this system"
        return (
            f"{live.host} was asked just now: it lists {news} that gpusetup's table of "
            f"{table.as_of} lacks",
        )
    unproven = (
        ""
        if build.cuda is None
        else ("; that it has kernels for your GPU is inferred from the most similar known build")
    )
    companions = [name for name in FAMILY[1:] if getattr(build, name) is None]
    missing = (
        (f"which {' and '.join(companions)} belongs to torch {build.torch} is not known yet",)
        if companions
        else ()
    )
    return (
        f"torch {build.torch} for {build.backend} was listed by {live.host} just now; gpusetup's "
        f"table of {table.as_of} does not know it{unproven}",
        *missing,
    )


def _machine(question: ResolveQuestion, given: Description, out: Console) -> Snapshot:
    """This machine, or its system alone where the rest is described: no driver is waited for."""
    if question.machine or not given.is_whole:
        return gather(MachineToRead(question.machine), out)
    from gpusetup.probe.host import read_os

    return read_os(System())


# --- tools ---------------------------------------------------------------------------------------


def _with_tools(question: ResolveQuestion, found: ResolveAnswer) -> ResolveAnswer:
    """The answer with the command for a tool of uv, where one is asked for."""
    if question.installer != "uv-tool":
        return found
    if not question.packages:
        raise UsageError(
            "`--installer uv-tool` needs the tool's package",
            hint="such as `gpusetup resolve --installer uv-tool whisperx`",
        )
    named = [requirement(one) for one in found.packages if one.asked and one.name not in FAMILY]
    if found.torch is None or found.backend is None:
        return found
    argv = tool_command(named, found.torch, found.backend, found.index_url)
    return replace(found, commands={**found.commands, "uv-tool": (argv,) if argv else ()})


def _decision(asked: Asked, *, is_described: bool) -> Decision:
    """The least change to the torch that was read, as doctor and `install` say it; of a described
    machine, which has none, the newest that fits."""
    snapshot, request, catalog = asked.machine, asked.request, asked.catalog
    if is_described:
        snapshot = replace(snapshot, torch=Torch(installed=False))
    elif request.torch is None and request.backend == "auto":
        request = replace(choose_request(snapshot, catalog)[0], installer=request.installer)
    decision = decision_for(snapshot, catalog, request)
    taken = decision.resolution
    there = {(one.torch, one.backend) for one in (taken.build, *taken.fallbacks) if one}
    # The reasons are of what was asked, not of the version that stays.
    reasons = decision.newest.rejections if taken.build else taken.rejections
    rows = tuple(row for row in reasons if (row.torch, row.backend) not in there)
    return replace(decision, resolution=replace(taken, rejections=rows))


def _notes(resolution: Resolution, snapshot: Snapshot, root: str) -> tuple[str, ...]:
    hidden = "the index's user and password are left out of what is shown"
    said = (
        *interruptions(snapshot),
        *resolution.notes,
        age_note(resolution.catalog_as_of, date.today().isoformat()),
        hidden if root != without_logins(root) else None,
    )
    return tuple(filter(None, said))


# --- packages, chosen together -------------------------------------------------------------------


def _together(
    question: ResolveQuestion, asked: Asked, root: str, out: Console
) -> tuple[Joint, Resolution]:
    """The set, by the user's own indexes or offline by our table, and its torch; or why there is
    none. UsageError for what is no package."""
    requested = requested_packages(question.packages, {}, environment_of(asked.machine))
    family = [word for word in question.packages if name_of(word) in FAMILY[1:]]
    asked = replace(asked, words=by_name((*family, *requested.packages)))
    if question.offline:
        joint = by_table(asked)
    else:
        settings = person_settings()
        places = (without_logins(root), *settings.shown_indexes)
        out.talk(f"asked: {', '.join(places)} (`--offline` uses no network)")
        for note in settings.notes:
            out.talk(f"note: {note}")
        joint = choose_together(asked, root, settings)
    exact = replace(asked.request, torch=f"=={joint.build.torch}", backend=joint.build.backend)
    found = resolve(asked.machine, exact, asked.catalog)
    there = {one.name: (one.version or "").partition("+")[0] for one in joint.packages}
    companions = {name: there[name] for name in FAMILY[1:] if there.get(name)}
    build = replace(found.build, **companions) if found.build else None
    notes = (*found.notes, *joint.notes)
    return joint, replace(found, build=build, rejections=(), advice=None, notes=notes)
