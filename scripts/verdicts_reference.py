"""The page of monitor's verdicts: what proves each, what excludes it, and its next steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

HEAD = """# Verdicts of monitor

The first row whose signs all hold decides the verdict on a GPU that works. A sign does not hold
if no source told it. If there are several GPUs, the worst verdict is the run's:
{order}. `uneven`, `idle` and a verdict of `null` concern the whole run. The monitor gives the first
step that fits the run. How to read a verdict:
[See what holds your GPU back](../how-to/monitor.md).

"""


def page() -> str:
    from gpusetup.monitor.verdicts import ORDER

    head = HEAD.format(order=", ".join(f"`{name}`" for name in ORDER))
    return "".join((head, *_cases(), *_whole(), *_signs(), *_steps()))


def _cases() -> Iterator[str]:
    from gpusetup.monitor.verdicts import CASES

    yield "| verdict | cause | proved by | next steps |\n| --- | --- | --- | --- |\n"
    for case in CASES:
        cells = (_code((case.verdict,)), case.cause, case.proof.words, _code(case.steps))
        yield f"| {' | '.join(cells)} |\n"


def _whole() -> Iterator[str]:
    yield "\n| of the run as a whole | cause | next steps |\n| --- | --- | --- |\n"
    yield "| `uneven` | none, less | `one-process-each`, `balance-the-work` where ranks run |\n"
    yield "| `uneven`, `null` where it was the only one | lost | `see-why-it-was-lost` |\n"
    yield "| `communication-bound` | hang: ranks spin to the end | `see-where-it-waits` |\n"
    yield "| `bursty` | hang: nothing happens to the end | `see-where-it-waits` |\n"
    yield "| `good` | encoder, decoder: a video engine is the limit | `spread-the-streams` |\n"
    yield "| `null` | no utilisation is told (MIG) | `ask-dcgm` |\n"
    yield "| `null` | no utilisation is told by a card that has no MIG | `ask-the-driver` |\n"
    yield "| `idle` | requests: a server without requests | `send-more-requests` |\n"
    yield "| `idle` | cells: a notebook holds the card | `release-between-cells` |\n"
    yield "| `idle` | failed: the command ended with an error | `read-its-error` |\n"
    yield "| `idle` | starting: young, or GPU memory rises | `watch-longer` |\n"
    yield "| `idle` | computes | `move-to-the-gpu` |\n"
    yield "| `idle` | held | `see-where-it-waits` |\n| `idle` | prepares | `prepare-once` |\n"
    yield "| `idle` | unused while a command runs | `see-whether-torch-can` |\n"
    yield "| `idle` | unused | `watch-the-command` |\n"


def _signs() -> Iterator[str]:
    from gpusetup.monitor import signs
    from gpusetup.monitor.seen import Sign

    yield "\n## Signs\n\n| sign | means |\n| --- | --- |\n"
    for one in vars(signs).values():
        if isinstance(one, Sign) and one.test.__doc__:
            yield f"| {one.words} | {' '.join(one.test.__doc__.split())} |\n"


def _steps() -> Iterator[str]:
    from gpusetup.monitor.steps import STEPS

    yield "\n## Next steps\n\n| id | what | where |\n| --- | --- | --- |\n"
    for name, step in STEPS.items():
        command = f": `{step.command}`" if step.command else ""
        cells = (f"`{name}`", step.text + command, step.when.words if step.when else "")
        yield f"| {' | '.join(cells)} |\n"


def _code(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
