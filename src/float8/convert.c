/* Chooses the layers whose products are computed in float8. src/autograd/float8_linear.h explains
 * how the products are computed. src/fsdp/storage_float8.c explains how the weights are
 * gathered. */
#include <fsdp/float8.h>

#include <string.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/nn/adapter.h"
#include "src/nn/float8_weight.h"

enum {
    MULTIPLE = 16 /* the extents of a weight must be multiples of this number, because cards
                   * multiply float8 matrices only in tiles */
};

/* The text in filter_fqns with which torchtitan asks for torchao's automatic filter. */
static const char auto_filter[] = "auto_filter_small_kn";

typedef struct conversion {
    const fsdp_float8_linear_config *config;
    bool *matched;      /* [n_filter_fqns] item i is true if some path contains text i */
    bool filters_small; /* filter_fqns has the text of the automatic filter */
    size_t n_converted;
    /* n_linear: number of linear layers, without the head. The other fields count those of these
     * layers that are not converted. n_filtered: left out by filter_fqns or filter_first_and_last.
     * n_odd: left out because an extent is not a multiple of MULTIPLE. n_small: left out by the
     * automatic filter. */
    size_t n_linear, n_filtered, n_odd, n_small;
} conversion;

const char *fsdp_float8_recipe_name(fsdp_float8_recipe recipe)
{
    static const char *const names[] = {"tensorwise", "rowwise", "rowwise_with_gw_hp"};
    return (size_t)recipe < FSDP_LENGTH(names) ? names[recipe] : "?";
}

/* --- which layers --- */

static bool is_linear(const fsdp_module *m)
{
    const fsdp_parameter *weight = fsdp_module_parameter(m, "weight");
    return weight && weight->ndim == 2 && strcmp(m->class_name, "Linear") == 0;
}

/* Return true if the layer computes logits. Such layers are not converted, because one operation
 * computes the logits and the loss together. A layer whose weight is also the table of an embedding
 * (a tied weight) is such a layer, too. */
static bool is_head(const char *path, const fsdp_module *m)
{
    static const char *const heads[] = {"lm_head", "classifier", "cls"};
    const size_t n = strcspn(path, ".");
    for (size_t i = 0; i < FSDP_LENGTH(heads); i++)
        if (strlen(heads[i]) == n && strncmp(path, heads[i], n) == 0)
            return true;
    return fsdp_module_parameter(m, "weight")->refs > 1;
}

static bool is_filtered(conversion *c, const char *path)
{
    bool filtered = false;
    for (size_t i = 0; i < c->config->n_filter_fqns; i++)
        if (strstr(path, c->config->filter_fqns[i]))
            c->matched[i] = filtered = true;
    return filtered;
}

/* Return true if torchao's automatic filter would leave out a weight [n, k]. In torchao, the filter
 * is _auto_filter_for_tensorwise() or _auto_filter_for_rowwise(). */
static bool is_small(fsdp_float8_recipe recipe, int64_t n, int64_t k)
{
    if (recipe == FSDP_FLOAT8_TENSORWISE)
        return k <= 4096 && n <= 1024;
    return n <= 2048 || k <= 1024 || (n <= 4096 && k <= 2048);
}

/* In DoRA, fsdp_adapter_apply() computes the product of the weight and the product of the adapter,
 * and multiplies both by the same factors. This function computes no float8 products. */
static fsdp_status refuse_dora(const char *path)
{
    return fsdp_error(FSDP_ERR_UNSUPPORTED,
                      "float8: '%s' has an adapter of DoRA (use_dora, --use-dora), whose products "
                      "are not computed in float8; LoRA's are, so leave out use_dora, or leave out "
                      "the layer by filter_fqns (--float8-filter-fqns)",
                      path);
}

/* Convert the layer `m` if the configuration selects it. The matrices of an adapter keep their
 * dtype: they are small, and their rank is rarely a multiple of MULTIPLE. */
static fsdp_status convert(const char *path, fsdp_module *m, void *arg)
{
    conversion *c = arg;
    const bool filtered = is_filtered(c, path); /* for all modules: sets c->matched */
    if (!is_linear(m) || is_head(path, m))
        return FSDP_OK;
    fsdp_parameter *weight = fsdp_module_parameter(m, "weight");
    const int64_t n = weight->shape[0], k = weight->shape[1];
    if (weight->in_adapter)
        return FSDP_OK;
    const bool is_first = c->n_linear++ == 0;
    /* In every model here, the last linear layer is the head, which was left out above. So
     * filter_first_and_last leaves out only one more layer, the first. */
    if (filtered || (is_first && c->config->filter_first_and_last)) {
        c->n_filtered++;
    } else if (n % MULTIPLE || k % MULTIPLE) {
        c->n_odd++;
    } else if (c->filters_small && is_small(c->config->recipe, n, k)) {
        c->n_small++;
    } else {
        if (fsdp_adapter_has_magnitudes(weight))
            return refuse_dora(path);
        c->n_converted++;
        return fsdp_parameter_set_float8(weight, c->config->recipe,
                                         c->config->enable_fsdp_float8_all_gather);
    }
    return FSDP_OK;
}

/* --- checks --- */

static bool has_auto_filter(const fsdp_float8_linear_config *c)
{
    for (size_t i = 0; i < c->n_filter_fqns; i++)
        if (strcmp(c->filter_fqns[i], auto_filter) == 0)
            return true;
    return false;
}

static fsdp_status check_config(const fsdp_float8_linear_config *c)
{
    const char *name = fsdp_float8_recipe_name(c->recipe);
    if (c->enable_fsdp_float8_all_gather && c->recipe != FSDP_FLOAT8_TENSORWISE)
        return fsdp_error(FSDP_ERR_UNSUPPORTED,
                          "float8: enable_fsdp_float8_all_gather needs the recipe tensorwise, "
                          "whose weights have one scale; %s has several",
                          name);
    if (has_auto_filter(c) && c->recipe == FSDP_FLOAT8_ROWWISE_WITH_GW_HP)
        return fsdp_error(
            FSDP_ERR_UNSUPPORTED,
            "filter_fqns: auto_filter_small_kn is for the recipes tensorwise and rowwise: "
            "torchao gives no sizes for %s",
            name);
    return FSDP_OK;
}

static fsdp_status check_model(fsdp_module *model)
{
    fsdp_parameter_list list;
    FSDP_TRY(fsdp_module_parameters(model, false, &list));
    fsdp_status status = FSDP_OK;
    for (size_t i = 0; i < list.n && status == FSDP_OK; i++) {
        const fsdp_parameter *p = list.items[i].parameter;
        if (p->owner || p->data)
            status = fsdp_error(FSDP_ERR_STATE,
                                "float8: '%s' has memory already: convert the model before it is "
                                "sharded",
                                list.items[i].name);
    }
    fsdp_parameter_list_free(&list);
    return status;
}

static fsdp_status check_result(const conversion *c, const fsdp_module *model)
{
    for (size_t i = 0; i < c->config->n_filter_fqns; i++)
        if (!c->matched[i] && strcmp(c->config->filter_fqns[i], auto_filter) != 0)
            return fsdp_error(FSDP_ERR_INVALID,
                              "filter_fqns (--float8-filter-fqns): '%s' is part of the name of no "
                              "layer of this %s; --print-model prints all names",
                              c->config->filter_fqns[i], fsdp_module_class(model));
    if (c->n_converted)
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_INVALID,
                      "float8: no layer of this %s would be computed in float8: it has %zu linear "
                      "layers besides the head (a Conv1D, as in GPT-2, is none), %zu of them are "
                      "filtered by name, %zu have features that are no multiples of 16, and %zu "
                      "are left out as too small",
                      fsdp_module_class(model), c->n_linear, c->n_filtered, c->n_odd, c->n_small);
}

fsdp_status fsdp_convert_to_float8_training(fsdp_module *model,
                                            const fsdp_float8_linear_config *config,
                                            size_t *n_converted)
{
    conversion c = {.config = config, .filters_small = has_auto_filter(config)};
    FSDP_TRY(check_config(config));
    FSDP_TRY(check_model(model));
    c.matched = fsdp_calloc(config->n_filter_fqns + 1, sizeof *c.matched);
    if (!c.matched)
        return FSDP_ERR_NOMEM;
    fsdp_status status = fsdp_module_visit(model, convert, &c);
    if (status == FSDP_OK)
        status = check_result(&c, model);
    fsdp_free(c.matched);
    if (status == FSDP_OK && n_converted)
        *n_converted = c.n_converted;
    return status;
}
