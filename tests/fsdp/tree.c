/* See tree.h. */
#include "tests/fsdp/tree.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

#include <fsdp/dtensor.h>

#include "src/base/alloc.h"
#include "src/base/bf16.h"
#include "src/base/philox.h"
#include "src/fsdp/state.h"
#include "src/nn/float8_weight.h"
#include "tests/elements.h"

const fsdp_fully_shard_options tree_variants[TREE_VARIANTS] = {
    {.reshard_after_forward = FSDP_RESHARD_DEFAULT},
    {.mp_policy = {.param_dtype = FSDP_DTYPE_BF16}},
    {.reshard_after_forward = FSDP_RESHARD_FALSE},
    {.reshard_after_forward = FSDP_RESHARD_TRUE},
    {.mp_policy = {.param_dtype = FSDP_DTYPE_BF16}, .reshard_after_forward = FSDP_RESHARD_FALSE},
    {.mp_policy = {.param_dtype = FSDP_DTYPE_BF16}, .no_shard = true},
    {.mp_policy = {.param_dtype = FSDP_DTYPE_F16, .reduce_dtype = FSDP_DTYPE_F16}},
    {.mp_policy = {.param_dtype = FSDP_DTYPE_F16}, .reshard_after_forward = FSDP_RESHARD_FALSE},
};

static fsdp_status put_in_sections(const char *path, fsdp_module *m, void *arg)
{
    (void)path, (void)arg;
    if (m->fsdp_state)
        ((fsdp_state *)m->fsdp_state)->param_group->grads.least_in_sections = 0;
    return FSDP_OK;
}

fsdp_status tree_in_sections(fsdp_module *root)
{
    return fsdp_module_visit(root, put_in_sections, NULL);
}

/* --- modules --- */

static void failing_backward(fsdp_scope *s, const fsdp_node *n, fsdp_tensor *const *grad_out,
                             fsdp_tensor **grad_in)
{
    (void)n, (void)grad_out, (void)grad_in;
    fsdp_scope_error(s, "tree", "fails in backward on purpose");
}

static void dying_backward(fsdp_scope *s, const fsdp_node *n, fsdp_tensor *const *grad_out,
                           fsdp_tensor **grad_in)
{
    (void)s, (void)n, (void)grad_out, (void)grad_in;
    raise(SIGKILL);
}

static const fsdp_op failing_op = {.name = "tree", .backward = failing_backward};
static const fsdp_op dying_op = {.name = "tree", .backward = dying_backward};

/* A copy of x, by a node of the operation `op`, whose backward fails or ends the process. */
static fsdp_tensor *with_failing_backward(fsdp_scope *s, fsdp_tensor *x, const fsdp_op *op)
{
    fsdp_tensor *y = fsdp_scale(s, x, 1.0f);
    fsdp_tensor *z = y ? fsdp_new(s, y->dtype, y->ndim, y->shape) : NULL;
    if (!z)
        return NULL;
    const fsdp_kernels *k = fsdp_scope_kernels(s);
    if (k)
        k->fill(fsdp_scope_context(s), fsdp_tensor_ptr(z), z->dtype, 1.0, fsdp_tensor_numel(z));
    fsdp_record(s, &(fsdp_record_args){.op = op, .in = {y}, .n_in = 1, .out = {z}, .n_out = 1});
    return z;
}

static fsdp_tensor *apply(fsdp_scope *s, const fsdp_parameter *weight, fsdp_tensor *x)
{
    return weight->float8 ? fsdp_float8_apply(s, weight, x, NULL)
                          : fsdp_linear(s, x, fsdp_read(s, weight), NULL);
}

static fsdp_tensor *own_part(fsdp_scope *s, const tree *m, fsdp_tensor *x)
{
    if (m->check_unsharded && !fsdp_tensor_has_data(fsdp_parameter_data(m->up)))
        fsdp_scope_error(s, "tree", "the parameters are not unsharded");
    if (m->pause_us)
        usleep((useconds_t)m->pause_us);
    fsdp_tensor *h = fsdp_rms_norm(s, x, fsdp_read(s, m->norm), 1e-6f);
    h = fsdp_gelu_new(s, apply(s, m->up, h));
    h = apply(s, m->down, h);
    return fsdp_add(s, x, fsdp_dropout(s, h, m->dropout));
}

static void tree_module_forward(fsdp_scope *s, fsdp_module *self, const fsdp_args *in,
                                fsdp_args *out)
{
    const tree *m = self->impl;
    fsdp_tensor *x = in->t[0];
    if (m->up)
        x = own_part(s, m, x);
    for (int i = 0; i < fsdp_module_n_children(self); i++)
        for (int call = 0; call < m->calls[i]; call++)
            x = fsdp_module_call1(s, fsdp_module_child(self, i), x);
    if (m->tied)
        x = fsdp_add(s, x, fsdp_linear(s, x, fsdp_read(s, m->tied), NULL));
    if (m->fail_forward)
        fsdp_scope_error(s, "tree", "fails in forward on purpose");
    if (m->fail_backward || m->die_backward)
        x = with_failing_backward(s, x, m->die_backward ? &dying_op : &failing_op);
    out->t[out->n++] = x;
}

static fsdp_status add_params(fsdp_module *m, tree *t, int64_t hidden)
{
    const fsdp_init ones = {.mean = 1.0f, .std = 0.1f}, draw = {.std = 0.4f};
    FSDP_TRY(fsdp_module_add_parameter(m, "norm", 1, &t->width, ones, &t->norm));
    FSDP_TRY(fsdp_module_add_parameter(m, "up", 2, (int64_t[]){hidden, t->width}, draw, &t->up));
    return fsdp_module_add_parameter(m, "down", 2, (int64_t[]){t->width, hidden}, draw, &t->down);
}

fsdp_status tree_add(fsdp_module *parent, const char *name, int64_t width, int64_t hidden,
                     fsdp_module **module)
{
    fsdp_module *m;
    FSDP_TRY(fsdp_module_create("Tree", &m));
    tree *t = fsdp_calloc(1, sizeof *t);
    fsdp_status status = t ? FSDP_OK : FSDP_ERR_NOMEM;
    if (status == FSDP_OK) {
        t->width = width;
        for (int i = 0; i < TREE_MAX_CHILDREN; i++)
            t->calls[i] = 1;
        fsdp_module_set_forward(m, tree_module_forward, t, fsdp_free);
        status = hidden ? add_params(m, t, hidden) : FSDP_OK;
    }
    if (status != FSDP_OK) {
        fsdp_module_destroy(m);
        return status;
    }
    if (parent)
        FSDP_TRY(fsdp_module_add_child(parent, name, m));
    *module = m;
    return FSDP_OK;
}

tree *tree_of(const fsdp_module *module)
{
    return module->impl;
}

fsdp_status tree_example(int64_t width, fsdp_module **root)
{
    fsdp_module *r, *second, *unused;
    FSDP_TRY(tree_add(NULL, "", width, 5, &r));
    fsdp_status status = tree_add(r, "first", width, 4, &unused);
    if (status == FSDP_OK)
        status = tree_add(r, "second", width, 7, &second);
    if (status == FSDP_OK)
        status = tree_add(second, "inner", width, 3, &unused);
    if (status != FSDP_OK) {
        fsdp_module_destroy(r);
        return status;
    }
    *root = r;
    return FSDP_OK;
}

fsdp_status tree_example_shard(fsdp_module *root, fsdp_group *group, fsdp_device *device,
                               const fsdp_fully_shard_options *options)
{
    static const char *const units[] = {"second.inner", "first", "second", ""};
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        FSDP_TRY(fsdp_fully_shard(fsdp_module_find(root, units[i]), group, device, options));
    return fsdp_module_init(root, 5);
}

/* --- ranks --- */

fsdp_status trainee_open(fsdp_group *group, const char *device, fsdp_dtype dtype, trainee *t)
{
    /* A thread uses one card: a model of one rank is on the card of the thread's last group. */
    static _Thread_local int local_rank;
    *t = (trainee){.group = group, .dtype = dtype};
    if (group)
        local_rank = fsdp_group_local_rank(group);
    FSDP_TRY(fsdp_device_create(&(fsdp_device_options){.name = device, .local_rank = local_rank},
                                &t->device));
    return fsdp_tape_create(&t->tape);
}

fsdp_status trainee_close(trainee *t)
{
    fsdp_memory_stats stats = {0};
    fsdp_tape_destroy(t->tape);
    fsdp_module_destroy(t->model);
    if (t->device)
        fsdp_device_memory(t->device, &stats);
    fsdp_device_destroy(t->device);
    *t = (trainee){0};
    if (stats.allocated)
        return fsdp_error(FSDP_ERR_STATE, "%lld bytes are still allocated",
                          (long long)stats.allocated);
    return FSDP_OK;
}

fsdp_status trainee_open_example(fsdp_group *group, const fsdp_fully_shard_options *options,
                                 trainee *t)
{
    FSDP_TRY(trainee_open(group, NULL, options->mp_policy.param_dtype, t));
    FSDP_TRY(tree_example(TREE_EXAMPLE_WIDTH, &t->model));
    return tree_example_shard(t->model, group, t->device, options);
}

fsdp_status trainee_open_blocks(fsdp_group *group, const char *device, int blocks, int width,
                                const fsdp_fully_shard_options *options, trainee *t)
{
    FSDP_TRY(trainee_open(group, device, options->mp_policy.param_dtype, t));
    FSDP_TRY(tree_add(NULL, "", width, 0, &t->model));
    for (int i = 0; i < blocks; i++) {
        fsdp_module *block;
        FSDP_TRY(tree_add(t->model, (char[]){(char)('a' + i), 0}, width, width, &block));
        FSDP_TRY(fsdp_fully_shard(block, group, t->device, options));
    }
    FSDP_TRY(fsdp_fully_shard(t->model, group, t->device, options));
    return fsdp_module_init(t->model, 5);
}

fsdp_module *trainee_unit(const trainee *t, const char *path)
{
    return fsdp_module_find(t->model, path);
}

bool trainee_is_resharded(const trainee *t)
{
    static const char *const units[] = {"", "first", "second", "second.inner"};
    for (size_t i = 0; i < 4; i++)
        if (fsdp_tensor_has_data(fsdp_parameter_data(tree_of(trainee_unit(t, units[i]))->up)))
            return false;
    return true;
}

int trainee_rank(const trainee *t)
{
    return fsdp_group_rank(t->group);
}

int trainee_world_size(const trainee *t)
{
    return fsdp_group_world_size(t->group);
}

/* --- calls --- */

static fsdp_status draw(trainee *t, fsdp_dtype dtype, uint64_t key, const tree_call *call,
                        int64_t width, fsdp_tensor **tensor)
{
    const int64_t shape[] = {TREE_ROWS, width}, n = TREE_ROWS * width;
    float *values = fsdp_calloc((size_t)n, sizeof *values);
    if (!values)
        return FSDP_ERR_NOMEM;
    for (int64_t i = 0; i < n; i++) {
        fsdp_philox r =
            fsdp_philox4x32(key, (uint64_t)(call->step * 1000 + call->micro_batch), (uint64_t)i);
        values[i] = fsdp_uniform_from_bits(r.v[0]) - 0.5f;
    }
    fsdp_tensor *drawn;
    fsdp_status status =
        fsdp_tensor_from_data(t->device, FSDP_DTYPE_F32, 2, shape, values, FSDP_TAG_DATA, &drawn);
    fsdp_free(values);
    FSDP_TRY(status);
    status = fsdp_tensor_to(drawn, dtype, FSDP_TAG_DATA, tensor);
    fsdp_tensor_release(drawn);
    return status;
}

fsdp_status tree_scope(trainee *t, fsdp_tape *tape, const tree_call *call, fsdp_scope **s)
{
    return fsdp_scope_open(t->device, tape,
                           &(fsdp_scope_options){.training = tape != NULL,
                                                 .step = (uint32_t)call->step,
                                                 .micro_batch = (uint32_t)call->micro_batch,
                                                 .micro_step = call->micro_step,
                                                 .n_micro_steps = call->n_micro_steps},
                           s);
}

fsdp_tensor *tree_forward(trainee *t, fsdp_scope *s, fsdp_module *module, const tree_call *call)
{
    fsdp_tensor *x = NULL;
    if (!fsdp_scope_check(s, draw(t, t->dtype, 1, call, tree_of(module)->width, &x)))
        return NULL;
    return fsdp_module_call1(s, module, fsdp_scope_own(s, x));
}

fsdp_status tree_backward(trainee *t, fsdp_tensor *const *outputs, const tree_call *calls, int n)
{
    fsdp_tensor *grads[4] = {0};
    fsdp_status status = FSDP_OK;
    for (int i = 0; i < n && status == FSDP_OK; i++)
        status = draw(t, outputs[i]->dtype, 2, &calls[i], outputs[i]->shape[1], &grads[i]);
    if (status == FSDP_OK)
        status = fsdp_backward(t->tape, outputs, grads, n);
    for (int i = 0; i < n; i++)
        fsdp_tensor_release(grads[i]);
    return status;
}

fsdp_status tree_forward_backward(trainee *t, fsdp_module *module, const tree_call *call)
{
    fsdp_scope *s;
    FSDP_TRY(tree_scope(t, t->tape, call, &s));
    fsdp_tensor *y = tree_forward(t, s, module, call);
    fsdp_status status = fsdp_scope_status(s);
    if (status == FSDP_OK)
        status = tree_backward(t, &y, call, 1);
    fsdp_scope_close(s);
    return status;
}

fsdp_status tree_evaluate(trainee *t, fsdp_module *module, int step)
{
    fsdp_scope *s;
    const tree_call call = {.step = step};
    FSDP_TRY(tree_scope(t, NULL, &call, &s));
    tree_forward(t, s, module, &call);
    fsdp_status status = fsdp_scope_status(s);
    fsdp_scope_close(s);
    return status;
}

fsdp_status tree_step(trainee *t, int step, int leaves)
{
    const int world_size = trainee_world_size(t), micro_steps = leaves / world_size;
    fsdp_module_zero_grad(t->model);
    if (!t->plain)
        FSDP_TRY(fsdp_set_gradient_divide_factor(t->model, leaves));
    for (int a = 0; a < micro_steps; a++)
        FSDP_TRY(tree_forward_backward(t, t->model,
                                       &(tree_call){.step = step,
                                                    .micro_batch = a * world_size + trainee_rank(t),
                                                    .micro_step = a,
                                                    .n_micro_steps = micro_steps}));
    return tree_sgd(t->model, t->plain ? 0.1f / (float)leaves : 0.1f);
}

/* --- parameters --- */

static fsdp_status sgd_rows(fsdp_tensor *local, const fsdp_tensor *grad, float lr)
{
    const bool is_meta = fsdp_device_is_meta(fsdp_tensor_device(local));
    void *of_local = is_meta ? NULL : elements_of(local);
    const float *g = is_meta ? NULL : elements_of(grad);
    float *p = of_local;
    uint16_t *bf16 = of_local;
    for (int64_t i = 0; p && g && i < fsdp_tensor_numel(local); i++)
        if (local->dtype == FSDP_DTYPE_F32)
            p[i] -= lr * g[i];
        else
            bf16[i] = fsdp_bf16_from_f32(fsdp_f32_from_bf16(bf16[i]) - lr * g[i]);
    elements_changed(local, of_local);
    return is_meta || !fsdp_tensor_numel(local) || (p && g) ? FSDP_OK : FSDP_ERR_STATE;
}

fsdp_status tree_sgd(fsdp_module *model, float lr)
{
    fsdp_parameter_list list;
    FSDP_TRY(fsdp_module_parameters(model, false, &list));
    fsdp_status status = FSDP_OK;
    for (size_t i = 0; i < list.n && status == FSDP_OK; i++) {
        fsdp_tensor *local = fsdp_parameter_local(list.items[i].parameter);
        const fsdp_tensor *grad = fsdp_parameter_grad(list.items[i].parameter);
        if (!grad)
            continue;
        status = fsdp_tensor_begin_write(local);
        if (status != FSDP_OK)
            break;
        status = sgd_rows(local, grad, lr);
        fsdp_tensor_end_write(local);
    }
    fsdp_parameter_list_free(&list);
    return status;
}

fsdp_status tree_params(fsdp_module *model, float **values, size_t *n)
{
    fsdp_parameter_list list;
    FSDP_TRY(fsdp_module_parameters(model, false, &list));
    fsdp_status status = FSDP_OK;
    size_t numel = 0, at = 0;
    for (size_t i = 0; i < list.n; i++)
        numel += (size_t)fsdp_parameter_numel(list.items[i].parameter);
    float *out = fsdp_calloc(numel, sizeof *out);
    if (!out)
        status = FSDP_ERR_NOMEM;
    for (size_t i = 0; i < list.n && status == FSDP_OK; i++) {
        fsdp_tensor *full;
        status = fsdp_full_tensor(fsdp_parameter_local(list.items[i].parameter), &full);
        if (status != FSDP_OK)
            break;
        status = fsdp_tensor_to_floats(full, out + at);
        at += (size_t)fsdp_tensor_numel(full);
        fsdp_tensor_release(full);
    }
    fsdp_parameter_list_free(&list);
    if (status != FSDP_OK) {
        fsdp_free(out);
        return status;
    }
    *values = out;
    *n = numel;
    return FSDP_OK;
}

fsdp_status tree_full_grad(const fsdp_parameter *p, float **values)
{
    *values = NULL;
    if (!fsdp_parameter_grad(p))
        return FSDP_OK;
    fsdp_tensor *full;
    FSDP_TRY(fsdp_full_tensor(fsdp_parameter_grad(p), &full));
    float *out = fsdp_calloc((size_t)fsdp_tensor_numel(full), sizeof *out);
    fsdp_status status = out ? fsdp_tensor_to_floats(full, out) : FSDP_ERR_NOMEM;
    fsdp_tensor_release(full);
    if (status == FSDP_OK)
        *values = out;
    else
        fsdp_free(out);
    return status;
}

fsdp_status tree_same_params(const trainee *a, const trainee *b)
{
    float *x = NULL, *y = NULL;
    size_t n = 0, m = 0, at = 0;
    fsdp_status status = tree_params(a->model, &x, &n);
    if (!b) {
        fsdp_free(x);
        return status;
    }
    if (status == FSDP_OK)
        status = tree_params(b->model, &y, &m);
    while (status == FSDP_OK && at < n && n == m && memcmp(&x[at], &y[at], sizeof *x) == 0)
        at++;
    if (status == FSDP_OK && (n != m || at < n))
        status = fsdp_error(FSDP_ERR_STATE, "of %zu and %zu values, number %zu differs: %g, %g", n,
                            m, at, (double)x[at], (double)y[at]);
    fsdp_free(x);
    fsdp_free(y);
    return status;
}
