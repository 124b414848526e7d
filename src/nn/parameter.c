/* Implements parameters: their lists, memory and initialization. */
#include <stdio.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/philox.h"
#include "src/nn/module.h"
#include "src/nn/quantized.h"

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

fsdp_status fsdp_parameter_set_quantized(fsdp_parameter *p, const fsdp_quantization *how)
{
    fsdp_quantized *q;
    if (p->data || p->owner)
        return fsdp_error(FSDP_ERR_STATE, "a parameter that has memory already cannot be stored in "
                                          "4 bits: do this before the model is sharded");
    FSDP_TRY(fsdp_quantized_create(how, fsdp_parameter_numel(p), &q));
    fsdp_quantized_free(p->quantized);
    p->quantized = q;
    fsdp_parameter_set_requires_grad(p, false);
    return FSDP_OK;
}

void fsdp_parameter_rows(const fsdp_parameter *p, int64_t *begin, int64_t *end)
{
    const fsdp_shard shard = fsdp_parameter_shard(p);
    *begin = shard.begin;
    *end = shard.end;
}

int fsdp_parameter_shard_dim(const fsdp_parameter *p)
{
    return fsdp_parameter_shard(p).dim;
}

fsdp_group *fsdp_parameter_group(const fsdp_parameter *p)
{
    return fsdp_parameter_shard(p).group;
}

void fsdp_parameter_set_tensors(fsdp_parameter *p, fsdp_tensor *data, fsdp_tensor *local)
{
    fsdp_tensor_retain(data);
    fsdp_tensor_retain(local);
    fsdp_tensor_release(p->data);
    fsdp_tensor_release(p->local);
    p->data = data;
    p->local = local;
    data->sink = &p->sink;
}

fsdp_shard fsdp_parameter_shard(const fsdp_parameter *p)
{
    return p->owner ? p->owner->shard : (fsdp_shard){.end = p->shape[0]};
}

void *fsdp_parameter_own_rows_of_copy(const fsdp_parameter *p, fsdp_dtype *dtype)
{
    return p->owner ? p->owner->ops->own_rows_of_copy(p->owner, dtype) : NULL;
}

fsdp_status fsdp_parameters_apply_pending_dtypes(const fsdp_parameter_list *parameters)
{
    for (size_t i = 0; i < parameters->n; i++) {
        fsdp_parameter_owner *owner = parameters->items[i].parameter->owner;
        if (owner)
            FSDP_TRY(owner->ops->apply_pending_dtype(owner));
    }
    return FSDP_OK;
}

static const char *parameter_path(const fsdp_parameter *p, char *text, size_t bytes)
{
    const fsdp_module *m = p->home;
    size_t used = fsdp_module_write_path(m, text, bytes);
    snprintf(text + used, bytes - used, "?");
    for (size_t i = 0; m && i < m->n_params; i++)
        if (m->params[i].parameter == p)
            snprintf(text + used, bytes - used, "%s", m->params[i].name);
    return text;
}

static bool is_on_meta(const fsdp_parameter *p)
{
    return p->local && fsdp_device_is_meta(fsdp_tensor_device(p->local));
}

/* Count the parameters on the meta device, in m and in all modules below m. A shared parameter
 * counts once. If the number is not 0 and *first is NULL, set *first to the first of these
 * parameters. */
static size_t count_on_meta(const fsdp_module *m, const fsdp_parameter **first)
{
    size_t n = 0;
    for (size_t i = 0; i < m->n_params; i++) {
        const fsdp_parameter *p = m->params[i].parameter;
        if (p->home != m || !is_on_meta(p))
            continue;
        *first = *first ? *first : p;
        n++;
    }
    for (size_t i = 0; i < m->n_children; i++)
        n += count_on_meta(m->children[i], first);
    return n;
}

fsdp_status fsdp_module_meta_error(const fsdp_module *m)
{
    char name[256], more[48] = " is";
    const fsdp_parameter *first = NULL;
    while (m->parent)
        m = m->parent;
    const size_t n = count_on_meta(m, &first);
    if (!n)
        return fsdp_error(FSDP_ERR_STATE, "a unit without parameters is on the meta device: call "
                                          "fsdp_module_to_empty()");
    if (n > 1)
        snprintf(more, sizeof more, " and %zu more are", n - 1);
    return fsdp_error(FSDP_ERR_STATE,
                      "'%s'%s on the meta device: call fsdp_module_to_empty(), then load or init",
                      parameter_path(first, name, sizeof name), more);
}

fsdp_tensor *fsdp_read(fsdp_scope *s, const fsdp_parameter *p)
{
    char name[256];
    if (p->data && fsdp_scope_ok(s) && p->data->storage->device != fsdp_scope_device(s) &&
        is_on_meta(p) && p->home)
        fsdp_scope_fail(s, fsdp_module_meta_error(p->home));
    if (!p->data && fsdp_scope_ok(s))
        fsdp_scope_fail(s, fsdp_error(FSDP_ERR_STATE,
                                      "parameter '%s' has no memory yet: call "
                                      "fsdp_module_to_empty() or fsdp_fully_shard(), then load or "
                                      "init",
                                      parameter_path(p, name, sizeof name)));
    return p->data;
}

/* --- lists --- */

typedef struct collect {
    fsdp_parameter_list *list;
    size_t cap;
    bool duplicates;
} collect;

static bool is_listed(const fsdp_parameter_list *list, const fsdp_parameter *p)
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
        if (!c->duplicates && is_listed(c->list, m->params[i].parameter))
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
        /* The list owns the name, although its type is const. */
        memcpy(&name, &list->items[i].name, sizeof name);
        fsdp_free(name);
    }
    fsdp_free(list->items);
    *list = (fsdp_parameter_list){0};
}

/* --- memory and values --- */

/* Move a parameter from meta, where it has no values, to `device`. Code that holds p->data sees the
 * new memory. */
static fsdp_status leave_meta(fsdp_parameter *p, fsdp_device *device)
{
    fsdp_tensor *made;
    FSDP_TRY(fsdp_tensor_create(device, p->data->dtype, p->ndim, p->shape, FSDP_TAG_PARAM, &made));
    fsdp_tensor_exchange(p->data, made);
    fsdp_tensor_release(made);
    fsdp_tensor_release(p->sink.grad);
    p->sink.grad = NULL;
    return FSDP_OK;
}

static fsdp_status give_memory(fsdp_parameter *p, fsdp_device *device)
{
    fsdp_tensor *data;
    FSDP_TRY(fsdp_tensor_create(device, FSDP_DTYPE_F32, p->ndim, p->shape, FSDP_TAG_PARAM, &data));
    fsdp_parameter_set_tensors(p, data, data);
    fsdp_tensor_release(data);
    return FSDP_OK;
}

/* Allocate the memory of the module's unit, if it has one, and of those parameters of the module
 * that belong to no unit. */
static fsdp_status to_empty(const char *path, fsdp_module *m, void *arg)
{
    fsdp_device *device = arg;
    (void)path;
    if (m->to_empty)
        FSDP_TRY(m->to_empty(m->fsdp_state, device));
    for (size_t i = 0; i < m->n_params; i++) {
        fsdp_parameter *p = m->params[i].parameter;
        if (!p->data)
            FSDP_TRY(give_memory(p, device));
        else if (!p->owner && is_on_meta(p) && !fsdp_device_is_meta(device))
            FSDP_TRY(leave_meta(p, device));
    }
    return FSDP_OK;
}

fsdp_status fsdp_module_to_empty(fsdp_module *m, fsdp_device *device)
{
    for (const fsdp_module *around = m->parent; around; around = around->parent)
        if (around->to_empty)
            FSDP_TRY(around->to_empty(around->fsdp_state, device));
    return fsdp_module_visit(m, to_empty, device);
}

uint64_t fsdp_parameter_key(uint64_t seed, const char *name)
{
    uint64_t hash = 0xcbf29ce484222325u; /* FNV-1a */
    for (; *name; name++)
        hash = (hash ^ (unsigned char)*name) * 0x100000001b3u;
    return fsdp_mix64(fsdp_mix64(seed) ^ hash);
}

static void zero_row(const fsdp_parameter *p)
{
    const fsdp_device *device = p->local->storage->device;
    const int64_t row = p->init.zero_row, width = fsdp_tensor_row_numel(p->local);
    const fsdp_shard shard = fsdp_parameter_shard(p);
    const int64_t first = shard.dim ? 0 : shard.begin;
    if (!p->init.has_zero_row || row < first || row >= first + p->local->shape[0])
        return;
    char *at = (char *)fsdp_tensor_ptr(p->local) +
               (size_t)((row - first) * width) * fsdp_dtype_size(p->local->dtype);
    device->kernels->fill(device->context, at, p->local->dtype, 0.0, width);
}

static void draw_normal(const fsdp_parameter *p, uint64_t key)
{
    const fsdp_device *device = p->local->storage->device;
    const fsdp_slice slice = fsdp_parameter_slice(p);
    const size_t size = fsdp_dtype_size(p->local->dtype);
    char *to = fsdp_tensor_ptr(p->local);
    for (int64_t i = 0; i < slice.runs; i++)
        device->kernels->normal(device->context, to + (size_t)(i * slice.length) * size,
                                p->local->dtype, key, slice.first + i * slice.stride, slice.length,
                                p->init.mean, p->init.std);
}

/* Draw elements [first, first + n) of the whole parameter from [-bound, bound), and write them to
 * elements [to, to + n) of this rank's tensor. The generator gives four numbers for each counter.
 * Element e is made from number e % 4 for counter e / 4. */
static fsdp_status draw_uniform_run(const fsdp_parameter *p, uint64_t key, int64_t first, int64_t n,
                                    int64_t to)
{
    enum {
        STAGED = 1024
    };
    float staged[STAGED];
    for (int64_t done = 0; done < n; done += STAGED) {
        const int64_t part = n - done < STAGED ? n - done : STAGED;
        for (int64_t i = 0; i < part; i++) {
            const uint64_t element = (uint64_t)(first + done + i);
            const fsdp_philox random = fsdp_philox4x32(key, element / 4, 0);
            staged[i] =
                p->init.bound * (2.0f * fsdp_uniform_from_bits(random.v[element % 4]) - 1.0f);
        }
        FSDP_TRY(fsdp_tensor_from_host(p->local, to + done, staged, FSDP_DTYPE_F32, part));
    }
    return FSDP_OK;
}

static fsdp_status draw_uniform(const fsdp_parameter *p, uint64_t key)
{
    const fsdp_slice slice = fsdp_parameter_slice(p);
    for (int64_t i = 0; i < slice.runs; i++)
        FSDP_TRY(draw_uniform_run(p, key, slice.first + i * slice.stride, slice.length,
                                  i * slice.length));
    return FSDP_OK;
}

fsdp_status fsdp_parameter_draw(fsdp_parameter *p, const char *name, uint64_t seed)
{
    const fsdp_device *device = p->local->storage->device;
    int64_t n = fsdp_tensor_numel(p->local);
    if (!device->kernels || !n)
        return FSDP_OK;
    if (p->quantized)
        return fsdp_error(
            FSDP_ERR_UNSUPPORTED,
            "'%s' is stored in NF4 (--load-in-4bit): it must be loaded from files, and "
            "cannot be drawn at random",
            name);
    if (p->init.bound > 0.0f)
        return draw_uniform(p, fsdp_parameter_key(seed, name));
    if (p->init.std > 0.0f)
        draw_normal(p, fsdp_parameter_key(seed, name));
    else
        device->kernels->fill(device->context, fsdp_tensor_ptr(p->local), p->local->dtype,
                              (double)p->init.mean, n);
    zero_row(p);
    return FSDP_OK;
}

static fsdp_status init_parameter(fsdp_writing *writing, const char *name, fsdp_parameter *p,
                                  uint64_t seed)
{
    if (!p->local)
        return fsdp_error(FSDP_ERR_STATE, "%s has no memory to initialize", name);
    FSDP_TRY(fsdp_writing_next(writing, p->local));
    return fsdp_parameter_draw(p, name, seed);
}

fsdp_status fsdp_module_init(fsdp_module *m, uint64_t seed)
{
    fsdp_parameter_list list;
    fsdp_writing writing = {0};
    FSDP_TRY(fsdp_module_parameters(m, false, &list));
    fsdp_status status = FSDP_OK;
    for (size_t i = 0; i < list.n && status == FSDP_OK; i++)
        status = init_parameter(&writing, list.items[i].name, list.items[i].parameter, seed);
    fsdp_writing_end(&writing);
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
