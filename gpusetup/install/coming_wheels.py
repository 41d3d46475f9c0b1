"""Which wheels an installation fetches: uv names every file with its address and its hash."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import unquote

from gpusetup.catalog.builds import INDEX_ROOT
from gpusetup.errors import Unreached, Unsatisfiable
from gpusetup.install.job import Job
from gpusetup.install.target.find import Target
from gpusetup.install.wheels import in_folder
from gpusetup.model.frozen import replace
from gpusetup.model.logins import split_login, without_logins
from gpusetup.uv.errors import hint_for
from gpusetup.uv.hosts import AllowedHosts
from gpusetup.uv.lock import Wheel, wheel_of
from gpusetup.uv.pages import answered
from gpusetup.uv.question import Question, Requirements, changes_of, lock_of

SIZE_TIMEOUTS = (5.0, 5.0)
WORKERS = 4


def wheels_for(
    job: Job, target: Target, wanted: Requirements
) -> tuple[tuple[Wheel, ...], tuple[str, ...]]:
    """The files that come, and what is to be said of them.

    Into an existing environment comes what changes; of the family all members if every one is
    installed at this very version already. Unsatisfiable if there is no solution.
    """
    installed, family = target.installed, wanted.names
    if not installed:
        return _locked(job, target, wanted)
    changes = changes_of(_question(job, target, wanted), job.settings)
    exact = changes.versions
    comes = [name for name in family if installed.get(name) != exact.get(name)] or family
    wanted = replace(
        wanted,
        family=tuple(f"{name}=={exact[name]}" for name in comes),
        others=tuple(f"{n}=={v}" for n, v in exact.items() if n not in family),
    )
    if not (wanted.family or wanted.others):
        return (), ()
    wheels, _ = _locked(job, target, wanted, with_dependencies=False)
    return wheels, changes.notes


def _question(job: Job, target: Target, wanted: Requirements) -> Question:
    return Question(
        requirements=wanted,
        python=target.layout.python,
        python_version=target.layout.version,
        wheels_folder=job.wheels,
        title="uv cannot plan the installation",
    )


def _locked(
    job: Job, target: Target, wanted: Requirements, *, with_dependencies: bool = True
) -> tuple[tuple[Wheel, ...], tuple[str, ...]]:
    """The files of uv's lock, torch's family first."""
    question, family = _question(job, target, wanted), wanted.names
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
    """Return where the index of the family has no such wheel: a page is missing, lists other
    versions, or files for other machines. All else that uv may mean by its "no" ends the command:
    a login, a circle, a web page, a broken wheel, what comes with torch. torch's own index says
    403 of what it has not."""
    import requests
    from urllib3.exceptions import HTTPError

    allowed = AllowedHosts((split_login(wanted.index)[0],))
    message = no.message
    missing = ("403", "404") if wanted.index.startswith(INDEX_ROOT) else ("404",)
    for name, version in (word.split("==") for word in wanted.family):
        url, login = split_login(f"{wanted.index}/{name}/")
        try:
            with answered(url, allowed, login=login, timeouts=SIZE_TIMEOUTS) as page:
                status, listing = f"{page.status_code} {page.reason}", unquote(page.text)
        except (requests.RequestException, HTTPError) as problem:
            status, listing = str(problem), ""
        lacks = f"{name}-{version}" not in listing or re.search(
            LACKS.format(name, version), no.message
        )
        if status.startswith(missing) or (".whl" in listing and lacks):
            return
        if ".whl" not in listing:
            message += f"\n  cause: {url}: {without_logins(status)}, and no list of wheels"
    if wanted.others and message == no.message:
        raise no
    raise Unreached(message, hint=hint_for(Unreached, message))


LACKS = r"{0}=={1}\S* has no wheels with a matching|404 Not Found\) for url \(\S*/{0}-"
"""What uv says of a project that is listed and has no file for this Python and platform, or whose
file is gone."""


def with_size(wheel: Wheel, allowed: AllowedHosts) -> Wheel:
    """With its size, where the index does not say it and the server does."""
    if wheel.size_bytes is not None or not wheel.url.startswith("http"):
        return wheel
    return replace(wheel, size_bytes=_size_of(wheel.url, allowed))


def _size_of(address: str, allowed: AllowedHosts) -> int | None:
    """The length that a server states; None for whatever else it answers."""
    import requests
    from urllib3.exceptions import HTTPError

    url, login = split_login(address)
    try:
        with answered(url, allowed, login=login, timeouts=SIZE_TIMEOUTS, method="HEAD") as answer:
            length = answer.headers.get("Content-Length", "") if answer.ok else ""
    except (requests.RequestException, HTTPError, OSError, ValueError):
        # No HTTP at all, a header without an end: the size is only shown.
        return None
    return int(length) if length.isascii() and length.isdigit() and len(length) < 20 else None
