"""Names and passwords in URLs: taken apart, and left out of everything that is shown or stored."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote, urlsplit


def split_login(url: str) -> tuple[str, tuple[str, str] | None]:
    """A URL without its user name and password, and these, decoded; None where it has none.

    >>> split_login("https://me:s%40me@i.example:8443/simple")
    ('https://i.example:8443/simple', ('me', 's@me'))
    """
    parts = urlsplit(url)
    login, _, host = parts.netloc.rpartition("@")
    if not login:
        return url, None
    name, _, password = login.partition(":")
    return parts._replace(netloc=host).geturl(), (unquote(name), unquote(password))


def without_logins(text: str) -> str:
    """Text without the credentials of its URLs.

    >>> without_logins("GET https://me:p@ss@mirror.example/whl?sig=ab, ok")
    'GET https://mirror.example/whl?..., ok'
    """
    hosts = re.sub(r"(?<=://)[^/\s]*@", "", text)
    return re.sub(r"(://[^\s?\"'`)]+\?)[^\s\"'`),#]+", r"\1...", hosts)


def redacted(text: str) -> str:
    """Text without passwords and tokens, and with home folders as `~`; servers keep their names.

    >>> redacted("GET https://me:secret@mirror.example/whl token=abc /home/alice/x")
    'GET https://mirror.example/whl token=<secret> ~/x'
    """
    from gpusetup.redaction.folders import hide_homes
    from gpusetup.redaction.secrets import hide_secrets

    home = str(Path.home())
    text = text.replace(home, "~") if len(home) > 1 else text
    return hide_homes(hide_secrets(without_logins(text)))
