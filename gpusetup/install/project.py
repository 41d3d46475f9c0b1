"""What a uv project's `pyproject.toml` needs so that torch comes from its own index.

The index is `explicit`, so that nothing else comes from it; a platform without that build (a Mac,
an aarch64 host of an old CUDA) keeps the default index.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gpusetup.catalog.builds import Catalog
from gpusetup.model.resolution import TorchBuild

PLATFORMS = {
    "sys_platform == 'linux' and platform_machine == 'x86_64'": ("linux", "x86_64"),
    "sys_platform == 'linux' and platform_machine == 'aarch64'": ("linux", "aarch64"),
    "sys_platform == 'win32'": ("windows", "x86_64"),
}
"""The marker of each platform for which torch's own index has builds."""


def project_lines(
    names: Iterable[str], url: str, build: TorchBuild, catalog: Catalog
) -> Iterator[str]:
    """The tables that send these packages to torch's index, where it has this build."""
    rows = ((m, catalog.row_of(build.torch, build.backend, *on)) for m, on in PLATFORMS.items())
    markers = " or ".join(marker for marker, row in rows if row)
    yield from ("[[tool.uv.index]]", 'name = "pytorch"', f'url = "{url}"', "explicit = true", "")
    yield "[tool.uv.sources]"
    for name in names:
        yield f'{name} = [{{ index = "pytorch", marker = "{markers}" }}]'
