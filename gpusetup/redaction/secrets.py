"""Hides what a word before it announces as private: a password, a user, a host.

The words are those of programs' settings, options and log lines. In a shared record, all other
names and tokens are hidden because no harmless word has their letters (`harmless`); these rules are
for secrets that are common words, and for gpusetup's own texts, where only secrets are hidden.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from gpusetup.model.logins import without_broken_logins

SECRET = "<secret>"

_STRONG = (
    r"(?:password|passwd|passphrase|passcode|pwd|secrets?|token|credentials?"
    # Keys: `api_key`, `secret-key`, `access_key_id`.
    r"|(?:api|access|account|private|encryption|secret|signing|license)[_-]?key(?:[_-]?id)?"
    # The word "password" in other languages: Swedish, German, French, Spanish, Portuguese, Dutch,
    # Russian, Chinese, Japanese, Korean.
    r"|passwor[dt]|kennwort|mot de passe|contrase\u00f1a|senha|wachtwoord|\u043f\u0430\u0440\u043e\u043b\u044c|\u5bc6\u7801|\u30d1\u30b9\u30ef\u30fc\u30c9|\ube44\ubc00\ubc88\ud638"
    # Serial numbers, other numbers that identify a machine, and session ids.
    r"|service[ _-]?tag|asset[ _-]?tag|s/n|shared[_-]?access[_-]?(?:key|signature)|session[_-]?id|serial(?:[ _-]?(?:number|no))?)"
)
"""Words that announce a secret, even in the middle of a name: `PGPASSWORD`, `_authToken`."""
_WEAK = r"(?:sn|pass|pw|pin|auth|authorization|cookie|signature|sig|sessid|webhook|dsn)"
"""Words that announce a secret but also occur inside other words. They count only as whole words:
`DB_PASS`."""
_NAMES = (
    r"(?:user(?:[ _-]?name|id)?|login|logname|owner|author|maintainer|account|full name|gecos"
    r"|\w{0,20}host(?:name)?|node(?:name|_?list)?|computer(?: ?name)?|workstation|master_addr|slurm\w*)"
)
"""Words that announce a person or a machine."""
_NO_VALUE = (
    r"(?!<|"
    # Words that stand in place of a value: `token: None`, `password (missing)`, `api_key=unset`.
    r"(?:\(?(?:None|null|nil|unset|empty|not|str|bool|int|True|False|yes|no|N/A|missing|required|invalid|expired|Disabled|Enabled|localhost|root|unknown)\)?)(?![\w-])"
    r"|''|\"\"|\[N/A)"
)
"""Words that say that there is no value. They are kept, because a missing value is often the cause
of an error."""
_VALUE = rf"{_NO_VALUE}(?:\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*'|[^\s\"',;&<>]+)"
_KEY = (
    # A name that contains one of the strong words: `WANDB_API_KEY`, `hf.token.value`.
    rf"(?:(?<![\w.-])[\w.-]{{0,60}}?{_STRONG}(?:[._-](?:value|text|data|key|id))?"
    # A name that ends with one of the weak words: `db_pass`, `smtp.auth`.
    rf"|(?<![A-Za-z0-9])(?:[A-Za-z0-9]{{1,30}}[_.-]){{0,4}}{_WEAK})"
)
"""Matches the name of a setting whose value is a secret."""
RULES = (
    # A login as an option: `curl -u me:sesame https://...`, `mysql -psesame`.
    (r"(\b(?:curl|wget|docker|podman|mysql|http)\b[^\n]{0,400}?\s-(?:u|U|p|-user)(?:=|\s+|(?=\w)))(?![-<])\S+", rf"\1{SECRET}"),
    # A header: `Authorization: Bearer ...`, `Set-Cookie: ...`.
    (r"(?i)\b(authorization|cookie|set-cookie|bearer|basic)(\s*:\s*|\s+(?=[\w.~+/=-]*[\d=/+._-]))(?![\s<])[^\r\n\"']{8,}", rf"\1\2{SECRET}"),
    # An option: `--hf-token x`, `--password x`; `machine host login me password x`.
    (rf"(?i)((?<![\w-])--?(?:[a-z]{{1,30}}[-_]){{0,4}}(?:{_STRONG}|{_WEAK})\s+|\blogin\s+\S+\s+password\s+)(?![-<|&]){_VALUE}", rf"\1{SECRET}"),
    # A setting: `WANDB_API_KEY=x`, `"token": "x"`, `secret => x`, `PASSWORD<<EOF x`.
    (rf"(?i)({_KEY}[\"']?\s*(?:=>|[=:]|<<\w+)\s*)(?!<|[\"']{SECRET}){_VALUE}", rf"\1{SECRET}"),
    # The tokens of GitHub, GitLab, Hugging Face, OpenAI, Slack, npm, PyPI, NVIDIA and Docker: `hf_...`.
    (r"\b(?:gh[opsur]|github_pat|glpat|hf|sk|xox[a-z]|npm|pypi|nvapi|dckr_pat)[-_](?=[\w-]*\d)[\w-]{16,}", SECRET),
    # A long hexadecimal number, unless it is the hash of a file or commit.
    (r"(?<!sha256[:=])(?<!sha256 )(?<!sha256 is )(?<!Got {8})(?<!commit )(?<!/store/)(?<!#sha256=)\b(?!0x)[0-9a-fA-F]{20,}\b", "<hex>"),
)  # fmt: skip
"""The rules for secrets, which run in this order. The comment above each rule shows a text that it
changes."""
PEOPLE = (
    # A label before a name: `user: jane`, `owner=jane`, `hostname: titan`.
    (rf"(?i)(?<![\w-])({_NAMES}[\"']?[ \t]*[=:][ \t]*[\"'\[]?)(?!<|\d+\b|none\b|null\b|true\b|false\b|localhost|download\.pytorch\.org|x86_64){_NO_VALUE}[\w.@\\$-]+(?: [A-Z][\w'-]+(?!\s*[=:\w]))?", r"\1<private>"),
    # `server = titan`, `server: titan`; but not a sentence (`server: NVIDIA Fabric Manager`) or
    # docker's list below `Server:`.
    (r"(?i)(\bserver[\"']?(?:[ \t]*=[ \t]*[\"']?|:[ \t]?(?=[\"']?[\w.-]+(?![\w.-]|[ \t]+[A-Za-z(]))))(?!<|download\.pytorch|localhost)[\w.-]+", r"\1<private>"),
)  # fmt: skip
"""The rules for names after a word that announces a person or a machine."""


_LOGIN_OF_URL = (
    # A login after the colon of a scheme: `//me:sesame@`.
    r"(?<=:/)(/{0,2})[^/\s\"'<>]{0,300}@"
    # A login in a URL without slashes, or without a URL: `ftp:me:sesame@host`, `me:sesame@host`.
    r"|(?<![\w@/])([A-Za-z]{3,6}:)?[\w.+-]{1,64}:[^\s@/\"'<>]{1,128}@(?=[\w\[])"
)


def hide_secrets(text: str, rules: Iterable[tuple[str, str]] = RULES) -> str:
    """The text without logins in its URLs, and without what these rules recognize by the word
    before it or by its beginning.

    >>> hide_secrets("curl --token sesame; WANDB_API_KEY=sesame")
    'curl --token <secret>; WANDB_API_KEY=<secret>'
    >>> hide_secrets("owner=ann, server: titan", PEOPLE)
    'owner=<private>, server: <private>'
    >>> hide_secrets("`--index ftp://me:p@ss@mirror.example/whl` is not an http or https URL")
    '`--index ftp://mirror.example/whl` is not an http or https URL'
    """
    # The slashes or the scheme before a login stay; a login that is not in a URL has neither.
    text = re.sub(
        _LOGIN_OF_URL, lambda login: login[1] or login[2] or "", without_broken_logins(text)
    )
    for pattern, replacement in rules:
        text = re.sub(pattern, replacement, text)
    return text
