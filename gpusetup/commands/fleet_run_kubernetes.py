"""`gpusetup fleet run --kubernetes`: a Job on each idle node, or what watches each from now on."""

from __future__ import annotations

import argparse
import re
import secrets
from typing import TYPE_CHECKING

from gpusetup.errors import UsageError
from gpusetup.fleet.engines.kubernetes import Object, Setting, job, watchers
from gpusetup.model.frozen import replace
from gpusetup.render.console import Console

if TYPE_CHECKING:
    from gpusetup.fleet.engines.engine import Engine
    from gpusetup.fleet.work import Work

SELECTOR = {"nvidia.com/gpu.present": "true"}
"""The label that NVIDIA's feature discovery gives a node with GPUs."""


def add_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--image", metavar="IMAGE", help="Kubernetes: has gpusetup and your torch")
    group.add_argument("--namespace", metavar="NAME", help="Kubernetes's (default)")
    group.add_argument("--runtime-class", metavar="NAME", help="Kubernetes: nvidia, where needed")


LABEL = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
FORMS = {
    "namespace": rf"{LABEL}(\.{LABEL})*",
    "runtime_class": rf"{LABEL}(\.{LABEL})*",
    "image": r"[\w][\w.:/@-]{0,500}",
}
"""Option -> what a cluster takes there."""


def checked(options: argparse.Namespace) -> None:
    """Raise UsageError for what no cluster takes, before anything is printed or asked."""
    for name, form in FORMS.items():
        value = getattr(options, name)
        if value is not None and not re.fullmatch(form, value):
            flag = name.replace("_", "-")
            raise UsageError(
                f"`--{flag} {value}` is no name of Kubernetes", hint="as `kubectl get` shows them"
            )


def in_image(work: Work, options: argparse.Namespace) -> Work:
    """The work as the image's own Python does it."""
    return replace(work, python=options.node_python or "python")


def setting_of(options: argparse.Namespace) -> Setting:
    if not options.image:
        raise UsageError(
            "Kubernetes needs an image that has gpusetup and the torch to prove",
            hint="`--image registry.example.com/train:1`",
        )
    return Setting(
        image=options.image,
        namespace=options.namespace or "default",
        run=f"gpusetup-{secrets.token_hex(4)}",
        runtime_class=options.runtime_class,
    )


def kubernetes_engine(options: argparse.Namespace, work: Work) -> Engine:
    """Kubernetes as `fleet run` asks it, a Job on each idle node."""
    from gpusetup.fleet.engines import kubernetes_run

    return kubernetes_run.kubernetes_engine(
        setting_of(options), in_image(work, options), _named(options)
    )


def printed(options: argparse.Namespace, work: Work, out: Console) -> bool:
    """Print objects; False where Jobs are to be run."""
    from gpusetup.render.manifests import manifests

    checked(options)
    if options.kubernetes == "daemonset":
        python = options.node_python or "python"
        out.text(manifests(watchers(setting_of(options), python, SELECTOR)))
    elif options.print:
        out.text(manifests(_jobs(options, work)))
    return bool(options.print) or options.kubernetes == "daemonset"


def _named(options: argparse.Namespace) -> tuple[str, ...]:
    from gpusetup.fleet.names import expanded

    return expanded(options.nodes) if options.nodes else ()


def _jobs(options: argparse.Namespace, work: Work) -> tuple[Object, ...]:
    """A Job for each idle node."""
    from gpusetup.fleet.engines.kubernetes_run import chosen, nodes_of_cluster

    setting = setting_of(options)
    idle, _ = chosen(nodes_of_cluster(), _named(options))
    return tuple(job(setting, in_image(work, options), node, gpus) for node, gpus in idle.items())
