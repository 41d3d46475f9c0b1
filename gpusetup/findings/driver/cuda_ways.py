"""Ways out of what CUDA answers: the Fabric Manager, the driver's own libcuda."""

from __future__ import annotations

from gpusetup.evidence.context import RuleContext, in_container, on
from gpusetup.evidence.plausible import is_a_path, is_a_version
from gpusetup.fixes import packages, paste
from gpusetup.model.finding import Fix
from gpusetup.model.shell import Line, filled, lines


def fabric_manager(context: RuleContext, text: str) -> Fix:
    """The Fabric Manager of exactly the driver's version."""
    version = context.snapshot.driver.version or ""
    family = None if in_container(context) else packages.distribution(context)
    row = FABRIC_PACKAGE.get(family or "") if is_a_version(version) else None
    branch = version.partition(".")[0]
    return Fix(
        text=f"{text} ({version or 'nvidia-smi shows it'})",
        commands=(
            *((filled(row, branch=branch, version=version),) if row else ()),
            *paste.posix(
                context,
                "sudo systemctl enable nvidia-fabricmanager",
                "sudo systemctl restart nvidia-fabricmanager",
            ),
        ),
        needs_root=True,
    )


BY_APT = "sudo apt install -y 'nvidia-fabricmanager-{branch}={version}*'"
FABRIC_PACKAGE = {
    "ubuntu": BY_APT,
    "debian": BY_APT,
    "rhel": "sudo dnf install -y nvidia-fabric-manager-{version}",
}
"""Distribution -> the package of the Fabric Manager of one driver version."""


def drivers_own(context: RuleContext, text: str) -> Fix:
    """What stands before the driver's libcuda goes: a compat folder, or a stale copy."""
    driver = context.snapshot.driver
    path, version = driver.libcuda_path or "", driver.version or ""
    compat = context.snapshot.container.cuda_compat_path
    commands = without_folder(context, compat) if compat else ()
    stale = version and ".so." in path and path[-1:].isdigit() and not path.endswith(version)
    if stale and not compat and is_a_path(path) and path.count(".") > 2:
        move = filled("sudo mv {path} {aside}", path=path, aside=f"{path}.stale")
        commands = (move, *lines("sudo ldconfig"))
    return Fix(
        text=text,
        commands=commands,
        looks=paste.look(
            "see which libcuda is found", *paste.posix(context, "ldconfig -p | grep libcuda")
        ),
        needs_root=True,
    )


def without_folder(context: RuleContext, folder: str) -> tuple[Line, ...]:
    """A folder out of LD_LIBRARY_PATH, or of the loader's own list."""
    named = context.snapshot.environment.get("LD_LIBRARY_PATH") or ""
    if on(context, "windows") or not is_a_path(folder):
        return ()
    if folder in named:
        return paste.without_folders(context, paste.literally(folder))
    line = rf"\#{folder.rstrip('/')}/*$#d"
    return (
        filled("sudo sed -i {line} /etc/ld.so.conf.d/*.conf", line=line),
        *lines("sudo ldconfig"),
    )
