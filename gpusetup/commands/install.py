"""`gpusetup install`: resolve, show the commands, fetch, switch, verify, keep or put back."""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser, Namespace

from gpusetup.commands.common import (
    add_backend_options,
    add_file_options,
    add_machine_options,
    read_listed,
)
from gpusetup.errors import GpuSetupError, UsageError
from gpusetup.render.console import Console
from gpusetup.resolver.spelled import torch_named

SUMMARY = """Installs the PyTorch that fits this machine into an environment, and tests it. It shows
everything first and asks. If the test fails, it restores the previous packages."""

EXAMPLES = (
    "gpusetup install",
    "gpusetup install --venv .venv torchvision",
    "gpusetup install --torch 2.5.1 --backend cu124 --yes",
    "gpusetup install --dry-run --from rtx3050-laptop",
)


def run(options: Namespace, out: Console) -> int:
    read_listed(options, out)
    check_usage(options)
    from gpusetup.commands import install_flow as flow
    from gpusetup.install.log import naming_log, open_log

    if options.project:
        from gpusetup.commands.install_project import edit_project

        return edit_project(options, out)
    if options.machine_from:
        return flow.show_described(options, out)
    log = open_log()
    try:
        session = flow.Session(options, out, log)
        return flow.undo(session) if options.undo else flow.install(session)
    except UsageError:
        log.path.unlink(missing_ok=True)
        raise
    except GpuSetupError as problem:
        log.line(f"error: {problem.message}")
        raise naming_log(problem, log) from problem


def configure(parser: ArgumentParser) -> None:
    parser.add_argument(
        "packages",
        nargs="*",
        metavar="PACKAGE",
        help="torchvision, torchaudio (in the version for this torch), or any other package",
    )
    add_file_options(parser)
    parser.add_argument(
        "--torch",
        type=torch_named,
        metavar="SPEC",
        help="2.5.1, or a specifier such as '>=2.6,<2.9'",
    )
    add_backend_options(parser)
    parser.add_argument(
        "--venv",
        type=lambda named: named and os.path.abspath(named),  # noqa: PTH100  # `D:.venv` too
        metavar="DIR",
        help="the environment; it is created if it does not exist",
    )
    parser.add_argument(
        "--index",
        dest="index_root",
        metavar="URL",
        help="a mirror of https://download.pytorch.org/whl (or GPUSETUP_INDEX)",
    )
    parser.add_argument(
        "--download", metavar="DIR", help="only download the wheels into a folder, for `--offline`"
    )
    parser.add_argument(
        "--offline",
        dest="wheelhouse",
        metavar="DIR",
        help="install from such a folder, without network",
    )
    parser.add_argument(
        "--project",
        metavar="FILE",
        nargs="?",
        const="pyproject.toml",
        help="write versions and torch's index into a uv project instead (pyproject.toml)",
    )
    parser.add_argument("--dry-run", action="store_true", help="only show what would be done")
    parser.add_argument("-y", "--yes", action="store_true", help="do not ask")
    parser.add_argument("--no-verify", action="store_true", help="do not test the result")
    state = parser.add_argument_group("afterwards")
    state.add_argument(
        "--undo", action="store_true", help="restore what the last installation replaced"
    )
    parser.add_argument("--upgrade", action="store_true", help="install the newest torch that fits")
    host = parser.add_argument_group("an image for another host")
    host.add_argument(
        "--gpu",
        dest="for_gpu",
        metavar="NAME",
        action="append",
        default=[],
        help="install for a host with this GPU (a name, or sm_86); repeatable",
    )
    host.add_argument("--driver", dest="for_driver", metavar="VERSION", help="and this driver")
    add_machine_options(parser)


EXCLUSIVE = (
    ("--python", "python", "--venv", "venv"),
    ("--from", "machine_from", "--venv", "venv"),
    ("--from", "machine_from", "--offline", "wheelhouse"),
    ("--download", "download", "--offline", "wheelhouse"),
    ("--upgrade", "upgrade", "--torch", "torch"),
)


def check_usage(options: Namespace) -> None:
    """Contradictions, before anything is read."""
    if options.index_root:
        from gpusetup.install.request import index_root_of

        index_root_of(options.index_root, {}, "")
    given = vars(options)
    for word, one, other, key in EXCLUSIVE:
        if given[one] and given[key]:
            raise UsageError(f"`{word}` and `{other}` exclude each other")
    if options.machine_from and not (options.dry_run or options.project):
        raise UsageError(
            "`--from` describes another machine, where nothing can be installed from here",
            hint="add `--dry-run` to see the steps for it",
        )
    if options.undo and options.project:
        raise UsageError(
            "`--undo` is about an environment, `--project` about a file",
            hint="the project's version control brings the previous file back",
        )
    wanted = options.packages or options.torch or options.upgrade or options.for_gpu
    if options.undo and (wanted or options.machine_from):
        raise UsageError(
            "`--undo` installs nothing",
            hint="it takes `--python` or `--venv` to name the target",
        )
    asks = not options.dry_run and not options.yes
    if asks and not sys.stdin.isatty():
        does = "undoes" if options.undo else "installs"
        raise UsageError(
            "There is no terminal to ask on",
            hint=f"`--yes` {does} without asking, `--dry-run` only shows the steps",
        )
