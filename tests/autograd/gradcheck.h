/* Checks for every differentiable operation. op_check() takes a description of one use of the
 * operation and tests, on small random inputs:
 * - the result against `naive`, plain loops in double;
 * - every gradient against central differences of `naive` (or of the operation itself if there is
 *   none), for every subset of inputs that need one, as leaves and as results of a node;
 * - that a second backward adds to the gradients of the first;
 * - bfloat16 and float16 against float32 on the same (rounded) inputs, with float32 and with
 *   bfloat16 gradients;
 * - meta: the same shape, dtype and memory counts as on the CPU, at every point, including peaks;
 * - that a forward without tape saves nothing, that a tape reset without backward leaks nothing,
 *   and that a run in which the n-th host allocation fails leaks nothing either, for every n. */
#pragma once
#include <fsdp/autograd.h>

#include "tests/test.h"

enum {
    OP_MAX_IN = 4,
    OP_MAX_NUMEL = 4096
};

typedef struct op_case op_case;
struct op_case {
    const char *name; /* name in messages */
    fsdp_tensor *(*run)(fsdp_scope *s, fsdp_tensor *const *in, const void *arg);
    /* Compute the result in double from inputs in double, [numel] each; may be NULL. */
    void (*naive)(const op_case *c, const double *const *in, double *out);
    const void *arg;
    int n_in;
    struct {
        int ndim;
        int64_t shape[3];
    } in[OP_MAX_IN];
    unsigned f32;          /* bit i: input i is float32 even in the runs in half precision */
    bool training;         /* option of the scope */
    float label_smoothing; /* option of the scope */
    double tolerance;      /* tolerance of results and gradients, times max(1, largest value); 0:
                              5e-5 */
    double bf16_tolerance; /* the same for bfloat16 against float32; 0: 2^-6. A quarter of it for
                              float16 */
};

/* A dimension of an input, for naive loops. */
static inline int64_t op_size(const op_case *c, int input, int dim)
{
    return c->in[input].shape[dim];
}
int64_t op_numel(const op_case *c, int input);

void op_check(fsdp_test *t, const op_case *c);

/* --- helpers for separate tests --- */

/* n values of magnitude 0.2 to 1.5 and random sign, so a difference never spans a kink at 0. They
 * are functions of (seed, i). */
void op_random(float *values, int64_t n, uint64_t seed);
/* A tensor of op_random values, to be released by the caller. If it returns NULL, the test has
 * failed. */
fsdp_tensor *op_random_tensor(fsdp_test *t, fsdp_device *device, fsdp_dtype dtype, int ndim,
                              const int64_t *shape, uint64_t seed);
/* The test fails, naming `what`, unless the largest |a - b| is within tolerance * max(1, largest
 * |b|). */
void op_compare(fsdp_test *t, const char *name, const char *what, const float *a, const float *b,
                int64_t n, double tolerance);
/* Bytes allocated on the device now. */
int64_t op_allocated(const fsdp_device *device);
