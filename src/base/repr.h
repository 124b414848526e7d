/* Numbers as text. */
#pragma once
#include <stddef.h>

enum {
    FSDP_REPR_BYTES = 32
};

/* The shortest decimal that reads back as `x`, formatted as by Python's repr: 0.1, 1e-06, 10000.0,
 * 1e+16, nan, inf. Independent of the locale. Returns the length. */
size_t fsdp_f64_repr(double x, char out[FSDP_REPR_BYTES]);
