"""The program: options, the checks in their order, the report, the exit code."""

from __future__ import annotations

import os
import platform
import signal
import sys
import time
import traceback
from typing import Any, Dict, List, Optional, Sequence, Tuple

from .answer.junit import as_junit
from .answer.render import as_json
from .answer.screen import Live, as_screen, complain, write
from .checks.table import among_ranks, chosen_rows, named_rows, on_device, on_host, within_level
from .child import Child, Task
from .companions import companions_named
from .device.devices import chosen
from .ending import Ended, hearing_the_end
from .judging.expect import NAMES, judge
from .options import Options, read_options
from .ranks.gathering import Hub, Spoke, as_message, merged
from .ranks.launch import Rank, device_of, rank_in
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
    Row,
    Stop,
    WrongQuestion,
    verdict,
)

MOST_SILENT = 2
"""After so many checks in a row without an answer the others of the device are not tried."""
BEFORE_TORCHRUN = (
    "\nThe traceback that torchrun prints below is its own: it only repeats that a rank ended with "
    "an error. verify's report is above.\n"
)
"""torchrun prints some thirty lines for any exit code but 0, and no option of it stops that."""
MEETING = "meet"
"""The first check of all ranks together; nobody begins it before all have come."""


def main(words: Sequence[str]) -> int:
    """Run; the exit code is 0 passed, 1 failed, 2 wrong question, 3 blocked, 130 interrupted."""
    complete()
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    try:
        with hearing_the_end():
            return proven(read_options(words))
    except Stop as stop:
        return complain(stop, "--json" in words)
    except BrokenPipeError:  # the reader has gone, and no answer reached it
        drop(sys.stdout)
        return Blocked.exit_code
    except Unwritten as problem:
        return complain(Blocked(str(problem), ELSEWHERE), as_document=False)
    except Ended as ended:  # before anything was known; of ranks, rank 0 tells who is missing
        return 128 + ended.number
    except Exception as problem:  # our own fault is no answer about a GPU
        if "-v" in words or "--verbose" in words:
            traceback.print_exc()
        said = f"verify itself failed: {type(problem).__name__}: {problem}"
        return complain(Stop(said, "`-v` shows where; please report it"), "--json" in words)


def proven(options: Options) -> int:
    """Run every check that is asked for, and publish what they found: all together, where this is
    one rank of several; what is known by then, where a signal ends it."""
    named_rows((*options.asked.only, *options.skip))
    within_level(options.asked.only, options.asked.level)
    companions_named(options.beside)
    rank = rank_in(os.environ)
    for path in filter(None, (options.junit, options.output)):
        if rank is None:  # known before minutes are spent
            write("", path, "a")
    link = None if rank is None else Hub(rank) if rank.rank == 0 else Spoke(rank)
    run = Run(options, Child(options.verbose, options.asked), rank, link)
    code, others = 0, {}
    try:
        run.all()
        # The child of rank 0 may hold the store in which all ranks meet: it ends last.
        others = link.others(as_message(run.report())) if link else {}
    except Ended as ended:
        if link:
            raise
        code = 128 + ended.number
        said = (
            f"ended by {signal.Signals(ended.number).name}; verify did not run the remaining checks"
        )
        run.results.append(Result("run", HOST, Outcome(CRASHED, said)))
    finally:
        run.child.end()
    if rank is None or link is None:
        answer = finish(run.report(), options)
        return code or answer
    try:
        report = merged(run.report(), others, rank) if rank.rank == 0 else None
        settled = link.settle(finish(report, options) if report else 1)
        if report and settled and "TORCHELASTIC_RUN_ID" in os.environ:
            say(BEFORE_TORCHRUN)
        return settled
    except Stop as stop:
        link.settle(stop.exit_code)
        raise


def finish(report: Report, options: Options) -> int:
    """Publish every form of the report that the options ask for; the exit code."""
    if options.junit:
        write(as_junit(report), options.junit)
    stream = None if options.output else sys.stdout
    text = as_json(report) if options.json else as_screen(report, options.verbose, stream)
    write(text, options.output)
    return 0 if verdict(report) == PASSED else 1


class Run:
    """One pass over the table: what is known so far, and the results in order."""

    def __init__(
        self, options: Options, child: Any, rank: Optional[Rank] = None, link: Any = None
    ) -> None:
        self.options = options
        self.child = child
        self.rank = rank
        self.link = link
        self.facts: Row = {"seed": options.asked.seed, "devices": []}
        self.facts["python"] = platform.python_version()
        self.results: List[Result] = []
        self.until = time.monotonic() + (options.timeout or float("inf"))
        self.late = 0
        """How many checks were not begun, or not finished, when the time was over."""
        self.silent: Dict[str, int] = {}
        self.stopped: Dict[str, str] = {}
        """Why nothing more is asked of a device."""
        # Of several ranks the first one alone speaks: they share a terminal.
        self.live = Live(rank is None or rank.rank == 0)

    def all(self) -> None:
        """Every check, while a terminal shows which."""
        with self.live:
            self._host_and_devices()
        for expectation in self.options.expect:
            blocked = blocking(NAMES[expectation.name].needs, None, self.results)
            known = skip(blocked) if blocked else judge(expectation, self.facts)
            self.results.append(Result("expect", HOST, known))
        if self.late:
            said = f"--timeout {self.options.timeout:g}: {self.late} checks were not finished"
            self.results.append(Result("timeout", HOST, Outcome(FAILED, said)))

    def report(self) -> Report:
        """What is known so far."""
        return Report(self.options.device, self.options.strict, self.facts, tuple(self.results))

    def _host_and_devices(self) -> None:
        level, wanted = self.options.asked.level, self.options.device
        for check in self._chosen(on_host(level, wanted)):
            # What is about all GPUs of a machine, one rank of it does.
            enough = self.facts.get("gpus", 0) >= check.least_gpus
            if not check.least_gpus or (enough and not (self.rank and self.rank.local)):
                self._settle(check, HOST, wanted)
        seen = tuple(self.facts.get("seen", ()))
        devices = device_of(self.rank, wanted, seen) if self.rank else chosen(wanted, seen)
        if wanted in ("auto", "cuda"):
            devices = devices or ("cuda",)  # itself, where none could be looked for
        rows = [(device, self._chosen(self._of_device(level, device))) for device in devices]
        self.live.of = len(self.results) + sum(len(checks) for _, checks in rows)
        for device, checks in rows:
            for check in checks:
                self._settle(check, device, device)
        for check in companions_named(self.options.beside):
            self._settle(check, HOST, wanted)
        if self.rank:
            self._with_the_others(self.rank, devices[0] if devices else "cpu")

    def _of_device(self, level: str, device: str) -> Tuple[Check, ...]:
        """The checks of a device; a rank leaves out those that other ranks would disturb."""
        checks = on_device(level, device)
        return tuple(check for check in checks if not (self.rank and check.alone))

    def _chosen(self, checks: Tuple[Check, ...]) -> Tuple[Check, ...]:
        return chosen_rows(checks, self.options.asked.only, self.options.skip)

    def _with_the_others(self, rank: Rank, device: str) -> None:
        """The checks of all ranks, once all have come; a rank that has not is named."""
        checks, place = self._chosen(among_ranks(device)), f"{rank.world} ranks"
        late = self.link.come_to(MEETING) if checks else ()
        if late:
            outcome = Outcome(FAILED, "; ".join(late), hint="look at that rank's own output")
            self.results.append(Result(MEETING, place, outcome))
            return
        for check in checks:
            self._settle(check, place, device)

    def _settle(self, check: Check, device: str, subject: str) -> None:
        """Run a check on what it is told of (`subject`), or skip it because of one before it."""
        self.live.checks(check.name, device, self._most_seconds(check))
        blocked = blocking(check.needs, device, self.results)
        if blocked:
            self.results.append(Result(check.name, device, skip(blocked)))
        elif device in self.stopped:
            outcome = Outcome(SKIPPED, self.stopped[device])
            self.results.append(Result(check.name, device, outcome))
        elif time.monotonic() >= self.until:
            self.late += 1
        else:
            if self.link:
                self.link.doing(check.name)
            self._learn(check, device, self.child.ask(self._task(check, subject)))

    def _limit_seconds(self, check: Check) -> float:
        """How long a check may be silent; one that lasts `--seconds` gets them on top."""
        if check.lasts:
            return check.limit_seconds + float(self.options.asked.seconds)
        return check.limit_seconds

    def _most_seconds(self, check: Check) -> float:
        """How long a check may take in all: one that names its samples has a limit of its own."""
        limit = check.samples_seconds or self._limit_seconds(check)
        return min(limit, max(0.0, self.until - time.monotonic()))

    def _task(self, check: Check, subject: str) -> Task:
        limit = self._limit_seconds(check)
        left = max(1.0, self.until - time.monotonic())
        whole = min(check.samples_seconds or float("inf"), left)
        # The rank's own from the start: the process that meets the others has loaded torch by then.
        return Task(check, subject, limit, whole, self.rank.environment if self.rank else ())

    def _learn(self, check: Check, device: str, answer: Row) -> None:
        """Keep what a check answered."""
        if "wrong" in answer:
            raise WrongQuestion(answer["wrong"], answer["hint"])
        outcome, means = Outcome(**answer["outcome"]), None
        facts = outcome.facts or {}
        self.facts["devices"] += [facts.pop("device")] if "device" in facts else []
        self.facts.update(facts)
        if outcome.status in (FAILED, CRASHED):
            outcome = outcome._replace(hint=outcome.hint or check.then or None)
            # One that gave no answer says nothing about numbers.
            means = check.means if outcome.status == FAILED else None
        self.results.append(Result(check.name, device, outcome, answer["seconds"], means))
        self.late += time.monotonic() >= self.until and outcome.status == SKIPPED
        silent = outcome.detail.startswith("no answer") and device != HOST
        self.silent[device] = self.silent.get(device, 0) + 1 if silent else 0
        if self.silent[device] >= MOST_SILENT:
            self.stopped[device] = f"{MOST_SILENT} checks gave no answer: the device hangs"
        if outcome.status == CRASHED and device.endswith(" ranks"):
            self.stopped[device] = f"this rank's process ended in {check.name}"
        if outcome.spent:
            self.child.end()


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
