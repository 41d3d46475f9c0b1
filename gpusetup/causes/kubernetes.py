"""What Kubernetes says when it gives no GPU."""

from __future__ import annotations

from gpusetup.causes.record import Cause
from gpusetup.messages.row import any_of, says

CAUSES = (
    Cause(
        "k8s-gpu-not-allocatable",
        title="Kubernetes has no free nvidia.com/gpu to give",
        means="No node offers one (the device plugin does not run, the runtime or the driver "
        "is missing, the GPU is unhealthy), taints keep the pod away, or other pods hold them "
        "all.",
        text="Check what the nodes offer and which pods hold it; the node needs the device plugin "
        "and the runtime nvidia",
        proven_by="The scheduler or the kubelet says so",
        not_when="container-no-gpu: the pod runs and asked for no GPU",
        source="Kubernetes documentation, schedule GPUs; NVIDIA k8s-device-plugin",
        look=(
            "kubectl describe nodes | grep -A 8 -E 'Allocatable|Allocated'",
            "kubectl get pods -A -o wide | grep -i nvidia",
        ),
        see="check what the nodes offer, and whether the plugin runs",
        says=(
            says(
                "nvidia.com/gpu",
                r"\bnvidia\.com/gpu\b\W{0,3} (?:resources? )?(?:is ?|are ?|was ?)?(?:not|n't|never) (?:\w+ )?(?:visible|available|listed|shown|found|there|advertised|present|detected|exposed|registered)\b"
                r"|(?:无法|不能|没有|未能?|找不到|看不到|缺少)[^\n。，,]{0,12}nvidia\.com/gpu",
                unless=r"\b(?:if|when|in case|whether|make sure|until|unless)\b|如果|若",
            ),
            any_of(
                {
                    "waiting for nvidia-smi": "",
                    "insufficient nvidia.com/gpu": "",
                    "insufficient": r"\d+ Insufficient nvidia\.com/(?P<asked>[\w.-]+)",
                    "nvidia.com/gpu": r"Allocate failed due to .{0,80}nvidia\.com/gpu",
                    "no devices found. waiting indefinitely": "",
                    "nvidia": r"(?P<pod>nvidia-(?:device-plugin|container-toolkit|driver|operator-validator)[\w-]*) \d{1,2}/\d{1,2} (?:CrashLoopBackOff|Error|ImagePullBackOff|ErrImagePull|Init:\S{1,24}|ContainerCreating|Pending)\b",
                },
            ),
            says("nvidia.com/gpu", r"untolerated taint \W{0,2}nvidia\.com/gpu"),
            says("nvidia.com/gpu", r"exceeded quota.{0,200}nvidia\.com/gpu"),
            *(
                says("pending", pattern, unless=r"image pull|ImagePull|volume")
                for pattern in (
                    r"\bnvidia\.com/gpu\b.{0,400}?\b(?:stays?|stuck|remains?|always) (?:in (?:the |a )?)?[`'\"]?pending\b",
                    r"\bGPU.{0,160}?\bpods?\b.{0,200}?\b(?:stays?|stuck|remains?|always) (?:in (?:the |a )?)?[`'\"]?pending\b",
                )
            ),
            says("nvidia.com/gpu", r"\bnvidia\.com/gpu\"?: \"?0\b(?![.\d])"),
            says(
                "nvidia.com/gpu",
                r"\b(?:does not|doesn't|do not|not|no longer|never) (?:advertis|list|expos|report|regist|show)\w{0,5} (?:any |the )?(?:resource )?`?nvidia\.com/gpu\b",
                unless=r"\b(?:if|when|whether|until)\b",
            ),
            says(
                "allocatable",
                r"\bno (?:GPUs? (?:are|is|were) allocatable|allocatable GPUs?)\b",
                unless=r"\bif no\b",
            ),
        ),
        examples=(
            "Allocate failed due to no healthy devices present; cannot allocate unhealthy devices nvidia.com/gpu, which is unexpected",
            "0/5 nodes are available: 1 node(s) had untolerated taint {nvidia.com/gpu: true}",
            'pods "train" is forbidden: exceeded quota: team, requested: requests.nvidia.com/gpu=2, used: 4, limited: 4',
            "I main.go: No devices found. Waiting indefinitely.",
            "Allocatable:\n  cpu: 8\n  nvidia.com/gpu:     0",
            "nvidia-device-plugin-daemonset-gx2 0/1 CrashLoopBackOff 14 (3m ago) 52m",
            "waiting for nvidia-smi",
            "I set `nvidia.com/gpu: 1` in the yaml. However the pod stays in the pending state",
            "`nvidia.com/gpu` is not listed among the node's resources",
            "the node does not advertise nvidia.com/gpu",
            "the validation logs suggest that no GPUs are allocatable",
        ),
        not_examples=(
            "Allocatable:\n  nvidia.com/gpu:     8",
            "nvidia-device-plugin-daemonset-gx2 1/1 Running 0 5d",
            "the pending pull requests of a GPU pod",
        ),
    ),
)
