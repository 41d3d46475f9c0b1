"""Removes from a snapshot who a person is and where they work, before it is shared.

There are two gates. The first is an allow-list: only known environment variables pass. The second
goes over every remaining text, one subject a file: `folders` (homes become `~`, unknown ones
`dir-1`), `secrets`, `network` (servers and addresses) and `people`. GPU UUIDs become aliases.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from gpusetup.model.codec import from_plain, to_plain
from gpusetup.model.frozen import Frozen, replace
from gpusetup.model.hidden_marks import map_texts
from gpusetup.model.machine import Snapshot
from gpusetup.readings.environment import is_allowed
from gpusetup.readings.packages import INSTALLERS
from gpusetup.redaction.folders import HOMES, folder_rules, people_in
from gpusetup.redaction.network import ADDRESSES, HOST_VARIABLES, HOSTS, URLS, hide_servers
from gpusetup.redaction.people import PEOPLE
from gpusetup.redaction.rules import Match, Rule, apply, names_rule, vocabulary
from gpusetup.redaction.secrets import SECRETS, hide_keys
from gpusetup.redaction.variables import hide_values

CLOSED_FIELDS = frozenset(
    {"schema", "origin", "family", "installed_at", "compute_capability", "sha256"}
)
"""Fields of a closed vocabulary or shape, which hold nothing private."""
FREE_KEYS = "values"
"""The mapping whose keys readers choose; the names of all others are the record's own."""
_DATE = r"\d{4}-\d\d-\d\d[T ][\d:.]{5,15}(?:Z|[+-]\d\d:?\d\d)?"
_VERSION = r"\d[\w.+!-]{0,40}"

WHO_VARIABLES = frozenset(
    "USER LOGNAME USERNAME SUDO_USER HOSTNAME COMPUTERNAME SLURM_JOB_USER SLURMD_NODENAME "  # noqa: SIM905
    "SLURM_JOB_ACCOUNT USERDOMAIN JUPYTERHUB_USER".split()
)
"""Variables that name a person or a machine: never kept, and what they say is known from then."""


class Private(Frozen):
    """What is known about the person whose machine it is."""

    names: tuple[str, ...] = ()
    """Users and hosts."""
    homes: tuple[str, ...] = ()
    """Home folders, if they are not where one expects them."""


def private_here() -> Private:
    """The user, the host and the home folder of this process."""
    host = socket.gethostname()
    names = [os.environ.get(name, "") for name in WHO_VARIABLES]
    names += [host, host.split(".")[0]]
    home = os.path.expanduser("~")  # noqa: PTH111
    # A user without a home folder lives at the root, and `/` may not become `~`.
    has_home = len(home.strip("/\\")) > 1
    return Private(
        names=tuple(name for name in names if name),
        homes=(home,) if has_home else (),
    )


def redact(snapshot: Snapshot, private: Private | None = None) -> Snapshot:
    """The snapshot in a form that can be shared. If `private` is None, it uses this process's user,
    host and home."""
    plain = to_plain(snapshot)
    person = private_here() if private is None else private
    names_in_environment = []
    allowed_variables = {}
    for name, value in plain["environment"].items():
        if name in WHO_VARIABLES:
            names_in_environment.append(value)
        if is_allowed(name):
            allowed_variables[name] = value
    person = replace(person, names=(*person.names, *names_in_environment))
    plain["environment"] = allowed_variables

    scrub = Scrubber(plain, person)
    for gpu in plain["gpus"] or ():
        if gpu["uuid"]:
            scrub.alias_gpu(gpu["uuid"])
    # The environment comes first, so that its aliases are alike on nodes that are alike.
    environment = _redacted(plain.pop("environment"), scrub.text)
    values = {name: hide_values(value, scrub.alias_folder) for name, value in environment.items()}
    shared = {**_redacted(plain, scrub.text), "environment": values}
    return from_plain(shared, Snapshot, what="the redacted snapshot")


def _redacted(value: Any, scrub: Callable[[str], str], key: str = "") -> Any:
    """A plain value with all its texts redacted; `key` is the field that it is in."""
    if isinstance(value, str):
        return _redacted_text(value, scrub, key)
    if isinstance(value, dict):
        shared_names = {name: name for name in value}
        # Readers choose the names of these values, and may have taken them from a text.
        if key == FREE_KEYS:
            shared_names = {name: scrub(name) for name in value}
        return {shared_names[name]: _redacted(inner, scrub, name) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_redacted(inner, scrub, key) for inner in value]
    return value


def _redacted_text(value: str, scrub: Callable[[str], str], key: str) -> str:
    """A text of the field `key`, as it may be shared."""
    is_version = key.endswith("version") and re.fullmatch(_VERSION, value)
    if is_version or key in CLOSED_FIELDS:
        return value
    # A snapshot is a stranger's: in a field of a date or a program any text may be.
    if key == "taken_at":
        return value if re.fullmatch(_DATE, value) else "<date>"
    if key == "installer":
        return value if value.lower() in INSTALLERS else "other"
    if key in HOST_VARIABLES:
        return scrub(hide_servers(value))
    if is_secret_key(key):
        return "<secret>"
    return scrub(value)


_SECRET_KEY = re.compile(r"(?i).*(password|passwd|token|secret|serial|api_?key|credential).*")


def is_secret_key(key: str) -> bool:
    """Whether a field's name says that its value is a secret.

    >>> is_secret_key("serial_number"), is_secret_key("name")
    (True, False)
    """
    return _SECRET_KEY.fullmatch(key) is not None


# --- the second gate ------------------------------------------------------------------------------

_UUID = r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"
_GPU = rf"\b(GPU|MIG)-({_UUID}|[0-9a-fA-F]{{8}}[-0-9a-fA-F]*|[0-9a-fA-F]{{4,7}})(?![0-9a-zA-Z])"
"""A GPU's UUID, or its beginning, which CUDA_VISIBLE_DEVICES takes: `GPU-8f3a`."""
_ALIAS = r"\d{4}"


class Scrubber:
    """Removes the private parts from many texts, always in the same way.

    The people whom the texts of `plain` show are known. `own_text`: it is mostly our own words, so
    that only people, homes and secrets are taken out, which are private in any text.
    """

    def __init__(self, plain: Any, private: Private, *, own_text: bool = False) -> None:
        self.aliases: dict[str, str] = {}
        """A GPU's UUID -> its alias: the snapshot's own in their order, from `GPU-0001` on."""
        self._folder_aliases: dict[str, str] = {}
        """An unknown folder -> its alias."""
        self._shared: dict[str, str] = {}
        """A text -> how it is shared: a record has most of its texts many times."""

        # The longest first: `/home/ann/work` is no home of ann's below `/home/ann`.
        homes = sorted(private.homes, key=len, reverse=True)
        owners = [re.split(r"[\\/]", home)[-1] for home in homes]
        names = names_rule((*private.names, *_people_of(plain), *owners), vocabulary())
        own_homes = [(re.escape(home) + r"(?![\w-])", "~") for home in homes]

        rules: list[Rule] = [*own_homes]
        if own_text:
            rules += (*HOMES, *SECRETS)
        else:
            rules += (*URLS, *HOMES, (_GPU, self._alias_gpu_match), *SECRETS, *ADDRESSES, *PEOPLE)
            rules.append((rf"\b{_UUID}\b", "<uuid>"))
            rules += (*folder_rules(self.alias_folder), *HOSTS)
        rules += names
        self._rules = tuple(rules)

    def text(self, text: str) -> str:
        """The text without its private parts; even for a hostile text, the time is proportional to
        its length."""
        if text not in self._shared:
            shared = ""
            for piece in pieces(hide_keys(text)):
                shared += apply(self._rules, piece)
            self._shared[text] = shared
        return self._shared[text]

    def alias_folder(self, name: str) -> str:
        """The alias of an unknown folder, the same one each time: `dir-1`."""
        number = len(self._folder_aliases) + 1
        # A folder that was named before keeps its alias.
        return self._folder_aliases.setdefault(name, f"dir-{number}")

    def _alias_gpu_match(self, match: Match) -> str:
        """The alias of a GPU whose UUID, or the beginning of it, stands in a text."""
        # It is an alias already.
        if re.fullmatch(_ALIAS, match[2]):
            return match[0]
        written = match[0].lower()
        for uuid in self.aliases:
            if uuid.lower().startswith(written):
                return self.alias_gpu(uuid)
        return self.alias_gpu(written)

    def alias_gpu(self, uuid: str) -> str:
        """The alias of a GPU, or of an instance of MIG: `GPU-0001`, `MIG-0002`."""
        kind = uuid[:3].upper()
        number = len(self.aliases) + 1
        next_alias = f"{kind}-{number:04d}"
        # A GPU that was named before keeps its alias.
        return self.aliases.setdefault(uuid, next_alias)


def _people_of(plain: Any) -> Iterator[str]:
    """The people whom the texts of a plain value show."""
    # A record has most of its texts many times; a dict keeps their order.
    texts: dict[str, str] = {}
    map_texts(plain, lambda text: texts.setdefault(text, text))
    for text in texts:
        for piece in pieces(text):
            yield from people_in(piece)


MAX_PIECE = 4000
"""The most characters that a pattern searches at once."""
MAX_TEXT = 1 << 16
"""The most characters of one text that are kept."""


_PIECE = (
    # The end of the text; lines; words of a long line; one endless word.
    r"(?s).{1,4000}\Z|.{1,4000}(?<=\n)|.{1,4000}(?<=\s)|\S+"
)


def pieces(text: str) -> Iterable[str]:
    """A text in pieces of at most MAX_PIECE characters: lines, or words if a line is longer.

    A word longer than that becomes `<long>`. The text is cut after MAX_TEXT characters.

    >>> [len(piece) for piece in pieces("a " * 3000)]
    [4000, 2000]
    """
    if len(text) > MAX_TEXT:
        text = text[:MAX_TEXT] + " <cut>"
    for piece in re.findall(_PIECE, text):
        yield "<long>" if len(piece) > MAX_PIECE else piece


def redact_document(plain: Any) -> Any:
    """A copy of a plain JSON document, such as a receipt, with private data removed.

    >>> redact_document({"url": "https://me:sesame@mirror.example/whl/cu124", "sha256": "ab" * 32})
    {'url': 'https://<host>/whl/cu124', 'sha256': 'abababababababababababababababababababababababababababababababab'}
    """
    scrub = Scrubber(plain, private_here())
    return _redacted(plain, scrub.text)


def redact_answer(plain: Any) -> Any:
    """A copy of an answer with private data removed. It consists of redacted readings and gpusetup's
    own texts, whose addresses and commands stay.

    >>> redact_answer({"text": "sudo reboot; /home/ann/x; hf_" + "a1B2" * 9})
    {'text': 'sudo reboot; ~/x; <secret>'}
    """
    scrub = Scrubber(plain, private_here(), own_text=True)
    return _redacted(plain, scrub.text)
