"""What a notebook adds to an answer: how its lender gives a GPU, and when to restart. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gpusetup.causes.gpu_models import NO_NVIDIA_GPU
from gpusetup.model.documents import DoctorAnswer, InstallAnswer, VerifyAnswer
from gpusetup.notebooks.places import Where

NO_GPU = NO_NVIDIA_GPU.id


def notes(
    document: object, here: Where, loaded: Mapping[str, str], *, is_live: bool
) -> Iterator[str]:
    """Sentences below an answer. `loaded`: packages that this kernel imported, with their versions;
    `is_live`: the answer is about this machine."""
    if isinstance(document, InstallAnswer):
        yield from _after_install(document, here, loaded)
    elif is_live:
        if _lacks_a_gpu(document) and here.host and here.host.gives_a_gpu:
            yield f"{here.host.name} gave this notebook no GPU. {here.host.gives_a_gpu}"
        if isinstance(document, DoctorAnswer):
            installed = {"torch": document.snapshot.torch.version}
            yield from _stale(installed, here, loaded)


def _lacks_a_gpu(document: object) -> bool:
    if isinstance(document, DoctorAnswer):
        return not document.snapshot.gpus
    return (
        isinstance(document, VerifyAnswer) and document.verdict == "failed" and not document.devices
    )


def _after_install(answer: InstallAnswer, here: Where, loaded: Mapping[str, str]) -> Iterator[str]:
    if answer.state == "planned":
        yield "Nothing was changed. `%gpusetup install --yes`, with the same options, does it"
        return
    yield from _stale(answer.after, here, loaded)


def _stale(
    installed: Mapping[str, str | None], here: Where, loaded: Mapping[str, str]
) -> Iterator[str]:
    """What this kernel has loaded in another version than is installed."""
    for name, version in installed.items():
        if name in loaded and version and loaded[name] != version:
            yield (
                f"This kernel still has {name} {loaded[name]} loaded, installed is {version}. "
                f"Restart it: {here.restart}"
            )
