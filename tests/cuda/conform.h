/* Conformance of a device's kernels: each kernel runs on the CPU and on the device, with the same
 * operands, and the results are compared. The device is cuda: the emulator of the tests or, in a
 * build with CUDA_TESTS=card, a card.
 *
 * An array has its values twice: at `host`, for the CPU's kernel, and at `device`. Around the
 * device's elements are guards of NaN bytes; conform_close() fails the test if one was written. */
#pragma once
#include <math.h>
#include <stdlib.h>

#include "src/tensor/cards.h"
#include "src/tensor/device.h"
#include "tests/kernels/operands.h"
#include "tests/test.h"

enum {
    CONFORM_GUARD = 512, /* bytes before and after the elements of an array on the device */
    CONFORM_MOST = 128
};

typedef struct conform_array {
    fsdp_dtype dtype;
    int64_t n;
    void *host, *device;
    void *result; /* host memory; conform_fetch() copies the device's elements to it */
    fsdp_block *block;
} conform_array;

typedef struct conform {
    fsdp_test *t;
    fsdp_device *cpu, *gpu;
    /* The tables and contexts that the test calls: k and c of the CPU, dk and dc of the device. */
    const fsdp_kernels *k, *dk;
    fsdp_kernel_context *c, *dc;
    conform_array arrays[CONFORM_MOST];
    int n_arrays;
    /* The device's elements of later arrays begin at this many bytes after a multiple of 256. */
    size_t offset;
} conform;

/* Opens both devices. Skips the test if this build has no device cuda. */
#define CONFORM_OPEN(x)                                                                            \
    conform x = {.t = t};                                                                          \
    if (!conform_is_there())                                                                       \
        SKIP("this build has no emulated CUDA device: no CUDA headers, or ThreadSanitizer");       \
    conform_open(&x);                                                                              \
    CHECK_HERE()

/* True if this build has the device, even if it cannot be opened. */
static inline bool conform_is_there(void)
{
    return fsdp_card_functions() != NULL;
}

static inline void conform_open(conform *x)
{
    fsdp_test *t = x->t;
    ASSERT_OK(fsdp_device_create(&(fsdp_device_options){.name = "cpu"}, &x->cpu));
    ASSERT_OK(fsdp_device_create(&(fsdp_device_options){.name = "cuda"}, &x->gpu));
    x->k = x->cpu->kernels;
    x->c = x->cpu->context;
    x->dk = x->gpu->kernels;
    x->dc = x->gpu->context;
}

/* An array of n elements, all bytes of ones (NaN in every float dtype). */
static inline conform_array *conform_output(conform *x, fsdp_dtype dtype, int64_t n)
{
    conform_array *a = &x->arrays[x->n_arrays++];
    const size_t bytes = (size_t)n * fsdp_dtype_size(dtype);
    void *base = NULL;
    *a = (conform_array){
        .dtype = dtype, .n = n, .host = malloc(bytes + 1), .result = malloc(bytes + 1)};
    if (x->n_arrays > CONFORM_MOST || !a->host || !a->result ||
        fsdp_allocator_alloc(x->gpu->allocator, bytes + x->offset + 2 * CONFORM_GUARD,
                             FSDP_TAG_ACTIVATION, &a->block, &base) != FSDP_OK)
        abort();
    a->device = (char *)base + CONFORM_GUARD + x->offset;
    memset(a->host, 0xff, bytes);
    fsdp_device_memset(x->gpu, base, 0xff, bytes + x->offset + 2 * CONFORM_GUARD);
    return a;
}

/* Copies the host's elements to the device. */
static inline void conform_send(conform *x, conform_array *a)
{
    fsdp_device_from_host(x->gpu, a->device, a->host, (size_t)a->n * fsdp_dtype_size(a->dtype));
}

/* An array of floats with values in [low, high) that depend on the seed. */
static inline conform_array *conform_input(conform *x, fsdp_dtype dtype, int64_t n, uint64_t seed,
                                           double low, double high)
{
    conform_array *a = conform_output(x, dtype, n);
    fill_uniform(a->host, dtype, n, seed, low, high);
    conform_send(x, a);
    return a;
}

/* Copies the device's elements to a->result. */
static inline void conform_fetch(conform *x, conform_array *a)
{
    fsdp_test *t = x->t;
    ASSERT_OK(fsdp_device_to_host(x->gpu, a->result, a->device,
                                  (size_t)a->n * fsdp_dtype_size(a->dtype)));
}

/* The device's bytes are those of the CPU. */
static inline void conform_equal(conform *x, conform_array *a, const char *what)
{
    fsdp_test *t = x->t;
    conform_fetch(x, a);
    CHECK_HERE();
    const size_t width = fsdp_dtype_size(a->dtype);
    for (int64_t i = 0; i < a->n; i++)
        if (memcmp((char *)a->host + (size_t)i * width, (char *)a->result + (size_t)i * width,
                   width) != 0) {
            fsdp_test_fail(t, __FILE__, __LINE__,
                           "%s: element %lld of %lld is %.9g, on the CPU %.9g", what, (long long)i,
                           (long long)a->n, value_of(a->result, a->dtype, i),
                           value_of(a->host, a->dtype, i));
            return;
        }
}

/* |device - CPU| <= relative |CPU| + absolute for each element; NaN only where the CPU has NaN, and
 * infinity only where the CPU has it. */
static inline void conform_near(conform *x, conform_array *a, double relative, double absolute,
                                const char *what)
{
    fsdp_test *t = x->t;
    conform_fetch(x, a);
    CHECK_HERE();
    for (int64_t i = 0; i < a->n; i++) {
        const double got = value_of(a->result, a->dtype, i), want = value_of(a->host, a->dtype, i);
        if (got == want || (isnan(got) && isnan(want)) ||
            fabs(got - want) <= relative * fabs(want) + absolute)
            continue;
        fsdp_test_fail(t, __FILE__, __LINE__, "%s: element %lld of %lld is %.9g, on the CPU %.9g",
                       what, (long long)i, (long long)a->n, got, want);
        return;
    }
}

/* Frees the arrays; call it after each case. Fails the test if a guard was written. */
static inline void conform_free(conform *x)
{
    for (int i = 0; i < x->n_arrays; i++) {
        conform_array *a = &x->arrays[i];
        const size_t bytes = (size_t)a->n * fsdp_dtype_size(a->dtype);
        unsigned char guard[2 * CONFORM_GUARD];
        if (fsdp_device_to_host(x->gpu, guard, (char *)a->device - CONFORM_GUARD, CONFORM_GUARD) !=
                FSDP_OK ||
            fsdp_device_to_host(x->gpu, guard + CONFORM_GUARD, (char *)a->device + bytes,
                                CONFORM_GUARD) != FSDP_OK)
            fsdp_test_fail(x->t, __FILE__, __LINE__, "%s", fsdp_last_error());
        for (int j = 0; j < 2 * CONFORM_GUARD; j++)
            if (guard[j] != 0xff) {
                fsdp_test_fail(x->t, __FILE__, __LINE__, "array %d: a kernel wrote %s its elements",
                               i, j < CONFORM_GUARD ? "before" : "after");
                break;
            }
        fsdp_allocator_free(x->gpu->allocator, a->block);
        free(a->host);
        free(a->result);
    }
    x->n_arrays = 0;
}

static inline void conform_close(conform *x)
{
    conform_free(x);
    fsdp_device_destroy(x->gpu);
    fsdp_device_destroy(x->cpu);
}
