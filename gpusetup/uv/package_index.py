"""The user's package indexes, asked through uv, with the interface that choosing packages needs.

The caller passes such an object to `choose`. It can also ask on behalf of another machine.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence

from gpusetup.catalog.builds import index_url
from gpusetup.choose.choice import Choice
from gpusetup.choose.host import python_tag
from gpusetup.choose.index import IndexAnswer, SetQuestion
from gpusetup.choose.wish import name_of
from gpusetup.errors import Unsatisfiable
from gpusetup.model.builds import FAMILY
from gpusetup.model.frozen import replace
from gpusetup.model.logins import without_logins
from gpusetup.model.machine import Snapshot
from gpusetup.uv.errors import explanation, names_not_found, names_without_wheel
from gpusetup.uv.question import Question, lock_of

GLIBCS = (40, 39, 38, 37, 36, 35, 34, 33, 32, 31, 28, 17)
"""The minor versions of glibc for which uv has a platform name."""
USUAL_GLIBC, USUAL_MACOS, USUAL_PYTHON = 35, "15.0", "3.12"
"""The versions that are assumed if the machine's are unknown; for glibc, the minor one (2.35)."""


class PersonIndex:
    """The user's indexes and torch's own indexes below a root URL, asked on behalf of one
    machine."""

    def __init__(
        self,
        machine: Snapshot,
        root: str,
        before: Callable[[Choice, tuple[str, ...]], None],
    ) -> None:
        """Prepare the indexes for a machine. `before` is called before the first question. If it
        raises an error, the choice of packages ends with that error."""
        self.root, self.begin = root, before
        self.platform, self.environment = platform_of(machine)
        self.python_version = (python_tag(machine) or USUAL_PYTHON).rstrip("t")

    @property
    def torch_root(self) -> str:
        """The root of torch's own indexes, without a login."""
        return without_logins(self.root)

    def ask(self, question: SetQuestion) -> IndexAnswer:
        """The newest releases that answer the question, or uv's reason why there are none."""
        if question.torch is None:
            return self._answer(question, ())
        possible = (*FAMILY, *question.of_torch_index)
        named = [name for name in map(name_of, question.words) if name in possible]
        answer = self._answer(question, named)
        # uv takes a package from torch's index only if it is named. So ask again with the members
        # that another package brought from elsewhere, or because of which there was no answer.
        seen = {*answer.packages, *re.findall(r"[\w.-]+", answer.reason or "")}
        brought = [name for name in possible[1:] if name in seen and name not in named]
        if not brought:
            return answer
        words = (*question.words, *brought)
        again = self._answer(replace(question, words=words), (*named, *brought))
        # Without an answer in both cases, the first reason is about what was asked for.
        return answer if again.reason and answer.reason else again

    def _answer(self, question: SetQuestion, members: Sequence[str]) -> IndexAnswer:
        """uv's answer, with these packages and torch from torch's own index."""
        family = [word for word in question.words if name_of(word) in members]
        others = tuple(word for word in question.words if word not in family)
        index = self.root
        if question.torch is not None:
            family.insert(0, f"torch{question.torch}")
            index = index_url(question.backend, self.root)
        try:
            locked = lock_of(
                Question(
                    family=tuple(family),
                    index=index,
                    others=others,
                    constraints=question.limits,
                    # Name gpusetup's own Python, so that uv does not start each Python on the
                    # machine to get its version. Nothing is built, so any Python will do.
                    python=sys.executable,
                    python_version=question.python or self.python_version,
                    platform=self.platform,
                    environment=self.environment,
                ),
                with_dependencies=question.with_dependencies,
            )
        except Unsatisfiable as problem:
            sources = map(name_of, names_without_wheel(problem.message))
            return IndexAnswer(
                reason=explanation(problem.message),
                unknown=names_not_found(problem.message),
                without_wheel=tuple(dict.fromkeys(sources)),
            )
        return IndexAnswer(
            packages={name: row.get("version", "") for name, row in locked.items()},
            on_torch_index=tuple(name for name in members if name not in FAMILY),
        )


def platform_of(machine: Snapshot) -> tuple[str, dict[str, str]]:
    """uv's name for the platform, such as `x86_64-manylinux_2_35`, and the environment variables
    that complete it."""
    processor = machine.os.machine or "x86_64"
    if machine.os.family == "windows":
        return f"{processor}-pc-windows-msvc", {}
    if machine.os.family == "macos":
        release = re.match(r"\d+(\.\d+)?", machine.os.version or "")
        target = release[0] if release else USUAL_MACOS
        # uv's platform name for macOS has no version, so the version is in the variable that
        # compilers use.
        return f"{processor}-apple-darwin", {"MACOSX_DEPLOYMENT_TARGET": target}
    library = re.fullmatch(r"glibc \d{1,3}\.(\d{1,3})", machine.os.libc or "")
    minor = int(library[1]) if library else USUAL_GLIBC
    # The newest version that uv has a name for and that the machine's glibc still satisfies.
    nearest = next((known for known in GLIBCS if known <= minor), GLIBCS[-1])
    return f"{processor}-manylinux_2_{nearest}", {}
