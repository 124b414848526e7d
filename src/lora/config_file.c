/* Reads and writes adapter_config.json. The keys are those of peft.LoraConfig. */
#include <fsdp/lora.h>

#include <stdint.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/arena.h"
#include "src/base/assert.h"
#include "src/base/io.h"
#include "src/base/json.h"
#include "src/lora/targets.h"

static const char CONFIG_NAME[] = "adapter_config.json";

struct fsdp_lora_file {
    fsdp_lora_config config;
    const char *base_model; /* NULL: the file does not name a base model */
    fsdp_arena arena;       /* owns all strings and lists */
};

/* --- values that are refused --- */

/* The known keys. Each of them is read below or has no influence on what an adapter computes after
 * its weights have been loaded. */
static const char *const known_keys[] = {
    "alpha_pattern",
    "auto_mapping",
    "base_model_name_or_path",
    "bias",
    "corda_config",
    "ensure_weight_tying",
    "eva_config",
    "exclude_modules",
    "fan_in_fan_out",
    "inference_mode",
    "init_lora_weights",
    "layers_pattern",
    "layers_to_transform",
    "loftq_config",
    "lora_alpha",
    "lora_dropout",
    "lora_ga_config",
    "megatron_core",
    "modules_to_save",
    "peft_type",
    "peft_version",
    "qalora_group_size",
    "r",
    "rank_pattern",
    "revision",
    "runtime_config",
    "target_modules",
    "task_type",
    "use_dora",
    "use_rslora",
};

static bool is_known(const char *key)
{
    for (size_t i = 0; i < FSDP_LENGTH(known_keys); i++)
        if (strcmp(key, known_keys[i]) == 0)
            return true;
    return false;
}

/* Return true if the value switches nothing on: null, false, or an empty list or object. */
static bool is_off(fsdp_json_node value)
{
    bool on = true;
    switch (fsdp_json_kind_of(value)) {
    case FSDP_JSON_NULL:
        return true;
    case FSDP_JSON_BOOL:
        return fsdp_json_get_bool(value, NULL, &on) == FSDP_OK && !on;
    case FSDP_JSON_ARRAY:
    case FSDP_JSON_OBJECT:
        return fsdp_json_len(value) == 0;
    default:
        return false;
    }
}

static fsdp_status refuse_unsupported(fsdp_json_node root)
{
    const char *type;
    FSDP_TRY(fsdp_json_get_str(root, "peft_type", &type));
    if (strcmp(type, "LORA") != 0)
        return fsdp_error(FSDP_ERR_UNSUPPORTED, "%s: peft_type is %s: only LORA is supported",
                          fsdp_json_name(root.doc), type);
    for (fsdp_json_node v = fsdp_json_first(root); v.value; v = fsdp_json_next(v))
        if (!is_known(v.key) && !is_off(v))
            return fsdp_error(FSDP_ERR_UNSUPPORTED,
                              "%s: '%s' is set, which changes what the adapter computes and is not "
                              "supported; in PEFT, model.merge_and_unload().save_pretrained(DIR) "
                              "makes a model without an adapter",
                              fsdp_json_name(root.doc), v.key);
    return FSDP_OK;
}

/* --- lists --- */

static fsdp_status copy_text(fsdp_lora_file *f, const char *text, const char **out)
{
    char *copy = fsdp_arena_alloc(&f->arena, strlen(text) + 1);
    if (!copy)
        return FSDP_ERR_NOMEM;
    memcpy(copy, text, strlen(text) + 1);
    *out = copy;
    return FSDP_OK;
}

/* Read an array of strings. *names ends with NULL. */
static fsdp_status read_names(fsdp_lora_file *f, fsdp_json_node array, const char *const **names)
{
    const size_t n = fsdp_json_len(array);
    const char **list = fsdp_arena_alloc(&f->arena, (n + 1) * sizeof *list);
    if (!list)
        return FSDP_ERR_NOMEM;
    for (size_t i = 0; i < n; i++) {
        const char *text;
        FSDP_TRY(fsdp_json_get_str(fsdp_json_at(array, i), NULL, &text));
        FSDP_TRY(copy_text(f, text, &list[i]));
    }
    *names = list;
    return FSDP_OK;
}

/* Read a key that is null, a string or an array of strings. */
static fsdp_status read_names_or_text(fsdp_lora_file *f, fsdp_json_node root, const char *key,
                                      const char *const **names, const char **text)
{
    const fsdp_json_node value = fsdp_json_find(root, key);
    const char *string;
    fsdp_json_node array;
    if (!fsdp_json_has(root, key))
        return FSDP_OK;
    if (fsdp_json_kind_of(value) == FSDP_JSON_STRING) {
        FSDP_TRY(fsdp_json_get_str(root, key, &string));
        return copy_text(f, string, text);
    }
    if (fsdp_json_kind_of(value) != FSDP_JSON_ARRAY)
        return fsdp_json_mismatch(root, key, "a string or a list of strings");
    FSDP_TRY(fsdp_json_get_array(root, key, &array));
    return fsdp_json_len(array) ? read_names(f, array, names) : FSDP_OK;
}

/* Read a key that is null, a string or an array of strings, where a string counts as a list with
 * one item. */
static fsdp_status read_list(fsdp_lora_file *f, fsdp_json_node root, const char *key,
                             const char *const **names)
{
    const char *text = NULL;
    FSDP_TRY(read_names_or_text(f, root, key, names, &text));
    if (!text)
        return FSDP_OK;
    const char **list = fsdp_arena_alloc(&f->arena, 2 * sizeof *list);
    if (!list)
        return FSDP_ERR_NOMEM;
    list[0] = text;
    *names = list;
    return FSDP_OK;
}

/* Read layers_to_transform: null, an integer or an array of integers. */
static fsdp_status read_layers(fsdp_lora_file *f, fsdp_json_node root)
{
    static const char KEY[] = "layers_to_transform";
    const fsdp_json_node value = fsdp_json_find(root, KEY);
    if (!fsdp_json_has(root, KEY))
        return FSDP_OK;
    const bool one = fsdp_json_kind_of(value) == FSDP_JSON_INT;
    if (!one && fsdp_json_kind_of(value) != FSDP_JSON_ARRAY)
        return fsdp_json_mismatch(root, KEY, "an integer or a list of integers");
    const size_t n = one ? 1 : fsdp_json_len(value);
    int64_t *items = fsdp_arena_alloc(&f->arena, (n + 1) * sizeof *items);
    if (!items)
        return FSDP_ERR_NOMEM;
    for (size_t i = 0; i < n; i++)
        FSDP_TRY(
            fsdp_json_get_i64(one ? value : fsdp_json_at(value, i), NULL, 0, INT64_MAX, &items[i]));
    f->config.layers_to_transform = items;
    f->config.n_layers_to_transform = n;
    return FSDP_OK;
}

/* Read rank_pattern or alpha_pattern: an object of numbers. */
static fsdp_status read_patterns(fsdp_lora_file *f, fsdp_json_node root, const char *key,
                                 const fsdp_lora_pattern **patterns, size_t *n)
{
    fsdp_json_node object;
    FSDP_TRY(fsdp_json_opt_object(root, key, &object));
    const size_t count = fsdp_json_len(object);
    if (!count)
        return FSDP_OK;
    fsdp_lora_pattern *list = fsdp_arena_alloc(&f->arena, count * sizeof *list);
    if (!list)
        return FSDP_ERR_NOMEM;
    size_t i = 0;
    for (fsdp_json_node v = fsdp_json_first(object); v.value; v = fsdp_json_next(v), i++) {
        FSDP_TRY(copy_text(f, v.key, &list[i].key));
        FSDP_TRY(fsdp_json_get_f64(v, NULL, &list[i].value));
    }
    *patterns = list;
    *n = count;
    return FSDP_OK;
}

/* --- reading --- */

static fsdp_status read_bias(fsdp_json_node root, fsdp_lora_bias *bias)
{
    const char *text;
    FSDP_TRY(fsdp_json_opt_str(root, "bias", "none", &text));
    if (strcmp(text, "none") == 0)
        *bias = FSDP_LORA_BIAS_NONE;
    else if (strcmp(text, "all") == 0)
        *bias = FSDP_LORA_BIAS_ALL;
    else if (strcmp(text, "lora_only") == 0)
        *bias = FSDP_LORA_BIAS_LORA_ONLY;
    else
        return fsdp_json_mismatch(root, "bias", "\"none\", \"all\" or \"lora_only\"");
    return FSDP_OK;
}

/* Initial values do not matter for an adapter whose values are in a file. But methods such as PiSSA
 * also change the weights of the base model when they initialize an adapter, so adapters of such
 * methods are refused. */
static fsdp_status read_init(fsdp_json_node root, fsdp_lora_init *init)
{
    static const char KEY[] = "init_lora_weights";
    const char *text;
    if (fsdp_json_kind_of(fsdp_json_find(root, KEY)) != FSDP_JSON_STRING)
        return FSDP_OK;
    FSDP_TRY(fsdp_json_get_str(root, KEY, &text));
    if (strcmp(text, "gaussian") == 0)
        *init = FSDP_LORA_INIT_GAUSSIAN;
    else if (strcmp(text, "eva") != 0 && strcmp(text, "orthogonal") != 0)
        return fsdp_error(FSDP_ERR_UNSUPPORTED,
                          "%s: init_lora_weights is '%s', which also changes the base model; in "
                          "PEFT, save_pretrained(DIR, "
                          "path_initial_model_for_weight_conversion=...) converts the adapter",
                          fsdp_json_name(root.doc), text);
    return FSDP_OK;
}

static fsdp_status read_config(fsdp_lora_file *f, fsdp_json_node root)
{
    fsdp_lora_config *c = &f->config;
    const char *base;
    FSDP_TRY(refuse_unsupported(root));
    FSDP_TRY(fsdp_json_opt_i64(root, "r", 1, 1 << 20, FSDP_LORA_DEFAULT_R, &c->r));
    FSDP_TRY(fsdp_json_opt_f64(root, "lora_alpha", FSDP_LORA_DEFAULT_ALPHA, &c->lora_alpha));
    if (c->lora_alpha == 0.0) /* in fsdp_lora_config, 0 means the default */
        return fsdp_json_mismatch(root, "lora_alpha", "a number other than 0");
    FSDP_TRY(fsdp_json_opt_f64(root, "lora_dropout", 0.0, &c->lora_dropout));
    if (!(c->lora_dropout >= 0.0 && c->lora_dropout < 1.0))
        return fsdp_json_mismatch(root, "lora_dropout", "a number in [0, 1)");
    FSDP_TRY(fsdp_json_opt_bool(root, "use_dora", false, &c->use_dora));
    FSDP_TRY(fsdp_json_opt_bool(root, "use_rslora", false, &c->use_rslora));
    FSDP_TRY(read_names_or_text(f, root, "target_modules", &c->target_modules, &c->target_pattern));
    /* Without the key, PEFT's default for the model is used. An empty list names no layer. */
    if (fsdp_json_kind_of(fsdp_json_find(root, "target_modules")) == FSDP_JSON_ARRAY &&
        !c->target_modules)
        return fsdp_json_mismatch(root, "target_modules", "at least one name");
    FSDP_TRY(
        read_names_or_text(f, root, "exclude_modules", &c->exclude_modules, &c->exclude_pattern));
    FSDP_TRY(read_list(f, root, "modules_to_save", &c->modules_to_save));
    FSDP_TRY(read_list(f, root, "layers_pattern", &c->layers_pattern));
    FSDP_TRY(read_layers(f, root));
    FSDP_TRY(read_patterns(f, root, "rank_pattern", &c->rank_pattern, &c->n_rank_pattern));
    FSDP_TRY(read_patterns(f, root, "alpha_pattern", &c->alpha_pattern, &c->n_alpha_pattern));
    FSDP_TRY(read_bias(root, &c->bias));
    FSDP_TRY(read_init(root, &c->init_lora_weights));
    FSDP_TRY(fsdp_json_opt_str(root, "base_model_name_or_path", NULL, &base));
    return base ? copy_text(f, base, &f->base_model) : FSDP_OK;
}

static fsdp_status read_path(const char *path, fsdp_lora_file *f)
{
    fsdp_json *doc;
    FSDP_TRY(fsdp_json_read(path, &doc));
    const fsdp_status status = read_config(f, fsdp_json_root(doc));
    fsdp_json_destroy(doc);
    return status;
}

fsdp_status fsdp_lora_file_read(const char *dir, fsdp_lora_file **file)
{
    fsdp_lora_file *f = fsdp_calloc(1, sizeof *f);
    char *path = fsdp_path_join(dir, CONFIG_NAME);
    fsdp_status status = f && path ? FSDP_OK : FSDP_ERR_NOMEM;
    if (status == FSDP_OK && !fsdp_path_is_file(path))
        status = fsdp_error(FSDP_ERR_NOT_FOUND,
                            "%s: contains no %s, so it is not the folder of an adapter", dir,
                            CONFIG_NAME);
    if (status == FSDP_OK)
        status = read_path(path, f);
    fsdp_free(path);
    if (status != FSDP_OK) {
        fsdp_lora_file_destroy(f);
        return status;
    }
    *file = f;
    return FSDP_OK;
}

void fsdp_lora_file_destroy(fsdp_lora_file *file)
{
    if (file)
        fsdp_arena_fini(&file->arena);
    fsdp_free(file);
}

const fsdp_lora_config *fsdp_lora_file_config(const fsdp_lora_file *file)
{
    return &file->config;
}

const char *fsdp_lora_file_base_model(const fsdp_lora_file *file)
{
    return file->base_model;
}

/* --- writing --- */

static void set_names(fsdp_json_node root, const char *key, const char *const *names)
{
    if (!names || !*names) {
        fsdp_json_set_str(root, key, NULL);
        return;
    }
    const fsdp_json_node array = fsdp_json_set_array(root, key);
    for (; *names; names++)
        fsdp_json_append_str(array, *names);
}

static void set_names_or_text(fsdp_json_node root, const char *key, const char *const *names,
                              const char *text)
{
    if (text)
        fsdp_json_set_str(root, key, text);
    else
        set_names(root, key, names);
}

/* Set the key to `value`. If the value is an integer, write it as an integer, as PEFT does. */
static void set_number(fsdp_json_node object, const char *key, double value)
{
    if (value >= -1e15 && value <= 1e15 && value == (double)(int64_t)value)
        fsdp_json_set_i64(object, key, (int64_t)value);
    else
        fsdp_json_set_f64(object, key, value);
}

static void set_patterns(fsdp_json_node root, const char *key, const fsdp_lora_pattern *patterns,
                         size_t n)
{
    const fsdp_json_node object = fsdp_json_set_object(root, key);
    for (size_t i = 0; i < n; i++)
        set_number(object, patterns[i].key, patterns[i].value);
}

/* Write modules_to_save: the names in the configuration and, if the model has a classifier, the
 * name of the classifier, which peft also adds. */
static void set_modules_to_save(fsdp_json_node root, const fsdp_lora_config *c,
                                const fsdp_module *model)
{
    static const char KEY[] = "modules_to_save";
    const char *const *names = c->modules_to_save, *head = fsdp_lora_classifier(model);
    bool listed = false;
    set_names(root, KEY, names);
    for (; names && *names && head; names++)
        listed |= strcmp(*names, head) == 0;
    if (!head || listed)
        return;
    if (!c->modules_to_save || !*c->modules_to_save)
        fsdp_json_set_array(root, KEY);
    fsdp_json_append_str(fsdp_json_find(root, KEY), head);
}

static bool has_conv1d(fsdp_module *m)
{
    bool found = strcmp(fsdp_module_class(m), "Conv1D") == 0;
    for (int i = 0; i < fsdp_module_n_children(m) && !found; i++)
        found = has_conv1d(fsdp_module_child(m, i));
    return found;
}

static void build(fsdp_json_node root, const fsdp_lora_config *c, const fsdp_module *model,
                  const fsdp_lora_about *about)
{
    static const char *const biases[] = {"none", "all", "lora_only"};
    const char *const *names = c->target_modules;
    if (!names && !c->target_pattern)
        names = fsdp_lora_default_targets(model);
    set_patterns(root, "alpha_pattern", c->alpha_pattern, c->n_alpha_pattern);
    fsdp_json_set_any_str(root, "base_model_name_or_path", about->base_model);
    fsdp_json_set_str(root, "bias", biases[c->bias]);
    set_names_or_text(root, "exclude_modules", c->exclude_modules, c->exclude_pattern);
    fsdp_json_set_bool(root, "fan_in_fan_out", has_conv1d((fsdp_module *)(uintptr_t)model));
    fsdp_json_set_bool(root, "inference_mode", true);
    if (c->init_lora_weights == FSDP_LORA_INIT_GAUSSIAN)
        fsdp_json_set_str(root, "init_lora_weights", "gaussian");
    else
        fsdp_json_set_bool(root, "init_lora_weights", true);
    set_names(root, "layers_pattern", c->layers_pattern);
    if (c->n_layers_to_transform)
        fsdp_json_append_i64s(fsdp_json_set_array(root, "layers_to_transform"),
                              c->layers_to_transform, c->n_layers_to_transform);
    else
        fsdp_json_set_str(root, "layers_to_transform", NULL);
    set_number(root, "lora_alpha", c->lora_alpha != 0.0 ? c->lora_alpha : FSDP_LORA_DEFAULT_ALPHA);
    fsdp_json_set_f64(root, "lora_dropout", c->lora_dropout);
    set_modules_to_save(root, c, model);
    fsdp_json_set_str(root, "peft_type", "LORA");
    fsdp_json_set_i64(root, "r", c->r ? c->r : FSDP_LORA_DEFAULT_R);
    set_patterns(root, "rank_pattern", c->rank_pattern, c->n_rank_pattern);
    fsdp_json_set_str(root, "revision", NULL);
    set_names_or_text(root, "target_modules", names, c->target_pattern);
    fsdp_json_set_str(root, "task_type", about->task_type);
    fsdp_json_set_bool(root, "use_dora", c->use_dora);
    fsdp_json_set_bool(root, "use_rslora", c->use_rslora);
}

fsdp_status fsdp_lora_config_write(const fsdp_lora_config *config, const fsdp_module *model,
                                   const fsdp_lora_about *about, const char *path)
{
    fsdp_json *doc;
    FSDP_TRY(fsdp_json_create(path, &doc));
    build(fsdp_json_root(doc), config, model, about);
    const fsdp_status status = fsdp_json_write(doc, FSDP_JSON_PRETTY, path);
    fsdp_json_destroy(doc);
    return status;
}
