/* Writes numbers as text. */
#pragma once
#include <stddef.h>

enum {
    FSDP_REPR_BYTES = 32
};

/* Write the shortest decimal that reads back as `x`, in the format of Python's repr: 0.1, 1e-06,
 * 10000.0, 1e+16, nan, inf. The text does not depend on the locale. Return the length of the
 * text. */
size_t fsdp_f64_repr(double x, char out[FSDP_REPR_BYTES]);
