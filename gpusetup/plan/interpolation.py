"""Resolves references in config values: OmegaConf's `${...}` and the shell's variables.

OmegaConf 2.3 has references (`${model.path}`, `${.path}` in the same map, `${..path}` one map
higher) and resolvers: `oc.env` (an environment variable with an optional default) and `oc.decode`
(parses a text as a value). Hydra's old `env:NAME` and the shell's `${NAME:-default}` also mean a
variable. Other resolvers may be code of the user's project, which we never run.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from gpusetup.configs.settings import EMPTY, Path

MOST_PARTS = 200
"""The limit on `${...}` parts in one value. Without it, a config that refers to itself would never
end, and a chain of values that each name the next one twice would grow exponentially."""
MOST_LETTERS = 10_000
INNERMOST = re.compile(r"\$\{([^${}]*)\}")
"""An expression that contains no other one, so that nested ones are resolved from the inside."""
VARIABLE = re.compile(r"(?:oc\.env|env):\s*([^,\s]+)\s*(?:,(.*))?|([A-Za-z_]\w*):-(.*)", re.DOTALL)
"""A variable with its default, as OmegaConf and Hydra write it or as the shell does."""


class Interpolation:
    """Resolves references in the values of one config, and records the environment variables that
    they use."""

    def __init__(self, text_at: Callable[[Path], str | None], variables: Mapping[str, str]) -> None:
        """`text_at` returns the scalar at a path of the config as written, or None; `variables` are
        the environment variables."""
        self.text_at = text_at
        self.variables = variables
        self.asked: list[str] = []
        """What was read for each variable, as part of a sentence."""

    def resolve(self, text: str, path: Path) -> str | None:
        """The text with every `${...}` replaced by its value; None if one of them cannot be
        resolved. `path` is the path of the text's key, which relative references start from.

        >>> values = Interpolation(lambda path: None, {"FACTOR": "2.0"})
        >>> values.resolve("${oc.decode:${oc.env:FACTOR}}", ("factor",))
        '2.0'
        >>> values.resolve("${oc.env:OWNER,Qwen}/${oc.env:NAME,Qwen3-8B}", ("model",))
        'Qwen/Qwen3-8B'
        """
        for _ in range(MOST_PARTS):
            expression = INNERMOST.search(text)
            if expression is None:
                return None if "${" in text else text
            value = self._value(expression[1].strip(), path)
            text = f"{text[: expression.start()]}{value}{text[expression.end() :]}"
            if value is None or len(text) > MOST_LETTERS:
                return None
        return None

    def _value(self, body: str, path: Path) -> str | None:
        """The value of the expression between `${` and `}`, which may contain references again;
        None if there is none."""
        if hit := VARIABLE.fullmatch(body):
            name, default = bare(hit[1] or hit[3]) or "", bare(hit[2] or hit[4])
            value = self.variables.get(name) or default
            is_set = "set" if self.variables.get(name) else "not set"
            nothing = "nothing was read, and OmegaConf stops there: export the variable"
            read = f"{value} was read" if value else nothing
            self.asked.append(f"the variable {name}, which is {is_set}: {read}")
            return value
        resolver, colon, argument = body.partition(":")
        if not colon:
            return bare(self.text_at(path_of_reference(body, path)))
        return bare(argument) if resolver == "oc.decode" else None


def path_of_reference(body: str, path: Path) -> Path:
    """The absolute path of the key that a reference names; leading dots make the reference relative
    to `path`.

    >>> path_of_reference("model.layers[0]", ("a",)), path_of_reference(".name", ("model", "path"))
    (('model', 'layers', 0), ('model', 'name'))
    """
    names = re.findall(r"[^.\[\]\s]+", body)
    # Python refuses to convert thousands of digits.
    target: Path = tuple(int(n) if re.fullmatch(r"\d{1,9}", n) else n for n in names)
    dots = len(body) - len(body.lstrip("."))
    # One dot means the map that contains the key; each further dot goes one map higher.
    return path[: max(len(path) - dots, 0)] + target if dots else target


def bare(text: str | None) -> str | None:
    """A scalar without its quotes; None if it is empty or null (`null`, `~`)."""
    value = (text or "").strip().strip("'\"")
    return None if value in EMPTY else value
