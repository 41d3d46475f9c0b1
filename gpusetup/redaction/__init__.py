"""Removes everything from a snapshot that shows who the user is and where they work, so that it can
be shared.

Both steps keep what is known to be harmless: of the environment, a list of variables; of every
text, the words, versions and devices that `harmless` knows, with homes as `~`, unknown folders as
`dir-1` (`places`) and everything else as `<hidden>`. `secrets` finds what is private although its
words are common: a password, a user, a host. GPU UUIDs become aliases.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Callable, Iterator
from typing import Any

from gpusetup.model.codec import from_plain, to_plain
from gpusetup.model.frozen import Frozen, replace
from gpusetup.model.machine import Snapshot
from gpusetup.readings.environment import is_allowed
from gpusetup.readings.packages import INSTALLERS
from gpusetup.redaction.harmless import is_harmless, public_names
from gpusetup.redaction.places import (
    PATH,
    URL,
    Match,
    hide_addresses,
    hide_folders,
    hide_homes,
    hide_url,
)
from gpusetup.redaction.secrets import PEOPLE, SECRET, hide_secrets

CLOSED_FIELDS = frozenset(
    {"schema", "origin", "family", "installed_at", "compute_capability", "sha256"}
)
"""Fields with a fixed vocabulary or form, which cannot contain anything private."""
_VERSION = r"\d[\w.+!-]{0,40}"
_SECRET_KEY = r"(?i).*(password|passwd|token|secret|serial|api_?key|credential).*"

WHO_VARIABLES = frozenset(
    "USER LOGNAME USERNAME SUDO_USER HOSTNAME COMPUTERNAME SLURM_JOB_USER SLURMD_NODENAME "  # noqa: SIM905
    "SLURM_JOB_ACCOUNT USERDOMAIN JUPYTERHUB_USER".split()
)
"""Variables that contain the name of a person or machine. They are never kept, and their values are
removed from all other texts."""


class Private(Frozen):
    """The private names and folders of the machine's user, which are removed from all texts."""

    names: tuple[str, ...] = ()
    """Names of users and hosts."""
    homes: tuple[str, ...] = ()
    """Home folders that are not in the usual places."""


def private_here() -> Private:
    """The user, the host and the home folder of this process."""
    host = socket.gethostname()
    names = [*(os.environ.get(name, "") for name in WHO_VARIABLES), host, host.split(".")[0]]
    home = os.path.expanduser("~")  # noqa: PTH111
    # A user without a home folder has `/` as home, which must not become `~`.
    has_home = len(home.strip("/\\")) > 1
    return Private(names=tuple(filter(None, names)), homes=(home,) if has_home else ())


def redact(snapshot: Snapshot, private: Private | None = None) -> Snapshot:
    """The snapshot in a form that can be shared. If `private` is None, uses this process's user,
    host and home."""
    plain = to_plain(snapshot)
    person = private_here() if private is None else private
    variables = plain.pop("environment")
    names = [value for name, value in variables.items() if name in WHO_VARIABLES]
    allowed = {name: value for name, value in variables.items() if is_allowed(name)}
    scrub = Scrubber(replace(person, names=(*person.names, *names)))
    for gpu in plain["gpus"] or ():
        if gpu["uuid"]:
            scrub.alias_gpu(gpu["uuid"])
    # Redact the environment variables first, so that machines with the same variables get the same
    # aliases for them.
    environment = _redacted(allowed, scrub.text)
    shared = {**_redacted(plain, scrub.text), "environment": environment}
    return from_plain(shared, Snapshot, what="the redacted snapshot")


def _redacted(value: Any, scrub: Callable[[str], str], key: str = "") -> Any:
    """A plain value with all its texts redacted, except those of fields that cannot contain
    anything private; `key` is the name of the field that contains the value."""
    if isinstance(value, dict):
        redacted = {}
        for name, inner in value.items():
            # The keys of an event's values may come from a text. All others are names of fields.
            public_name = scrub(name) if key == "values" else name
            redacted[public_name] = _redacted(inner, scrub, name)
        return redacted
    if isinstance(value, list | tuple):
        return [_redacted(inner, scrub, key) for inner in value]
    if not isinstance(value, str) or key in CLOSED_FIELDS:
        return value
    # Versions of libraries look like addresses of networks: `12.8.4.1`.
    if key.endswith("version") and re.fullmatch(_VERSION, value):
        return value
    if key == "installer":
        return value if value.lower() in INSTALLERS else "other"
    return SECRET if re.fullmatch(_SECRET_KEY, key) else scrub(value)


# --- searching the texts --------------------------------------------------------------------------

_UUID = r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"
_GPU = rf"\b(GPU|MIG)-({_UUID}|[0-9a-fA-F]{{8}}[-0-9a-fA-F]*|[0-9a-fA-F]{{4,7}})(?![0-9a-zA-Z])"
"""Matches a GPU's UUID or its beginning, which CUDA_VISIBLE_DEVICES accepts: `GPU-8f3a`."""
_TOKEN = (
    # What is hidden already, the builder of NVIDIA's driver, and URLs, of which only harmless parts
    # are left.
    r"<[\w-]+>|\bdvs-builder@[\w-]+|(?<![A-Za-z0-9+.-])[A-Za-z][A-Za-z0-9+.-]{0,30}://[^\s\"'<>]*(?:<[\w-]+>[^\s\"'<>]*)*"
    rf"|(?P<path>{PATH})|(?P<word>[\w.+-]+)"
)


class Scrubber:
    """Removes the private parts from many texts, always in the same way."""

    def __init__(self, private: Private) -> None:
        self.aliases: dict[str, str] = {}
        """Maps a GPU's UUID to its alias. The snapshot's own GPUs get the first aliases in order,
        beginning with `GPU-0001`."""
        self._folder_aliases: dict[str, str] = {}
        # Replace the longest home first: if both `/home/ann` and `/home/ann/work` are homes,
        # `/home/ann/work` must become `~`, not `~/work`.
        homes = sorted(private.homes, key=len, reverse=True)
        never = "(?!)"  # a pattern that matches nowhere
        self._homes = "|".join(re.escape(home) + r"(?![\w-])" for home in homes) or never
        owners = [re.split(r"[\\/]", home)[-1] for home in homes]
        # Keep names of one or two letters and numbers: they occur in every record, so hiding them
        # would make the record useless.
        names = [
            name
            for name in {*private.names, *owners}
            if len(name) > 2 and not name.isdigit() and name.lower() not in public_names()
        ]
        # A regular expression takes the first alternative that matches, so `alice` must come
        # before `al`.
        alternatives = "|".join(map(re.escape, sorted(names, key=len, reverse=True)))
        self._names = rf"(?i)(?<![A-Za-z0-9])(?:{alternatives or never})(?![A-Za-z0-9])"

    def text(self, text: str) -> str:
        """A text of any origin without its private parts and unknown words. Even for a malicious
        text, the time is proportional to its length."""
        return "".join(map(self._hide_all, pieces(text)))

    def own_text(self, text: str) -> str:
        """A sentence of gpusetup's own without the private values in it; its words stay."""
        return "".join(map(self._hide_values, pieces(text)))

    def _hide_values(self, line: str) -> str:
        """The line without what is private in every text: homes, secrets, GPUs and names."""
        line = hide_homes(hide_secrets(re.sub(self._homes, "~", line)))
        line = re.sub(_GPU, self._alias_of_match, line)
        return re.sub(self._names, "<private>", line)

    def _hide_all(self, line: str) -> str:
        """The line without private values, servers, addresses and unknown words."""
        # A home in a `file:` URL goes first, because it may have folders that `hide_url` keeps.
        line = re.sub(URL, hide_url, re.sub(self._homes, "~", line))
        # Values come before addresses, because a secret may hold a part that looks like an address.
        line = hide_addresses(self._hide_values(line))
        # What follows `user:` or `host:` is private even if it is a common word.
        line = hide_secrets(line, PEOPLE)
        return re.sub(_TOKEN, self._hide_token, line)

    def _hide_token(self, token: Match) -> str:
        """A path with aliases for its unknown folders, `<hidden>` for a word that may be private.
        Everything else stays, because the steps before have hidden its private parts."""
        if token["path"]:
            return hide_folders(token["path"], self._alias_folder)
        if token["word"] and not is_harmless(token["word"].strip(".-_")):
            return "<hidden>"
        return token[0]

    def _alias_folder(self, name: str) -> str:
        """The alias of an unknown folder, such as `dir-1`, always the same for the same folder."""
        return self._folder_aliases.setdefault(name, f"dir-{len(self._folder_aliases) + 1}")

    def _alias_of_match(self, match: Match) -> str:
        """The alias of the GPU whose UUID, or its beginning, was found."""
        # In a record that is redacted again, `GPU-0001` is an alias already.
        if re.fullmatch(r"\d{4}", match[2]):
            return match[0]
        beginning = match[0].lower()
        uuids = (uuid for uuid in self.aliases if uuid.lower().startswith(beginning))
        # A GPU that is not the snapshot's gets the next alias.
        return self.alias_gpu(next(uuids, beginning))

    def alias_gpu(self, uuid: str) -> str:
        """The alias of a GPU or MIG instance: `GPU-0001`, `MIG-0002`."""
        return self.aliases.setdefault(uuid, f"{uuid[:3].upper()}-{len(self.aliases) + 1:04d}")


MAX_LINE = 4000
"""The maximum number of characters that a pattern searches at a time."""
MAX_TEXT = 1 << 16
"""The maximum number of characters of a text that are kept."""


def pieces(text: str) -> Iterator[str]:
    """The lines of a text. A line longer than MAX_LINE becomes `<long>`, and the text is cut after
    MAX_TEXT characters."""
    cut = "" if len(text) <= MAX_TEXT else " <cut>"
    for line in (text[:MAX_TEXT] + cut).splitlines(keepends=True):
        yield "<long>" if len(line) > MAX_LINE else line


def redact_document(plain: Any) -> Any:
    """A copy of a document of gpusetup's own, such as an answer or an error, without the
    homes, secrets and names of people that it quotes. Its words, addresses and commands stay.

    >>> redact_document({"text": "sudo reboot; /home/ann/x; hf_" + "a1B2" * 9})
    {'text': 'sudo reboot; ~/x; <secret>'}
    """
    return _redacted(plain, Scrubber(private_here()).own_text)
