"""`gpusetup resolve`: shows which build fits this machine or a described one, and why others do
not."""

from __future__ import annotations

from functools import partial
from typing import Literal

from gpusetup.accelerators.makers import APPLE
from gpusetup.catalog.builds import Catalog, completed_from_catalog
from gpusetup.catalog.file import load_catalog
from gpusetup.choose.choice import Choice
from gpusetup.choose.choose import choose, nearest_fitting
from gpusetup.choose.coming import offer_of
from gpusetup.choose.commands import answer_of, new_environment
from gpusetup.choose.compatibility import notes_on_installed
from gpusetup.choose.described import described, without_torch
from gpusetup.choose.for_project import decide, described_python
from gpusetup.choose.host import Host, host_of, question_of
from gpusetup.choose.installed import dependents_to_reinstall, is_conda_torch
from gpusetup.choose.wish import Wish, check_wish, parse_words, with_torch_of_companions
from gpusetup.commands.common import (
    BACKEND,
    DRIVER,
    FROM,
    GPU,
    INDEX,
    REQUIREMENTS,
    TORCH,
    Machine,
    gather,
)
from gpusetup.commands.question import CommandQuestion, HelpGroup, arguments, option, switch
from gpusetup.commands.reply import Reply
from gpusetup.commands.words import index_root_of, refuse_scripts
from gpusetup.model.builds import FAMILY
from gpusetup.model.documents import ResolveAnswer
from gpusetup.model.frozen import replace
from gpusetup.model.logins import without_logins
from gpusetup.model.machine import Snapshot
from gpusetup.model.units import architecture_named
from gpusetup.probe.host import read_os
from gpusetup.probe.own_files import interruptions
from gpusetup.project.read import read_ask
from gpusetup.render.console import Console
from gpusetup.render.resolution import resolution_text
from gpusetup.system.system import System
from gpusetup.uv.question import UserIndexes

SUMMARY = """Tells you which PyTorch build fits this machine, or a machine that you describe, and
why the other builds do not. If you leave an option out, its value is read from this machine."""
EXAMPLES = (
    "gpusetup resolve",
    'gpusetup resolve --os linux --driver 580.95.05 --gpu "GTX 1080 Ti" --python 3.11',
    "gpusetup resolve --torch 2.5.1 --name torch-cu124",
    'gpusetup resolve vllm --gpu "A100 80GB" --driver 580.95.05 --os linux',
)
NIGHTLY = "nightly"
"""The word for `--torch` with which users ask for the builds of torch's main branch."""
ON_APPLE = (
    "torch's standard wheel for macOS supports the GPU of Apple's chips: `torch.device(\"mps\")`"
)


class Question(CommandQuestion):
    packages: tuple[str, ...] = arguments(
        "packages to install together with torch, such as `vllm` or 'jax[cuda13]'; gpusetup "
        "queries your package index, and chooses a torch that works with them",
        metavar="PACKAGE",
    )

    _another_machine = HelpGroup("another machine")
    machine: Machine | None = FROM
    driver: str | None = DRIVER
    gpu: tuple[str, ...] = GPU
    os: Literal["linux", "windows", "macos"] | None = option(
        "operating system", choices=("linux", "windows", "macos")
    )
    architecture: str | None = option(
        "processor architecture",
        "--machine",
        choices=("x86_64", "aarch64"),
        parse=architecture_named,
    )
    python: str | None = option(
        "Python version; write 3.13t for a free-threaded one", metavar="3.11"
    )
    glibc: str | None = option("version of the C library (Linux)", metavar="2.35")

    _request = HelpGroup("request")
    requirements: tuple[str, ...] = REQUIREMENTS
    torch: str | None = TORCH
    backend: str = BACKEND
    index: str | None = INDEX
    installer: str | None = option(
        "print the commands for this installer", choices=("uv", "pip", "conda")
    )
    name: str | None = option(
        "print conda commands that create a new environment with this name",
        "-n",
        "--name",
        metavar="NAME",
    )
    explain: bool = switch("for each build that does not fit, list all reasons")
    offline: bool = switch("with PACKAGE: use only gpusetup's own table, without the network")


def run(question: Question, out: Console) -> Reply:
    """Choose the build for the machine that the options describe, and reply with its commands."""
    refuse_scripts(question.packages)
    root, catalog = index_root_of(question.index), load_catalog()
    shown_root = without_logins(root)
    machine, is_described = _machine(question, catalog, out)
    asks = tuple(map(read_ask, question.requirements))
    machine = completed_from_catalog(described_python(asks, machine), catalog)
    of_options = _wish_of(question, machine, catalog, is_described=is_described)
    # What a file asks for is compared with the installed torch, which may stay.
    decision = decide(asks, of_options, host_of(machine, catalog), catalog)
    wish = decision.wish
    # Ignore the installed torch if a machine is described, because torch is not installed there,
    # and if packages are requested, because they get the newest torch that they accept.
    ignores_torch = is_described or bool(wish.words)
    host = host_of(without_torch(machine) if ignores_torch else machine, catalog)
    index = None
    # For AMD's and Intel's GPUs (`maker`), `choose` chooses only torch, and asks no index.
    if wish.words and not wish.offline and question_of(wish, host, catalog).maker is None:
        out.talk(f"querying {shown_root} and uv's indexes (to avoid the network, use `--offline`)")
        index = UserIndexes(machine, root)
    choice = choose(wish, host, catalog, index)
    document = _document(question, choice, host, machine, shown_root)
    notes = [*decision.notes, *interruptions(machine), *document.notes]
    if question.torch == NIGHTLY and choice.build:
        nightly = f"{shown_root}/nightly/{choice.build.backend}"
        notes.append(
            "to install a nightly build (built every day, less tested than a release): `pip "
            f"install --pre --upgrade torch torchvision --index-url {nightly}`"
        )
    document = replace(document, notes=tuple(notes))
    screen = partial(
        resolution_text,
        installer="uv" if wish.installer == "auto" else wish.installer,
        snapshot=machine,
        explain=question.explain,
    )
    return Reply(document, screen, 0 if document.torch else 1)


def _wish_of(
    question: Question, machine: Snapshot, catalog: Catalog, *, is_described: bool
) -> Wish:
    """The request of the options and the package names. Raises UsageError for a wrong one."""
    installer = "conda" if question.name else question.installer
    # As `install` does: conda changes a torch that it installed. Requested packages come from a
    # package index, whose wheels need torch's wheel.
    if installer is None and not (is_described or question.packages) and is_conda_torch(machine):
        installer = "conda"
    wish = parse_words(question.packages, question.torch)
    # The catalog has no nightly builds, because their versions change every day. A nightly build
    # gets the backend of the newest release that fits.
    if wish.torch == NIGHTLY:
        wish = replace(wish, torch=None)
    wish = with_torch_of_companions(wish, catalog)
    wish = replace(
        wish,
        backend=question.backend,
        installer=installer or "auto",
        offline=question.offline,
    )
    check_wish(wish, catalog)
    return wish


def _machine(question: Question, catalog: Catalog, out: Console) -> tuple[Snapshot, bool]:
    """The machine of the question, and whether options describe any part of it."""
    whole_machine = {"driver", "gpu", "os", "python"}
    # If the options describe the whole machine, only the operating system of this one is read.
    if question.machine or not whole_machine <= question.given:
        machine = gather(out, question.machine)
    else:
        machine = read_os(System())
    described_machine = described(
        machine,
        catalog,
        driver=question.driver,
        gpus=question.gpu,
        family=question.os,
        machine=question.architecture,
        python=question.python,
        glibc=question.glibc,
    )
    return described_machine, bool(question.given & {*whole_machine, "architecture", "glibc"})


def _document(
    question: Question, choice: Choice, host: Host, machine: Snapshot, root: str
) -> ResolveAnswer:
    """The answer as a document, with the commands for each installer; `root` is torch's index
    without a login."""
    build, packages = choice.build, choice.packages
    # The commands name torch's packages, and the requested packages or the installed ones that must
    # change with torch. What torch's own index has is installed together with torch.
    names: tuple[str, ...] = FAMILY
    notes = [*choice.notes, *choice.notes_on_packages]
    rejections = choice.rejections
    if packages:
        of_set = {one.name for one in packages}
        requested = [one for one in packages if one.asked and one.name not in FAMILY]
        of_default_index = (one.requirement for one in requested if not one.index_url)
        names = (*(name for name in FAMILY if name in of_set), *of_default_index)
    elif choice.newest:
        # If torch is installed, the reasons are against builds of any version, not only of its own.
        rejections = choice.newest.rejections
    # Without an executable, the environment is described, and no installed packages are known.
    if build and machine.python.executable and not packages:
        names = (*FAMILY, *dependents_to_reinstall(machine, build))
        notes += notes_on_installed(machine, build, load_catalog())
    if APPLE.id in [gpu.maker for gpu in machine.gpus or ()]:
        notes.append(ON_APPLE)
    conda_name = new_environment(machine, question.name)
    # conda's command is for another build, because its channels have other builds, and lack some of
    # the newest torch versions.
    wish = replace(choice.wish.of_torch_alone, installer="conda")
    if build and not choice.installs_torch:
        # The torch that stays is named, so that conda's command does not change it either.
        wish = replace(wish, torch=f"=={build.torch}")
    in_channels = question_of(wish, host, load_catalog())
    from_conda = nearest_fitting(build.torch, in_channels) if build else None
    # A newer torch is not offered if packages decide on it, nor if it is a wheel and torch is
    # conda's, because `install` refuses that.
    is_over_conda = is_conda_torch(machine) and choice.wish.installer != "conda"
    return replace(
        answer_of(choice, machine, names, conda_name, root, from_conda),
        packages=packages,
        rejections=rejections,
        notes=tuple(notes),
        newest=None if packages or is_over_conda else offer_of(choice, machine, root),
    )
