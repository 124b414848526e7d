/* See foreign.h. */
#include <string.h>

#include <fsdp/pretrained.h>
#include <fsdp/dtensor.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/str.h"
#include "src/comm/agree.h"
#include "src/foreign/foreign_internal.h"
#include "src/nn/module.h"
#include "src/pretrained/load_names.h"
#include "src/tensor/tensor.h"

enum {
    COMPARED_BYTES = 4 << 20, /* size of the blocks in which tied tensors are compared */
    MAX_KEYS = 32
};

/* ---- matching the model ---------------------------------------------------------------------- */

static fsdp_status no_model(const fsdp_foreign_run *run)
{
    fsdp_lit_format lit;
    FSDP_TRY(fsdp_source_lit_format(run->model.source, &lit));
    if (lit)
        return fsdp_error(FSDP_ERR_INVALID,
                          "%s: weights of %s, whose optimizer's state cannot be read. To begin "
                          "with the weights: fsdp checkpoint convert %s NEW_DIR --format hf "
                          "--model DIR, and then --model NEW_DIR without --resume",
                          run->paths->model, fsdp_lit_format_name(lit), run->paths->model);
    char *top = fsdp_foreign_names_describe_top(&run->model);
    if (!top)
        return FSDP_ERR_NOMEM;
    fsdp_status status = fsdp_error(
        FSDP_ERR_NOT_FOUND,
        "%s: no tensor in it has the name of a parameter of this model, such as '%s': its keys are "
        "%s; wanted are the state dicts of this --model and of its optimizer, as in {\"model\": "
        "..., \"optim\": ...}",
        run->paths->model, run->all.n ? run->all.items[0].name : "", top);
    fsdp_free(top);
    return status;
}

/* Add an entry to `dict` under the keys of `item`. The entry is `tensor`, or None if `tensor` is
 * NULL. For a DCP checkpoint, the name of the item is its only key. */
static fsdp_status put_read(fsdp_state_dict *dict, const fsdp_source *source,
                            const fsdp_source_item *item, fsdp_tensor *tensor)
{
    fsdp_state_key keys[MAX_KEYS];
    int n = 1;
    keys[0] = (fsdp_state_key){.name = item->fqn};
    if (fsdp_source_format_of(source) != FSDP_SOURCE_DCP) {
        if (item->n_keys > MAX_KEYS)
            return fsdp_error(FSDP_ERR_UNSUPPORTED, "%s: '%s' is nested too deeply",
                              fsdp_source_path(source), item->fqn);
        for (n = 0; n < item->n_keys; n++)
            keys[n] =
                (fsdp_state_key){item->keys[n].name, item->keys[n].index, item->keys[n].is_int};
    }
    if (tensor)
        return fsdp_state_dict_put_tensor(dict, keys, n, tensor);
    const fsdp_plain none = {0};
    return fsdp_state_dict_put_value(dict, keys, n, &none);
}

/* Compare this rank's share of two tensors, which have the same dtype and shape. `a` is a tensor of
 * the model's source, and `b` is a tensor of `other`. The tensors are divided into blocks of
 * COMPARED_BYTES, and each rank's share is a range of blocks. Set *same to false if the shares
 * differ. */
static fsdp_status compare_share(const fsdp_foreign_run *run, fsdp_source *other,
                                 const fsdp_source_item *a, const fsdp_source_item *b, bool *same)
{
    const uint64_t n = (uint64_t)a->bytes, blocks = (n + COMPARED_BYTES - 1) / COMPARED_BYTES,
                   ranks = (uint64_t)fsdp_group_world_size(run->group),
                   rank = (uint64_t)fsdp_group_rank(run->group);
    unsigned char *bytes = fsdp_calloc(2, COMPARED_BYTES);
    fsdp_status status = bytes ? FSDP_OK : FSDP_ERR_NOMEM;
    for (uint64_t block = blocks * rank / ranks;
         block < blocks * (rank + 1) / ranks && *same && status == FSDP_OK; block++) {
        const uint64_t at = block * COMPARED_BYTES;
        const size_t count = (size_t)(n - at < COMPARED_BYTES ? n - at : COMPARED_BYTES);
        status = fsdp_source_read(run->model.source, a, at, bytes, count);
        if (status == FSDP_OK)
            status = fsdp_source_read(other, b, at, bytes + COMPARED_BYTES, count);
        if (status == FSDP_OK)
            *same = memcmp(bytes, bytes + COMPARED_BYTES, count) == 0;
    }
    fsdp_free(bytes);
    return status;
}

/* Check that `a` and `b`, which are tied in this model, are equal. A source caches rows of only one
 * tensor, so `a` and `b` are read through two sources. */
static fsdp_status compare_tied(fsdp_foreign_run *run, const fsdp_source_item *a,
                                const fsdp_source_item *b)
{
    bool same = a->dtype_name && b->dtype_name && strcmp(a->dtype_name, b->dtype_name) == 0 &&
                a->ndim == b->ndim &&
                memcmp(a->shape, b->shape, (size_t)a->ndim * sizeof *a->shape) == 0;
    const bool shared = same && a->entry && b->entry && a->entry->data == b->entry->data;
    if (same && !shared && a->numel) {
        fsdp_foreign_names other;
        const fsdp_source_item *item = NULL;
        FSDP_TRY(fsdp_foreign_names_open(run->paths->model, &other));
        for (size_t i = 0; i < fsdp_source_count(other.source) && !item; i++)
            if (strcmp(fsdp_source_at(other.source, i)->fqn, b->fqn) == 0)
                item = fsdp_source_at(other.source, i);
        fsdp_status status =
            item ? compare_share(run, other.source, a, item, &same) : FSDP_ERR_STATE;
        fsdp_foreign_names_close(&other);
        FSDP_TRY(status);
    }
    if (same)
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_INVALID,
                      "%s: '%s' and '%s' are tied in this model, but differ: the run that saved "
                      "them trained both. Without the optimizer's state: fsdp checkpoint convert, "
                      "and --model with \"tie_word_embeddings\": false in its config.json",
                      run->paths->model, a->fqn, b->fqn);
}

/* Find a parameter in the checkpoint under any of its names, and add it to run->reads[0]. If the
 * checkpoint has it under several names, their tensors must be equal. Add 1 to *found if the
 * parameter was found. */
static fsdp_status match_parameter(fsdp_foreign_run *run, fsdp_parameter *parameter, size_t *found)
{
    const fsdp_source_item *first = NULL, *item;
    for (size_t i = 0; i < run->all.n; i++) {
        if (run->all.items[i].parameter != parameter)
            continue;
        FSDP_TRY(fsdp_foreign_names_find(&run->model, &item, "%s%s", run->prefix,
                                         run->all.items[i].name));
        if (!item)
            continue;
        if (first) {
            FSDP_TRY(compare_tied(run, first, item));
            continue;
        }
        first = item;
        FSDP_TRY(put_read(run->reads[0], run->model.source, item, fsdp_parameter_local(parameter)));
    }
    *found += first != NULL;
    return FSDP_OK;
}

static bool is_in_model(const fsdp_foreign_run *run, const char *name)
{
    for (size_t i = 0; i < run->all.n; i++)
        if (strcmp(run->all.items[i].name, name) == 0)
            return true;
    return false;
}

/* Return true if `name` may belong to the model. The caller has already removed the model's prefix
 * from `name`. If this prefix is not empty, every name belongs to the model. If it is empty, the
 * model is at the top of the checkpoint, next to other items. In that case, `name` may belong to
 * the model only if it has the same beginning, up to the first dot, as the name of a parameter of
 * the model. */
static bool begins_like_model(const fsdp_foreign_run *run, const char *name)
{
    const size_t n = strcspn(name, ".");
    for (size_t i = 0; i < run->all.n; i++)
        if (strncmp(run->all.items[i].name, name, n) == 0 && run->all.items[i].name[n] == '.')
            return true;
    return *run->prefix != '\0';
}

static fsdp_status refuse_unexpected(const fsdp_foreign_run *run)
{
    const size_t n = strlen(run->prefix);
    const char *first = NULL;
    size_t count = 0;
    for (size_t i = fsdp_foreign_names_lower_bound(&run->model, run->prefix); i < run->model.n;
         i++) {
        const fsdp_foreign_item *item = &run->model.items[i];
        if (strncmp(item->name, run->prefix, n) != 0)
            break;
        if (!item->item->dtype_name || fsdp_load_is_old_buffer(item->name) ||
            is_in_model(run, item->name + n) || !begins_like_model(run, item->name + n))
            continue;
        first = first ? first : item->item->fqn;
        count++;
    }
    if (!count)
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_INVALID,
                      "%s: the model of this run has no use for %zu tensor%s of the model there, "
                      "'%s'%s: it was saved by a larger model, or by another one",
                      run->paths->model, count, count == 1 ? "" : "s", first,
                      count == 1 ? "" : " the first");
}

static fsdp_status missing_parameters(const fsdp_foreign_run *run, size_t found)
{
    for (size_t i = 0; i < run->once.n; i++) {
        bool there = false;
        for (size_t k = 0; k < run->all.n && !there; k++) {
            const fsdp_source_item *item = NULL;
            if (run->all.items[k].parameter != run->once.items[i].parameter)
                continue;
            FSDP_TRY(fsdp_foreign_names_find(&run->model, &item, "%s%s", run->prefix,
                                             run->all.items[k].name));
            there = item != NULL;
        }
        if (!there)
            return fsdp_error(FSDP_ERR_NOT_FOUND,
                              "%s: there is no '%s%s' in this checkpoint, which has %zu of this "
                              "model's %zu parameters: --model must be the model that was saved",
                              run->paths->model, run->prefix, run->once.items[i].name, found,
                              run->once.n);
    }
    return FSDP_OK;
}

static fsdp_status match_model(fsdp_foreign_run *run)
{
    size_t found = 0;
    FSDP_TRY(fsdp_foreign_find_model(&run->model, &run->all, &run->prefix));
    if (!run->prefix)
        return no_model(run);
    for (size_t i = 0; i < run->once.n; i++)
        FSDP_TRY(match_parameter(run, run->once.items[i].parameter, &found));
    FSDP_TRY(missing_parameters(run, found));
    return refuse_unexpected(run);
}

/* ---- matching the optimizer's state ---------------------------------------------------------- */

static fsdp_status find_name(const fsdp_foreign_run *run, const fsdp_parameter *parameter,
                             const char **name)
{
    for (size_t i = 0; i < run->once.n; i++)
        if (run->once.items[i].parameter == parameter) {
            *name = run->once.items[i].name;
            return FSDP_OK;
        }
    return fsdp_error(FSDP_ERR_INVALID, "the optimizer has a parameter that is not the module's");
}

static fsdp_status list_slots(fsdp_foreign_run *run)
{
    const fsdp_parameter_list *list = fsdp_optimizer_parameters(run->optimizer);
    run->slots = fsdp_calloc(list->n, sizeof *run->slots);
    if (!run->slots)
        return FSDP_ERR_NOMEM;
    for (size_t i = 0; i < list->n; i++) {
        fsdp_foreign_slot *slot = &run->slots[run->n_slots];
        if (!fsdp_parameter_requires_grad(list->items[i].parameter))
            continue;
        slot->parameter = list->items[i].parameter;
        FSDP_TRY(find_name(run, slot->parameter, &slot->name));
        run->n_slots++;
    }
    return FSDP_OK;
}

/* Return true if the optimizer keeps state for this parameter. */
static bool keeps_state(const fsdp_foreign_run *run, const fsdp_parameter *parameter)
{
    const char *name;
    for (int k = 0; (name = fsdp_optimizer_state_name(run->optimizer, k)); k++)
        if (fsdp_optimizer_state(run->optimizer, parameter, name))
            return true;
    return false;
}

/* Return true if the checkpoint has param_groups. SGD without momentum saves nothing else, because
 * it keeps no state for its parameters. */
static bool has_param_groups(const fsdp_foreign_names *names)
{
    for (size_t i = 0; i < names->n; i++) {
        const char *at = strstr(names->items[i].name, "param_groups.");
        if (at && (at == names->items[i].name || at[-1] == '.'))
            return true;
    }
    return false;
}

static fsdp_status no_optimizer(const fsdp_foreign_run *run)
{
    if (has_param_groups(run->optim))
        return fsdp_error(FSDP_ERR_NOT_FOUND,
                          "%s: the optimizer that was saved keeps nothing for its parameters, as "
                          "SGD without momentum does: --optimizer sgd without --momentum is the "
                          "same. To begin from the weights with another optimizer: fsdp checkpoint "
                          "convert, then --model",
                          run->paths->optimizer);
    char *top = fsdp_foreign_names_describe_top(run->optim);
    if (!top)
        return FSDP_ERR_NOMEM;
    fsdp_status status =
        fsdp_error(FSDP_ERR_NOT_FOUND,
                   "%s: no optimizer's state in it: its keys are %s; wanted is one below \"optim\" "
                   "or \"optimizer\", {\"state\": ..., \"param_groups\": ...}. To begin from the "
                   "weights alone: fsdp checkpoint convert, then --model",
                   run->paths->optimizer, top);
    fsdp_free(top);
    return status;
}

static fsdp_status put_state(fsdp_foreign_run *run, const fsdp_foreign_slot *slot, const char *key,
                             fsdp_tensor *tensor, const fsdp_plain *value)
{
    const fsdp_state_key keys[] = {{.name = "state"}, {.name = slot->name}, {.name = key}};
    return tensor ? fsdp_state_dict_put_tensor(run->state, keys, 3, tensor)
                  : fsdp_state_dict_put_value(run->state, keys, 3, value);
}

/* The checkpoint stores this state as a plain number, but this optimizer keeps it as a scalar
 * tensor. Convert the number to a tensor, and put the tensor into run->state. For example,
 * transformers' Adafactor saves the initial RMS as the number 0. */
static fsdp_status put_scalar(fsdp_foreign_run *run, const fsdp_foreign_slot *slot, const char *key,
                              const fsdp_tensor *state, const fsdp_plain *value)
{
    const float number =
        value->kind == FSDP_PLAIN_INT ? (float)value->as.integer : (float)value->as.number;
    fsdp_tensor *tensor;
    if (state->ndim || (value->kind != FSDP_PLAIN_INT && value->kind != FSDP_PLAIN_FLOAT))
        return fsdp_error(FSDP_ERR_INVALID, "%s: state '%s' of %s is not a tensor",
                          run->paths->optimizer, key, slot->name);
    FSDP_TRY(fsdp_tensor_from_data(fsdp_tensor_device(state), FSDP_DTYPE_F32, 0, NULL, &number,
                                   FSDP_TAG_OPTIM, &tensor));
    fsdp_status status = put_state(run, slot, key, tensor, NULL);
    fsdp_tensor_release(tensor);
    return status;
}

/* Return the error for a saved state `key` that this optimizer does not have. The message lists the
 * states that this optimizer keeps. */
static fsdp_status refuse_state(const fsdp_foreign_run *run, const char *key)
{
    fsdp_str kept = {0};
    const char *name;
    for (int k = 0; (name = fsdp_optimizer_state_name(run->optimizer, k)); k++)
        if (run->n_slots && fsdp_optimizer_state(run->optimizer, run->slots[0].parameter, name))
            fsdp_str_printf(&kept, "%s'%s'", kept.len ? ", " : "", name);
    char *text = kept.len ? fsdp_str_take(&kept) : fsdp_strdup("nothing");
    if (!text)
        return FSDP_ERR_NOMEM;
    fsdp_status status = fsdp_error(
        FSDP_ERR_INVALID,
        "%s: the optimizer that was saved keeps '%s'%s; --optimizer %s with the options of this "
        "run keeps %s: both must be the same. To begin from the weights without the optimizer's "
        "state: fsdp checkpoint convert, then --model",
        run->paths->optimizer, key,
        strcmp(key, "max_exp_avg_sq") == 0 ? " (amsgrad=True, which this library does not have)"
                                           : "",
        fsdp_optimizer_name(run->optimizer), text);
    fsdp_free(text);
    return status;
}

/* Return true if `key` belongs to a state in 8 bits, and the optimizer of this run keeps states in
 * 8 bits, too. */
static bool is_part_of_8bit_state(const fsdp_foreign_run *run, const char *key)
{
    return strcmp(fsdp_optimizer_name(run->optimizer), "adamw_8bit") == 0 &&
           (strncmp(key, "absmax", 6) == 0 || strncmp(key, "qmap", 4) == 0);
}

/* Return the error for a parameter whose states have 8 bits in the checkpoint and 32 bits here. */
static fsdp_status refuse_8bit_state(const fsdp_foreign_run *run, const fsdp_foreign_slot *slot)
{
    return fsdp_error(
        FSDP_ERR_UNSUPPORTED,
        "%s: the states of %s have 8 bits there, and adamw_8bit of this run keeps them in float32: "
        "the parameter has fewer elements than min_8bit_size of this run, or it has one "
        "dimension, which bitsandbytes stores in 8 bits from 4096 elements on. To begin from the "
        "weights without the optimizer's state: fsdp checkpoint convert, then --model",
        run->paths->optimizer, slot->name);
}

/* Match `item`, a state that was saved for a parameter, with the state `key` of this optimizer.
 * Plain values are put into run->state now. The number of steps is also put there now, even if it
 * was saved as a tensor. All other tensors are read later, directly into the optimizer's
 * tensors. */
static fsdp_status match_state(fsdp_foreign_run *run, const fsdp_foreign_slot *slot,
                               const char *key, const fsdp_source_item *item)
{
    const bool steps = strcmp(key, "step") == 0;
    fsdp_tensor *state = steps ? NULL : fsdp_optimizer_state(run->optimizer, slot->parameter, key);
    fsdp_plain value = {0};
    bool known = true;
    if (!item->dtype_name || steps)
        FSDP_TRY(fsdp_foreign_value(run, item, &value, &known));
    if (!item->dtype_name && known && value.kind == FSDP_PLAIN_NONE)
        return FSDP_OK; /* SGD without momentum saves None as momentum_buffer */
    if (steps && !known)
        return fsdp_error(FSDP_ERR_FORMAT,
                          "%s: '%s', the number of steps of %s, is neither a number nor a tensor "
                          "with one element",
                          run->paths->optimizer, item->fqn, slot->name);
    if (!steps && !state && is_part_of_8bit_state(run, key))
        return refuse_8bit_state(run, slot);
    if (!steps && !state)
        return refuse_state(run, key);
    if (steps && !fsdp_state_counts_steps(run->optimizer))
        return refuse_state(run, key);
    if (steps)
        return put_state(run, slot, key, NULL, &value);
    if (!item->dtype_name)
        return put_scalar(run, slot, key, state, &value);
    if (fsdp_foreign_is_flat(slot->parameter, state, item)) {
        fsdp_foreign_blocks *blocks;
        FSDP_TRY(fsdp_foreign_add_blocks(run, slot, key, item, &blocks));
        FSDP_TRY(put_state(run, slot, key, blocks->rows, NULL));
        return put_read(run->reads[1], run->optim->source, item, blocks->flat);
    }
    FSDP_TRY(put_state(run, slot, key, state, NULL));
    return put_read(run->reads[1], run->optim->source, item, state);
}

static fsdp_status check_state(const fsdp_foreign_run *run, const fsdp_foreign_slot *slot)
{
    const char *name;
    for (int k = 0; (name = fsdp_optimizer_state_name(run->optimizer, k)); k++) {
        char *fqn = fsdp_strdup_printf("state.%s.%s", slot->name, name);
        if (!fqn)
            return FSDP_ERR_NOMEM;
        const bool there = !fsdp_optimizer_state(run->optimizer, slot->parameter, name) ||
                           fsdp_state_dict_find(run->state, fqn);
        fsdp_free(fqn);
        if (!there)
            return fsdp_error(FSDP_ERR_NOT_FOUND,
                              "%s: there is no '%s' of %s in the optimizer's state, which "
                              "--optimizer %s keeps: both optimizers must be the same, and what "
                              "had no gradient then must be frozen",
                              run->paths->optimizer, name, slot->name,
                              fsdp_optimizer_name(run->optimizer));
    }
    return FSDP_OK;
}

static fsdp_status match_slot(fsdp_foreign_run *run, const fsdp_foreign_slot *slot)
{
    const char *prefix =
        slot->key ? fsdp_foreign_text(run, "%sstate.%s.", run->at.base, slot->key) : "";
    if (!prefix)
        return FSDP_ERR_NOMEM;
    const size_t n = strlen(prefix);
    for (size_t i = n ? fsdp_foreign_names_lower_bound(run->optim, prefix) : run->optim->n;
         i < run->optim->n && strncmp(run->optim->items[i].name, prefix, n) == 0; i++)
        FSDP_TRY(match_state(run, slot, fsdp_foreign_state_key(run->optim->items[i].name + n),
                             run->optim->items[i].item));
    return check_state(run, slot);
}

static fsdp_status match_optimizer(fsdp_foreign_run *run)
{
    FSDP_TRY(fsdp_optimizer_init_state(run->optimizer));
    FSDP_TRY(list_slots(run));
    FSDP_TRY(fsdp_foreign_find_optimizer(run->optim, &run->all, &run->at));
    if (!run->at.base && run->n_slots && keeps_state(run, run->slots[0].parameter))
        return no_optimizer(run);
    FSDP_TRY(fsdp_foreign_find_slots(run));
    for (size_t i = 0; i < run->n_slots; i++)
        FSDP_TRY(match_slot(run, &run->slots[i]));
    return fsdp_foreign_read_groups(run);
}

/* ---- loading --------------------------------------------------------------------------------- */

static fsdp_status open_sources(fsdp_foreign_run *run)
{
    const bool one = strcmp(run->paths->model, run->paths->optimizer) == 0;
    FSDP_TRY(fsdp_foreign_names_open(run->paths->model, &run->model));
    run->optim = one ? &run->model : &run->own_optim;
    return one ? FSDP_OK : fsdp_foreign_names_open(run->paths->optimizer, &run->own_optim);
}

static fsdp_status match_all(fsdp_foreign_run *run)
{
    FSDP_TRY(fsdp_module_parameters(run->module, true, &run->all));
    FSDP_TRY(fsdp_module_parameters(run->module, false, &run->report->names));
    /* The report owns this list, because the report's parameters refer to the names in it. */
    run->once = run->report->names;
    FSDP_TRY(open_sources(run));
    FSDP_TRY(fsdp_state_dict_create(&run->state));
    FSDP_TRY(fsdp_state_dict_create(&run->reads[0]));
    if (run->optim == &run->model)
        run->reads[1] = run->reads[0];
    else
        FSDP_TRY(fsdp_state_dict_create(&run->reads[1]));
    FSDP_TRY(match_model(run));
    return match_optimizer(run);
}

static fsdp_status read_weights(const fsdp_foreign_run *run)
{
    fsdp_checkpoint_reader *reader = NULL;
    fsdp_load_report report = {0};
    fsdp_status status = fsdp_agree(run->group, fsdp_checkpoint_open(run->paths->model, &reader));
    if (status == FSDP_OK)
        status = fsdp_module_load(run->module, reader, run->group, NULL, &report);
    fsdp_load_report_free(&report);
    fsdp_checkpoint_close(reader);
    return status;
}

static fsdp_status read_part(const fsdp_foreign_run *run, fsdp_state_dict *dict,
                             const fsdp_foreign_names *from)
{
    switch (fsdp_source_format_of(from->source)) {
    case FSDP_SOURCE_DCP:
        return fsdp_dcp_load(dict, fsdp_source_path(from->source), run->group, NULL);
    case FSDP_SOURCE_TORCH:
        return fsdp_torch_load_into(dict, fsdp_source_path(from->source), run->group);
    default:
        return read_weights(run);
    }
}

static fsdp_status read_all(fsdp_foreign_run *run)
{
    const fsdp_state_dict_options options = {.group = run->group};
    FSDP_TRY(read_part(run, run->reads[0], &run->model));
    if (run->reads[1] != run->reads[0])
        FSDP_TRY(read_part(run, run->reads[1], run->optim));
    FSDP_TRY(fsdp_agree(run->group, fsdp_foreign_fill_blocks(run)));
    return fsdp_set_optimizer_state_dict(run->module, run->optimizer, run->state, &options);
}

static void fini(fsdp_foreign_run *run)
{
    if (run->reads[1] != run->reads[0])
        fsdp_state_dict_destroy(run->reads[1]);
    fsdp_state_dict_destroy(run->reads[0]);
    fsdp_state_dict_destroy(run->state);
    fsdp_foreign_free_blocks(run);
    fsdp_foreign_optimizer_fini(&run->at);
    fsdp_free(run->slots);
    fsdp_free(run->prefix);
    fsdp_foreign_names_close(&run->own_optim);
    fsdp_foreign_names_close(&run->model);
    fsdp_parameter_list_free(&run->all);
    fsdp_arena_fini(&run->arena);
}

void fsdp_foreign_report_free(fsdp_foreign_report *report)
{
    fsdp_free(report->parameters);
    fsdp_names_free(report->notes, report->n_notes);
    fsdp_parameter_list_free(&report->names);
    *report = (fsdp_foreign_report){0};
}

fsdp_status fsdp_foreign_load(fsdp_module *module, fsdp_optimizer *optimizer,
                              const fsdp_foreign_paths *paths, fsdp_group *group,
                              fsdp_foreign_report *report)
{
    fsdp_foreign_run run = {
        .module = module, .optimizer = optimizer, .paths = paths, .group = group, .report = report};
    *report = (fsdp_foreign_report){0};
    fsdp_status status = fsdp_agree(group, match_all(&run));
    if (status == FSDP_OK)
        status = read_all(&run);
    fini(&run);
    if (status != FSDP_OK)
        fsdp_foreign_report_free(report);
    return status;
}
