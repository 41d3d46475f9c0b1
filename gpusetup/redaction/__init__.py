"""Takes out of a snapshot what says who and where somebody is, before it is shared.

Two gates. The first is an allow-list: only the known environment variables pass. The second goes
over every text that is left, one subject a file: `folders` (homes become `~`, unknown ones
`dir-1`), `secrets`, `network` (servers and addresses) and `people`. GPU UUIDs become aliases.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Callable, Iterable
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
from gpusetup.redaction.rules import Found, apply, names_rule, vocabulary
from gpusetup.redaction.secrets import SECRETS, hide_keys
from gpusetup.redaction.variables import hide_values

CLOSED_FIELDS = frozenset(
    {"schema", "origin", "family", "installed_at", "compute_capability", "sha256"}
)
"""Fields of a closed vocabulary or shape, which carry nothing of their own."""
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
    """What is known of the person whose machine it is."""

    names: tuple[str, ...] = ()
    """Users and hosts."""
    homes: tuple[str, ...] = ()
    """Home folders, if they are not where one expects them."""


def private_here() -> Private:
    """The user, the host and the home folder of this process."""
    host, home = socket.gethostname(), os.path.expanduser("~")  # noqa: PTH111
    known = (*map(os.environ.get, WHO_VARIABLES), host, host.split(".")[0])
    homes = (home,) if len(home.strip("/\\")) > 1 else ()
    return Private(names=tuple(filter(None, known)), homes=homes)


def redact(snapshot: Snapshot, private: Private | None = None) -> Snapshot:
    """The snapshot as it may be shared. `private` None: this process's user, host and home."""
    plain = to_plain(snapshot)
    person = private_here() if private is None else private
    named = tuple(v for k, v in plain["environment"].items() if k in WHO_VARIABLES)
    person = replace(person, names=(*person.names, *named))
    plain["environment"] = {k: v for k, v in plain["environment"].items() if is_allowed(k)}
    scrub = Scrubber(plain, person)
    for uuid in filter(None, (gpu["uuid"] for gpu in plain["gpus"] or ())):
        scrub.alias_gpu(uuid)
    environment = _redacted(plain.pop("environment"), scrub.text)  # first: alike on alike nodes
    values = {name: hide_values(value, scrub.alias_folder) for name, value in environment.items()}
    shared = {**_redacted(plain, scrub.text), "environment": values}
    return from_plain(shared, Snapshot, what="the redacted snapshot")


def _redacted(value: Any, scrub: Callable[[str], str], key: str = "") -> Any:
    if isinstance(value, str):
        return _redacted_text(value, scrub, key)
    if isinstance(value, dict):
        names = {name: scrub(name) if key == FREE_KEYS else name for name in value}
        return {names[name]: _redacted(inner, scrub, name) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_redacted(inner, scrub, key) for inner in value]
    return value


def _redacted_text(value: str, scrub: Callable[[str], str], key: str) -> str:
    if key in CLOSED_FIELDS or (key.endswith("version") and re.fullmatch(_VERSION, value)):
        return value
    if key == "taken_at":
        return value if re.fullmatch(_DATE, value) else "<date>"
    if key == "installer":
        return value if value.lower() in INSTALLERS else "other"
    if key in HOST_VARIABLES:
        return scrub(hide_servers(value))
    return "<secret>" if is_secret_key(key) else scrub(value)


def is_secret_key(key: str) -> bool:
    """Whether a field's name says that its value is nobody's business.

    >>> is_secret_key("serial_number"), is_secret_key("name")
    (True, False)
    """
    return (
        re.fullmatch(r"(?i).*(password|passwd|token|secret|serial|api_?key|credential).*", key)
        is not None
    )


# --- the second gate ------------------------------------------------------------------------------

_UUID = r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"
_GPU = rf"\b(GPU|MIG)-({_UUID}|[0-9a-fA-F]{{8}}[-0-9a-fA-F]*|[0-9a-fA-F]{{4,7}})(?![0-9a-zA-Z])"
_ALIAS = r"\d{4}"


class Scrubber:
    """Takes the private parts out of one text after another, always in the same way.

    The people whom the texts of `plain` show are known. `own_text`: it is mostly our own words, so
    that only people, homes and secrets are taken out, which are private in any text.
    """

    def __init__(self, plain: Any, private: Private, *, own_text: bool = False) -> None:
        self.aliases: dict[str, str] = {}
        """GPUs -> what stands for them: the snapshot's own in their order, from `GPU-0001` on."""
        self._folder_aliases: dict[str, str] = {}
        """Unknown folders -> what stands for them."""
        self._shared: dict[str, str] = {}
        """Texts -> what is shared of them: a record has most of its texts many times."""
        texts: dict[str, str] = {}
        map_texts(plain, lambda text: texts.setdefault(text, text))
        people = (name for text in texts for piece in pieces(text) for name in people_in(piece))
        homes = sorted(private.homes, key=len, reverse=True)
        owners = (re.split(r"[\\/]", home)[-1] for home in homes)
        names = names_rule((*private.names, *people, *owners), vocabulary())
        own_homes = ((re.escape(home) + r"(?![\w-])", "~") for home in homes)
        uuids = ((rf"\b{_UUID}\b", "<uuid>"),)
        others = *ADDRESSES, *PEOPLE, *uuids, *folder_rules(self.alias_folder), *HOSTS
        all_rules = *URLS, *HOMES, (_GPU, self._alias_gpu_match), *SECRETS, *others
        self._rules = *own_homes, *((*HOMES, *SECRETS) if own_text else all_rules), *names

    def text(self, text: str) -> str:
        """The text without its private parts; a hostile one costs time in proportion."""
        if text not in self._shared:
            shared = (apply(self._rules, piece) for piece in pieces(hide_keys(text)))
            self._shared[text] = "".join(shared)
        return self._shared[text]

    def alias_folder(self, name: str) -> str:
        return self._folder_aliases.setdefault(name, f"dir-{len(self._folder_aliases) + 1}")

    def _alias_gpu_match(self, match: Found) -> str:
        if re.fullmatch(_ALIAS, match[2]):
            return match[0]
        low = match[0].lower()
        whole = next((uuid for uuid in self.aliases if uuid.lower().startswith(low)), low)
        return self.alias_gpu(whole)

    def alias_gpu(self, uuid: str) -> str:
        alias = f"{uuid[:3].upper()}-{len(self.aliases) + 1:04d}"
        return self.aliases.setdefault(uuid, alias)


MAX_PIECE = 4000
"""No pattern sees more characters than this at once."""
MAX_TEXT = 1 << 16
"""What a record needs of one text."""


def pieces(text: str) -> Iterable[str]:
    """A text in pieces of lines, or of words where a line is long; of one endless word nothing.

    >>> [len(piece) for piece in pieces("a " * 3000)]
    [4000, 2000]
    """
    whole = text if len(text) <= MAX_TEXT else text[:MAX_TEXT] + " <cut>"
    for piece in re.findall(_PIECE, whole):
        yield "<long>" if len(piece) > MAX_PIECE else piece


_PIECE = r"(?s).{1,4000}\Z|.{1,4000}(?<=\n)|.{1,4000}(?<=\s)|\S+"


def redact_document(plain: Any) -> Any:
    """A plain document (a receipt's) as it may be shared.

    >>> redact_document({"url": "https://me:sesame@mirror.example/whl/cu124", "sha256": "ab" * 32})
    {'url': 'https://<host>/whl/cu124', 'sha256': 'abababababababababababababababababababababababababababababababab'}
    """
    return _redacted(plain, Scrubber(plain, private_here()).text)


def redact_answer(plain: Any) -> Any:
    """An answer made of redacted readings and of our own words, looked over once more for what is
    private wherever it stands: our own addresses and commands stay.

    >>> redact_answer({"text": "sudo reboot; /home/ann/x; hf_" + "a1B2" * 9})
    {'text': 'sudo reboot; ~/x; <secret>'}
    """
    return _redacted(plain, Scrubber(plain, private_here(), own_text=True).text)
