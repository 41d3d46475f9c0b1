"""`gpusetup resolve`: which build fits this machine, or a described one, and why not the others."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from gpusetup.commands.common import (
    add_backend_options,
    add_file_options,
    add_machine_options,
    read_listed,
)
from gpusetup.errors import UsageError
from gpusetup.render.console import Console
from gpusetup.resolver.spelled import architecture_named, python_named, system_named, torch_named

CHANNELS = ("nightly", "test")
SUMMARY = (
    "Says which PyTorch build fits this machine or a described one, and why the others do not. "
    "What you do not give is read from this machine."
)
EXAMPLES = (
    "gpusetup resolve",
    'gpusetup resolve --os linux --driver 580.95.05 --gpu "GTX 1080 Ti" --python 3.11',
    "gpusetup resolve --from rtx3050-laptop --torch 2.5.1 --format requirements",
    'gpusetup resolve vllm --gpu "A100 80GB" --driver 580.95.05 --os linux',
)
FORMATS = ("text", "command", "requirements", "conda")


def configure(parser: ArgumentParser) -> None:
    parser.add_argument(
        "packages",
        nargs="*",
        metavar="PACKAGE",
        help="packages that use torch: `vllm`, 'jax[cuda13]'; torch is chosen to fit, and your "
        "package index is asked",
    )
    add_machine_options(parser, python=False)
    group = parser.add_argument_group("another machine")
    group.add_argument("--driver", metavar="VERSION", help="NVIDIA driver: 580.95.05")
    group.add_argument(
        "--gpu",
        action="append",
        default=[],
        metavar="NAME",
        help="a GPU: its name or sm_86; repeatable",
    )
    group.add_argument("--os", type=system_named, choices=("linux", "windows", "macos"))
    group.add_argument("--machine", type=architecture_named, choices=("x86_64", "aarch64"))
    group.add_argument(
        "--python",
        dest="python_version",
        type=python_named,
        metavar="3.11",
        help="Python version, also 3.13t",
    )
    group.add_argument("--glibc", metavar="2.35", help="version of the C library (Linux)")
    add_file_options(parser)
    wish = parser.add_argument_group("request")
    wish.add_argument(
        "--torch",
        type=torch_named,
        metavar="SPEC",
        help="2.5.1, a specifier such as '>=2.6,<2.9', or nightly",
    )
    add_backend_options(wish)
    wish.add_argument("--installer", choices=("uv", "pip", "conda"))
    wish.add_argument(
        "--format", choices=FORMATS, default="text", help="format of the answer (text)"
    )
    wish.add_argument(
        "--explain", action="store_true", help="list all rejected builds with the reason"
    )
    wish.add_argument(
        "--offline",
        action="store_true",
        help="with PACKAGE: use no network, only gpusetup's own table",
    )
    wish.add_argument(
        "--index",
        dest="index_root",
        metavar="URL",
        help="a mirror of https://download.pytorch.org/whl (or GPUSETUP_INDEX)",
    )


def run(options: Namespace, out: Console) -> int:
    read_listed(options, out)
    _torch_of_words(options)
    _check_format(options)
    from gpusetup.commands.resolve_flow import answer

    return answer(options, out)


def _torch_of_words(options: Namespace) -> None:
    """A torch among the words is what `--torch` asks for."""
    from gpusetup.install.packages import requested_packages

    if not options.packages:
        return
    asked = requested_packages(options.packages, {})
    if options.torch and asked.torch and options.torch != asked.torch:
        raise UsageError(f"`--torch {options.torch}` and torch {asked.torch} exclude each other")
    options.torch = options.torch or asked.torch
    if not asked.packages and {*asked.named} <= {"torch"}:
        options.packages = []


def _check_format(options: Namespace) -> None:
    file, installer, torch = options.format, options.installer, options.torch
    alone = f"`gpusetup resolve --torch {torch}`"
    if torch in CHANNELS and options.packages:
        raise UsageError(
            f"Packages are released for releases of torch: none is made for a {torch} build",
            hint=f"{alone} alone, then the package's own {torch} build, if it has one",
        )
    if torch in CHANNELS and (file not in ("text", "command") or installer == "conda"):
        raise UsageError(
            f"A {torch} build is gone after some weeks: no file is written of one",
            hint=f"{alone} prints the command",
        )
    if file == "text":
        return
    if options.json:
        raise UsageError(f"`--json` and `--format {file}` exclude each other")
    if file == "conda" and installer in ("uv", "pip"):
        raise UsageError(f"`--format conda` and `--installer {installer}` exclude each other")
    if installer == "conda" and file not in ("conda", "command"):
        raise UsageError(f"`--format {file}` is made of wheels, not of conda packages")
