"""The triage action: reads the event's file, decides, and says it, or what it would say.

Only ids and words of our own are printed. Exit 0 whatever was decided, 2 for settings and
events that are none, 3 where GitHub does not answer or a file cannot be written, 5 for a fault of
our own.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from triage_decide import Decision, Settings, considered, decide
from triage_github import GitHub, NoAnswer

from gpusetup.diagnosis.explanations import records


def settings_of(environ: Mapping[str, str]) -> Settings:
    """Raises ValueError for a setting that is none."""
    return Settings(
        dry_run=_switch(environ, "TRIAGE_DRY_RUN", "false"),
        ask=_switch(environ, "TRIAGE_ASK", "true"),
        label=_line(environ.get("TRIAGE_LABEL", "").strip()),
        ignore=_known(frozenset(environ.get("TRIAGE_IGNORE", "").replace(",", " ").split())),
    )


def _line(label: str) -> str:
    if not label.isprintable():
        raise ValueError("`label` is one line without control characters")
    return label


def _known(ids: frozenset[str]) -> frozenset[str]:
    """Raises ValueError for an id that no finding has: it would hold nothing back."""
    wrong = sorted(ids - {row.id for row in records()})
    if wrong:
        raise ValueError(f"`ignore` names no finding: {', '.join(w[:60] for w in wrong[:5])!r}")
    return ids


def _switch(environ: Mapping[str, str], name: str, usual: str) -> bool:
    text = environ.get(name, "").strip().lower() or usual
    if text not in ("true", "false"):
        said = name.removeprefix("TRIAGE_").lower().replace("_", "-")
        raise ValueError(f"`{said}` is true or false")
    return text == "true"


def event_of(path: str) -> Any:
    """What happened. Raises ValueError for what is no event."""
    if not path:
        raise ValueError("GITHUB_EVENT_PATH names no file: triage runs as a step of a workflow")
    try:
        raw = Path(path).read_bytes()
    except OSError as problem:
        raise ValueError(f"the event's file cannot be read: {problem.strerror}") from problem
    try:
        event = json.loads(raw)
    except (ValueError, RecursionError) as problem:
        raise ValueError("the event's file holds no JSON that can be read") from problem
    if not isinstance(event, dict):
        raise ValueError("the event's file holds no event")
    if wrong := next(unlike(event), None):
        raise ValueError(f"the event's file is none of GitHub's: {wrong}")
    return event


TYPES: dict[type, str] = {
    dict: "sender issue comment issue.user issue.pull_request comment.user",
    int: "issue.user.id comment.id comment.user.id",
    str: "action issue.title issue.body issue.state issue.author_association comment.body",
}
"""What GitHub documents of an event; each may be missing or null."""
KINDS = {str: "a text", int: "a whole number", dict: "an object"}


def unlike(event: Mapping[str, Any]) -> Iterator[str]:
    """What in an event has another type than GitHub gives it.

    >>> list(unlike({"issue": {"number": 1, "title": [], "body": None}}))
    ['`issue.title` is not a text']
    >>> list(unlike({"issue": {"number": "1"}}))
    ['`issue.number` is not a whole number from 1']
    """
    places = ((place, kind) for kind, names in TYPES.items() for place in names.split())
    for place, kind in places:
        if (value := at(event, place)) is not None and type(value) is not kind:
            yield f"`{place}` is not {KINDS[kind]}"
            return
    number = at(event, "issue.number")
    if event.get("issue") is not None and (type(number) is not int or number < 1):
        yield "`issue.number` is not a whole number from 1"


def at(event: Any, place: str) -> Any:
    """What stands at a place; None where nothing does."""
    for name in place.split("."):
        event = event.get(name) if isinstance(event, dict) else None
    return event


def run(environ: Mapping[str, str]) -> Decision:
    """One event: what was decided, and done unless it is a dry run."""
    settings = settings_of(environ)
    event = event_of(environ.get("GITHUB_EVENT_PATH", ""))
    name = environ.get("GITHUB_EVENT_NAME", "")
    if why := considered(name, event):
        return Decision(act="silent", why=why)
    hub = GitHub(
        environ.get("GITHUB_API_URL", "https://api.github.com"),
        environ.get("GITHUB_REPOSITORY", ""),
        event["issue"]["number"],
        environ.get("GITHUB_TOKEN", ""),
    )
    decision = decide(name, event, hub.comments(), settings)
    if decision.body and not settings.dry_run:
        hub.comment(decision.body)
        if decision.label:
            hub.label(decision.label)
    return decision


def summary(decision: Decision, *, dry_run: bool) -> str:
    """The job's summary, in Markdown."""
    lines = [f"### gpusetup triage: {decision.act}", "", f"{decision.why}."]
    if decision.body:
        said = "Would say" if dry_run else "Said"
        lines += ["", f"{said}:", "", *(f"> {line}" for line in decision.body.splitlines())]
    if decision.label:
        lines += ["", f"Label: `{decision.label}`"]
    return "\n".join(lines) + "\n"


def outputs(decision: Decision) -> Iterator[str]:
    yield f"decision={decision.act}\n"
    yield f"finding={decision.finding or ''}\n"


def append(path: str | None, text: str) -> None:
    if path:
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(text)


def main(environ: Mapping[str, str] = os.environ) -> int:
    try:
        decision = run(environ)
        _tell(decision, environ)
    except Exception as problem:
        said, code = _ending(problem)
        print(f"::error::gpusetup triage: {said}")
        return code
    return 0


def _tell(decision: Decision, environ: Mapping[str, str]) -> None:
    dry_run = settings_of(environ).dry_run
    append(environ.get("GITHUB_OUTPUT"), "".join(outputs(decision)))
    append(environ.get("GITHUB_STEP_SUMMARY"), summary(decision, dry_run=dry_run))
    print(f"{decision.act}{' (dry run)' if dry_run else ''}: {decision.why}")


def _ending(problem: Exception) -> tuple[str, int]:
    """What is said, in words of our own (a stranger wrote the event), and the exit code."""
    if type(problem) is ValueError:
        return str(problem), 2
    if isinstance(problem, NoAnswer):
        return str(problem), 3
    if isinstance(problem, OSError):
        return f"the job's files cannot be written: {problem.strerror}", 3
    return f"gpusetup itself failed ({type(problem).__name__}): please report it", 5


if __name__ == "__main__":
    sys.exit(main())
