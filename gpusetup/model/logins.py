"""User names and passwords in URLs: splits them off where they are needed, and removes them from
everything that is shown or stored.

A password may contain a character that should have been encoded, such as `/`, `?`, `#`, `@` or a
space, which makes the URL invalid. So everything up to the last `@` before a host is taken as the
login.
"""

from __future__ import annotations

import re
from urllib.parse import unquote

END_OF_HOST = r"(?=[/?#\s\"'`),;]|$)"
"""Matches what may follow a host."""
IPV6_ADDRESS = r"\[[\da-fA-F:.]+\]"
ANY_HOST = rf"(?:{IPV6_ADDRESS}|[\w.-]+)(?::\d+)?{END_OF_HOST}"
VALID_LOGIN = re.compile(r"(?<=://)[^/\s]*@")
"""Matches `me:password@`, the usual form."""
INVALID_LOGIN = re.compile(
    # `me:` without a port after it, so that `me` is not a host
    rf"(?<=://)[^\s/?#@:\[]*:(?!\d+{END_OF_HOST})"
    # the part before the first character that a login should not contain, then everything up to the
    # last `@`
    r"[^\s/?#@]*[/?#\s](?:(?!://)[^\n])*"
    rf"@(?={ANY_HOST})"
)
"""Matches `me:pass/word@`, whose beginning cannot be a host with a port."""
LOGIN_LIKE_A_HOST = re.compile(
    # `me:12` of `me:12/word@mirror.example/whl`, or the end of a password that contained an `@`,
    # `y` of `y/word@mirror.example/whl`
    rf"(?<=://)[^\s/?#@:\[]+(?::\d+)?[/?#][^\s\"'`]{{0,200}}?(?<!\.git)@"
    # a host, and not the branch of a repository (`host:8443/x.git@v1.0`) or a scope (`:443/@org/x`)
    rf"(?={IPV6_ADDRESS}|localhost\b|(?:[\w-]+\.)+[A-Za-z]{{2,}}(?::\d+)?{END_OF_HOST}"
    r"|[\w.-]+:\d+/)(?<!/@)"
)
"""Matches a login whose beginning looks like a host. It is hidden but not split off, because the
URL may also be meant as it is written."""
QUERY = re.compile(r"(://[^\s?\"'`)]+\?)[^\s\"'`),#]+")
"""Matches a URL up to its query string, `https://mirror.example/whl?` of `…?sig=ab`, and the query
string itself, which may be a signature."""


def split_login(url: str) -> tuple[str, tuple[str, str] | None]:
    """The URL without its login, and the decoded (user name, password), or None if it has no login.

    >>> split_login("https://me:s%40me@i.example:8443/simple")
    ('https://i.example:8443/simple', ('me', 's@me'))
    >>> split_login("https://me:s/me@i.example/simple")
    ('https://i.example/simple', ('me', 's/me'))
    """
    # urlsplit would take a `[` in a password for the beginning of an address.
    login = INVALID_LOGIN.search(url) or VALID_LOGIN.search(url)
    # `https://@host` has an empty login.
    if login is None or login[0] == "@":
        return url, None
    plain_url = url[: login.start()] + url[login.end() :]
    name, _, password = login[0].removesuffix("@").partition(":")
    return plain_url, (unquote(name), unquote(password))


def without_logins(text: str) -> str:
    """The text with logins and query strings removed from its URLs.

    >>> without_logins("GET https://me:p@ss@mirror.example/whl?sig=ab, ok")
    'GET https://mirror.example/whl?..., ok'
    >>> without_logins("GET https://me:p/ss@mirror.example/whl, ok")
    'GET https://mirror.example/whl, ok'
    """
    text = VALID_LOGIN.sub("", without_broken_logins(text))
    # Of `me:x@y/word@host`, `me:x@` is gone by now, and `y` looks like a host.
    text = LOGIN_LIKE_A_HOST.sub("", text)
    return QUERY.sub(r"\1...", text)


def without_broken_logins(text: str) -> str:
    """The text without logins that contain a character which is invalid in a URL's login.

    >>> without_broken_logins("GET ftp://me:p/ss@mirror.example/whl, ok")
    'GET ftp://mirror.example/whl, ok'
    >>> without_broken_logins("http://me:12/34@i.example/whl http://i.example:80/x.git@v1.0")
    'http://i.example/whl http://i.example:80/x.git@v1.0'
    """
    return LOGIN_LIKE_A_HOST.sub("", INVALID_LOGIN.sub("", text))
