/* What every differentiable operation is put through: op_check() takes a description of one use of
 * it and tests, on small random inputs,
 *   - the result against `naive`, plain loops in double;
 *   - every gradient against central differences of `naive` (of the operation itself where there
 *     is none), for every subset of inputs that want one, as leaves and as results of a node;
 *   - that a second backward adds to the gradients of the first;
 *   - bfloat16 and float16 against float32 on the same (rounded) inputs, with gradients wanted in
 *     float32 and in bfloat16;
 *   - meta: same shape, dtype and memory counts as on the CPU, at every point and peak;
 *   - that a forward without tape saves nothing, that a tape reset without backward leaks nothing,
 *     and that neither does a run in which the n-th host allocation fails, for every n. */
#pragma once
#include <fsdp/autograd.h>

#include "tests/test.h"

enum {
    OP_MAX_IN = 4,
    OP_MAX_NUMEL = 4096
};

typedef struct op_case op_case;
struct op_case {
    const char *name; /* in messages */
    fsdp_tensor *(*run)(fsdp_scope *s, fsdp_tensor *const *in, const void *arg);
    /* The result in double from inputs in double, [numel] each; may be NULL. */
    void (*naive)(const op_case *c, const double *const *in, double *out);
    const void *arg;
    int n_in;
    struct {
        int ndim;
        int64_t shape[3];
    } in[OP_MAX_IN];
    unsigned f32;          /* bit i: input i is float32 in the runs in half precision too */
    bool training;         /* of the scope */
    double tolerance;      /* of results and gradients, times max(1, largest value); 0: 5e-5 */
    double bf16_tolerance; /* likewise, bfloat16 against float32; 0: 2^-6. float16: a quarter */
};

/* The description's own dimensions, for naive loops. */
static inline int64_t op_size(const op_case *c, int input, int dim)
{
    return c->in[input].shape[dim];
}
int64_t op_numel(const op_case *c, int input);

void op_check(fsdp_test *t, const op_case *c);

/* --- smaller pieces, for tests of their own --- */

/* n values of magnitude 0.2 to 1.5 and random sign (so no kink lies within a difference), a
 * function of (seed, i). */
void op_random(float *values, int64_t n, uint64_t seed);
/* A tensor of op_random values; NULL with the test failed. Released by the caller. */
fsdp_tensor *op_random_tensor(fsdp_test *t, fsdp_device *device, fsdp_dtype dtype, int ndim,
                              const int64_t *shape, uint64_t seed);
/* Largest |a - b| is within tolerance * max(1, largest |b|), else the test fails naming `what`. */
void op_compare(fsdp_test *t, const char *name, const char *what, const float *a, const float *b,
                int64_t n, double tolerance);
/* What is allocated on the device now. */
int64_t op_allocated(const fsdp_device *device);
