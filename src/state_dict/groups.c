/* Puts the options of parameter groups into state dicts and reads them back. Each optimizer has a
 * table of its options, in torch's order of keys. */
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/state_dict/groups.h"

typedef enum field_kind {
    NUMBER,
    PAIR,         /* two numbers, adjacent in the options struct; in the file, they are a tuple */
    TRIPLE,       /* three numbers, as in PAIR */
    MAYBE_NUMBER, /* a number; if the number is negative, the file has None instead */
    RATE,  /* the learning rate; if the option relative_step is set, the file has None instead */
    COUNT, /* int64_t, at least 0 */
    INT_COUNT,    /* int, at least 0 */
    FLAG,         /* bool */
    INVERSE_FLAG, /* bool; the file has the opposite value */
    ALWAYS_FALSE, /* written as False; ignored when it is read */
    NEVER_TRUE,   /* written as False; an error if it is True when it is read */
    ALWAYS_NONE
} field_kind;

typedef struct field {
    const char *name;
    field_kind kind;
    size_t offset;
} field;

#define ADAMW(member) offsetof(fsdp_adamw_options, member)
#define SGD(member) offsetof(fsdp_sgd_options, member)
#define ADAFACTOR(member) offsetof(fsdp_adafactor_options, member)
#define MUON(member) offsetof(fsdp_muon_options, member)
#define SCHEDULE_FREE(member) offsetof(fsdp_schedule_free_options, member)

static const field adamw[] = {{"lr", NUMBER, ADAMW(lr)},
                              {"betas", PAIR, ADAMW(beta1)},
                              {"eps", NUMBER, ADAMW(eps)},
                              {"weight_decay", NUMBER, ADAMW(weight_decay)},
                              {"amsgrad", NEVER_TRUE, 0},
                              {"maximize", NEVER_TRUE, 0},
                              {"foreach", ALWAYS_NONE, 0},
                              {"capturable", ALWAYS_FALSE, 0},
                              {"differentiable", ALWAYS_FALSE, 0},
                              {"fused", ALWAYS_NONE, 0},
                              {"decoupled_weight_decay", INVERSE_FLAG, ADAMW(l2)}};
/* bitsandbytes has more options, which are for other optimizers and may be missing. */
static const field adamw_8bit[] = {{"lr", NUMBER, ADAMW(lr)},
                                   {"betas", PAIR, ADAMW(beta1)},
                                   {"eps", NUMBER, ADAMW(eps)},
                                   {"weight_decay", NUMBER, ADAMW(weight_decay)}};
static const field sgd[] = {{"lr", NUMBER, SGD(lr)},
                            {"momentum", NUMBER, SGD(momentum)},
                            {"dampening", NUMBER, SGD(dampening)},
                            {"weight_decay", NUMBER, SGD(weight_decay)},
                            {"nesterov", FLAG, SGD(nesterov)},
                            {"maximize", NEVER_TRUE, 0},
                            {"foreach", ALWAYS_NONE, 0},
                            {"differentiable", ALWAYS_FALSE, 0},
                            {"fused", ALWAYS_NONE, 0}};
static const field adafactor[] = {{"lr", RATE, ADAFACTOR(lr)},
                                  {"eps", PAIR, ADAFACTOR(eps1)},
                                  {"clip_threshold", NUMBER, ADAFACTOR(clip_threshold)},
                                  {"decay_rate", NUMBER, ADAFACTOR(decay_rate)},
                                  {"beta1", MAYBE_NUMBER, ADAFACTOR(beta1)},
                                  {"weight_decay", NUMBER, ADAFACTOR(weight_decay)},
                                  {"scale_parameter", FLAG, ADAFACTOR(scale_parameter)},
                                  {"relative_step", FLAG, ADAFACTOR(relative_step)},
                                  {"warmup_init", FLAG, ADAFACTOR(warmup_init)}};

_Static_assert(ADAMW(beta2) == ADAMW(beta1) + sizeof(double), "betas are a pair");
_Static_assert(MUON(beta2) == MUON(beta1) + sizeof(double), "betas are a pair");
_Static_assert(SCHEDULE_FREE(beta2) == SCHEDULE_FREE(beta1) + sizeof(double), "betas are a pair");
_Static_assert(ADAFACTOR(eps2) == ADAFACTOR(eps1) + sizeof(double), "eps is a pair");

/* torch.optim.Muon also has the option adjust_lr_fn. It is not saved here, because the flags of a
 * resumed run set it again. use_adamw is not an option of torch: a torch script has a separate
 * optimizer for the parameters that AdamW updates. */
static const field muon[] = {{"lr", NUMBER, MUON(lr)},
                             {"weight_decay", NUMBER, MUON(weight_decay)},
                             {"momentum", NUMBER, MUON(momentum)},
                             {"nesterov", FLAG, MUON(nesterov)},
                             {"ns_coefficients", TRIPLE, MUON(ns_coefficients)},
                             {"eps", NUMBER, MUON(eps)},
                             {"ns_steps", INT_COUNT, MUON(ns_steps)},
                             {"betas", PAIR, MUON(beta1)},
                             {"use_adamw", FLAG, MUON(use_adamw)}};

static const field schedule_free[] = {{"lr", NUMBER, SCHEDULE_FREE(lr)},
                                      {"betas", PAIR, SCHEDULE_FREE(beta1)},
                                      {"eps", NUMBER, SCHEDULE_FREE(eps)},
                                      {"r", NUMBER, SCHEDULE_FREE(r)},
                                      {"k", COUNT, SCHEDULE_FREE(k)},
                                      {"warmup_steps", COUNT, SCHEDULE_FREE(warmup_steps)},
                                      {"train_mode", FLAG, SCHEDULE_FREE(train_mode)},
                                      {"weight_sum", NUMBER, SCHEDULE_FREE(weight_sum)},
                                      {"lr_max", NUMBER, SCHEDULE_FREE(lr_max)},
                                      {"scheduled_lr", NUMBER, SCHEDULE_FREE(scheduled_lr)},
                                      {"weight_lr_power", NUMBER, SCHEDULE_FREE(weight_lr_power)},
                                      {"weight_decay", NUMBER, SCHEDULE_FREE(weight_decay)},
                                      {"foreach", ALWAYS_NONE, 0}};

typedef struct field_table {
    const char *optimizer;
    const field *fields; /* [n] */
    size_t n;
} field_table;

static const field_table *table_of(const char *optimizer)
{
    static const field_table tables[] = {
        {"adamw", adamw, FSDP_LENGTH(adamw)},
        {"adam", adamw, FSDP_LENGTH(adamw)},
        {"adamw_8bit", adamw_8bit, FSDP_LENGTH(adamw_8bit)},
        {"schedule_free_adamw", schedule_free, FSDP_LENGTH(schedule_free)},
        {"sgd", sgd, FSDP_LENGTH(sgd)},
        {"muon", muon, FSDP_LENGTH(muon)},
        {"adafactor", adafactor, FSDP_LENGTH(adafactor)}};
    for (size_t i = 0; i < FSDP_LENGTH(tables); i++)
        if (strcmp(tables[i].optimizer, optimizer) == 0)
            return &tables[i];
    fsdp_assert_failed("every optimizer has a table", __FILE__, __LINE__);
    return NULL;
}

/* Return true if the steps of the optimizer change the option `key`, so that a resumed run needs
 * the saved value. If `key` is NULL, return true if the steps change any option at all. */
static bool steps_change(const char *optimizer, const char *key)
{
    static const char *const changing[] = {"k", "train_mode", "weight_sum", "lr_max"};
    bool changes = !key;
    for (size_t i = 0; i < FSDP_LENGTH(changing) && !changes; i++)
        changes = strcmp(changing[i], key) == 0;
    return changes && strcmp(optimizer, "schedule_free_adamw") == 0;
}

/* --- writing a state dict --- */

static fsdp_plain number(double value)
{
    return (fsdp_plain){.kind = FSDP_PLAIN_FLOAT, .as.number = value};
}

enum {
    MOST_NUMBERS = 3 /* maximum number of numbers in one option */
};

static size_t count_numbers(field_kind kind)
{
    return kind == PAIR ? 2 : kind == TRIPLE ? 3 : 1;
}

static fsdp_plain count_of(const char *at, field_kind kind)
{
    int64_t wide = 0;
    int narrow = 0;
    memcpy(kind == COUNT ? (void *)&wide : &narrow, at,
           kind == COUNT ? sizeof wide : sizeof narrow);
    return (fsdp_plain){.kind = FSDP_PLAIN_INT, .as.integer = kind == COUNT ? wide : narrow};
}

/* Return the value of option `f`. `items` is memory for MOST_NUMBERS values: if `f` is a PAIR or a
 * TRIPLE, it receives the items of the tuple. */
static fsdp_plain value_of(const field *f, const fsdp_optimizer_options *options, fsdp_plain *items)
{
    const char *at = (const char *)options + f->offset;
    const size_t n = count_numbers(f->kind);
    double values[MOST_NUMBERS] = {0};
    bool flag = false;
    if (f->kind == COUNT || f->kind == INT_COUNT)
        return count_of(at, f->kind);
    if (f->kind <= RATE)
        memcpy(values, at, n * sizeof *values);
    if (f->kind == FLAG || f->kind == INVERSE_FLAG)
        memcpy(&flag, at, sizeof flag);
    bool none = f->kind == ALWAYS_NONE || (f->kind == MAYBE_NUMBER && values[0] < 0.0) ||
                (f->kind == RATE && options->adafactor.relative_step);
    if (none)
        return (fsdp_plain){.kind = FSDP_PLAIN_NONE};
    if (n > 1) {
        for (size_t i = 0; i < n; i++)
            items[i] = number(values[i]);
        return (fsdp_plain){.kind = FSDP_PLAIN_TUPLE, .as.list = {items, n}};
    }
    if (f->kind <= RATE)
        return number(values[0]);
    return (fsdp_plain){.kind = FSDP_PLAIN_BOOL, .as.boolean = flag != (f->kind == INVERSE_FLAG)};
}

/* Implements fsdp_state_put_changing_options() if `changing` is true, and fsdp_state_put_group() if
 * it is false. */
static fsdp_status put_fields(fsdp_state_dict *dict, const char *optimizer, bool changing,
                              const fsdp_optimizer_options *options, fsdp_state_key *keys,
                              int n_keys, const char *prefix)
{
    const field_table *table = table_of(optimizer);
    for (size_t i = 0; i < table->n; i++) {
        if (changing && !steps_change(optimizer, table->fields[i].name))
            continue;
        fsdp_plain items[MOST_NUMBERS], value = value_of(&table->fields[i], options, items);
        char *name = fsdp_strdup_printf("%s%s", prefix, table->fields[i].name);
        if (!name)
            return FSDP_ERR_NOMEM;
        keys[n_keys - 1] = (fsdp_state_key){.name = name};
        fsdp_status status = fsdp_state_dict_put_value(dict, keys, n_keys, &value);
        fsdp_free(name);
        FSDP_TRY(status);
    }
    return FSDP_OK;
}

fsdp_status fsdp_state_put_group(fsdp_state_dict *dict, const char *optimizer,
                                 const fsdp_optimizer_options *options, fsdp_state_key *keys,
                                 int n_keys, const char *prefix)
{
    return put_fields(dict, optimizer, false, options, keys, n_keys, prefix);
}

fsdp_status fsdp_state_put_changing_options(fsdp_state_dict *dict, const char *optimizer,
                                            const fsdp_optimizer_options *options,
                                            fsdp_state_key *keys, int n_keys, const char *prefix)
{
    return put_fields(dict, optimizer, true, options, keys, n_keys, prefix);
}

fsdp_status fsdp_state_add_changing_options(fsdp_state_dict *to, const fsdp_state_dict *optim,
                                            const fsdp_optimizer *optimizer)
{
    const char *self = fsdp_optimizer_name(optimizer);
    for (size_t i = 0; steps_change(self, NULL) && i < fsdp_state_dict_count(optim); i++) {
        const fsdp_state_entry *entry = fsdp_state_dict_at(optim, i);
        const char *key = entry->keys[entry->n_keys - 1].name;
        if (entry->n_keys < 3 || !entry->value || !key || !entry->keys[0].name ||
            strcmp(entry->keys[0].name, "param_groups") != 0)
            continue;
        if (strcmp(key, "params") == 0 || steps_change(self, key))
            FSDP_TRY(fsdp_state_dict_put_value(to, entry->keys, entry->n_keys, entry->value));
    }
    return FSDP_OK;
}

fsdp_status fsdp_state_put_initial_lr(fsdp_state_dict *dict, int n_groups, double base_lr)
{
    const fsdp_plain value = {.kind = FSDP_PLAIN_FLOAT, .as.number = base_lr};
    for (int g = 0; g < n_groups; g++) {
        const fsdp_state_key keys[] = {
            {.name = "param_groups"}, {.index = g}, {.name = "initial_lr"}};
        FSDP_TRY(fsdp_state_dict_put_value(dict, keys, 3, &value));
    }
    return FSDP_OK;
}

/* --- reading a state dict --- */

static fsdp_status mismatch(const char *fqn, const char *want)
{
    return fsdp_error(FSDP_ERR_INVALID, "state dict: '%s' is not %s", fqn, want);
}

static bool as_number(const fsdp_plain *value, double *out)
{
    if (value->kind == FSDP_PLAIN_INT)
        *out = (double)value->as.integer;
    else if (value->kind == FSDP_PLAIN_FLOAT)
        *out = value->as.number;
    else
        return false;
    return true;
}

static fsdp_status take_numbers(const char *fqn, const fsdp_plain *value, size_t n, char *to)
{
    const char *want = n == 1 ? "a number" : n == 2 ? "a pair of numbers" : "a list of 3 numbers";
    double values[MOST_NUMBERS];
    bool is_list = value->kind == FSDP_PLAIN_TUPLE || value->kind == FSDP_PLAIN_LIST;
    if (n == 1 ? !as_number(value, values) : !is_list || value->as.list.n != n)
        return mismatch(fqn, want);
    for (size_t i = 0; n > 1 && i < n; i++)
        if (!as_number(&value->as.list.items[i], &values[i]))
            return mismatch(fqn, want);
    memcpy(to, values, n * sizeof *values);
    return FSDP_OK;
}

static fsdp_status take_count(const char *fqn, const fsdp_plain *value, field_kind kind, char *to)
{
    const int64_t most = kind == COUNT ? INT64_MAX : INT_MAX;
    if (value->kind != FSDP_PLAIN_INT || value->as.integer < 0 || value->as.integer > most)
        return mismatch(fqn, "a whole number that is at least 0");
    const int64_t wide = value->as.integer;
    const int narrow = (int)wide;
    memcpy(to, kind == COUNT ? (const void *)&wide : &narrow,
           kind == COUNT ? sizeof wide : sizeof narrow);
    return FSDP_OK;
}

static fsdp_status take_flag(const char *fqn, const fsdp_plain *value, field_kind kind, char *to)
{
    if (value->kind != FSDP_PLAIN_BOOL)
        return mismatch(fqn, "True or False");
    bool flag = value->as.boolean != (kind == INVERSE_FLAG);
    if (kind == NEVER_TRUE && flag)
        return fsdp_error(FSDP_ERR_UNSUPPORTED, "state dict: '%s' is True", fqn);
    if (kind == FLAG || kind == INVERSE_FLAG)
        memcpy(to, &flag, sizeof flag);
    return FSDP_OK;
}

static fsdp_status take_value(const char *fqn, const fsdp_plain *value, const field *f,
                              fsdp_optimizer_options *options)
{
    static const double none = -1.0;
    char *to = (char *)options + f->offset;
    if (f->kind == ALWAYS_FALSE || f->kind == ALWAYS_NONE)
        return FSDP_OK;
    if (value->kind == FSDP_PLAIN_NONE && (f->kind == MAYBE_NUMBER || f->kind == RATE)) {
        if (f->kind == MAYBE_NUMBER)
            memcpy(to, &none, sizeof none);
        return FSDP_OK;
    }
    if (f->kind <= RATE)
        return take_numbers(fqn, value, count_numbers(f->kind), to);
    if (f->kind == COUNT || f->kind == INT_COUNT)
        return take_count(fqn, value, f->kind, to);
    return take_flag(fqn, value, f->kind, to);
}

/* Read an option from a tensor with one element. torch stores lr in a tensor if a CUDA graph or the
 * user may change it. */
static fsdp_status take_tensor(const char *fqn, const fsdp_tensor *tensor, const field *f,
                               fsdp_optimizer_options *options)
{
    fsdp_plain value = {.kind = FSDP_PLAIN_FLOAT};
    if (f->kind == ALWAYS_FALSE || f->kind == ALWAYS_NONE)
        return FSDP_OK;
    if (f->kind != NUMBER && f->kind != MAYBE_NUMBER && f->kind != RATE)
        return mismatch(fqn, "a plain value");
    fsdp_status status = fsdp_tensor_item(tensor, &value.as.number);
    fsdp_error_context(status, "state dict: '%s'", fqn);
    FSDP_TRY(status);
    return take_value(fqn, &value, f, options);
}

fsdp_status fsdp_state_take_group(const fsdp_state_dict *dict, const char *group,
                                  const char *optimizer, fsdp_optimizer_options *options)
{
    const field_table *table = table_of(optimizer);
    for (size_t i = 0; i < table->n; i++) {
        char *fqn = fsdp_strdup_printf("%s.%s", group, table->fields[i].name);
        if (!fqn)
            return FSDP_ERR_NOMEM;
        const fsdp_state_entry *entry = fsdp_state_dict_find(dict, fqn);
        fsdp_status status = FSDP_OK;
        if (entry && entry->value)
            status = take_value(fqn, entry->value, &table->fields[i], options);
        else if (entry)
            status = take_tensor(fqn, entry->tensor, &table->fields[i], options);
        fsdp_free(fqn);
        FSDP_TRY(status);
    }
    return FSDP_OK;
}

/* --- names of options --- */

bool fsdp_state_group_has(const char *optimizer, const char *key)
{
    const field_table *table = table_of(optimizer);
    for (size_t i = 0; i < table->n; i++)
        if (strcmp(table->fields[i].name, key) == 0)
            return true;
    return false;
}

/* Return true if every version of torch, or of schedulefree, writes this option. Some versions of
 * torch lack "foreach", "maximize", or "decoupled_weight_decay", which distinguishes AdamW from
 * Adam. Some versions of schedulefree lack "scheduled_lr", which no step reads. torch's Muon has
 * neither "betas" nor "use_adamw", because its AdamW is a separate optimizer. */
static bool is_in_every_version(const field_table *table, const field *f)
{
    if (table->fields == muon && (f->kind == PAIR || strcmp(f->name, "use_adamw") == 0))
        return false;
    return (f->kind <= FLAG && strcmp(f->name, "scheduled_lr") != 0) ||
           strcmp(f->name, "amsgrad") == 0;
}

const char *fsdp_state_group_lacks(const fsdp_state_dict *dict, const char *group,
                                   const char *optimizer)
{
    const field_table *table = table_of(optimizer);
    for (size_t i = 0; i < table->n; i++) {
        char *fqn = fsdp_strdup_printf("%s.%s", group, table->fields[i].name);
        const bool there = !fqn || fsdp_state_dict_find(dict, fqn);
        fsdp_free(fqn);
        if (!there && is_in_every_version(table, &table->fields[i]))
            return table->fields[i].name;
    }
    return NULL;
}
