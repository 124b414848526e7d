/* See optimizer.h. */
#include "src/train/optimizer.h"

#include <math.h>
#include <string.h>
#include <strings.h>

#include "src/base/alloc.h"
#include "src/fsdp/name_patterns.h"

/* Options of one group; config->optimizer says which member is used. */
typedef struct group_options {
    fsdp_adamw_options adamw;
    fsdp_sgd_options sgd;
    fsdp_adafactor_options adafactor;
    fsdp_muon_options muon;
    fsdp_schedule_free_options schedule_free;
} group_options;

/* Set *options to the options of a parameter group with this weight decay. Adafactor's
 * scale_parameter and relative_step are off by default, as in transformers' Trainer. */
static fsdp_status options_of(const fsdp_train_config *c, double weight_decay,
                              group_options *options)
{
    fsdp_muon_options muon = fsdp_muon_defaults();
    muon.lr = c->lr;
    muon.weight_decay = weight_decay;
    muon.momentum = c->momentum;
    muon.nesterov = c->nesterov;
    muon.ns_steps = c->ns_steps;
    muon.adjust_lr_fn = (fsdp_muon_adjust_lr)c->adjust_lr_fn;
    muon.beta1 = c->beta1;
    muon.beta2 = c->beta2;
    muon.adamw_eps = c->eps;
    FSDP_TRY(fsdp_train_ns_coefficients(c, muon.ns_coefficients));
    fsdp_schedule_free_options schedule_free = fsdp_schedule_free_adamw_defaults();
    schedule_free.lr = c->lr;
    schedule_free.beta1 = c->beta1;
    schedule_free.beta2 = c->beta2;
    schedule_free.eps = c->eps;
    schedule_free.weight_decay = weight_decay;
    schedule_free.r = c->schedule_free_r;
    schedule_free.weight_lr_power = c->weight_lr_power;
    *options = (group_options){
        .adamw = {.lr = c->lr,
                  .beta1 = c->beta1,
                  .beta2 = c->beta2,
                  .eps = c->eps,
                  .weight_decay = weight_decay,
                  .state_dtype = c->optimizer_state_dtype,
                  .bf16_stochastic_round = c->bf16_stochastic_round,
                  .seed = (uint64_t)c->seed,
                  .min_8bit_size = fsdp_adamw_defaults().min_8bit_size,
                  .l2 = c->optimizer == FSDP_OPTIMIZER_ADAM},
        .sgd = {.lr = c->lr,
                .momentum = c->momentum,
                .dampening = c->dampening,
                .nesterov = c->nesterov,
                .weight_decay = weight_decay},
        .adafactor = {.lr = c->relative_step ? 0.0 : c->lr,
                      .eps1 = c->adafactor_eps1,
                      .eps2 = c->adafactor_eps2,
                      .clip_threshold = c->clip_threshold,
                      .decay_rate = c->decay_rate,
                      .beta1 = isnan(c->adafactor_beta1) ? -1.0 : c->adafactor_beta1,
                      .weight_decay = weight_decay,
                      .scale_parameter = c->scale_parameter,
                      .relative_step = c->relative_step,
                      .warmup_init = c->warmup_init},
        .muon = muon,
        .schedule_free = schedule_free};
    return FSDP_OK;
}

/* Create the optimizer. It has one group with the parameters of `module`, or no group if `module`
 * is NULL. */
static fsdp_status create_optimizer(const fsdp_train_config *c, fsdp_module *module,
                                    fsdp_optimizer **optimizer)
{
    group_options o;
    FSDP_TRY(options_of(c, c->weight_decay, &o));
    if (c->optimizer == FSDP_OPTIMIZER_SGD)
        return fsdp_sgd_create(module, &o.sgd, optimizer);
    if (c->optimizer == FSDP_OPTIMIZER_ADAFACTOR)
        return fsdp_adafactor_create(module, &o.adafactor, optimizer);
    if (c->optimizer == FSDP_OPTIMIZER_MUON)
        return fsdp_muon_create(module, &o.muon, optimizer);
    if (c->optimizer == FSDP_OPTIMIZER_ADAMW_8BIT)
        return fsdp_adamw_8bit_create(module, &o.adamw, optimizer);
    if (c->optimizer == FSDP_OPTIMIZER_SCHEDULE_FREE_ADAMW)
        return fsdp_schedule_free_adamw_create(module, &o.schedule_free, optimizer);
    return fsdp_adamw_create(module, &o.adamw, optimizer);
}

/* Add up to two groups: one with the parameters of `list` that Muon updates, and one with the
 * parameters that AdamW updates. */
static fsdp_status add_muon_groups(const fsdp_muon_options *options,
                                   const fsdp_parameter_list *list, fsdp_optimizer *optimizer)
{
    fsdp_parameter_list part = {.items = fsdp_calloc(list->n, sizeof *part.items)};
    fsdp_status status = part.items ? FSDP_OK : FSDP_ERR_NOMEM;
    for (int use_adamw = 0; use_adamw < 2 && status == FSDP_OK; use_adamw++) {
        fsdp_muon_options o = *options;
        o.use_adamw = use_adamw;
        part.n = 0;
        for (size_t i = 0; i < list->n; i++)
            if (fsdp_muon_is_for(&list->items[i]) != o.use_adamw)
                part.items[part.n++] = list->items[i];
        if (part.n)
            status = fsdp_muon_add_group(optimizer, &part, &o);
    }
    fsdp_free(part.items);
    return status;
}

static fsdp_status add_group(const fsdp_train_config *c, double weight_decay,
                             const fsdp_parameter_list *list, fsdp_optimizer *optimizer)
{
    group_options o;
    if (!list->n)
        return FSDP_OK;
    FSDP_TRY(options_of(c, weight_decay, &o));
    if (c->optimizer == FSDP_OPTIMIZER_SGD)
        return fsdp_sgd_add_group(optimizer, list, &o.sgd);
    if (c->optimizer == FSDP_OPTIMIZER_ADAFACTOR)
        return fsdp_adafactor_add_group(optimizer, list, &o.adafactor);
    if (c->optimizer == FSDP_OPTIMIZER_MUON)
        return add_muon_groups(&o.muon, list, optimizer);
    if (c->optimizer == FSDP_OPTIMIZER_ADAMW_8BIT)
        return fsdp_adamw_8bit_add_group(optimizer, list, &o.adamw);
    if (c->optimizer == FSDP_OPTIMIZER_SCHEDULE_FREE_ADAMW)
        return fsdp_schedule_free_adamw_add_group(optimizer, list, &o.schedule_free);
    return fsdp_adamw_add_group(optimizer, list, &o.adamw);
}

/* --- groups with and without weight decay --- */

static bool contains_any(const char *name, const fsdp_option_list *words)
{
    for (size_t i = 0; i < words->count; i++)
        if (strcasestr(name, words->items[i]))
            return true;
    return false;
}

static fsdp_status check_word(const fsdp_parameter_list *all, const char *word)
{
    fsdp_name_list known = {0};
    for (size_t i = 0; i < all->n; i++)
        if (strcasestr(all->items[i].name, word))
            return FSDP_OK;
    fsdp_status status = fsdp_name_list_add_parameters(&known, all);
    if (status == FSDP_OK)
        status = fsdp_refuse_name("--no-decay", word, "no parameter has this in its name", &known);
    fsdp_name_list_fini(&known);
    return status;
}

/* Split the trained parameters of `all`: `no_decay` gets those whose names contain one of `words`,
 * and `decay` gets the rest. The names in `decay` and `no_decay` are borrowed from `all`. The
 * caller owns decay->items and no_decay->items, even on failure. */
static fsdp_status split_by_word(const fsdp_option_list *words, const fsdp_parameter_list *all,
                                 fsdp_parameter_list *decay, fsdp_parameter_list *no_decay)
{
    for (size_t i = 0; i < words->count; i++)
        FSDP_TRY(check_word(all, words->items[i]));
    decay->items = fsdp_calloc(all->n, sizeof *decay->items);
    no_decay->items = fsdp_calloc(all->n, sizeof *no_decay->items);
    if (!decay->items || !no_decay->items)
        return FSDP_ERR_NOMEM;
    for (size_t i = 0; i < all->n; i++) {
        const fsdp_named_parameter *p = &all->items[i];
        fsdp_parameter_list *list = contains_any(p->name, words) ? no_decay : decay;
        if (fsdp_parameter_requires_grad(p->parameter))
            list->items[list->n++] = *p;
    }
    return FSDP_OK;
}

static fsdp_status add_groups(const fsdp_train_config *c, const fsdp_parameter_list *decay,
                              const fsdp_parameter_list *no_decay, fsdp_optimizer *optimizer)
{
    FSDP_TRY(add_group(c, c->weight_decay, decay, optimizer));
    return add_group(c, 0.0, no_decay, optimizer);
}

static fsdp_status group_by_word(const fsdp_train_config *c, fsdp_module *module,
                                 fsdp_optimizer *optimizer)
{
    fsdp_parameter_list all, decay = {0}, no_decay = {0};
    FSDP_TRY(fsdp_module_parameters(module, false, &all));
    fsdp_status status = split_by_word(&c->no_decay, &all, &decay, &no_decay);
    if (status == FSDP_OK)
        status = add_groups(c, &decay, &no_decay, optimizer);
    fsdp_free(decay.items);
    fsdp_free(no_decay.items);
    fsdp_parameter_list_free(&all);
    return status;
}

static fsdp_status group_as_transformers(const fsdp_train_config *c, fsdp_module *module,
                                         fsdp_optimizer *optimizer)
{
    fsdp_parameter_list decay, no_decay;
    FSDP_TRY(fsdp_decay_parameters(module, &decay, &no_decay));
    fsdp_status status = add_groups(c, &decay, &no_decay, optimizer);
    fsdp_parameter_list_free(&decay);
    fsdp_parameter_list_free(&no_decay);
    return status;
}

fsdp_status fsdp_train_optimizer_create(const fsdp_train_config *c, fsdp_module *module,
                                        fsdp_optimizer **out)
{
    const fsdp_option_list *words = &c->no_decay;
    fsdp_optimizer *optimizer;
    if (!words->count && c->optimizer != FSDP_OPTIMIZER_MUON)
        return create_optimizer(c, module, out);
    FSDP_TRY(create_optimizer(c, NULL, &optimizer));
    const bool transformers = words->count == 1 && strcasecmp(words->items[0], "auto") == 0;
    fsdp_status status = transformers ? group_as_transformers(c, module, optimizer)
                                      : group_by_word(c, module, optimizer);
    if (status != FSDP_OK) {
        fsdp_optimizer_destroy(optimizer);
        return status;
    }
    *out = optimizer;
    return FSDP_OK;
}
