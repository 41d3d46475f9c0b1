"""What installs, starts or schedules a program, by its words: part of the table in `programs.py`.

Sources: the messages of the tools' own sources and issue trackers, 2023 to 2026.
"""

from __future__ import annotations

from gpusetup.messages.program import Program, named, told

LAUNCHERS: tuple[Program, ...] = (
    Program(
        name="Kubernetes",
        on_torch=False,
        marks=told(
            "start", "failedscheduling", "insufficient nvidia.com/gpu", "unexpectedadmissionerror"
        ),
    ),
    Program(
        name="docker",
        on_torch=False,
        marks=told(
            "start",
            "docker: error response from daemon",
            "error response from daemon",
            "nvidia-container-cli:",
            "unresolvable cdi devices",
        ),
    ),
    Program(name="podman", on_torch=False, marks=told("start", "error: setting up cdi devices")),
    Program(
        name="Slurm",
        on_torch=False,
        way="Ask the scheduler for a GPU of a partition that has one (`sinfo -o '%P %G %t'` lists "
        "them): `--gres=gpu:1`",
        marks=told("start", "gres=(null)", "sbatch: error", "srun: error", "salloc: error")
        + told("running", "slurmstepd: error"),
    ),
    Program(
        name="Colab",
        on_torch=True,
        marks=told(
            "start",
            "connect to a gpu due to usage limits in colab",
            "cannot connect to gpu backend",
        )
        + named("/content/drive/", "google.colab")
        + named("/content/", pattern=r"(?<![\w/])/content/\w"),
    ),
    Program(name="Kaggle", marks=named("/kaggle/working", "/kaggle/input")),
    Program(
        name="uv",
        marks=told(
            "install",
            "no solution found when resolving dependencies",
            "error: distribution `",
            "hint: you're on ",
            "hint: you require cpython",
            "error: failed to fetch: `",
            "`uv sync",
        ),
    ),
    Program(
        name="pixi",
        marks=told(
            "install",
            "failed to solve requirements of environment",
            "failed to solve the environment",
            "cannot solve the request because of",
        ),
    ),
    Program(
        name="conda",
        marks=told(
            "install",
            "packagesnotfounderror",
            "unsatisfiableerror",
            "resolvepackagenotfound",
            "libmambaunsatisfiableerror",
            "could not solve for environment specs",
        ),
    ),
    Program(
        name="poetry",
        marks=told(
            "install", "unable to find installation candidates for", "version solving failed"
        ),
    ),
    Program(
        name="pip",
        marks=told(
            "install",
            "no matching distribution found for",
            "could not find a version that satisfies",
            "is not a supported wheel on this platform",
            "could not install packages due to",
            "resolutionimpossible",
            "these packages do not match the hashes",
        ),
    ),
)
