/* Parameters: lists, memory, initialisation. */
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/philox.h"
#include "src/nn/module.h"

fsdp_tensor *fsdp_parameter_data(const fsdp_parameter *p)
{
    return p->data;
}

fsdp_tensor *fsdp_parameter_local(const fsdp_parameter *p)
{
    return p->local;
}

fsdp_tensor *fsdp_parameter_grad(const fsdp_parameter *p)
{
    return p->sink.grad;
}

int fsdp_parameter_ndim(const fsdp_parameter *p)
{
    return p->ndim;
}

const int64_t *fsdp_parameter_shape(const fsdp_parameter *p)
{
    return p->shape;
}

int64_t fsdp_parameter_numel(const fsdp_parameter *p)
{
    int64_t n = 1;
    for (int i = 0; i < p->ndim; i++)
        n *= p->shape[i];
    return n;
}

bool fsdp_parameter_requires_grad(const fsdp_parameter *p)
{
    return p->sink.requires_grad;
}

void fsdp_parameter_set_requires_grad(fsdp_parameter *p, bool on)
{
    p->sink.requires_grad = on;
}

void fsdp_parameter_rows(const fsdp_parameter *p, int64_t *begin, int64_t *end)
{
    *begin = p->row_begin;
    *end = p->row_end;
}

fsdp_group *fsdp_parameter_group(const fsdp_parameter *p)
{
    return p->group;
}

void fsdp_parameter_set_tensors(fsdp_parameter *p, fsdp_tensor *data, fsdp_tensor *local,
                                int64_t row_begin, int64_t row_end, fsdp_group *group)
{
    fsdp_tensor_retain(data);
    fsdp_tensor_retain(local);
    fsdp_tensor_release(p->data);
    fsdp_tensor_release(p->local);
    p->data = data;
    p->local = local;
    p->row_begin = row_begin;
    p->row_end = row_end;
    p->group = group;
    data->sink = &p->sink;
}

fsdp_tensor *fsdp_read(fsdp_scope *s, const fsdp_parameter *p)
{
    if (!p->data && fsdp_scope_ok(s))
        fsdp_scope_fail(s, fsdp_error(FSDP_ERR_STATE,
                                      "a parameter has no memory yet: call fsdp_module_to_empty() "
                                      "or fsdp_fully_shard(), then load or init"));
    return p->data;
}

/* --- lists --- */

typedef struct collect {
    fsdp_parameter_list *list;
    size_t cap;
    bool duplicates;
} collect;

static bool listed(const fsdp_parameter_list *list, const fsdp_parameter *p)
{
    for (size_t i = 0; i < list->n; i++)
        if (list->items[i].parameter == p)
            return true;
    return false;
}

static fsdp_status collect_module(const char *path, fsdp_module *m, void *arg)
{
    collect *c = arg;
    for (size_t i = 0; i < m->n_params; i++) {
        if (!c->duplicates && listed(c->list, m->params[i].parameter))
            continue;
        if (!FSDP_GROW(c->list->items, c->cap, c->list->n + 1))
            return FSDP_ERR_NOMEM;
        char *name = fsdp_strdup_printf("%s%s%s", path, *path ? "." : "", m->params[i].name);
        if (!name)
            return FSDP_ERR_NOMEM;
        c->list->items[c->list->n++] =
            (fsdp_named_parameter){.name = name, .parameter = m->params[i].parameter};
    }
    return FSDP_OK;
}

fsdp_status fsdp_module_parameters(fsdp_module *m, bool duplicates, fsdp_parameter_list *list)
{
    *list = (fsdp_parameter_list){0};
    collect c = {.list = list, .duplicates = duplicates};
    fsdp_status status = fsdp_module_visit(m, collect_module, &c);
    if (status != FSDP_OK)
        fsdp_parameter_list_free(list);
    return status;
}

void fsdp_parameter_list_free(fsdp_parameter_list *list)
{
    for (size_t i = 0; i < list->n; i++) {
        char *name;
        memcpy(&name, &list->items[i].name, sizeof name); /* ours, shown as const */
        fsdp_free(name);
    }
    fsdp_free(list->items);
    *list = (fsdp_parameter_list){0};
}

/* --- memory and values --- */

fsdp_status fsdp_module_to_empty(fsdp_module *m, fsdp_device *device)
{
    fsdp_parameter_list list;
    FSDP_TRY(fsdp_module_parameters(m, false, &list));
    fsdp_status status = FSDP_OK;
    for (size_t i = 0; i < list.n && status == FSDP_OK; i++) {
        fsdp_parameter *p = list.items[i].parameter;
        fsdp_tensor *data;
        if (p->data)
            continue;
        status =
            fsdp_tensor_create(device, FSDP_DTYPE_F32, p->ndim, p->shape, FSDP_TAG_PARAM, &data);
        if (status != FSDP_OK)
            break;
        fsdp_parameter_set_tensors(p, data, data, 0, p->shape[0], NULL);
        fsdp_tensor_release(data);
    }
    fsdp_parameter_list_free(&list);
    return status;
}

uint64_t fsdp_parameter_key(uint64_t seed, const char *name)
{
    uint64_t hash = 0xcbf29ce484222325u; /* FNV-1a */
    for (; *name; name++)
        hash = (hash ^ (unsigned char)*name) * 0x100000001b3u;
    return fsdp_mix64(fsdp_mix64(seed) ^ hash);
}

static fsdp_status init_parameter(const char *name, fsdp_parameter *p, uint64_t seed)
{
    if (!p->local)
        return fsdp_error(FSDP_ERR_STATE, "%s has no memory to initialise", name);
    const fsdp_device *device = p->local->storage->device;
    FSDP_TRY(fsdp_tensor_begin_write(p->local));
    int64_t n = fsdp_tensor_numel(p->local);
    if (device->kernels && n) {
        if (p->init.std > 0.0f)
            device->kernels->normal(device->context, fsdp_tensor_ptr(p->local), p->local->dtype,
                                    fsdp_parameter_key(seed, name),
                                    p->row_begin * fsdp_tensor_row_numel(p->local), n, p->init.mean,
                                    p->init.std);
        else
            device->kernels->fill(device->context, fsdp_tensor_ptr(p->local), p->local->dtype,
                                  (double)p->init.mean, n);
    }
    fsdp_tensor_end_write(p->local);
    return FSDP_OK;
}

fsdp_status fsdp_module_init(fsdp_module *m, uint64_t seed)
{
    fsdp_parameter_list list;
    FSDP_TRY(fsdp_module_parameters(m, false, &list));
    fsdp_status status = FSDP_OK;
    for (size_t i = 0; i < list.n && status == FSDP_OK; i++)
        status = init_parameter(list.items[i].name, list.items[i].parameter, seed);
    fsdp_parameter_list_free(&list);
    return status;
}

void fsdp_module_zero_grad(fsdp_module *m)
{
    for (size_t i = 0; i < m->n_params; i++) {
        fsdp_grad_sink *sink = &m->params[i].parameter->sink;
        fsdp_tensor_release(sink->grad);
        sink->grad = NULL;
    }
    for (size_t i = 0; i < m->n_children; i++)
        fsdp_module_zero_grad(m->children[i]);
}
