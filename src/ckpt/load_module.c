/* A checkpoint's tensors into a module's parameters. First a plan, which finds and checks all of
 * them; then, once all ranks have one, the copies, each within a write of its parameter. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <fsdp/ckpt.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/str.h"
#include "src/comm/agree.h"
#include "src/nn/module.h"

enum {
    STAGING_BYTES = 1 << 16
};

typedef struct load_item {
    fsdp_parameter *parameter;
    const fsdp_checkpoint_entry *entry;
    fsdp_dtype dtype; /* the file's */
    const char *rows; /* own rows of the entry */
    size_t bytes;     /* of them */
} load_item;

typedef struct load_plan {
    const fsdp_checkpoint_reader *reader;
    fsdp_parameter_list names; /* every name of every parameter */
    load_item *items;          /* [n] each parameter once */
    size_t n;
} load_plan;

/* --- planning --- */

static fsdp_status own_rows(const fsdp_parameter *p, const fsdp_checkpoint_entry *entry,
                            const char **rows, size_t *bytes)
{
    const void *data;
    FSDP_TRY(fsdp_checkpoint_entry_check_shape(entry, p->shape, p->ndim));
    FSDP_TRY(fsdp_checkpoint_entry_rows(entry, p->row_begin, p->row_end, &data, bytes));
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

static fsdp_status plan_item(const load_plan *plan, load_item *item)
{
    const fsdp_parameter *p = item->parameter;
    if (!p->local)
        return fsdp_error(FSDP_ERR_STATE, "a module is loaded into, but has no memory yet");
    for (size_t i = 0; i < plan->names.n; i++) {
        if (plan->names.items[i].parameter != p)
            continue;
        const fsdp_checkpoint_entry *entry =
            fsdp_checkpoint_find(plan->reader, plan->names.items[i].name);
        if (!entry)
            continue;
        if (item->entry) {
            FSDP_TRY(check_tied(item, entry));
            continue;
        }
        FSDP_TRY(fsdp_checkpoint_entry_dtype(entry, &item->dtype));
        if (!fsdp_dtype_is_floating(item->dtype))
            return fsdp_error(FSDP_ERR_UNSUPPORTED, "%s: tensor '%s': a parameter of %s",
                              entry->path, entry->name, fsdp_dtype_name(item->dtype));
        FSDP_TRY(own_rows(p, entry, &item->rows, &item->bytes));
        fsdp_checkpoint_advise(item->rows, item->bytes, FSDP_CHECKPOINT_WILL_READ);
        item->entry = entry;
    }
    return item->entry ? FSDP_OK : not_found(plan, p);
}

static fsdp_status make_plan(fsdp_module *module, load_plan *plan)
{
    fsdp_parameter_list once;
    FSDP_TRY(fsdp_module_parameters(module, true, &plan->names));
    FSDP_TRY(fsdp_module_parameters(module, false, &once));
    plan->items = fsdp_calloc(once.n, sizeof *plan->items);
    fsdp_status status = plan->items ? FSDP_OK : FSDP_ERR_NOMEM;
    for (size_t i = 0; i < once.n && status == FSDP_OK; i++) {
        plan->items[i].parameter = once.items[i].parameter;
        status = plan_item(plan, &plan->items[i]);
        plan->n++;
    }
    fsdp_parameter_list_free(&once);
    return status;
}

/* --- what nobody asked for --- */

/* Buffers that old versions stored, and T5's bias that cross-attention never used. */
static bool is_old_buffer(const char *name)
{
    static const char *const endings[] = {
        ".rotary_emb.inv_freq",
        ".attn.bias",
        ".attn.masked_bias",
        "embeddings.position_ids",
        "EncDecAttention.relative_attention_bias.weight",
    };
    size_t length = strlen(name);
    for (size_t i = 0; i < FSDP_LENGTH(endings); i++) {
        size_t n = strlen(endings[i]);
        if (length >= n && strcmp(name + length - n, endings[i]) == 0)
            return true;
    }
    return false;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const fsdp_named_parameter *)a)->name, ((const fsdp_named_parameter *)b)->name);
}

static fsdp_status find_unexpected(load_plan *plan, fsdp_load_report *report)
{
    size_t cap = 0;
    qsort(plan->names.items, plan->names.n, sizeof *plan->names.items, by_name);
    for (size_t i = 0; i < fsdp_checkpoint_count(plan->reader); i++) {
        const char *name = fsdp_checkpoint_at(plan->reader, i)->name;
        fsdp_named_parameter key = {.name = name};
        if (is_old_buffer(name) ||
            bsearch(&key, plan->names.items, plan->names.n, sizeof key, by_name))
            continue;
        char *copy = fsdp_strdup(name);
        if (!copy || !FSDP_GROW(report->unexpected, cap, report->n_unexpected + 1)) {
            fsdp_free(copy);
            return FSDP_ERR_NOMEM;
        }
        report->unexpected[report->n_unexpected++] = copy;
    }
    return FSDP_OK;
}

void fsdp_load_report_free(fsdp_load_report *report)
{
    for (size_t i = 0; i < report->n_unexpected; i++)
        fsdp_free(report->unexpected[i]);
    fsdp_free(report->unexpected);
    *report = (fsdp_load_report){0};
}

/* --- copying --- */

/* Convert file bytes, which may be unaligned, through a small aligned buffer. */
static void copy_staged(const fsdp_device *device, char *dst, fsdp_dtype to, const load_item *item)
{
    _Alignas(64) char staging[STAGING_BYTES];
    size_t element = fsdp_dtype_size(item->dtype), out_element = fsdp_dtype_size(to);
    for (size_t at = 0; at < item->bytes; at += STAGING_BYTES) {
        size_t bytes = item->bytes - at < STAGING_BYTES ? item->bytes - at : STAGING_BYTES;
        memcpy(staging, item->rows + at, bytes);
        device->kernels->cast(device->context, dst + at / element * out_element, to, staging,
                              item->dtype, (int64_t)(bytes / element));
    }
}

static void copy_item(const load_item *item)
{
    fsdp_tensor *local = item->parameter->local;
    const fsdp_device *device = local->storage->device;
    if (device->kernels && item->bytes) {
        if ((uintptr_t)item->rows % fsdp_dtype_size(item->dtype) == 0)
            device->kernels->cast(device->context, fsdp_tensor_ptr(local), local->dtype, item->rows,
                                  item->dtype, fsdp_tensor_numel(local));
        else
            copy_staged(device, fsdp_tensor_ptr(local), local->dtype, item);
    }
    fsdp_checkpoint_advise(item->rows, item->bytes, FSDP_CHECKPOINT_DONE);
}

/* All writes are open at once: ranks then wait for each other once a unit, not once a parameter. */
static fsdp_status copy_all(const load_plan *plan)
{
    fsdp_status status = FSDP_OK;
    size_t open = 0;
    for (; open < plan->n && status == FSDP_OK; open++)
        status = fsdp_tensor_begin_write(plan->items[open].parameter->local);
    if (status != FSDP_OK)
        open--; /* the last one is not */
    for (size_t i = 0; i < plan->n && status == FSDP_OK; i++)
        copy_item(&plan->items[i]);
    for (size_t i = 0; i < open; i++)
        fsdp_tensor_end_write(plan->items[i].parameter->local);
    return status;
}

fsdp_status fsdp_module_load(fsdp_module *module, const fsdp_checkpoint_reader *reader,
                             fsdp_group *group, fsdp_load_report *report)
{
    load_plan plan = {.reader = reader};
    fsdp_load_report found = {0};
    fsdp_status status = make_plan(module, &plan);
    if (status == FSDP_OK)
        status = find_unexpected(&plan, &found);
    status = fsdp_agree(group, status);
    if (status == FSDP_OK)
        status = copy_all(&plan);
    if (status == FSDP_OK && report)
        *report = found;
    else
        fsdp_load_report_free(&found);
    fsdp_parameter_list_free(&plan.names);
    fsdp_free(plan.items);
    return status;
}
