"""Downloads a model's `config.json` from the Hugging Face hub for `plan --fetch-config`; plan uses
the network for nothing else.

The file is not saved. Private and gated models need a login, which this download does not use.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from gpusetup.errors import ToolFailed, UsageError
from gpusetup.model.codec import from_json
from gpusetup.model.frozen import replace
from gpusetup.plan.config_json import shape_of
from gpusetup.plan.models import LARGEST_CONFIG_BYTES
from gpusetup.plan.shape import Shape

HUB = "https://huggingface.co"
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}")
SECONDS = 20
"""The timeout for the hub; a config has only a few kilobytes."""
NOT_WITHOUT_LOGIN = (401, 403)


def config_url(model: str) -> str:
    """The URL of a model's `config.json`, on the hub or on the mirror in HF_ENDPOINT.

    >>> config_url("Qwen/Qwen3-8B").endswith("/Qwen/Qwen3-8B/resolve/main/config.json")
    True
    """
    endpoint = (os.environ.get("HF_ENDPOINT") or HUB).rstrip("/")
    if urlsplit(endpoint).scheme not in ("http", "https"):
        raise UsageError(f"HF_ENDPOINT is {endpoint!r}: an address with http or https is needed")
    return f"{endpoint}/{model}/resolve/main/config.json"


def fetched_shape(model: str, say: Callable[[str], None]) -> Shape:
    """The shape of a model, from the `config.json` on its hub. `say` is called with the URL before
    the download.

    Raises UsageError if the name is not a hub id, and ToolFailed if the hub has no such config.
    """
    if not HUB_ID.fullmatch(model):
        raise UsageError(
            f"`--fetch-config` needs the model's id at its hub; {model!r} is none",
            hint="an id has an owner and a name: `--model Qwen/Qwen3-8B --fetch-config`",
        )
    url = config_url(model)
    say(f"network: reading {url}")
    by_hand = f"`hf download {model} config.json --local-dir .`, then `--model ./config.json`"
    try:
        with urlopen(Request(url, headers={"User-Agent": "gpusetup"}), timeout=SECONDS) as answer:
            raw = answer.read(LARGEST_CONFIG_BYTES + 1)
    except HTTPError as problem:
        reason = f"the hub answers {problem.code}"
        if problem.code in NOT_WITHOUT_LOGIN:
            reason = "the model is private or gated, or its name is wrong"
        raise ToolFailed(f"No config.json of {model}: {reason}", hint=by_hand) from problem
    except (OSError, ValueError) as problem:
        message = f"No config.json of {model}: {problem}"
        raise ToolFailed(message, hint=by_hand) from problem
    if len(raw) > LARGEST_CONFIG_BYTES:
        raise ToolFailed(f"The config.json of {model} is too large to be one", hint=by_hand)
    shape = shape_of(from_json(raw, dict[str, Any], what=url), source=url)
    return replace(shape, name=model.rpartition("/")[2])
