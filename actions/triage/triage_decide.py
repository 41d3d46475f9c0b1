"""What is said about an issue: an answer once, when it is certain; a question once; else nothing.

Pure: an event as GitHub sends it, the comments that stand there, and settings give a `Decision`.
Titles and texts are somebody's words: they are read as a report is, and quoted escaped.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from triage_own import is_output, is_own, starts_of, words_of

from gpusetup.catalog.file import load_catalog
from gpusetup.diagnosis.diagnose import diagnose
from gpusetup.model.documents import DoctorAnswer
from gpusetup.model.finding import Finding, Severity
from gpusetup.model.hidden_marks import without_hidden_marks
from gpusetup.model.machine import Snapshot
from gpusetup.redaction import redact
from gpusetup.render.doctor import doctor_screen
from gpusetup.report.read import read_bytes

EVENTS = {"issues": ("opened", "edited"), "issue_comment": ("created", "edited")}
MARK = re.compile(r"<!-- gpusetup:(answered|asked):([a-z0-9-]+) -->\s*\Z")
OWN_PEOPLE = ("OWNER", "MEMBER", "COLLABORATOR")
"""Whose issues are plans and notices."""
OUTPUT = re.compile(
    r"(?m)^[ \t]*(```|~~~|Traceback \(most recent call last\)|File \".+\", line \d"
    r"|[|+][ =-].*[|+]$)"
)
"""What a program's output looks like: a block of code, a traceback, a table."""
SEPARATOR = "\n\n========\n\n"
"""Between what was written apart: a title is no beginning of the first line."""
MOST_LETTERS = 400_000
"""Of an issue and its author's comments together; GitHub allows 65536 in each."""


class Settings(NamedTuple):
    """What the workflow asks for."""

    dry_run: bool = False
    ask: bool = True
    label: str = ""
    """With `{id}` for the finding's; empty: no label."""
    ignore: frozenset[str] = frozenset()
    """Findings about which nothing is said."""


class Decision(NamedTuple):
    """What is done, and why."""

    act: Literal["answer", "ask", "silent"]
    why: str
    finding: str | None = None
    body: str | None = None
    label: str | None = None


# --- whose words, and whether they are ours to answer ---------------------------------------------


def considered(name: str, event: Mapping[str, Any]) -> str | None:
    """Why an event is none of ours; None where it is."""
    issue, comment = event.get("issue") or {}, event.get("comment")
    if event.get("action") not in EVENTS.get(name, ()):
        return "another event than a new or edited issue or comment"
    if not issue:
        return "no issue stands in the event"
    if issue.get("pull_request") is not None:
        return "a pull request"
    if issue.get("state") == "closed" or issue.get("locked"):
        return "the issue is closed or locked"
    if any(is_bot(one) for one in (event.get("sender"), issue.get("user"))):
        return "a bot wrote it"
    if issue.get("author_association") in OWN_PEOPLE:
        return "one of the project's own people wrote it"
    if comment is not None and (author(issue) is None or author(comment) != author(issue)):
        return "a comment of somebody else than the issue's author, whose machine is another"
    return None


def is_bot(user: object) -> bool:
    return isinstance(user, dict) and user.get("type") == "Bot"


def author(thing: Mapping[str, Any]) -> Any:
    """The number of who wrote it: names can change."""
    user = thing.get("user")
    return user.get("id") if isinstance(user, dict) else None


def former(comments: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """What was said here before: `answered` or `asked`, with the finding. A person may have copied
    the mark: only a bot's counts."""
    marks = (MARK.search(str(one.get("body") or "")) for one in comments if is_bot(one.get("user")))
    return {mark[1]: mark[2] for mark in marks if mark}


def texts(event: Mapping[str, Any], comments: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """The author's own words: title, issue and comments; an edited comment as it is now."""
    issue, edited = event["issue"], event.get("comment") or {}
    yield str(issue.get("title") or "")
    yield own_words(issue.get("body"))
    writer = author(issue)
    mine = [one for one in comments if writer is not None and author(one) == writer]
    yield from (own_words(one.get("body")) for one in mine if one.get("id") != edited.get("id"))
    yield own_words(edited.get("body"))


def own_words(body: object) -> str:
    """Without what a form hides in comments, and without quoted replies: others wrote those.

    >>> own_words("> did you reboot?\\r\\nyes<!-- paste\\nnvidia-smi -->, twice")
    'yes, twice'
    """
    text = re.sub(r"<!--.*?(-->|\Z)", "", str(body or "").replace("\r\n", "\n"), flags=re.DOTALL)
    return "\n".join(line for line in text.split("\n") if not re.match(r"\s{0,3}>(?!>> )", line))


# --- what is said ---------------------------------------------------------------------------------


def decide(
    name: str,
    event: Mapping[str, Any],
    comments: Sequence[Mapping[str, Any]],
    settings: Settings,
) -> Decision:
    """What to say about an event; `comments` are those of its issue."""
    if why := considered(name, event):
        return Decision(act="silent", why=why)
    before = former(comments)
    if "answered" in before:
        return Decision(act="silent", why="it was answered before")
    title, *written = texts(event, comments)
    text = SEPARATOR.join(filter(None, (title, *written)))[:MOST_LETTERS]
    snapshot = read_bytes(text.encode("utf-8", "replace"))
    exact = root_of(answer_of(snapshot))
    answer = answer_of(redact(snapshot))
    root = root_of(answer)
    if root is None or exact is None:
        return Decision(act="silent", why="no cause is shown")
    if why := _nothing_to_say(answer, root, settings):
        return Decision(act="silent", why=why)
    body = "\n".join(written)
    messages = [one.text for one in exact.evidence]
    if not is_shown(body, snapshot, messages):
        return Decision(act="silent", why="an error is spoken of, and no output is shown")
    if not is_own(title, body, messages):
        return Decision(act="silent", why="nothing says that it failed on the author's machine")
    if answer.certainty == answer.confidence == "certain":
        return _answer(answer, root, settings)
    return _ask(answer, root, settings, before)


def answer_of(snapshot: Snapshot) -> DoctorAnswer:
    """What `gpusetup doctor` says of a machine."""
    return diagnose(snapshot, load_catalog())


def root_of(answer: DoctorAnswer) -> Finding | None:
    return next((one for one in answer.findings if one.root), None)


def is_shown(text: str, machine: Snapshot, messages: Sequence[str]) -> bool:
    """Whether a program's output stands below the title, or what a tool says of a machine: who
    proposes a feature, or asks how something would be, names errors too."""
    if any(start in words_of(text) for start in starts_of(messages)):
        return is_output(text, messages)
    return bool(machine.driver.version or machine.torch.version or OUTPUT.search(text))


def _nothing_to_say(answer: DoctorAnswer, root: Finding, settings: Settings) -> str | None:
    about = (root.id, answer.cause, answer.symptom)
    if ignored := next((one for one in about if one in settings.ignore), None):
        return f"{ignored} is one of those to ignore"
    if root.severity is not Severity.ERROR:
        return f"{root.id} is no error"
    if root.fix is None or not root.fix.text:
        return f"{root.id} has no way out to tell"
    return None


def fenced(text: str, language: str = "") -> list[str]:
    """A Markdown code block, with a fence longer than any run of backticks in the text."""
    longest_run = max(map(len, re.findall("`+", text)), default=0)
    # Markdown requires at least three backticks.
    fence = "`" * max(3, longest_run + 1)
    return [fence + language, text, fence]


def _answer(answer: DoctorAnswer, root: Finding, settings: Settings) -> Decision:
    screen = doctor_screen(answer).for_terminal(width=100, colour=False)
    block = "\n".join(fenced(screen.rstrip("\n"), "text"))
    body = (
        f"{HELLO}\n\n**{answer.cause}**\n\n{block}\n\n{FOOT}\n\n"
        f"<!-- gpusetup:answered:{root.id} -->"
    )
    label = settings.label.replace("{id}", root.id)[:50] or None
    return Decision("answer", f"{root.id} is certain", root.id, body, label)


def _ask(
    answer: DoctorAnswer, root: Finding, settings: Settings, before: Mapping[str, str]
) -> Decision:
    if answer.next_reading is None:
        return Decision("silent", f"{root.id} is only likely, and no reading would decide")
    if not settings.ask:
        return Decision("silent", f"{root.id} is only likely, and nothing is to be asked")
    if "asked" in before:
        return Decision("silent", "it was asked before")
    lines = (
        f"{_looks_like(answer, root)}:",
        "",
        *fenced(without_hidden_marks(root.title)),
        "",
        "The output of this command, on the machine where it fails, would decide:",
        "",
        *fenced(without_hidden_marks(answer.next_reading), "sh"),
        "",
        FOOT,
        "",
        f"<!-- gpusetup:asked:{root.id} -->",
    )
    return Decision(
        "ask", f"{root.id} is likely; one reading would decide", root.id, "\n".join(lines)
    )


def _looks_like(answer: DoctorAnswer, root: Finding) -> str:
    """The likely cause, or what alone is shown, and what else may be behind it."""
    others = ", ".join(f"`{id}`" for id in answer.other_causes)
    named = f"**{root.id}**"
    if answer.cause == "unknown":
        return f"This shows {named}, and not why" + (f"; it may be {others}" if others else "")
    return f"This looks like {named}" + (f"; it may also be {others}" if others else "")


HELLO = "What you posted shows this cause:"
FOOT = (
    "<sub>Written by gpusetup from the text above alone; nobody looked at the machine. "
    "It writes once, when the cause is certain.</sub>"
)
