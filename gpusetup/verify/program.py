"""The program: options, the checks in their order, the report, the exit code."""

from __future__ import annotations

import os
import platform
import signal
import sys
import time
import traceback
from typing import Any, Dict, List, NamedTuple, Optional, Protocol, Sequence, Tuple, Union

from .alongside import Alongside
from .answer.journal import Journal, question
from .answer.junit import as_junit
from .answer.live import Live
from .answer.render import as_github, as_json, as_text
from .answer.screen import as_screen
from .answer.writing import complain, writable, write
from .checks.table import among_ranks, chosen_rows, named_rows, on_device, on_host, within_level
from .child import Child, Environment, variables_of
from .companions.rows import companions_named
from .device.devices import chosen, no_such_device
from .ending import Ended, listen_for_the_end
from .judging.baseline import compared, read_baseline
from .judging.expect import NAMES, judge
from .judging.needs import blocking, skip
from .judging.speed import beside
from .options import Options, read_options
from .ranks.gathering import Hub, Spoke
from .ranks.launch import Rank, device_of, rank_in
from .ranks.merging import as_message, merged
from .streams import ELSEWHERE, Unwritten, complete, drop, say
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
MOST_SILENT = 2
"""After so many checks in a row without an answer the others of the device are not tried."""
MEETING = "meet"
"""The first check of all ranks together; nobody begins it before all have come."""


class Asks(Protocol):
    """Runs one check somewhere."""

    def ask(
        self,
        name: str,
        device: str,
        limit_seconds: float,
        environment: Environment = (),
        whole_seconds: float = 0.0,
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
    complete()
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    try:
        return ended(words)
    except BrokenPipeError:  # the reader has gone, and no answer reached it
        drop(sys.stdout)
        return Blocked.exit_code
    except Unwritten as problem:
        return complain(Blocked(str(problem), ELSEWHERE), as_document=False)


def ended(words: Sequence[str]) -> int:
    """Run, and tell what ended it; only an answer that cannot be written is left."""
    try:
        options = read_options(words)
        named_rows((*options.asked.only, *options.skip))
        within_level(options.asked.only, options.asked.level)
        companions_named(options.beside)
        listen_for_the_end()
        earlier = read_baseline(options.baseline) if options.baseline else None
        rank = rank_in(os.environ)
        child = Child(options.verbose, options.asked)
        if rank is not None:
            return run_as(rank, options, child, earlier)
        writable(options.save_baseline, "--save-baseline")
        writable(options.junit, "--junit")
        writable(options.output, "--output")
        return alone(options, child, earlier)
    except Stop as stop:
        return complain(stop, "--json" in words)
    except (BrokenPipeError, Unwritten):
        raise
    except KeyboardInterrupt:
        say("interrupted\n")
        return INTERRUPTED
    except Ended as ended:  # among ranks: rank 0 tells who is missing
        return 128 + ended.number
    except Exception as problem:  # our own fault is no answer about a GPU
        said = f"{type(problem).__name__}: {problem}"
        fault = Stop(f"verify itself failed: {said}", "`-v` shows where; please report it")
        if "-v" in words or "--verbose" in words:
            traceback.print_exc()
        return complain(fault, "--json" in words)


def alone(options: Options, child: Asks, earlier: Optional[Dict[str, Any]]) -> int:
    """One process by itself. Ended by a signal, it publishes what it knows."""
    second = Alongside(options.verbose, options.asked)
    run = Run(options, child, alongside=second)
    try:
        run.all()
    except Ended as ended:
        second.end()
        child.end()
        name = signal.Signals(ended.number).name
        outcome = Outcome(CRASHED, f"ended by {name}; what came after was not tried")
        run.results.append(Result("run", HOST, outcome))
        finish(run.report(), options, None)
        return 128 + ended.number
    finally:
        second.end()
        child.end()
    return finish(run.report(), options, earlier)


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

    def __init__(
        self,
        options: Options,
        child: Asks,
        together: Optional[Together] = None,
        alongside: Optional[Alongside] = None,
    ) -> None:
        self.options = options
        self.child = child
        self.together = together
        self.alongside = alongside
        self.facts: Dict[str, Any] = {
            "python": platform.python_version(),
            "devices": [],
            "seed": options.asked.seed,
        }
        self.results: List[Result] = []
        self.began = time.monotonic()
        self.left_out = 0
        self.silent: Dict[str, int] = {}
        self.journal = Journal(options.resume, question(options)) if options.resume else None
        self.live = Live(together is None)

    def all(self) -> None:
        """Every check, while a terminal shows which."""
        try:
            self._all()
        finally:
            self.live.end()

    def _all(self) -> None:
        level, wanted = self.options.level, self.options.device
        for check in self.chosen(on_host(level, wanted)):
            if self.facts.get("gpus", 0) >= check.least_gpus and self.mine(check):
                self.settle(Job(check, HOST, wanted))
        devices = self.devices()
        self.live.of = len(self.results) + sum(
            len(self.chosen(on_device(level, device))) for device in devices
        )
        for device in devices:
            self.on_one(device, self.chosen(on_device(level, device)))
        self.with_companions(devices)
        if self.together is not None:
            self.with_the_others(self.together, devices[0] if devices else "cpu")
        neighbours = beside(self.facts, self.results)
        if neighbours is not None:
            self.results.append(neighbours)
        for expectation in self.options.expect:
            blocked = blocking(NAMES[expectation.name].needs, None, self.results)
            known = skip(blocked) if blocked else judge(expectation, self.facts)
            self.results.append(Result("expect", HOST, known))
        if self.left_out:
            told = f"--timeout {self.options.timeout:g}: {self.left_out} checks were not begun"
            self.results.append(Result("timeout", HOST, Outcome(FAILED, told)))

    def on_one(self, device: str, checks: Tuple[Check, ...]) -> None:
        """Every check of a device. What runs beside others is waited for last; the results stand in
        the order of the table."""
        before = len(self.results)
        apart = self.alongside.chosen(checks, device) if self.alongside else ()
        needs = {name for check in apart for name in check.needs}
        for check in checks:
            if check in apart:
                continue
            if self.alongside and check.name not in needs and not self.alongside.done:
                self.alongside.begin(self.ready(apart, device), self.seconds_left())
            self.settle(Job(check, device, device))
        for check in apart:
            self.settle(Job(check, device, device))
        place = {check.name: at for at, check in enumerate(checks)}
        self.results[before:] = sorted(self.results[before:], key=lambda each: place[each.name])

    def ready(self, checks: Tuple[Check, ...], device: str) -> Tuple[Check, ...]:
        return tuple(one for one in checks if not blocking(one.needs, device, self.results))

    def with_companions(self, devices: Tuple[str, ...]) -> None:
        """What stands on torch, on each device; without one only whether it imports."""
        for check in companions_named(self.options.beside):
            for device in devices or (HOST,):
                subject = self.options.device if device == HOST else device
                self.settle(Job(check, device, subject))

    def mine(self, check: Check) -> bool:
        """What is about all GPUs of a machine, one rank of it does."""
        return self.together is None or not check.least_gpus or self.together.rank.local == 0

    def chosen(self, checks: Tuple[Check, ...]) -> Tuple[Check, ...]:
        return chosen_rows(checks, self.options.asked.only, self.options.skip)

    def seconds_left(self) -> float:
        if self.options.timeout is None:
            return float("inf")
        return self.options.timeout - (time.monotonic() - self.began)

    def report(self) -> Report:
        """What is known so far."""
        return Report(self.options.device, self.options.strict, self.facts, tuple(self.results))

    def with_the_others(self, together: Together, device: str) -> None:
        """The checks of all ranks, once all have come; a rank that has not is named."""
        checks = self.chosen(among_ranks(device))
        if not checks:
            return
        place = f"{together.rank.world} ranks"
        late = together.link.come_to(MEETING)
        if late:
            outcome = Outcome(FAILED, "; ".join(late), hint="look at that rank's own output")
            self.results.append(Result(MEETING, place, outcome))
            return
        ended = ""
        for check in checks:
            if ended:
                told = f"this rank's process ended in {ended}"
                self.results.append(Result(check.name, place, Outcome(SKIPPED, told)))
                continue
            self.settle(Job(check, place, device))
            if self.results[-1].outcome.status == CRASHED:
                ended = check.name

    def devices(self) -> Tuple[str, ...]:
        """The devices to prove; the wanted one itself where none could be looked for."""
        wanted, seen = self.options.device, tuple(self.facts.get("seen", ()))
        if self.together is not None:
            mine = device_of(self.together.rank, wanted, seen)
            return mine or (("cuda",) if wanted in ("auto", "cuda") else ())
        if kind(wanted) == "cuda" and ":" in wanted and seen and wanted not in seen:
            raise no_such_device(wanted, seen)
        return chosen(wanted, seen) or (("cuda",) if wanted in ("auto", "cuda") else ())

    def settle(self, job: Job) -> None:
        """Run a job, or skip it because of one before it."""
        self.live.checks(job.check.name, job.device)
        blocked = blocking(job.check.needs, job.device, self.results)
        if blocked:
            self.results.append(Result(job.check.name, job.device, skip(blocked)))
            return
        check = job.check
        if self.seconds_left() <= 0:
            self.left_out += 1
            return
        if self.journal is not None and (check.name, job.device) in self.journal.known:
            outcome, seconds = self.journal.known[check.name, job.device]
            self.results.append(Result(check.name, job.device, outcome, seconds))
            return
        if self.silent.get(job.device, 0) >= MOST_SILENT and job.device != HOST:
            told = f"{MOST_SILENT} checks gave no answer: the device hangs"
            self.results.append(Result(check.name, job.device, Outcome(SKIPPED, told)))
            return
        limit = check.limit_seconds + (self.options.asked.seconds if check.lasts else 0.0)
        left = max(1.0, self.seconds_left())
        whole = min(check.samples_seconds or limit, left)
        limit = min(limit, left)
        if self.together is not None:
            self.together.link.doing(check.name)
        # The rank's own from the start: the process that meets the others has loaded torch by then.
        own = self.together.rank.environment if self.together is not None else ()
        variables = (*variables_of(check, job.subject), *own)
        answer = self.alongside.answer(check.name, job.subject) if self.alongside else None
        if answer is None:
            answer = self.child.ask(check.name, job.subject, limit, variables, whole)
        if "wrong" in answer:
            raise WrongQuestion(answer["wrong"], answer["hint"])
        outcome = Outcome(**answer["outcome"])
        silent = outcome.status == CRASHED and outcome.detail.startswith("no answer")
        self.silent[job.device] = self.silent.get(job.device, 0) + 1 if silent else 0
        self.learn(outcome.facts or {})
        if outcome.status in (FAILED, CRASHED):
            outcome = outcome._replace(hint=outcome.hint or check.then or None)
        means = check.means if outcome.status in (FAILED, CRASHED) else None
        self.results.append(Result(check.name, job.device, outcome, answer["seconds"], means))
        if self.journal is not None and check.samples_seconds and outcome.status != SKIPPED:
            self.journal.keep(check.name, job.device, outcome, answer["seconds"])
        if outcome.spent:
            self.child.end()

    def learn(self, facts: Dict[str, Any]) -> None:
        row = facts.pop("device", None)
        self.facts.update(facts)
        if row is not None:
            self.facts["devices"].append(row)


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
    elif options.output:
        text = as_text(report, options.verbose)
    else:
        text = as_screen(report, options.verbose, sys.stdout)
    write(text, options.output)
