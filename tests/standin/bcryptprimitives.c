/* A library of Windows 10 that Wine 8 lacks: Rust's programs, uv among them, ask it for random bytes. */
#include <windows.h>
#include <ntsecapi.h>

__declspec(dllexport) BOOL WINAPI ProcessPrng(PBYTE data, SIZE_T length) {
    return RtlGenRandom(data, (ULONG)length);
}
