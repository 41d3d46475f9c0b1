"""Turns the options of `install` into a task: parses the request, chooses the build, and checks for
reasons to stop."""

from __future__ import annotations

from collections.abc import Callable

from gpusetup.catalog.builds import completed_from_catalog
from gpusetup.catalog.file import load_catalog
from gpusetup.choose.choice import Choice
from gpusetup.choose.choose import choose
from gpusetup.choose.coming import coming_of
from gpusetup.choose.described import for_host, without_torch
from gpusetup.choose.host import Host, host_of
from gpusetup.choose.index import AnsweringIndex
from gpusetup.choose.installed import marker_environment
from gpusetup.choose.wish import (
    Wish,
    check_wish,
    parse_words,
    with_torch_named,
    with_torch_of_companions,
)
from gpusetup.install.checks import (
    not_torchs_fault,
    own_environment,
    refuse_unfit,
    trouble_elsewhere,
)
from gpusetup.install.options import InstallRequest
from gpusetup.install.task import Task
from gpusetup.model.frozen import Frozen, replace
from gpusetup.model.machine import Snapshot
from gpusetup.project.decide import Decision, decide
from gpusetup.project.read import read_ask


class Order(Frozen):
    """An order for `install`: the options, the request and the host."""

    request: InstallRequest
    wish: Wish
    host: Host
    """The host; if the environment does not exist yet, it has no torch."""


def wish_of(request: InstallRequest, machine: Snapshot, *, by_conda: bool = False) -> Wish:
    """The request that the command's options express. Raises UsageError if they name two versions
    of torch.

    With `by_conda`, conda will install torch, so that only conda's builds count.
    """
    wish = parse_words(request.packages, marker_environment(machine))
    wish = with_torch_named(wish, request.torch)
    wish = with_torch_of_companions(wish, load_catalog())
    installer = "conda" if by_conda else "auto"
    return replace(wish, backend=request.backend, installer=installer, upgrade=request.upgrade)


def decision_of(request: InstallRequest, machine: Snapshot, *, by_conda: bool = False) -> Decision:
    """The request of the options together with what the files of `-r` ask for on this machine."""
    wish, catalog = wish_of(request, machine, by_conda=by_conda), load_catalog()
    asks = tuple(map(read_ask, request.requirements))
    if not asks:
        return Decision(wish=wish)
    host = order_of(request, wish, machine).host
    return decide(asks, wish, host, catalog)


def order_of(
    request: InstallRequest, wish: Wish, machine: Snapshot, *, fresh: bool = False
) -> Order:
    """The order for a machine; `fresh` means that the environment does not exist yet."""
    catalog = load_catalog()
    check_wish(wish, catalog)
    if fresh:
        python = replace(machine.python, prefix=request.venv, manager="venv")
        machine = without_torch(replace(machine, python=python))
    if request.for_other_host:
        machine = for_host(machine, request.gpu, request.driver, catalog)
    # Complete the machine last, so that the catalog also completes the GPUs of `--for-gpu` and the
    # driver of `--for-driver`.
    machine = completed_from_catalog(machine, catalog)
    return Order(request=request, wish=wish, host=host_of(machine, catalog))


class Stops:
    """Checks whether there is a reason to stop an order. The machine is diagnosed only once."""

    def __init__(self, order: Order, talk: Callable[[str], None]) -> None:
        self.order, self.talk = order, talk
        self.has_looked = False

    def look(self, choice: Choice) -> None:
        """Raise Unsatisfiable if installing torch would not fix the problem, if no build fits, or
        if torch would be replaced with another maker's build without a request for it."""
        request, wish, machine = self.order.request, self.order.wish, self.order.host.machine
        # Wheels that are only downloaded are meant for another machine, whose problems are unknown.
        if not self.has_looked and not request.download:
            self.has_looked = True
            trouble = trouble_elsewhere(machine, choice, other_host=request.for_other_host)
            # The problem does not matter if torch stays as it is, or if a build was requested.
            stays_beside = choice.installed is not None and not wish.is_about_torch
            is_wanted = wish.names_build or wish.upgrade or stays_beside
            # A file in the working folder that hides one of torch's modules is no reason to stop,
            # because it only affects programs started in that folder.
            hides_torch_here = trouble is not None and trouble.id == "module-shadowed"
            if trouble and not is_wanted and not hides_torch_here:
                raise not_torchs_fault(trouble, machine)
            if trouble:
                self.talk(
                    f"First: {trouble.title} ({trouble.id}). Installing torch does not fix that."
                )
        refuse_unfit(choice, machine)

    def elsewhere(self, choice: Choice) -> str:
        """The command for a new environment, in case this one must not be changed."""
        return own_environment(self.order.request, choice, self.order.wish, self.order.host.machine)


def choose_task(order: Order, stops: Stops, index: AnsweringIndex | None = None) -> Task:
    """The task for an order. Checks for reasons to stop, and asks `index` for packages if it is
    given.

    Raises Unsatisfiable if no build fits or a check stops the installation.
    """
    catalog = load_catalog()
    choice = choose(order.wish, order.host, catalog, index)
    stops.look(choice)
    return Task(
        request=order.request,
        host=order.host,
        wish=order.wish,
        choice=choice,
        coming=coming_of(choice, order.host, catalog),
        why=choice.reason,
        elsewhere=stops.elsewhere(choice),
    )
