/* Gets and sets the state dict of an optimizer, as get_optimizer_state_dict() and
 * set_optimizer_state_dict() do. The optimizer lists its parameters without names. The names come
 * from the module. */
#include <math.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/dynamic_map.h"
#include "src/comm/agree.h"
#include "src/state_dict/groups.h"
#include "src/tensor/tensor.h"

bool fsdp_state_counts_steps(const fsdp_optimizer *o)
{
    return strcmp(fsdp_optimizer_name(o), "sgd") != 0;
}

/* Return true if the number of steps is stored as the option "k" of each parameter group. Other
 * optimizers store it as the state "step" of each parameter. */
static bool counts_in_group(const fsdp_optimizer *o)
{
    return strcmp(fsdp_optimizer_name(o), "schedule_free_adamw") == 0;
}

/* Return true if each parameter has the state "step". */
static bool counts_in_state(const fsdp_optimizer *o)
{
    return fsdp_state_counts_steps(o) && !counts_in_group(o);
}

/* Return true if the number of steps is saved as a tensor, as torch's optimizers do. transformers'
 * Adafactor and bitsandbytes' AdamW8bit save it as a Python int. */
static bool counts_in_tensor(const fsdp_optimizer *o)
{
    return strcmp(fsdp_optimizer_name(o), "adafactor") != 0 &&
           strcmp(fsdp_optimizer_name(o), "adamw_8bit") != 0;
}

/* --- names --- */

/* The parameters of an optimizer, in the optimizer's order, with their names in a module. */
typedef struct names {
    fsdp_parameter_list module; /* owns the names */
    /* [n] The name of an item is NULL if the state dict options exclude the parameter. */
    fsdp_named_parameter *items;
    size_t n;
} names;

static void names_fini(names *n)
{
    fsdp_free(n->items);
    fsdp_parameter_list_free(&n->module);
}

static fsdp_status find_name(const names *n, const fsdp_named_parameter *of, const char **name)
{
    for (size_t i = 0; i < n->module.n; i++)
        if (n->module.items[i].parameter == of->parameter) {
            *name = n->module.items[i].name;
            return FSDP_OK;
        }
    return fsdp_error(FSDP_ERR_INVALID,
                      "state dict: the optimizer's parameter %s is not one of the module's",
                      of->name);
}

static fsdp_status names_init(names *n, fsdp_module *module, const fsdp_optimizer *o,
                              const fsdp_state_dict_options *options)
{
    const fsdp_parameter_list *list = fsdp_optimizer_parameters(o);
    FSDP_TRY(fsdp_state_check_submodule(module, options));
    FSDP_TRY(fsdp_module_parameters(module, false, &n->module));
    n->items = fsdp_calloc(list->n, sizeof *n->items);
    if (!n->items)
        return FSDP_ERR_NOMEM;
    n->n = list->n;
    for (size_t i = 0; i < list->n; i++) {
        fsdp_named_parameter *item = &n->items[i];
        const char *full = NULL;
        item->parameter = list->items[i].parameter;
        FSDP_TRY(find_name(n, &list->items[i], &full));
        if (!fsdp_state_name(options, full, item->parameter, &item->name))
            item->name = NULL;
    }
    return FSDP_OK;
}

/* --- get: state --- */

/* Put a tensor or a value into the dict. If `flat` is true, the new item has one key:
 * "state.<fqn>.<key>". If `flat` is false, the new item has three keys: "state", `fqn` and
 * `key`. */
static fsdp_status put_state(fsdp_state_dict *dict, const char *fqn, const char *key, bool flat,
                             fsdp_tensor *tensor, const fsdp_plain *value)
{
    const fsdp_state_key nested[] = {{.name = "state"}, {.name = fqn}, {.name = key}};
    char *joined = flat ? fsdp_state_keys_join(nested, 3) : NULL;
    if (flat && !joined)
        return FSDP_ERR_NOMEM;
    const fsdp_state_key one = {.name = joined};
    const fsdp_state_key *keys = flat ? &one : nested;
    int n_keys = flat ? 1 : 3;
    fsdp_status status = tensor ? fsdp_state_dict_put_tensor(dict, keys, n_keys, tensor)
                                : fsdp_state_dict_put_value(dict, keys, n_keys, value);
    fsdp_free(joined);
    return status;
}

static fsdp_status put_steps(fsdp_state_dict *dict, const fsdp_optimizer *o,
                             const fsdp_named_parameter *item, bool flat)
{
    int64_t steps = fsdp_optimizer_steps(o, item->parameter);
    const fsdp_plain value = {.kind = FSDP_PLAIN_INT, .as.integer = steps};
    const float number = (float)steps;
    fsdp_tensor *tensor;
    if (!counts_in_tensor(o))
        return put_state(dict, item->name, "step", flat, NULL, &value);
    FSDP_TRY(fsdp_tensor_from_data(fsdp_tensor_device(fsdp_parameter_local(item->parameter)),
                                   FSDP_DTYPE_F32, 0, NULL, &number, FSDP_TAG_OPTIM, &tensor));
    fsdp_status status = put_state(dict, item->name, "step", flat, tensor, NULL);
    fsdp_tensor_release(tensor);
    return status;
}

static bool has_state(const fsdp_optimizer *o, const fsdp_parameter *p)
{
    const char *name;
    for (int k = 0; (name = fsdp_optimizer_state_name(o, k)); k++)
        if (fsdp_optimizer_state(o, p, name))
            return true;
    return false;
}

static fsdp_status put_parameter(fsdp_state_dict *dict, const fsdp_optimizer *o,
                                 const fsdp_named_parameter *item, bool flat)
{
    const char *name;
    if (!item->name || !has_state(o, item->parameter))
        return FSDP_OK;
    if (counts_in_state(o))
        FSDP_TRY(put_steps(dict, o, item, flat));
    for (int k = 0; (name = fsdp_optimizer_state_name(o, k)); k++) {
        fsdp_tensor *state = fsdp_optimizer_state(o, item->parameter, name);
        if (state)
            FSDP_TRY(put_state(dict, item->name, name, flat, state, NULL));
    }
    return FSDP_OK;
}

/* --- get: groups --- */

/* Put the names of the group's parameters as the list "param_groups.<group>.params". */
static fsdp_status put_params(fsdp_state_dict *dict, const fsdp_optimizer *o, const names *n,
                              int group)
{
    fsdp_plain *items = fsdp_calloc(n->n, sizeof *items);
    size_t count = 0;
    if (!items)
        return FSDP_ERR_NOMEM;
    for (size_t i = 0; i < n->n; i++)
        if (n->items[i].name && fsdp_optimizer_group_of(o, n->items[i].parameter) == group)
            items[count++] = (fsdp_plain){.kind = FSDP_PLAIN_STR, .as.text = n->items[i].name};
    const fsdp_state_key keys[] = {{.name = "param_groups"}, {.index = group}, {.name = "params"}};
    const fsdp_plain list = {.kind = FSDP_PLAIN_LIST, .as.list = {items, count}};
    fsdp_status status = fsdp_state_dict_put_value(dict, keys, 3, &list);
    fsdp_free(items);
    return status;
}

static fsdp_status put_groups(fsdp_state_dict *dict, fsdp_optimizer *o, const names *n)
{
    for (int g = 0; g < fsdp_optimizer_n_groups(o); g++) {
        fsdp_state_key keys[] = {{.name = "param_groups"}, {.index = g}, {.name = NULL}};
        FSDP_TRY(fsdp_state_put_group(dict, fsdp_optimizer_name(o),
                                      fsdp_optimizer_group_options(o, g), keys, 3, ""));
        FSDP_TRY(put_params(dict, o, n, g));
    }
    return FSDP_OK;
}

static fsdp_status put_flat_groups(fsdp_state_dict *dict, fsdp_optimizer *o, const names *n)
{
    for (size_t i = 0; i < n->n; i++) {
        int group = fsdp_optimizer_group_of(o, n->items[i].parameter);
        fsdp_state_key key = {0};
        if (!n->items[i].name)
            continue;
        char *prefix = fsdp_strdup_printf("param_groups.%s.", n->items[i].name);
        if (!prefix)
            return FSDP_ERR_NOMEM;
        fsdp_status status = fsdp_state_put_group(
            dict, fsdp_optimizer_name(o), fsdp_optimizer_group_options(o, group), &key, 1, prefix);
        fsdp_free(prefix);
        FSDP_TRY(status);
    }
    return FSDP_OK;
}

/* --- get --- */

static bool any_state(const fsdp_optimizer *o)
{
    const fsdp_parameter_list *list = fsdp_optimizer_parameters(o);
    for (size_t i = 0; i < list->n; i++)
        if (fsdp_optimizer_steps(o, list->items[i].parameter) > 0)
            return true;
    return false;
}

static fsdp_status put_all(fsdp_state_dict *dict, fsdp_optimizer *o, const names *n, bool flat)
{
    if (!any_state(o))
        FSDP_TRY(fsdp_optimizer_init_state(o));
    for (size_t i = 0; i < n->n; i++)
        FSDP_TRY(put_parameter(dict, o, &n->items[i], flat));
    return flat ? put_flat_groups(dict, o, n) : put_groups(dict, o, n);
}

static fsdp_status get_sharded(fsdp_module *module, fsdp_optimizer *o,
                               const fsdp_state_dict_options *options, fsdp_state_dict **out)
{
    names n = {0};
    fsdp_state_dict *dict = NULL;
    fsdp_status status = names_init(&n, module, o, options);
    if (status == FSDP_OK)
        status = fsdp_state_dict_create(&dict);
    if (status == FSDP_OK)
        status = put_all(dict, o, &n, options->flatten_optimizer_state_dict);
    names_fini(&n);
    if (status != FSDP_OK) {
        fsdp_state_dict_destroy(dict);
        return status;
    }
    *out = dict;
    return FSDP_OK;
}

fsdp_status fsdp_get_optimizer_state_dict(fsdp_module *module, fsdp_optimizer *optimizer,
                                          const fsdp_state_dict_options *options,
                                          fsdp_state_dict **dict)
{
    const fsdp_state_dict_options *o = fsdp_state_options(options);
    fsdp_state_dict *sharded = NULL;
    FSDP_TRY(fsdp_state_check_get(o));
    const fsdp_status status = get_sharded(module, optimizer, o, &sharded);
    return fsdp_state_hand_out(status, sharded, o, dict);
}

/* --- set --- */

/* The values that are read from the dict. All of them are read and checked before any is set in the
 * optimizer. */
typedef struct set_run {
    const fsdp_state_dict_options *options;
    const fsdp_state_dict *dict;
    fsdp_optimizer *optimizer;
    names names;
    int64_t *steps; /* [names.n] number of steps of each parameter, or NOTHING or LEFT_OUT */
    fsdp_optimizer_options *groups;
    size_t n_groups;
    fsdp_state_copies copies;
    size_t found; /* number of items that find_state() has found in the dict */
} set_run;

enum {
    NOTHING = -1, /* the dict has no state for the parameter */
    LEFT_OUT = -2 /* the state dict options exclude the parameter */
};

static fsdp_status find_state(set_run *run, const char *fqn, const char *key,
                              const fsdp_state_entry **entry)
{
    const fsdp_state_key keys[] = {{.name = "state"}, {.name = fqn}, {.name = key}};
    char *joined = fsdp_state_keys_join(keys, 3);
    if (!joined)
        return FSDP_ERR_NOMEM;
    *entry = fsdp_state_dict_find(run->dict, joined);
    run->found += *entry != NULL;
    fsdp_free(joined);
    return FSDP_OK;
}

static fsdp_status steps_of(const fsdp_state_entry *entry, int64_t *steps)
{
    double value = -1.0;
    if (entry->tensor && fsdp_tensor_numel(entry->tensor) == 1)
        FSDP_TRY(fsdp_tensor_item(entry->tensor, &value));
    else if (entry->value && entry->value->kind == FSDP_PLAIN_INT)
        value = (double)entry->value->as.integer;
    else if (entry->value && entry->value->kind == FSDP_PLAIN_FLOAT)
        value = entry->value->as.number;
    if (!(value >= 0.0 && value < 9e15) || value != floor(value))
        return fsdp_error(FSDP_ERR_INVALID, "state dict: '%s' is not a number of steps",
                          entry->fqn);
    *steps = (int64_t)value;
    return FSDP_OK;
}

static fsdp_status missing_state(const char *fqn, const char *key)
{
    return fsdp_error(FSDP_ERR_NOT_FOUND, "state dict: there is no 'state.%s.%s'", fqn, key);
}

/* Set run->steps[i] from the state that the dict has for parameter `i`. Return FSDP_ERR_NOT_FOUND
 * if the dict has some of this state, but not all of it. One exception: with not_strict, it is not
 * an error if the dict has the number of steps and nothing else. */
static fsdp_status read_steps(set_run *run, size_t i)
{
    const fsdp_optimizer *o = run->optimizer;
    const fsdp_named_parameter *item = &run->names.items[i];
    const fsdp_state_entry *entry, *step = NULL;
    const char *name, *lacking = NULL;
    int wanted = 0, there = 0;
    run->steps[i] = item->name ? NOTHING : LEFT_OUT;
    if (!item->name)
        return FSDP_OK;
    if (counts_in_state(o))
        FSDP_TRY(find_state(run, item->name, "step", &step));
    for (int k = 0; (name = fsdp_optimizer_state_name(o, k)); k++) {
        if (!fsdp_optimizer_state(o, item->parameter, name))
            continue;
        FSDP_TRY(find_state(run, item->name, name, &entry));
        wanted++;
        there += entry != NULL;
        if (!entry)
            lacking = name;
    }
    if (!there && !step)
        return FSDP_OK;
    if (there < wanted && !(run->options->not_strict && !there))
        return missing_state(item->name, lacking);
    if (counts_in_state(o) && !step)
        return missing_state(item->name, "step");
    /* Only SGD's state dict has no number of steps. If the dict has a momentum_buffer for this
     * parameter, SGD has taken at least one step. SGD does not use the number itself, so set it to
     * 1. For other optimizers, this value is overwritten: by steps_of() or, for Schedule-Free
     * AdamW, by read_dict(). */
    run->steps[i] = there ? 1 : 0;
    return step ? steps_of(step, &run->steps[i]) : FSDP_OK;
}

static bool lists(const fsdp_plain *list, const char *name)
{
    for (size_t i = 0; list && list->kind == FSDP_PLAIN_LIST && i < list->as.list.n; i++)
        if (list->as.list.items[i].kind == FSDP_PLAIN_STR &&
            strcmp(list->as.list.items[i].as.text, name) == 0)
            return true;
    return false;
}

/* Return the name that the dict uses for the group of the parameter `name`. If group i of the dict
 * lists this parameter, the name is "param_groups.<i>". If no group lists it, the name is
 * "param_groups.<name>". The caller owns the text. */
static char *group_fqn(const fsdp_state_dict *dict, const char *name)
{
    for (int i = 0;; i++) {
        char *params = fsdp_strdup_printf("param_groups.%d.params", i);
        const fsdp_state_entry *entry = params ? fsdp_state_dict_find(dict, params) : NULL;
        fsdp_free(params);
        if (!params)
            return NULL;
        if (!entry)
            return fsdp_strdup_printf("param_groups.%s", name);
        if (lists(entry->value, name))
            return fsdp_strdup_printf("param_groups.%d", i);
    }
}

/* Read the options of group g into run->groups[g]. The group is found in the dict by the name of
 * one parameter. This is the first parameter of group g that the state dict options do not
 * exclude. */
static fsdp_status read_group(set_run *run, int g)
{
    const fsdp_optimizer *o = run->optimizer;
    run->groups[g] = *fsdp_optimizer_group_options(run->optimizer, g);
    for (size_t i = 0; i < run->names.n; i++) {
        const fsdp_named_parameter *item = &run->names.items[i];
        if (!item->name || fsdp_optimizer_group_of(o, item->parameter) != g)
            continue;
        char *fqn = group_fqn(run->dict, item->name);
        fsdp_status status =
            fqn ? fsdp_state_take_group(run->dict, fqn, fsdp_optimizer_name(o), &run->groups[g])
                : FSDP_ERR_NOMEM;
        fsdp_free(fqn);
        FSDP_TRY(status);
        return fsdp_optimizer_check_options(o, &run->groups[g]);
    }
    return FSDP_OK;
}

static bool is_state_of(const char *fqn, const char *name)
{
    size_t n = strlen(name);
    return strncmp(fqn, "state.", 6) == 0 && strncmp(fqn + 6, name, n) == 0 && fqn[6 + n] == '.';
}

static fsdp_status check_strict(const set_run *run)
{
    size_t states = 0;
    if (run->options->not_strict)
        return FSDP_OK;
    for (size_t k = 0; k < fsdp_state_dict_count(run->dict); k++)
        states += strncmp(fsdp_state_dict_at(run->dict, k)->fqn, "state.", 6) == 0;
    for (size_t k = 0; states > run->found && k < fsdp_state_dict_count(run->dict); k++) {
        const char *fqn = fsdp_state_dict_at(run->dict, k)->fqn;
        bool known = strncmp(fqn, "state.", 6) != 0;
        for (size_t i = 0; i < run->names.n && !known; i++)
            known = run->names.items[i].name && is_state_of(fqn, run->names.items[i].name);
        if (!known)
            return fsdp_error(FSDP_ERR_NOT_FOUND,
                              "state dict: no parameter of the optimizer has '%s' (strict)", fqn);
    }
    return FSDP_OK;
}

static fsdp_status read_dict(set_run *run, fsdp_module *module, bool has_values)
{
    fsdp_optimizer *o = run->optimizer;
    FSDP_TRY(names_init(&run->names, module, o, run->options));
    FSDP_TRY(fsdp_optimizer_init_state(o));
    run->n_groups = (size_t)fsdp_optimizer_n_groups(o);
    run->steps = fsdp_calloc(run->names.n, sizeof *run->steps);
    run->groups = fsdp_calloc(run->n_groups, sizeof *run->groups);
    if (!run->steps || !run->groups)
        return FSDP_ERR_NOMEM;
    for (size_t i = 0; has_values && i < run->names.n; i++)
        FSDP_TRY(read_steps(run, i));
    for (size_t g = 0; has_values && g < run->n_groups; g++)
        FSDP_TRY(read_group(run, (int)g));
    for (size_t i = 0; has_values && counts_in_group(o) && i < run->names.n; i++)
        if (run->steps[i] > 0)
            run->steps[i] = run->groups[fsdp_optimizer_group_of(o, run->names.items[i].parameter)]
                                .schedule_free.k;
    return has_values ? check_strict(run) : FSDP_OK;
}

/* With broadcast_from_rank0, only rank 0 has read the numbers of steps and the options from its
 * dict. Broadcast them to all ranks. */
static fsdp_status share_values(const set_run *run)
{
    fsdp_group *group = run->options->group;
    if (!run->options->broadcast_from_rank0 || !group)
        return FSDP_OK;
    FSDP_TRY(fsdp_broadcast(group, run->steps, run->names.n * sizeof *run->steps, 0));
    return fsdp_broadcast(group, run->groups, run->n_groups * sizeof *run->groups, 0);
}

/* The optimizer can compute only with its own constants, such as the map of its 8-bit states. Check
 * that the constant `entry` of the dict has the values of the optimizer's constant k, apart from
 * rounding. `state` is the optimizer's own tensor with the constant. If a loader has read the
 * values of a file directly into `state`, write the optimizer's values into `state` again. */
static fsdp_status check_constant(const fsdp_optimizer *o, int k, const fsdp_state_entry *entry,
                                  fsdp_tensor *state)
{
    const float *want = fsdp_optimizer_constant_state(o, k);
    float have[FSDP_MAP_VALUES];
    bool same = fsdp_tensor_numel(entry->tensor) == FSDP_MAP_VALUES;
    if (!fsdp_tensor_device(entry->tensor)->kernels)
        return FSDP_OK;
    if (same)
        FSDP_TRY(fsdp_tensor_to_floats(entry->tensor, have));
    if (entry->tensor == state)
        FSDP_TRY(fsdp_tensor_from_host(state, 0, want, FSDP_DTYPE_F32, FSDP_MAP_VALUES));
    for (int i = 0; same && i < FSDP_MAP_VALUES; i++)
        same = fabsf(have[i] - want[i]) <= 1e-6f * fabsf(want[i]);
    if (!same)
        return fsdp_error(FSDP_ERR_UNSUPPORTED,
                          "state dict: '%s' is not the dynamic map of bitsandbytes "
                          "(create_dynamic_map() with 8 bits), which is the only map that this "
                          "optimizer has",
                          entry->fqn);
    return FSDP_OK;
}

static fsdp_status collect_copies(set_run *run, bool has_values)
{
    const fsdp_optimizer *o = run->optimizer;
    const char *name;
    for (size_t i = 0; i < run->names.n; i++) {
        const fsdp_named_parameter *item = &run->names.items[i];
        for (int k = 0; run->steps[i] >= 0 && (name = fsdp_optimizer_state_name(o, k)); k++) {
            fsdp_tensor *state = fsdp_optimizer_state(o, item->parameter, name);
            const fsdp_state_entry *entry = NULL;
            if (!state)
                continue;
            if (has_values)
                FSDP_TRY(find_state(run, item->name, name, &entry));
            if (has_values && (!entry || !entry->tensor))
                return fsdp_error(FSDP_ERR_INVALID,
                                  "'state.%s.%s' is not a tensor in the state dict", item->name,
                                  name);
            if (fsdp_optimizer_constant_state(o, k)) {
                if (entry)
                    FSDP_TRY(check_constant(o, k, entry, state));
                continue;
            }
            FSDP_TRY(fsdp_state_copies_add(&run->copies, item->name, state,
                                           entry ? entry->tensor : NULL));
        }
    }
    return FSDP_OK;
}

static fsdp_status apply(const set_run *run)
{
    FSDP_TRY(fsdp_state_copies_run(&run->copies, run->options));
    for (size_t i = 0; i < run->names.n; i++) {
        const fsdp_parameter *p = run->names.items[i].parameter;
        if (run->steps[i] == LEFT_OUT)
            continue;
        if (run->steps[i] == NOTHING)
            FSDP_TRY(fsdp_optimizer_clear_state(run->optimizer, p));
        FSDP_TRY(
            fsdp_optimizer_set_steps(run->optimizer, p, run->steps[i] > 0 ? run->steps[i] : 0));
    }
    for (size_t g = 0; g < run->n_groups; g++)
        *fsdp_optimizer_group_options(run->optimizer, (int)g) = run->groups[g];
    return FSDP_OK;
}

fsdp_status fsdp_set_optimizer_state_dict(fsdp_module *module, fsdp_optimizer *optimizer,
                                          const fsdp_state_dict *dict,
                                          const fsdp_state_dict_options *options)
{
    set_run run = {.options = fsdp_state_options(options), .dict = dict, .optimizer = optimizer};
    fsdp_group *group = run.options->group;
    bool has_values = !run.options->broadcast_from_rank0 || fsdp_state_rank(run.options) == 0;
    fsdp_status status = fsdp_agree(group, read_dict(&run, module, has_values));
    if (status == FSDP_OK)
        status = share_values(&run);
    if (status == FSDP_OK)
        status = fsdp_agree(group, collect_copies(&run, has_values));
    if (status == FSDP_OK)
        status = fsdp_agree(group, apply(&run));
    fsdp_state_copies_fini(&run.copies);
    fsdp_free(run.groups);
    fsdp_free(run.steps);
    names_fini(&run.names);
    return status;
}
