/* Clamps float16 values if one of them is infinite, and computes the gradient of this clamp; see
 * fsdp_kernels.clamp_infinite. Magnitudes are compared as integers, which are the bits of the
 * elements without the sign bit. A larger magnitude has a larger integer, and every NaN has a
 * larger integer than infinity. */
#include <stdatomic.h>

#include "src/kernels/cpu/isa/block.h"

enum {
    MAGNITUDE = 0x7fff,
    INFINITE = 0x7c00,
    /* 65504, the largest finite float16. Elements are clamped to it if no element is infinite. */
    LARGEST = 0x7bff,
    /* 64512, which is 65504 - 1000 rounded to float16. Elements are clamped to it if an element is
     * infinite. */
    BOUND = 0x7be0,

    PER_BYTE = 4, /* number of codes of gradient factors in a byte of `factors` */

    /* Bits of byte 0 of `factors`. HAS_INFINITE: at least one element is infinite. HAS_LARGEST: at
     * least one element has the magnitude LARGEST. */
    HAS_INFINITE = 1,
    HAS_LARGEST = 2
};

/* Codes of two bits for the factors by which backward multiplies the gradients. */
enum {
    FACTOR_1,
    FACTOR_HALF, /* |x| is the bound: x gets half of the gradient, as in torch.clamp */
    FACTOR_0     /* x was clamped */
};

typedef struct clamp_job {
    uint16_t *x;
    const uint16_t *dy; /* used only by backward */
    uint8_t *factors;
    int64_t n;
    atomic_uint has;
} clamp_job;

static void look_task(void *arg, int64_t task, int worker)
{
    clamp_job *job = arg;
    const int64_t end = fsdp_min_i64(job->n, (task + 1) * FSDP_CHUNK);
    unsigned infinite = 0, largest = 0;
    (void)worker;
    for (int64_t i = task * FSDP_CHUNK; i < end; i++) {
        const unsigned magnitude = job->x[i] & MAGNITUDE;
        infinite |= magnitude == INFINITE;
        largest |= magnitude == LARGEST;
    }
    if (infinite | largest)
        atomic_fetch_or(&job->has, (infinite ? HAS_INFINITE : 0u) | (largest ? HAS_LARGEST : 0u));
}

/* Clamps n elements and returns their codes, packed into one byte. n is at most PER_BYTE. */
static uint8_t clamp_some(uint16_t *x, int n, unsigned bound)
{
    unsigned factors = 0;
    for (int j = 0; j < n; j++) {
        const unsigned magnitude = x[j] & MAGNITUDE;
        const bool clamped = magnitude > bound && magnitude <= INFINITE;
        const unsigned factor = clamped ? FACTOR_0 : magnitude == bound ? FACTOR_HALF : FACTOR_1;
        factors |= factor << 2 * j;
        if (clamped)
            x[j] = (uint16_t)((x[j] & ~MAGNITUDE) | bound);
    }
    return (uint8_t)factors;
}

static void clamp_task(void *arg, int64_t task, int worker)
{
    clamp_job *job = arg;
    const int64_t end = fsdp_min_i64(job->n, (task + 1) * FSDP_CHUNK);
    const unsigned bound = atomic_load(&job->has) & HAS_INFINITE ? BOUND : LARGEST;
    (void)worker;
    for (int64_t i = task * FSDP_CHUNK; i < end; i += PER_BYTE) {
        const int n = (int)fsdp_min_i64(end - i, PER_BYTE);
        const uint8_t factors = clamp_some(job->x + i, n, bound);
        if (job->factors)
            job->factors[1 + i / PER_BYTE] = factors;
    }
}

static void clamp_infinite(fsdp_kernel_context *c, void *x, uint8_t *factors, int64_t n)
{
    clamp_job job = {.x = x, .factors = factors, .n = n};
    const int64_t tasks = fsdp_ceil_div(n, FSDP_CHUNK);
    atomic_init(&job.has, 0);
    fsdp_run_tasks(c, tasks, look_task, &job);
    const unsigned has = atomic_load(&job.has);
    if (factors)
        factors[0] = (uint8_t)has;
    if (has)
        fsdp_run_tasks(c, tasks, clamp_task, &job);
}

static void backward_task(void *arg, int64_t task, int worker)
{
    const clamp_job *job = arg;
    const int64_t end = fsdp_min_i64(job->n, (task + 1) * FSDP_CHUNK);
    (void)worker;
    for (int64_t i = task * FSDP_CHUNK; i < end; i++) {
        const unsigned factor = job->factors[1 + i / PER_BYTE] >> 2 * (i % PER_BYTE) & 3;
        const uint16_t dy = job->dy[i];
        job->x[i] = factor == FACTOR_0      ? 0
                    : factor == FACTOR_HALF ? fsdp_round_f16(0.5f * fsdp_widen_f16(dy))
                                            : dy;
    }
}

static void clamp_infinite_backward(fsdp_kernel_context *c, void *dx, const void *dy,
                                    const uint8_t *factors, int64_t n)
{
    clamp_job job = {.x = dx, .dy = dy, .factors = (uint8_t *)(uintptr_t)factors, .n = n};
    if (factors[0])
        fsdp_run_tasks(c, fsdp_ceil_div(n, FSDP_CHUNK), backward_task, &job);
    else if (dx != dy)
        memcpy(dx, dy, (size_t)n * sizeof *job.x);
}

void FSDP_ISA_NAME_OF(fsdp_cpu_fill_clamp_infinite)(fsdp_kernels *k)
{
    k->clamp_infinite = clamp_infinite;
    k->clamp_infinite_backward = clamp_infinite_backward;
}
