"""Which index has the wheels: the backends that fit are tried in order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from gpusetup.errors import Blocked, Unreached
from gpusetup.install.credentials import without_credentials
from gpusetup.install.fetching.page import ACCEPT, parse_page
from gpusetup.install.fetching.wheels import Wheel, best
from gpusetup.model.resolution import Choice, Resolution

Page = Callable[[str, str], "tuple[str, str, str] | None"]
"""(URL, Accept) -> the page's own URL, media type and text, or None where there is none."""


def choices_of(resolution: Resolution, backend: str) -> tuple[Choice, ...]:
    """The build and what may be taken in its place; nothing, where a backend was named."""
    build = resolution.build
    if build is None or resolution.index_url is None:
        return ()
    first = Choice(torch=build.torch, backend=build.backend, index_url=resolution.index_url)
    return (first, *(resolution.fallbacks if backend == "auto" else ()))


def at_root(choice: Choice, index_root: str) -> str:
    """The index of a choice at a root, the usual one or a mirror.

    >>> at_root(Choice(torch="2.5.1", backend="cu124", index_url=""), "https://mirror.example/whl/")
    'https://mirror.example/whl/cu124'
    """
    return f"{index_root.rstrip('/')}/{choice.backend}"


def versions_of(resolution: Resolution, names: Iterable[str]) -> dict[str, str]:
    """The family's versions that go together; a companion that was never released is left out."""
    build = resolution.build
    if build is None:
        return {}
    known = {"torch": build.torch, "torchvision": build.torchvision, "torchaudio": build.torchaudio}
    return {name: version for name in names if (version := known[name])}


def family_at(
    page: Page, index: str, backend: str, versions: Mapping[str, str], tags: Sequence[str]
) -> tuple[tuple[Wheel, ...], str | None]:
    """The family's wheels on one index; or what it says where it has no such wheel."""
    found = []
    for name, version in versions.items():
        url = f"{index}/{name}/"
        answer = page(url, ACCEPT)
        if answer is None:
            return (), f"{without_credentials(url)}: there is no such page"
        listed = _listed(*answer)
        wheel = best_build(listed, version, backend, tags)
        if wheel is None:
            return (), (
                f"{without_credentials(url)}: has no wheel of {name} {version} for {tags[0]}"
                if listed
                else f"{without_credentials(url)}: the page is empty"
            )
        found.append(wheel)
    return tuple(found), None


def _listed(url: str, media_type: str, text: str) -> tuple[Wheel, ...]:
    try:
        return parse_page(url, media_type, text)
    except ValueError as problem:
        raise Unreached(
            f"{without_credentials(url)}: what came is no index page: {problem}",
            hint="nothing was changed; is there a log-in page or a proxy in between? "
            "Name the right root: `--index-root URL`",
        ) from problem


def best_build(
    listed: Sequence[Wheel], version: str, backend: str, tags: Sequence[str]
) -> Wheel | None:
    """The wheel of a version on a backend: `2.5.1+cu124`; without a local label (macOS, old ones)
    only where the page has none with.

    >>> one = Wheel(name="x", version="1.0+cpu", filename="x-1.0+cpu-py3-none-any.whl", url="u")
    >>> best_build([one], "1.0", "cpu", ["py3-none-any"]).version
    '1.0+cpu'
    """
    return best(listed, f"{version}+{backend}", tags) or best(listed, version, tags)


def first_that_has(
    page: Page,
    choices: Sequence[Choice],
    index_root: str,
    versions: Mapping[str, str],
    tags: Sequence[str],
) -> tuple[Choice, tuple[Wheel, ...], tuple[tuple[str, str], ...]]:
    """Go down the choices until an index has the wheels. Only "no such wheel" goes on."""
    passed: list[tuple[str, str]] = []
    for choice in choices:
        index = at_root(choice, index_root)
        wheels, missing = family_at(page, index, choice.backend, versions, tags)
        if missing is None:
            return choice, wheels, tuple(passed)
        passed.append((choice.backend, missing))
    why = "\n".join(f"  {name:8} {reason}" for name, reason in passed)
    if index_root.startswith("file:"):
        raise Blocked(
            f"The wheelhouse has no such wheel:\n{why}",
            hint="nothing was changed; `gpusetup install --download DIR` fetches it where there is "
            "a network, or name the version that is there (`--torch`, `--backend`)",
        )
    raise Blocked(
        f"No index has such a wheel:\n{why}",
        hint="nothing was changed; name another version (`--torch`), another backend "
        "(`--backend`), or another root (`--index-root URL`)",
    )
