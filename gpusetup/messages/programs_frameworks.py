"""What computes on the GPU beside torch, by its words: part of the table in `programs.py`.

Sources: the messages of the programs' own sources and their installation guides, 2023 to 2026.
"""

from __future__ import annotations

from gpusetup.messages.program import Program, named, notice, told

FRAMEWORKS: tuple[Program, ...] = (
    Program(
        name="Warp",
        packages=("warp", "warp_lang"),
        on_torch=False,
        way="Install the newest `warp-lang`: its release must know the driver's CUDA",
        marks=told(
            "start",
            "warp cuda error",
            "warp userwarning",
            "this build of warp does not support",
            "warp cuda warning",
        ),
    ),
    Program(
        name="CuPy",
        packages=("cupy", "cupy_backends", "cupyx"),
        on_torch=False,
        way="Keep one CuPy package only, the one for the CUDA that this driver serves "
        "(`cupy-cuda12x`, `cupy-cuda13x`), with the toolkit's libraries: "
        '`pip install "cupy-cuda12x[ctk]"`',
        reading='python -c "import cupy; cupy.show_config()"',
        marks=told("import", "failed to import cupy", "multiple cupy packages are installed")
        + told("first-kernel", "cupy failed to load", "cupy.cuda.compiler", "cupy_backends.cuda"),
    ),
    Program(
        name="numba",
        packages=("numba", "numba_cuda"),
        on_torch=False,
        way="Install `numba-cuda[cu12]` (or `[cu13]`), which brings NVVM and the headers, for the "
        "CUDA that this driver serves",
        reading='python -c "from numba import cuda; cuda.detect()"',
        marks=told(
            "first-kernel",
            "cudasupporterror",
            "nvvmsupporterror",
            "numba.cuda.cudadrv",
            "numba_cuda_driver",
        ),
    ),
    Program(
        name="TensorFlow",
        packages=("tensorflow", "tensorflow_core", "keras"),
        on_torch=False,
        way="On Windows, TensorFlow after 2.10 has no GPU support: install it in WSL. On Linux and "
        'in WSL install it with its CUDA libraries: `pip install "tensorflow[and-cuda]"`',
        reading='python -c "import tensorflow as tf; print(tf.__version__, '
        "tf.sysconfig.get_build_info(), tf.config.list_physical_devices('GPU'))\"",
        marks=notice(
            "start",
            "skipping registering gpu devices",
            "could not find cuda drivers on your machine, gpu will not be used",
            "failed call to cuinit",
            "cannot dlopen some gpu libraries",
            "tensorflow/",
            "external/local_xla",
            "external/local_tsl",
        )
        + notice(None, "import tensorflow")
        + named("tf.config.", "tensorflow[and-cuda]"),
    ),
    Program(
        name="JAX",
        packages=("jax", "jaxlib", "jax_plugins"),
        on_torch=False,
        way='Install it with its CUDA plugin of the same release, `pip install -U "jax[cuda12]"` or '
        "`[cuda13]` as the driver allows, and take the folders of another CUDA out of LD_LIBRARY_PATH",
        reading='python -c "import jax; jax.print_environment_info()"',
        marks=told(
            "start",
            "jaxlib is not installed. falling back to cpu",
            "no gpu/tpu found, falling back to cpu",
            "unable to initialize backend 'cuda'",
            "cuda backend failed to initialize",
            "jax plugin configuration error",
            "jax was built against version",
        )
        + named("jax._src", "jax.numpy"),
    ),
)
