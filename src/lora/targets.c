/* See targets.h. */
#include "src/lora/targets.h"

#include <ctype.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/str.h"
#include "src/models/model_type.h"
#include "src/nn/module.h"

/* --- what peft chooses by itself --- */

/* The names are those of TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING in
 * peft/utils/constants.py. */
const char *const *fsdp_lora_default_targets(const fsdp_module *model)
{
    static const char *const q_v[] = {"q", "v", NULL},
                             *const query_value[] = {"query", "value", NULL},
                             *const projections[] = {"q_proj", "v_proj", NULL},
                             *const c_attn[] = {"c_attn", NULL};
    static const struct {
        const char *model_type;
        const char *const *names;
    } defaults[] = {{"t5", q_v},
                    {"mt5", q_v},
                    {"umt5", q_v},
                    {"gpt2", c_attn},
                    {"bert", query_value},
                    {"llama", projections},
                    {"mistral", projections},
                    {"qwen2", projections},
                    {"qwen3", projections}};
    const fsdp_model_type *type = fsdp_model_type_of(model);
    for (size_t i = 0; type && i < FSDP_LENGTH(defaults); i++)
        if (strcmp(type->name, defaults[i].model_type) == 0)
            return defaults[i].names;
    return NULL;
}

/* --- regular expressions --- */

/* Compile an expression that must match a whole path. If `suffix` is true, it may also match only
 * the end of a path, from the character after any of its dots. */
static fsdp_status compile_whole(const char *field, const char *pattern, bool suffix,
                                 fsdp_regex **out)
{
    char *whole = fsdp_strdup_printf("\\A%s(?:%s)\\z", suffix ? "(?:.*\\.)?" : "", pattern);
    fsdp_status status = whole ? fsdp_regex_compile(whole, out) : fsdp_error_nomem();
    fsdp_error_context(status, "%s '%s'", field, pattern);
    fsdp_free(whole);
    return status;
}

static fsdp_status compile_patterns(const char *field, const fsdp_lora_pattern *patterns, size_t n,
                                    fsdp_regex ***out)
{
    if (!n)
        return FSDP_OK;
    *out = fsdp_calloc(n, sizeof(fsdp_regex *));
    if (!*out)
        return FSDP_ERR_NOMEM;
    for (size_t i = 0; i < n; i++)
        FSDP_TRY(compile_whole(field, patterns[i].key, true, &(*out)[i]));
    return FSDP_OK;
}

/* Return true if `pattern` has no special characters, so that it matches only itself. */
static bool is_plain(const char *pattern)
{
    while (isalnum((unsigned char)*pattern) || *pattern == '_')
        pattern++;
    return *pattern == 0;
}

/* Compile those entries of layers_pattern that are not plain names. Each expression then matches
 * the part of a path before the index of a block. */
static fsdp_status compile_lists(fsdp_lora_targets *t)
{
    const char *const *patterns = t->config->layers_pattern;
    size_t n = 0;
    while (patterns && patterns[n])
        n++;
    if (!(t->lists = fsdp_calloc(n, sizeof(fsdp_regex *))))
        return FSDP_ERR_NOMEM;
    for (t->n_lists = 0; t->n_lists < n; t->n_lists++) {
        const char *pattern = patterns[t->n_lists];
        if (is_plain(pattern))
            continue;
        char *whole = fsdp_strdup_printf("\\A(?:.*?\\.)?(?:%s)\\.(?=[0-9]+\\.)", pattern);
        const fsdp_status status =
            whole ? fsdp_regex_compile(whole, &t->lists[t->n_lists]) : FSDP_ERR_NOMEM;
        fsdp_error_context(status, "layers_pattern '%s'", pattern);
        fsdp_free(whole);
        FSDP_TRY(status);
        t->has_list_patterns = true;
    }
    return FSDP_OK;
}

static fsdp_status compile_all(fsdp_lora_targets *t)
{
    const fsdp_lora_config *c = t->config;
    if (c->target_pattern && !t->all_linear)
        FSDP_TRY(compile_whole("target_modules", c->target_pattern, false, &t->target));
    if (c->exclude_pattern)
        FSDP_TRY(compile_whole("exclude_modules", c->exclude_pattern, false, &t->exclude));
    FSDP_TRY(compile_patterns("rank_pattern", c->rank_pattern, c->n_rank_pattern, &t->ranks));
    FSDP_TRY(compile_patterns("alpha_pattern", c->alpha_pattern, c->n_alpha_pattern, &t->alphas));
    FSDP_TRY(compile_lists(t));
    return t->target || t->exclude || t->ranks || t->alphas || t->has_list_patterns
               ? fsdp_regex_work_create(&t->work)
               : FSDP_OK;
}

fsdp_status fsdp_lora_targets_init(fsdp_lora_targets *t, const fsdp_lora_config *config,
                                   const fsdp_module *model)
{
    *t = (fsdp_lora_targets){.config = config, .names = config->target_modules};
    t->all_linear = config->target_pattern && strcasecmp(config->target_pattern, "all-linear") == 0;
    if (!t->names && !config->target_pattern)
        t->names = fsdp_lora_default_targets(model);
    if (!t->names && !config->target_pattern)
        return fsdp_error(FSDP_ERR_INVALID,
                          "target_modules: which layers of a %s get an adapter is not known: name "
                          "them, or \"all-linear\"",
                          fsdp_module_class(model));
    return compile_all(t);
}

static void destroy_patterns(fsdp_regex **patterns, size_t n)
{
    for (size_t i = 0; patterns && i < n; i++)
        fsdp_regex_destroy(patterns[i]);
    fsdp_free(patterns);
}

void fsdp_lora_targets_fini(fsdp_lora_targets *t)
{
    fsdp_regex_destroy(t->target);
    fsdp_regex_destroy(t->exclude);
    if (t->config) {
        destroy_patterns(t->ranks, t->config->n_rank_pattern);
        destroy_patterns(t->alphas, t->config->n_alpha_pattern);
    }
    destroy_patterns(t->lists, t->n_lists);
    fsdp_regex_work_destroy(t->work);
    *t = (fsdp_lora_targets){0};
}

static fsdp_status matches(const fsdp_lora_targets *t, const fsdp_regex *regex, const char *path,
                           bool *found)
{
    size_t begin, end;
    fsdp_regex_search search = {
        .regex = regex, .work = t->work, .text = path, .length = strlen(path)};
    return fsdp_regex_next(&search, found, &begin, &end);
}

/* --- selecting layers --- */

bool fsdp_lora_is_linear(const fsdp_module *m)
{
    const fsdp_parameter *weight = fsdp_module_parameter(m, "weight");
    return weight && weight->ndim == 2 &&
           (strcmp(m->class_name, "Linear") == 0 || strcmp(m->class_name, "Conv1D") == 0);
}

bool fsdp_lora_is_head(const char *path)
{
    static const char *const heads[] = {"lm_head", "classifier", "cls"};
    static const char transform[] = "cls.predictions.transform.";
    if (strncmp(path, transform, sizeof transform - 1) == 0) /* before the output layer */
        return false;
    const size_t n = strcspn(path, ".");
    for (size_t i = 0; i < FSDP_LENGTH(heads); i++)
        if (strlen(heads[i]) == n && strncmp(path, heads[i], n) == 0)
            return true;
    return false;
}

const char *fsdp_lora_classifier(const fsdp_module *model)
{
    static const char name[] = "classifier";
    for (int i = 0; i < fsdp_module_n_children(model); i++)
        if (strcmp(fsdp_module_name(fsdp_module_child(model, i)), name) == 0)
            return name;
    return NULL;
}

bool fsdp_lora_name_matches(const char *path, const char *name)
{
    const size_t n = strlen(name), length = strlen(path);
    return strcmp(path, name) == 0 ||
           (length > n && path[length - n - 1] == '.' && strcmp(path + length - n, name) == 0);
}

static bool is_named(const char *path, const char *const *names)
{
    for (; names && *names; names++)
        if (fsdp_lora_name_matches(path, *names))
            return true;
    return false;
}

/* `at` is the beginning of a component of a path. If this component is an index, and another
 * component follows it, set *index and return true. */
static bool read_index(const char *at, int64_t *index)
{
    const char *end = at;
    while (isdigit((unsigned char)*end))
        end++;
    if (end == at || *end != '.' || end - at > 18)
        return false;
    *index = strtoll(at, NULL, 10);
    return true;
}

/* Return true if `name` is the component of the path that ends before `dot`. */
static bool is_component(const char *path, const char *dot, const char *name)
{
    const size_t n = strlen(name);
    return (size_t)(dot - path) >= n && strncmp(dot - n, name, n) == 0 &&
           (dot - n == path || dot[-(ptrdiff_t)n - 1] == '.');
}

/* The path may pass through an item of the ModuleList `list`. Return the index of the first such
 * item, or -1 if the path has none. If `list` is NULL, the ModuleList may have any name, but it
 * must not be the first component of the path. */
static int64_t index_below(const char *path, const char *list)
{
    int64_t index;
    for (const char *dot = strchr(path, '.'), *before = NULL; dot;
         before = dot, dot = strchr(dot + 1, '.'))
        if (read_index(dot + 1, &index) && (list ? is_component(path, dot, list) : before != NULL))
            return index;
    return -1;
}

/* Set *index to the index of the block that contains the layer, or to -1. peft finds the index with
 * the regular expression `.*?\.[^.]*\.(\d+)\.` or, for each entry of layers_pattern,
 * `(?:^|.*?\.)entry\.(\d+)\.`. */
static fsdp_status layer_index(const fsdp_lora_targets *t, const char *path, int64_t *index)
{
    *index = t->n_lists ? -1 : index_below(path, NULL);
    for (size_t i = 0; i < t->n_lists && *index < 0; i++) {
        if (!t->lists[i]) {
            *index = index_below(path, t->config->layers_pattern[i]);
            continue;
        }
        bool found;
        size_t begin, end;
        fsdp_regex_search search = {
            .regex = t->lists[i], .work = t->work, .text = path, .length = strlen(path)};
        FSDP_TRY(fsdp_regex_next(&search, &found, &begin, &end));
        if (found && !read_index(path + end, index))
            *index = -1;
    }
    return FSDP_OK;
}

static fsdp_status is_transformed(const fsdp_lora_targets *t, const char *path, bool *is)
{
    const fsdp_lora_config *c = t->config;
    int64_t index;
    *is = !c->n_layers_to_transform;
    if (*is)
        return FSDP_OK;
    FSDP_TRY(layer_index(t, path, &index));
    for (size_t i = 0; index >= 0 && i < c->n_layers_to_transform; i++)
        *is |= c->layers_to_transform[i] == index;
    return FSDP_OK;
}

fsdp_status fsdp_lora_selects(const fsdp_lora_targets *t, const char *path,
                              const fsdp_module *module, bool *selected)
{
    const fsdp_lora_config *c = t->config;
    bool excluded = is_named(path, c->exclude_modules);
    *selected = false;
    if (t->exclude)
        FSDP_TRY(matches(t, t->exclude, path, &excluded));
    if (excluded)
        return FSDP_OK;
    if (t->all_linear)
        *selected = fsdp_lora_is_linear(module) && !fsdp_lora_is_head(path);
    else if (t->target)
        FSDP_TRY(matches(t, t->target, path, selected));
    else
        *selected = is_named(path, t->names);
    return *selected ? is_transformed(t, path, selected) : FSDP_OK;
}

/* Set *value to the value of the first pattern that matches the path, if there is one. */
static fsdp_status pattern_value(const fsdp_lora_targets *t, const fsdp_lora_pattern *patterns,
                                 fsdp_regex *const *compiled, size_t n, const char *path,
                                 double *value)
{
    bool found = false;
    for (size_t i = 0; i < n && !found; i++) {
        FSDP_TRY(matches(t, compiled[i], path, &found));
        if (found)
            *value = patterns[i].value;
    }
    return FSDP_OK;
}

fsdp_status fsdp_lora_rank(const fsdp_lora_targets *t, const char *path, int64_t *r,
                           double *scaling)
{
    const fsdp_lora_config *c = t->config;
    double rank = c->r ? (double)c->r : FSDP_LORA_DEFAULT_R;
    double alpha = c->lora_alpha != 0.0 ? c->lora_alpha : FSDP_LORA_DEFAULT_ALPHA;
    FSDP_TRY(pattern_value(t, c->rank_pattern, t->ranks, c->n_rank_pattern, path, &rank));
    FSDP_TRY(pattern_value(t, c->alpha_pattern, t->alphas, c->n_alpha_pattern, path, &alpha));
    *r = (int64_t)rank;
    *scaling = alpha / (c->use_rslora ? sqrt(rank) : rank);
    return FSDP_OK;
}
