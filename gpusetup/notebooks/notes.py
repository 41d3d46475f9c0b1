"""What a notebook adds to an answer: how its lender gives a GPU, and when to restart. Pure."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping

from gpusetup.causes.lenders import LENDERS, Lender
from gpusetup.model.documents import DoctorAnswer, InstallAnswer, VerifyAnswer
from gpusetup.model.frozen import Frozen

SIGNS = {
    "KAGGLE_KERNEL_RUN_TYPE": "Kaggle",
    "COLAB_GPU": "Google Colab",
    "COLAB_RELEASE_TAG": "Google Colab",
    "/opt/ml/metadata/resource-metadata.json": "SageMaker",
}
"""A variable or a file -> who lends the machine. Kaggle's image is made from Colab's, and has its
variables, too (mlflow/mlflow#21612, clearml/clearml#515,
oegedijk/explainerdashboard#245)."""
VS_CODE = "__vsc_ipynb_file__"
"""A name in the kernels of VS Code, on any machine (microsoft/vscode-jupyter#8475)."""


class Where(Frozen):
    """Who lends the machine, if anybody, and how a kernel is started again."""

    lender: Lender | None
    restart: str


def where(environ: Container[str], names: Container[str], exists: Callable[[str], bool]) -> Where:
    """Where a notebook runs, by variables, the user's names and files."""
    found = (LENDERS[name] for sign, name in SIGNS.items() if sign in environ or exists(sign))
    lender = next(found, None)
    own = lender.restart if lender else "Kernel, Restart Kernel"
    restart = "the notebook's Restart button" if VS_CODE in names else own
    return Where(lender=lender, restart=restart)


def notes(
    document: object, here: Where, loaded: Mapping[str, str], *, is_live: bool
) -> Iterator[str]:
    """Sentences below an answer. `loaded`: packages that this kernel imported, with their versions;
    `is_live`: the answer is about this machine."""
    if isinstance(document, InstallAnswer) and document.state == "planned":
        yield "Nothing was changed. `%gpusetup install --yes`, with the same options, does it"
    elif isinstance(document, InstallAnswer):
        yield from _stale(document.after, here, loaded)
    elif is_live:
        if here.lender and _lacks_a_gpu(document):
            name, way = here.lender.name, here.lender.gives_a_gpu
            yield f"{name} gave this notebook no GPU. {way}"
        if isinstance(document, DoctorAnswer):
            yield from _stale({"torch": document.snapshot.torch.version}, here, loaded)


def _lacks_a_gpu(document: object) -> bool:
    if isinstance(document, VerifyAnswer):
        return document.verdict == "failed" and not document.devices
    return isinstance(document, DoctorAnswer) and not document.snapshot.gpus


def _stale(
    installed: Mapping[str, str | None], here: Where, loaded: Mapping[str, str]
) -> Iterator[str]:
    """What this kernel has loaded in another version than is installed."""
    for name, version in installed.items():
        if version and loaded.get(name, version) != version:
            yield (
                f"This kernel still has {name} {loaded[name]} loaded, installed is {version}. "
                f"Restart it: {here.restart}"
            )
