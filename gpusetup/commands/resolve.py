"""`gpusetup resolve`: which build fits this machine, or a described one, and why not the others."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from gpusetup.commands.common import add_shared, read_listed
from gpusetup.errors import UsageError
from gpusetup.model.units import architecture_named
from gpusetup.render.console import Console

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


def configure(parser: ArgumentParser) -> None:
    parser.add_argument(
        "packages",
        nargs="*",
        metavar="PACKAGE",
        help="packages that use torch: `vllm`, 'jax[cuda13]'; torch is chosen to fit, and your "
        "package index is asked",
    )
    group = parser.add_argument_group("another machine")
    add = group.add_argument
    add_shared(group, "--from", "--driver", "--gpu")
    add("--os", choices=("linux", "windows", "macos"))
    add("--machine", type=architecture_named, choices=("x86_64", "aarch64"))
    python = "Python version, also 3.13t"
    add("--python", dest="python_version", metavar="3.11", help=python)
    add("--glibc", metavar="2.35", help="version of the C library (Linux)")
    group = parser.add_argument_group("request")
    add = group.add_argument
    add_shared(group, "-r --requirements", "--torch", "--backend", "--index")
    add("--installer", choices=("uv", "pip", "conda"))
    add("--format", choices=("text", "requirements"), default="text", help="a file (text)")
    add("--explain", action="store_true", help="list every reason against a build")
    offline = "with PACKAGE: use no network, only gpusetup's own table"
    add("--offline", action="store_true", help=offline)


def run(options: Namespace, out: Console) -> int:
    read_listed(options, out)
    _torch_of_words(options)
    if options.format != "text" and (options.json or options.installer == "conda"):
        other = "--json" if options.json else "--installer conda"
        raise UsageError(f"`{other}` and `--format {options.format}` exclude each other")
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
