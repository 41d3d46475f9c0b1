"""The same judgement on what others measured: outputs of nccl-tests and of `dcgmi diag`.

Runs of two hosts are pairs, runs of one host tell of its inside; a larger group is compared with
groups of its size. These were measured once each, so that suspects are named as such, with the
pairs that would tell.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from gpusetup import named_file
from gpusetup.errors import BadInput
from gpusetup.fleet.folder import natural
from gpusetup.fleet.show import excluded
from gpusetup.fleet.sweep.answer import FACTS, GB, OF_NODES, Finding, Level, SweepAnswer, in_gb
from gpusetup.fleet.sweep.decide import slow_paths
from gpusetup.fleet.sweep.judge import Scores, link_scores, node_scores, slow_groups
from gpusetup.fleet.sweep.verdict import Fault
from gpusetup.model.frozen import Frozen
from gpusetup.readings.dcgm import DcgmRun, parse_dcgm
from gpusetup.readings.nccl_tests import NcclRun, parse_nccl_tests
from gpusetup.report.cleaning.decode import decode

MOST_BYTES = 1 << 22
"""Of a file; a longer one is none of these."""
MOST_FILES = 200_000
MOST_NAMED = 5


class Runs(Frozen):
    """What a folder holds."""

    nccl: tuple[NcclRun, ...] = ()
    dcgm: Mapping[str, DcgmRun] = {}
    """By node: the file's name without its ending."""
    left_out: tuple[str, ...] = ()
    empty: tuple[str, ...] = ()
    """Outputs in which there was nothing to judge, with the reason."""


def read_runs(folder: Path) -> Runs:
    """Read every file of a folder, or one file. Raises BadInput where none is such an output."""
    nccl: dict[str, NcclRun] = {}
    dcgm: dict[str, DcgmRun] = {}
    left_out: list[str] = []
    empty: list[str] = []
    for path in _files(folder):
        text = _text(path)
        if text and (run := parse_nccl_tests(text)):
            nccl[path.name] = run
        elif text and (said := parse_dcgm(text)):
            if said.tests or said.failed:
                dcgm[path.name.partition(".")[0]] = said
            else:
                empty.append(f"{path.name} (no test passed, warned or failed)")
        else:
            left_out.append(path.name)
    measured = {_kind(run) for run in nccl.values() if run.rate or run.wrong}
    for name in [name for name, run in nccl.items() if _kind(run) not in measured]:
        empty.append(f"{name} ({nccl.pop(name).problem or 'no bandwidth'})")
    if empty and not nccl and not dcgm:
        raise BadInput(nothing_in(empty))
    if not nccl and not dcgm:
        raise BadInput(
            f"{folder} holds no output of nccl-tests and none of dcgmi diag",
            hint="`all_reduce_perf ... > DIR/gpu001-gpu002.txt`, "
            "`dcgmi diag -r 3 -j > DIR/gpu001.json`",
        )
    return Runs(nccl=tuple(nccl.values()), dcgm=dcgm, left_out=tuple(left_out), empty=tuple(empty))


def nothing_in(empty: Sequence[str]) -> str:
    """The sentence about outputs that tell nothing."""
    more = f", and in {len(empty) - MOST_NAMED} more" if len(empty) > MOST_NAMED else ""
    return f"nothing to judge in {', '.join(empty[:MOST_NAMED])}{more}"


def _kind(run: NcclRun) -> tuple[str, int, int]:
    """What is compared with each other."""
    return run.operation, len(run.hosts), run.ranks


def _files(folder: Path) -> list[Path]:
    try:
        if not folder.is_dir():
            return [folder]
        found = [path for path in folder.iterdir() if path.is_file()]
    except OSError as problem:
        raise BadInput(f"{folder} cannot be read: {problem.strerror}") from problem
    return sorted(found[:MOST_FILES], key=lambda path: natural(path.name))


def _text(path: Path) -> str:
    """The text of a file; empty where it is too long or cannot be read."""
    try:
        with named_file.opened(path) as file:
            raw = file.read(MOST_BYTES + 1)
    except OSError as problem:
        raise BadInput(f"{path} cannot be read: {problem.strerror}") from problem
    return decode(raw) if len(raw) <= MOST_BYTES else ""


# --- judging -------------------------------------------------------------------------------------


def judge_runs(runs: Runs, loss: float) -> SweepAnswer:
    """Who is unlike the others in what was measured, and what to measure next."""
    kinds: dict[tuple[str, int, int], list[NcclRun]] = defaultdict(list)
    for run in runs.nccl:
        kinds[_kind(run)].append(run)
    findings = [_wrong(run) for run in runs.nccl if run.wrong]
    levels, pairs = list[Level](), list[tuple[str, str]]()
    for (_, size, _), alike in sorted(kinds.items()):
        found, level, more = _compared(size, alike, loss)
        findings += found
        levels += level
        pairs += more
    findings += [one for node in runs.dcgm for one in _diagnosed(node, runs.dcgm[node])]
    hosts = {host for run in runs.nccl for host in run.hosts} | set(runs.dcgm)
    bad = {node for one in findings if one.fault in OF_NODES for node in one.nodes}
    return SweepAnswer(
        ok=not any(one.blames for one in findings),
        findings=tuple(findings),
        levels=tuple(levels),
        ranks=(),
        nodes=len(hosts),
        backend="nccl-tests" if runs.nccl else "dcgm",
        rounds=0,
        seconds=0.0,
        message_bytes=max((run.size_bytes for run in runs.nccl), default=0),
        exclude=excluded(bad),
        files=len(runs.nccl) + len(runs.dcgm),
        left_out=runs.left_out,
        measure_next=tuple(dict.fromkeys(pairs)),
    )


Compared = tuple[list[Finding], list[Level], list[tuple[str, str]]]


def _compared(size: int, runs: Sequence[NcclRun], loss: float) -> Compared:
    """Runs of one operation on as many hosts and ranks."""
    hosts = sorted({host for run in runs for host in run.hosts}, key=natural)
    number = {host: index for index, host in enumerate(hosts)}
    best: dict[tuple[int, ...], float] = {}
    for run in runs:
        group = tuple(sorted(number[host] for host in run.hosts))
        best[group] = max(best.get(group, 0.0), 0.0 if run.problem else run.rate or 0.0)
    if size == 1:
        return _inside(hosts, node_scores({g[0]: rate for g, rate in best.items()}, loss))
    if size == 2:
        return _between(hosts, link_scores({(g[0], g[1]): r for g, r in best.items()}, loss))
    slow = slow_groups(best, loss)
    return [_said("slow-group", [hosts[i] for i in group], best[group]) for group in slow], [], []


def _inside(hosts: Sequence[str], scores: Scores) -> Compared:
    level = Level(of="within", median=scores.middle / GB, sees_below=scores.sees)
    found = [
        _said(_link(scores.of[rank]), [hosts[rank]], scores.of[rank], scores.middle, within=True)
        for rank in scores.of
        if _is_bad(rank, scores)
    ]
    return found, [level], []


def _between(hosts: Sequence[str], scores: Scores) -> Compared:
    level = Level(of="between", median=scores.middle / GB, sees_below=scores.sees)
    bad = [rank for rank in scores.of if _is_bad(rank, scores) and rank not in scores.once]
    paths = slow_paths(scores, bad)
    found = [_said(_link(scores.of[r]), [hosts[r]], scores.of[r], scores.middle) for r in bad]
    for pair in paths:
        fault: Fault = "slow-path" if scores.once.isdisjoint(pair) else "slow-pair"
        found.append(_said(fault, [hosts[r] for r in pair], scores.pairs[pair], scores.middle))
    doubtful = list(dict.fromkeys((*bad, *(rank for pair in paths for rank in pair))))
    return found, [level], list(_next(hosts, scores, doubtful))


def _is_bad(rank: int, scores: Scores) -> bool:
    return scores.of[rank] < scores.limit or (not scores.of[rank] and scores.middle > 0)


def _link(rate: float) -> Fault:
    return "slow-link" if rate else "broken-link"


def _next(
    hosts: Sequence[str], scores: Scores, doubtful: Sequence[int]
) -> Iterator[tuple[str, str]]:
    """Each doubtful host with a sound one that it was not measured with."""
    sound = [rank for rank in scores.of if rank not in doubtful]
    for rank in doubtful:
        new = (one for one in sound if (min(rank, one), max(rank, one)) not in scores.pairs)
        partner = next(new, None)
        if partner is not None:
            sound.remove(partner)
            yield hosts[rank], hosts[partner]


def _said(
    fault: Fault, nodes: Sequence[str], rate: float, middle: float = 0.0, *, within: bool = False
) -> Finding:
    share = rate / middle if middle else None
    told = {
        "who": " and ".join(nodes) if len(nodes) < 5 else f"{len(nodes)} nodes",
        "rate": in_gb(rate), "middle": in_gb(middle), "share": f"{share or 0:.0%}",
    }  # fmt: skip
    return Finding(
        fault=fault,
        title=FACTS[fault].words.format(**told),
        nodes=tuple(nodes),
        ranks=(),
        within_host=within,
        rate=rate / GB,
        median=middle / GB or None,
        share=share,
        then=FACTS[fault].then,
    )


def _wrong(run: NcclRun) -> Finding:
    found = _said("wrong-values", run.hosts, run.rate or 0.0)
    return Finding(
        fault=found.fault, title=found.title, nodes=found.nodes, ranks=(), then=found.then,
        detail=f"{run.wrong} elements of {run.operation or 'the exchange'}",
    )  # fmt: skip


def _diagnosed(node: str, run: DcgmRun) -> Iterable[Finding]:
    for test in run.failed:
        gpus = f" on GPU {', '.join(map(str, test.gpus))}" if test.gpus else ""
        yield Finding(
            fault="dcgm", title=f"{node}: DCGM's test {test.name} failed{gpus}", nodes=(node,),
            ranks=(), detail=test.says, then=FACTS["dcgm"].then,
        )  # fmt: skip
