"""`gpusetup install`: resolve, show the commands, fetch, switch, verify, keep or put back."""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser, Namespace

from gpusetup.commands.common import add_shared, read_listed
from gpusetup.errors import UsageError
from gpusetup.render.console import Console

SUMMARY = """Installs the PyTorch that fits this machine into an environment, and tests it. It shows
everything first and asks. If the test fails, it restores the previous packages."""

EXAMPLES = (
    "gpusetup install",
    "gpusetup install --venv .venv torchvision",
    "gpusetup install --torch 2.5.1 --backend cu124 --yes",
    "gpusetup install --dry-run --from rtx3050-laptop",
    "gpusetup install --project --extra cpu --extra cu130",
)


def run(options: Namespace, out: Console) -> int:
    read_listed(options, out)
    check_usage(options)
    from gpusetup.commands import install_flow as flow
    from gpusetup.commands.words import refuse_scripts

    if options.project:
        from gpusetup.commands.install_project import show_project

        return show_project(options, flow.request_of(options), out)
    refuse_scripts(options.packages)
    if options.machine_from:
        return flow.show_described(options, out)
    session = flow.Session(options, out)
    return flow.undo(session) if options.undo else flow.install(session)


def configure(parser: ArgumentParser) -> None:
    add = parser.add_argument
    words = "torchvision, torchaudio (in the version for this torch), or any other package"
    add("packages", nargs="*", metavar="PACKAGE", help=words)
    add_shared(parser, "-r --requirements", "--backend", "--index")
    version = parser.add_mutually_exclusive_group()
    add_shared(version, "--torch")
    newest = "install the newest torch that fits"
    version.add_argument("--upgrade", action="store_true", help=newest)
    target = parser.add_mutually_exclusive_group()
    add_shared(target, "--from", "--python")
    target.add_argument(
        "--venv",
        type=lambda named: named and os.path.abspath(named),  # noqa: PTH100  # `D:.venv` too
        metavar="DIR",
        help="the environment; it is created if it does not exist",
    )
    files = parser.add_mutually_exclusive_group().add_argument
    fetched = "only download the wheels into a folder, for `--offline`"
    files("--download", metavar="DIR", help=fetched)
    without = "install from such a folder, without network"
    files("--offline", dest="wheelhouse", metavar="DIR", help=without)
    uv = "print what to add to a uv project's pyproject.toml, or to a SCRIPT.py, instead"
    add("--project", action="store_true", help=uv)
    extra = (
        "with --project: an extra with its own build, such as cpu, cu130 or train=cu126; "
        "repeatable (default: the project's extras and groups that name torch)"
    )
    add("--extra", action="append", default=[], metavar="NAME", help=extra)
    add("--dry-run", action="store_true", help="only show what would be done")
    add("-y", "--yes", action="store_true", help="do not ask")
    add("--no-verify", action="store_true", help="do not test the result")
    add("--undo", action="store_true", help="restore what the last installation replaced")
    host = parser.add_argument_group("an image for another host")
    add_shared(host, "--gpu", dest="for_gpu")
    add_shared(host, "--driver", dest="for_driver")


def check_usage(options: Namespace) -> None:
    """Contradictions, before anything is read."""
    if options.index_root:
        from gpusetup.commands.words import index_root_of

        index_root_of(options.index_root)
    if options.machine_from and not (options.dry_run or options.project):
        raise UsageError(
            "`--from` describes another machine, where nothing can be installed from here",
            hint="add `--dry-run` to see the steps for it",
        )
    if options.extra and not options.project:
        raise UsageError(
            "`--extra` names an extra of a uv project",
            hint="add `--project` to see the lines for it",
        )
    if options.machine_from and options.wheelhouse:
        raise UsageError("`--from` and `--offline` exclude each other")
    wanted = options.packages or options.torch or options.upgrade or options.for_gpu
    if options.undo and (wanted or options.machine_from or options.project):
        raise UsageError(
            "`--undo` installs nothing",
            hint="it takes `--python` or `--venv` to name the target",
        )
    if not (options.dry_run or options.yes or options.project or sys.stdin.isatty()):
        does = "undoes" if options.undo else "installs"
        raise UsageError(
            "There is no terminal to ask on",
            hint=f"`--yes` {does} without asking, `--dry-run` only shows the steps",
        )
