/* Adds adapters to a model (fsdp_lora_apply()). How an adapter changes the result of a layer is
 * explained in src/nn/adapter.h. */
#include <fsdp/lora.h>

#include <math.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/str.h"
#include "src/lora/targets.h"
#include "src/nn/adapter.h"

enum {
    MAX_RANK = 1 << 20
};

typedef struct target {
    char *path; /* owned */
    fsdp_module *module;
} target;

typedef struct application {
    const fsdp_lora_config *config;
    fsdp_lora_targets targets;
    target *items; /* [n] layers that get an adapter */
    size_t n, cap;
    fsdp_str linear_layers; /* paths of the first 8 linear layers, for an error message */
    size_t n_linear;
} application;

/* --- checks --- */

static fsdp_status check_number(bool valid, const char *name, double value, const char *range)
{
    return valid ? FSDP_OK
                 : fsdp_error(FSDP_ERR_INVALID, "lora: %s is %g, not %s", name, value, range);
}

static fsdp_status check_config(const fsdp_lora_config *c)
{
    FSDP_TRY(check_number(c->r >= 0 && c->r <= MAX_RANK, "r", (double)c->r, "from 1 to 1048576"));
    FSDP_TRY(check_number(isfinite(c->lora_alpha), "lora_alpha", c->lora_alpha, "finite"));
    FSDP_TRY(check_number(c->lora_dropout >= 0.0 && c->lora_dropout < 1.0, "lora_dropout",
                          c->lora_dropout, "in [0, 1)"));
    for (size_t i = 0; i < c->n_rank_pattern; i++) {
        const double r = c->rank_pattern[i].value;
        FSDP_TRY(check_number(r >= 1.0 && r <= MAX_RANK && r == floor(r), "a rank of rank_pattern",
                              r, "an integer from 1 to 1048576"));
    }
    for (size_t i = 0; i < c->n_alpha_pattern; i++)
        FSDP_TRY(check_number(isfinite(c->alpha_pattern[i].value), "an alpha of alpha_pattern",
                              c->alpha_pattern[i].value, "finite"));
    if (c->target_pattern && c->n_layers_to_transform)
        return fsdp_error(FSDP_ERR_INVALID,
                          "lora: layers_to_transform needs target_modules with names of layers; "
                          "'%s' selects them by whole paths",
                          c->target_pattern);
    if (c->target_modules && c->target_pattern)
        return fsdp_error(FSDP_ERR_INVALID,
                          "lora: target_modules and target_pattern are both given");
    return FSDP_OK;
}

static fsdp_status check_unsharded(fsdp_module *model)
{
    fsdp_parameter_list list;
    FSDP_TRY(fsdp_module_parameters(model, false, &list));
    fsdp_status status = FSDP_OK;
    for (size_t i = 0; i < list.n && status == FSDP_OK; i++) {
        const fsdp_parameter *p = list.items[i].parameter;
        if (p->adapter)
            status =
                fsdp_error(FSDP_ERR_STATE, "lora: '%s' has an adapter already", list.items[i].name);
        else if (p->owner || p->data)
            status = fsdp_error(FSDP_ERR_STATE,
                                "lora: '%s' has memory already: add adapters before the model is "
                                "sharded",
                                list.items[i].name);
    }
    fsdp_parameter_list_free(&list);
    return status;
}

/* --- the layers --- */

static fsdp_status refuse_target(const char *path, const fsdp_module *m)
{
    if (fsdp_lora_is_head(path))
        return fsdp_error(FSDP_ERR_UNSUPPORTED,
                          "target_modules: '%s' is a part of the head, which cannot have an "
                          "adapter; modules_to_save trains it whole",
                          path);
    return fsdp_error(FSDP_ERR_UNSUPPORTED,
                      "target_modules: '%s' is a %s; only linear layers can have an adapter, and "
                      "modules_to_save trains any module whole",
                      path, m->class_name);
}

static fsdp_status collect_target(const char *path, fsdp_module *m, void *arg)
{
    application *a = arg;
    bool selected;
    if (fsdp_lora_is_linear(m) && !fsdp_lora_is_head(path) && a->n_linear++ < 8)
        fsdp_str_printf(&a->linear_layers, "%s%s", a->linear_layers.len ? ", " : "", path);
    FSDP_TRY(fsdp_lora_selects(&a->targets, path, m, &selected));
    if (!selected)
        return FSDP_OK;
    if (!fsdp_lora_is_linear(m) || fsdp_lora_is_head(path))
        return refuse_target(path, m);
    if (!FSDP_GROW(a->items, a->cap, a->n + 1))
        return FSDP_ERR_NOMEM;
    char *copy = fsdp_strdup(path);
    if (!copy)
        return FSDP_ERR_NOMEM;
    a->items[a->n++] = (target){.path = copy, .module = m};
    return FSDP_OK;
}

static fsdp_status refuse_no_target(application *a)
{
    fsdp_str named = {0};
    const char *const *names = a->targets.names;
    if (a->config->target_pattern)
        fsdp_str_printf(&named, "'%s'", a->config->target_pattern);
    for (; !a->config->target_pattern && names && *names; names++)
        fsdp_str_printf(&named, "%s'%s'", named.len ? ", " : "", *names);
    char *what = fsdp_str_take(&named), *layers = fsdp_str_take(&a->linear_layers);
    fsdp_status status =
        what && layers
            ? fsdp_error(FSDP_ERR_INVALID,
                         "target_modules: %s: no layer has such a name (with "
                         "exclude_modules and layers_to_transform taken into account); "
                         "linear layers of this model: %s%s",
                         what, *layers ? layers : "none", a->n_linear > 8 ? " and more" : "")
            : FSDP_ERR_NOMEM;
    fsdp_free(what);
    fsdp_free(layers);
    return status;
}

/* --- adapters --- */

/* Add a Linear without a bias to `layer` as its child `name`. Set *weight to its weight. */
static fsdp_status add_matrix(fsdp_module *layer, const char *name, int64_t in, int64_t out,
                              fsdp_init init, fsdp_parameter **weight)
{
    fsdp_module *m;
    FSDP_TRY(fsdp_linear_create(in, out, false, init, &m));
    FSDP_TRY(fsdp_module_add_child(layer, name, m));
    *weight = fsdp_module_parameter(m, "weight");
    (*weight)->in_adapter = true;
    return FSDP_OK;
}

/* Add the parameter lora_magnitude_vector to `layer`. It is 1 until fsdp_lora_init_magnitudes() or
 * a load sets it. */
static fsdp_status add_magnitude(fsdp_module *layer, int64_t out, fsdp_parameter **magnitude)
{
    FSDP_TRY(fsdp_module_add_parameter(layer, "lora_magnitude_vector", 1, &out,
                                       (fsdp_init){.mean = 1.0f}, magnitude));
    (*magnitude)->in_adapter = true;
    return FSDP_OK;
}

static fsdp_status add_adapter(const application *a, const target *t)
{
    fsdp_parameter *weight = fsdp_module_parameter(t->module, "weight"), *lora_a, *lora_b;
    const bool transposed = strcmp(t->module->class_name, "Conv1D") == 0;
    const int64_t in = weight->shape[transposed ? 0 : 1], out = weight->shape[transposed ? 1 : 0];
    int64_t r;
    double scaling;
    FSDP_TRY(fsdp_lora_rank(&a->targets, t->path, &r, &scaling));
    const fsdp_init of_a = a->config->init_lora_weights == FSDP_LORA_INIT_GAUSSIAN
                               ? (fsdp_init){.std = 1.0f / (float)r}
                               : (fsdp_init){.bound = 1.0f / sqrtf((float)in)};
    FSDP_TRY(add_matrix(t->module, "lora_A", in, r, of_a, &lora_a));
    FSDP_TRY(add_matrix(t->module, "lora_B", r, out, (fsdp_init){0}, &lora_b));
    fsdp_parameter *magnitude = NULL;
    if (a->config->use_dora)
        FSDP_TRY(add_magnitude(t->module, out, &magnitude));
    const fsdp_adapter adapter = {.a = lora_a,
                                  .b = lora_b,
                                  .scaling = (float)scaling,
                                  .transposed = transposed,
                                  .dropout_p = (float)a->config->lora_dropout,
                                  .magnitude = magnitude};
    FSDP_TRY(fsdp_parameter_set_adapter(weight, &adapter));
    fsdp_parameter *bias = fsdp_module_parameter(t->module, "bias");
    if (bias && a->config->bias == FSDP_LORA_BIAS_LORA_ONLY)
        fsdp_parameter_set_requires_grad(bias, true);
    return FSDP_OK;
}

/* --- what is trained --- */

/* Freeze all parameters, except the biases if config->bias is ALL. */
static fsdp_status freeze_base(fsdp_module *model, const fsdp_lora_config *c)
{
    fsdp_parameter_list list;
    FSDP_TRY(fsdp_module_parameters(model, false, &list));
    for (size_t i = 0; i < list.n; i++)
        fsdp_parameter_set_requires_grad(list.items[i].parameter,
                                         c->bias == FSDP_LORA_BIAS_ALL &&
                                             fsdp_lora_name_matches(list.items[i].name, "bias"));
    fsdp_parameter_list_free(&list);
    return FSDP_OK;
}

typedef struct saved_module {
    const char *name;
    size_t found;
} saved_module;

static fsdp_status train_if_named(const char *path, fsdp_module *m, void *arg)
{
    saved_module *saved = arg;
    fsdp_parameter_list list;
    if (!fsdp_lora_name_matches(path, saved->name))
        return FSDP_OK;
    saved->found++;
    FSDP_TRY(fsdp_module_parameters(m, false, &list));
    for (size_t i = 0; i < list.n; i++)
        fsdp_parameter_set_requires_grad(list.items[i].parameter, true);
    fsdp_parameter_list_free(&list);
    return FSDP_OK;
}

/* Return true if peft adds this name to modules_to_save for any model with task_type SEQ_CLS, even
 * if the model has no such module. */
static bool is_classifier_name(const char *name)
{
    return strcmp(name, "classifier") == 0 || strcmp(name, "score") == 0;
}

static fsdp_status train_modules_to_save(fsdp_module *model, const fsdp_lora_config *c)
{
    saved_module head = {.name = fsdp_lora_classifier(model)};
    if (head.name)
        FSDP_TRY(fsdp_module_visit(model, train_if_named, &head));
    for (const char *const *name = c->modules_to_save; name && *name; name++) {
        saved_module saved = {.name = *name};
        FSDP_TRY(fsdp_module_visit(model, train_if_named, &saved));
        if (!saved.found && !(head.name && is_classifier_name(*name)))
            return fsdp_error(FSDP_ERR_INVALID,
                              "modules_to_save: no module of this %s is called '%s'",
                              fsdp_module_class(model), *name);
    }
    return FSDP_OK;
}

static fsdp_status add_adapters(fsdp_module *model, application *a)
{
    FSDP_TRY(fsdp_lora_targets_init(&a->targets, a->config, model));
    FSDP_TRY(fsdp_module_visit(model, collect_target, a));
    if (!a->n)
        return refuse_no_target(a);
    FSDP_TRY(freeze_base(model, a->config));
    for (size_t i = 0; i < a->n; i++)
        FSDP_TRY(add_adapter(a, &a->items[i]));
    return train_modules_to_save(model, a->config);
}

fsdp_status fsdp_lora_apply(fsdp_module *model, const fsdp_lora_config *config)
{
    application a = {.config = config};
    FSDP_TRY(check_config(config));
    FSDP_TRY(check_unsharded(model));
    fsdp_status status = add_adapters(model, &a);
    for (size_t i = 0; i < a.n; i++)
        fsdp_free(a.items[i].path);
    fsdp_free(a.items);
    fsdp_str_fini(&a.linear_layers);
    fsdp_lora_targets_fini(&a.targets);
    return status;
}
