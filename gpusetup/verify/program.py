"""The program: options, the checks in their order, the report, the exit code."""

from __future__ import annotations

import os
import platform
import sys
from typing import Any, Dict, List, NamedTuple, Optional, Protocol, Sequence, Tuple, Union

from .baseline import compared, read_baseline
from .checks import among_ranks, on_device, on_host
from .child import Child, Environment
from .devices import chosen
from .expect import NAMES, judge
from .gathering import Heard, Hub, Spoke, who
from .junit import as_junit
from .launch import Rank, device_of, rank_in
from .options import Options, read_options
from .render import as_error, as_github, as_json, as_text, harmless
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
MEETING = "meet"
"""The first check of all ranks together; nobody begins it before all have come."""


class Asks(Protocol):
    """Runs one check somewhere."""

    def ask(
        self, name: str, device: str, limit_seconds: float, environment: Environment = ()
    ) -> Dict[str, Any]: ...

    def end(self) -> None: ...


class Together(NamedTuple):
    """This process among several."""

    rank: Rank
    link: Union[Hub, Spoke]


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
        rank = rank_in(os.environ)
        child = Child(options.verbose, options.asked)
        if rank is not None:
            return run_as(rank, options, child, earlier)
        return finish(verify(options, child), options, earlier)
    except Stop as stop:
        return complain(stop, "--json" in words)
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        return INTERRUPTED


def finish(report: Report, options: Options, earlier: Optional[Dict[str, Any]]) -> int:
    """Compare with an earlier run where one was named, publish, and give the exit code."""
    if earlier is not None:
        report = compared(report, earlier)
    publish(report, options)
    return 0 if verdict(report) == PASSED else 1


def run_as(rank: Rank, options: Options, child: Asks, earlier: Optional[Dict[str, Any]]) -> int:
    """One rank of several: its own checks, those of all together; rank 0 prints one report."""
    link = Hub(rank) if rank.rank == 0 else Spoke(rank)
    run = Run(options, child, Together(rank, link))
    try:
        run.all()
        report = run.report()
        # The child of rank 0 may hold the store in which all ranks meet: it ends last.
        others = link.others(as_message(report))
    finally:
        child.end()
    if rank.rank != 0:
        return link.settle(1)
    try:
        return link.settle(finish(merged(report, others, rank), options, earlier))
    except Stop as stop:
        link.settle(stop.exit_code)
        raise


def verify(options: Options, child: Asks) -> Report:
    """Run every check that the options ask for."""
    run = Run(options, child)
    try:
        run.all()
    finally:
        child.end()
    return run.report()


class Run:
    """One pass over the table: what is known so far, and the results in order."""

    def __init__(self, options: Options, child: Asks, together: Optional[Together] = None) -> None:
        self.options = options
        self.child = child
        self.together = together
        self.facts: Dict[str, Any] = {"python": platform.python_version(), "devices": []}
        self.results: List[Result] = []

    def all(self) -> None:
        level, wanted = self.options.level, self.options.device
        for check in on_host(level, wanted):
            if self.facts.get("gpus", 0) >= check.least_gpus:
                self.settle(Job(check, HOST, wanted))
        devices = self.devices()
        for device in devices:
            for check in on_device(level, device):
                self.settle(Job(check, device, device))
        if self.together is not None:
            self.with_the_others(self.together, devices[0] if devices else "cpu")
        for expectation in self.options.expect:
            blocked = blocking(NAMES[expectation.name].needs, None, self.results)
            known = skip(blocked) if blocked else judge(expectation, self.facts)
            self.results.append(Result("expect", HOST, known))

    def report(self) -> Report:
        """What is known so far."""
        return Report(self.options.device, self.options.strict, self.facts, tuple(self.results))

    def with_the_others(self, together: Together, device: str) -> None:
        """The checks of all ranks, once all have come; a rank that has not is named."""
        place = f"{together.rank.world} ranks"
        late = together.link.come_to(MEETING)
        if late:
            outcome = Outcome(FAILED, "; ".join(late), hint="look at that rank's own output")
            self.results.append(Result(MEETING, place, outcome))
            return
        for check in among_ranks(device):
            self.settle(Job(check, place, device), together.rank.environment)

    def devices(self) -> Tuple[str, ...]:
        """The devices to prove; the wanted one itself where none could be looked for."""
        wanted, seen = self.options.device, tuple(self.facts.get("seen", ()))
        if self.together is not None:
            mine = device_of(self.together.rank, wanted, seen)
            return mine or (("cuda",) if wanted in ("auto", "cuda") else ())
        if kind(wanted) == "cuda" and ":" in wanted and seen and wanted not in seen:
            raise no_such_device(wanted, seen)
        return chosen(wanted, seen) or (("cuda",) if wanted in ("auto", "cuda") else ())

    def settle(self, job: Job, environment: Environment = ()) -> None:
        """Run a job, or skip it because of one before it."""
        blocked = blocking(job.check.needs, job.device, self.results)
        if blocked:
            self.results.append(Result(job.check.name, job.device, skip(blocked)))
            return
        check = job.check
        limit = check.limit_seconds + (self.options.asked.seconds if check.lasts else 0.0)
        if self.together is not None:
            self.together.link.doing(check.name)
        answer = self.child.ask(check.name, job.subject, limit, (*check.environment, *environment))
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


def as_message(report: Report) -> Dict[str, Any]:
    """A rank's report for rank 0."""
    rows = [(r.name, r.device, r.outcome._asdict(), r.seconds, r.means) for r in report.results]
    return {"facts": report.facts, "results": rows}


def merged(report: Report, others: Dict[int, Heard], rank: Rank) -> Report:
    """Rank 0's report with what the others found: their devices, and what went wrong there.

    What all ranks found together stands once; a rank without a report is a crash of its own.
    """
    place = f"{rank.world} ranks"
    devices = [{**row, "device": f"rank 0 {row['device']}"} for row in report.facts["devices"]]
    results = [r if r.device == place else _at(0, r) for r in report.results]
    for number, known in sorted(others.items()):
        if known.report is None:
            outcome = Outcome(CRASHED, who(number, known), hint="look at that rank's own output")
            results.append(Result("rank", f"rank {number}", outcome))
            continue
        rows = known.report["facts"]["devices"]
        devices += [{**row, "device": f"rank {number} {row['device']}"} for row in rows]
        for name, device, found, seconds, means in known.report["results"]:
            theirs = Result(name, device, Outcome(**found), seconds, means)
            if device != place or theirs.outcome.status in (FAILED, CRASHED):
                results.append(_at(number, theirs))
    return report._replace(facts={**report.facts, "devices": devices}, results=tuple(results))


def _at(number: int, result: Result) -> Result:
    return result._replace(device=f"rank {number} {result.device}")


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
        sys.stderr.write(harmless(f"error: {stop.message}") + "\n")
        sys.stderr.write("\n" + harmless(f"hint: {stop.hint}") + "\n" if stop.hint else "")
    return stop.exit_code
