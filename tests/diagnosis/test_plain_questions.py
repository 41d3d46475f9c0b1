"""A plain question about torch, CUDA, drivers and GPUs gets an answer from the catalog, exit 0."""

from __future__ import annotations

from each_row import each

from gpusetup.api import read_report
from gpusetup.messages.questions import topic_of
from gpusetup.render.doctor import doctor_screen

TOPICS = (
    ("toolkit", "Do I need to install the CUDA toolkit before PyTorch?"),
    ("toolkit", "安装pytorch之前需要先安装cuda toolkit和cudnn吗?"),
    ("toolkit", "cudnnは別途インストールする必要がありますか?"),
    ("toolkit", "Brauche ich das CUDA Toolkit oder reicht der Treiber?"),
    ("toolkit", "¿Necesito instalar CUDA Toolkit para usar PyTorch?"),
    ("toolkit", "Preciso instalar o cuDNN separadamente?"),
    ("toolkit", "Нужно ли ставить CUDA Toolkit, если ставлю torch через pip?"),
    ("build", "Quelle version de CUDA faut-il pour une RTX 3060 ?"),
    ("build", "RTX 5090에는 어떤 CUDA 버전을 설치해야 하나요?"),
    ("build", "应该装哪个版本的cuda和pytorch?"),
    ("downgrade", "Do I have to downgrade CUDA?"),
    ("downgrade", "Muss ich CUDA 13 deinstallieren?"),
    ("driver", "Is driver 535.183 new enough for cu128?"),
    ("python", "PyTorch は Python 3.13 に対応していますか?"),
    ("two-numbers", "Why does nvidia-smi show another CUDA than nvcc, is that a problem?"),
    ("maker", "Can I use PyTorch with an AMD RX 7800 XT?"),
    ("card", "Will a GTX 1060 still work with the newest PyTorch?"),
    ("wsl-driver", "Do I need to install an NVIDIA driver inside WSL2?"),
    ("several", "Can I train on two RTX 3060 as if it were one card?"),
    ("memory", "Is 12 GB VRAM enough to fine-tune Mistral 7B?"),
    ("several-cudas", "Can I have several CUDA versions installed at the same time?"),
    ("check", "How do I check whether PyTorch uses my GPU?"),
    ("", "Which data set do you use?"),
    ("", "How do I cite this work?"),
)
ANSWERS = (
    ("Do I need the CUDA toolkit for PyTorch?", "no, torch needs only the NVIDIA driver"),
    ("Is driver 560.94 new enough for cu126?", "yes, driver 560.94 runs builds for CUDA 12.6"),
    ("Does PyTorch support Python 3.13?", "yes, torch 2.5.0 to"),
    ("Is Python 3.13 supported by torch 2.1?", "no, torch 2.1 has no wheels for Python 3.13"),
    ("Does torch support Python 3.99?", "no, torch has no wheels for Python 3.99"),
    ("Does torch 2.9 support CUDA 13?", "yes, torch 2.9.1 has builds for CUDA 13.0"),
    ("Can I use torch 2.5 with CUDA 13?", "no, torch 2.5 has builds for CUDA 11.8, 12.1, 12.4"),
    ("Which CUDA do I need for an RTX 5090?", "for RTX 5090, torch"),
    ("Which CUDA for RTX 4070 and PyTorch 2.6?", "torch 2.6.0 from cu126 has kernels for RTX 4070"),
    ("Will a GTX 1060 work with PyTorch?", "yes, for GTX 1060 torch"),
    ("Can PyTorch use the GPU of a MacBook M3?", "yes, as the device mps"),
    ("Do I have to downgrade CUDA 13?", "no, keep the driver and do not remove anything"),
)


@each("topic, sentence", TOPICS)
def test_a_question_is_read_by_its_intent_and_its_things(topic: str, sentence: str) -> None:
    assert topic_of(sentence) == topic


@each("question, words", ANSWERS)
def test_a_plain_question_is_answered(question: str, words: str) -> None:
    answer = read_report(question)
    assert answer.cause == "ok"
    assert (answer.proof or "").startswith(words)
    screen = doctor_screen(answer).shown(width=200, colour=False)
    assert screen.startswith("✓ answer: ")
    assert "gpusetup " in screen.rpartition("\n\n")[2]


@each(
    "text",
    [
        "RuntimeError: CUDA error: no kernel image is available\nMust I downgrade CUDA?",
        "My card is not detected. Do I need the CUDA toolkit?",
        "torch.cuda.is_available()\nFalse\nWhich CUDA do I need?",
        "训练报错。需要降级CUDA吗?",
    ],
)
def test_a_question_beside_a_failure_is_no_plain_question(text: str) -> None:
    assert read_report(text).cause != "ok"


def test_a_driver_that_is_too_old_for_the_cuda_that_is_asked_about_is_the_cause() -> None:
    answer = read_report(
        "Driver 522.25. The guide says torch for CUDA 12.6. Does that go together?"
    )
    assert answer.cause == "driver-too-old"


def test_a_name_of_a_stranger_is_quoted_in_the_command() -> None:
    answer = read_report("Which CUDA do I need for an RTX 4090 `;reboot`?")
    assert "reboot" not in (answer.proof or "")
