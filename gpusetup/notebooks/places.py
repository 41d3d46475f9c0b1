"""Who runs this notebook, and what is done there about a GPU and a restart. Pure."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping

from gpusetup.causes.lenders import LENDERS
from gpusetup.model.frozen import Frozen


class Place(Frozen):
    """A service that lends notebooks, or a program that shows them."""

    name: str
    restart: str
    """How a kernel is started anew."""
    variables: tuple[str, ...] = ()
    """Environment variables of which one is there."""
    files: tuple[str, ...] = ()
    """Files of which one is there."""
    names: tuple[str, ...] = ()
    """Names in the user's namespace."""
    source: str
    as_of: str

    @property
    def gives_a_gpu(self) -> str | None:
        """How one gets a GPU there; None where that is not asked of a service."""
        lender = LENDERS.get(self.name)
        return lender.gives_a_gpu if lender else None


JUPYTER = Place(
    name="Jupyter",
    restart="Kernel, Restart Kernel",
    source="JupyterLab documentation",
    as_of="2026-11-21",
)
HOSTS = (
    Place(
        name="Kaggle",
        restart=LENDERS["Kaggle"].restart,
        variables=("KAGGLE_KERNEL_RUN_TYPE",),
        source="mlflow/mlflow#21612; before Colab: Kaggle's image is made from Colab's and has its "
        "COLAB_RELEASE_TAG (Kaggle/kagglehub#230)",
        as_of="2026-03-13",
    ),
    Place(
        name="Google Colab",
        restart=LENDERS["Google Colab"].restart,
        variables=("COLAB_GPU", "COLAB_RELEASE_TAG"),
        source="clearml/clearml#515: COLAB_GPU is there without a GPU too; the restart: "
        "googlecolab/colabtools#3792, #5197",
        as_of="2025-02-25",
    ),
    Place(
        name="SageMaker",
        restart=LENDERS["SageMaker"].restart,
        files=("/opt/ml/metadata/resource-metadata.json",),
        source="oegedijk/explainerdashboard#245: Studio and notebook instances",
        as_of="2023-01-24",
    ),
)
"""Who lends the machine; the first that is told is it."""
VS_CODE = Place(
    name="VS Code",
    restart="the notebook's Restart button",
    names=("__vsc_ipynb_file__",),
    source="microsoft/vscode-jupyter#8475, #8531: set in kernels elsewhere too",
    as_of="2026-11-21",
)
"""Shows notebooks of any machine, a lent one too."""


class Where(Frozen):
    """The machine's lender, if any, and the program that shows the notebook."""

    host: Place | None
    front: Place

    @property
    def restart(self) -> str:
        return self.front.restart

    @property
    def name(self) -> str:
        return self.host.name if self.host else self.front.name


def where(
    environ: Mapping[str, str], names: Container[str], exists: Callable[[str], bool]
) -> Where:
    """Where a notebook runs, by variables, the user's names and files."""

    def is_here(place: Place) -> bool:
        known = (name in environ for name in place.variables)
        told = (name in names for name in place.names)
        return any((*known, *told)) or any(map(exists, place.files))

    host = next((place for place in HOSTS if is_here(place)), None)
    front = VS_CODE if is_here(VS_CODE) else host or JUPYTER
    return Where(host=host, front=front)
