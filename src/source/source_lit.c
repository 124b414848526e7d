/* Presents weights of Lit-LLaMA and LitGPT as the tensors of Hugging Face's model (lit_names.h). */
#include <string.h>

#include "src/base/alloc.h"
#include "src/source/selection.h"
#include "src/source/source_internal.h"

fsdp_status fsdp_source_lit_format(const fsdp_source *source, fsdp_lit_format *format)
{
    fsdp_selection model;
    *format = FSDP_LIT_NONE;
    const fsdp_status status = fsdp_select_model(source, &model);
    if (status == FSDP_ERR_NOT_FOUND || status == FSDP_ERR_INVALID)
        return FSDP_OK;
    FSDP_TRY(status);
    const char **names = fsdp_calloc(model.n, sizeof(const char *));
    for (size_t i = 0; i < model.n && names; i++)
        names[i] = model.items[i].name;
    if (names)
        *format = fsdp_lit_recognize(names, model.n);
    fsdp_free(names);
    fsdp_selection_fini(&model);
    return names ? FSDP_OK : FSDP_ERR_NOMEM;
}

static fsdp_status describe_parts(fsdp_source *source, const fsdp_selection *selected,
                                  fsdp_lit_format format, const fsdp_lit_model *model,
                                  fsdp_lit_parts *parts)
{
    fsdp_lit_tensor *tensors = fsdp_calloc(selected->n, sizeof *tensors);
    if (!tensors)
        return FSDP_ERR_NOMEM;
    for (size_t i = 0; i < selected->n; i++) {
        const fsdp_source_item *item = selected->items[i].item;
        tensors[i] = (fsdp_lit_tensor){selected->items[i].name, item->shape, item->ndim};
    }
    fsdp_status status = fsdp_lit_translate(source->path, format, model, tensors, selected->n,
                                            &source->arena, parts);
    fsdp_free(tensors);
    return status;
}

/* Add an item that consists of the rows of `base` that `part` describes. */
static fsdp_status add_part(fsdp_source *source, const fsdp_lit_part *part,
                            const fsdp_source_item *base)
{
    fsdp_source_item *item;
    FSDP_TRY(fsdp_source_add(source, &(fsdp_nesting_key){.name = part->name}, 1, &item));
    const fsdp_source_item named = *item;
    *item = *base;
    item->fqn = named.fqn;
    item->keys = named.keys;
    item->n_keys = named.n_keys;
    if (base->shape[0] == part->shape[0])
        return FSDP_OK; /* the rows keep their order */
    item->shape = part->shape;
    item->numel = base->numel / base->shape[0] * part->shape[0];
    item->bytes = base->bytes / base->shape[0] * part->shape[0];
    item->entry = NULL;
    item->base = base;
    item->order = &part->order;
    return FSDP_OK;
}

static fsdp_status replace_items(fsdp_source *source, const fsdp_selection *selected,
                                 const fsdp_lit_parts *parts)
{
    /* source->values[i] is the archive of old item i. The new items are all tensors, so no archive
     * is needed any more. */
    for (size_t i = 0; i < source->n && source->values; i++)
        fsdp_torch_archive_destroy(source->values[i]);
    fsdp_free(source->values);
    source->values = NULL;
    source->window.item = NULL;
    source->base_items = source->items;
    source->items = NULL;
    source->n = source->cap = 0;
    for (size_t i = 0; i < parts->n; i++)
        FSDP_TRY(add_part(source, &parts->items[i], selected->items[parts->items[i].from].item));
    return FSDP_OK;
}

fsdp_status fsdp_source_translate_lit(fsdp_source *source, fsdp_lit_format format,
                                      const fsdp_lit_model *model, size_t *n_left_out)
{
    fsdp_selection selected;
    fsdp_lit_parts parts;
    FSDP_TRY(fsdp_select_model(source, &selected));
    *n_left_out = source->n - selected.n;
    fsdp_status status = describe_parts(source, &selected, format, model, &parts);
    if (status == FSDP_OK)
        status = replace_items(source, &selected, &parts);
    fsdp_selection_fini(&selected);
    return status;
}
