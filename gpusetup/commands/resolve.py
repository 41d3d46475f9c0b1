"""`gpusetup resolve`: shows which build fits this machine or a described one, and why others do
not."""

from __future__ import annotations

import re
from datetime import date
from functools import partial

from gpusetup.accelerators.makers import APPLE, LABEL
from gpusetup.catalog.builds import completed_from_catalog
from gpusetup.catalog.file import load_catalog
from gpusetup.choose.choice import Choice
from gpusetup.choose.choose import choose
from gpusetup.choose.commands import tool_command
from gpusetup.choose.compatibility import notes_on_installed
from gpusetup.choose.conda_environment import conda_name, new_environment
from gpusetup.choose.described import Description, completed_by_gpus, described, without_torch
from gpusetup.choose.document import answer_of, offer_of
from gpusetup.choose.host import host_of
from gpusetup.choose.installed import followers, marker_environment
from gpusetup.choose.newest import age_note
from gpusetup.choose.nightly import is_nightly, nightly_answer
from gpusetup.choose.wish import Wish, check_wish, parse_words, with_torch_named
from gpusetup.commands.common import MachineToRead, gather
from gpusetup.commands.reply import Reply
from gpusetup.commands.reply import answer as reply
from gpusetup.commands.resolve_question import ResolveQuestion
from gpusetup.commands.words import index_root_of, refuse_scripts
from gpusetup.errors import UsageError
from gpusetup.model.builds import FAMILY, Rejection
from gpusetup.model.documents import ResolveAnswer
from gpusetup.model.frozen import replace
from gpusetup.model.logins import without_logins
from gpusetup.model.machine import Snapshot
from gpusetup.probe.own_files import interruptions
from gpusetup.project.decide import afterwards, decide, described_python
from gpusetup.project.read import read_ask
from gpusetup.render.console import Console
from gpusetup.render.resolution import family, resolution_text
from gpusetup.render.screen import plural
from gpusetup.system.system import System
from gpusetup.uv.live_index import LiveIndex, ask_index
from gpusetup.uv.package_index import PersonIndex

SUMMARY = """Tells you which PyTorch build fits this machine, or a machine that you describe, and
why the other builds do not. If you leave an option out, its value is read from this machine."""
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
    refuse_scripts(question.packages)
    # If the packages include torch, treat it as `--torch`.
    wish = with_torch_named(parse_words(question.packages), question.torch)
    question = question.replaced(
        packages=question.packages if wish.words else (),
        torch=wish.torch,
        installer=_installer_of(question),
    )
    return _answer(question, out)


def _installer_of(question: ResolveQuestion) -> str | None:
    """The requested installer. If only a conda environment is named, it is `conda`; None if neither
    is given."""
    if question.name is None:
        return question.installer
    conda_name(question.name)
    if question.installer not in (None, "conda"):
        raise UsageError(
            f"`--name` names a conda environment, but {question.installer} cannot create one",
            hint="leave out `--installer`, or use `gpusetup install --venv DIR` for a new folder",
        )
    return "conda"


def _answer(question: ResolveQuestion, out: Console) -> Reply:
    root = index_root_of(question.index)
    live = _live_index(question, root, out)
    catalog = live.catalog if live else load_catalog()
    description = completed_by_gpus(question.description(), catalog)
    if is_nightly(question.torch):
        return _answer_nightly(question, out, description)
    machine = described(_machine(question, description, out), description, catalog)
    asks = tuple(map(read_ask, question.requirements))
    machine = completed_from_catalog(described_python(asks, machine), catalog)
    wish = _wish(question, machine)
    check_wish(wish, catalog)
    decision = decide(asks, wish, host_of(machine, catalog), catalog)
    wish = decision.wish
    # Ignore the installed torch if a machine is described, because torch is not installed there,
    # and if packages are requested, because they get the newest torch that they accept.
    is_new = description != Description() or bool(wish.words)
    host = host_of(without_torch(machine) if is_new else machine, catalog)
    index = _index(machine, root, out) if wish.words and not wish.offline else None
    choice = choose(wish, host, catalog, index)
    document = _document(question, choice, machine, root)
    notes = (
        *decision.notes,
        *_notes(document, machine, root),
        *afterwards(decision.later, machine),
        *_live_notes(live, choice, machine),
    )
    document = replace(document, notes=notes)
    if live:
        is_listed_now = live.lists(choice.build)
        document = replace(document, live=is_listed_now, asked_index=live.url)
    screen = partial(
        resolution_text,
        snapshot=machine,
        installer=question.installer or "uv",
        explain=question.explain,
    )
    return reply(document, screen, yes=document.torch)


def _wish(question: ResolveQuestion, machine: Snapshot) -> Wish:
    """The request for a machine, with the packages whose environment markers apply to it."""
    wish = parse_words(question.packages, marker_environment(machine))
    return replace(
        wish,
        torch=question.torch,
        backend=question.backend,
        installer=question.installer or "auto",
        offline=question.offline,
    )


def _index(machine: Snapshot, root: str, out: Console) -> PersonIndex:
    """The user's package indexes, which print their URLs before they are asked."""

    def name_indexes(_choice: Choice, _words: tuple[str, ...]) -> None:
        shown = without_logins(root)
        out.talk(f"asked: {shown} and the indexes of your uv (`--offline` uses no network)")

    return PersonIndex(machine, root, name_indexes)


# --- the document ---------------------------------------------------------------------------------


def _document(
    question: ResolveQuestion, choice: Choice, machine: Snapshot, root: str
) -> ResolveAnswer:
    """The answer as a document, with the commands for each installer."""
    shown_root = without_logins(root)
    choice = choice.at_root(shown_root)
    if choice.newest:
        choice = replace(choice, newest=choice.newest.at_root(shown_root))
    document = answer_of(
        choice,
        machine,
        _names_to_install(choice, machine),
        new_environment(machine, question.name),
    )
    document = replace(
        document,
        packages=choice.packages,
        held_back=choice.held_back,
        rejections=_rejections(choice),
        notes=(*choice.notes, *_notes_beside(choice, machine)),
    )
    if not choice.packages:
        document = replace(document, newest=offer_of(choice, machine))
    return _with_tools(question, document)


def _names_to_install(choice: Choice, machine: Snapshot) -> tuple[str, ...]:
    """The packages that the install commands name: torch's packages, the requested packages, or the
    installed packages that must change with torch."""
    packages, build = choice.packages, choice.build
    if packages:
        requirements = []
        for package in packages:
            # A package from torch's own index is installed together with torch and its companions.
            is_from_person = package.name not in FAMILY and not package.index_url
            if is_from_person and package.asked:
                requirements.append(package.requirement)
        return (*family(packages), *requirements)
    # For a described environment, no installed packages are known.
    if build is None or not machine.python.executable or choice.newest is None:
        return FAMILY
    return (*FAMILY, *followers(machine, build))


def _notes_beside(choice: Choice, machine: Snapshot) -> tuple[str, ...]:
    """Notes on packages that use torch, and a note on Apple GPUs."""
    notes = [*choice.notes_on_packages]
    is_in_environment = machine.python.executable and choice.newest and not choice.packages
    if choice.build is not None and is_in_environment:
        notes += notes_on_installed(machine, choice.build, load_catalog())
    makers = [gpu.maker for gpu in machine.gpus or ()]
    if APPLE.id in makers:
        notes.append(ON_APPLE)
    return tuple(notes)


ON_APPLE = (
    "torch's ordinary wheel for macOS computes on the GPU of Apple's chips: `torch.device(\"mps\")`"
)


def _rejections(choice: Choice) -> tuple[Rejection, ...]:
    """The builds that were not chosen, with the reasons. Builds that the answer itself offers are
    left out."""
    build, newest = choice.build, choice.newest
    if build is None or newest is None or choice.packages:
        return choice.rejections
    offered = {(build.torch, build.backend)}
    for fallback in choice.alternatives:
        offered.add((fallback.torch, fallback.backend))
    rejections = []
    for rejection in newest.rejections:
        if (rejection.torch, rejection.backend) not in offered:
            rejections.append(rejection)
    return tuple(rejections)


def _answer_nightly(question: ResolveQuestion, out: Console, description: Description) -> Reply:
    """The reply for `--torch nightly`: the nightly index for this machine and the commands. Nothing
    is installed."""
    if question.packages:
        raise UsageError(
            "`--torch nightly` chooses torch without packages",
            hint="leave them out: few packages support a nightly build",
        )
    catalog = load_catalog()
    machine = described(_machine(question, description, out), description, catalog)
    machine = completed_from_catalog(machine, catalog)
    wish = Wish(backend=question.backend, installer=question.installer or "auto")
    root = without_logins(index_root_of(question.index))
    document = nightly_answer(wish, host_of(machine, catalog), catalog, root)
    screen = partial(resolution_text, snapshot=machine, installer=question.installer or "uv")
    return reply(document, screen, yes=document.torch)


def _notes(document: ResolveAnswer, machine: Snapshot, root: str) -> tuple[str, ...]:
    """All notes of an answer: about interrupted installations, the choice, an old catalog and
    hidden passwords."""
    notes = [*interruptions(machine), *document.notes]
    age = age_note(document.catalog_as_of, date.today().isoformat())
    if age:
        notes.append(age)
    if root != without_logins(root):
        notes.append("the index's user and password are left out of what is shown")
    return tuple(notes)


# --- builds that the index lists now --------------------------------------------------------------


def _live_index(question: ResolveQuestion, root: str, out: Console) -> LiveIndex | None:
    """The builds that torch's index lists now; None without `--refresh`."""
    if not question.refresh:
        return None
    if question.offline:
        raise UsageError("`--refresh` asks an index, and `--offline` uses no network")
    if is_nightly(question.torch):
        raise UsageError(
            "`--refresh` looks for releases, but a nightly build is not a release",
            hint="leave out `--refresh`: the nightly index is printed without asking it",
        )
    backend = Wish(torch=question.torch, backend=question.backend).wanted_backend
    if backend != "auto" and not re.fullmatch(LABEL, backend):
        raise UsageError(
            f"{backend!r} is not a backend of torch", hint="for example `cpu`, `cu134` or `rocm7.2`"
        )
    return ask_index(root, backend, load_catalog(), out.talk)


def _live_notes(live: LiveIndex | None, choice: Choice, machine: Snapshot) -> tuple[str, ...]:
    """Notes on builds that the index lists but that gpusetup's catalog lacks; empty without
    `--refresh`."""
    if live is None:
        return ()
    build, table = choice.build, load_catalog()
    if not live.lists(build) or build is None:
        count = live.count_on(machine.os.family or "linux")
        news = f"{plural(count, 'build')} for this system" if count else "nothing for this system"
        return (
            f"{live.host} was asked just now: it lists {news} that gpusetup's table of "
            f"{table.as_of} lacks",
        )
    note_on_build = (
        f"torch {build.torch} for {build.backend} was listed by {live.host} just now; gpusetup's "
        f"table of {table.as_of} does not know it"
    )
    if build.cuda is not None:
        note_on_build += (
            "; that it has kernels for your GPU is inferred from the most similar known build"
        )
    notes = [note_on_build]
    releases = {"torchvision": build.torchvision, "torchaudio": build.torchaudio}
    unknown_companions = [name for name, release in releases.items() if release is None]
    if unknown_companions:
        notes.append(
            f"which {' and '.join(unknown_companions)} belongs to torch {build.torch} is not "
            "known yet"
        )
    return tuple(notes)


def _machine(question: ResolveQuestion, description: Description, out: Console) -> Snapshot:
    """The machine for which to resolve. If the options describe all of it, only this machine's
    operating system is read."""
    if question.machine or not description.is_whole:
        return gather(MachineToRead(question.machine), out)
    from gpusetup.probe.host import read_os

    return read_os(System())


# --- tools ---------------------------------------------------------------------------------------


def _with_tools(question: ResolveQuestion, answer: ResolveAnswer) -> ResolveAnswer:
    """The answer, with the `uv tool install` command if `--installer uv-tool` requests it."""
    if question.installer != "uv-tool":
        return answer
    if not question.packages:
        raise UsageError(
            "`--installer uv-tool` needs the tool's package",
            hint="for example `gpusetup resolve --installer uv-tool whisperx`",
        )
    named = [
        package.requirement
        for package in answer.packages
        if package.asked and package.name not in FAMILY
    ]
    if answer.torch is None or answer.backend is None:
        return answer
    argv = tool_command(named, answer.torch, answer.backend, answer.index_url)
    return replace(answer, commands={**answer.commands, "uv-tool": (argv,) if argv else ()})
