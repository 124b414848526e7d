/* Selects the items of the source that are written, and decides their names and dtypes. */
#include <stdlib.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/checkpoint_tools/convert_internal.h"
#include "src/tensor/device.h"

static bool is_model_alone(const fsdp_conversion *run)
{
    return run->options->model_only || run->result->format == FSDP_CONVERT_SAFETENSORS ||
           run->result->format == FSDP_CONVERT_HF;
}

static fsdp_status refuse_twice(const fsdp_conversion *run, const fsdp_selected *a,
                                const fsdp_selected *b)
{
    const char *path = fsdp_source_path(run->source);
    if (strcmp(a->item->fqn, b->item->fqn) == 0)
        return fsdp_error(FSDP_ERR_INVALID, "%s: two items have the name '%s'", path, a->name);
    return fsdp_error(FSDP_ERR_INVALID,
                      "%s: two items have the name '%s', '%s' and '%s': save the one that is meant "
                      "alone, in torch",
                      path, a->name, a->item->fqn, b->item->fqn);
}

/* Check that all items have different names. If two had the same name, loading the target would
 * keep only one of them. */
static fsdp_status check_names(const fsdp_conversion *run)
{
    fsdp_selection sorted = {.n = run->selection.n};
    sorted.items = fsdp_calloc(sorted.n, sizeof *sorted.items);
    if (!sorted.items)
        return FSDP_ERR_NOMEM;
    memcpy(sorted.items, run->selection.items, sorted.n * sizeof *sorted.items);
    fsdp_selection_sort(&sorted);
    fsdp_status status = FSDP_OK;
    for (size_t i = 1; i < sorted.n && status == FSDP_OK; i++)
        if (strcmp(sorted.items[i - 1].name, sorted.items[i].name) == 0)
            status = refuse_twice(run, &sorted.items[i - 1], &sorted.items[i]);
    fsdp_free(sorted.items);
    return status;
}

static void set_dtype(fsdp_converted *to, const fsdp_safetensors_dtype *dtype)
{
    to->dtype = dtype;
    to->bytes = to->from->item->numel * dtype->bits / 8;
}

/* Return true if `dtype` is a floating-point type of 8 bits or fewer. This library does not convert
 * elements of such types. They belong to quantized tensors: each element must be multiplied by a
 * scale that is stored in another tensor, and each method of quantization stores its scales
 * differently. */
static bool is_small_float(const fsdp_safetensors_dtype *dtype)
{
    return dtype->fsdp_dtype < 0 && dtype->name[0] == 'F';
}

static fsdp_status note_kept(const fsdp_conversion *run, size_t n, const fsdp_converted *first)
{
    if (n == 0)
        return FSDP_OK;
    char *note = fsdp_strdup_printf("%zu tensor%s as %s, '%s' of %s%s: types of 8 bits and fewer "
                                    "are not converted",
                                    n, n == 1 ? " stays" : "s stay", n == 1 ? "it is" : "they are",
                                    first->from->name, first->dtype->name,
                                    n == 1 ? "" : " the first of them");
    return fsdp_conversion_note(run, note);
}

/* If the source has none of the keys below which a model is usually stored, only the tensors at the
 * top of the source are taken as the model. Report in a note that the tensors below keys are left
 * out, because the user may want a model that is among them. */
static fsdp_status note_left_out(const fsdp_conversion *run)
{
    const fsdp_source_item *first = NULL;
    size_t n = 0;
    if (!is_model_alone(run) || *run->selection.prefix)
        return FSDP_OK;
    for (size_t i = fsdp_source_count(run->source); i-- > 0;) {
        const fsdp_source_item *item = fsdp_source_at(run->source, i);
        if (!item->dtype_name || item->n_keys == 1)
            continue;
        first = item;
        n++;
    }
    if (n == 0)
        return FSDP_OK;
    return fsdp_conversion_note(
        run, fsdp_strdup_printf("the model is what is at the top; %zu tensor%s left out, '%s'%s", n,
                                n == 1 ? " below another key is" : "s below other keys are",
                                first->fqn, n == 1 ? "" : " the first of them"));
}

/* Set *object to the first instance of a Python class in the value of `item`, or to NULL if the
 * value contains no instance. The caller leaves out items that contain an instance, because the
 * contents of instances are not read. */
static fsdp_status find_object(const fsdp_conversion *run, const fsdp_source_item *item,
                               const fsdp_pickle_value **object)
{
    const fsdp_pickle_value *value = NULL;
    if (!item->dtype_name)
        FSDP_TRY(fsdp_source_value(run->source, item, &value));
    *object = fsdp_pickle_find_opaque(value);
    return FSDP_OK;
}

/* Return true if `item` is in the part of the source that is converted. This part is the model's
 * state dict if only the model is converted, and the whole source otherwise. note_objects() uses
 * this function to find the items that leave_out_objects() has removed. So the result is true for
 * such an item, too. */
static bool is_within_selection(const fsdp_conversion *run, const fsdp_source_item *item)
{
    const char *prefix = run->selection.prefix ? run->selection.prefix : "";
    const size_t n = strlen(prefix);
    if (!is_model_alone(run))
        return true;
    return n ? strncmp(item->fqn, prefix, n) == 0 && item->fqn[n] == '.' : item->n_keys == 1;
}

/* Report in a note which values are left out. A value is left out if it is an object of a class or
 * contains one, because such objects are not read. */
static fsdp_status note_objects(const fsdp_conversion *run)
{
    char *first = NULL, what[128];
    size_t n = 0;
    fsdp_status status = FSDP_OK;
    for (size_t i = 0; i < fsdp_source_count(run->source) && status == FSDP_OK; i++) {
        const fsdp_source_item *item = fsdp_source_at(run->source, i);
        const fsdp_pickle_value *object = NULL;
        if (is_within_selection(run, item))
            status = find_object(run, item, &object);
        if (object && n++ == 0)
            first = fsdp_strdup_printf("'%s', %s", item->fqn,
                                       fsdp_pickle_describe(object, what, sizeof what));
    }
    if (status == FSDP_OK && n)
        status = fsdp_conversion_note(
            run, fsdp_strdup_printf("%zu value%s left out because objects of classes are not read: "
                                    "%s%s",
                                    n, n == 1 ? " is" : "s are", first ? first : "",
                                    n == 1 ? "" : ", and others"));
    fsdp_free(first);
    return status;
}

static fsdp_status leave_out_objects(fsdp_conversion *run)
{
    fsdp_selection *s = &run->selection;
    size_t kept = 0;
    for (size_t i = 0; i < s->n; i++) {
        const fsdp_pickle_value *object;
        FSDP_TRY(find_object(run, s->items[i].item, &object));
        if (!object)
            s->items[kept++] = s->items[i];
    }
    s->n = kept;
    return note_objects(run);
}

/* Set the new dtype of the model's tensors. Other tensors keep their dtype: an optimizer with
 * bfloat16 moments, for example, would be a different optimizer. */
static fsdp_status change_dtypes(fsdp_conversion *run)
{
    fsdp_selection model;
    const fsdp_converted *kept = NULL;
    size_t n_kept = 0;
    FSDP_TRY(fsdp_select_model(run->source, &model));
    for (size_t i = 0, k = 0; i < run->selection.n && k < model.n; i++) {
        fsdp_converted *to = &run->items[i];
        /* `model` and run->selection both list items in the order of the source's array. `model`
         * may also list tensors that drop_others() has removed from run->selection. Skip these. */
        while (k < model.n && model.items[k].item < to->from->item)
            k++;
        if (k == model.n || model.items[k].item != to->from->item)
            continue;
        if (to->dtype->fsdp_dtype >= 0 && fsdp_dtype_is_floating((fsdp_dtype)to->dtype->fsdp_dtype))
            set_dtype(to, fsdp_safetensors_dtype_of(run->options->dtype));
        else if (is_small_float(to->dtype) && n_kept++ == 0)
            kept = to;
    }
    fsdp_selection_fini(&model);
    return note_kept(run, n_kept, kept);
}

static bool has_place(const fsdp_conversion *run, const fsdp_source_item *item)
{
    const fsdp_convert_options *o = run->options;
    return !o->used || bsearch(&item, o->used, o->n_used, sizeof(const fsdp_source_item *),
                               fsdp_compare_addresses);
}

static fsdp_status note_dropped(const fsdp_conversion *run, size_t n, const char *first,
                                const char *why)
{
    if (n == 0)
        return FSDP_OK;
    return fsdp_conversion_note(run, fsdp_strdup_printf("%zu tensor%s left out, '%s'%s: %s", n,
                                                        n == 1 ? " is" : "s are", first,
                                                        n == 1 ? "" : " the first of them", why));
}

/* Remove two kinds of tensors from the selection, and report them in notes. The first kind is the
 * optimizer's tensors, if they are in the same dict as the model's tensors
 * (fsdp_selection_is_flat_optimizer()). The second kind is the tensors that are not in
 * options->used; if this list is NULL, there are none. The tensors that remain keep their order. */
static fsdp_status drop_others(fsdp_conversion *run)
{
    fsdp_selection *s = &run->selection, sorted = {.n = s->n};
    const char *state = NULL, *unused = NULL;
    size_t kept = 0, n_state = 0, n_unused = 0;
    sorted.items = fsdp_calloc(s->n, sizeof *sorted.items);
    if (!sorted.items)
        return FSDP_ERR_NOMEM;
    memcpy(sorted.items, s->items, s->n * sizeof *s->items);
    fsdp_selection_sort(&sorted);
    for (size_t i = 0; i < s->n; i++) {
        const char *name = s->items[i].name;
        if (fsdp_selection_is_flat_optimizer(&sorted, name))
            state = n_state++ ? state : name;
        else if (!has_place(run, s->items[i].item))
            unused = n_unused++ ? unused : name;
        else
            s->items[kept++] = s->items[i];
    }
    s->n = kept;
    fsdp_free(sorted.items);
    FSDP_TRY(note_dropped(run, n_state, state, "the state of an optimizer"));
    return note_dropped(
        run, n_unused, unused,
        "the model of --model has no use for them; without --model all are written");
}

static void count_items(fsdp_conversion *run)
{
    for (size_t i = 0; i < run->selection.n; i++) {
        run->result->tensors += run->items[i].dtype != NULL;
        run->result->values += run->items[i].dtype == NULL;
        run->result->bytes += run->items[i].bytes;
    }
}

fsdp_status fsdp_conversion_select(fsdp_conversion *run)
{
    FSDP_TRY(is_model_alone(run) ? fsdp_select_model(run->source, &run->selection)
                                 : fsdp_select_all(run->source, &run->selection));
    FSDP_TRY(leave_out_objects(run));
    if (run->options->names)
        FSDP_TRY(fsdp_selection_change(&run->selection, run->options->names));
    FSDP_TRY(check_names(run));
    FSDP_TRY(note_left_out(run));
    if (is_model_alone(run))
        FSDP_TRY(drop_others(run));
    run->items = fsdp_calloc(run->selection.n, sizeof *run->items);
    if (!run->items)
        return FSDP_ERR_NOMEM;
    for (size_t i = 0; i < run->selection.n; i++) {
        const fsdp_selected *from = &run->selection.items[i];
        run->items[i] = (fsdp_converted){.run = run, .from = from};
        if (from->item->dtype_name)
            set_dtype(&run->items[i], fsdp_safetensors_dtype_by_name(from->item->dtype_name));
    }
    if (run->options->has_dtype)
        FSDP_TRY(change_dtypes(run));
    FSDP_TRY(fsdp_source_is_sparse(run->source, &run->is_sparse));
    count_items(run);
    return FSDP_OK;
}
