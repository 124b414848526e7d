/* Reads a checkpoint's tensors into a module's parameters. First, each rank makes a plan: it finds
 * and checks the tensor of each parameter. When all ranks have a plan, they copy the values. A
 * parameter of a new head may be missing from the checkpoint. Such a parameter is initialized at
 * random. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <fsdp/pretrained.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/str.h"
#include "src/comm/agree.h"
#include "src/nn/module.h"
#include "src/pretrained/load_names.h"
#include "src/pretrained/load_quantized.h"

enum {
    STAGING_BYTES = 1 << 16
};

typedef struct load_item {
    fsdp_parameter *parameter;
    const char *name;                   /* first name of `parameter` */
    const fsdp_checkpoint_entry *entry; /* NULL: the parameter is initialized at random */
    fsdp_dtype dtype;                   /* dtype of the entry */
    /* This rank's rows in the file, or all rows if the parameter is sharded in a dimension other
     * than 0. */
    const char *rows;
    size_t bytes;    /* size of `rows` */
    bool mismatched; /* the file has a tensor of this name with a different shape */
} load_item;

typedef struct load_plan {
    const fsdp_checkpoint_reader *reader;
    const fsdp_load_options *options;
    fsdp_parameter_list names;           /* every name of every parameter */
    const fsdp_checkpoint_entry **found; /* [names.n] the tensor that was found for names.items[i];
                                            NULL: no tensor */
    load_item *items;                    /* [n] one for each parameter */
    size_t n;
} load_plan;

/* --- planning --- */

static fsdp_status own_rows(const fsdp_parameter *p, const fsdp_checkpoint_entry *entry,
                            const char **rows, size_t *bytes)
{
    const void *data;
    const fsdp_shard shard = fsdp_parameter_shard(p);
    FSDP_TRY(fsdp_checkpoint_entry_check_shape(entry, p->shape, p->ndim));
    FSDP_TRY(shard.dim ? fsdp_checkpoint_entry_rows(entry, 0, p->shape[0], &data, bytes)
                       : fsdp_checkpoint_entry_rows(entry, shard.begin, shard.end, &data, bytes));
    *rows = data;
    return FSDP_OK;
}

static fsdp_status check_tied(const load_item *item, const fsdp_checkpoint_entry *other)
{
    const char *rows;
    size_t bytes;
    FSDP_TRY(own_rows(item->parameter, other, &rows, &bytes));
    if (bytes == item->bytes && strcmp(other->dtype_name, item->entry->dtype_name) == 0 &&
        memcmp(rows, item->rows, bytes) == 0)
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_FORMAT, "%s: '%s' and '%s' are tied in this model, but differ",
                      other->path, item->entry->name, other->name);
}

static fsdp_status not_found(const load_plan *plan, const fsdp_parameter *p)
{
    fsdp_str text = {0};
    for (size_t i = 0; i < plan->names.n; i++)
        if (plan->names.items[i].parameter == p)
            fsdp_str_printf(&text, "%s'%s'", text.len ? ", nor " : "", plan->names.items[i].name);
    char *names = fsdp_str_take(&text);
    if (!names)
        return FSDP_ERR_NOMEM;
    fsdp_status status = fsdp_error(FSDP_ERR_NOT_FOUND, "%s: there is no tensor %s",
                                    fsdp_checkpoint_path(plan->reader), names);
    fsdp_free(names);
    return status;
}

static bool has_shape(const fsdp_checkpoint_entry *entry, const fsdp_parameter *p)
{
    bool same = entry->ndim == p->ndim;
    for (int i = 0; same && i < p->ndim; i++)
        same = entry->shape[i] == p->shape[i];
    return same;
}

/* Plan to read a parameter from `entry`. The caller has looked up all names of the parameter, and
 * `entry` is the first tensor that it found. If ignore_mismatched_sizes is set, and the tensor does
 * not have the shape of the parameter, only set item->mismatched. */
static fsdp_status take_entry(const load_plan *plan, load_item *item,
                              const fsdp_checkpoint_entry *entry)
{
    if (plan->options->ignore_mismatched_sizes && !item->parameter->quantized &&
        !has_shape(entry, item->parameter)) {
        item->mismatched = true;
        return FSDP_OK;
    }
    if (item->parameter->quantized) {
        FSDP_TRY(fsdp_load_check_quantized(plan->reader, entry, item->parameter));
        item->dtype = FSDP_DTYPE_U8;
        item->entry = entry;
        return FSDP_OK;
    }
    FSDP_TRY(fsdp_checkpoint_entry_dtype(entry, &item->dtype));
    if (!fsdp_dtype_is_floating(item->dtype))
        return fsdp_error(FSDP_ERR_UNSUPPORTED, "%s: tensor '%s': a parameter of %s", entry->path,
                          entry->name, fsdp_dtype_name(item->dtype));
    FSDP_TRY(own_rows(item->parameter, entry, &item->rows, &item->bytes));
    fsdp_checkpoint_advise(item->rows, item->bytes, FSDP_CHECKPOINT_WILL_READ);
    item->entry = entry;
    return FSDP_OK;
}

static bool may_be_fresh(const load_plan *plan, const fsdp_parameter *p, const char *name)
{
    if (p->in_adapter)
        return !plan->options->complete_adapter;
    for (const char *const *m = plan->options->fresh_modules; m && *m; m++) {
        size_t n = strlen(*m);
        if (strncmp(name, *m, n) == 0 && name[n] == '.')
            return true;
    }
    return false;
}

static fsdp_status plan_item(load_plan *plan, load_item *item)
{
    const fsdp_parameter *p = item->parameter;
    if (!p->local)
        return fsdp_error(FSDP_ERR_STATE, "cannot load into a module without memory");
    for (size_t i = 0; i < plan->names.n; i++) {
        if (plan->names.items[i].parameter != p)
            continue;
        const char *name = plan->names.items[i].name;
        if (!item->name)
            item->name = name;
        FSDP_TRY(fsdp_load_find(plan->reader, plan->options->base_prefix, name, &plan->found[i]));
        if (plan->found[i])
            FSDP_TRY(!item->entry   ? take_entry(plan, item, plan->found[i])
                     : p->quantized ? FSDP_OK
                                    : check_tied(item, plan->found[i]));
    }
    return item->entry || item->mismatched || may_be_fresh(plan, p, item->name)
               ? FSDP_OK
               : not_found(plan, p);
}

static fsdp_status make_plan(fsdp_module *module, load_plan *plan)
{
    fsdp_parameter_list once;
    FSDP_TRY(fsdp_module_parameters(module, true, &plan->names));
    FSDP_TRY(fsdp_module_parameters(module, false, &once));
    plan->items = fsdp_calloc(once.n, sizeof *plan->items);
    plan->found = fsdp_calloc(plan->names.n, sizeof(fsdp_checkpoint_entry *));
    fsdp_status status = plan->items && plan->found ? FSDP_OK : FSDP_ERR_NOMEM;
    for (size_t i = 0; i < once.n && status == FSDP_OK; i++) {
        if (plan->options->only_trained && !fsdp_parameter_requires_grad(once.items[i].parameter))
            continue;
        plan->items[plan->n].parameter = once.items[i].parameter;
        status = plan_item(plan, &plan->items[plan->n]);
        plan->n++;
    }
    fsdp_parameter_list_free(&once);
    return status;
}

/* --- tensors that only the file or only the module has --- */

/* Return true if `entry` is a companion tensor (such as the scales) of a weight in NF4, and this
 * weight is loaded into a parameter. plan->found must be sorted by address. */
static bool is_beside_quantized(const load_plan *plan, const fsdp_checkpoint_entry *entry)
{
    char name[512];
    const size_t n = fsdp_nf4_weight_name(entry->name);
    if (!n || n >= sizeof name)
        return false;
    snprintf(name, sizeof name, "%.*s", (int)n, entry->name);
    const fsdp_checkpoint_entry *weight = fsdp_checkpoint_find(plan->reader, name);
    return weight && bsearch(&weight, plan->found, plan->names.n, sizeof(fsdp_checkpoint_entry *),
                             fsdp_compare_addresses);
}

static fsdp_status list_unexpected(load_plan *plan, fsdp_load_report *report)
{
    size_t cap = 0;
    qsort(plan->found, plan->names.n, sizeof(fsdp_checkpoint_entry *), fsdp_compare_addresses);
    for (size_t i = 0; i < fsdp_checkpoint_count(plan->reader); i++) {
        const fsdp_checkpoint_entry *entry = fsdp_checkpoint_at(plan->reader, i);
        if (!fsdp_load_is_old_buffer(entry->name) && !is_beside_quantized(plan, entry) &&
            !bsearch(&entry, plan->found, plan->names.n, sizeof(fsdp_checkpoint_entry *),
                     fsdp_compare_addresses))
            FSDP_TRY(fsdp_names_add(&report->unexpected, &report->n_unexpected, &cap, entry->name));
    }
    return FSDP_OK;
}

static fsdp_status list_drawn(const load_plan *plan, fsdp_load_report *r)
{
    size_t cap = 0, mismatched_cap = 0;
    for (size_t i = 0; i < plan->n; i++) {
        const load_item *item = &plan->items[i];
        if (item->entry || item->parameter->in_adapter)
            continue;
        FSDP_TRY(item->mismatched
                     ? fsdp_names_add(&r->mismatched, &r->n_mismatched, &mismatched_cap, item->name)
                     : fsdp_names_add(&r->fresh, &r->n_fresh, &cap, item->name));
    }
    return FSDP_OK;
}

void fsdp_load_report_free(fsdp_load_report *report)
{
    fsdp_names_free(report->unexpected, report->n_unexpected);
    fsdp_names_free(report->fresh, report->n_fresh);
    fsdp_names_free(report->mismatched, report->n_mismatched);
    *report = (fsdp_load_report){0};
}

/* --- copying --- */

/* Copy `total` bytes of the file to the local tensor, beginning at element `first`. The address
 * `from` may be unaligned, so the bytes are first copied to a small aligned buffer. */
static fsdp_status copy_staged(fsdp_tensor *local, int64_t first, const char *from,
                               fsdp_dtype dtype, size_t total)
{
    _Alignas(64) char staging[STAGING_BYTES];
    size_t element = fsdp_dtype_size(dtype);
    for (size_t at = 0; at < total; at += STAGING_BYTES) {
        size_t bytes = total - at < STAGING_BYTES ? total - at : STAGING_BYTES;
        memcpy(staging, from + at, bytes);
        FSDP_TRY(fsdp_tensor_from_host(local, first + (int64_t)(at / element), staging, dtype,
                                       (int64_t)(bytes / element)));
    }
    return FSDP_OK;
}

/* Copy `numel` consecutive elements from the file (`from`) to elements [first, first + numel) of
 * the local tensor. */
static fsdp_status copy_run(const load_item *item, int64_t first, const char *from, int64_t numel)
{
    fsdp_tensor *local = item->parameter->local;
    const size_t size = fsdp_dtype_size(item->dtype);
    return (uintptr_t)from % size == 0
               ? fsdp_tensor_from_host(local, first, from, item->dtype, numel)
               : copy_staged(local, first, from, item->dtype, (size_t)numel * size);
}

static fsdp_status copy_item(const load_item *item)
{
    const fsdp_parameter *p = item->parameter;
    const fsdp_slice slice = fsdp_parameter_slice(p);
    /* the number of elements of the whole tensor that are before item->rows */
    const int64_t skipped = fsdp_parameter_shard_dim(p) ? 0 : slice.first;
    const bool has_memory = p->local->storage->device->kernels && fsdp_tensor_has_data(p->local);
    for (int64_t i = 0; has_memory && i < slice.runs && slice.length; i++)
        FSDP_TRY(copy_run(item, i * slice.length,
                          item->rows + (size_t)(slice.first - skipped + i * slice.stride) *
                                           fsdp_dtype_size(item->dtype),
                          slice.length));
    fsdp_checkpoint_advise(item->rows, item->bytes, FSDP_CHECKPOINT_DONE);
    return FSDP_OK;
}

/* Give each frozen parameter the dtype that its tensor has in the file. The parameter's old memory
 * is freed, and its old values are lost. */
static fsdp_status apply_pending_dtypes(const load_plan *plan)
{
    for (size_t i = 0; i < plan->n; i++) {
        fsdp_parameter *p = plan->items[i].parameter;
        p->loaded = p->values_are_due = plan->items[i].entry != NULL;
        p->loaded_dtype = plan->items[i].dtype;
    }
    fsdp_status status = fsdp_parameters_apply_pending_dtypes(&plan->names);
    for (size_t i = 0; i < plan->n; i++)
        plan->items[i].parameter->values_are_due = false;
    return status;
}

/* Set the values of one parameter, for which a write has begun. */
static fsdp_status set_values(const load_plan *plan, const load_item *item)
{
    if (!item->entry)
        return fsdp_parameter_draw(item->parameter, item->name, plan->options->seed);
    return item->parameter->quantized
               ? fsdp_load_quantized(plan->reader, item->entry, item->name, item->parameter)
               : copy_item(item);
}

/* Copy the values of all parameters, or initialize them at random. The parameters of a unit are
 * consecutive, so ranks wait for each other only once per unit.
 *
 * If a copy fails, this rank makes no further copies. It still begins and ends a write for each
 * remaining parameter, so that its peers do not wait forever. */
static fsdp_status copy_all(const load_plan *plan)
{
    fsdp_writing writing = {0};
    fsdp_status status = FSDP_OK, writes = FSDP_OK;
    for (size_t i = 0; i < plan->n && writes == FSDP_OK; i++) {
        writes = fsdp_writing_next(&writing, plan->items[i].parameter->local);
        if (status == FSDP_OK)
            status = writes == FSDP_OK ? set_values(plan, &plan->items[i]) : writes;
    }
    fsdp_writing_end(&writing);
    return status;
}

fsdp_status fsdp_module_load(fsdp_module *module, const fsdp_checkpoint_reader *reader,
                             fsdp_group *group, const fsdp_load_options *options,
                             fsdp_load_report *report)
{
    static const fsdp_load_options defaults = {0};
    load_plan plan = {.reader = reader, .options = options ? options : &defaults};
    fsdp_load_report found = {0};
    fsdp_status status = make_plan(module, &plan);
    if (status == FSDP_OK)
        status = list_unexpected(&plan, &found);
    if (status == FSDP_OK)
        status = list_drawn(&plan, &found);
    status = fsdp_agree(group, status);
    if (status == FSDP_OK)
        status = apply_pending_dtypes(&plan);
    if (status == FSDP_OK)
        status = fsdp_agree(group, copy_all(&plan));
    if (status == FSDP_OK && report)
        *report = found;
    else
        fsdp_load_report_free(&found);
    fsdp_parameter_list_free(&plan.names);
    fsdp_free(plan.found);
    fsdp_free(plan.items);
    return status;
}

static fsdp_status note_dtype(const fsdp_checkpoint_reader *reader,
                              const fsdp_load_options *options, const fsdp_named_parameter *item)
{
    const fsdp_checkpoint_entry *entry;
    fsdp_parameter *p = item->parameter;
    FSDP_TRY(fsdp_load_find(reader, options->base_prefix, item->name, &entry));
    if (!entry || p->quantized || p->loaded ||
        (options->ignore_mismatched_sizes && !has_shape(entry, p)))
        return FSDP_OK;
    FSDP_TRY(fsdp_checkpoint_entry_dtype(entry, &p->loaded_dtype));
    p->loaded = fsdp_dtype_is_floating(p->loaded_dtype);
    return FSDP_OK;
}

fsdp_status fsdp_module_note_dtypes(fsdp_module *module, const fsdp_checkpoint_reader *reader,
                                    const fsdp_load_options *options)
{
    static const fsdp_load_options defaults = {0};
    fsdp_parameter_list names;
    FSDP_TRY(fsdp_module_parameters(module, true, &names));
    fsdp_status status = FSDP_OK;
    for (size_t i = 0; i < names.n && status == FSDP_OK; i++)
        status = note_dtype(reader, options ? options : &defaults, &names.items[i]);
    fsdp_parameter_list_free(&names);
    return status;
}
