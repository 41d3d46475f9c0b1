"""Texts with something private in them: what stands there, and what of it must not be shared.

The secrets are made up. Tokens are put together from two halves, so that no scanner of a repository
takes a row for a leak.
"""

from __future__ import annotations

RANDOM = "q7Rt2mXa9LpZ4kVe8sWb3nYc"
HEX = "9f86d081884c7d659a2feaa0c55ad015"


def token(prefix: str, tail: str = RANDOM) -> tuple[str, str]:
    """A token in a sentence, and what must not be seen of it."""
    return f"read {prefix + tail} from the environment", tail


TOKENS = (
    ("uuid 65a54314-8864-4692-8774-88d15b9afe08", "65a54314-8864"),
    token("ghp_", RANDOM + RANDOM[:12]),
    token("github_pat_", "11ABCDEFG0" + RANDOM),
    token("hf_", RANDOM + "abcdefgh"),
    token("sk-proj-", RANDOM),
    token("xoxb-", f"123456789012-123456789012-{RANDOM}"),
    token("https://hooks.slack.com/services/T0000000/B0000000/", RANDOM),
    token("pypi-AgEIcHlwaS5vcmc", RANDOM),
    token("AKIA", "QZXW1234ABCD5678"),
    ("wandb: using key " + HEX + HEX[:8], HEX[:12]),
    token("eyJhbGciOiJIUzI1NiJ9.", f"eyJzdWIiOiIxMjM0NTY3.{RANDOM}"),
    token("$6$rounds=5000$", RANDOM),
    (f"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5{RANDOM} wilhelmina@tower", "wilhelmina"),
    (f"-----BEGIN RSA PRIVATE KEY-----\n{RANDOM}\n-----END RSA PRIVATE KEY-----", RANDOM),
    (f"key drawn by lot: {RANDOM}", RANDOM),
)  # fmt: skip

WORDS = (
    ("AccountKey=" + RANDOM + "==;EndpointSuffix=core.windows.net", RANDOM),
    ("mysql --password sesame-open", "sesame-open"),
    ('db_password = "open sesame now"', "open sesame now"),
    ("the password is sesame7", "sesame7"),
    ('"client_secret": "sesame"', "sesame"),
    ("Authorization: token sesame1234", "sesame1234"),
    ("curl -u wilhelmina:sesame https://x.example", "wilhelmina:sesame"),
    ("machine x.example login wilhelmina password sesame", "sesame"),
    ("machine x.example login wilhelmina password sesame", "wilhelmina"),
    ("//registry.example/:_authToken=sesame1", "sesame1"),
    ("GPU Serial Number : 1320220012345", "1320220012345"),
)

HOMES = (
    ("/home/wilhelmina/x", "wilhelmina"),
    ("/home/w/wilhelmina/x", "wilhelmina"),
    ("/data/users/wilhelmina/x", "wilhelmina"),
    ("/scratch/wilhelmina/x", "wilhelmina"),
    ("/afs/uni.example/user/w/wilhelmina/x", "wilhelmina"),
    ("/u/wilhelmina/x", "wilhelmina"),
    ("/u/w/wilhelmina/x", "wilhelmina"),
    ("/mnt/c/Users/wilhelmina/x", "wilhelmina"),
    ("/Volumes/Wilhelminas Disk/x", "Wilhelminas"),
    ("/private/tmp x; ~wilhelmina/x", "wilhelmina"),
    ("C:\\Users\\wilhelmina\\x", "wilhelmina"),
    ("C:\\Users\\Wilhelmina Van Dyck\\x", "Dyck"),
    ("c:\\documents and settings\\wilhelmina\\x", "wilhelmina"),
    ("\\\\wsl.localhost\\Ubuntu\\home\\wilhelmina\\x", "wilhelmina"),
    ("D:\\wilhelmina\\code\\.venv", "wilhelmina"),
    ("file:///home/wilhelmina/wheels", "wilhelmina"),
    ("file:///C:/Users/wilhelmina/wheels", "wilhelmina"),
    ("~/secret-client/.venv/bin/python", "secret-client"),
    ("PATH=/usr/bin:/home/wilhelmina/bin:/bin", "wilhelmina"),
    ("prefix=/srv/people/wilhelmina", "wilhelmina"),
)

NETWORK = (
    ('server = "titan"', "titan"),
    ("server: titan", "titan"),
    ("https://wilhelmina:se@sa/me@pypi.acme.example/simple", "acme"),
    ("https://pypi.acme.example/team-zebra/simple", "zebra"),
    ("http://proxy.acme.example:3128", "acme"),
    ("gpu-07.zebra.corp refused", "zebra"),
    ("ssh zebra042 nvidia-smi", "zebra042"),
    ("MASTER_ADDR=zebra042", "zebra042"),
    ("SLURM_JOB_NODELIST=zebra[01-04]", "zebra"),
    ("Nov 20 05:00:00 zebra kernel: NVRM: Xid", "zebra"),
    ("[zebra-7.lab.internal]:29500", "zebra"),
    ("at 10.20.30.40 now", "10.20.30.40"),
    ("cannot reach 8.9.10.11:29500 from here", "8.9.10.11"),
    ("10.20.30.0/24", "10.20.30"),
    ("fe80::1c2d:3e4f:5a6b:7c8d%eth0", "3e4f"),
    ("[2001:db8:85a3:0:0:8a2e:370:7334]:29500", "85a3"),
    ("0c:42:a1:5b:33:f0", "5b:33"),
    ("0c42.a15b.33f0", "a15b"),
    ("GPU-5a1c7e90-1111-2222-3333-444455556666", "5a1c7e90"),
)

PEOPLE = (
    ("wilhelmina@acme.example", "wilhelmina"),
    ("Wilhelmina Dyck <w@acme.example>", "Dyck"),
    ("wilhelmina@tower:~$ nvidia-smi", "wilhelmina"),
    ("(base) wilhelmina@tower:~/x$ python", "tower"),
    ("[wilhelmina@tower x]$ python", "wilhelmina"),
    ("git@git.acme.example:wilhelmina/zebra.git", "wilhelmina"),
    ("uid=1001(wilhelmina) gid=1001(wilhelmina) groups=1001(wilhelmina),44(video)", "wilhelmina"),
    ("-rw-r--r-- 1 wilhelmina zebras 12 Nov 20 torch", "wilhelmina"),
    ("wandb: Currently logged in as: wilhelmina (zebras)", "wilhelmina"),
    ("wandb: Currently logged in as: wilhelmina (zebras)", "zebras"),
    ("USER=wilhelmina", "wilhelmina"),
    ("username: wilhelmina", "wilhelmina"),
    ("user 'wilhelmina' is not in the video group", "wilhelmina"),
    ("permission denied for user wilhelmina", "wilhelmina"),
    ("--user wilhelmina", "wilhelmina"),
)

PLANTED = (*TOKENS, *WORDS, *HOMES, *NETWORK, *PEOPLE)
"""(text, what must not be shared)."""

VARIABLES = (
    ("NO_PROXY", "localhost,.zebra.corp,10.1.2.3", "zebra"),
    ("NO_PROXY", "localhost,.zebra.corp,10.1.2.3", "10.1.2.3"),
    ("HTTPS_PROXY", "http://wilhelmina:sesame@zebra:3128", "zebra"),
    ("HTTPS_PROXY", "http://wilhelmina:sesame@zebra:3128", "sesame"),
    ("PIP_TRUSTED_HOST", "zebra", "zebra"),
    ("PIP_INDEX_URL", "https://u:sesame@zebra.example/root/pypi/+simple/", "sesame"),
    ("UV_INDEX", "corp=https://zebra.example/simple", "zebra"),
    ("LD_LIBRARY_PATH", "/data/wilhelmina/lib:/usr/lib", "wilhelmina"),
    ("VIRTUAL_ENV", "/work/groups/zebra/wilhelmina/venv", "wilhelmina"),
    ("NCCL_SOCKET_IFNAME", "=10.1.2.3", "10.1.2.3"),
    ("LD_LIBRARY_PATH", "/usr/lib:/opt/zebra-corp/lib", "zebra"),
    ("LD_LIBRARY_PATH", "/usr/lib:~/zebra/lib", "zebra"),
    ("NCCL_SOCKET_IFNAME", "zebra0", "zebra"),
    ("NCCL_IB_HCA", "^=mlx5_0:1,zebra_0", "zebra"),
    ("TORCH_CUDA_ARCH_LIST", "9.0 for zebra", "zebra"),
    ("CONDA_DEFAULT_ENV", "zebra-prod", "zebra"),
    ("LD_PRELOAD", "/usr/lib/libzebra.so.1:/usr/lib/libcudart.so.12", "zebra"),
)
"""(name, value, what must not be shared)."""

SETTINGS = (
    ("NCCL_SOCKET_IFNAME", "=eth0,ib0,bond0.12,^docker,lo,enp193s0f0np0,ens5,eno1,mlx5_0"),
    ("NCCL_IB_HCA", "^=mlx5_0:1,mlx5_bond_0,rdmap0s6,bnxt_re0,efa_0"),
    ("TORCH_CUDA_ARCH_LIST", "7.0;8.0 8.6+PTX;9.0a;Hopper"),
    ("PYTORCH_CUDA_ALLOC_CONF",
     "backend:cudaMallocAsync,roundup_power2_divisions:[256:1,512:2,>:8],expandable_segments:False"),
    ("LD_LIBRARY_PATH", "/usr/local/cuda-12.4/lib64:/opt/conda/lib::/usr/lib/wsl/lib:$HOME/lib"),
    ("LD_PRELOAD", "/usr/lib/x86_64-linux-gnu/libtcmalloc.so.4:/usr/lib/libcudart.so.12.4"),
    ("PATH", "/opt/homebrew/bin:/usr/local/bin:/usr/bin:/bin:."),
    ("CUDA_VISIBLE_DEVICES", "0,1,-1"), ("CUDA_VISIBLE_DEVICES", "GPU-0001,MIG-0002"),
    ("NVIDIA_REQUIRE_CUDA", "cuda>=12.4 brand=tesla,driver>=470,driver<471"),
    ("NVIDIA_DRIVER_CAPABILITIES", "compute,utility,compat32"), ("NVIDIA_VISIBLE_DEVICES", "void"),
    ("PIP_INDEX_URL", "https://download.pytorch.org/whl/cu126"), ("CC", "gcc-12"),
    ("NCCL_DEBUG", "INFO"), ("NCCL_DEBUG_SUBSYS", "INIT,NET"), ("NCCL_ALGO", "Ring,Tree"),
    ("PYTORCH_VERSION", "2.9.0a0+872d972e41.nv25.08"), ("UV_TORCH_BACKEND", "auto"),
    ("UV_EXCLUDE_NEWER", "2026-11-20T00:00:00Z"), ("CUDA_MODULE_LOADING", "LAZY"),
)  # fmt: skip
"""Settings of everybody's: they stay as they are."""

STAYS = (
    "token=None, api_key=None, use_auth_token=True, pad_token=None, password: (none)",
    "HTTPSConnectionPool(host='download.pytorch.org', port=443): Max retries exceeded",
    "https://github.com/pytorch/pytorch/issues/12345",
    "Expected sha256 9f86d081884c7d659a2feaa0c55ad0159f86d081884c7d659a2feaa0c55ad015",
    "pointer 0x00007f3a2c1d4e90, git commit 0fabc3ba44823f257e70ce397d989c8de5e362c1",
    "/cvmfs/soft.example/easybuild/software/2023/x86-64-v3/Core/python/3.11.5/bin/python",
    "/software/easybuild/CUDA/12.4.0/lib64/libcudart.so.12",
    "license server: Unlicensed (Unrestricted), server: NVIDIA Fabric Manager",
    "Server:\n Containers: 3",
    "Server: Docker Engine - Community",
    "pip@24.0, torch@main, (dvs-builder@U22-I3-B06-03-3)",
    "host: x86_64-linux-gnu, host memory 64 GiB, user 1000:1000",
    "https://download.pytorch.org/whl/cu124/torch-2.5.1%2Bcu124-cp311-cp311-linux_x86_64.whl",
    "/usr/lib/x86_64-linux-gnu/libcuda.so.580.95.05",
    "NVRM: Xid (PCI:0000:65:00): 79, pid=1234, name=python, GPU has fallen off the bus.",
    "undefined symbol: _ZN3c104cuda29c10_cuda_check_implementationEiPKcS2_jb",
    "nvidia-cublas-cu12==12.4.5.8, nvidia-curand-cu12==10.3.5.147, nvidia-cufft-cu12 11.2.1.3",
    "cuda_126_py312h9a1c4e3_204 py3.11_cuda12.4_cudnn9.1.0_0 pytorch-2.5.1-cuda124py311h5aa0d8f_303",
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has 3.81 GiB",
    "ERROR: Could not find a version that satisfies the requirement torch==2.5.1+cu124",
    "ImportError: libcudnn.so.9: cannot open shared object file: No such file or directory",
    "RuntimeError: CUDA error: no kernel image is available for execution on the device",
    'File "/opt/conda/lib/python3.11/site-packages/torch/cuda/__init__.py", line 310, in _lazy_init',
    "10:23:45.678901 rank0: ncclSystemError: System call (e.g. socket, malloc) failed",
    "Windows 10.0.26100, driver 581.29 (31.0.15.8129)",
    "torch.nn.functional, torchvision.io, scipy.io, numpy.core.multiarray failed to import",
    "CUDA_VISIBLE_DEVICES=0,1 NVIDIA_DRIVER_CAPABILITIES=compute,utility OMP_NUM_THREADS=8",
    "max_tokens: 4096, tokenizer=fast, num_key_value_heads: 8, author of torch",
    "manylinux_2_28_x86_64 sm_90a compute_120 gfx1100 cp313t",
    "0000:65:00.0, NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01",
    "http://127.0.0.1:8080/whl, nvidia-cudnn-cu12 9.10.2.21, cuBLAS 10.3.9",
)
"""What a record needs, and what says nothing of anybody."""
