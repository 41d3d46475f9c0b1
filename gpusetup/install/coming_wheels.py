"""Finds the wheels to download, by asking uv for the URL and hash of each file."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import unquote

from gpusetup.errors import Unreached, Unsatisfiable
from gpusetup.install.job import InstallJob
from gpusetup.install.target.find import Target
from gpusetup.install.wheels import in_folder
from gpusetup.model.frozen import replace
from gpusetup.model.logins import split_login, without_logins
from gpusetup.uv.errors import hint_for, is_torchs_own, names_not_found
from gpusetup.uv.hosts import AllowedHosts
from gpusetup.uv.lock import Wheel, wheel_of
from gpusetup.uv.pages import answered
from gpusetup.uv.question import Question, Requirements, changes_of, lock_of

SIZE_TIMEOUTS = (5.0, 5.0)
WORKERS = 4
MOST_DIGITS = 19
"""The maximum number of digits in a file's length, because a number of bytes fits into 64 bits."""


def wheels_for(
    job: InstallJob, target: Target, wanted: Requirements
) -> tuple[tuple[Wheel, ...], tuple[str, ...]]:
    """The wheels to download for these requirements, and notes about them.

    For an existing environment, only packages that change are downloaded. If torch and all
    requested companions are already installed in these versions, nothing would change, so they are
    all downloaded again. Raises Unsatisfiable if there is no solution.
    """
    installed = target.installed
    if not installed:
        return _locked(job, target, wanted)
    changes = changes_of(_question(job, target, wanted), job.settings)
    new_versions = changes.versions
    family = wanted.names
    changing = [name for name in family if installed.get(name) != new_versions.get(name)]
    # If all of them already have this version, download them again, because the user requested
    # them.
    coming_family = changing or family
    others = [name for name in new_versions if name not in family]
    exact = replace(
        wanted,
        family=tuple(f"{name}=={new_versions[name]}" for name in coming_family),
        others=tuple(f"{name}=={new_versions[name]}" for name in others),
    )
    if not coming_family and not others:
        return (), ()
    wheels, _ = _locked(job, target, exact, with_dependencies=False)
    return wheels, changes.notes


def _question(job: InstallJob, target: Target, wanted: Requirements) -> Question:
    """The question to uv about these requirements in this environment."""
    return Question(
        requirements=wanted,
        python=target.layout.python,
        python_version=target.layout.version,
        wheels_folder=job.wheels,
        title="uv cannot plan the installation",
    )


def _locked(
    job: InstallJob, target: Target, wanted: Requirements, *, with_dependencies: bool = True
) -> tuple[tuple[Wheel, ...], tuple[str, ...]]:
    """The wheels in uv's lock, torch and its companions first, and notes about them."""
    family = wanted.names
    question = _question(job, target, wanted)
    locked = lock_of(question, job.settings, with_dependencies=with_dependencies)
    rows = sorted(locked.rows, key=lambda row: row["name"] not in family)
    wheels = [wheel_of(row, family, target.layout.version) for row in rows]
    if job.wheels:
        return tuple(in_folder(job.wheels, wheels)), locked.notes
    allowed = AllowedHosts((split_login(wanted.index)[0], *job.settings.addresses))
    with ThreadPoolExecutor(WORKERS) as pool:
        sized = pool.map(lambda wheel: with_size(wheel, allowed), wheels)
        return tuple(sized), locked.notes


def require_lack(wanted: Requirements, no: Unsatisfiable) -> None:
    """Return if the index really lacks a wheel, so that another index can be tried. Otherwise raise
    the error that fits uv's failure.

    The index lacks a wheel if a page is missing, or lists only other versions or files for other
    machines. If uv failed for another reason, the command ends: for example because of a login, a
    circular dependency, a page that is not an index, a broken wheel or one of torch's dependencies.
    """
    import requests
    from urllib3.exceptions import HTTPError

    allowed = AllowedHosts((split_login(wanted.index)[0],))
    unknown = set(names_not_found(no.message))
    # If uv did not find a package that is not expected on torch's index, the user's own indexes
    # lack one of torch's dependencies.
    if unknown - set(wanted.names):
        raise Unreached(no.message, hint=no.hint)
    message = no.message
    missing = ("403", "404") if is_torchs_own(wanted.index) else ("404",)
    for word in wanted.family:
        project, _, version = word.partition("==")
        name, _, _ = project.partition("[")
        url, login = split_login(f"{wanted.index}/{name}/")
        try:
            with answered(url, allowed, login=login, timeouts=SIZE_TIMEOUTS) as page:
                status, listing = f"{page.status_code} {page.reason}", unquote(page.text)
        except (requests.RequestException, HTTPError) as problem:
            status, listing = str(problem), ""
        is_list = ".whl" in listing
        is_listed = f"{name}-{version}" in listing
        has_no_file = re.search(LACKS.format(name, version), no.message) is not None
        if status.startswith(missing) or (is_list and (not is_listed or has_no_file)):
            return
        if not is_list:
            message += f"\n  cause: {url}: {without_logins(status)}, and no list of wheels"
    if wanted.others and message == no.message:
        raise no
    raise Unreached(message, hint=hint_for(Unreached, message))


LACKS = r"{0}=={1}\S* has no wheels with a matching|404 Not Found\) for url \(\S*/{0}-"
"""uv's messages if a project has no file for this Python and platform, or if that file is gone from
the server."""


def with_size(wheel: Wheel, allowed: AllowedHosts) -> Wheel:
    """The wheel with its size. If the index does not state the size, the server is asked; if that
    fails too, the size is None."""
    if wheel.size_bytes is not None or not wheel.url.startswith("http"):
        return wheel
    return replace(wheel, size_bytes=_size_of(wheel.url, allowed))


def _size_of(address: str, allowed: AllowedHosts) -> int | None:
    """The size in bytes that a server states for a file; None if it states none."""
    import requests
    from urllib3.exceptions import HTTPError

    url, login = split_login(address)
    try:
        with answered(url, allowed, login=login, timeouts=SIZE_TIMEOUTS, method="HEAD") as answer:
            length = answer.headers.get("Content-Length", "") if answer.ok else ""
    except (requests.RequestException, HTTPError, OSError, ValueError):
        # The server may not speak HTTP properly. Ignore that, because the size is only shown.
        return None
    is_number = length.isascii() and length.isdigit()
    if not is_number or len(length) > MOST_DIGITS:
        return None
    return int(length)
