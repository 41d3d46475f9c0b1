"""A text that shows a working GPU is `ok` with exit 0; a complaint in any words never is."""

from __future__ import annotations

from each_row import each

from gpusetup.api import read_report
from gpusetup.model.documents import DoctorAnswer
from gpusetup.render.doctor import doctor_screen

AT_WORK = (
    "Just sharing: SDXL on my 3060 12GB.\nUsing device: cuda\n30/30 [00:11<00:00, 2.61it/s]",
    "INFO Using Flash Attention backend on V1 engine.\nINFO GPU KV cache size: 187,280 tokens\n"
    "INFO:     Application startup complete.",
    "ggml_cuda_init: found 1 CUDA devices:\nload_tensors: offloaded 33/33 layers to GPU\n"
    "main: server is listening on http://127.0.0.1:8080",
    "NAME        ID            SIZE      PROCESSOR    UNTIL\n"
    "llama3:8b   46e0c10c039e  6.7 GB    100% GPU     4 minutes from now",
    "ROCm 6.3, RX 7900 XTX\n>>> torch.__version__\n'2.7.0+rocm6.3'\n"
    ">>> torch.cuda.is_available()\nTrue",
    "Intel Arc A770, torch 2.7.0+xpu: torch.xpu.is_available() True, 5 it/s. Should I expect more?",
    "M2 Max here. torch.backends.mps.is_available() -> True, a small ViT at 210 img/s.",
    "{'loss': 1.82, 'epoch': 0.1}\n{'loss': 1.72, 'epoch': 0.2}\n"
    "LoRA on an A100. Can I ignore the warning?",
    "ERROR: custom node Foo failed to import\nDevice: cuda:0 NVIDIA GeForce RTX 3060 : native\n"
    "got prompt\nPrompt executed in 12.10 seconds",
    "PyTorch build does not support SM 12.1?\nFound GPU0 NVIDIA GB10 which is of cuda capability "
    "12.1. The model loads and answers fine.",
    "HIP Library Path: C:\\x\\bin\\amdhip64_7.dll\nJETSON: Not detected.\n"
    "Set: torch.backends.cudnn.enabled = False for better AMD performance.\n"
    "Device: cuda:0 AMD Radeon RX 9070 XT : native",
    "Update: fixed. It was another venv. Now prints 2.8.0+cu128 True NVIDIA GeForce RTX 5080.",
)
LOGS_OF_PROGRAMS = (
    # Trainers, by what only a program prints that has its GPU; notices stand between.
    "GPU available: True (cuda), used: True\nTPU available: False, using: 0 TPU cores\n"
    "Epoch 4:  61%|██    | 610/1000 [01:12<00:46,  8.44it/s, v_num=3, train_loss=0.213]",
    "E external/xla/cuda_fft.cc:485] Unable to register cuFFT factory: Attempting to register "
    "factory for plugin cuFFT when one has already been registered\n"
    "Created device /job:localhost/replica:0/task:0/device:GPU:0 with 22000 MB memory\n"
    "938/938 [====] - 3s 3ms/step - loss: 0.2913",
    "mmengine - INFO - Epoch(train) [1][50/730] time: 0.3402  data_time: 0.0101  memory: 5231  "
    "loss: 1.8912",
    "d2.utils.events: eta: 1:20:33  iter: 219  total_loss: 0.9121  lr: 0.0002  max_mem: 4821M",
    "iter 10: loss 8.4012, time 152.36ms, mfu 38.70%\niter 20: loss 7.5521, mfu 38.71%",
    "iteration 120/ 500000 | elapsed time per iteration (ms): 5321.1 | throughput per GPU "
    "(TFLOP/s/GPU): 412.3 | lm loss: 7.612E+00 | number of nan iterations:   0 |",
    "Torch: 2.6.0+cu124. CUDA: 8.9.\nFA [Xformers = 0.0.29. FA2 = False]\nNum GPUs = 1.\n"
    "{'loss': 1.2, 'epoch': 0.1}",
    # A logger's level before the words shows that no person wrote them.
    "WARNING 10-21 09:11:21 [__init__.py:12] Unable to import flash_attn, falling back\n"
    "INFO 10-21 09:11:57 [kv_cache_utils.py:87] GPU KV cache size: 425,424 tokens\n"
    "INFO:     Application startup complete.",
    "[rank0]:[W ProcessGroupNCCL.cpp:4115] using GPU 0 to perform barrier as devices are unknown. "
    "This can potentially cause a hang if this mapping is incorrect.\n"
    "Epoch 1: 100%|███| 312/312 [02:30<00:00,  2.07it/s, loss=0.55]\nTraining finished.",
    "NCCL INFO NET/Plugin: Could not find: libnccl-net.so. Using internal network plugin.\n"
    "NCCL INFO comm 0x55d rank 0 nranks 4 cudaDev 0 - Init COMPLETE\n"
    "step 10 loss 9.12 tok/s 51233",
    # Servers, and what was computed.
    '$ python -c "import torch; print(torch.cuda.is_available(), torch.cuda.device_count())"\n'
    "True 8",
    "Engine 000: Avg generation throughput: 845.3 tokens/s, Running: 12 reqs, GPU KV cache usage: "
    "31.2%",
    ">>> jax.devices()\n[CudaDevice(id=0), CudaDevice(id=1)]\n18.1 ms ± 41 µs per loop",
    "|   0  NVIDIA GeForce RTX 4090        Off |   00000000:01:00.0 Off |                  Off |\n"
    "| 56%   66C    P2            389W /  450W |   20311MiB /  24564MiB |    100%      Default |\n"
    "+-----------------------------------------+\n"
    "|    0   N/A  N/A   1234      C   /home/u/venv/bin/python                     20300MiB |",
    # Words that share a result.
    "Confirming that this works on a 5070 Ti with torch 2.7.0+cu128 under Fedora 42.",
    "Two RTX 6000 Ada, PyTorch 2.4.1 with cu124, installed without fuss. DDP scales 1.93x.",
)
ASKED_IN_A_LANGUAGE = (
    "训练已经跑起来了,4090,一个 epoch 大概 12 分钟,这个速度正常吗?",
    "RTX 4070 Ti で学習は問題なく動いています。1 ステップ 0.8 秒ですが、これは普通ですか?",
    "학습은 정상적으로 돌아갑니다. RTX 3080, 배치 16. 메모리를 더 줄이는 방법이 있을까요?",
    "Läuft alles wunderbar auf der RTX 4080, 38 Token pro Sekunde. Geht da noch mehr?",
    "L'entraînement tourne bien sur ma RTX 3070. Comment réduire la mémoire ?",
    "Va todo bien con la RTX 4060: entrena sin problemas, 3.2 it/s. ¿Es normal?",
    "Обучение идёт нормально, RTX 3090, 1.7 it/s. Можно ли ускорить?",
    "Roda bem na RTX 3060, 2.1 it/s. Essa velocidade é boa?",
)
COMPLAINTS = (
    "Training on one 3090 works fine. With two it hangs.",
    "Runs fine on my 3080 at home but on the 5080 at work the output is pure noise.",
    "Using device: cuda, but the usage stays at 0 % and it takes forever",
    "Works great in games. Stable Diffusion takes 20 minutes per image. 3050 laptop",
    "torch.cuda.is_available() True in the terminal, in the notebook it says False. 4060",
    "ollama ps shows 45%/55% CPU/GPU for a 13b model. Why not 100% GPU?",
    "Device: cuda:0 NVIDIA GeForce RTX 4070 : native\nComfyUI crashes as soon as I press Queue.",
    "It worked until yesterday, RTX 3060",
    "モデルの学習が途中で固まります。RTX 4090",
    "GPU는 인식하는데 학습 중에 자꾸 멈춰요. RTX 3070",
    "L'entraînement plante sur ma RTX 3070",
    "游戏正常,但是跑AI就黑屏重启,4090",
    # Nothing is called a failure here, and each has a problem.
    "Using device: cuda:0\n 12%|█   | 120/1000 [52:10<6:15:55, 26.09s/it]\n"
    "Why is it taking this long on my 4090?",
    "I get 3.2it/s with SDXL on my RTX 3060. Everyone else posts 6.",
    "On my 3090 I get 11 t/s, the readme promises 35. torch 2.3.0+cu121",
    "RTX 3090 at 99 %, 1.4 it/s, and after 10 minutes it drops to 0.3 it/s.",
    "{'loss': 1.1, 'epoch': 1} 3.2it/s, RTX 4090. After each epoch the memory grows by 2 GB",
    "Using device cuda, RTX 4090\nstep 5000 loss 11.02\nThe loss stays the same the whole time.",
    "Using device: cuda:0\n{'loss': 1.2, 'epoch': 0.1}\nThen the terminal just closes.",
    "INFO: Using device: cpu\n 10%|█   | 10/100 [05:10<46:00,  30.6s/it]\nI have an RTX 3060",
)


def screen_of(answer: DoctorAnswer) -> str:
    return doctor_screen(answer).shown(width=300, colour=False)


@each("text", (*AT_WORK, *LOGS_OF_PROGRAMS, *ASKED_IN_A_LANGUAGE))
def test_a_gpu_at_work_is_ok(text: str) -> None:
    answer = read_report(text)
    assert answer.cause == "ok"
    assert answer.proof


@each("text", COMPLAINTS)
def test_a_complaint_is_never_ok_whatever_works_beside_it(text: str) -> None:
    assert read_report(text).cause != "ok"


def test_what_a_program_prints_denies_that_it_does_not_see_the_gpu() -> None:
    words = "The GPU is not detected by the web page.\n"
    log = "Device: cuda:0 NVIDIA GeForce GTX 1650 : native\nStarting server"
    assert read_report(f"{words}{log}").cause == "ok"
    assert read_report(words).cause != "ok"


def test_a_failure_after_the_success_counts_and_one_before_it_does_not() -> None:
    failed = "ERROR: the node Foo failed to load"
    works = "Using device: cuda:0\n20/20 [00:09<00:00, 2.15it/s] on the GPU"
    assert read_report(f"{failed}\n{works}").cause == "ok"
    assert read_report(f"{works}\n{failed}").cause != "ok"


@each(
    "question, step",
    [
        ("Is the speed normal?", "gpusetup monitor"),
        ("Why is the memory higher than before?", "gpusetup plan"),
        ("May I ignore the warnings?", "ignore"),
        ("Do more num_workers help?", "persistent_workers"),
        ("", "gpusetup verify"),
    ],
)
def test_the_answer_ends_with_what_helps_with_what_is_asked(question: str, step: str) -> None:
    answer = read_report(f"Using device: cuda:0\nTraining runs on my A6000. {question}")
    assert answer.cause == "ok"
    assert step in screen_of(answer)
    assert "gpusetup" in screen_of(answer).rpartition("\n\n")[2]


def test_the_gpu_of_another_maker_is_named_and_keeps_its_own_tool() -> None:
    answer = read_report(
        "Using torch device: [AMD Radeon RX 7900 XTX (cuda:0)]\nIs it normal speed?"
    )
    assert answer.cause == "ok"
    assert "AMD GPU" in (answer.proof or "")
    assert "NVIDIA" not in screen_of(answer).replace("no NVIDIA GPU", "")
