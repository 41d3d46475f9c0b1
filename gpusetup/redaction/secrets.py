"""Hides secrets, which it recognizes by their form or by the word before them.

There are three kinds of patterns: the forms of tokens (from the issuers' documentation and secret
scanners' public rules, as of 2026-11), values after a word such as "token", and finally every long
word that looks random. The patterns do not limit the length of a token, because issuers may change
it.
"""

from __future__ import annotations

import re
from itertools import pairwise

from gpusetup.model.logins import without_broken_logins
from gpusetup.redaction.rules import Match, Rule, apply, compiled

SECRET = "<secret>"

ISSUERS = (
    r"gh[opsur]_[\w]{8,}|github_pat_\w{8,}",  # GitHub
    r"(?:gl(?:pat|dt|ft|soat|rt|cbt|imt|ptt|agent|oas|ffct)-|GR1348941)[\w.-]{8,}",  # GitLab
    r"(?:hf|api_org)_[A-Za-z0-9]{8,}",  # Hugging Face
    r"sk-[\w-]{8,}",  # OpenAI, Anthropic, OpenRouter, DeepSeek
    r"(?:sk|rk|pk|whsec)_(?:(?:live|test|prod)_)?[A-Za-z0-9+/=]{10,}",  # Stripe, Clerk, Paystack
    r"SG\.[\w-]{6,}\.[\w-]{6,}",  # SendGrid
    r"xox[a-z](?:\.xox[a-z])?-[\w-]{8,}|xapp-[\w-]{8,}",  # Slack
    r"dckr_(?:pat|oat)_[\w-]{8,}",  # Docker Hub
    r"npm_[A-Za-z0-9]{8,}",  # npm
    r"pypi-[\w-]{12,}",  # PyPI
    r"(?:A3T[A-Z0-9]|ABIA|ACCA|AGPA|AIDA|AIPA|AKIA|ANPA|ANVA|AROA|ASCA|ASIA)[A-Z0-9]{8,}",  # AWS
    r"AIza[\w-]{8,}|ya29\.[\w.-]{8,}|GOCSPX-[\w-]{8,}|1//0[\w-]{20,}",  # Google
    r"[\w~.-]{3}\d?8?Q~[\w~.-]{20,}",  # Azure
    r"do[opr]_v1_\w{8,}",  # DigitalOcean
    r"dapi[0-9a-f]{8,}(?:-\d)?",  # Databricks
    r"hv[sbr]\.[\w-]{8,}|\w{14}\.atlasv1\.[\w=-]{8,}",  # HashiCorp
    r"wandb_v\d_[\w-]{8,}",  # Weights & Biases
    r"r8_\w{8,}|gsk_\w{8,}|xai-\w{8,}|pplx-\w{8,}",  # Replicate, Groq, xAI, Perplexity
    r"shp(?:at|ca|pa|ss)_\w{8,}|sq0[a-z]{3}-[\w-]{8,}",  # Shopify, Square
    r"gl(?:c|sa)_\w{8,}|NR(?:AK|JS|II)-\w{8,}",  # Grafana, New Relic, Datadog
    r"\d{8,10}:[\w-]{30,}|[MNO][\w-]{22,27}\.[\w-]{6}\.[\w-]{25,}",  # Telegram, Discord
    r"tskey-[\w-]{8,}|fo1_\w{8,}|FlyV1 \S{8,}|vc[pkira]_\w{8,}",  # Tailscale, Fly, Vercel
    r"lin_(?:api|oauth)_\w{8,}|ntn_\w{8,}|fig[dou]r?_[\w-]{8,}",  # Linear, Notion, Figma
    r"AKC[A-Za-z0-9]{20,}|cmVmd[A-Za-z0-9]{20,}",  # Cloudflare, Artifactory
    r"(?:AC|SK)[0-9a-f]{32}|key-[0-9a-f]{32}|[0-9a-f]{32}-us\d{1,2}",  # Twilio, Mailgun, Mailchimp
    r"AGE-SECRET-KEY-\w{8,}|pul-\w{8,}|sntr[yu]s?_[\w+/=-]{8,}",  # Age, Ansible, Pulumi, Sentry
    r"nvapi-[\w-]{8,}",  # NVIDIA NGC
    r"eyJ[\w-]{6,}(?:\.[\w=-]*){0,4}",  # JSON Web Token
    r"\$(?:1|2[aby]|5|6|y|argon2id?)\$[\w./$,=+-]{8,}",  # password hashes
    r"SHA256:[\w+/=]{20,}|(?:MD5:)?(?:[0-9a-f]{2}:){15}[0-9a-f]{2}",  # SSH fingerprints
)
"""The forms of tokens, by issuer."""

_STRONG = (
    r"(?:"
    r"password|passwd|passphrase|passcode|pwd|secrets?|token|credentials?"
    # Keys: `api_key`, `secret-key`, `access_key_id`.
    r"|api[_-]?key|access[_-]?key(?:[_-]?id)?"
    r"|account[_-]?key|private[_-]?key|encryption[_-]?key|secret[_-]?key|signing[_-]?key|license[_-]?key"
    # The word "password" in other languages: Swedish, German, French, Spanish, Portuguese, Dutch,
    # Russian, Chinese, Japanese, Korean.
    r"|passwor[dt]|kennwort|mot de passe|contrase\u00f1a|senha|wachtwoord|\u043f\u0430\u0440\u043e\u043b\u044c|\u5bc6\u7801|\u30d1\u30b9\u30ef\u30fc\u30c9|\ube44\ubc00\ubc88\ud638"
    # Serial numbers, other numbers that identify a machine, and session ids.
    r"|service[ _-]?tag|asset[ _-]?tag|s/n|shared[_-]?access[_-]?(?:key|signature)|session[_-]?id|serial(?:[ _-]?(?:number|no))?"
    r")"
)
"""Words that announce a secret, even in the middle of a name: `PGPASSWORD`, `_authToken`."""
_WEAK = r"(?:sn|pass|pw|pin|auth|authorization|cookie|signature|sig|sessid|webhook|dsn)"
"""Words that announce a secret but also occur inside other words. They count only as whole words:
`DB_PASS`."""
_WORDS = rf"(?:{_STRONG}|{_WEAK})"
_QUOTED = r"\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*'"
_NO_VALUE = (
    r"(?!"
    # Words that stand in place of a value: `token: None`, `password (missing)`, `api_key=unset`.
    r"(?:\(?(?:None|null|nil|unset|empty|not set|str|bool|int|True|False|yes|no|N/A|missing|required|invalid|expired|Disabled|Enabled)\)?)(?![\w-])"
    r"|''|\"\"|\[N/A)"
)
"""Words that say that there is no value. They are kept, because a missing value is often the cause
of an error."""
_VALUE = rf"{_NO_VALUE}(?:{_QUOTED}|[^\s\"',;&<>]+)"
_KEY = (
    r"(?:"
    # A name that contains one of the strong words: `WANDB_API_KEY`, `hf.token.value`.
    rf"(?<![\w.-])[\w.-]{{0,60}}?{_STRONG}(?:[._-](?:value|text|data|key|id))?"
    # A name that ends with one of the weak words: `db_pass`, `smtp.auth`.
    rf"|(?<![A-Za-z0-9])(?:[A-Za-z0-9]{{1,30}}[_.-]){{0,4}}{_WEAK})"
)
"""Matches the name of a setting whose value is a secret."""
_LOGS_IN = r"\b(?:curl|wget|docker|podman|skopeo|buildah|mysql|smbclient|http|svn)\b[^\n]*"
"""Matches a command that may contain a login as an option, up to the end of the line."""
_LOGIN = r"(?<=\s)(-(?:u|U|p|-user|-password)(?:=|\s+|(?=\w)))(?![-<])\S+"
"""Matches an option with a login: `-u me:secret`, `--password=x`, `-psecret`."""

_DIGIT_OR_CAPITAL = r"[0-9A-Z]"
"""Every issuer's token contains a digit or capital; `hf_transfer` and `sk-learn-contrib` are
packages."""

_WORD = r"[A-Za-z0-9+/=_.~-]{16,}"
"""A word of the characters in base64 and paths. A shorter word cannot be distinguished from a name.
"""
_PIECE = r"[A-Za-z0-9]{16,}"
_MANGLED = r"_*Z[A-Z]"
"""The beginning of a mangled C++ function name: `_ZN3c10`."""
_NOT_RANDOM = (
    # The build string of a conda package: `cuda124py311h5aa0d8f`.
    r"(?:(?:cuda|cpu|gpu|mkl|generic|np|cu)\d*)*py\d+\w*"
    # A hexadecimal address or hash, which the rule for `<hex>` handles.
    r"|0x[0-9a-fA-F]+|[0-9a-f]{32,}"
)
MIN_CHANGES = 6
"""In a random word, the class of characters (digit, upper case, lower case) changes at least this
often."""
MIN_CHANGES_OF_DIGITS = 3
"""At least this many of the changes must be to or from a digit. `NvidiaGeForceRtx4090` is not
random, because most of its changes are between upper and lower case."""


def _hide_random_words(word: Match) -> str:
    """The word with its random-looking parts replaced. Each part of a path is judged separately.

    base64 and paths look similar, because both contain slashes.
    """
    if re.match(_MANGLED, word[0]):
        return word[0]
    parts = []
    for part in word[0].split("/"):
        pieces = re.findall(_PIECE, part)
        is_random = any(looks_random(piece) for piece in pieces)
        parts.append(SECRET if is_random else part)
    return "/".join(parts)


def looks_random(piece: str) -> bool:
    """Whether digits, upper-case and lower-case letters alternate more often in a word than in real
    words.

    >>> looks_random("q7Rt2mXa9LpZ4kVe8s"), looks_random("NvidiaGeForceRtx4090"), looks_random("cuda124py311h5aa0d8f")
    (True, False, False)
    """
    if re.fullmatch(_NOT_RANDOM, piece):
        return False
    changes = 0
    changes_of_digits = 0
    for kind, next_kind in pairwise(map(_letter_kind, piece)):
        if kind != next_kind:
            changes += 1
            if "digit" in (kind, next_kind):
                changes_of_digits += 1
    return changes >= MIN_CHANGES and changes_of_digits >= MIN_CHANGES_OF_DIGITS


def _letter_kind(letter: str) -> str:
    if letter.isdigit():
        return "digit"
    return "upper" if letter.isupper() else "lower"


def _hide_login(line: Match) -> str:
    """Hides the login in the options of a command line."""
    return compiled(_LOGIN).sub(r"\1<secret>", line[0])


def _hide_prompt_answer(prompt: Match) -> str:
    """Hides the person and the answer after a password prompt: `Password for <private>:
    <secret>`."""
    label, person, colon = prompt.groups()
    if person:
        person = "<private>"
    return f"{label}{person}{colon}{SECRET}"


def _hide_token(token: Match) -> str:
    """`<secret>` for an issuer's token; the name of a package that begins like a token is kept."""
    pattern = compiled(_DIGIT_OR_CAPITAL)
    if pattern.search(token[0]):
        return SECRET
    return token[0]


SECRETS: tuple[Rule, ...] = (
    # A login as an option: `curl -u me:sesame https://...`.
    (_LOGS_IN, _hide_login),
    # A public SSH key with its comment: `ssh-ed25519 AAAA... me@laptop`.
    (r"\b(?:ssh-\w+|ecdsa-[\w-]+|sk-(?:ssh|ecdsa)[\w@.-]+)\s+AAAA[\w+/=]+[^\n\"']*", SECRET),
    # A header: `Authorization: Bearer ...`, `Set-Cookie: ...`.
    (r"(?i)\b(authorization|cookie|set-cookie)(\s*:\s*)(?![\s<])[^\r\n\"']+", r"\1\2<secret>"),
    # The value of such a header without its name: `bearer eyJ...`, `basic dXNlcjpwYXNz`.
    (r"(?i)\b(bearer|basic|negotiate|digest)\s+(?=[\w.~+/=-]*[\d=/+._-])[\w.~+/=-]{8,}", r"\1 <secret>"),
    # An option: `--hf-token x`, `--password x`.
    (rf"(?i)(?<![\w-])(--?(?:[a-z]{{1,30}}[-_]){{0,4}}{_WORDS})(\s+)(?![-<|&]){_VALUE}", r"\1\2<secret>"),
    # A line of .netrc: `machine host login me password x`.
    (rf"(?i)(\bmachine\s+)\S+(\s+login\s+)\S+((?:\s+account\s+\S+)?\s+password\s+){_VALUE}", r"\1<host>\2<private>\3<secret>"),
    # A prompt and its answer: `Password for jane: x`.
    (rf"(?i)(\bpass(?:phrase|word)(?: for )?)((?<= for )[^\s:]{{1,80}}|)(\s*:\s*)(?!<){_NO_VALUE}[^\s\"',;&<>][^\n\"'<>]*", _hide_prompt_answer),
    # A setting: `WANDB_API_KEY=x`, `"token": "x"`, `secret => x`.
    (rf"(?i)({_KEY}[\"']?\s*(?:=>|[=:]|<<\w+)\s*)(?!<|[\"']<secret>){_VALUE}", r"\1<secret>"),
    # An XML element: `<apiKey>x`.
    (rf"(?i)(<(?!secret>)(?:[\w-]{{0,40}}?{_STRONG})>)\s*{_NO_VALUE}[^<\s][^<]*", r"\1<secret>"),
    # A serial number: `Serial Number : 1563221039442`.
    (r"(?i)(\b(?:[a-z]+_)?(?:serial|s/n|sn)(?:[ _-]?(?:number|no\.?))?[ :#]+)(?!<)(?=[\w-]*\d)[A-Z0-9][\w-]{5,}", r"\1<secret>"),
    (r"(\bsshpass\s+-p\s*)(?!<)\S+", r"\1<secret>"),
    # A password that is piped to sudo: `echo x | sudo -S`.
    (r"(\becho\s+)(?!<)\S+(\s*\|\s*sudo\s+-S)", r"\1<secret>\2"),
    # The account in an AWS resource name: `arn:aws:iam::123456789012:role`.
    (r"\b(arn:aws[\w-]*:[\w-]*:[\w-]*:)\d{12}(?=:)", r"\1<secret>"),
    # A licence key: `ABCD1-EFGH2-IJKL3-MNOP4`.
    (r"\b(?=[A-Z0-9-]*\d)(?=[A-Z0-9-]*[A-Z])(?:[A-Z0-9]{5}-){3,}[A-Z0-9]{4,5}\b", SECRET),
    # A sentence: `the password is x`.
    (rf"(?i)(\b(?:password|passphrase|passwd|api key|secret key|access token)\s+(?:is|was|=)\s+)(?!<){_VALUE}", r"\1<secret>"),
    (r"(?<![A-Za-z0-9_-])(?:" + "|".join(ISSUERS) + ")", _hide_token),
    # A long hexadecimal number, unless it is the hash of a file or commit.
    (r"(?<!sha256[:=])(?<!sha256 )(?<!sha256 is )(?<!Got {8})(?<!commit )(?<!/store/)(?<!#sha256=)\b(?!0x)[0-9a-fA-F]{20,}\b", "<hex>"),
    (_WORD, _hide_random_words),
)  # fmt: skip
"""The rules for secrets, which run in this order. The comment above each rule shows a text that it
changes. Secrets after a word that announces them come first, and words that only look random come
last."""


_BLOCK = r"(?s)-----BEGIN [A-Z0-9 ]{1,60}-----.*?(?:-----END [A-Z0-9 ]{1,60}-----|\Z)"
"""A PEM key or certificate; its end may be cut off."""


def hide_keys(text: str) -> str:
    """The text without keys and certificates, which span several lines."""
    # Most texts contain no key, and the pattern is slow.
    if "-----BEGIN " not in text:
        return text
    return re.sub(_BLOCK, SECRET, text)


_LOGIN_OF_URL = (
    # A login after the colon of a scheme: `//me:sesame@`.
    r"(?<=:/)(/{0,2})[^/\s\"'<>]{0,300}@"
    # A login in a URL without slashes, or without a URL: `ftp:me:sesame@host`, `me:sesame@host`.
    r"|(?<![\w@/])([A-Za-z]{3,6}:)?[\w.+-]{1,64}:[^\s@/\"'<>]{1,128}@(?=[\w\[])"
)


def hide_logins(text: str) -> str:
    """The text with user names and passwords removed from its URLs.

    >>> hide_logins("`--index ftp://me:p@ss@mirror.example/whl` is not an http or https URL")
    '`--index ftp://mirror.example/whl` is not an http or https URL'
    >>> hide_logins("cannot read http://me:p/ss@mirror.example/whl")
    'cannot read http://mirror.example/whl'
    """
    return re.sub(_LOGIN_OF_URL, _before_login, without_broken_logins(text))


def _before_login(login: Match) -> str:
    """The slashes or the scheme before a login; these are kept."""
    slashes, scheme = login.groups()
    # At most one of the two groups matches; none does if the login is not in a URL.
    return slashes or scheme or ""


def hide_secrets(text: str) -> str:
    """The text without secrets, which are recognized by their form or by the word before them.

    >>> hide_secrets("key q7Rt2mXa9LpZ4kVe8s of torch-2.5.1-cp311-manylinux_2_28_x86_64")
    'key <secret> of torch-2.5.1-cp311-manylinux_2_28_x86_64'
    >>> hide_secrets("undefined symbol: _ZN3c104cuda29c10_cuda_check_implementationEiPKcS2_jb")
    'undefined symbol: _ZN3c104cuda29c10_cuda_check_implementationEiPKcS2_jb'
    """
    return apply(SECRETS, text)
