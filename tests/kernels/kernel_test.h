/* Helpers for tests of kernels: matrices of any float dtype as doubles, numbers in a fixed random
 * order, and buffers whose unused memory is poisoned. */
#pragma once
#include <stdio.h>
#include <stdlib.h>

#include "src/base/bf16.h"
#include "src/base/philox.h"
#include "src/kernels/kernels.h"
#include "tests/test.h"

static inline double get_element(const void *data, fsdp_dtype dtype, int64_t i)
{
    switch (dtype) {
    case FSDP_DTYPE_BF16:
        return (double)fsdp_f32_from_bf16(((const uint16_t *)data)[i]);
    case FSDP_DTYPE_F16:
        return (double)fsdp_f32_from_f16(((const uint16_t *)data)[i]);
    default:
        return (double)((const float *)data)[i];
    }
}

static inline void set_element(void *data, fsdp_dtype dtype, int64_t i, double value)
{
    switch (dtype) {
    case FSDP_DTYPE_BF16:
        ((uint16_t *)data)[i] = fsdp_bf16_from_f32((float)value);
        break;
    case FSDP_DTYPE_F16:
        ((uint16_t *)data)[i] = fsdp_f16_from_f32((float)value);
        break;
    default:
        ((float *)data)[i] = (float)value;
    }
}

/* Half an ulp at 1. */
static inline double rounding_of(fsdp_dtype dtype)
{
    return dtype == FSDP_DTYPE_BF16 ? 0x1p-8 : dtype == FSDP_DTYPE_F16 ? 0x1p-11 : 0x1p-24;
}

static inline uint64_t random_bits(uint64_t *state)
{
    return fsdp_mix64((*state)++);
}

/* Uniform in [-1, 1). */
static inline double random_value(uint64_t *state)
{
    return (double)(random_bits(state) >> 11) * 0x1p-52 - 1.0;
}

static inline int64_t random_below(uint64_t *state, int64_t n)
{
    return (int64_t)(random_bits(state) % (uint64_t)n);
}

/* A [rows, columns] matrix with leading dimension ld inside a larger block. All bytes outside its
 * elements are poison, a NaN of a certain bit pattern. */
typedef struct matrix {
    fsdp_dtype dtype;
    int64_t rows, columns, ld;
    unsigned char *block;
    size_t bytes;
    void *data;
} matrix;

enum {
    MATRIX_GUARD = 4096, /* bytes of poison before and after */
    MATRIX_POISON = 0xff /* a NaN in every float dtype */
};

static inline matrix matrix_create(fsdp_dtype dtype, int64_t rows, int64_t columns, int64_t ld)
{
    matrix x = {.dtype = dtype, .rows = rows, .columns = columns, .ld = ld};
    /* The last row ends with its last column, so that reading beyond it hits the guard. */
    size_t used = rows ? (size_t)((rows - 1) * ld + columns) * fsdp_dtype_size(dtype) : 0;
    x.bytes = used + 2 * MATRIX_GUARD;
    x.block = malloc(x.bytes);
    memset(x.block, MATRIX_POISON, x.bytes);
    x.data = x.block + MATRIX_GUARD;
    return x;
}

static inline void matrix_destroy(matrix *x)
{
    free(x->block);
    x->block = NULL;
}

static inline double matrix_get(const matrix *x, int64_t i, int64_t j)
{
    return get_element(x->data, x->dtype, i * x->ld + j);
}

static inline void matrix_set(matrix *x, int64_t i, int64_t j, double value)
{
    set_element(x->data, x->dtype, i * x->ld + j, value);
}

static inline void matrix_fill_random(matrix *x, uint64_t *state)
{
    for (int64_t i = 0; i < x->rows; i++)
        for (int64_t j = 0; j < x->columns; j++)
            matrix_set(x, i, j, random_value(state));
}

/* Whether all bytes outside the elements are still poison. */
static inline bool matrix_is_guarded(const matrix *x)
{
    size_t size = fsdp_dtype_size(x->dtype);
    size_t used = x->bytes - 2 * MATRIX_GUARD, row = (size_t)x->ld * size;
    for (size_t i = 0; i < x->bytes; i++) {
        bool inside = i >= MATRIX_GUARD && i < MATRIX_GUARD + used;
        if (inside && (i - MATRIX_GUARD) % row < (size_t)x->columns * size)
            continue;
        if (x->block[i] != MATRIX_POISON)
            return false;
    }
    return true;
}

/* --- tests that run on several ISAs --- */

typedef void on_isa_fn(fsdp_test *t, fsdp_kernel_context *context, const fsdp_kernels *kernels);

/* Calls `run` with the kernels of `isa` (NULL: the best ISA of this CPU) on this number of threads.
 * If the test fails there, its message names the ISA. */
static inline void on_isa(fsdp_test *t, const char *isa, int threads, on_isa_fn *run)
{
    fsdp_kernel_context *context;
    const fsdp_kernels *kernels;
    ASSERT_OK(fsdp_kernels_cpu_open(isa, threads, &context, &kernels));
    run(t, context, kernels);
    if (t->failed)
        fprintf(stderr, "    (with %s)\n", kernels->name);
    fsdp_kernels_cpu_close(context);
}

/* Calls `run` for every ISA of this CPU, including the other ways to multiply matrices
 * (x86-64-v4+...), until the test fails. */
static inline void for_each_isa(fsdp_test *t, int threads, on_isa_fn *run)
{
    for (const char *const *isa = fsdp_kernels_cpu_isas(); *isa && !t->failed; isa++)
        on_isa(t, *isa, threads, run);
}

/* A test whose body gets an open `context` and `kernels`: of every ISA in turn, or of the best. */
#define TEST_ON_EVERY_ISA(name, threads)                                                           \
    TEST_WITH_KERNELS(name, for_each_isa(t, threads, name##_on))
#define TEST_ON_BEST_ISA(name, threads) TEST_WITH_KERNELS(name, on_isa(t, NULL, threads, name##_on))
#define TEST_WITH_KERNELS(name, call)                                                              \
    static on_isa_fn name##_on;                                                                    \
    TEST(name)                                                                                     \
    {                                                                                              \
        call;                                                                                      \
    }                                                                                              \
    static void name##_on(fsdp_test *t, fsdp_kernel_context *context, const fsdp_kernels *kernels)
