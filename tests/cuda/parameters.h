/* Parameters for tests of optimizers on a CUDA device, in each way in which a parameter can be
 * stored, with the same values on the CPU and on the device. */
#pragma once
#include "tests/cuda/conform.h"

/* An array that is used from element `skip` on, so that its address need not be a multiple of 16.
 * Both pointers are NULL if there is no array. */
typedef struct operand_pair {
    conform_array *array;
    void *host, *device;
} operand_pair;

static inline operand_pair pair_of(conform_array *a, int64_t skip)
{
    const size_t bytes = (size_t)skip * fsdp_dtype_size(a->dtype);
    return (operand_pair){a, (char *)a->host + bytes, (char *)a->device + bytes};
}

static inline operand_pair input(conform *x, fsdp_dtype dtype, int64_t n, int64_t skip,
                                 uint64_t seed, double low)
{
    return pair_of(conform_input(x, dtype, n + skip, seed, low, 1.0), skip);
}

static inline operand_pair output(conform *x, fsdp_dtype dtype, int64_t n, int64_t skip)
{
    return pair_of(conform_output(x, dtype, n + skip), skip);
}

typedef enum stored_as {
    STORED_AS_FLOATS,
    STORED_AS_HALVES,
    STORED_ONLY_IN_COPY,
    N_STORED_AS
} stored_as;

/* A parameter and its copy. */
typedef struct parameter {
    operand_pair param, hi, lo, marks, copy;
    fsdp_dtype copy_dtype;
} parameter;

/* The values are random. Every third one is special: its rounding to bfloat16 is a tie, or almost
 * one, or it is denormal, or it rounds to infinity. */
static inline void fill_parameter(float *p, int64_t n)
{
    static const uint32_t special[] = {0x3f808000, 0x3f818000, 0x3f808001, 0x3f817fff,
                                       0x00008000, 0x80018000, 0x7f7fffff, 0x00000001};
    for (int64_t i = 0; i < n; i++)
        p[i] =
            i % 3 ? (float)(2.0 * uniform_of(9, i) - 1.0) : fsdp_f32_from_bits(special[i / 3 % 8]);
}

/* `copy` is the number of the copy's dtype; 3: no copy, unless the parameter is there. */
static inline parameter make_parameter(conform *x, stored_as where, int copy, int64_t n,
                                       int64_t skip)
{
    parameter p = {.copy_dtype =
                       float_dtypes[where == STORED_ONLY_IN_COPY ? 1 + copy % 2 : copy % 3]};
    float *values = malloc((size_t)n * sizeof *values + 1);
    fill_parameter(values, n);
    if (where == STORED_AS_HALVES) {
        p.hi = output(x, FSDP_DTYPE_BF16, n, skip);
        p.lo = output(x, FSDP_DTYPE_BF16, n, skip);
        p.marks = output(x, FSDP_DTYPE_BF16, fsdp_halves_words(n), skip);
        x->k->split(x->c, (fsdp_halves){p.hi.host, p.lo.host, p.marks.host}, values, n);
        conform_send(x, p.hi.array);
        conform_send(x, p.lo.array);
        conform_send(x, p.marks.array);
    } else if (where == STORED_AS_FLOATS) {
        p.param = output(x, FSDP_DTYPE_F32, n, skip);
        memcpy(p.param.host, values, (size_t)n * sizeof *values);
        conform_send(x, p.param.array);
    }
    if (where == STORED_ONLY_IN_COPY)
        p.copy = pair_of(conform_input(x, p.copy_dtype, n + skip, 6, -1.0, 1.0), skip);
    else if (copy < 3)
        p.copy = output(x, p.copy_dtype, n, skip);
    free(values);
    return p;
}

static inline fsdp_halves halves_on(const parameter *p, bool device)
{
    return device ? (fsdp_halves){p->hi.device, p->lo.device, p->marks.device}
                  : (fsdp_halves){p->hi.host, p->lo.host, p->marks.host};
}

static inline void check_equal(conform *x, const operand_pair *p, const char *what)
{
    fsdp_test *t = x->t;
    if (p->array)
        conform_equal(x, p->array, what);
    CHECK_HERE();
}

static inline void check_parameter(conform *x, const parameter *p)
{
    check_equal(x, &p->param, "param");
    check_equal(x, &p->hi, "hi");
    check_equal(x, &p->lo, "lo");
    check_equal(x, &p->marks, "marks");
    check_equal(x, &p->copy, "copy");
}

static inline void *on(const operand_pair *p, bool device)
{
    return device ? p->device : p->host;
}
