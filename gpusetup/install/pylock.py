"""uv resolves, and names every file with its address and its hash: what is shown and then fetched.

torch and its companions come from torch's own index and from no other (an explicit index of uv);
everything else from the indexes that the user's own settings of uv and pip name.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit
from urllib.request import Request, urlopen

from gpusetup.catalog.builds import INDEX_ROOT
from gpusetup.errors import ToolFailed, Unreached, Unsatisfiable
from gpusetup.install.credentials import split_login, without_logins
from gpusetup.install.job import Job
from gpusetup.install.target.find import Target
from gpusetup.install.uv_errors import HINTS, complaint
from gpusetup.install.uv_settings import (
    asking_environment,
    certificates,
    parse_toml,
    uv_program,
)
from gpusetup.install.wheels import DEFAULT_INDEX, TORCH_INDEX, Wheel, in_folder
from gpusetup.model.frozen import Frozen, replace
from gpusetup.resolver.joint import name_of
from gpusetup.system.processes import Output, run

ASK_SECONDS = 300.0
SIZE_SECONDS = 5.0
WORKERS = 4
COMPILE = ("compile", "--format", "pylock.toml", "--quiet", "--no-header", "--no-annotate")
NAME = "what-was-asked-for"
"""How uv calls the question in its sentences."""


class Requirements(Frozen):
    """What uv is asked: the family from one index, the rest from the user's own."""

    family: tuple[str, ...]
    """`torch==2.9.1+cu128`."""
    others: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()
    index: str
    """The index of the family, or of a backend in a folder of wheels."""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(map(name_of, self.family))

    @property
    def text(self) -> str:
        """As the project file that uv reads."""
        rows = [
            f'[project]\nname = "{NAME}"\nversion = "0"',
            f"dependencies = {json.dumps([*self.family, *self.others])}",
            f'[[tool.uv.index]]\nname = "torch"\nurl = {json.dumps(split_login(self.index)[0])}',
            "explicit = true\n[tool.uv.sources]",
            *(f'{name} = {{ index = "torch" }}' for name in self.names),
        ]
        return "\n".join(rows) + "\n"


def wheels_for(job: Job, target: Target, wanted: Requirements) -> tuple[Wheel, ...]:
    """The files that come: of an environment that is there what changes, of the family all if
    every one is there at this very version. Unsatisfiable if there is no solution."""
    there, family = target.installed, wanted.names
    if not there:
        return _compiled(job, target, wanted)
    exact = _changes(job, target, wanted)
    comes = [name for name in family if there.get(name) != exact.get(name)] or family
    wanted = replace(
        wanted,
        family=tuple(f"{name}=={exact[name]}" for name in comes),
        others=tuple(f"{n}=={v}" for n, v in exact.items() if n not in family),
    )
    anything = wanted.family or wanted.others
    return _compiled(job, target, wanted, "--no-deps") if anything else ()


def require_lack(wanted: Requirements, no: Unsatisfiable) -> None:
    """Return where the index of the family has no such wheel: a page is missing, lists other
    versions, or files for other machines. All else that uv may mean by its "no" ends the command:
    a login, a circle, a web page, a broken wheel, what comes with torch. torch's own index says
    403 of what it has not."""
    import requests

    message = no.message
    missing = ("403", "404") if wanted.index.startswith(INDEX_ROOT) else ("404",)
    for name, version in (word.split("==") for word in wanted.family):
        url, login = split_login(f"{wanted.index}/{name}/")
        try:
            page = requests.get(url, auth=login, timeout=SIZE_SECONDS, verify=certificates())
            status, listing = f"{page.status_code} {page.reason}", unquote(page.text)
        except requests.RequestException as problem:
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
    raise Unreached(message, hint=HINTS[Unreached])


LACKS = r"{0}=={1}\S* has no wheels with a matching|404 Not Found\) for url \(\S*/{0}-"
"""What uv says of a project that is listed and has no file for this Python and platform, or whose
file is gone."""


def _compiled(job: Job, target: Target, wanted: Requirements, *more: str) -> tuple[Wheel, ...]:
    output = _asked(job, target, wanted, (*COMPILE, *more))
    family = wanted.names
    rows = parse_toml(output.stdout).get("packages", ())
    rows = sorted(rows, key=lambda row: row["name"] not in family)
    found = [_wheel(target, family, row) for row in rows]
    if job.wheels:
        return tuple(in_folder(job.wheels, found))
    with ThreadPoolExecutor(WORKERS) as pool:
        return tuple(pool.map(_sized, found))


def _changes(job: Job, target: Target, wanted: Requirements) -> dict[str, str]:
    """Name -> version of what uv would install into the environment as it is; of the family what
    its index has, since another build of the same version may be there."""
    again = (word for name in wanted.names for word in ("--reinstall-package", name))
    words = ("install", "--dry-run", "--output-format", "json", *again)
    output = _asked(job, target, wanted, words)
    try:
        rows = json.loads(output.stdout)["changes"]
        return {o["name"]: o["version"] for o in rows if o["action"] != "uninstalled"}
    except (ValueError, KeyError, TypeError) as problem:
        said = f"cannot read uv's plan: {problem}"
        raise ToolFailed(said, hint="nothing was changed") from problem


def _asked(job: Job, target: Target, wanted: Requirements, words: Sequence[str]) -> Output:
    """uv's answer of a target; its error as ours."""
    layout = target.layout
    options: tuple[str, ...] = ("--no-build", "--python", layout.python)
    environment = asking_environment(layout.prefix)
    if job.wheels:
        links = Path(job.wheels).as_uri()
        options += ("--no-config", "--no-sources", "--no-index", "--find-links", links, "--offline")
        environment.pop("UV_FIND_LINKS", None)
    argv = (uv_program(), "pip", words[0], *options, *words[1:])
    output = ask_uv(argv, wanted, environment)
    if not output.ok:
        raise complaint("uv cannot plan the installation", output)
    return output


def ask_uv(argv: Sequence[str], wanted: Requirements, environment: Mapping[str, str]) -> Output:
    """uv's answer; nothing of the question is in the arguments, which others may read."""
    with tempfile.TemporaryDirectory(prefix="gpusetup-") as name:
        asked, held = Path(name, "pyproject.toml"), Path(name, "constraints.txt")
        asked.write_text(wanted.text, encoding="utf-8")
        held.write_text("\n".join((*wanted.constraints, "")), encoding="utf-8")
        named = (f"--requirement={asked}" if "install" in argv else str(asked),)
        words = (*argv, "--constraint", str(held), *named)
        knowing = {**environment, **login_of(wanted.index)}
        return run(words, timeout=ASK_SECONDS, environment=knowing)


def login_of(index: str) -> dict[str, str]:
    """The variables that tell uv the name and the password of torch's index."""
    login = split_login(index)[1]
    names = ("UV_INDEX_TORCH_USERNAME", "UV_INDEX_TORCH_PASSWORD")
    return dict(zip(names, login, strict=True)) if login else {}


def _wheel(target: Target, family: Sequence[str], package: Mapping[str, Any]) -> Wheel:
    """One package of a lock; uv names the files that fit, the best first."""
    rows, name, version = package.get("wheels"), package["name"], package["version"]
    if not rows:
        raise Unsatisfiable(
            f"{name} {version} has no wheel for Python {target.layout.version} here",
            hint="nothing was changed; install it by itself first, then run this again",
        )
    row = rows[0]
    url = row.get("url") or Path(row["path"]).absolute().as_uri()
    return Wheel(
        name=name,
        version=version,
        filename=row.get("name") or unquote(urlsplit(url).path).rpartition("/")[2],
        url=url,
        sha256=row.get("hashes", {}).get("sha256"),
        size_bytes=row.get("size"),
        source=TORCH_INDEX if name in family else DEFAULT_INDEX,
    )


def _sized(wheel: Wheel) -> Wheel:
    """With its size, where the index does not say it and the server does."""
    if wheel.size_bytes is not None or not wheel.url.startswith("http"):
        return wheel
    try:
        with urlopen(Request(wheel.url, method="HEAD"), timeout=SIZE_SECONDS) as answer:
            size = int(answer.headers.get("Content-Length") or 0)
    except (OSError, ValueError):
        return wheel
    return replace(wheel, size_bytes=size or None)


def lock_text(wheels: Sequence[Wheel]) -> str:
    """The wheels as the lock that uv installs from: each by its address and its hash."""
    rows = ['lock-version = "1.0"\ncreated-by = "gpusetup"\n']
    for one in wheels:
        hashes = f'{{ sha256 = "{one.sha256}" }}' if one.sha256 else "{}"
        rows.append(
            f'[[packages]]\nname = "{one.name}"\nversion = "{one.version}"\n'
            f"wheels = [{{ url = {json.dumps(one.url)}, hashes = {hashes} }}]\n"
        )
    return "\n".join(rows)
