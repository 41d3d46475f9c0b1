"""The user's package indexes, asked through uv, with the interface that choosing packages needs.

The caller passes such an object to `choose`. It can also ask on behalf of another machine.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from gpusetup.catalog.builds import index_url
from gpusetup.choose.choice import Choice
from gpusetup.choose.host import python_tag
from gpusetup.choose.index import IndexAnswer, Released, SetQuestion
from gpusetup.choose.wish import name_of
from gpusetup.errors import Unsatisfiable
from gpusetup.model.builds import FAMILY
from gpusetup.model.logins import without_logins
from gpusetup.model.machine import Snapshot
from gpusetup.uv.errors import explanation, names_not_found
from gpusetup.uv.platforms import USUAL_PYTHON, platform_of
from gpusetup.uv.question import Question, Requirements, lock_of

TITLE = "uv finds no set of versions"


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

    @property
    def places(self) -> tuple[str, ...]:
        """Sentences on where packages are looked for, without logins."""
        return (f"torch and its companions: {self.torch_root}", "all others: your uv's indexes")

    def set_beside(self, question: SetQuestion) -> IndexAnswer:
        """The releases that meet the requirements together with a torch, within the limits; or uv's
        reason why there are none."""
        names = (*FAMILY, *question.on_torch_index)
        companions = tuple(word for word in question.words if name_of(word) in names)
        requirements = Requirements(
            family=(f"torch{question.torch}", *companions),
            index=index_url(question.backend, self.root),
            others=tuple(word for word in question.words if word not in companions),
            constraints=question.limits,
        )
        try:
            locked = lock_of(self._question(requirements))
        except Unsatisfiable as problem:
            unknown = names_not_found(problem.message)
            return IndexAnswer(reason=explanation(problem.message), unknown=unknown)
        packages = {row["name"]: released(row) for row in locked.rows}
        return IndexAnswer(packages=packages, notes=locked.notes)

    def newest(self, names: tuple[str, ...]) -> Mapping[str, Released]:
        """The newest release of each package that has a wheel for the machine. If one of the
        packages has none, the result is empty."""
        requirements = Requirements(family=(), index=self.root, others=names)
        try:
            locked = lock_of(self._question(requirements), with_dependencies=False)
        except Unsatisfiable:
            return {}
        return {row["name"]: released(row) for row in locked.rows}

    def newest_source(self, name: str) -> Released | None:
        """The newest release of a package if it exists only as source code; otherwise None."""
        return None

    def _question(self, requirements: Requirements) -> Question:
        return Question(
            requirements=requirements,
            # Name gpusetup's own Python, so that uv does not start each Python on the machine to
            # get its version. Nothing is built, so any Python will do.
            python=sys.executable,
            python_version=self.python_version,
            platform=self.platform,
            environment=self.environment,
            title=TITLE,
        )


def released(row: Mapping[str, Any]) -> Released:
    """A package in uv's lock as a release, with the earliest upload date of its wheels; the date is
    None if none is stated."""
    times = []
    for wheel in row.get("wheels", ()):
        time = wheel.get("upload-time")
        if isinstance(time, datetime):
            times.append(time)
    return Released(version=row.get("version", ""), published=min(times, default=None))
