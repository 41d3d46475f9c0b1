"""Programs that see no GPU, or fail for a reason of their own."""

from __future__ import annotations

from gpusetup.causes.containers import start_with_gpu
from gpusetup.causes.program_builds import is_all, programs_own
from gpusetup.causes.record import Cause, Likelier, Message
from gpusetup.evidence.context import RuleContext, events, has_nvidia
from gpusetup.evidence.places import is_beside_torch, started_without_a_gpu
from gpusetup.messages.row import FAILED, Row, any_of, says
from gpusetup.model.finding import Fix, Severity


def _told(context: RuleContext, text: str) -> Fix:
    ways = (e.values.get("way", "") for e in events(context, PROGRAM_FAILED.id))
    return Fix(text=next(filter(None, ways), text))


def _has_a_gpu(context: RuleContext) -> bool:
    asked = events(context, PROGRAM_SEES_NO_GPU.id) or is_beside_torch(context)
    return bool(asked) and has_nvidia(context) is not False


NO_USE = (
    r"(?:\bnot|n't|\bnever|\bwithout) (?:\w+ ){0,2}?us(?:e|ed|ing) (?:\w+ ){0,2}?(?:gpu|cuda)\b"
)

IN_WORDS = (
    ("ollama", "ollama"),
    ("lm studio", "LM Studio"),
    ("llm studio", "LM Studio"),
    ("lmstudio", "LM Studio"),
    ("llama.cpp", "llama.cpp"),
    ("llama-cpp-python", "llama.cpp"),
    ("koboldcpp", "KoboldCpp"),
    ("gpt4all", "GPT4All"),
    ("localai", "LocalAI"),
    ("onnxruntime", "onnxruntime"),
    ("faster-whisper", "CTranslate2"),
    ("whisper", "Whisper"),
    ("isaac sim", "Isaac Sim"),
    ("tensorflow", "TensorFlow"),
)
"""Programs of which people say that they find no GPU, and their names."""


def _in_words(needle: str, name: str) -> Row:
    """`Ollama does not use the GPU`, `GPU not detected by LM Studio`."""
    said = needle.replace(".", r"\.")
    by = rf"GPU\b[^.\n]{{0,60}} (?:is )?not (?:being )?(?:detected|used|recogni[sz]ed|found|seen|loading|working) (?:by|in|with) {said}\b"
    release = r"(?: ?(?:v|==?|version:?)? ?\d[\w.]{0,12})?"
    later = rf"\b{said}\b.{{0,240}}?\b(?:GPU|(?:GTX|RTX) ?\d{{4}}(?: ?Ti)?)(?: GPU)? (?:is |was )?no longer (?:being )?(?:detected|used|recogni[sz]ed|found|seen|listed)\b"
    return says(
        needle,
        rf"\b{said}{release} (?:(?:does ?n['o]?t|is not|isn't|do not|don't|cannot|can'?t|can not|could not|couldn't|will not|won't|no longer|stopped|never|not) (?:\w+ ){{0,3}}?(?:us(?:e|ing)|utili[sz]e|detect|see|find|recogni[sz]e)(?:ing)?|(?:fails|failed) to (?:use|detect|see|find|recogni[sz]e)) (?:\w+ ){{0,3}}?(?:GPUs?|CUDA(?! ?\d| (?:tool|ver|err|out|lib|run)\w*)(?: devices?)?|(?:RTX|GTX|G[Ff]orce|GeForce) [\w ]{{0,12}}\d{{3,4}}|graphics card)\b|{by}|{later}",
        program=name,
    )


PROGRAM_SEES_NO_GPU = Cause(
    id="program-sees-no-gpu",
    symptom=True,
    likelier=(
        Likelier(
            cause="container-no-gpu",
            shown=started_without_a_gpu,
            because="it runs in a container that was started without a GPU",
            way=start_with_gpu,
        ),
    ),
    severity=Severity.WARNING,
    title="a program beside torch finds no GPU, and nothing shows that the driver lacks it",
    means="Its own build, its libraries or its settings keep it from the GPU.",
    proven_by="The program's own word, beside a driver that answers",
    not_when="The driver, the container or a variable is what hides the GPU: their own findings",
    way_out="The program's build for CUDA",
    source="The programs' installation guides",
    failure=4,
    events=("program-sees-no-gpu", "cuda-unavailable"),
    holds=(_has_a_gpu, is_all),
    by_check=True,
    message=Message(
        title="{program} finds no GPU",
        way=programs_own,
        cases=(
            Message(
                having={"seen": ""},
                title="{program}: {seen}",
                text="Where its log says `found 1 CUDA devices`, ask for the layers: `-ngl 99` "
                "(llama-cpp-python: `n_gpu_layers=-1`); without that line its build has no CUDA. ",
                way=programs_own,
            ),
        ),
    ),
    says=(
        *(_in_words(*one) for one in IN_WORDS),
        says(
            "n_gpu_layers",
            rf"n_gpu_layers.{{0,1100}}?{NO_USE}|{NO_USE}.{{0,500}}?n_gpu_layers",
            program="llama.cpp",
            unless=r"BLAS ?= ?1|offloaded [1-9]\d*/\d+ layers",
        ),
        *any_of(
            {
                "no gpu device": r"(?:\b(?:error|fatal)\b:?|^|\W) {0,3}No GPU devices? (?:were |was |are |is )?(?:found|detected|available)\b",
                "0 gpu": r"\b0 GPUs? detected",
            },
        ),
        says("current node has no gpu available", program="vLLM"),
        *any_of(
            {
                "failed to finish discovery before timeout": "",
                "no compatible gpus were discovered": "",
                "driver lib": r"(?:cuda )?driver lib(?:rary)? init failure",
                "inference compute": r'msg="inference compute" id=\S{1,8} library=cpu\b',
                "100% cpu": r"PROCESSOR\b.{0,600}?\b100% CPU\b",
                "gpulayers:[]": "",
                "dynamic llm libraries": r'"Dynamic LLM libraries\\?" runners=\\?"?\[(?:cpu\w{0,8} ?)+\]',
                "ollama": r"(?i:ollama)\b.{0,300}?\b(?:only (?:loads?|runs?|uses?|loading|running|using) (?:\w+ ){0,4}?CPU\b|refuses to use (?:the |my )?GPU)",
            },
            program="ollama",
        ),
        *any_of(
            {
                "list_physical_devices": r"list_physical_devices\(['\"]GPU['\"]\)\)?['\"]? \[ ?\](?!\w)|list_physical_devices\(['\"]GPU['\"]\)\)?.{0,160}?(?:empty (?:list|array)|(?:returns?|returned|gives?|got|get|prints?|shows?|shown|->|=|:)\W{0,6}\[ ?\](?!\w))",
                "is_gpu_available": r"tf\.test\.is_gpu_available\([^()]{0,60}\)(?: is|:|\)| ==| ->)* ?False",
                "num gpus available": r"Num GPUs Available:\W{0,3}0\b",
            },
            program="TensorFlow",
        ),
        says(
            "list_physical_devices",
            r"list_physical_devices\(['\"]GPU['\"]\).{0,200}?\bGPUs?:? \[ ?\](?!\w)",
            program="TensorFlow",
            unless=r"name='/physical_device:GPU",
        ),
        says(
            "physical_device:cpu:0",
            r"\[ ?PhysicalDevice\(name='/physical_device:CPU:0', device_type='CPU'\) ?\]",
            program="TensorFlow",
            unless=r"name='/physical_device:GPU|list_physical_devices\(['\"]CPU['\"]\)|Metal|Adapter",
        ),
        *(
            says(
                f"unable to register {library} factory",
                rf"\b(?:can ?not|can't|does(?: not|n't)|is not|isn't|not|unable to) (?:us(?:e|ing)|detect\w*|recogni[sz]\w+|find\w*|see\w*) (?:the |my |any |a )?(?:GPUs?|it).{{0,1000}}?Unable to register {library} factory",
                program="TensorFlow",
                unless=r"name='/physical_device:GPU|Created device \S{1,80}GPU:\d",
            )
            for library in ("cufft", "cudnn")
        ),
        says(
            "list_physical_devices",
            r"list_physical_devices\(['\"]GPU['\"]\)\)? {0,8}# {0,4}\[ ?\](?!\w)",
            program="TensorFlow",
        ),
        *any_of(
            {
                "trying to query cuda gpus": "",
                "unable to detect any compatible gpu": "",
            },
            program="LM Studio",
        ),
        says(
            "whisper_backend_init_gpu: no gpu found",
            program="whisper.cpp",
        ),
        *any_of(
            {
                "tauri_plugin_llamacpp": r"\[tauri_plugin_llamacpp::device\].{0,20}No devices found in output",
                "no usable gpu found": "",
            },
            program="llama.cpp",
        ),
        *any_of(
            {
                "cuda backend failed to initialize": "",
                "no supported devices found for platform cuda": "",
                "no gpu/tpu found, falling back to cpu": "",
            },
            program="JAX",
        ),
        says(
            "offloaded 0/",
            r"offloaded 0/\d{1,4} layers to GPU",
            program="llama.cpp",
            seen="no layer was put on the GPU",
        ),
        says(
            "no gpu detectors available",
            "No GPU detectors available for (?:cuda|rocm|musa|npu)",
            program="GPUStack",
        ),
    ),
    examples=(
        "I set n_gpu_layers=20 and it is not using the GPU",
        "n_gpu_layers is 35 but llama-cpp does not use my GPU",
        "ValueError: Current node has no GPU available. current_node_resource={}",
        "ray: Current node has no GPU available",
        'msg="failure during GPU discovery" error="failed to finish discovery before timeout"',
        "ollama: failed to finish discovery before timeout",
        "stderr=Using 2 threads\n        Error: No GPU device found!",
        "fatal: no GPU devices were detected",
        "print(tf.config.list_physical_devices('GPU')) returns []",
        'when I call tf.config.list_physical_devices("GPU") I only get an empty list',
        "Error trying to query CUDA gpus: No CUDA devices found!",
        "GPU survey on hardware was unsuccessful with message 'Error trying to query CUDA gpus'",
        "We are unable to detect any compatible GPUs on your machine",
        "LM Studio: unable to detect any compatible GPU",
        "the hardware page says 0 GPUs detected with CUDA",
        "LM Studio shows 0 GPU detected",
        "[2026-02-24][12:24:04][tauri_plugin_llamacpp::device][WARN] No devices found in output",
        "[tauri_plugin_llamacpp::device][INFO] No devices found in output",
        "LLM Studio cannot detect NVIDIA RTX 4060",
        "GPU is not detected by LLM Studio",
        ">>> tf.test.is_gpu_available()\nFalse",
        "tf.test.is_gpu_available(): False",
        "can not use GPU\nE cuda_fft.cc:485] Unable to register cuFFT factory: Attempting to register factory",
        "TF does not recognize GPU\nUnable to register cuFFT factory",
        "it cannot detect my GPU\nE cuda_dnn.cc:8454] Unable to register cuDNN factory: Attempting to register factory",
        "It is not using the GPU\nUnable to register cuDNN factory",
        ">>> tf.config.list_physical_devices('GPU')\n[]",
        "print('GPU', tf.config.list_physical_devices('GPU'))\nThe output is:\nGPU []",
        'x = list_physical_devices("GPU") ; print shows\nGPUs: []',
        "tf.config.list_physical_devices()\n[PhysicalDevice(name='/physical_device:CPU:0', device_type='CPU')]",
        "TensorFlow shows only [PhysicalDevice(name='/physical_device:CPU:0', device_type='CPU')]",
        "print(tf.config.list_physical_devices('GPU'))  # []",
        'tf.config.list_physical_devices("GPU") # [ ]',
        "Num GPUs Available:  0",
        ">>> print('Num GPUs Available: ', len(gpus))\nNum GPUs Available: 0",
        'level=INFO source=gpu.go:386 msg="no compatible GPUs were discovered"',
        "ollama: no compatible GPUs were discovered",
        "warning: no usable GPU found, --gpu-layers option will be ignored",
        "llama-server: no usable GPU found",
        "CUDA backend failed to initialize: Unable to load CUDA. (Set TF_CPP_MIN_LOG_LEVEL=0)",
        "WARNING:jax._src.xla_bridge:CUDA backend failed to initialize: Found cuSOLVER version 11002",
        "WARNING:absl:No GPU/TPU found, falling back to CPU.",
        "W1025 xla_bridge.py:364] No GPU/TPU found, falling back to CPU. (Set TF_CPP_MIN_LOG_LEVEL=0 and rerun for more info.)",
        "Since the update ollama does not use the GPU of my laptop.",
        "Ollama isn't detecting my GPU, it runs on the processor",
        "the GPU is not detected by LM Studio 0.3.30",
        "LM Studio can't find GPU on Windows",
        "llama.cpp is not using the GPU",
        "The second GPU is not used by llama.cpp",
        "Isaac Sim fails to detect CUDA devices after the update",
        "Isaac Sim does not see any GPU",
        "TensorFlow doesn't recognize my GPU",
        "my GPU isn't new, the GPU is not found by TensorFlow",
        "RuntimeError: Unable to initialize backend 'cuda': UNKNOWN: no supported devices found for platform CUDA",
        "no supported devices found for platform CUDA",
        "tensorflow==2.16 can't utilize the gpu, torch can",
        "TensorFlow version 2.17.0 cant use GPU",
        "LM Studio 0.3.21 on Windows: since the update my GTX 1080 is no longer recognized",
        "whisper_backend_init_gpu: no GPU found",
        "whisper_init_with_params_no_state: dtw = 0\nwhisper_backend_init_gpu: no GPU found\nwhisper_init_state: kv self size = 6.29 MB",
        "llm_load_tensors: offloaded 0/33 layers to GPU",
        "load_tensors: offloaded 0/49 layers to GPU",
        'level=INFO source=types.go:130 msg="inference compute" id=0 library=cpu variant="" total="31.2 GiB"',
        'msg="inference compute" id=cpu library=cpu compute=""',
        "NAME ID SIZE PROCESSOR UNTIL\nllama3:8b 365c0bd3c000 5.4 GB 100% CPU 4 minutes from now",
        "NAME  ID  SIZE  PROCESSOR  CONTEXT  UNTIL\nqwen3:4b  a1  4 GB  100% CPU  4096  Forever",
        'msg=load request="{Operation:fit Parallel:1 BatchSize:512 GPULayers:[] MultiUserCache:false}"',
        'request="{Operation:commit LoraPath:[] GPULayers:[] MainGPU:0}"',
        'source=payload.go:44 msg="Dynamic LLM libraries [cpu cpu_avx cpu_avx2]"\nmsg="Dynamic LLM libraries" runners=[cpu]',
        'msg="Dynamic LLM libraries" runners="[cpu cpu_avx cpu_avx2]"',
        "Since the update Ollama only runs on CPU",
        "ollama 0.14 refuses to use the GPU",
        "lmstudio fails to find my GPU",
        "LMStudio does not use the GPU",
        "llama-cpp-python is not using GPU",
        "llama-cpp-python cannot use the GPU",
        "koboldcpp not using GPU",
        "My GPU is not loading with KoboldCpp",
        "gpt4all does not detect my GPU",
        "GPT4All stopped using GPU",
        "LocalAI does not use the GPU",
        "localai cannot see the GPU",
        "onnxruntime does not use the GPU",
        "onnxruntime 1.20 is not using GPU",
        "faster-whisper does not use GPU",
        "faster-whisper cannot use the GPU",
        "cuda driver library init failure with the new driver",
        "ollama logs a driver lib init failure",
        "Whisper not using CUDA",
        "the Whisper model works, but whisper does not use the GPU",
        "gpustack.worker.worker_manager - ERROR - Failed to initialize worker: No GPU detectors available for cuda",
        "Error serving worker APIs: No GPU detectors available for rocm",
    ),
    not_examples=(
        "n_gpu_layers is 35 and it uses the GPU",
        "Current node has a GPU available",
        "discovery finished before timeout",
        "there is no GPU device in the box",
        "tf.config.list_physical_devices('GPU')\n[PhysicalDevice(name='/physical_device:GPU:0', device_type='GPU')]",
        "it was trying to query gpus of another maker",
        "no compatible one was to be detected",
        "10 GPUs detected",
        "[tauri_plugin_llamacpp::device][INFO] Getting devices from server",
        "LLM Studio detects the RTX 4060",
        "tf.test.is_gpu_available() True",
        "Unable to register cuFFT factory: Attempting to register factory for plugin cuFFT",
        "Unable to register cuDNN factory: Attempting to register factory for plugin cuDNN",
        "tf.config.list_physical_devices('CPU') gives CPU []",
        "[PhysicalDevice(name='/physical_device:CPU:0', device_type='CPU'), PhysicalDevice(name='/physical_device:GPU:0', device_type='GPU')]",
        "tf.config.list_physical_devices('CPU') -> [PhysicalDevice(name='/physical_device:CPU:0', device_type='CPU')]",
        "tf.config.list_physical_devices('GPU') # [PhysicalDevice(name='/physical_device:GPU:0')]",
        "Num GPUs Available: 2",
        "2 compatible GPUs were discovered",
        "1 usable GPU found",
        "the CUDA backend initialized",
        "a GPU/TPU found: no falling back",
        "ollama does not use more than half of the memory of the GPU",
        "LM Studio is not slow on this GPU",
        "Isaac Sim detects the CUDA device",
        "TensorFlow finds the GPU",
        "supported devices found for platform CUDA",
        "whisper_backend_init_gpu: using CUDA0 backend",
        "load_tensors: offloaded 49/49 layers to GPU",
        'msg="inference compute" id=GPU-1 library=CUDA compute=8.9',
        "top shows 100% CPU",
        'request="{Operation:fit GPULayers:37[ID:GPU-1 Layers:37(0..36)]}"',
        'msg="Dynamic LLM libraries" runners="[cpu cpu_avx cuda_v12]"',
        "ollama serve",
        "lmstudio is a program",
        "pip install llama-cpp-python",
        "koboldcpp --usecublas",
        "gpt4all is a program",
        "localai is a program",
        "pip install onnxruntime",
        "pip install faster-whisper",
        "the driver library is installed",
        "whisper does not use CUDA 12",
        "two GPU detectors are available for cuda; no GPU detectors are missing",
    ),
)

PROGRAM_FAILED = Cause(
    id=FAILED,
    severity=Severity.NOTE,
    title="a program failed by itself",
    means="A key, a shape, a file, a name: nothing of the GPU's stack.",
    proven_by="The program's last exception, and no word of the text that complains of a GPU",
    not_when="Any error finding; an exception that may be the GPU's",
    way_out="The program's own documentation and issues",
    source="Python's built-in exceptions; huggingface_hub's errors",
    failure=8,
    by_check=True,
    message=Message(
        title="{program} failed by itself ({said}), not by the GPU's stack",
        text="Take its newest release; if that fails too, report it to its project, with its whole "
        "output, the command and its version",
        way=_told,
        cases=(
            Message(having={"says": ""}, title="{says}", way=_told),
            Message(
                having={"exception": "^(?:FileNotFound|NotADirectory|IsADirectory)"},
                text="Give it a path that is there: a relative one counts from the folder in which "
                "it was started",
            ),
            Message(
                having={"exception": "^ModuleNotFound"},
                text="Install the package that has this module into this environment (its name may "
                "be another one), or start the program from its own folder",
            ),
            Message(
                having={"exception": "HTTP|Repository|EntryNotFound|^(?:OS|Environment)Error"},
                text="Check the name, that this account may read it (`hf auth login`), and that "
                "the hub is reached from here",
            ),
            Message(
                having={"exception": ""},
                text="Change what its message names, where the last lines of the traceback point. "
                "If they are in a package, bring that and the program to releases that belong "
                "together; if it still fails, report it to that project, with the whole traceback, "
                "the command and `pip freeze`",
            ),
        ),
    ),
)
