"""What else has to be fetched: uv or pip is asked, with the user's own indexes, and locks it.

torch and its companions are known already; where their wheels are not here yet, stand-ins that
hold nothing but their METADATA tell what they require.
"""

from __future__ import annotations

import re
import tempfile
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gpusetup.errors import Blocked, GpuSetupError, Unsatisfiable
from gpusetup.install.causes import known_cause
from gpusetup.install.house import blocked
from gpusetup.install.layout import Layout, distributions, normalized, versions
from gpusetup.install.obstacles import SHELL_OF
from gpusetup.install.ranged import METADATA_BYTES
from gpusetup.install.tools import complaint
from gpusetup.install.uv_config import parse_toml
from gpusetup.install.wheels import Wheel, locked, reported, target_tags
from gpusetup.run import Output, run
from gpusetup.shell import shell_line

ASK_SECONDS = 120.0


def stand_in(wheel: Wheel, metadata: str, folder: Path) -> Path:
    """A wheel that holds a wheel's METADATA and nothing else, to resolve with."""
    info = f"{wheel.filename.split('-')[0]}-{wheel.filename.split('-')[1]}.dist-info"
    tags = "-".join(wheel.filename.removesuffix(".whl").split("-")[-3:])
    path = folder / wheel.filename
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{info}/METADATA", metadata)
        archive.writestr(f"{info}/WHEEL", f"Wheel-Version: 1.0\nGenerator: x\nTag: {tags}\n")
        archive.writestr(f"{info}/RECORD", "")
    return path


def is_metadata_of(wheel: Wheel, text: str) -> bool:
    """Whether a text is the METADATA of a wheel, and can be read by a resolver.

    >>> one = Wheel(name="x", version="1.0", filename="", url="")
    >>> head = "Metadata-Version: 2.1\\nName: X\\nVersion: 1.0\\n"
    >>> [is_metadata_of(one, f"{head}Requires-Dist: {need}") for need in ("y", "?")]
    [True, False]
    """
    from packaging.requirements import InvalidRequirement, Requirement
    from packaging.version import InvalidVersion, Version

    if len(text) > METADATA_BYTES or not text.startswith("Metadata-Version:"):
        return False
    head = text.replace("\r\n", "\n").partition("\n\n")[0]
    rows = [line.partition(":")[::2] for line in head.splitlines() if not line[:1].isspace()]
    said = {key.lower(): value.strip() for key, value in reversed(rows)}
    try:
        version = Version(said.get("version", ""))
        for key, value in rows:
            if key.lower() == "requires-dist":
                Requirement(value.strip())
    except (InvalidRequirement, InvalidVersion):
        return False
    major = said["metadata-version"].partition(".")[0]
    same = (normalized(said.get("name", "")), str(version)) == (wheel.name, wheel.version)
    return same and major in ("1", "2")


def pins(family: Iterable[Wheel]) -> tuple[str, ...]:
    """The exact requirements, local versions and all.

    >>> pins([Wheel(name="torch", version="2.5.1+cu124", filename="", url="")])
    ('torch==2.5.1+cu124',)
    """
    return tuple(f"{wheel.name}=={wheel.version}" for wheel in family)


def ask_uv(
    uv: str,
    python: str,
    layout: Layout,
    family: Sequence[Wheel],
    packages: Sequence[str],
    sources: Sequence[str],
    environment: Mapping[str, str],
    *,
    fresh: bool,
) -> tuple[Wheel, ...]:
    """The wheels that uv would fetch beyond the family, for an environment as it is now."""
    asked = (*pins(family), *packages)
    skip = {wheel.name for wheel in family}
    if not fresh:
        changes = _uv_changes(uv, python, asked, sources, environment)
        asked = tuple(f"{name}=={version}" for name, version in changes if name not in skip)
        if not asked:
            return ()
    lock = _uv_lock(uv, python, asked, sources, environment, deps=fresh)
    try:
        return locked(lock, target_tags(layout), skip)
    except ValueError as problem:
        raise Unsatisfiable(
            f"{problem} has no wheel for Python {layout.version} here",
            hint="nothing was changed; install it by itself first, then run this again",
        ) from problem


def _uv_changes(
    uv: str,
    python: str,
    asked: Sequence[str],
    sources: Sequence[str],
    environment: Mapping[str, str],
) -> tuple[tuple[str, str], ...]:
    argv = (
        uv,
        "pip",
        "install",
        "--python",
        python,
        "--dry-run",
        "--no-build",
        *sources,
        *asked,
    )
    said = run(argv, timeout=ASK_SECONDS, environment=environment)
    if not said.ok:
        raise complaint("uv cannot plan the installation", said, asked)
    return parse_changes(said.stderr)


def parse_changes(text: str) -> tuple[tuple[str, str], ...]:
    """What uv says it would install.

    >>> parse_changes(" - torch==2.1\\n + torch==2.2+cpu\\n ~ a==1 (from file:///a)\\n")
    (('torch', '2.2+cpu'), ('a', '1'))
    """
    found = re.findall(r"(?m)^ [+~] ([A-Za-z0-9._-]+)==([^\s]+)", text)
    return tuple((normalized(name), version) for name, version in found)


def _uv_lock(
    uv: str,
    python: str,
    asked: Sequence[str],
    sources: Sequence[str],
    environment: Mapping[str, str],
    *,
    deps: bool,
) -> dict[str, Any]:
    argv = (
        *(uv, "pip", "compile", "--python", python, "--format", "pylock.toml", "--no-build"),
        *("--no-header", "--no-annotate", "--quiet", *sources),
        *(() if deps else ("--no-deps",)),
        "-",
    )
    said = run(argv, timeout=ASK_SECONDS, environment=environment, stdin="\n".join(asked) + "\n")
    if not said.ok:
        raise complaint("uv cannot plan the installation", said, asked)
    return parse_toml(said.stdout)


def ask_pip(
    layout: Layout,
    family: Sequence[Wheel],
    packages: Sequence[str],
    sources: Sequence[str],
    environment: Mapping[str, str],
    *,
    fresh: bool = False,
) -> tuple[Wheel, ...]:
    """The wheels that the target's pip would fetch beyond the family; `fresh`: the base's pip, for
    an environment that is still to be made."""
    import json

    if not layout.has_pip:
        raise Blocked(
            f"{layout.prefix} has no pip.",
            hint="use `--installer uv`, which needs none in the target",
        )
    with tempfile.TemporaryDirectory(dir=environment.get("TMPDIR")) as folder:
        report, log = Path(folder, "report.json"), Path(folder, "pip.log")
        argv = (
            *(
                layout.python,
                "-m",
                "pip",
                "install",
                "--dry-run",
                "--quiet",
                "--only-binary",
                ":all:",
            ),
            *("--report", str(report), "--log", str(log), *sources),
            *(("--ignore-installed",) if fresh else ()),
            *(*pins(family), *packages),
        )
        said = run(argv, timeout=ASK_SECONDS, environment=environment)
        if not said.ok:
            raise too_old(layout, said) or pip_complaint(said, log, packages)
        found = json.loads(report.read_text(encoding="utf-8"))
    return reported(found, {wheel.name for wheel in family})


def too_old(layout: Layout, said: Output) -> Blocked | None:
    """A pip before 22.2 does not know how to say what it would do."""
    if not re.search(r"no such option: --?(dry-run|report|only-binary)", said.stderr + said.stdout):
        return None
    version = versions(distributions(layout)).get("pip")
    newer = shell_line((layout.python, "-m", "pip", "install", "--upgrade", "pip"), SHELL_OF)
    return Blocked(
        f"The pip of {layout.prefix}{f', {version},' if version else ''} cannot say what it would "
        "install; 22.2 and later can",
        hint=f"nothing was changed; use `--installer uv`, which needs none, or `{newer}` first",
    )


def pip_complaint(said: Output, log: Path, packages: Sequence[str] = ()) -> GpuSetupError:
    """What pip failed of: a page that it could not fetch, which only its log tells, comes first."""
    text = log.read_text(encoding="utf-8", errors="replace") if log.is_file() else ""
    for url, cause in unfetched(text):
        if not re.match(r"4(03|04|10)\b", cause):
            return blocked(url, cause)
    return complaint("pip cannot plan the installation", said, packages)


def unfetched(log: str) -> tuple[tuple[str, str], ...]:
    """The pages that pip's log says it could not fetch, and why.

    >>> unfetched("Could not fetch URL http://i/x/: 503 Server Error: no for url: u - skipping")
    (('http://i/x/', '503 Server Error'),)
    """
    found = re.findall(r"Could not fetch URL (\S+): (.*?) - skipping", log)
    return tuple((url, _short(cause)) for url, cause in found)


def _short(cause: str) -> str:
    """pip's reason in few words.

    >>> _short("Max retries exceeded (Caused by ResponseError('too many 503 error responses'))")
    'answers 503'
    """
    if known := re.match(r"\d{3} \w+ Error", cause):
        return known[0]
    if status := re.search(r"too many (\d{3}) error responses", cause):
        return f"answers {status[1]}"
    return known_cause(cause) or cause[:200]
