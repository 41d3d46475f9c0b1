"""User names and passwords in URLs: split off where they are needed, and removed from everything
that is shown or stored."""

from __future__ import annotations

import re
from urllib.parse import unquote, urlsplit


def split_login(url: str) -> tuple[str, tuple[str, str] | None]:
    """The URL without its login, and the decoded (user name, password), or None if it has no login.

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
    """The text with logins and query strings removed from its URLs.

    >>> without_logins("GET https://me:p@ss@mirror.example/whl?sig=ab, ok")
    'GET https://mirror.example/whl?..., ok'
    """
    hosts = re.sub(r"(?<=://)[^/\s]*@", "", text)
    return re.sub(r"(://[^\s?\"'`)]+\?)[^\s\"'`),#]+", r"\1...", hosts)
