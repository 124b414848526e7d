/* Reads the param_groups of a checkpoint that another program saved. Finds the module's parameters
 * in them, and reads the options of each parameter. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <fsdp/dtensor.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/foreign/foreign_internal.h"
#include "src/hf/wrapped_names.h"
#include "src/state_dict/groups.h"
#include "src/tensor/tensor.h"

static const char GROUPS[] = "param_groups.";

/* ---- parameters by name ---------------------------------------------------------------------- */

/* Set *list to the list "param_groups.<g>.<key>" of the checkpoint, or to NULL if there is none. */
static fsdp_status list_of(fsdp_foreign_run *run, size_t g, const char *key,
                           const fsdp_pickle_value **list)
{
    const fsdp_source_item *item;
    *list = NULL;
    FSDP_TRY(
        fsdp_foreign_names_find(run->optim, &item, "%s%s%zu.%s", run->at.base, GROUPS, g, key));
    if (item && !item->dtype_name)
        FSDP_TRY(fsdp_source_value(run->optim->source, item, list));
    if (*list && (*list)->kind != FSDP_PICKLE_LIST && (*list)->kind != FSDP_PICKLE_TUPLE)
        *list = NULL;
    return FSDP_OK;
}

/* Return true if `text` is a name of the parameter. The prefix of a wrapper may come before it. */
static bool names_parameter(const fsdp_foreign_run *run, const char *text,
                            const fsdp_parameter *parameter)
{
    const size_t n = strlen(text);
    for (size_t i = 0; i < run->all.n; i++) {
        const size_t length = strlen(run->all.items[i].name);
        if (run->all.items[i].parameter == parameter && n >= length &&
            strcmp(text + n - length, run->all.items[i].name) == 0 &&
            (n == length || text[n - length - 1] == '.'))
            return true;
    }
    return false;
}

/* Set *slot to the slot of the parameter that has the name `text` in the checkpoint, or to NULL if
 * there is none. Wrappers of modules may have put parts such as "_orig_mod." into the name. `hint`
 * is the number of the slot at which the search begins. */
static fsdp_status slot_of_name(fsdp_foreign_run *run, const char *text, size_t hint,
                                fsdp_foreign_slot **slot)
{
    *slot = NULL;
    char *name = text ? fsdp_strdup(text) : NULL;
    if (text && !name)
        return FSDP_ERR_NOMEM;
    if (name)
        fsdp_name_unwrap(name);
    for (size_t i = 0; name && i < run->n_slots && !*slot; i++) {
        fsdp_foreign_slot *candidate = &run->slots[(hint + i) % run->n_slots];
        if (names_parameter(run, name, candidate->parameter))
            *slot = candidate;
    }
    fsdp_free(name);
    return FSDP_OK;
}

static fsdp_status key_by_name(fsdp_foreign_run *run, fsdp_foreign_slot *slot)
{
    const fsdp_foreign_optimizer *at = &run->at;
    for (size_t i = 0; i < run->all.n && !slot->key; i++) {
        const fsdp_named_parameter *item = &run->all.items[i];
        if (item->parameter != slot->parameter)
            continue;
        const char *key = fsdp_foreign_text(run, "%s%s", at->wrapper, item->name);
        const char *prefix = key ? fsdp_foreign_text(run, "%sstate.%s.", at->base, key) : NULL;
        const char *flat = prefix ? fsdp_foreign_text(run, "%s%s%s.", at->base, GROUPS, key) : NULL;
        if (!flat)
            return FSDP_ERR_NOMEM;
        if (fsdp_foreign_names_lower_bound(run->optim, prefix) < run->optim->n)
            slot->key = key;
        if (fsdp_foreign_names_lower_bound(run->optim, flat) < run->optim->n)
            slot->group_key = key;
    }
    return FSDP_OK;
}

static fsdp_status groups_by_name(fsdp_foreign_run *run)
{
    const fsdp_pickle_value *params;
    size_t hint = 0;
    for (size_t i = 0; i < run->n_slots; i++)
        FSDP_TRY(key_by_name(run, &run->slots[i]));
    for (size_t g = 0;; g++) {
        FSDP_TRY(list_of(run, g, "params", &params));
        if (!params)
            return FSDP_OK;
        const char *key = fsdp_foreign_text(run, "%zu", g);
        if (!key)
            return FSDP_ERR_NOMEM;
        for (size_t i = 0; i < params->list.n; i++) {
            fsdp_foreign_slot *slot;
            FSDP_TRY(slot_of_name(run, fsdp_pickle_text(params->list.items[i]), hint, &slot));
            if (slot)
                slot->group_key = key;
            hint = slot ? (size_t)(slot - run->slots) + 1 : hint;
        }
    }
}

/* ---- parameters by number -------------------------------------------------------------------- */

/* A parameter that the checkpoint identifies by a number. torch numbers the parameters group by
 * group. */
typedef struct numbered {
    int64_t number;
    size_t group;
    const char *name; /* the parameter's name in param_names; NULL if unknown */
} numbered;

typedef struct numbers {
    numbered *items; /* [n] */
    size_t n, cap;
    size_t *sizes; /* [n_groups] number of parameters of each group */
    size_t n_groups, cap_groups;
} numbers;

static fsdp_status list_numbers(fsdp_foreign_run *run, numbers *all)
{
    for (size_t g = 0;; g++) {
        const fsdp_pickle_value *params, *names;
        FSDP_TRY(list_of(run, g, "params", &params));
        FSDP_TRY(list_of(run, g, "param_names", &names));
        if (!params)
            return FSDP_OK;
        if (!FSDP_GROW(all->items, all->cap, all->n + params->list.n) ||
            !FSDP_GROW(all->sizes, all->cap_groups, g + 1))
            return FSDP_ERR_NOMEM;
        for (size_t i = 0; i < params->list.n; i++) {
            const fsdp_pickle_value *value = params->list.items[i];
            if (!fsdp_pickle_is(value, FSDP_PICKLE_INT))
                return fsdp_error(FSDP_ERR_INVALID, "%s: %s%s%zu.params is not a list of numbers",
                                  fsdp_source_path(run->optim->source), run->at.base, GROUPS, g);
            all->items[all->n++] =
                (numbered){value->integer, g, fsdp_pickle_text(fsdp_pickle_at(names, i))};
        }
        all->sizes[g] = params->list.n;
        all->n_groups = g + 1;
    }
}

/* Set *yes to true if the optimizer state that the checkpoint has under this number can belong to
 * `parameter`, otherwise to false. The state can belong to `parameter` if each tensor of the state,
 * such as exp_avg, has the same shape as the tensor of the same name that run->optimizer keeps for
 * `parameter`. */
static fsdp_status number_fits(fsdp_foreign_run *run, const numbered *number,
                               const fsdp_parameter *parameter, bool *yes)
{
    const char *name;
    *yes = true;
    for (int k = 0; *yes && (name = fsdp_optimizer_state_name(run->optimizer, k)); k++) {
        const fsdp_tensor *state = fsdp_optimizer_state(run->optimizer, parameter, name);
        const fsdp_source_item *item;
        FSDP_TRY(fsdp_foreign_names_find(run->optim, &item, "%sstate.%lld.%s", run->at.base,
                                         (long long)number->number, name));
        if (!item)
            FSDP_TRY(fsdp_foreign_names_find(run->optim, &item,
                                             "%sstate.%lld." FSDP_FOREIGN_BNB_STATE ".%s",
                                             run->at.base, (long long)number->number, name));
        if (state && item && item->dtype_name)
            *yes = fsdp_foreign_is_flat(parameter, state, item) ||
                   (state->ndim == item->ndim &&
                    memcmp(fsdp_dtensor_shape(state), item->shape,
                           (size_t)item->ndim * sizeof *item->shape) == 0);
    }
    return FSDP_OK;
}

/* An order in which a script may have passed the model's parameters to its optimizer. */
typedef struct order {
    /* [n] the parameters in this order. The parameters items[0] to items[first - 1] form the first
     * group. If there are more parameters, the rest form a second group. */
    const fsdp_parameter **items;
    size_t n, first;
} order;

static fsdp_status add_all(order *o, const fsdp_parameter_list *list, bool trained)
{
    for (size_t i = 0; i < list->n; i++)
        if (!trained || fsdp_parameter_requires_grad(list->items[i].parameter))
            o->items[o->n++] = list->items[i].parameter;
    return FSDP_OK;
}

static fsdp_status add_decay(fsdp_foreign_run *run, order *o)
{
    fsdp_parameter_list decay, no_decay;
    FSDP_TRY(fsdp_decay_parameters(run->module, &decay, &no_decay));
    fsdp_status status = add_all(o, &decay, true);
    o->first = o->n;
    if (status == FSDP_OK)
        status = add_all(o, &no_decay, true);
    fsdp_parameter_list_free(&decay);
    fsdp_parameter_list_free(&no_decay);
    return status;
}

static void add_own_groups(fsdp_foreign_run *run, order *o)
{
    const fsdp_parameter_list *list = fsdp_optimizer_parameters(run->optimizer);
    for (int g = 0; g < fsdp_optimizer_n_groups(run->optimizer); g++) {
        for (size_t i = 0; i < list->n; i++)
            if (fsdp_optimizer_group_of(run->optimizer, list->items[i].parameter) == g)
                o->items[o->n++] = list->items[i].parameter;
        if (g == 0)
            o->first = o->n;
    }
}

enum {
    OWN_GROUPS, /* the groups of this run, one after the other */
    ALL,        /* model.parameters() */
    TRAINED,    /* the parameters of model.parameters() that require gradients */
    DECAY, /* transformers' Trainer: first the parameters with weight decay, then those without */
    N_ORDERS
};

static fsdp_status make_order(fsdp_foreign_run *run, int kind, order *o)
{
    o->n = 0;
    if (kind == DECAY)
        return add_decay(run, o);
    if (kind == OWN_GROUPS)
        add_own_groups(run, o);
    else
        FSDP_TRY(add_all(o, &run->once, kind == TRAINED));
    if (kind != OWN_GROUPS)
        o->first = o->n;
    return FSDP_OK;
}

static fsdp_status order_fits(fsdp_foreign_run *run, const numbers *all, const order *o, bool *yes)
{
    const bool groups = all->n_groups == 1
                            ? o->first == o->n
                            : all->n_groups == 2 && o->first < o->n && all->sizes[0] == o->first;
    *yes = groups && o->n == all->n;
    for (size_t i = 0; *yes && i < all->n; i++)
        FSDP_TRY(number_fits(run, &all->items[i], o->items[i], yes));
    return FSDP_OK;
}

static fsdp_status assign(fsdp_foreign_run *run, const numbered *number,
                          const fsdp_parameter *parameter)
{
    for (size_t i = 0; i < run->n_slots; i++) {
        fsdp_foreign_slot *slot = &run->slots[i];
        if (slot->parameter != parameter)
            continue;
        slot->key = fsdp_foreign_text(run, "%lld", (long long)number->number);
        slot->group_key = fsdp_foreign_text(run, "%zu", number->group);
        if (!slot->key || !slot->group_key)
            return FSDP_ERR_NOMEM;
        const char *prefix = fsdp_foreign_text(run, "%sstate.%s.", run->at.base, slot->key);
        if (!prefix)
            return FSDP_ERR_NOMEM;
        if (fsdp_foreign_names_lower_bound(run->optim, prefix) == run->optim->n)
            slot->key = NULL;
    }
    return FSDP_OK;
}

/* If param_names gives a number the name of a parameter that has a slot, assign the number to this
 * parameter. Set *any to true if there is such a number, otherwise to false. */
static fsdp_status assign_by_names(fsdp_foreign_run *run, const numbers *all, bool *any)
{
    *any = false;
    for (size_t i = 0; i < all->n; i++) {
        fsdp_foreign_slot *slot;
        FSDP_TRY(slot_of_name(run, all->items[i].name, i, &slot));
        if (slot)
            FSDP_TRY(assign(run, &all->items[i], slot->parameter));
        *any |= slot != NULL;
    }
    return FSDP_OK;
}

static fsdp_status assign_by_order(fsdp_foreign_run *run, const numbers *all)
{
    const size_t own = fsdp_optimizer_parameters(run->optimizer)->n;
    const size_t most = run->once.n > own ? run->once.n : own;
    order o = {fsdp_calloc(most, sizeof(const fsdp_parameter *)), 0, 0};
    fsdp_status status = o.items ? FSDP_OK : FSDP_ERR_NOMEM;
    bool found = false;
    for (int kind = 0; kind < N_ORDERS && !found && status == FSDP_OK; kind++) {
        status = make_order(run, kind, &o);
        if (status == FSDP_OK)
            status = order_fits(run, all, &o, &found);
    }
    for (size_t i = 0; found && i < all->n && status == FSDP_OK; i++)
        status = assign(run, &all->items[i], o.items[i]);
    fsdp_free(o.items);
    if (found || status != FSDP_OK)
        return status;
    return fsdp_error(FSDP_ERR_INVALID,
                      "%s: the optimizer's state has numbers of %zu parameters in %zu groups, not "
                      "names, and neither this model's order of parameters, with their shapes, nor "
                      "its groups with and without weight decay fit: save it with "
                      "get_optimizer_state_dict(), in torch, or give the --no-decay of that run",
                      fsdp_source_path(run->optim->source), all->n, all->n_groups);
}

static fsdp_status groups_by_number(fsdp_foreign_run *run)
{
    numbers all = {0};
    fsdp_status status = list_numbers(run, &all);
    bool named = all.n > 0;
    for (size_t i = 0; i < all.n; i++)
        named &= all.items[i].name != NULL;
    bool any = false;
    if (status == FSDP_OK && named)
        status = assign_by_names(run, &all, &any);
    if (status == FSDP_OK && !any)
        status = assign_by_order(run, &all);
    fsdp_free(all.items);
    fsdp_free(all.sizes);
    return status;
}

fsdp_status fsdp_foreign_find_slots(fsdp_foreign_run *run)
{
    if (!run->at.base)
        return FSDP_OK;
    return run->at.by_number ? groups_by_number(run) : groups_by_name(run);
}

/* ---- options --------------------------------------------------------------------------------- */

static fsdp_status refuse_flag(const fsdp_foreign_run *run, const fsdp_source_item *item)
{
    return fsdp_error(FSDP_ERR_INVALID,
                      "%s: '%s' is True, which this library does not have: its %s would take other "
                      "steps. To begin from the weights without the optimizer's state: fsdp "
                      "checkpoint convert, then --model",
                      fsdp_source_path(run->optim->source), item->fqn,
                      fsdp_optimizer_name(run->optimizer));
}

static bool is_expected(const fsdp_foreign_run *run, const char *key)
{
    static const char *const others[] = {
        "params",     "param_names", "initial_lr", "foreach",        "fused",
        "capturable", "maximize",    "amsgrad",    "differentiable", "decoupled_weight_decay"};
    for (size_t i = 0; i < FSDP_LENGTH(others); i++)
        if (strcmp(key, others[i]) == 0)
            return true;
    return fsdp_state_group_has(fsdp_optimizer_name(run->optimizer), key);
}

static fsdp_status put_option(fsdp_state_dict *groups, const char *fqn, const fsdp_plain *value)
{
    const fsdp_state_key key = {.name = fqn};
    return fsdp_state_dict_put_value(groups, &key, 1, value);
}

/* Read the option `item` of param_groups into `groups`. The name of `item` ends in
 * "param_groups.<group>.<key>". `rest` points to "<group>.<key>" in this name. */
static fsdp_status take_option(fsdp_foreign_run *run, fsdp_state_dict *groups, const char *rest,
                               const fsdp_source_item *item)
{
    const char *key = strrchr(rest, '.');
    const int n = key ? (int)(key - rest) : 0;
    const fsdp_source_item *initial = NULL;
    fsdp_plain value = {0};
    bool known = false;
    if (!key)
        return FSDP_OK;
    key++;
    if (!is_expected(run, key))
        return FSDP_OK;
    if (strcmp(key, "params") == 0 || strcmp(key, "param_names") == 0)
        return FSDP_OK;
    /* lr is the rate of the current step. If there is an initial_lr, read that instead. */
    if (strcmp(key, "lr") == 0)
        FSDP_TRY(fsdp_foreign_names_find(run->optim, &initial, "%s%s%.*s.initial_lr", run->at.base,
                                         GROUPS, n, rest));
    FSDP_TRY(fsdp_foreign_value(run, initial ? initial : item, &value, &known));
    if (!known)
        return FSDP_OK;
    if ((strcmp(key, "amsgrad") == 0 || strcmp(key, "maximize") == 0) &&
        value.kind == FSDP_PLAIN_BOOL && value.as.boolean)
        return refuse_flag(run, item);
    const char *fqn = fsdp_foreign_text(run, "%s%s", GROUPS, rest);
    return fqn ? put_option(groups, fqn, &value) : FSDP_ERR_NOMEM;
}

/* Read every option of every group of the checkpoint into `groups`, under the name
 * "param_groups.<group>.<key>". */
static fsdp_status take_options(fsdp_foreign_run *run, fsdp_state_dict *groups)
{
    const char *prefix = fsdp_foreign_text(run, "%s%s", run->at.base, GROUPS);
    if (!prefix)
        return FSDP_ERR_NOMEM;
    const size_t n = strlen(prefix);
    for (size_t i = fsdp_foreign_names_lower_bound(run->optim, prefix);
         i < run->optim->n && strncmp(run->optim->items[i].name, prefix, n) == 0; i++)
        FSDP_TRY(
            take_option(run, groups, run->optim->items[i].name + n, run->optim->items[i].item));
    return FSDP_OK;
}

/* Add a note to the report for each option in the checkpoint that this optimizer does not have. An
 * option that several groups have is noted only once. */
static fsdp_status note_others(fsdp_foreign_run *run, fsdp_state_dict *noted)
{
    const char *prefix = fsdp_foreign_text(run, "%s%s", run->at.base, GROUPS);
    if (!prefix)
        return FSDP_ERR_NOMEM;
    const size_t n = strlen(prefix);
    for (size_t i = fsdp_foreign_names_lower_bound(run->optim, prefix);
         i < run->optim->n && strncmp(run->optim->items[i].name, prefix, n) == 0; i++) {
        const fsdp_plain none = {0};
        const char *key = strrchr(run->optim->items[i].name + n, '.');
        if (!key || is_expected(run, key + 1) || fsdp_state_dict_find(noted, key + 1))
            continue;
        FSDP_TRY(put_option(noted, key + 1, &none));
        FSDP_TRY(fsdp_foreign_note(run, "'%s' is not used: %s has no option '%s' here",
                                   run->optim->items[i].item->fqn,
                                   fsdp_optimizer_name(run->optimizer), key + 1));
    }
    return FSDP_OK;
}

/* Some options change while the optimizer makes steps. Put these options of the parameter's group
 * into run->state, with their values in the checkpoint. */
static fsdp_status put_changing_options(fsdp_foreign_run *run, const fsdp_foreign_parameter *p)
{
    fsdp_state_key key = {0};
    const char *prefix = fsdp_foreign_text(run, "%s%s.", GROUPS, p->name);
    return prefix ? fsdp_state_put_changing_options(run->state, fsdp_optimizer_name(run->optimizer),
                                                    &p->theirs, &key, 1, prefix)
                  : FSDP_ERR_NOMEM;
}

static fsdp_status report_slot(fsdp_foreign_run *run, const fsdp_state_dict *groups,
                               const fsdp_foreign_slot *slot, const char **lacks)
{
    const int group = fsdp_optimizer_group_of(run->optimizer, slot->parameter);
    const char *name = fsdp_optimizer_name(run->optimizer);
    fsdp_foreign_parameter *to = &run->report->parameters[run->report->n];
    to->name = slot->name;
    to->ours = to->theirs = *fsdp_optimizer_group_options(run->optimizer, group);
    run->report->n++;
    if (!slot->group_key)
        return FSDP_OK;
    const char *fqn = fsdp_foreign_text(run, "%s%s", GROUPS, slot->group_key);
    if (!fqn)
        return FSDP_ERR_NOMEM;
    if (!*lacks)
        *lacks = fsdp_state_group_lacks(groups, fqn, name);
    fsdp_status status = fsdp_state_take_group(groups, fqn, name, &to->theirs);
    fsdp_error_context(status, "%s", fsdp_source_path(run->optim->source));
    return status == FSDP_OK ? put_changing_options(run, to) : status;
}

static fsdp_status report_slots(fsdp_foreign_run *run, const fsdp_state_dict *groups)
{
    const char *lacks = NULL;
    run->report->parameters = fsdp_calloc(run->n_slots, sizeof *run->report->parameters);
    if (!run->report->parameters)
        return FSDP_ERR_NOMEM;
    for (size_t i = 0; i < run->n_slots; i++)
        FSDP_TRY(report_slot(run, groups, &run->slots[i], &lacks));
    if (!lacks)
        return FSDP_OK;
    return fsdp_foreign_note(run,
                             "the checkpoint's param_groups have no '%s', which those of %s have: "
                             "they may be another optimizer's",
                             lacks, fsdp_optimizer_name(run->optimizer));
}

fsdp_status fsdp_foreign_read_groups(fsdp_foreign_run *run)
{
    fsdp_state_dict *groups = NULL, *noted = NULL;
    if (!run->at.base)
        return FSDP_OK;
    fsdp_status status = fsdp_state_dict_create(&groups);
    if (status == FSDP_OK)
        status = fsdp_state_dict_create(&noted);
    if (status == FSDP_OK)
        status = take_options(run, groups);
    if (status == FSDP_OK)
        status = note_others(run, noted);
    if (status == FSDP_OK)
        status = report_slots(run, groups);
    fsdp_state_dict_destroy(noted);
    fsdp_state_dict_destroy(groups);
    return status;
}
