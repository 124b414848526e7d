/* Divides the parameters of a model into those to which weight decay applies and all others. */
#include <ctype.h>
#include <string.h>

#include <fsdp/optim.h>

#include "src/base/alloc.h"
#include "src/nn/module.h"

/* Returns true if the n characters at `part`, which are one component of a dotted name, are "norm"
 * or end in "_norm". */
static bool is_norm(const char *part, size_t n)
{
    static const char norm[] = "_norm";
    size_t length = sizeof norm - 1;
    if (n == length - 1)
        return strncmp(part, norm + 1, n) == 0;
    return n >= length && strncmp(part + n - length, norm, length) == 0;
}

/* Returns true if `lower`, a parameter's name in lower case, matches one of the patterns in
 * transformers' Trainer.get_decay_parameter_names. */
static bool is_bias_or_norm(const char *lower)
{
    if (strstr(lower, "bias") || strstr(lower, "layernorm") || strstr(lower, "rmsnorm"))
        return true;
    for (const char *part = lower;; part++) {
        size_t n = strcspn(part, ".");
        if (is_norm(part, n))
            return true;
        part += n;
        if (!*part)
            return false;
    }
}

/* Returns true if the parameter belongs to a module that is torch's LayerNorm. GPT-2 has such
 * modules with names like ln_1, which match none of the patterns. */
static bool is_in_layer_norm(const fsdp_parameter *parameter)
{
    return parameter->home && strcmp(fsdp_module_class(parameter->home), "LayerNorm") == 0;
}

static fsdp_status decays(const fsdp_named_parameter *named, bool *yes)
{
    char *lower = fsdp_strdup(named->name);
    if (!lower)
        return FSDP_ERR_NOMEM;
    for (char *c = lower; *c; c++)
        *c = (char)tolower((unsigned char)*c);
    *yes = !is_in_layer_norm(named->parameter) && !is_bias_or_norm(lower);
    fsdp_free(lower);
    return FSDP_OK;
}

static fsdp_status append_parameter(fsdp_parameter_list *list, const fsdp_named_parameter *named)
{
    char *name = fsdp_strdup(named->name);
    if (!name)
        return FSDP_ERR_NOMEM;
    list->items[list->n++] = (fsdp_named_parameter){.name = name, .parameter = named->parameter};
    return FSDP_OK;
}

static fsdp_status split_parameters(const fsdp_parameter_list *all, fsdp_parameter_list *decay,
                                    fsdp_parameter_list *no_decay)
{
    decay->items = fsdp_calloc(all->n, sizeof *decay->items);
    no_decay->items = fsdp_calloc(all->n, sizeof *no_decay->items);
    if (!decay->items || !no_decay->items)
        return FSDP_ERR_NOMEM;
    for (size_t i = 0; i < all->n; i++) {
        bool yes = false;
        if (!fsdp_parameter_requires_grad(all->items[i].parameter))
            continue;
        FSDP_TRY(decays(&all->items[i], &yes));
        FSDP_TRY(append_parameter(yes ? decay : no_decay, &all->items[i]));
    }
    return FSDP_OK;
}

fsdp_status fsdp_decay_parameters(fsdp_module *module, fsdp_parameter_list *decay,
                                  fsdp_parameter_list *no_decay)
{
    fsdp_parameter_list all, with = {0}, without = {0};
    FSDP_TRY(fsdp_module_parameters(module, false, &all));
    fsdp_status status = split_parameters(&all, &with, &without);
    fsdp_parameter_list_free(&all);
    if (status != FSDP_OK) {
        fsdp_parameter_list_free(&with);
        fsdp_parameter_list_free(&without);
        return status;
    }
    *decay = with;
    *no_decay = without;
    return FSDP_OK;
}
