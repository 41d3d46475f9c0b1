/* What a GPU knows of its own health: the links, the memory's repairs, what the driver recommends.
   Part of nvml.c, which includes it. */

typedef struct {
    unsigned int field, scope;
    long long timestamp, latency;
    unsigned int kind;
    nvmlReturn_t code;
    unsigned long long value;
} field_value_t;
static const struct {
    unsigned int field;
    const char *name;
} FIELD_NAMES[] = {
    {38, "nvlink_crc_flit"}, {45, "nvlink_crc_data"}, {52, "nvlink_replay"},
    {59, "nvlink_recovery"}, {230, "recovery_action"}, {138, "nvlink_tx_kib"},
    {139, "nvlink_rx_kib"},   {197, "pcie_tx_bytes"},   {198, "pcie_rx_bytes"},
};
EXPORT nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, field_value_t *out) {
    int place;
    unsigned int row;
    for (place = 0; place < count; place++) {
        out[place].code = NOT_SUPPORTED;
        out[place].kind = 3;
        for (row = 0; row < sizeof FIELD_NAMES / sizeof *FIELD_NAMES; row++)
            if (FIELD_NAMES[row].field == out[place].field)
                out[place].code = large(device, FIELD_NAMES[row].name, &out[place].value);
    }
    return OK;
}

typedef struct {
    unsigned int version;
    unsigned long long counts[11];
    unsigned int exceeded;
} sram_t;
EXPORT nvmlReturn_t nvmlDeviceGetSramEccErrorStatus(nvmlDevice_t device, sram_t *status) {
    return number(device, "sram_exceeded", &status->exceeded);
}

/* `0.nvlinks=1101`: the third of four links is inactive. */
EXPORT nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned int link,
                                             unsigned int *active) {
    char text[TEXT];
    nvmlReturn_t code = field(device, "nvlinks", text);
    if (code != OK) return code;
    if (link >= strlen(text)) return INVALID;
    *active = text[link] == '1';
    return OK;
}

EXPORT nvmlReturn_t nvmlDeviceGetRetiredPages(nvmlDevice_t device, int cause, unsigned int *count,
                                              unsigned long long *addresses) {
    unsigned int pages = 0, room = *count, place;
    nvmlReturn_t code = number(device, cause ? "retired_double" : "retired_single", &pages);
    if (code != OK) return code;
    *count = pages;
    if (pages > room || (pages && !addresses)) return TOO_SMALL;
    for (place = 0; place < pages; place++) addresses[place] = 0x1000u * (place + 1);
    return OK;
}
NUMBER(nvmlDeviceGetPowerManagementDefaultLimit, "power_limit_default_mw")
EXPORT nvmlReturn_t nvmlDeviceGetPowerManagementLimitConstraints(nvmlDevice_t device,
                                                                 unsigned int *least,
                                                                 unsigned int *most) {
    number(device, "power_limit_min_mw", least);
    return number(device, "power_limit_max_mw", most);
}
EXPORT nvmlReturn_t nvmlDeviceGetApplicationsClock(nvmlDevice_t device, int kind,
                                                   unsigned int *mhz) {
    return number(device, kind == 2 ? "clock_memory_set" : "clock_sm_set", mhz);
}
EXPORT nvmlReturn_t nvmlDeviceGetVbiosVersion(nvmlDevice_t device, char *out, unsigned int size) {
    return copied(device, "vbios", out, size);
}
EXPORT nvmlReturn_t nvmlDeviceGetInforomImageVersion(nvmlDevice_t device, char *out,
                                                     unsigned int size) {
    return copied(device, "inforom", out, size);
}
