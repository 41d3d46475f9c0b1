"""What NVIDIA's GPUs are called that only the PCI bus speaks of.

Source: the table of supported GPUs in the README of NVIDIA's open kernel modules (Turing to Ada;
the name that most boards of an id have), the PCI ID repository (the others).
"""

from __future__ import annotations

from functools import cache

NAMES = """
1023 Tesla K40m; 102d Tesla K80; 13c0 GeForce GTX 980; 13c2 GeForce GTX 970
1401 GeForce GTX 960; 17c8 GeForce GTX 980 Ti; 1b82 GeForce GTX 1070 Ti; 1bb3 Tesla P4
1c02 GeForce GTX 1060 3GB; 1c81 GeForce GTX 1050; 1c82 GeForce GTX 1050 Ti; 1d81 TITAN V
1db5 Tesla V100-SXM2-32GB; 1db6 Tesla V100-PCIE-32GB; 1e04 GeForce RTX 2080 Ti
1e07 GeForce RTX 2080 Ti
15f8 Tesla P100-PCIE-16GB; 1b06 GeForce GTX 1080 Ti; 1b38 Tesla P40; 1b80 GeForce GTX 1080
1b81 GeForce GTX 1070; 1c03 GeForce GTX 1060 6GB; 1db1 Tesla V100-SXM2-16GB
1db4 Tesla V100-PCIE-16GB; 1eb8 Tesla T4
1e82 GeForce RTX 2080; 1e84 GeForce RTX 2070 SUPER; 1e87 GeForce RTX 2080; 1e89 GeForce RTX 2060
1eb0 Quadro RTX 5000; 1eb1 Quadro RTX 4000; 1ec2 GeForce RTX 2070 SUPER
1ec7 GeForce RTX 2070 SUPER; 1f02 GeForce RTX 2070; 1f03 GeForce RTX 2060
1f06 GeForce RTX 2060 SUPER; 1f07 GeForce RTX 2070; 1f08 GeForce RTX 2060; 1f11 GeForce RTX 2060
2182 GeForce GTX 1660 Ti; 2184 GeForce GTX 1660; 2187 GeForce GTX 1650 SUPER
2188 GeForce GTX 1650; 2192 GeForce GTX 1650 Ti; 21c4 GeForce GTX 1660 SUPER
20b0 A100-SXM4-40GB; 20b2 A100-SXM4-80GB; 20b3 A100-SXM-64GB; 20b5 A100 80GB PCIe; 20b7 A30
20bd A800-SXM4-40GB; 20f1 A100-PCIE-40GB; 20f3 A800-SXM4-80GB; 20f6 A800 40GB Active
2203 GeForce RTX 3090 Ti; 2204 GeForce RTX 3090; 2206 GeForce RTX 3080
2207 GeForce RTX 3070 Ti; 2208 GeForce RTX 3080 Ti; 220a GeForce RTX 3080; 2216 GeForce RTX 3080
2230 RTX A6000; 2231 RTX A5000; 2232 RTX A4500; 2233 RTX A5500; 2235 A40; 2236 A10; 2237 A10G
2321 H100 NVL; 2322 H800 PCIe; 2324 H800; 2329 H20; 232c H20-3e; 2330 H100 80GB HBM3
2331 H100 PCIe; 2335 H200; 233a H800 NVL; 2342 GH200 480GB; 2414 GeForce RTX 3060 Ti
2420 GeForce RTX 3080 Ti Laptop GPU; 2460 GeForce RTX 3080 Ti Laptop GPU
2482 GeForce RTX 3070 Ti; 2484 GeForce RTX 3070; 2486 GeForce RTX 3060 Ti
2487 GeForce RTX 3060; 2488 GeForce RTX 3070; 2489 GeForce RTX 3060 Ti
249c GeForce RTX 3080 Laptop GPU; 249d GeForce RTX 3070 Laptop GPU
24a0 GeForce RTX 3070 Ti Laptop GPU; 24b0 RTX A4000; 24b6 RTX A5000 Laptop GPU
24b7 RTX A4000 Laptop GPU; 24c7 GeForce RTX 3060; 24c9 GeForce RTX 3060 Ti
24dc GeForce RTX 3080 Laptop GPU; 24dd GeForce RTX 3070 Laptop GPU
24e0 GeForce RTX 3070 Ti Laptop GPU; 2503 GeForce RTX 3060; 2504 GeForce RTX 3060
2507 GeForce RTX 3050; 2520 GeForce RTX 3060 Laptop GPU; 2521 GeForce RTX 3060 Laptop GPU
2523 GeForce RTX 3050 Ti Laptop GPU; 2531 RTX A2000; 2544 GeForce RTX 3060
2560 GeForce RTX 3060 Laptop GPU; 2563 GeForce RTX 3050 Ti Laptop GPU; 2571 RTX A2000 12GB
2582 GeForce RTX 3050; 2584 GeForce RTX 3050; 25a0 GeForce RTX 3050 Ti Laptop GPU
25a2 GeForce RTX 3050 Laptop GPU; 25a5 GeForce RTX 3050 Laptop GPU; 25a7 GeForce RTX 2050
25a9 GeForce RTX 2050; 25ab GeForce RTX 3050 4GB Laptop GPU
25ac GeForce RTX 3050 6GB Laptop GPU; 25b8 RTX A2000 Laptop GPU; 25b9 RTX A1000 Laptop GPU
25e0 GeForce RTX 3050 Ti Laptop GPU; 25e2 GeForce RTX 3050 Laptop GPU
25e5 GeForce RTX 3050 Laptop GPU; 25ec GeForce RTX 3050 6GB Laptop GPU
2684 GeForce RTX 4090; 2685 GeForce RTX 4090 D; 26b1 RTX 6000 Ada Generation
26b2 RTX 5000 Ada Generation; 26b3 RTX 5880 Ada Generation; 26b5 L40; 26b9 L40S; 26ba L20
2702 GeForce RTX 4080 SUPER; 2704 GeForce RTX 4080; 2705 GeForce RTX 4070 Ti SUPER
2709 GeForce RTX 4070; 2717 GeForce RTX 4090 Laptop GPU; 2757 GeForce RTX 4090 Laptop GPU
2782 GeForce RTX 4070 Ti; 2783 GeForce RTX 4070 SUPER; 2786 GeForce RTX 4070
2788 GeForce RTX 4060 Ti; 27a0 GeForce RTX 4080 Laptop GPU; 27b0 RTX 4000 SFF Ada Generation
27b1 RTX 4500 Ada Generation; 27b2 RTX 4000 Ada Generation; 27b6 L2; 27b8 L4
27e0 GeForce RTX 4080 Laptop GPU; 2803 GeForce RTX 4060 Ti; 2805 GeForce RTX 4060 Ti
2808 GeForce RTX 4060; 2820 GeForce RTX 4070 Laptop GPU; 2860 GeForce RTX 4070 Laptop GPU
2882 GeForce RTX 4060; 28a0 GeForce RTX 4060 Laptop GPU; 28a1 GeForce RTX 4050 Laptop GPU
28b0 RTX 2000 Ada Generation; 28e0 GeForce RTX 4060 Laptop GPU
28e1 GeForce RTX 4050 Laptop GPU; 2901 B200; 2b85 GeForce RTX 5090; 2c02 GeForce RTX 5080
2bb1 RTX PRO 6000 Blackwell Workstation Edition; 2bb5 RTX PRO 6000 Blackwell Server Edition
2c05 GeForce RTX 5070 Ti; 2d04 GeForce RTX 5060 Ti; 2d05 GeForce RTX 5060; 2e12 GB10
2f04 GeForce RTX 5070
"""
WITHOUT_MAKER = ("Tesla", "Quadro")
"""Their names begin so; the others begin with NVIDIA."""


@cache
def _rows() -> dict[str, str]:
    rows = (row.strip().partition(" ") for row in NAMES.replace("\n", ";").split(";"))
    return {id: name for id, _, name in rows if id}


def board(device_id: str | None) -> str | None:
    """The name of an NVIDIA GPU by its PCI device id; None where the table has none.

    >>> board("2504"), board("1EB8"), board("ffff"), board(None)
    ('NVIDIA GeForce RTX 3060', 'Tesla T4', None, None)
    """
    name = _rows().get((device_id or "").lower())
    return name if not name or name.startswith(WITHOUT_MAKER) else f"NVIDIA {name}"
