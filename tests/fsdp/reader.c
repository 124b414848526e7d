/* See reader.h. */
#include "tests/fsdp/reader.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "src/autograd/activated_linear.h"
#include "src/autograd/checkpoint.h"
#include "src/base/alloc.h"

typedef struct one_read {
    const reader *m;
    char what;
} one_read;

static fsdp_tensor *head_loss(fsdp_scope *s, const reader *m, fsdp_tensor *x)
{
    static const int32_t labels[TREE_ROWS] = {1, 2, 3};
    return fsdp_linear_cross_entropy(s, x, fsdp_read(s, m->w[READER_LARGE - 1]), labels, 1.0f);
}

static void fail_backward(fsdp_scope *s, const fsdp_node *n, fsdp_tensor *const *grad_out,
                          fsdp_tensor **grad_in)
{
    (void)n, (void)grad_out, (void)grad_in;
    fsdp_scope_error(s, "fail", "on purpose");
}

/* A copy of x whose backward fails. */
static fsdp_tensor *failing(fsdp_scope *s, fsdp_tensor *x)
{
    static const fsdp_op op = {.name = "fail", .backward = fail_backward};
    fsdp_tensor *y = fsdp_scale(s, x, 1.0f);
    fsdp_record(s, &(fsdp_record_args){.op = &op, .in = {x}, .n_in = 1, .out = {y}, .n_out = 1});
    return y;
}

/* Set *out to the input of the next read. If the read does not replace x, *out also has a loss. */
static void read_one(fsdp_scope *s, const void *self, const fsdp_args *in, fsdp_args *out)
{
    const one_read *r = self;
    fsdp_tensor *x = in->t[0];
    *out = (fsdp_args){.t = {x}, .n = 1};
    if (r->what == 'H') {
        out->t[out->n++] = head_loss(s, r->m, x);
        return;
    }
    if (r->what == 'X') {
        out->t[0] = failing(s, x);
        return;
    }
    const int i = tolower((unsigned char)r->what) - 'a';
    fsdp_tensor *w = fsdp_read(s, r->m->w[i]);
    fsdp_tensor *y = islower((unsigned char)r->what)
                         ? fsdp_linear(s, x, w, NULL)
                         : fsdp_activated_linear(s, FSDP_ACTIVATION_RELU, x, NULL, w,
                                                 fsdp_read(s, r->m->bias[i]), false);
    if (i < READER_LARGE)
        out->t[0] = fsdp_add(s, x, fsdp_gelu(s, y));
    else
        out->t[out->n++] = fsdp_sum(s, y);
}

/* x -> a scalar */
static void run_program(fsdp_scope *s, const void *self, const fsdp_args *in, fsdp_args *out)
{
    const reader *m = *(const reader *const *)self;
    fsdp_args x = {.t = {in->t[0]}, .n = 1};
    fsdp_tensor *loss = NULL;
    for (const char *p = m->program; *p; p++) {
        const one_read r = {m, *p};
        fsdp_args y = {.n = 0};
        if (m->checkpointed)
            fsdp_checkpoint(s, NULL, read_one, &r, sizeof r, &x, &y);
        else
            read_one(s, &r, &x, &y);
        x.t[0] = y.t[0];
        if (y.n > 1)
            loss = loss ? fsdp_add(s, loss, y.t[1]) : y.t[1];
    }
    fsdp_tensor *sum = fsdp_sum(s, x.t[0]);
    out->t[out->n++] = loss ? fsdp_add(s, sum, loss) : sum;
}

static void reader_forward(fsdp_scope *s, fsdp_module *self, const fsdp_args *in, fsdp_args *out)
{
    const reader *m = self->impl;
    if (m->is_one_part)
        fsdp_checkpoint(s, NULL, run_program, &m, sizeof m, in, out);
    else
        run_program(s, &m, in, out);
}

static int64_t rows_of(int i)
{
    if (i < READER_LARGE)
        return READER_WIDTH;
    return i + 1 < READER_MATRICES ? READER_SMALL_ROWS : READER_LEAST_ROWS;
}

static fsdp_status add_reader(fsdp_module **module)
{
    const fsdp_init init = {.mean = 0.0f, .std = 0.2f};
    reader *m = fsdp_calloc(1, sizeof *m);
    if (!m)
        return FSDP_ERR_NOMEM;
    FSDP_TRY(fsdp_module_create("Reader", module));
    fsdp_module_set_forward(*module, reader_forward, m, fsdp_free);
    for (int i = 0; i < READER_MATRICES; i++) {
        const char name[] = {(char)('a' + i), 0}, bias[] = {(char)('a' + i), '_', 'b', 0};
        const int64_t shape[] = {rows_of(i), READER_WIDTH};
        FSDP_TRY(fsdp_module_add_parameter(*module, name, 2, shape, init, &m->w[i]));
        FSDP_TRY(fsdp_module_add_parameter(*module, bias, 1, shape, init, &m->bias[i]));
    }
    return FSDP_OK;
}

fsdp_status reader_open(fsdp_group *group, const fsdp_device_mesh *mesh, bool in_sections,
                        trainee *m)
{
    const fsdp_fully_shard_options o = {.mesh = mesh};
    FSDP_TRY(trainee_open(group, NULL, FSDP_DTYPE_F32, m));
    FSDP_TRY(add_reader(&m->model));
    FSDP_TRY(fsdp_fully_shard(m->model, m->group, m->device, &o));
    if (in_sections)
        FSDP_TRY(tree_in_sections(m->model));
    return fsdp_module_init(m->model, 5);
}

reader *reader_of(const trainee *m)
{
    return m->model->impl;
}

void reader_set(const trainee *m, const char *program, bool checkpointed)
{
    reader *r = reader_of(m);
    snprintf(r->program, sizeof r->program, "%s", program);
    r->checkpointed = checkpointed;
}

static fsdp_tensor *input(fsdp_scope *s, const trainee *m, int leaf)
{
    float values[TREE_ROWS * READER_WIDTH];
    fsdp_tensor *x;
    for (int i = 0; i < TREE_ROWS * READER_WIDTH; i++)
        values[i] = (float)((i * 7 + leaf * 13) % 11) / 11.0f - 0.4f;
    const fsdp_status status =
        fsdp_tensor_from_data(m->device, FSDP_DTYPE_F32, 2, (int64_t[]){TREE_ROWS, READER_WIDTH},
                              values, FSDP_TAG_ACTIVATION, &x);
    return fsdp_scope_check(s, status) ? fsdp_scope_own(s, x) : NULL;
}

fsdp_status reader_forward_on(trainee *m, fsdp_tape *tape, const tree_call *call, fsdp_scope **s,
                              fsdp_tensor **loss)
{
    FSDP_TRY(tree_scope(m, tape, call, s));
    const fsdp_args in = {.t = {input(*s, m, call->micro_batch)}, .n = 1};
    *loss = fsdp_module_call(*s, m->model, NULL, in).t[0];
    return fsdp_scope_status(*s);
}

fsdp_status reader_micro_step(trainee *m, const tree_call *call)
{
    fsdp_scope *s = NULL;
    fsdp_tensor *loss;
    fsdp_status status = reader_forward_on(m, m->tape, call, &s, &loss);
    if (status == FSDP_OK)
        status = fsdp_backward(m->tape, &loss, NULL, 1);
    fsdp_scope_close(s);
    return status;
}

fsdp_status reader_step(trainee *m, int leaf)
{
    return reader_micro_step(m, &(tree_call){.micro_batch = leaf, .n_micro_steps = 1});
}

fsdp_status reader_update(trainee *m)
{
    fsdp_status status = tree_sgd(m->model, 0.1f);
    fsdp_module_zero_grad(m->model);
    return status;
}
