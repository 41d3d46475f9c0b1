"""The nightly build for a machine, a warning about it, and the commands. Pure functions.

A nightly build is made from torch's main branch. Its version changes every day, so it is not in the
catalog, which only knows which backends have nightly builds. The build for a backend is assumed to
run wherever the newest release for that backend does.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpusetup.accelerators.makers import maker_of
from gpusetup.catalog.builds import Catalog, index_url
from gpusetup.choose.commands import started
from gpusetup.choose.host import Host, python_tag, question_of
from gpusetup.choose.newest import newest_fitting
from gpusetup.choose.other_makers import refuse_two_makers
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
"""How many rejected releases are shown; the newest ones explain the others too."""
OF_A_RELEASE = "`gpusetup resolve` names the newest release that fits"


def is_nightly(torch: str | None) -> bool:
    """Whether the text requests a nightly build: `nightly` or `torch nightly`."""
    return (torch or "").lower().removeprefix("torch").split() == [NIGHTLY]


def nightly_answer(wish: Wish, host: Host, catalog: Catalog, root: str) -> ResolveAnswer:
    """The answer to `--torch nightly`. Raises Unsatisfiable if no nightly build is known for the
    machine, or if no release for such a backend fits it."""
    facts, machine, backend = host.facts, host.machine, wish.backend
    refuse_two_makers(wish, machine)
    row = catalog.nightly_on(f"{facts.family}-{facts.architecture}")
    if row is None:
        raise Unsatisfiable(
            f"No nightly build of torch is known for {facts.family} on {facts.architecture}",
            hint=OF_A_RELEASE,
        )
    names = row.backends.split()
    if backend not in ("auto", *names):
        raise Unsatisfiable(
            f"No nightly builds are known for {backend}: they are for {', '.join(names)}",
            hint="leave out `--backend` to get the one that fits",
        )
    with_nightlies = tuple(build for build in catalog.builds if build.backend in names)
    # `nightly` is not the version of a release.
    question = question_of(replace(wish, torch=None), host, replace(catalog, builds=with_nightlies))
    similar = newest_fitting(question, machine)
    build = similar.build
    # A backend may have nightly builds before its first release, by which to judge it.
    is_new = backend != "auto" and backend not in [one.backend for one in with_nightlies]
    if build is None and not is_new:
        # Several releases may be rejected for the same reason.
        rejections = similar.rejections[:MOST_REASONS_SHOWN]
        reasons = dict.fromkeys([one.reason for one in rejections] or similar.notes)
        raise Unsatisfiable(
            "\n  ".join(("No nightly build fits this machine", *reasons)), hint=OF_A_RELEASE
        )
    backend = build.backend if build else backend
    url = index_url(backend, f"{root.rstrip('/')}/{NIGHTLY}")
    python = machine.python.executable
    target = ("--python", python) if python else ()
    # torch is named as a package to upgrade, because otherwise an installed release would satisfy
    # the request.
    newest = tuple(word for name in PACKAGES for word in ("--upgrade-package", name))
    by_uv = ("uv", "pip", "install", *target, "--prerelease=allow", *newest, "--index", url)
    by_pip = (*started(python), "-m", "pip", "install", "--pre", "--upgrade", "--index-url", url)
    return ResolveAnswer(
        torch=NIGHTLY,
        torchvision=NIGHTLY,
        backend=backend,
        index_url=url,
        python=python_tag(machine),
        driver_floor=build.driver_floor if build else None,
        commands={
            "uv": ((*by_uv, "--default-index", url, *PACKAGES),),
            "pip": ((*by_pip, *PACKAGES),),
            "conda": (),
        },
        notes=(*(similar.notes if build else ()), *_notes(build, backend, row.as_of)),
        catalog_as_of=catalog.as_of,
    )


def _notes(build: TorchBuild | None, backend: str, as_of: str) -> Iterator[str]:
    """Yields what a nightly build means. `build` is the release by which it was chosen; None if no
    release has the backend yet. The list of backends is of `as_of`."""
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
