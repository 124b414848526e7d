/* Shared by the tests of the kernels. Variants: every ISA of this CPU with 1, 2 and 3 threads
 * (under sanitizers with 3, since fewer threads make no other accesses). Operands: memory between
 * guards of NaN bytes, so that a kernel that reads past its operand spoils its result and a write
 * past it is detected. Under ASan there are no guards, since it detects both. */
#pragma once
#include <stdio.h>
#include <stdlib.h>

#include "src/base/bf16.h"
#include "src/base/philox.h"
#include "src/kernels/kernels.h"
#include "tests/kernels/naive_dropout.h"
#include "tests/test.h"

/* --- the variants --- */

typedef struct variant {
    fsdp_kernel_context *c;
    const fsdp_kernels *k;
    int threads;
} variant;

typedef struct variants {
    variant at[9];
    int n;
} variants;

/* Opens each table of kernels. (Other ways to multiply matrices, x86-64-v4+..., share these
 * tables.) If a context cannot be opened, n is less and the test has failed. */
static inline variants variants_open(fsdp_test *t)
{
    variants v = {.n = 0};
    for (const char *const *isa = fsdp_kernels_cpu_isas(); *isa; isa++)
        for (int threads = UNDER_SANITIZER ? 3 : 1; threads <= 3 && !strchr(*isa, '+'); threads++) {
            variant *at = &v.at[v.n];
            at->threads = threads;
            fsdp_status status = fsdp_kernels_cpu_open(*isa, threads, &at->c, &at->k);
            if (status != FSDP_OK) {
                fsdp_test_fail(t, __FILE__, __LINE__, "%s: %s", *isa, fsdp_last_error());
                return v;
            }
            v.n++;
        }
    return v;
}

static inline void variants_close(variants *v)
{
    for (int i = 0; i < v->n; i++)
        fsdp_kernels_cpu_close(v->at[i].c);
}

/* Whether variant j is the first of its ISA. Those of one ISA give the same bits for any number of
 * threads. */
static inline bool variants_begins_isa(const variants *v, int j)
{
    return j == 0 || strcmp(v->at[j].k->name, v->at[j - 1].k->name) != 0;
}

/* --- operands --- */

enum {
    /* bytes on either side; not a multiple of a page, so that operands get different alignments */
    GUARD = UNDER_ASAN ? 0 : 1088
};

enum {
    MAX_OPERANDS = 48
};

/* The operands of one case, which are freed together. */
typedef struct operands {
    char *base[MAX_OPERANDS];
    size_t bytes[MAX_OPERANDS];
    int n;
} operands;

/* Filled with NaN (bytes of ones). */
static inline void *operand_bytes(operands *o, size_t bytes)
{
    char *base = malloc(bytes + 2 * GUARD + !(bytes + GUARD));
    if (!base || o->n == MAX_OPERANDS)
        abort();
    memset(base, 0xff, bytes + 2 * GUARD);
    o->base[o->n] = base;
    o->bytes[o->n++] = bytes;
    return base + GUARD;
}

static inline void *operand(operands *o, fsdp_dtype dtype, int64_t n)
{
    return operand_bytes(o, (size_t)n * fsdp_dtype_size(dtype));
}

/* Frees the operands; returns false if a guard was written. */
static inline bool operands_close(operands *o)
{
    bool intact = true;
    for (int i = 0; i < o->n; i++) {
        for (int j = 0; j < GUARD; j++)
            intact &= (unsigned char)o->base[i][j] == 0xff &&
                      (unsigned char)o->base[i][GUARD + o->bytes[i] + (size_t)j] == 0xff;
        free(o->base[i]);
    }
    o->n = 0;
    return intact;
}

/* --- values --- */

static inline double value_of(const void *p, fsdp_dtype dtype, int64_t i)
{
    switch (dtype) {
    case FSDP_DTYPE_F32:
        return (double)((const float *)p)[i];
    case FSDP_DTYPE_BF16:
        return (double)fsdp_f32_from_bf16(((const uint16_t *)p)[i]);
    case FSDP_DTYPE_F16:
        return (double)fsdp_f32_from_f16(((const uint16_t *)p)[i]);
    case FSDP_DTYPE_F64:
        return ((const double *)p)[i];
    case FSDP_DTYPE_I64:
        return (double)((const int64_t *)p)[i];
    case FSDP_DTYPE_I32:
        return (double)((const int32_t *)p)[i];
    default:
        return (double)((const uint8_t *)p)[i];
    }
}

static inline void set_value(void *p, fsdp_dtype dtype, int64_t i, double value)
{
    if (dtype == FSDP_DTYPE_F32)
        ((float *)p)[i] = (float)value;
    else if (dtype == FSDP_DTYPE_BF16)
        ((uint16_t *)p)[i] = fsdp_bf16_from_f32((float)value);
    else
        ((uint16_t *)p)[i] = fsdp_f16_from_f32((float)value);
}

/* Uniform in [0, 1), determined by (seed, i). */
static inline double uniform_of(uint64_t seed, int64_t i)
{
    return (double)(fsdp_mix64(fsdp_mix64(seed) + (uint64_t)i) >> 11) * 0x1p-53;
}

static inline void fill_uniform(void *p, fsdp_dtype dtype, int64_t n, uint64_t seed, double low,
                                double high)
{
    for (int64_t i = 0; i < n; i++)
        set_value(p, dtype, i, low + (high - low) * uniform_of(seed, i));
}

/* Half a unit in the last place of dtype relative to the value, with some room for float32 sums. */
static inline double rounding_of(fsdp_dtype dtype)
{
    return dtype == FSDP_DTYPE_BF16 ? 0x1.02p-8 : dtype == FSDP_DTYPE_F16 ? 0x1.02p-11 : 0x1p-24;
}

/* The additional error allowed for subnormal results. */
static inline double floor_of(fsdp_dtype dtype)
{
    return dtype == FSDP_DTYPE_F16 ? 0x1.02p-25 : 0x1p-140;
}

static const fsdp_dtype float_dtypes[] = {FSDP_DTYPE_F32, FSDP_DTYPE_BF16, FSDP_DTYPE_F16};
/* Sizes with partial lanes and blocks, of one task (16384 elements), and of tasks for three
 * threads. */
static const int64_t sizes[] = {0, 1, 7, 15, 16, 17, 33, 255, 257, 1000, 16384, 32771};
