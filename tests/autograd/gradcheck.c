#include "tests/autograd/gradcheck.h"

#include <stdio.h>
#include <stdlib.h>

#include "src/autograd/autograd.h"
#include "src/base/alloc.h"
#include "src/base/alloc_testing.h"
#include "src/base/bf16.h"
#include "src/base/philox.h"

enum {
    POINTS = 3,            /* after forward, after backward, after closing the scope */
    MAX_ALLOCATIONS = 500, /* most allocations of one run */
    SUCCESSES = 12
};

/* The results of one run. */
typedef struct op_result {
    fsdp_status status;
    int ndim;
    int64_t shape[FSDP_MAX_DIMS], numel;
    fsdp_dtype dtype;
    bool has_grad[OP_MAX_IN];
    float out[OP_MAX_NUMEL], grad[OP_MAX_IN][OP_MAX_NUMEL];
    fsdp_memory_stats memory[POINTS];
} op_result;

/* The settings of one run. */
typedef struct op_run {
    const char *device; /* NULL: the default; or "meta" */
    fsdp_dtype dtype;
    unsigned need;    /* bit i: input i needs a gradient; 0: no tape */
    bool through;     /* inputs are results of nodes, not leaves, and the result is the input of a
                         node */
    bool no_backward; /* reset the tape instead */
    int backwards;    /* 0: 1 */
    bool bf16_target; /* gradients of leaves are bfloat16, not float32 */
} op_run;

int64_t op_numel(const op_case *c, int input)
{
    int64_t n = 1;
    for (int d = 0; d < c->in[input].ndim; d++)
        n *= c->in[input].shape[d];
    return n;
}

void op_random(float *values, int64_t n, uint64_t seed)
{
    for (int64_t i = 0; i < n; i++) {
        uint64_t bits = fsdp_mix64(seed * 1000003u + (uint64_t)i);
        float magnitude = 0.2f + 1.3f * fsdp_uniform_from_bits((uint32_t)bits);
        values[i] = bits >> 63 ? magnitude : -magnitude;
    }
}

static void round_to_bf16(float *values, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        values[i] = fsdp_f32_from_bf16(fsdp_bf16_from_f32(values[i]));
}

static void input_values(const op_case *c, int i, float *values)
{
    op_random(values, op_numel(c, i), (uint64_t)i + 1);
    round_to_bf16(values, op_numel(c, i));
}

static void projection_values(int64_t n, float *values)
{
    op_random(values, n, 77);
    round_to_bf16(values, n);
    if (n == 1)
        values[0] = 1.0f; /* the gradient of a loss must be 1 */
}

void op_compare(fsdp_test *t, const char *name, const char *what, const float *a, const float *b,
                int64_t n, double tolerance)
{
    double most = 1.0;
    for (int64_t i = 0; i < n; i++)
        most = fmax(most, fabs((double)b[i]));
    for (int64_t i = 0; i < n; i++)
        if (!(fabs((double)a[i] - (double)b[i]) <= tolerance * most))
            FAIL("%s: %s: element %lld is %.8g, not %.8g within %.3g", name, what, (long long)i,
                 (double)a[i], (double)b[i], tolerance * most);
}

int64_t op_allocated(const fsdp_device *device)
{
    fsdp_memory_stats stats;
    fsdp_device_memory(device, &stats);
    return stats.allocated;
}

static fsdp_status make_tensor(fsdp_device *device, fsdp_dtype dtype, int ndim,
                               const int64_t *shape, const float *values, fsdp_tensor **tensor)
{
    if (dtype == FSDP_DTYPE_F32)
        return fsdp_tensor_from_data(device, dtype, ndim, shape, values, FSDP_TAG_DATA, tensor);
    fsdp_tensor *f32;
    FSDP_TRY(
        fsdp_tensor_from_data(device, FSDP_DTYPE_F32, ndim, shape, values, FSDP_TAG_DATA, &f32));
    fsdp_status status = fsdp_tensor_to(f32, dtype, FSDP_TAG_DATA, tensor);
    fsdp_tensor_release(f32);
    return status;
}

fsdp_tensor *op_random_tensor(fsdp_test *t, fsdp_device *device, fsdp_dtype dtype, int ndim,
                              const int64_t *shape, uint64_t seed)
{
    static float values[OP_MAX_NUMEL * 64];
    int64_t n = 1;
    for (int d = 0; d < ndim; d++)
        n *= shape[d];
    fsdp_tensor *tensor = NULL;
    if (n > (int64_t)(sizeof values / sizeof *values)) {
        fsdp_test_fail(t, __FILE__, __LINE__, "%lld values are too many", (long long)n);
        return NULL;
    }
    op_random(values, n, seed);
    fsdp_status status = make_tensor(device, dtype, ndim, shape, values, &tensor);
    if (status == FSDP_OK)
        return tensor;
    fsdp_test_fail(t, __FILE__, __LINE__, "no tensor: %s", fsdp_last_error());
    return NULL;
}

/* --- targets for gradients of leaves --- */

/* Memory full of NaN, like a gradient buffer that was not cleared: the first contribution must set
 * every element. */
static fsdp_status dirty_target(fsdp_grad_sink *self, fsdp_tensor *leaf, fsdp_dtype dtype,
                                fsdp_tensor **dst, float *beta)
{
    *beta = self->grad ? 1.0f : 0.0f;
    if (!self->grad) {
        FSDP_TRY(fsdp_tensor_create(leaf->storage->device, dtype, leaf->ndim, leaf->shape,
                                    FSDP_TAG_GRAD, &self->grad));
        if (fsdp_tensor_ptr(self->grad))
            fsdp_device_memset(leaf->storage->device, fsdp_tensor_ptr(self->grad), 0xff,
                               self->grad->storage->bytes);
    }
    *dst = self->grad;
    return FSDP_OK;
}

static fsdp_status dirty_f32_target(fsdp_grad_sink *self, fsdp_tensor *leaf, fsdp_tensor **dst,
                                    float *beta)
{
    return dirty_target(self, leaf, FSDP_DTYPE_F32, dst, beta);
}

static fsdp_status dirty_bf16_target(fsdp_grad_sink *self, fsdp_tensor *leaf, fsdp_tensor **dst,
                                     float *beta)
{
    return dirty_target(self, leaf, FSDP_DTYPE_BF16, dst, beta);
}

/* --- one run --- */

static fsdp_status make_inputs(const op_case *c, const op_run *how, fsdp_device *device,
                               fsdp_tensor **in)
{
    float values[OP_MAX_NUMEL];
    for (int i = 0; i < c->n_in; i++) {
        input_values(c, i, values);
        FSDP_TRY(make_tensor(device, c->f32 >> i & 1 ? FSDP_DTYPE_F32 : how->dtype, c->in[i].ndim,
                             c->in[i].shape, values, &in[i]));
        if (!(how->need >> i & 1))
            continue;
        FSDP_TRY(fsdp_tensor_set_requires_grad(in[i], true));
        in[i]->sink->target = how->bf16_target ? dirty_bf16_target : dirty_f32_target;
    }
    return FSDP_OK;
}

static fsdp_status backward(fsdp_tape *tape, fsdp_device *device, fsdp_tensor *out)
{
    float values[OP_MAX_NUMEL];
    fsdp_tensor *grad;
    projection_values(fsdp_tensor_numel(out), values);
    FSDP_TRY(make_tensor(device, out->dtype, out->ndim, out->shape, values, &grad));
    fsdp_status status = fsdp_backward(tape, &out, &grad, 1);
    fsdp_tensor_release(grad);
    return status;
}

static fsdp_status forward(const op_case *c, const op_run *how, fsdp_scope *s,
                           fsdp_tensor *const *in, fsdp_tensor **out)
{
    fsdp_tensor *used[OP_MAX_IN] = {0};
    for (int i = 0; i < c->n_in; i++)
        used[i] = how->through ? fsdp_scale(s, in[i], 1.0f) : in[i];
    *out = c->run(s, used, c->arg);
    if (how->through)
        *out = fsdp_scale(s, *out, 1.0f); /* then only the operation holds its gradient */
    for (int i = 0; how->through && i < c->n_in; i++)
        fsdp_drop(s, used[i]);
    return fsdp_scope_status(s);
}

static fsdp_status keep_result(fsdp_tensor *out, op_result *r)
{
    r->ndim = out->ndim;
    memcpy(r->shape, out->shape, sizeof r->shape);
    r->numel = fsdp_tensor_numel(out);
    r->dtype = out->dtype;
    return out->storage->device->kernels ? fsdp_tensor_to_floats(out, r->out) : FSDP_OK;
}

static fsdp_status step(const op_case *c, const op_run *how, fsdp_device *device, fsdp_tape *tape,
                        fsdp_tensor *const *in, op_result *r)
{
    fsdp_scope *s;
    fsdp_tensor *out = NULL;
    FSDP_TRY(fsdp_scope_open(device, how->need ? tape : NULL,
                             &(fsdp_scope_options){.training = c->training,
                                                   .seed = 5,
                                                   .label_smoothing = c->label_smoothing},
                             &s));
    fsdp_status status = forward(c, how, s, in, &out);
    if (status == FSDP_OK)
        status = keep_result(out, r);
    fsdp_device_memory(device, &r->memory[0]);
    if (status == FSDP_OK && how->need && !how->no_backward)
        status = backward(tape, device, out);
    fsdp_device_memory(device, &r->memory[1]);
    fsdp_scope_close(s);
    fsdp_device_memory(device, &r->memory[2]);
    return status;
}

static fsdp_status keep_gradients(const op_case *c, fsdp_tensor *const *in, op_result *r)
{
    for (int i = 0; i < c->n_in; i++) {
        fsdp_tensor *grad = fsdp_tensor_grad(in[i]);
        r->has_grad[i] = grad != NULL;
        if (grad && grad->storage->device->kernels)
            FSDP_TRY(fsdp_tensor_to_floats(grad, r->grad[i]));
    }
    return FSDP_OK;
}

static fsdp_status run_on(const op_case *c, const op_run *how, fsdp_device *device, op_result *r)
{
    fsdp_tape *tape = NULL;
    fsdp_tensor *in[OP_MAX_IN] = {0};
    fsdp_status status = fsdp_tape_create(&tape);
    if (status == FSDP_OK)
        status = make_inputs(c, how, device, in);
    for (int b = 0; status == FSDP_OK && b < (how->backwards ? how->backwards : 1); b++)
        status = step(c, how, device, tape, in, r);
    if (status == FSDP_OK)
        status = keep_gradients(c, in, r);
    if (tape)
        fsdp_tape_reset(tape);
    fsdp_tape_destroy(tape);
    for (int i = 0; i < c->n_in; i++)
        fsdp_tensor_release(in[i]);
    return status;
}

/* The device is new, so all memory that remains allocated on it was leaked by this run. */
static void run(fsdp_test *t, const op_case *c, op_run how, op_result *r)
{
    fsdp_device *device;
    memset(r, 0, sizeof *r);
    ASSERT_OK(fsdp_device_create(&(fsdp_device_options){.name = how.device}, &device));
    r->status = run_on(c, &how, device, r);
    if (op_allocated(device) != 0)
        fsdp_test_fail(t, __FILE__, __LINE__, "%s leaks %lld bytes", c->name,
                       (long long)op_allocated(device));
    fsdp_device_destroy(device);
    if (r->status != FSDP_OK)
        FAIL("%s: %s: %s", c->name, fsdp_status_name(r->status), fsdp_last_error());
}

/* --- references --- */

typedef struct reference {
    float out[OP_MAX_NUMEL], grad[OP_MAX_IN][OP_MAX_NUMEL];
    double in[OP_MAX_IN][OP_MAX_NUMEL], value[OP_MAX_NUMEL];
    float projection[OP_MAX_NUMEL];
    int64_t numel; /* elements of the result */
} reference;

/* The projected result after adding `by` to element e of input i. */
static double projected(fsdp_test *t, const op_case *c, reference *ref, op_result *scratch,
                        fsdp_device *device, int i, int64_t e, double by)
{
    double keep = ref->in[i][e], sum = 0.0;
    ref->in[i][e] = keep + by;
    if (c->naive) {
        c->naive(c, (const double *const[]){ref->in[0], ref->in[1], ref->in[2], ref->in[3]},
                 ref->value);
    } else {
        float values[OP_MAX_NUMEL];
        fsdp_tensor *in[OP_MAX_IN] = {0};
        fsdp_status status = FSDP_OK;
        for (int k = 0; k < c->n_in && status == FSDP_OK; k++) {
            for (int64_t j = 0; j < op_numel(c, k); j++)
                values[j] = (float)ref->in[k][j];
            status =
                make_tensor(device, FSDP_DTYPE_F32, c->in[k].ndim, c->in[k].shape, values, &in[k]);
        }
        if (status == FSDP_OK)
            status = step(c, &(op_run){.dtype = FSDP_DTYPE_F32}, device, NULL, in, scratch);
        if (status != FSDP_OK)
            fsdp_test_fail(t, __FILE__, __LINE__, "%s: %s", c->name, fsdp_last_error());
        for (int k = 0; k < c->n_in; k++)
            fsdp_tensor_release(in[k]);
        for (int64_t j = 0; j < ref->numel; j++)
            ref->value[j] = (double)scratch->out[j];
    }
    ref->in[i][e] = keep;
    for (int64_t j = 0; j < ref->numel; j++)
        sum += ref->value[j] * (double)ref->projection[j];
    return sum;
}

/* Central differences. In double, a small step has an error of 1e-9. For the float32 operation
 * itself, a large step is used with Richardson's extrapolation, whose error is of fourth order. */
static double difference(fsdp_test *t, const op_case *c, reference *ref, op_result *scratch,
                         fsdp_device *device, int i, int64_t e)
{
    double h = c->naive ? 1e-5 : 1.0 / 16;
    double fine = (projected(t, c, ref, scratch, device, i, e, h) -
                   projected(t, c, ref, scratch, device, i, e, -h)) /
                  (2 * h);
    if (c->naive)
        return fine;
    double coarse = (projected(t, c, ref, scratch, device, i, e, 2 * h) -
                     projected(t, c, ref, scratch, device, i, e, -2 * h)) /
                    (4 * h);
    return (4 * fine - coarse) / 3;
}

static void make_reference(fsdp_test *t, const op_case *c, const op_result *f32, reference *ref,
                           op_result *scratch)
{
    fsdp_device *device;
    ASSERT_OK(fsdp_device_create(NULL, &device));
    ref->numel = f32->numel;
    projection_values(ref->numel, ref->projection);
    for (int i = 0; i < c->n_in; i++) {
        input_values(c, i, ref->out);
        for (int64_t e = 0; e < op_numel(c, i); e++)
            ref->in[i][e] = (double)ref->out[e];
    }
    memcpy(ref->out, f32->out, sizeof ref->out);
    if (c->naive) {
        c->naive(c, (const double *const[]){ref->in[0], ref->in[1], ref->in[2], ref->in[3]},
                 ref->value);
        for (int64_t j = 0; j < ref->numel; j++)
            ref->out[j] = (float)ref->value[j];
    }
    for (int i = 0; i < c->n_in; i++)
        for (int64_t e = 0; e < op_numel(c, i) && !t->failed; e++)
            ref->grad[i][e] = (float)difference(t, c, ref, scratch, device, i, e);
    fsdp_device_destroy(device);
}

/* --- checks --- */

static void check_gradients(fsdp_test *t, const op_case *c, const reference *ref, op_result *r,
                            double tolerance)
{
    for (int through = 0; through < 2; through++)
        for (unsigned need = 1; need < 1u << c->n_in; need++) {
            run(t, c, (op_run){.dtype = FSDP_DTYPE_F32, .need = need, .through = through != 0}, r);
            CHECK_HERE();
            op_compare(t, c->name, "result", r->out, ref->out, r->numel, tolerance);
            for (int i = 0; i < c->n_in; i++) {
                char what[64];
                snprintf(what, sizeof what, "gradient %d, wanted %u, %s", i, need,
                         through ? "through a node" : "leaf");
                if (r->has_grad[i] != (need >> i & 1))
                    FAIL("%s: %s: there %d", c->name, what, r->has_grad[i]);
                if (r->has_grad[i])
                    op_compare(t, c->name, what, r->grad[i], ref->grad[i], op_numel(c, i),
                               tolerance);
                CHECK_HERE();
            }
        }
}

static void check_second_backward(fsdp_test *t, const op_case *c, const reference *ref,
                                  op_result *r, double tolerance)
{
    unsigned all = (1u << c->n_in) - 1;
    for (int through = 0; through < 2; through++) {
        run(t, c,
            (op_run){.dtype = FSDP_DTYPE_F32, .need = all, .through = through != 0, .backwards = 2},
            r);
        CHECK_HERE();
        for (int i = 0; i < c->n_in; i++) {
            for (int64_t e = 0; e < op_numel(c, i); e++)
                r->grad[i][e] *= 0.5f;
            op_compare(t, c->name, "half of two backwards", r->grad[i], ref->grad[i],
                       op_numel(c, i), tolerance);
        }
    }
}

static void check_half(fsdp_test *t, const op_case *c, fsdp_dtype dtype, double tolerance,
                       double bf16_target, const reference *ref, op_result *r)
{
    for (int v = 0; v < 4; v++) {
        run(t, c,
            (op_run){.dtype = dtype,
                     .need = (1u << c->n_in) - 1,
                     .through = v & 1,
                     .bf16_target = v & 2},
            r);
        CHECK_HERE();
        op_compare(t, c->name, fsdp_dtype_name(dtype), r->out, ref->out, r->numel, tolerance);
        for (int i = 0; i < c->n_in; i++) {
            char what[64];
            snprintf(what, sizeof what, "%s gradient %d", fsdp_dtype_name(dtype), i);
            op_compare(t, c->name, what, r->grad[i], ref->grad[i], op_numel(c, i),
                       v & 2 ? bf16_target : tolerance);
        }
    }
}

/* float16 has three more bits, but not if the gradients are bfloat16. */
static void check_halves(fsdp_test *t, const op_case *c, const reference *ref, op_result *r)
{
    double bf16 = c->bf16_tolerance > 0 ? c->bf16_tolerance : 0x1p-6;
    check_half(t, c, FSDP_DTYPE_BF16, bf16, bf16, ref, r);
    if (!t->failed)
        check_half(t, c, FSDP_DTYPE_F16, bf16 / 4, bf16, ref, r);
}

static void check_memory(fsdp_test *t, const op_case *c, const op_result *cpu,
                         const op_result *meta)
{
    static const char *const points[POINTS] = {"forward", "backward", "closing the scope"};
    for (int p = 0; p < POINTS; p++) {
        const fsdp_memory_stats *a = &cpu->memory[p], *b = &meta->memory[p];
        if (a->allocated != b->allocated || a->allocated_peak != b->allocated_peak)
            FAIL("%s: after %s meta counts %lld bytes, at most %lld, instead of %lld, at most %lld",
                 c->name, points[p], (long long)b->allocated, (long long)b->allocated_peak,
                 (long long)a->allocated, (long long)a->allocated_peak);
        for (int tag = 0; tag < FSDP_TAG_COUNT; tag++)
            if (a->tag_allocated[tag] != b->tag_allocated[tag] ||
                a->tag_peak[tag] != b->tag_peak[tag] || a->tag_at_peak[tag] != b->tag_at_peak[tag])
                FAIL("%s: after %s meta counts another memory of %s", c->name, points[p],
                     fsdp_tag_name((fsdp_tag)tag));
    }
}

static void check_meta(fsdp_test *t, const op_case *c, op_result *r, op_result *meta)
{
    static const fsdp_dtype dtypes[] = {FSDP_DTYPE_F32, FSDP_DTYPE_BF16, FSDP_DTYPE_F16};
    unsigned all = (1u << c->n_in) - 1;
    for (int v = 0; v < 12; v++) {
        op_run how = {.dtype = dtypes[v / 8 ? 2 : v & 1],
                      .need = v & 2 ? all : 0,
                      .through = v & 4,
                      .backwards = v & 2 ? 2 : 1};
        run(t, c, how, r);
        CHECK_HERE();
        how.device = fsdp_test_meta();
        run(t, c, how, meta);
        CHECK_HERE();
        ASSERT_INT(meta->dtype, r->dtype);
        ASSERT_INT(meta->ndim, r->ndim);
        for (int d = 0; d < r->ndim; d++)
            ASSERT_INT(meta->shape[d], r->shape[d]);
        check_memory(t, c, r, meta);
        CHECK_HERE();
    }
}

static void check_saves_nothing(fsdp_test *t, const op_case *c, op_result *r)
{
    op_run how = {.dtype = FSDP_DTYPE_F32};
    run(t, c, how, r);
    CHECK_HERE();
    int64_t inputs = 0;
    for (int i = 0; i < c->n_in; i++)
        inputs += op_numel(c, i) * 4;
    if (r->memory[0].allocated > inputs + r->numel * 4)
        FAIL("%s: without tape %lld bytes are alive after forward, more than inputs and result",
             c->name, (long long)r->memory[0].allocated);
    how.need = (1u << c->n_in) - 1;
    how.no_backward = true;
    run(t, c, how, r); /* fails if the reset leaks */
}

/* Some failures are tolerated (a block is not split, a primitive is not cached). Only a series of
 * successes shows that n is past the last allocation. */
static void check_out_of_memory(fsdp_test *t, const op_case *c, op_result *r)
{
    op_run how = {.dtype = FSDP_DTYPE_BF16, .need = (1u << c->n_in) - 1};
    for (int through = 0; through < 2; through++) {
        how.through = through != 0;
        int failures = 0;
        for (long n = 1, successes = 0; successes < SUCCESSES; n++) {
            fsdp_device *device;
            ASSERT_OK(fsdp_device_create(NULL, &device));
            fsdp_alloc_fail_at(n);
            fsdp_status status = run_on(c, &how, device, r);
            fsdp_alloc_fail_at(0);
            int64_t left = op_allocated(device);
            fsdp_device_destroy(device);
            if (left)
                FAIL("%s: allocation %ld fails: %lld bytes leak", c->name, n, (long long)left);
            if (status != FSDP_OK && (status != FSDP_ERR_NOMEM || n > MAX_ALLOCATIONS))
                FAIL("%s: allocation %ld fails: %s: %s", c->name, n, fsdp_status_name(status),
                     fsdp_last_error());
            successes = status == FSDP_OK ? successes + 1 : 0;
            failures += status != FSDP_OK;
        }
        ASSERT(failures > 5);
    }
}

void op_check(fsdp_test *t, const op_case *c)
{
    double tolerance = c->tolerance > 0 ? c->tolerance : 5e-5;
    op_result *r = fsdp_calloc(2, sizeof *r);
    reference *ref = fsdp_calloc(1, sizeof *ref);
    if (!r || !ref)
        FAIL("out of memory");
    run(t, c, (op_run){.dtype = FSDP_DTYPE_F32}, r);
    if (!t->failed)
        make_reference(t, c, r, ref, r + 1);
    if (!t->failed)
        check_gradients(t, c, ref, r, tolerance);
    if (!t->failed)
        check_second_backward(t, c, ref, r, tolerance);
    if (!t->failed)
        check_halves(t, c, ref, r);
    if (!t->failed)
        check_meta(t, c, r, r + 1);
    if (!t->failed)
        check_saves_nothing(t, c, r);
    if (!t->failed)
        check_out_of_memory(t, c, r);
    fsdp_free(r);
    fsdp_free(ref);
}
