/* See toy.h. */
#include <stdio.h>

#include "src/base/alloc.h"
#include "tests/fsdp/toy.h"

typedef struct toy_block {
    fsdp_parameter *norm, *up, *down;
} toy_block;

typedef struct toy {
    fsdp_parameter *embedding, *norm;
    fsdp_module *blocks;
    const toy_batch *batch; /* batch of the current forward */
} toy;

static void block_forward(fsdp_scope *s, fsdp_module *self, const fsdp_args *in, fsdp_args *out)
{
    const toy_block *b = self->impl;
    fsdp_tensor *x = in->t[0];
    fsdp_tensor *h = fsdp_rms_norm(s, x, fsdp_read(s, b->norm), 1e-6f);
    h = fsdp_gelu_new(s, fsdp_linear(s, h, fsdp_read(s, b->up), NULL));
    h = fsdp_linear(s, h, fsdp_read(s, b->down), NULL);
    out->t[out->n++] = fsdp_add(s, x, h);
}

static void toy_forward(fsdp_scope *s, fsdp_module *self, const fsdp_args *in, fsdp_args *out)
{
    const toy *m = self->impl;
    (void)in;
    fsdp_tensor *x = fsdp_embedding(s, m->batch->ids, m->batch->n, fsdp_read(s, m->embedding), -1);
    for (int i = 0; i < fsdp_module_n_children(m->blocks); i++)
        x = fsdp_module_call1(s, fsdp_module_child(m->blocks, i), x);
    x = fsdp_rms_norm(s, x, fsdp_read(s, m->norm), 1e-6f);
    out->t[out->n++] = fsdp_linear_cross_entropy(s, x, fsdp_read(s, m->embedding), m->batch->labels,
                                                 m->batch->factor);
}

static fsdp_status add_block(fsdp_module *list, const toy_shape *shape, int i)
{
    char name[16];
    fsdp_module *m;
    snprintf(name, sizeof name, "%d", i);
    FSDP_TRY(fsdp_module_create("ToyBlock", &m));
    FSDP_TRY(fsdp_module_add_child(list, name, m));
    toy_block *b = fsdp_calloc(1, sizeof *b);
    if (!b)
        return FSDP_ERR_NOMEM;
    fsdp_module_set_forward(m, block_forward, b, fsdp_free);
    FSDP_TRY(fsdp_module_add_parameter(m, "norm", 1, &shape->width,
                                       (fsdp_init){.mean = 1.0f, .std = 0.0f}, &b->norm));
    FSDP_TRY(fsdp_module_add_parameter(m, "up", 2, (int64_t[]){shape->hidden, shape->width},
                                       (fsdp_init){.mean = 0.0f, .std = 0.3f}, &b->up));
    return fsdp_module_add_parameter(m, "down", 2, (int64_t[]){shape->width, shape->hidden},
                                     (fsdp_init){.mean = 0.0f, .std = 0.3f}, &b->down);
}

static fsdp_status build(const toy_shape *shape, fsdp_module *root)
{
    toy *m = fsdp_calloc(1, sizeof *m);
    if (!m)
        return FSDP_ERR_NOMEM;
    fsdp_module_set_forward(root, toy_forward, m, fsdp_free);
    FSDP_TRY(fsdp_module_add_parameter(root, "embedding", 2,
                                       (int64_t[]){shape->vocab, shape->width},
                                       (fsdp_init){.mean = 0.0f, .std = 0.5f}, &m->embedding));
    FSDP_TRY(fsdp_module_create("ModuleList", &m->blocks));
    FSDP_TRY(fsdp_module_add_child(root, "blocks", m->blocks));
    for (int i = 0; i < shape->blocks; i++)
        FSDP_TRY(add_block(m->blocks, shape, i));
    return fsdp_module_add_parameter(root, "norm", 1, &shape->width,
                                     (fsdp_init){.mean = 1.0f, .std = 0.0f}, &m->norm);
}

fsdp_status toy_create(const toy_shape *shape, fsdp_module **model)
{
    fsdp_module *root;
    FSDP_TRY(fsdp_module_create("Toy", &root));
    fsdp_status status = build(shape, root);
    if (status != FSDP_OK) {
        fsdp_module_destroy(root);
        return status;
    }
    *model = root;
    return FSDP_OK;
}

fsdp_status toy_shard(fsdp_module *model, fsdp_group *group, fsdp_device *device,
                      const fsdp_fully_shard_options *options)
{
    const toy *m = model->impl;
    for (int i = 0; i < fsdp_module_n_children(m->blocks); i++)
        FSDP_TRY(fsdp_fully_shard(fsdp_module_child(m->blocks, i), group, device, options));
    return fsdp_fully_shard(model, group, device, options);
}

fsdp_tensor *toy_loss(fsdp_scope *s, fsdp_module *model, const toy_batch *batch)
{
    toy *m = model->impl;
    m->batch = batch;
    return fsdp_module_call(s, model, NULL, (fsdp_args){.n = 0}).t[0];
}
