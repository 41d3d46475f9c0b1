/* A stand-in of libnvidia-ml.so.1 whose machine is a state file. Only the calls that gpusetup
   makes are there; the signatures are those of NVML's public API reference. */
#include "state.h"

typedef int nvmlReturn_t;
typedef void *nvmlDevice_t;
enum { OK = 0, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, TOO_SMALL = 7, LOST = 15 };
enum { MIG_BASE = 1000 };

static long number_of(nvmlDevice_t device) { return (long)device; }
static long gpu_of(nvmlDevice_t device) {
    long number = number_of(device);
    return (number >= MIG_BASE ? number / MIG_BASE : number) - 1;
}

/* The text of a GPU's field, or the error that stands there. */
static nvmlReturn_t field(nvmlDevice_t device, const char *name, char *value) {
    char key[128];
    snprintf(key, sizeof key, "%ld.%s", gpu_of(device), name);
    if (!state_text(key, value)) return NOT_SUPPORTED;
    return value[0] == '!' ? atoi(value + 1) : OK;
}
static nvmlReturn_t number(nvmlDevice_t device, const char *name, unsigned int *value) {
    char text[TEXT];
    nvmlReturn_t code = field(device, name, text);
    if (code == OK) *value = (unsigned int)strtoul(text, NULL, 0);
    return code;
}
static nvmlReturn_t large(nvmlDevice_t device, const char *name, unsigned long long *value) {
    char text[TEXT];
    nvmlReturn_t code = field(device, name, text);
    if (code == OK) *value = strtoull(text, NULL, 0);
    return code;
}
static nvmlReturn_t copied(nvmlDevice_t device, const char *name, char *out, unsigned int size) {
    char text[TEXT];
    nvmlReturn_t code = field(device, name, text);
    if (code == OK) snprintf(out, size, "%s", text);
    return code;
}
static nvmlReturn_t system_text(const char *key, char *out, unsigned int size) {
    char text[TEXT];
    if (!state_text(key, text)) return NOT_SUPPORTED;
    if (text[0] == '!') return atoi(text + 1);
    snprintf(out, size, "%s", text);
    return OK;
}

EXPORT nvmlReturn_t nvmlInitWithFlags(unsigned int flags) {
    (void)flags;
    state_behave("nvml");
    return (nvmlReturn_t)state_number("nvml.init", OK);
}
EXPORT nvmlReturn_t nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
EXPORT nvmlReturn_t nvmlShutdown(void) { return OK; }
EXPORT const char *nvmlErrorString(nvmlReturn_t code) {
    switch (code) {
    case OK: return "Success";
    case INVALID: return "Invalid Argument";
    case NOT_SUPPORTED: return "Not Supported";
    case 4: return "Insufficient Permissions";
    case NOT_FOUND: return "Not Found";
    case 9: return "Driver Not Loaded";
    case 10: return "Timeout";
    case 12: return "NVML Shared Library Not Found";
    case LOST: return "GPU is lost";
    case 17: return "GPU access blocked by the operating system";
    case 18: return "Driver/library version mismatch";
    default: return "Unknown Error";
    }
}
EXPORT nvmlReturn_t nvmlSystemGetDriverVersion(char *out, unsigned int size) {
    return system_text("driver", out, size);
}
EXPORT nvmlReturn_t nvmlSystemGetNVMLVersion(char *out, unsigned int size) {
    return system_text("nvml.version", out, size);
}
EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version) {
    *version = (int)state_number("cuda.version", 0);
    return OK;
}
EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version) {
    return nvmlSystemGetCudaDriverVersion(version);
}
EXPORT nvmlReturn_t nvmlSystemGetProcessName(unsigned int pid, char *out, unsigned int size) {
    char key[64];
    snprintf(key, sizeof key, "process.%u", pid);
    return system_text(key, out, size);
}
EXPORT nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count) {
    char text[TEXT];
    if (state_text("devices", text) && text[0] == '!') return atoi(text + 1);
    *count = (unsigned int)state_number("devices", 0);
    return OK;
}
EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device) {
    unsigned int error = 0;
    if ((long long)index >= state_number("devices", 0)) return INVALID;
    *device = (nvmlDevice_t)((long)index + 1);
    return number(*device, "handle", &error) == NOT_SUPPORTED ? OK : (nvmlReturn_t)error;
}
static nvmlReturn_t by_text(const char *name, const char *wanted, nvmlDevice_t *device) {
    long count = (long)state_number("devices", 0), place;
    char text[TEXT];
    for (place = 1; place <= count; place++) {
        *device = (nvmlDevice_t)place;
        if (field(*device, name, text) == OK && strcmp(text, wanted) == 0) return OK;
    }
    return NOT_FOUND;
}
EXPORT nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device) {
    return by_text("uuid", uuid, device);
}
EXPORT nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *bus, nvmlDevice_t *device) {
    return by_text("bus", bus, device);
}
EXPORT nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *index) {
    *index = (unsigned int)gpu_of(device);
    return OK;
}
EXPORT nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *out, unsigned int size) {
    return copied(device, "name", out, size);
}
EXPORT nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *out, unsigned int size) {
    char name[64] = "uuid";
    if (number_of(device) >= MIG_BASE)
        snprintf(name, sizeof name, "mig.%ld", number_of(device) % MIG_BASE);
    return copied(device, name, out, size);
}
typedef struct {
    char legacy[16];
    unsigned int domain, bus, device, id, subsystem;
    char bus_id[32];
} pci_t;
EXPORT nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, pci_t *pci) {
    memset(pci, 0, sizeof *pci);
    return copied(device, "bus", pci->bus_id, sizeof pci->bus_id);
}
typedef struct {
    unsigned long long total, free, used;
} memory_t;
EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, memory_t *memory) {
    nvmlReturn_t code = large(device, "memory", &memory->total);
    if (code == OK) code = large(device, "memory_used", &memory->used);
    memory->free = memory->total - memory->used;
    return code;
}
typedef struct {
    unsigned int version;
    unsigned long long total, reserved, free, used;
} memory_v2_t;
/* `memory_reserved` is what the driver keeps for itself; without it this is a driver before 510. */
EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, memory_v2_t *memory) {
    memory_t whole;
    nvmlReturn_t code = large(device, "memory_reserved", &memory->reserved);
    if (code == OK) code = nvmlDeviceGetMemoryInfo(device, &whole);
    if (code != OK) return code;
    memory->total = whole.total;
    memory->free = whole.free;
    memory->used = whole.used - memory->reserved;
    return code;
}
EXPORT nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor) {
    unsigned int sm = 0;
    nvmlReturn_t code = number(device, "sm", &sm);
    *major = (int)sm / 10;
    *minor = (int)sm % 10;
    return code;
}

/* Fields that are one number. */
#define NUMBER(call, name) \
    EXPORT nvmlReturn_t call(nvmlDevice_t device, unsigned int *value) { \
        return number(device, name, value); \
    }
NUMBER(nvmlDeviceGetPersistenceMode, "persistence")
NUMBER(nvmlDeviceGetComputeMode, "compute_mode")
NUMBER(nvmlDeviceGetRetiredPagesPendingStatus, "retired_pending")
NUMBER(nvmlDeviceGetPowerUsage, "power_mw")
NUMBER(nvmlDeviceGetEnforcedPowerLimit, "power_limit_mw")
NUMBER(nvmlDeviceGetPowerManagementLimit, "power_limit_mw")
NUMBER(nvmlDeviceGetCurrPcieLinkGeneration, "pcie_gen")
NUMBER(nvmlDeviceGetMaxPcieLinkGeneration, "pcie_gen_max")
NUMBER(nvmlDeviceGetCurrPcieLinkWidth, "pcie_width")
NUMBER(nvmlDeviceGetMaxPcieLinkWidth, "pcie_width_max")
NUMBER(nvmlDeviceGetDisplayActive, "display_active")
NUMBER(nvmlDeviceGetVirtualizationMode, "virtualization")
NUMBER(nvmlDeviceGetMaxMigDeviceCount, "mig_max")
NUMBER(nvmlDeviceGetFanSpeed, "fan")
NUMBER(nvmlDeviceGetPerformanceState, "pstate")
NUMBER(nvmlDeviceGetMinorNumber, "minor")

EXPORT nvmlReturn_t nvmlDeviceGetDriverModel_v2(nvmlDevice_t device, unsigned int *now, unsigned int *next) {
    nvmlReturn_t code = number(device, "driver_model", now);
    *next = *now;
    return code;
}

EXPORT nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *now, unsigned int *next) {
    nvmlReturn_t code = number(device, "mig_mode", now);
    *next = *now;
    number(device, "mig_next", next);
    return code;
}
EXPORT nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned int index,
                                                         nvmlDevice_t *child) {
    char key[64], text[TEXT];
    snprintf(key, sizeof key, "mig.%u", index);
    *child = (nvmlDevice_t)(number_of(device) * MIG_BASE + (long)index);
    return field(device, key, text) == OK ? OK : NOT_FOUND;
}
EXPORT nvmlReturn_t nvmlDeviceGetEccMode(nvmlDevice_t device, unsigned int *now, unsigned int *next) {
    nvmlReturn_t code = number(device, "ecc_mode", now);
    *next = *now;
    return code;
}
EXPORT nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, int kind, int counter,
                                                unsigned long long *count) {
    if (kind != 1) return large(device, "ecc_corrected", count);
    return large(device, counter == 0 ? "ecc_uncorrected" : "ecc_uncorrected_aggregate", count);
}
EXPORT nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t device, unsigned int *corrected,
                                              unsigned int *uncorrected, unsigned int *pending,
                                              unsigned int *failed) {
    *corrected = *uncorrected = 0;
    number(device, "remapped_rows", uncorrected);
    *pending = 0;
    number(device, "remap_pending", pending);
    return number(device, "remap_failed", failed);
}
EXPORT nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, int sensor, unsigned int *value) {
    return sensor == 0 ? number(device, "temperature", value) : INVALID;
}
EXPORT nvmlReturn_t nvmlDeviceGetTemperatureThreshold(nvmlDevice_t device, int which,
                                                      unsigned int *value) {
    return number(device, which == 0 ? "temperature_shutdown" : "temperature_slowdown", value);
}
typedef struct {
    unsigned int version, sensor;
    int temperature;
} temperature_t;
EXPORT nvmlReturn_t nvmlDeviceGetTemperatureV(nvmlDevice_t device, temperature_t *value) {
    return number(device, "temperature", (unsigned int *)&value->temperature);
}
/* `old_reasons=1`: a driver before 535, which has the older call only. */
EXPORT nvmlReturn_t nvmlDeviceGetCurrentClocksEventReasons(nvmlDevice_t device,
                                                           unsigned long long *mask) {
    return state_number("old_reasons", 0) ? 13 : large(device, "throttle", mask);
}
EXPORT nvmlReturn_t nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_t device,
                                                              unsigned long long *mask) {
    return large(device, "throttle", mask);
}
typedef struct {
    unsigned int gpu, memory;
} utilization_t;
EXPORT nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, utilization_t *rates) {
    nvmlReturn_t code = number(device, "utilization", &rates->gpu);
    rates->memory = 0;
    number(device, "utilization_memory", &rates->memory);
    return code;
}
static const char *CLOCKS[] = {"clock_graphics", "clock_sm", "clock_memory", "clock_video"};
EXPORT nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, unsigned int kind,
                                           unsigned int *mhz) {
    return kind < 4 ? number(device, CLOCKS[kind], mhz) : INVALID;
}
EXPORT nvmlReturn_t nvmlDeviceGetMaxClockInfo(nvmlDevice_t device, unsigned int kind,
                                              unsigned int *mhz) {
    char name[64];
    if (kind >= 4) return INVALID;
    snprintf(name, sizeof name, "%s_max", CLOCKS[kind]);
    return number(device, name, mhz);
}
EXPORT nvmlReturn_t nvmlDeviceGetTotalEnergyConsumption(nvmlDevice_t device,
                                                        unsigned long long *millijoules) {
    return large(device, "energy_mj", millijoules);
}
EXPORT nvmlReturn_t nvmlDeviceGetPcieThroughput(nvmlDevice_t device, int counter,
                                                unsigned int *kilobytes) {
    return number(device, counter == 0 ? "pcie_tx" : "pcie_rx", kilobytes);
}
typedef struct {
    unsigned int version;
    unsigned char cluster[16];
    int status;
    unsigned int clique;
    unsigned char state;
    unsigned int health;
} fabric_t;
EXPORT nvmlReturn_t nvmlDeviceGetGpuFabricInfoV(nvmlDevice_t device, fabric_t *fabric) {
    unsigned int state = 0;
    nvmlReturn_t code = number(device, "fabric", &state);
    fabric->state = (unsigned char)state;
    fabric->status = 0;
    fabric->health = 0;
    number(device, "fabric_status", (unsigned int *)&fabric->status);
    return code;
}
/* `0.processes=4711:1073741824,4712:5`: pid and bytes. */
typedef struct {
    unsigned int pid;
    unsigned long long bytes;
    unsigned int gpu_instance, compute_instance;
} process_t;
static nvmlReturn_t processes(nvmlDevice_t device, const char *name, unsigned int *count,
                              process_t *out) {
    char text[TEXT], *part, *rest;
    unsigned int room = *count, found = 0;
    nvmlReturn_t code = field(device, name, text);
    *count = 0;
    if (code != OK) return code == NOT_SUPPORTED ? OK : code;
    for (part = strtok_r(text, ",", &rest); part; part = strtok_r(NULL, ",", &rest), found++) {
        char *bytes = strchr(part, ':');
        if (!out || found >= room) continue;
        out[found].pid = (unsigned int)strtoul(part, NULL, 10);
        out[found].bytes = bytes ? strtoull(bytes + 1, NULL, 10) : 0;
        out[found].gpu_instance = out[found].compute_instance = 0xFFFFFFFFu;
    }
    *count = found;
    return found > room || (found && !out) ? TOO_SMALL : OK;
}
EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device,
                                                            unsigned int *count, process_t *out) {
    return processes(device, "processes", count, out);
}
EXPORT nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t device,
                                                             unsigned int *count, process_t *out) {
    return processes(device, "graphics_processes", count, out);
}

/* Events: `0.xid=79` is delivered once for each number that comes to stand there. */
typedef struct {
    nvmlDevice_t device;
    unsigned long long kind, data;
    unsigned int instance, compute_instance;
} event_t;
static nvmlDevice_t watched;
static unsigned long long delivered;
EXPORT nvmlReturn_t nvmlEventSetCreate(void **events) {
    *events = &watched;
    return OK;
}
EXPORT nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long kinds,
                                             void *events) {
    (void)kinds;
    (void)events;
    watched = device;
    return OK;
}
EXPORT nvmlReturn_t nvmlEventSetWait_v2(void *events, event_t *event, unsigned int wait_ms) {
    unsigned long long xid = 0;
    (void)events;
    (void)wait_ms;
    if (large(watched, "xid", &xid) != OK || xid == delivered) return 10;
    delivered = xid;
    event->device = watched;
    event->kind = 8;
    event->data = xid;
    return OK;
}

#include "health.c"

/* What other monitors ask, so that they are timed beside ours without their error paths. */
#define PAIR(call, first) \
    EXPORT nvmlReturn_t call(nvmlDevice_t device, unsigned int *value, unsigned int *period) { \
        *period = 0; \
        return number(device, first, value); \
    }
PAIR(nvmlDeviceGetEncoderUtilization, "encoder")
PAIR(nvmlDeviceGetDecoderUtilization, "decoder")
PAIR(nvmlDeviceGetDriverModel, "driver_model")
/* `0.process_use=4711:96,900:3`: pid and percent of the multiprocessors. */
typedef struct {
    unsigned int pid;
    unsigned long long stamp;
    unsigned int sm, memory, encoder, decoder;
} process_use_t;
EXPORT nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device, process_use_t *out,
                                                    unsigned int *count,
                                                    unsigned long long since) {
    char text[TEXT], *part, *rest;
    unsigned int room = *count, found = 0;
    *count = 0;
    if (field(device, "process_use", text) != OK) return NOT_FOUND;
    for (part = strtok_r(text, ",", &rest); part; part = strtok_r(NULL, ",", &rest), found++) {
        char *use = strchr(part, ':');
        if (!out || found >= room) continue;
        memset(&out[found], 0, sizeof *out);
        out[found].pid = (unsigned int)strtoul(part, NULL, 10);
        out[found].stamp = since + 1;
        out[found].sm = use ? (unsigned int)strtoul(use + 1, NULL, 10) : 0;
    }
    *count = found;
    return found > room || (found && !out) ? TOO_SMALL : OK;
}
