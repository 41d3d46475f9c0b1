"""`gpusetup fleet run --kubernetes`: prints the objects, or applies them through kubectl."""

from __future__ import annotations

import argparse
import re
import secrets
from typing import TYPE_CHECKING

from gpusetup.errors import Blocked, ToolFailed, UsageError
from gpusetup.fleet.engines.kubernetes import Object, Setting, job, watchers
from gpusetup.model.frozen import replace
from gpusetup.render.console import Console

if TYPE_CHECKING:
    from gpusetup.fleet.engines.engine import Engine
    from gpusetup.fleet.work import Work

KINDS = ("jobs", "daemonset")
SELECTOR = {"nvidia.com/gpu.present": "true"}
"""The label that NVIDIA's feature discovery gives a node with GPUs."""
APPLY_SECONDS = 60.0
MOST_GPUS = 1024


def add_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--image", metavar="IMAGE", help="Kubernetes: has gpusetup and your torch")
    group.add_argument("--namespace", metavar="NAME", help="Kubernetes's (default)")
    group.add_argument("--runtime-class", metavar="NAME", help="Kubernetes: nvidia, where needed")
    group.add_argument(
        "--gpus", type=int, metavar="N", help="Kubernetes: with --print --nodes, asking no cluster"
    )


def checked(options: argparse.Namespace) -> None:
    """Raise UsageError for what no cluster takes, before anything is printed or asked."""
    if options.gpus is not None and not (options.print and options.nodes):
        raise UsageError("`--gpus` is for `--print --nodes LIST`, where no cluster is asked")
    if options.gpus is not None and not 1 <= options.gpus <= MOST_GPUS:
        raise UsageError(f"`--gpus` is {options.gpus}", hint=f"from 1 to {MOST_GPUS}")
    label = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
    for name in ("namespace", "runtime_class"):
        value = getattr(options, name)
        if value is not None and not re.fullmatch(rf"{label}(\.{label})*", value):
            raise UsageError(
                f"`--{name.replace('_', '-')} {value}` is no name of Kubernetes",
                hint="small letters, digits and dashes, as `kubectl get` shows them",
            )
    if options.image is not None and not re.fullmatch(r"[\w][\w.:/@-]{0,500}", options.image):
        raise UsageError(
            f"`--image {options.image}` is no image",
            hint="`--image registry.example.com/train:1`",
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
    """Print objects, or apply those that stay; False where Jobs are to be run."""
    checked(options)
    kind = options.kubernetes
    if kind == "jobs" and not options.print:
        return False
    objects = _jobs(options, work) if kind == "jobs" else _lasting(options)
    if options.print:
        out.text(yaml_of(objects))
    else:
        _apply(objects, out)
    return True


def _named(options: argparse.Namespace) -> tuple[str, ...]:
    from gpusetup.fleet.names import expanded

    return expanded(options.nodes) if options.nodes else ()


def _jobs(options: argparse.Namespace, work: Work) -> tuple[Object, ...]:
    """A Job for each idle node; with `--nodes` and `--gpus` no cluster is asked."""
    setting, named = setting_of(options), _named(options)
    if named and options.gpus is not None:
        idle = dict.fromkeys(named, options.gpus)
    else:
        from gpusetup.fleet.engines.kubernetes_run import chosen, nodes_of_cluster

        idle, _ = chosen(nodes_of_cluster(), named)
    return tuple(job(setting, in_image(work, options), node, gpus) for node, gpus in idle.items())


def _lasting(options: argparse.Namespace) -> tuple[Object, ...]:
    return watchers(setting_of(options), options.node_python or "python", SELECTOR)


def yaml_of(objects: tuple[Object, ...]) -> str:
    """The objects as kubectl reads them from a file."""
    from gpusetup.render.manifests import manifests

    return manifests(objects)


def _apply(objects: tuple[Object, ...], out: Console) -> None:
    from gpusetup.fleet.engines.engine import needed
    from gpusetup.system.processes import run

    needed("kubectl")
    for one in objects:
        out.talk(f"applies {one['kind']} {one['metadata']['name']}")
    words = ("kubectl", "apply", "--validate=ignore", "-f", "-")
    said = run(words, timeout=APPLY_SECONDS, stdin=yaml_of(objects))
    if said.exit is None:
        raise Blocked(f"kubectl: {said.problem}")
    if not said.ok:
        raise ToolFailed(f"kubectl apply: {said.stderr.strip()[-300:]}")
    out.text(said.stdout)
