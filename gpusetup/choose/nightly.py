"""The nightly build for a machine, a warning about it, and the commands. Pure functions.

A nightly build is made from torch's main branch. Its version changes every day, so it is not in the
catalog, which only knows which backends have nightly builds.
"""

from __future__ import annotations

from collections.abc import Iterable

from gpusetup.accelerators.makers import maker_of
from gpusetup.catalog.builds import Catalog, index_url
from gpusetup.choose.choice import Choice
from gpusetup.choose.commands import started
from gpusetup.choose.host import Host, python_tag, question_of
from gpusetup.choose.newest import newest_fitting
from gpusetup.choose.wish import Wish
from gpusetup.errors import Unsatisfiable
from gpusetup.model.builds import TorchBuild
from gpusetup.model.documents import ResolveAnswer
from gpusetup.model.frozen import replace

NIGHTLY = "nightly"
PACKAGES = ("torch", "torchvision")
"""The packages with nightly builds; torchaudio's ended with 2.11 (according to pytorch/test-infra's
list of packages)."""
MOST_REASONS_SHOWN = 5
"""How many rejected releases are shown: each has a reason, and those of the newest ones explain the
others too."""


def is_nightly(torch: str | None) -> bool:
    """Whether the text requests a nightly build.

    >>> is_nightly("nightly"), is_nightly("torch nightly"), is_nightly("2.5.1"), is_nightly(None)
    (True, True, False, False)
    """
    words = (torch or "").lower().removeprefix("torch").split()
    return words == [NIGHTLY]


def nightly_answer(wish: Wish, host: Host, catalog: Catalog, root: str) -> ResolveAnswer:
    """The answer to `--torch nightly`. Raises Unsatisfiable if no nightly build is known for the
    machine."""
    facts, machine = host.facts, host.machine
    row = catalog.nightly_on(f"{facts.family}-{facts.architecture}")
    if row is None:
        raise Unsatisfiable(
            f"No nightly build of torch is known for {facts.family} on {facts.architecture}",
            hint="`gpusetup resolve` names the newest release that fits",
        )
    similar = similar_release(wish, host, catalog, tuple(row.backends.split()))
    build = similar.build
    backend = build.backend if build else wish.backend
    url = index_url(backend, f"{root.rstrip('/')}/{NIGHTLY}")
    return ResolveAnswer(
        torch=NIGHTLY,
        torchvision=NIGHTLY,
        backend=backend,
        index_url=url,
        python=python_tag(machine),
        driver_floor=build.driver_floor if build else None,
        commands=commands(url, machine.python.executable),
        notes=(*(similar.notes if build else ()), *_notes(build, backend, row.as_of)),
        catalog_as_of=catalog.as_of,
    )


def similar_release(wish: Wish, host: Host, catalog: Catalog, names: tuple[str, ...]) -> Choice:
    """The newest release that fits and whose backend has nightly builds. The nightly build for that
    backend is assumed to run wherever this release does.

    If the requested backend has no release yet, the choice has no build. Raises Unsatisfiable if
    the requested backend has no nightly builds, or if no release for such a backend fits the
    machine.
    """
    is_named = wish.backend != "auto"
    if is_named and wish.backend not in names:
        raise Unsatisfiable(
            f"No nightly builds are known for {wish.backend}: they are for {', '.join(names)}",
            hint="leave out `--backend` to get the one that fits",
        )
    with_nightlies = tuple(build for build in catalog.builds if build.backend in names)
    # `nightly` is not the version of a release.
    question = question_of(replace(wish, torch=None), host, replace(catalog, builds=with_nightlies))
    choice = newest_fitting(question, host.machine)
    # A backend may have nightly builds before its first release, by which to judge it.
    is_new_backend = is_named and not any(one.backend == wish.backend for one in with_nightlies)
    if choice.build is None and not is_new_backend:
        # Several releases may be rejected for the same reason.
        reasons = dict.fromkeys(row.reason for row in choice.rejections[:MOST_REASONS_SHOWN])
        raise Unsatisfiable(
            "\n  ".join(("No nightly build fits this machine", *reasons)),
            hint="`gpusetup resolve` names the newest release that fits",
        )
    return choice


def commands(url: str, python: str | None) -> dict[str, tuple[tuple[str, ...], ...]]:
    """The commands that install the nightly torch and torchvision with uv and pip; conda has none.

    torch is named as a package to upgrade, because otherwise an installed release would satisfy the
    request.
    """
    target = ("--python", python) if python else ()
    newest = tuple(word for name in PACKAGES for word in ("--upgrade-package", name))
    by_uv = ("uv", "pip", "install", *target, "--prerelease=allow", *newest)
    by_pip = (*started(python), "-m", "pip", "install", "--pre", "--upgrade")
    return {
        "uv": ((*by_uv, "--index", url, "--default-index", url, *PACKAGES),),
        "pip": ((*by_pip, "--index-url", url, *PACKAGES),),
        "conda": (),
    }


def _notes(build: TorchBuild | None, backend: str, as_of: str) -> Iterable[str]:
    yield (
        "a nightly build is made every day from torch's main branch, without the tests of a "
        "release; gpusetup never installs one by itself, and `gpusetup install --upgrade` goes "
        "back to the newest release"
    )
    if build is None:
        yield f"no release has {backend} yet: gpusetup cannot tell whether it works on this machine"
    elif maker_of(backend) == "nvidia":
        yield (
            f"it was chosen by the newest release with {backend}, torch {build.torch}; a nightly "
            "build may have other kernels"
        )
    yield (
        f"the list of backends with nightly builds is of {as_of}; the index shows which builds "
        "there are today"
    )
