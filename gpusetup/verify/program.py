"""The program: options, the checks in their order, the report, the exit code."""

from __future__ import annotations

import platform
import sys
from typing import Any, Dict, List, NamedTuple, Optional, Protocol, Sequence, Tuple

from .baseline import compared, read_baseline
from .checks import on_device, on_host
from .child import Child, Environment
from .devices import chosen
from .expect import NAMES, judge
from .junit import as_junit
from .options import Options, read_options
from .render import as_error, as_github, as_json, as_text
from .values import (
    CRASHED,
    FAILED,
    HOST,
    PASSED,
    SKIPPED,
    Blocked,
    Check,
    Outcome,
    Report,
    Result,
    Stop,
    WrongQuestion,
    kind,
    verdict,
)

INTERRUPTED = 130


class Asks(Protocol):
    """Runs one check somewhere."""

    def ask(
        self, name: str, device: str, limit_seconds: float, environment: Environment = ()
    ) -> Dict[str, Any]: ...

    def end(self) -> None: ...


class Job(NamedTuple):
    check: Check
    device: str
    """Where it is reported: a device, or the host."""
    subject: str
    """What the check is told: the device, or what `--device` asks for."""


def main(words: Sequence[str]) -> int:
    """Run; the exit code is 0 passed, 1 failed, 2 wrong question, 3 blocked, 130 interrupted."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    try:
        options = read_options(words)
        earlier = read_baseline(options.baseline) if options.baseline else None
        report = verify(options, Child(options.verbose, options.asked))
        if earlier is not None:
            report = compared(report, earlier)
        publish(report, options)
    except Stop as stop:
        return complain(stop, "--json" in words)
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        return INTERRUPTED
    return 0 if verdict(report) == PASSED else 1


def verify(options: Options, child: Asks) -> Report:
    """Run every check that the options ask for."""
    run = Run(options, child)
    try:
        run.all()
    finally:
        child.end()
    return Report(options.device, options.strict, run.facts, tuple(run.results))


class Run:
    """One pass over the table: what is known so far, and the results in order."""

    def __init__(self, options: Options, child: Asks) -> None:
        self.options = options
        self.child = child
        self.facts: Dict[str, Any] = {"python": platform.python_version(), "devices": []}
        self.results: List[Result] = []

    def all(self) -> None:
        level, wanted = self.options.level, self.options.device
        for check in on_host(level, wanted):
            self.settle(Job(check, HOST, wanted))
        for device in self.devices():
            for check in on_device(level, device):
                self.settle(Job(check, device, device))
        for expectation in self.options.expect:
            blocked = blocking(NAMES[expectation.name].needs, None, self.results)
            known = skip(blocked) if blocked else judge(expectation, self.facts)
            self.results.append(Result("expect", HOST, known))

    def devices(self) -> Tuple[str, ...]:
        """The devices to prove; the wanted one itself where none could be looked for."""
        wanted, seen = self.options.device, tuple(self.facts.get("seen", ()))
        if kind(wanted) == "cuda" and ":" in wanted and seen and wanted not in seen:
            raise no_such_device(wanted, seen)
        return chosen(wanted, seen) or (("cuda",) if wanted in ("auto", "cuda") else ())

    def settle(self, job: Job) -> None:
        """Run a job, or skip it because of one before it."""
        blocked = blocking(job.check.needs, job.device, self.results)
        if blocked:
            self.results.append(Result(job.check.name, job.device, skip(blocked)))
            return
        check = job.check
        limit = check.limit_seconds + (self.options.asked.seconds if check.lasts else 0.0)
        answer = self.child.ask(check.name, job.subject, limit, check.environment)
        outcome = Outcome(**answer["outcome"])
        self.learn(outcome.facts or {})
        if outcome.status in (FAILED, CRASHED):
            outcome = outcome._replace(hint=outcome.hint or check.then or None)
        means = check.means if outcome.status in (FAILED, CRASHED) else None
        self.results.append(Result(check.name, job.device, outcome, answer["seconds"], means))
        if outcome.spent:
            self.child.end()

    def learn(self, facts: Dict[str, Any]) -> None:
        row = facts.pop("device", None)
        self.facts.update(facts)
        if row is not None:
            self.facts["devices"].append(row)


def blocking(
    needs: Tuple[str, ...], device: Optional[str], results: Sequence[Result]
) -> Optional[Result]:
    """The earlier result without which a check says nothing (device None: on any device)."""
    for result in results:
        near = device is None or result.device in (device, HOST)
        if near and result.name in needs and result.outcome.status != PASSED:
            return result
    return None


def skip(because: Result) -> Outcome:
    """The outcome of a check that was not run."""
    if because.outcome.status == SKIPPED:
        return Outcome(SKIPPED, because.outcome.detail)
    return Outcome(SKIPPED, f"needs {because.name}, which {because.outcome.status}")


def no_such_device(wanted: str, seen: Tuple[str, ...]) -> WrongQuestion:
    return WrongQuestion(
        f"There is no {wanted}: torch sees {len(seen)} GPU{'s' if len(seen) > 1 else ''}",
        f"there {'are' if len(seen) > 1 else 'is'} {', '.join(seen)}",
    )


def publish(report: Report, options: Options) -> None:
    """Write every form of the report that the options ask for."""
    if options.save_baseline:
        write(as_json(report), options.save_baseline, "--save-baseline")
    if options.junit:
        write(as_junit(report), options.junit, "--junit")
    if options.json:
        text = as_json(report)
    elif options.format == "github":
        text = as_github(report)
    else:
        text = as_text(report, options.verbose)
    write(text, options.output)


def write(text: str, path: Optional[str], option: str = "--output") -> None:
    """To the file, or to stdout."""
    if path is None:
        sys.stdout.write(text)
        sys.stdout.flush()
        return
    try:
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as problem:
        reason = problem.strerror or str(problem)
        raise Blocked(f"Cannot write {path}: {reason}", f"name another {option}") from problem


def complain(stop: Stop, as_document: bool) -> int:
    """Say what ended the program; its exit code."""
    if as_document:
        sys.stdout.write(as_error(stop))
    else:
        sys.stderr.write(f"error: {stop.message}\n")
        sys.stderr.write(f"\nhint: {stop.hint}\n" if stop.hint else "")
    return stop.exit_code
