"""CUDA's errors with their codes, names and messages.

Sources: cuda.h, driver_types.h, cudaGetErrorString of CUDA 8 to 13.
"""

from __future__ import annotations

ERRORS: tuple[tuple[int, str, tuple[str, ...]], ...] = (
    (2, "cudaErrorMemoryAllocation", ("out of memory",)),
    (3, "cudaErrorInitializationError", ("cuda driver initialization failed", "cuda_error_not_initialized", "initialize cuda: initialization error", "cuda error: initialization error")),
    (9, "cudaErrorInvalidConfiguration", ("cuda error: invalid configuration argument",)),
    (34, "cudaErrorStubLibrary", ("cuda driver is a stub library", "cuda_error_stub_library")),
    (35, "cudaErrorInsufficientDriver", ("driver version is insufficient for",)),
    (36, "cudaErrorCallRequiresNewerDriver", ("api call is not supported in the installed cuda driver",)),
    (46, "cudaErrorDevicesUnavailable", ("device(s) is/are busy or unavailable", "devices are busy or unavailable")),
    (100, "cudaErrorNoDevice", ("no cuda-capable device is detected", "cuda_error_no_device", "no nvidia devices detected by library")),
    (101, "cudaErrorInvalidDevice", ("invalid device ordinal", "cuda_error_invalid_device")),
    (102, "cudaErrorDeviceNotLicensed", ("valid grid license", "cuda_error_device_not_licensed")),
    (200, "cudaErrorInvalidKernelImage", ("device kernel image is invalid",)),
    (209, "cudaErrorNoKernelImageForDevice", ("no kernel image is available",)),
    (214, "cudaErrorECCUncorrectable", ("uncorrectable ecc error encountered", "cuda_error_ecc_uncorrectable")),
    (201, "cudaErrorDeviceUninitialized", ()),
    (217, "cudaErrorPeerAccessUnsupported", ("peer access is not supported",)),
    (218, "cudaErrorInvalidPtx", ("ptx jit compilation failed", "cuda_error_invalid_ptx")),
    (220, "cudaErrorNvlinkUncorrectable", ("uncorrectable nvlink error",)),
    (222, "cudaErrorUnsupportedPtxVersion", ("compiled with an unsupported toolchain",)),
    (221, "cudaErrorJitCompilerNotFound", ("ptx jit compiler library not found", "cuda_error_jit_compiler_not_found")),
    (304, "cudaErrorOperatingSystem", ("os call failed or operation not supported", "cuda_error_operating_system")),
    (500, "cudaErrorSymbolNotFound", ("cuda_error_not_found",)),
    (700, "cudaErrorIllegalAddress", ("illegal memory access was encountered", "cuda_error_illegal_address")),
    (701, "cudaErrorLaunchOutOfResources", ("too many resources requested for launch", "cuda_error_launch_out_of_resources")),
    (702, "cudaErrorLaunchTimeout", ("launch timed out and was terminated", "cuda_error_launch_timeout")),
    (710, "cudaErrorAssert", ("device-side assert triggered", "cuda_error_assert")),
    (715, "cudaErrorIllegalInstruction", ("illegal instruction was encountered", "cuda_error_illegal_instruction")),
    (716, "cudaErrorMisalignedAddress", ("misaligned address", "cuda_error_misaligned_address")),
    (718, "cudaErrorInvalidPc", ("cuda_error_invalid_pc",)),
    (719, "cudaErrorLaunchFailure", ("unspecified launch failure", "cuda_error_launch_failed")),
    (800, "cudaErrorNotPermitted", ("cuda_error_not_permitted",)),
    (801, "cudaErrorNotSupported", ("device context 801", "cuda_error_not_supported")),
    (802, "cudaErrorSystemNotReady", ("system not yet initialized", "cuda_error_system_not_ready")),
    (803, "cudaErrorSystemDriverMismatch", ("system has unsupported display driver", "cuda_error_system_driver_mismatch")),
    (804, "cudaErrorCompatNotSupportedOnDevice", ("forward compatibility was attempted", "cuda_error_compat_not_supported")),
    (805, "cudaErrorMpsConnectionFailed", ("mps client failed to connect", "cuda_error_mps_connection_failed")),
    (806, "cudaErrorMpsRpcFailure", ("between the mps server and the mps client", "cuda_error_mps_rpc_failure")),
    (807, "cudaErrorMpsServerNotReady", ("mps server is not ready", "cuda_error_mps_server_not_ready")),
    (808, "cudaErrorMpsMaxClientsReached", ("cuda_error_mps_max_clients",)),
    (809, "cudaErrorMpsMaxConnectionsReached", ("cuda_error_mps_max_connections",)),
    (999, "cudaErrorUnknown", ("cuda unknown error", "cuda_error_unknown", "cudaerrorunknown", "initialize cuda: unknown error", "cuda failed with error unknown error")),
)  # fmt: skip
"""An error's code, its name, and lower-case texts for it: the message of cudaGetErrorString and the
names in cuda.h."""

BY_PROGRAMS = (700, 701, 702, 710, 715, 716, 718, 719)
"""Errors that a program's own kernels cause. The kernels ran, so the driver and CUDA work. Other
programs use the same numbers, so a bare number does not prove such an error."""

OLD_CODES = {
    59: 710, 74: 716, 77: 700, 8: 209, 63: 304, 30: 999, 38: 100, 10: 101, 71: 801, 48: 209, 39:
    214,
}  # fmt: skip
"""A code of the CUDA runtime before 10.1 -> the code that it has today."""

STARTING = (
    2, 3, 34, 36, 46, 100, 101, 102, 214, 304, 500, 801, 802, 803, 804, 805, 806, 807, 808, 809,
    999,
)  # fmt: skip
"""The errors with which CUDA fails to start (`cuda_api.init_code`)."""
