/* Implements scopes. A scope owns intermediate tensors and keeps the first failure. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "src/autograd/autograd.h"
#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/philox.h"
#include "src/trace/pace_testing.h"

fsdp_status fsdp_scope_open(fsdp_device *device, fsdp_tape *tape, const fsdp_scope_options *options,
                            fsdp_scope **scope)
{
    fsdp_scope *s = fsdp_calloc(1, sizeof *s);
    if (!s)
        return FSDP_ERR_NOMEM;
    s->run = fsdp_calloc(1, sizeof *s->run);
    if (!s->run) {
        fsdp_free(s);
        return FSDP_ERR_NOMEM;
    }
    s->run->device = device;
    s->run->tape = tape;
    if (options)
        s->run->options = *options;
    if (s->run->options.n_micro_steps < 1)
        s->run->options.n_micro_steps = 1;
    *scope = s;
    return FSDP_OK;
}

fsdp_status fsdp_scope_open_child(fsdp_scope *parent, fsdp_scope **child)
{
    fsdp_scope *s = fsdp_calloc(1, sizeof *s);
    if (!s)
        return FSDP_ERR_NOMEM;
    s->parent = parent;
    s->run = parent->run;
    *child = s;
    return FSDP_OK;
}

void fsdp_scope_close(fsdp_scope *s)
{
    if (!s)
        return;
    for (size_t i = s->n_owned; i-- > 0;)
        fsdp_tensor_release(s->owned[i]);
    fsdp_free(s->owned);
    if (!s->parent)
        fsdp_free(s->run);
    fsdp_free(s);
}

fsdp_status fsdp_scope_status(const fsdp_scope *s)
{
    return s->run->status ? fsdp_error(s->run->status, "%s", s->run->message) : FSDP_OK;
}

void fsdp_scope_fail(fsdp_scope *s, fsdp_status status)
{
    if (status == FSDP_OK || s->run->status)
        return;
    s->run->status = status;
    snprintf(s->run->message, sizeof s->run->message, "%.*s", (int)sizeof s->run->message - 1,
             fsdp_last_error());
}

void fsdp_scope_name_module(fsdp_scope *s, const char *path)
{
    fsdp_run *run = s->run;
    char message[sizeof run->message];
    if (run->status != FSDP_ERR_NOMEM || run->names_module || !*path)
        return;
    run->names_module = true;
    memcpy(message, run->message, sizeof message);
    const int length =
        snprintf(run->message, sizeof run->message,
                 "%s of %.150s: ", run->recomputing ? "recomputation" : "forward", path);
    snprintf(run->message + length, sizeof run->message - (size_t)length, "%.*s",
             (int)sizeof run->message - length - 1, message);
}

bool fsdp_scope_check(fsdp_scope *s, fsdp_status status)
{
    fsdp_scope_fail(s, status);
    return status == FSDP_OK;
}

void fsdp_scope_error(fsdp_scope *s, const char *op, const char *format, ...)
{
    char text[400];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fsdp_scope_fail(s, fsdp_error(FSDP_ERR_INVALID, "%s: %s", op, text));
}

fsdp_device *fsdp_scope_device(const fsdp_scope *s)
{
    return s->run->device;
}

const fsdp_scope_options *fsdp_scope_get_options(const fsdp_scope *s)
{
    return &s->run->options;
}

const fsdp_kernels *fsdp_scope_kernels(const fsdp_scope *s)
{
    return s->run->status || s->run->without_values ? NULL : s->run->device->kernels;
}

void fsdp_scope_count_product(const fsdp_scope *s, int64_t m, int64_t n, int64_t k)
{
    fsdp_device *device = s->run->device;
    const double flops = 2.0 * (double)m * (double)n * (double)k;
    if (s->run->status || s->run->without_values)
        return;
    if (device->kernels)
        fsdp_pace_product(flops);
    else
        device->product_flops += flops;
}

fsdp_tensor *fsdp_scope_own(fsdp_scope *s, fsdp_tensor *t)
{
    if (!t)
        return NULL;
    if (!FSDP_GROW(s->owned, s->cap_owned, s->n_owned + 1)) {
        fsdp_scope_fail(s, FSDP_ERR_NOMEM);
        fsdp_tensor_release(t);
        return NULL;
    }
    s->owned[s->n_owned++] = t;
    return t;
}

fsdp_tensor *fsdp_new(fsdp_scope *s, fsdp_dtype dtype, int ndim, const int64_t *shape)
{
    fsdp_device *device = s->run->device;
    fsdp_tensor *t;
    if (!fsdp_scope_ok(s) ||
        !fsdp_scope_check(
            s, s->run->without_values
                   ? fsdp_tensor_without_memory(device, dtype, ndim, shape, &t)
                   : fsdp_tensor_create(device, dtype, ndim, shape, FSDP_TAG_ACTIVATION, &t)))
        return NULL;
    return fsdp_scope_own(s, t);
}

fsdp_tensor *fsdp_scope_keep(fsdp_scope *outer, fsdp_tensor *t)
{
    return fsdp_scope_own(outer, fsdp_tensor_retain(t));
}

void fsdp_drop(fsdp_scope *s, fsdp_tensor *t)
{
    for (size_t i = s->n_owned; t && i-- > 0;) {
        if (s->owned[i] != t)
            continue;
        memmove(s->owned + i, s->owned + i + 1, (s->n_owned - i - 1) * sizeof *s->owned);
        s->n_owned--;
        fsdp_tensor_release(t);
        return;
    }
}

/* Let the scope fail if the tensor has no data. On meta, tensors never have data. There, let the
 * scope fail if the tensor would have no data in a real run. */
static void check_data(fsdp_scope *s, const char *op, const fsdp_tensor *t, int i)
{
    if (!fsdp_tensor_numel(t))
        return;
    const fsdp_status status = fsdp_tensor_check_read(t);
    fsdp_error_context(status, "%s", op);
    fsdp_scope_fail(s, status);
    if (fsdp_scope_kernels(s) && !t->storage->data)
        fsdp_scope_error(s, op, "input %d has no data", i);
}

static bool has_contiguous_rows(const fsdp_tensor *t)
{
    return t->ndim == 2 && t->stride[1] == 1 && t->stride[0] >= t->shape[1];
}

static bool check_inputs(fsdp_scope *s, const char *op, fsdp_tensor *const *t, int n, bool by_rows)
{
    if (!fsdp_scope_ok(s))
        return false;
    for (int i = 0; i < n; i++) {
        if (!t[i])
            fsdp_scope_error(s, op, "input %d is NULL", i);
        else if (t[i]->storage->device != s->run->device)
            fsdp_scope_error(s, op, "input %d is on another device than the scope", i);
        else if (!fsdp_tensor_is_contiguous(t[i]) && !(by_rows && has_contiguous_rows(t[i])))
            fsdp_scope_error(s, op, "input %d is not contiguous", i);
        else
            check_data(s, op, t[i], i);
        if (!fsdp_scope_ok(s))
            return false;
    }
    return true;
}

bool fsdp_check_inputs(fsdp_scope *s, const char *op, fsdp_tensor *const *t, int n)
{
    return check_inputs(s, op, t, n, false);
}

bool fsdp_check_rows(fsdp_scope *s, const char *op, fsdp_tensor *const *t, int n)
{
    return check_inputs(s, op, t, n, true);
}

uint64_t fsdp_scope_next_key(fsdp_scope *s)
{
    const fsdp_scope_options *o = &s->run->options;
    uint64_t key = fsdp_mix64(o->seed);
    key = fsdp_mix64(key ^ ((uint64_t)o->step << 32 | o->micro_batch));
    return fsdp_mix64(key ^ s->run->rng_calls++);
}
