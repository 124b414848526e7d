/* Gets and sets the state dict of a model, as get_model_state_dict() and set_model_state_dict() do.
 * Also gets and sets the state dicts of a model and an optimizer in one call. */
#include <string.h>

#include <fsdp/dtensor.h>

#include "src/comm/agree.h"
#include "src/nn/module.h"
#include "src/state_dict/state_dict.h"

/* --- get --- */

static fsdp_status check_not_quantized(const fsdp_named_parameter *item)
{
    if (!item->parameter->quantized)
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_UNSUPPORTED,
                      "state dict: '%s' is stored in NF4 (--load-in-4bit): leave out frozen "
                      "parameters (ignore_frozen_params)",
                      item->name);
}

static fsdp_status put_parameters(const fsdp_parameter_list *list, const fsdp_state_dict_options *o,
                                  fsdp_state_dict *dict)
{
    for (size_t i = 0; i < list->n; i++) {
        const fsdp_named_parameter *item = &list->items[i];
        fsdp_tensor *local = fsdp_parameter_local(item->parameter);
        fsdp_state_key key = {0};
        if (!fsdp_state_name(o, item->name, item->parameter, &key.name))
            continue;
        if (!local)
            return fsdp_error(FSDP_ERR_STATE, "state dict: parameter %s has no memory", item->name);
        FSDP_TRY(check_not_quantized(item));
        FSDP_TRY(fsdp_state_dict_put_tensor(dict, &key, 1, local));
    }
    return FSDP_OK;
}

static fsdp_status get_sharded(fsdp_module *module, const fsdp_state_dict_options *o,
                               fsdp_state_dict **out)
{
    fsdp_parameter_list list;
    fsdp_state_dict *dict;
    FSDP_TRY(fsdp_state_check_submodule(module, o));
    FSDP_TRY(fsdp_module_parameters(module, true, &list));
    fsdp_status status = fsdp_state_dict_create(&dict);
    if (status == FSDP_OK) {
        status = put_parameters(&list, o, dict);
        if (status == FSDP_OK)
            *out = dict;
        else
            fsdp_state_dict_destroy(dict);
    }
    fsdp_parameter_list_free(&list);
    return status;
}

fsdp_status fsdp_get_model_state_dict(fsdp_module *module, const fsdp_state_dict_options *options,
                                      fsdp_state_dict **dict)
{
    const fsdp_state_dict_options *o = fsdp_state_options(options);
    fsdp_state_dict *sharded = NULL;
    FSDP_TRY(fsdp_state_check_get(o));
    const fsdp_status status = get_sharded(module, o, &sharded);
    return fsdp_state_hand_out(status, sharded, o, dict);
}

/* --- set --- */

typedef struct set_run {
    const fsdp_state_dict_options *options;
    const fsdp_state_dict *dict;
    fsdp_parameter_list list; /* every parameter, under each of its names */
    fsdp_state_copies copies;
    fsdp_incompatible_keys keys;
    size_t cap_missing, cap_unexpected;
    bool has_values; /* true: the values are in this rank's dict; false: this rank receives the
                        values from rank 0 */
} set_run;

void fsdp_incompatible_keys_free(fsdp_incompatible_keys *keys)
{
    fsdp_names_free(keys->missing, keys->n_missing);
    fsdp_names_free(keys->unexpected, keys->n_unexpected);
    *keys = (fsdp_incompatible_keys){0};
}

/* Check that `tensor` can become the tensor of parameter p, which is in no unit. `tensor` must not
 * be the tensor of another parameter, because the gradient of a tensor can go to only one
 * parameter. */
static fsdp_status check_assignable(const char *name, const fsdp_parameter *p,
                                    const fsdp_tensor *tensor)
{
    const fsdp_dtype dtype = p->data ? p->data->dtype : tensor->dtype;
    if (tensor->ndim != p->ndim || fsdp_is_dtensor(tensor) ||
        memcmp(tensor->shape, p->shape, (size_t)p->ndim * sizeof *p->shape) != 0)
        return fsdp_error(FSDP_ERR_INVALID, "'%s': its whole tensor can be assigned, not this",
                          name);
    if (!fsdp_tensor_is_contiguous(tensor))
        return fsdp_error(FSDP_ERR_INVALID, "'%s': a tensor to assign is contiguous", name);
    if (tensor->dtype != dtype || !fsdp_dtype_is_floating(dtype))
        return fsdp_error(FSDP_ERR_INVALID, "'%s': a tensor of %s cannot be assigned to %s", name,
                          fsdp_dtype_name(tensor->dtype),
                          fsdp_dtype_is_floating(dtype) ? fsdp_dtype_name(dtype) : "a parameter");
    if (tensor->sink && tensor->sink != &p->sink)
        return fsdp_error(FSDP_ERR_INVALID,
                          "'%s': the tensor to assign has a gradient of its own, or is another "
                          "parameter's: assign a copy",
                          name);
    return FSDP_OK;
}

static fsdp_status add_parameter_copy(set_run *run, const fsdp_named_parameter *item,
                                      const char *shown, size_t *found)
{
    fsdp_tensor *local = fsdp_parameter_local(item->parameter);
    const fsdp_state_entry *entry = fsdp_state_dict_find(run->dict, shown);
    if (run->has_values && !entry) {
        FSDP_TRY(fsdp_names_add(&run->keys.missing, &run->keys.n_missing, &run->cap_missing,
                                item->name));
        /* The dict lacks this parameter. Without broadcast_from_rank0, no copy is needed. With
         * broadcast_from_rank0, only rank 0 can get here. The other ranks add a copy for this
         * parameter, and all ranks must have the same list of copies. So rank 0 must add a copy,
         * too, and its `from` is NULL. */
        if (!run->options->broadcast_from_rank0)
            return FSDP_OK;
    }
    FSDP_TRY(check_not_quantized(item));
    if (!local && !run->options->assign)
        return fsdp_error(FSDP_ERR_STATE, "state dict: parameter %s has no memory", item->name);
    if (entry && !entry->tensor)
        return fsdp_error(FSDP_ERR_INVALID, "'%s' is not a tensor in the state dict", item->name);
    *found += entry != NULL;
    if (run->options->assign && entry && !item->parameter->owner)
        FSDP_TRY(check_assignable(item->name, item->parameter, entry->tensor));
    return local ? fsdp_state_copies_add(&run->copies, item->name, local,
                                         entry ? entry->tensor : NULL)
                 : FSDP_OK;
}

static fsdp_status list_unexpected(set_run *run)
{
    for (size_t k = 0; k < fsdp_state_dict_count(run->dict); k++) {
        const fsdp_state_entry *entry = fsdp_state_dict_at(run->dict, k);
        const char *shown;
        bool known = false;
        for (size_t i = 0; i < run->list.n && !known; i++)
            known = fsdp_state_name(run->options, run->list.items[i].name,
                                    run->list.items[i].parameter, &shown) &&
                    strcmp(shown, entry->fqn) == 0;
        if (!known)
            FSDP_TRY(fsdp_names_add(&run->keys.unexpected, &run->keys.n_unexpected,
                                    &run->cap_unexpected, entry->fqn));
    }
    return FSDP_OK;
}

static fsdp_status check_strict(const set_run *run)
{
    const fsdp_incompatible_keys *k = &run->keys;
    if (run->options->not_strict || (!k->n_missing && !k->n_unexpected))
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_NOT_FOUND,
                      "state dict: %zu missing%s%s, %zu unexpected%s%s (strict)", k->n_missing,
                      k->n_missing ? ", first " : "", k->n_missing ? k->missing[0] : "",
                      k->n_unexpected, k->n_unexpected ? ", first " : "",
                      k->n_unexpected ? k->unexpected[0] : "");
}

static fsdp_status collect_copies(set_run *run, fsdp_module *module)
{
    size_t found = 0;
    FSDP_TRY(fsdp_state_check_submodule(module, run->options));
    FSDP_TRY(fsdp_module_parameters(module, true, &run->list));
    for (size_t i = 0; i < run->list.n; i++) {
        const fsdp_named_parameter *item = &run->list.items[i];
        const char *shown;
        if (fsdp_state_name(run->options, item->name, item->parameter, &shown))
            FSDP_TRY(add_parameter_copy(run, item, shown, &found));
    }
    if (!run->has_values)
        return FSDP_OK;
    if (found != fsdp_state_dict_count(run->dict))
        FSDP_TRY(list_unexpected(run));
    return check_strict(run);
}

/* Record the dtype of the tensor that the dict has for a parameter. A frozen parameter will be
 * stored in this dtype, so that none of its values is rounded. Record nothing if the dict lacks the
 * parameter, or if the tensor in the dict is the local tensor of the parameter itself. */
static fsdp_status note_dtype(const set_run *run, const fsdp_named_parameter *item)
{
    fsdp_parameter *p = item->parameter;
    const char *shown;
    if (!p->owner || !fsdp_state_name(run->options, item->name, p, &shown))
        return FSDP_OK;
    const fsdp_state_entry *entry = fsdp_state_dict_find(run->dict, shown);
    int32_t dtype = run->has_values && entry && entry->tensor != p->local &&
                            fsdp_dtype_is_floating(entry->tensor->dtype)
                        ? (int32_t)entry->tensor->dtype
                        : -1;
    if (run->options->broadcast_from_rank0 && run->options->group)
        FSDP_TRY(fsdp_broadcast(run->options->group, &dtype, sizeof dtype, 0));
    if (dtype < 0)
        return FSDP_OK;
    p->loaded = p->values_are_due = true;
    p->loaded_dtype = (fsdp_dtype)dtype;
    return FSDP_OK;
}

static fsdp_status apply_pending_dtypes(const set_run *run)
{
    fsdp_status status = FSDP_OK;
    for (size_t i = 0; i < run->list.n && status == FSDP_OK; i++)
        status = note_dtype(run, &run->list.items[i]);
    if (status == FSDP_OK)
        status = fsdp_parameters_apply_pending_dtypes(&run->list);
    for (size_t i = 0; i < run->list.n; i++)
        run->list.items[i].parameter->values_are_due = false;
    return status;
}

/* Assign tensors of the dict to the parameters that are in no unit. */
static fsdp_status assign_all(const set_run *run)
{
    for (size_t i = 0; i < run->list.n; i++) {
        fsdp_parameter *p = run->list.items[i].parameter;
        const char *shown;
        if (p->owner || !fsdp_state_name(run->options, run->list.items[i].name, p, &shown))
            continue;
        const fsdp_state_entry *entry = fsdp_state_dict_find(run->dict, shown);
        if (!entry)
            continue;
        /* The first check was made before any tensor was assigned. If the dict has one tensor under
         * two names, this tensor may meanwhile have become the tensor of another parameter, so
         * check again. */
        FSDP_TRY(check_assignable(run->list.items[i].name, p, entry->tensor));
        if (p->data)
            p->data->sink = NULL; /* the old tensor may outlive the parameter, which owns this
                                     gradient sink */
        fsdp_parameter_set_tensors(p, entry->tensor, entry->tensor);
    }
    return FSDP_OK;
}

fsdp_status fsdp_set_model_state_dict(fsdp_module *module, const fsdp_state_dict *dict,
                                      const fsdp_state_dict_options *options,
                                      fsdp_incompatible_keys *keys)
{
    set_run run = {.options = fsdp_state_options(options), .dict = dict};
    run.has_values = !run.options->broadcast_from_rank0 || fsdp_state_rank(run.options) == 0;
    fsdp_status status = fsdp_agree(run.options->group, collect_copies(&run, module));
    if (status == FSDP_OK)
        status = fsdp_agree(run.options->group, apply_pending_dtypes(&run));
    if (status == FSDP_OK)
        status = fsdp_state_copies_run(&run.copies, run.options);
    if (status == FSDP_OK && run.options->assign)
        status = assign_all(&run);
    if (keys && (status == FSDP_OK || status == FSDP_ERR_NOT_FOUND))
        *keys = run.keys;
    else
        fsdp_incompatible_keys_free(&run.keys);
    fsdp_state_copies_fini(&run.copies);
    fsdp_parameter_list_free(&run.list);
    return status;
}

/* --- model and optimizer --- */

fsdp_status fsdp_get_state_dict(fsdp_module *module, fsdp_optimizer *optimizer,
                                const fsdp_state_dict_options *options, fsdp_state_dict **model,
                                fsdp_state_dict **optim)
{
    fsdp_state_dict *first;
    FSDP_TRY(fsdp_get_model_state_dict(module, options, &first));
    fsdp_status status = fsdp_get_optimizer_state_dict(module, optimizer, options, optim);
    if (status != FSDP_OK) {
        fsdp_state_dict_destroy(first);
        return status;
    }
    *model = first;
    return FSDP_OK;
}

fsdp_status fsdp_set_state_dict(fsdp_module *module, fsdp_optimizer *optimizer,
                                const fsdp_state_dict *model, const fsdp_state_dict *optim,
                                const fsdp_state_dict_options *options,
                                fsdp_incompatible_keys *keys)
{
    FSDP_TRY(fsdp_set_model_state_dict(module, model, options, keys));
    fsdp_status status = fsdp_set_optimizer_state_dict(module, optimizer, optim, options);
    if (status != FSDP_OK && keys)
        fsdp_incompatible_keys_free(keys);
    return status;
}
