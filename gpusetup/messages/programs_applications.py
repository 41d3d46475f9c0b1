"""What sees, draws, encodes and computes beside torch, by its words: part of the table in `programs.py`.

Sources, as of November 2026: the programs' installation guides and the messages of their sources.
"""

from __future__ import annotations

from gpusetup.messages.program import Program, mentioned, named

APPLICATIONS: tuple[Program, ...] = (
    Program(
        name="PaddlePaddle",
        packages=("paddle", "paddlepaddle", "paddlepaddle_gpu", "paddleocr", "paddlex"),
        on_torch=False,
        way="Keep only one of its packages, `paddlepaddle-gpu`, of the release for this driver's CUDA "
        "(its installation guide names the index of each)",
        reading='python -c "import paddle; paddle.utils.run_check()"',
        marks=named("paddlepaddle", "paddleocr", "paddle::", "import paddle") + mentioned("paddle"),
    ),
    Program(
        name="Immich",
        on_torch=False,
        way="Take its machine-learning image whose tag ends in -cuda, and let it extend the service "
        "`cuda` of hwaccel.ml.yml; it needs a GPU from compute capability 5.2 on and a driver from "
        "545 on",
        marks=named("immich-machine-learning", "immich_machine_learning") + mentioned("immich"),
    ),
    Program(
        name="Frigate",
        on_torch=False,
        way="Take its image whose tag ends in -tensorrt, and give the container the GPU",
        marks=named("blakeblackshear/frigate") + mentioned("frigate"),
    ),
    Program(
        name="ffmpeg",
        on_torch=False,
        way="Update the driver to what this ffmpeg's NVENC asks for, or take an older ffmpeg; a "
        "container needs the driver's capability `video`",
        reading="ffmpeg -v verbose -f lavfi -i nullsrc -frames 1 -c:v h264_nvenc -f null -",
        marks=named("h264_nvenc", "hevc_nvenc", "av1_nvenc"),
    ),
    Program(
        name="OpenCV",
        on_torch=False,
        way="The wheels of opencv-python have no CUDA: build OpenCV with -DWITH_CUDA=ON, and take the "
        "wheels out",
        reading='python -c "import cv2; print(cv2.__version__, cv2.cuda.getCudaEnabledDeviceCount())"',
        marks=named("cv2.cuda.", "opencv_dnn_cuda"),
    ),
    Program(
        name="COLMAP",
        on_torch=False,
        way="Take its release for CUDA (Windows), or build it with -DCUDA_ENABLED=ON",
        marks=mentioned("colmap"),
    ),
    Program(
        name="Blender",
        on_torch=False,
        way="Choose the GPU under Preferences, System, Cycles Render Devices, with the newest driver",
        marks=mentioned("blender"),
    ),
    Program(
        name="RAPIDS",
        packages=("cudf", "cuml", "cugraph", "rmm", "cuspatial", "dask_cudf"),
        on_torch=False,
        way="Install all of its packages in one release, for this driver's CUDA; from 24.02 on it "
        "needs a GPU from compute capability 7.0 on",
        reading='python -c "import cudf; print(cudf.__version__, cudf.Series([1]).sum())"',
        marks=mentioned("cudf", "cuml"),
    ),
    Program(
        name="XGBoost",
        packages=("xgboost",),
        on_torch=False,
        way='Ask for `device="cuda"`; the wheels for Linux and Windows have CUDA, those for macOS not',
        marks=mentioned("xgboost"),
    ),
    Program(
        name="LightGBM",
        packages=("lightgbm",),
        on_torch=False,
        way="Build it with CUDA: `pip install --no-binary lightgbm "
        "--config-settings=cmake.define.USE_CUDA=ON lightgbm`",
        marks=mentioned("lightgbm"),
    ),
    Program(
        name="GROMACS",
        on_torch=False,
        way="Build it with -DGMX_GPU=CUDA",
        marks=named("gmx mdrun", "gmx_gpu") + mentioned("gromacs"),
    ),
    Program(
        name="Ultralytics",
        packages=("ultralytics",),
        marks=mentioned("ultralytics", "yolov5", "yolov8"),
    ),
    Program(
        name="LLaMA-Factory",
        packages=("llamafactory", "llmtuner"),
        marks=named("llamafactory-cli") + mentioned("llama-factory"),
    ),
    Program(name="kohya_ss", marks=named("kohya_ss", "sd-scripts") + mentioned("kohya")),
    Program(
        name="Nerfstudio",
        packages=("nerfstudio", "gsplat"),
        marks=named("ns-train") + mentioned("nerfstudio"),
    ),
    Program(name="GPT-SoVITS", marks=mentioned("gpt-sovits")),
)
