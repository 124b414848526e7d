/* What the environment sets; README.md lists it. */
#pragma once
#include <stddef.h>
#include <stdint.h>

namespace emu
{
struct emulator_settings {
    uint64_t seed; /* EMU_SEED; 0: threads, blocks and ops in order */
    int late_ms;   /* EMU_LATE_MS */
    int n_devices; /* EMU_DEVICES */
    bool protect;  /* EMU_PROTECT */
    size_t memory_bytes;
    int64_t fail_after; /* EMU_FAIL_AFTER; 0: no kernel fails */
};
extern emulator_settings settings;
/* Read the settings and map the arena, at the first call. Every call of the runtime does it. */
void start(void);
} // namespace emu
