/* Dropout as fsdp_drop_threshold() defines it, element by element. */
#pragma once
#include <math.h>
#include <stdbool.h>

#include "src/base/philox.h"

static inline bool kept_by_dropout(uint64_t key, uint64_t element, float p)
{
    const uint32_t word = fsdp_philox4x32(key, element / 8, 0).v[element % 8 / 2];
    const uint32_t half = element % 2 ? word >> 16 : word & 0xffffu;
    return (double)half >= floor((double)p * 65536.0 + 0.5);
}
