"""`plan --code` on what ordinary training code does before its first step."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpusetup.commands.plan_code import trace
from gpusetup.plan.code_trace import CodeFailed, Trace, TraceRequest

pytestmark = pytest.mark.usefixtures("warm_torch")

ORDINARY = """
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

def model():
    blocks = [nn.TransformerEncoderLayer(64, 4, batch_first=True) for _ in range(2)]
    return nn.Sequential(nn.Embedding(500, 64), *blocks, nn.Linear(64, 500))

def batch_of(batch):
    tokens = torch.randint(0, 500, (batch, 16))
    return tokens, tokens

def as_is(batch):
    return model(), batch_of(batch)

def cast(batch):
    found = model()
    found[-1].weight = found[0].weight
    optimizer = torch.optim.AdamW(found.parameters())
    return found.to("cpu").bfloat16().to(torch.bfloat16), batch_of(batch), None, optimizer

class Paged(torch.optim.AdamW):
    is_paged = True

def wide():
    return nn.Sequential(nn.Embedding(2000, 64), nn.Linear(64, 500)), batch_of(2)

def paged():
    found, batch = wide()
    return found, batch, None, Paged(found.parameters())

def filled(batch):
    found = model()
    for parameter in found.parameters():
        if parameter.dim() > 1:
            nn.init.trunc_normal_(parameter, std=0.02)
            nn.init.orthogonal_(parameter)
    return torch.compile(found), batch_of(batch)

def copied(batch):
    block = nn.TransformerEncoderLayer(64, 4, batch_first=True)
    body = nn.TransformerEncoder(block, 2, enable_nested_tensor=False)
    return nn.Sequential(nn.Embedding(500, 64), body, nn.Linear(64, 500)), batch_of(batch)

class Rows(Dataset):
    def __len__(self):
        return 100

    def __getitem__(self, index):
        return {"input_ids": torch.ones(16, dtype=torch.long), "labels": torch.ones(16).long()}

class Named(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = model()

    def forward(self, input_ids, labels):
        return {"loss": nn.functional.cross_entropy(self.inner(input_ids).mT, labels)}

def loaded(batch):
    return Named(), next(iter(DataLoader(Rows(), batch_size=batch, shuffle=True)))

class Branches(Named):
    def forward(self, input_ids):
        found = self.inner(input_ids)
        return found * 2 if (found > 0).all() else found

def branch(batch):
    return Branches(), batch_of(batch)
"""


@pytest.fixture(scope="module")
def ordinary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ordinary")
    (folder / "train.py").write_text(ORDINARY, encoding="utf-8")
    return folder


def asked(function: str, folder: Path) -> Trace:
    request = TraceRequest(code=f"train:{function}", batch=2, line=False)
    return trace(request, folder=str(folder), seconds=300)


def test_moving_casting_and_tying_a_model_keeps_its_parameters(ordinary: Path) -> None:
    plain, cast = asked("as_is", ordinary).asked, asked("cast", ordinary).asked
    assert cast.parameters == plain.parameters - 500 * 64
    assert cast.gradients == 2 * cast.parameters
    assert cast.states == pytest.approx(6 * cast.parameters, rel=0.01)


@pytest.mark.parametrize(
    ("function", "compiled"), [("filled", True), ("loaded", False), ("copied", False)]
)
@pytest.mark.one_in(2)
def test_init_functions_compile_and_loaders_are_traced(
    function: str, compiled: bool, ordinary: Path
) -> None:
    found = asked(function, ordinary).asked
    assert found.parameters == asked("as_is", ordinary).asked.parameters
    assert found.compiled == compiled


def test_a_branch_on_a_value_names_the_line_and_what_to_write(ordinary: Path) -> None:
    with pytest.raises(CodeFailed) as caught:
        asked("branch", ordinary)
    line = 1 + ORDINARY.splitlines().index(
        "        return found * 2 if (found > 0).all() else found"
    )
    assert f"train.py:{line} in forward" in str(caught.value)
    assert "torch.where" in (caught.value.hint or "")


@pytest.mark.slow
def test_a_peft_model_is_traced_and_only_its_adapters_are_trained(tmp_path: Path) -> None:
    pytest.importorskip("peft")
    code = """
import torch
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

def build(batch):
    shape = dict(num_hidden_layers=2, hidden_size=64, num_attention_heads=4, vocab_size=500)
    model = LlamaForCausalLM(LlamaConfig(intermediate_size=128, **shape)).to(torch.bfloat16)
    tokens = torch.ones(batch, 16, dtype=torch.long)
    lora = LoraConfig(r=8, target_modules="all-linear")
    return get_peft_model(model, lora), {"input_ids": tokens, "labels": tokens}
"""
    (tmp_path / "train.py").write_text(code, encoding="utf-8")
    found = asked("build", tmp_path).asked
    assert found.gradients == 4 * 8 * 2 * (4 * 128 + 3 * 192)
