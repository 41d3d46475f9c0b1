/* A stand-in of libcuda.so.1 whose machine is a state file (see state.h). The signatures are those
   of the public CUDA driver API reference. */
#include "state.h"

enum { SUCCESS = 0, INVALID_VALUE = 1, NOT_INITIALIZED = 3, INVALID_DEVICE = 101, UNKNOWN = 999 };
static int initialised = 0;

/* `0.cuda.name` where CUDA is to say something else than NVML; what NVML's own field does or fails
   with is not done here. */
static int text_of(int device, const char *name, char *value) {
    char key[128];
    snprintf(key, sizeof key, "%d.cuda.%s", device, name);
    if (state_text(key, value)) return value[0] == '!' ? atoi(value + 1) : SUCCESS;
    snprintf(key, sizeof key, "%d.%s", device, name);
    if (!state_find(key, value)) return INVALID_VALUE;
    return value[0] == '!' || value[0] == '@' ? UNKNOWN : SUCCESS;
}

/* `cuda.devices` where CUDA sees other GPUs than NVML; `cuda.order=1,0` gives their order. */
static int count(void) {
    return (int)state_number("cuda.devices", state_number("devices", 0));
}
static int nvml_place(int ordinal) {
    char text[TEXT], *part, *rest;
    if (!state_text("cuda.order", text)) return ordinal;
    for (part = strtok_r(text, ",", &rest); part && ordinal; ordinal--)
        part = strtok_r(NULL, ",", &rest);
    return part ? atoi(part) : 0;
}

EXPORT int cuInit(unsigned int flags) {
    int code;
    (void)flags;
    state_behave("cuda");
    code = (int)state_number("cuda.init", SUCCESS);
    initialised = code == SUCCESS;
    return code;
}
EXPORT int cuDriverGetVersion(int *version) {
    *version = (int)state_number("cuda.version", 0);
    return SUCCESS;
}
EXPORT int cuDeviceGetCount(int *number) {
    char text[TEXT];
    if (state_text("cuda.devices", text) && text[0] == '!') return atoi(text + 1);
    *number = count();
    return initialised ? SUCCESS : NOT_INITIALIZED;
}
EXPORT int cuDeviceGet(int *device, int ordinal) {
    char text[TEXT];
    *device = nvml_place(ordinal);
    if (text_of(*device, "handle", text) > INVALID_VALUE) return UNKNOWN;
    return ordinal < count() ? SUCCESS : INVALID_DEVICE;
}
EXPORT int cuDeviceGetName(char *name, int length, int device) {
    char text[TEXT];
    int code = text_of(device, "cuda_name", text);
    if (code) code = text_of(device, "name", text);
    if (!code) snprintf(name, (size_t)length, "%s", text);
    return code;
}
static int hexadecimal(const char *text, unsigned char *out, int bytes) {
    int done = 0;
    unsigned int value;
    while (*text && done < bytes) {
        if (*text == '-') {
            text++;
            continue;
        }
        if (sscanf(text, "%2x", &value) != 1) return INVALID_VALUE;
        out[done++] = (unsigned char)value;
        text += 2;
    }
    return done == bytes ? SUCCESS : INVALID_VALUE;
}
static int uuid_of(int device, const char *name, unsigned char *uuid) {
    char text[TEXT];
    int code = text_of(device, name, text);
    return code ? code : hexadecimal(text + 4, uuid, 16);
}
EXPORT int cuDeviceGetUuid(unsigned char *uuid, int device) { return uuid_of(device, "uuid", uuid); }
EXPORT int cuDeviceGetUuid_v2(unsigned char *uuid, int device) {
    return uuid_of(device, "mig.0", uuid) == SUCCESS ? SUCCESS : uuid_of(device, "uuid", uuid);
}
EXPORT int cuDeviceGetPCIBusId(char *bus, int length, int device) {
    char text[TEXT];
    int code = text_of(device, "bus", text);
    if (!code) snprintf(bus, (size_t)length, "%s", text);
    return code;
}
EXPORT int cuDeviceGetAttribute(int *value, int which, int device) {
    char text[TEXT];
    int code = text_of(device, "sm", text);
    if (code) return code;
    *value = which == 75 ? atoi(text) / 10 : atoi(text) % 10;
    return which == 75 || which == 76 ? SUCCESS : INVALID_VALUE;
}
EXPORT int cuDeviceTotalMem_v2(size_t *bytes, int device) {
    char text[TEXT];
    int code = text_of(device, "memory", text);
    if (!code) *bytes = (size_t)strtoull(text, NULL, 10);
    return code;
}
