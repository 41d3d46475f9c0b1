"""Texts with something private in them: what stands there, and what of it must not be shared.

The secrets are made up. Tokens are put together from two halves, so that no scanner of a repository
takes a row for a leak.
"""

from __future__ import annotations

RANDOM = "q7Rt2mXa9LpZ4kVe8sWb3nYc"
LOWER = "q7rt2mxa9lpz4kve8swb3nyc"
HEX = "9f86d081884c7d659a2feaa0c55ad015"


def token(prefix: str, tail: str = RANDOM) -> tuple[str, str]:
    """A token in a sentence, and what must not be seen of it."""
    return f"read {prefix + tail} from the environment", tail


TOKENS = (
    token("ghp_", RANDOM + RANDOM[:12]),
    token("gho_", RANDOM),
    token("github_pat_", "11ABCDEFG0" + RANDOM),
    token("glpat-", RANDOM),
    token("gldt-", RANDOM),
    token("hf_", RANDOM + "abcdefgh"),
    token("sk-proj-", RANDOM),
    token("sk-ant-api03-", RANDOM),
    token("sk_live_", RANDOM),
    token("rk_live_", RANDOM),
    token("whsec_", RANDOM),
    token("SG.", f"{RANDOM[:22]}.{RANDOM}{RANDOM}"),
    token("xoxb-", f"123456789012-123456789012-{RANDOM}"),
    token("xapp-1-", RANDOM),
    token("https://hooks.slack.com/services/T0000000/B0000000/", RANDOM),
    token("https://discord.com/api/webhooks/123456789/", RANDOM),
    token("dckr_pat_", RANDOM),
    token("npm_", RANDOM),
    token("pypi-AgEIcHlwaS5vcmc", RANDOM),
    token("AKIA", "QZXW1234ABCD5678"),
    token("ASIA", "QZXW1234ABCD5678"),
    token("AIza", RANDOM + "12345678901"),
    token("ya29.", RANDOM),
    token("dop_v1_", HEX + HEX),
    token("dapi", HEX),
    token("hvs.", RANDOM),
    token("wandb_v1_", RANDOM),
    ("wandb: using key " + HEX + HEX[:8], HEX[:12]),
    token("r8_", RANDOM),
    token("gsk_", RANDOM),
    token("nvapi-", RANDOM),
    token("lin_api_", RANDOM),
    token("tskey-auth-", RANDOM),
    token("eyJhbGciOiJIUzI1NiJ9.", f"eyJzdWIiOiIxMjM0NTY3.{RANDOM}"),
    token("AGE-SECRET-KEY-1", RANDOM.upper()),
    token("$6$rounds=5000$", RANDOM),
    token("SHA256:", RANDOM + RANDOM),
    (f"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5{RANDOM} wilhelmina@tower", "wilhelmina"),
    (f"ssh-rsa AAAAB3NzaC1yc2E{RANDOM}== key of wilhelmina", "wilhelmina"),
    (f"-----BEGIN RSA PRIVATE KEY-----\n{RANDOM}\n-----END RSA PRIVATE KEY-----", RANDOM),
    (f"key drawn by lot: {RANDOM}", RANDOM),
)  # fmt: skip

WORDS = (
    ("AccountKey=" + RANDOM + "==;EndpointSuffix=core.windows.net", RANDOM),
    ("https://acme.blob.core.windows.net/c/f?sv=2024-01-01&sig=" + RANDOM, RANDOM),
    ("mysql --password sesame-open", "sesame-open"),
    ("tool --api-key sesame-open run", "sesame-open"),
    ('db_password = "open sesame now"', "open sesame now"),
    ("password: 'open sesame now'", "open sesame now"),
    ("PGPASSWORD=sesame psql", "sesame"),
    ("the password is sesame7", "sesame7"),
    ('"client_secret": "sesame"', "sesame"),
    ("Authorization: token sesame1234", "sesame1234"),
    ("Cookie: session=sesame; theme=dark", "sesame"),
    ("Bearer sesame.1234567", "sesame.1234567"),
    ("curl -u wilhelmina:sesame https://x.example", "wilhelmina:sesame"),
    ("docker login -u wilhelmina -p sesame", "sesame"),
    ("machine x.example login wilhelmina password sesame", "sesame"),
    ("machine x.example login wilhelmina password sesame", "wilhelmina"),
    ("//registry.example/:_authToken=sesame1", "sesame1"),
    ("GPU Serial Number : 1320220012345", "1320220012345"),
    ("serial: 0324018045123", "0324018045123"),
)

HOMES = (
    ("/home/wilhelmina/x", "wilhelmina"),
    ("/home/physics/wilhelmina/x", "wilhelmina"),
    ("/home/w/wilhelmina/x", "wilhelmina"),
    ("/homes/wilhelmina/x", "wilhelmina"),
    ("/home2/wilhelmina/x", "wilhelmina"),
    ("/data/users/wilhelmina/x", "wilhelmina"),
    ("/data/home/wilhelmina/x", "wilhelmina"),
    ("/data/wilhelmina/x", "wilhelmina"),
    ("/scratch/wilhelmina/x", "wilhelmina"),
    ("/gscratch/lab/wilhelmina/x", "wilhelmina"),
    ("/lustre/scratch/wilhelmina/x", "wilhelmina"),
    ("/gpfs/work/wilhelmina/x", "wilhelmina"),
    ("/nfs/homes/wilhelmina/x", "wilhelmina"),
    ("/mnt/beegfs/wilhelmina/x", "wilhelmina"),
    ("/afs/uni.example/user/w/wilhelmina/x", "wilhelmina"),
    ("/u/wilhelmina/x", "wilhelmina"),
    ("/u/w/wilhelmina/x", "wilhelmina"),
    ("/export/home/wilhelmina/x", "wilhelmina"),
    ("/var/home/wilhelmina/x", "wilhelmina"),
    ("/projects/wilhelmina/x", "wilhelmina"),
    ("/media/wilhelmina/disk/x", "wilhelmina"),
    ("/run/media/wilhelmina/disk", "wilhelmina"),
    ("/mnt/c/Users/wilhelmina/x", "wilhelmina"),
    ("/Volumes/Wilhelminas Disk/x", "Wilhelminas"),
    ("/private/tmp x; ~wilhelmina/x", "wilhelmina"),
    ("C:\\Users\\wilhelmina\\x", "wilhelmina"),
    ("C:/Users/wilhelmina/x", "wilhelmina"),
    ("C:\\Users\\Wilhelmina Van Dyck\\x", "Dyck"),
    ("c:\\documents and settings\\wilhelmina\\x", "wilhelmina"),
    ("\\\\wsl.localhost\\Ubuntu\\home\\wilhelmina\\x", "wilhelmina"),
    ("\\\\wsl$\\Debian\\home\\wilhelmina\\x", "wilhelmina"),
    ("D:\\wilhelmina\\code\\.venv", "wilhelmina"),
    ("E:/wilhelmina/code/.venv", "wilhelmina"),
    ("file:///home/wilhelmina/wheels", "wilhelmina"),
    ("file:///C:/Users/wilhelmina/wheels", "wilhelmina"),
    ("~/secret-client/.venv/bin/python", "secret-client"),
    ("PATH=/usr/bin:/home/wilhelmina/bin:/bin", "wilhelmina"),
    ("prefix=/srv/people/wilhelmina", "wilhelmina"),
)

NETWORK = (
    ("https://wilhelmina:sesame@pypi.acme.example/simple", "sesame"),
    ("https://wilhelmina:se@sa/me@pypi.acme.example/simple", "acme"),
    ("https://pypi.acme.example/team-zebra/simple", "zebra"),
    ("https://pypi.acme.example/t/" + LOWER + "/simple", LOWER),
    ("http://proxy.acme.example:3128", "acme"),
    ("proxy.acme.example:3128", "acme"),
    ("gpu-07.zebra.corp refused", "zebra"),
    ("node zebra042:29500 timed out", "zebra042"),
    ("ssh zebra042 nvidia-smi", "zebra042"),
    ("hostname: zebra", "zebra"),
    ("MASTER_ADDR=zebra042", "zebra042"),
    ("\\\\zebra\\share\\x", "zebra"),
    ("SLURM_JOB_USER=wilhelmina", "wilhelmina"),
    ("SLURM_JOB_NODELIST=zebra[01-04]", "zebra"),
    ("SLURMD_NODENAME=zebra01", "zebra"),
    ("SLURM_JOB_ACCOUNT=zebra-lab", "zebra"),
    ("Nov 20 05:00:00 zebra kernel: NVRM: Xid", "zebra"),
    ("[zebra-7.lab.internal]:29500", "zebra"),
    ("(zebra.lab.uni.example, 29500)", "zebra"),
    ("at 10.20.30.40 now", "10.20.30.40"),
    ("10.20.30.0/24", "10.20.30"),
    ("reach 203.0.113.7:443", "203.0.113.7"),
    ("peer 198.51.100.23 closed", "198.51.100.23"),
    ("fe80::1c2d:3e4f:5a6b:7c8d%eth0", "3e4f"),
    ("2001:db8:85a3::8a2e:370:7334", "85a3"),
    ("[2001:db8:85a3:0:0:8a2e:370:7334]:29500", "85a3"),
    ("0c:42:a1:5b:33:f0", "5b:33"),
    ("0C-42-A1-5B-33-F0", "5B-33"),
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
    ("no_proxy", "zebra,127.0.0.1", "zebra"),
    ("HTTPS_PROXY", "http://wilhelmina:sesame@zebra:3128", "zebra"),
    ("HTTPS_PROXY", "http://wilhelmina:sesame@zebra:3128", "sesame"),
    ("http_proxy", "zebra:3128", "zebra"),
    ("PIP_TRUSTED_HOST", "zebra", "zebra"),
    ("PIP_INDEX_URL", "https://u:sesame@zebra.example/root/pypi/+simple/", "sesame"),
    ("PIP_EXTRA_INDEX_URL", "https://zebra.example/simple", "zebra"),
    ("UV_INDEX", "corp=https://zebra.example/simple", "zebra"),
    ("LD_LIBRARY_PATH", "/data/wilhelmina/lib:/usr/lib", "wilhelmina"),
    ("VIRTUAL_ENV", "/work/groups/zebra/wilhelmina/venv", "wilhelmina"),
    ("NCCL_SOCKET_IFNAME", "=10.1.2.3", "10.1.2.3"),
    ("TORCH_HOME", "/fsx/wilhelmina/cache", "wilhelmina"),
)
"""(name, value, what must not be shared)."""

STAYS = (
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
)
"""What a record needs, and what says nothing of anybody."""
