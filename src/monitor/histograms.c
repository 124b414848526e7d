/* See histograms.h. */
#include "src/monitor/histograms.h"

#include <fsdp/fsdp.h>

#include "src/base/alloc.h"
#include "src/comm/agree.h"
#include "src/comm/group.h"
#include "src/fsdp/state.h"
#include "src/nn/quantized.h"

struct fsdp_histograms {
    const fsdp_parameter_list *list;
    fsdp_group *group;
    size_t *unit_of;           /* [list->n] */
    char **names;              /* [n_units] owned */
    const fsdp_module **first; /* [n_units] first module of each unit */
    size_t n_units, cap_names, cap_first;
    fsdp_histogram *units; /* [n_units] */
};

/* ---- units ---- */

/* Return the index of the unit whose first module is `first`, or h->n_units if there is none. */
static size_t find_unit(const fsdp_histograms *h, const fsdp_module *first)
{
    size_t unit = 0;
    while (unit < h->n_units && h->first[unit] != first)
        unit++;
    return unit;
}

static fsdp_status add_unit(fsdp_histograms *h, const fsdp_module *first, const char *path)
{
    char *name = fsdp_strdup(*path ? path : "root");
    if (!name || !FSDP_GROW(h->names, h->cap_names, h->n_units + 1) ||
        !FSDP_GROW(h->first, h->cap_first, h->n_units + 1)) {
        fsdp_free(name);
        return FSDP_ERR_NOMEM;
    }
    h->names[h->n_units] = name;
    h->first[h->n_units++] = first;
    return FSDP_OK;
}

static fsdp_status add_module(const char *path, fsdp_module *module, void *arg)
{
    fsdp_histograms *h = arg;
    const fsdp_module *first = module;
    if (fsdp_module_is_unit(module)) {
        fsdp_unit_info info;
        FSDP_TRY(fsdp_unit_get_info(module, &info));
        first = info.first_module;
    } else if (*path) {
        return FSDP_OK;
    }
    /* The root module is added even if it is not a unit, for the parameters that are in no unit. */
    return find_unit(h, first) < h->n_units ? FSDP_OK : add_unit(h, first, path);
}

/* Return the index of the unit that has the parameter. A parameter of no unit counts with the root,
 * which comes first. */
static size_t unit_of(const fsdp_histograms *h, const fsdp_parameter *p)
{
    const size_t unit = find_unit(h, fsdp_unit_of_parameter(p));
    return unit < h->n_units ? unit : 0;
}

static fsdp_status open_histograms(fsdp_histograms *h, fsdp_module *module)
{
    FSDP_TRY(fsdp_module_visit(module, add_module, h));
    h->unit_of = fsdp_calloc(h->list->n + 1, sizeof *h->unit_of);
    h->units = fsdp_calloc(h->n_units, sizeof *h->units);
    if (!h->unit_of || !h->units)
        return FSDP_ERR_NOMEM;
    for (size_t i = 0; i < h->list->n; i++)
        h->unit_of[i] = unit_of(h, h->list->items[i].parameter);
    return FSDP_OK;
}

fsdp_status fsdp_histograms_create(fsdp_module *module, const fsdp_parameter_list *list,
                                   fsdp_group *group, fsdp_histograms **out)
{
    fsdp_histograms *h = fsdp_calloc(1, sizeof *h);
    if (!h)
        return FSDP_ERR_NOMEM;
    *h = (fsdp_histograms){.list = list, .group = group};
    const fsdp_status status = open_histograms(h, module);
    if (status == FSDP_OK)
        *out = h;
    else
        fsdp_histograms_destroy(h);
    return status;
}

void fsdp_histograms_destroy(fsdp_histograms *h)
{
    if (!h)
        return;
    for (size_t i = 0; i < h->n_units; i++)
        fsdp_free(h->names[i]);
    fsdp_free(h->names);
    fsdp_free(h->first);
    fsdp_free(h->unit_of);
    fsdp_free(h->units);
    fsdp_free(h);
}

size_t fsdp_histograms_n_units(const fsdp_histograms *h)
{
    return h->n_units;
}

const char *fsdp_histograms_unit(const fsdp_histograms *h, size_t i)
{
    return h->names[i];
}

const fsdp_histogram *fsdp_histograms_get(const fsdp_histograms *h, size_t i)
{
    return &h->units[i];
}

/* ---- counting ---- */

/* Return true if this rank must count its part of the parameter. If the parameter is sharded, only
 * the ranks of one replica count their parts: the replica that contains rank 0 of h->group. If the
 * parameter is not sharded, only rank 0 counts it. */
static bool counts_part(const fsdp_histograms *h, const fsdp_parameter *p)
{
    const fsdp_group *shared = fsdp_parameter_group(p);
    const int first = fsdp_group_world_rank(h->group, 0);
    if (!shared)
        return fsdp_group_rank(h->group) == 0;
    for (int r = 0; r < fsdp_group_world_size(shared); r++)
        if (fsdp_group_world_rank(shared, r) == first)
            return true;
    return false;
}

/* Return this rank's part of a parameter in NF4. */
static fsdp_quantized_part quantized_part(const fsdp_parameter *p)
{
    const fsdp_group *group = fsdp_parameter_group(p);
    return fsdp_quantized_part_of(p->quantized, fsdp_group_world_size(group),
                                  fsdp_group_rank(group));
}

static fsdp_status read_part(const fsdp_parameter *p, fsdp_histograms_of what, float *values)
{
    if (what == FSDP_HISTOGRAMS_OF_GRADIENTS)
        return fsdp_tensor_to_floats(fsdp_parameter_grad(p), values);
    const fsdp_tensor *local = fsdp_parameter_local(p);
    fsdp_status status = FSDP_OK;
    FSDP_TRY(fsdp_tensor_begin_read(local));
    if (p->quantized) {
        const fsdp_quantized_part part = quantized_part(p);
        fsdp_quantized_read(p->quantized, &part, fsdp_tensor_device(local), fsdp_tensor_ptr(local),
                            values, FSDP_DTYPE_F32);
    } else {
        status = fsdp_tensor_to_floats(local, values);
    }
    fsdp_tensor_end_read(local);
    return status;
}

static fsdp_status count_part(fsdp_histograms *h, size_t i, fsdp_histograms_of what)
{
    const fsdp_parameter *p = h->list->items[i].parameter;
    const fsdp_tensor *part =
        what == FSDP_HISTOGRAMS_OF_GRADIENTS ? fsdp_parameter_grad(p) : fsdp_parameter_local(p);
    const int64_t n = !part ? 0
                      : p->quantized && what != FSDP_HISTOGRAMS_OF_GRADIENTS
                          ? quantized_part(p).n
                          : fsdp_tensor_numel(part);
    if (!n || !counts_part(h, p))
        return FSDP_OK;
    float *values = fsdp_calloc((size_t)n, sizeof *values);
    const fsdp_status status = values ? read_part(p, what, values) : FSDP_ERR_NOMEM;
    if (status == FSDP_OK)
        fsdp_histogram_add(&h->units[h->unit_of[i]], values, (size_t)n);
    fsdp_free(values);
    return status;
}

static fsdp_status add_ranks(fsdp_histograms *h)
{
    for (size_t i = 0; i < h->n_units; i++) {
        fsdp_histogram *unit = &h->units[i];
        float ends[2] = {-unit->least, unit->most};
        FSDP_TRY(fsdp_all_reduce(h->group, &unit->counts, FSDP_HISTOGRAM_NUMBERS, FSDP_DTYPE_I64,
                                 FSDP_REDUCE_SUM));
        FSDP_TRY(fsdp_all_reduce(h->group, ends, 2, FSDP_DTYPE_F32, FSDP_REDUCE_MAX));
        unit->least = -ends[0];
        unit->most = ends[1];
    }
    return FSDP_OK;
}

fsdp_status fsdp_histograms_update(fsdp_histograms *h, fsdp_histograms_of what)
{
    fsdp_status status = FSDP_OK;
    for (size_t i = 0; i < h->n_units; i++)
        fsdp_histogram_clear(&h->units[i]);
    for (size_t i = 0; i < h->list->n && status == FSDP_OK; i++)
        status = count_part(h, i, what);
    FSDP_TRY(fsdp_agree(h->group, status));
    return add_ranks(h);
}
