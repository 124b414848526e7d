/* Opens a model by name: builds it, shards it and fills in its values. */
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/io.h"
#include "src/base/log.h"
#include "src/base/str.h"
#include "src/comm/agree.h"
#include "src/fsdp/name_patterns.h"
#include "src/models/label_names.h"
#include "src/models/model_type.h"
#include "src/nn/module.h"
#include "src/pretrained/load_names.h"
#include "src/pretrained/lora_files.h"
#include "src/pretrained/model.h"
#include "src/pretrained/pretrained.h"
#include "src/pretrained/text_prefix.h"

/* --- opening --- */

static bool is_class(const fsdp_module *module, const char *name)
{
    return strcmp(fsdp_module_class(module), name) == 0;
}

static bool is_block(const fsdp_module *module, const char *const *classes)
{
    for (const char *const *c = classes; *c; c++)
        if (is_class(module, *c))
            return true;
    return false;
}

static bool is_block_below(const char *path, const fsdp_module *module, void *arg)
{
    const fsdp_model_info *info = arg;
    return *path && is_block(module, info->block_classes);
}

/* --- sharding --- */

static fsdp_status shard(const fsdp_model *m, const fsdp_model_options *options,
                         fsdp_device *device)
{
    const char *const *block_classes = m->info.block_classes;
    fsdp_wrap_policy policy =
        options->wrap ? *options->wrap : fsdp_default_wrap_policy(&block_classes);
    fsdp_fully_shard_options of_units = options->shard;
    policy.modules_per_unit = options->blocks_per_unit;
    fsdp_named_sharding_apply(m->named, &of_units, &policy);
    FSDP_TRY(fsdp_auto_wrap(m->module, &policy, m->group, device, &of_units));
    if (!options->wrap)
        FSDP_TRY(fsdp_default_units_finish(m->module));
    return fsdp_named_sharding_finish(m->named, m->module, device);
}

static bool begins_with(const char *name, const char *prefix)
{
    return strncmp(name, prefix, strlen(prefix)) == 0;
}

static size_t freeze_names(const fsdp_parameter_list *list, const char *prefix)
{
    size_t frozen = 0;
    for (size_t i = 0; i < list->n; i++) {
        if (!begins_with(list->items[i].name, prefix))
            continue;
        fsdp_parameter_set_requires_grad(list->items[i].parameter, false);
        frozen++;
    }
    return frozen;
}

/* Freeze the parameters whose names begin with `prefix`. A tied parameter has several names. First,
 * only its first name is compared with `prefix`, as in named_parameters(). So "encoder" does not
 * freeze T5's shared embedding. If no parameter is found in this way, all names are compared. So
 * "lm_head" freezes a tied head. */
static fsdp_status freeze(const fsdp_parameter_list *once, const fsdp_parameter_list *all,
                          const char *prefix)
{
    fsdp_name_list known = {0};
    if (freeze_names(once, prefix) || freeze_names(all, prefix))
        return FSDP_OK;
    fsdp_status status = fsdp_name_list_add_parameters(&known, once);
    if (status == FSDP_OK)
        status = fsdp_refuse_name("--frozen-prefixes", prefix, "no parameter's name begins with it",
                                  &known);
    fsdp_name_list_fini(&known);
    return status;
}

/* Freeze all parameters that options->frozen selects. Call this before memory is allocated, because
 * frozen parameters have no master weights. */
static fsdp_status freeze_all(const fsdp_model *m, const fsdp_model_options *options)
{
    fsdp_parameter_list once = {0}, all = {0};
    if (!options->n_frozen)
        return FSDP_OK;
    fsdp_status status = fsdp_module_parameters(m->module, false, &once);
    if (status == FSDP_OK)
        status = fsdp_module_parameters(m->module, true, &all);
    for (size_t i = 0; i < options->n_frozen && status == FSDP_OK; i++)
        status = freeze(&once, &all, options->frozen[i]);
    fsdp_parameter_list_free(&once);
    fsdp_parameter_list_free(&all);
    return status;
}

/* Set the kind of labels to options->problem_type. If this is regression and the options give no
 * number of labels, set the number of labels to 1, as transformers does. */
static fsdp_status choose_problem_type(const fsdp_model_options *options, fsdp_model_config *config)
{
    const fsdp_problem_type type = (fsdp_problem_type)(options->problem_type - 1);
    if (type == FSDP_PROBLEM_REGRESSION && !options->num_labels)
        config->type->set_num_labels(config, 1);
    config->type->set_problem_type(config, type);
    const int64_t n = fsdp_model_config_info(config).num_labels;
    if (type == FSDP_PROBLEM_SINGLE_LABEL && n < 2)
        return fsdp_error(FSDP_ERR_INVALID,
                          "%s: single_label_classification needs two classes or more, and there "
                          "is %lld: give --num-labels, or --problem-type regression",
                          options->name, (long long)n);
    return FSDP_OK;
}

/* Get the number of classes and their names from the options. What the options do not give is read
 * from config.json. */
static fsdp_status choose_labels(const fsdp_model_options *options, fsdp_model *m,
                                 fsdp_model_config *config)
{
    const int64_t n = options->num_labels;
    if (n && !config->type->set_num_labels)
        return fsdp_error(FSDP_ERR_INVALID,
                          "--num-labels, --class-names: %s is a %s, which has no classes",
                          options->name, config->type->root_class);
    if (options->problem_type && !config->type->set_problem_type)
        return fsdp_error(FSDP_ERR_INVALID, "--problem-type: %s is a %s, which has no classes",
                          options->name, config->type->root_class);
    if (n)
        config->type->set_num_labels(config, n);
    if (options->problem_type)
        FSDP_TRY(choose_problem_type(options, config));
    if (options->label_names) {
        m->n_label_names = n;
        m->writes_label_names = true;
        return fsdp_label_names_copy(options->label_names, n, &m->label_names);
    }
    char *path = fsdp_path_join(m->dir, "config.json");
    m->n_label_names = fsdp_model_config_info(config).num_labels;
    fsdp_status status =
        path ? fsdp_label_names_read(path, m->n_label_names, &m->label_names) : FSDP_ERR_NOMEM;
    fsdp_free(path);
    return status;
}

/* Like transformers, return an error if the weights have a classifier with more or fewer classes
 * than the model. With ignore_mismatched_sizes this is not an error, because a new classifier is
 * initialized at random. */
static fsdp_status check_classifier(const fsdp_pretrained *p, const fsdp_model_options *options)
{
    const int64_t n = fsdp_model_config_info(&p->config).num_labels;
    const fsdp_checkpoint_entry *head;
    if (!p->weights || p->ignore_mismatched_sizes || !n)
        return FSDP_OK;
    FSDP_TRY(fsdp_load_find(p->weights, p->config.type->base_prefix, "classifier.weight", &head));
    if (!head || head->ndim != 2 || head->shape[0] == n)
        return FSDP_OK;
    if (options->labels_of)
        return fsdp_error(FSDP_ERR_INVALID,
                          "%s: '%s' has %lld classes, but the labels of %s %s %lld%s; "
                          "--ignore-mismatched-sizes draws a new classifier for them",
                          head->path, head->name, (long long)head->shape[0], options->labels_of,
                          n == 1 ? "are numbers (regression), which need" : "are of", (long long)n,
                          n == 1 ? " output" : " classes");
    return fsdp_error(FSDP_ERR_INVALID,
                      "%s: '%s' has %lld classes, the model %lld; --num-labels %lld of 'fsdp "
                      "train' takes the classifier as it is, --ignore-mismatched-sizes draws a new "
                      "one",
                      head->path, head->name, (long long)head->shape[0], (long long)n,
                      (long long)head->shape[0]);
}

/* Read the text that is put before each source text of a seq2seq model. */
static fsdp_status read_text_prefix(fsdp_model *m, const fsdp_model_config *config)
{
    if (fsdp_model_config_info(config).format.task != FSDP_TASK_SEQ2SEQ)
        return FSDP_OK;
    char *path = fsdp_path_join(m->dir, "config.json");
    const fsdp_status status = path ? fsdp_text_prefix_read(path, &m->text_prefix) : FSDP_ERR_NOMEM;
    fsdp_free(path);
    return status;
}

/* Give the model the head of a masked language model, if the options ask for it. */
static fsdp_status choose_head(const fsdp_model_options *options, fsdp_model_config *config)
{
    const bool saved = options->keep_lm_head && config->type == &fsdp_bert_classifier_type &&
                       config->bert.has_lm_head;
    if (!options->masked_lm && !saved)
        return FSDP_OK;
    fsdp_status status = fsdp_model_config_set_task(config, FSDP_TASK_MASKED_LM);
    fsdp_error_context(status, "%s", options->name);
    return status;
}

/* Return true if options->name is not a model but the folder of an adapter. */
static bool names_adapter(const fsdp_model_options *options)
{
    char *config = fsdp_path_join(options->name, "config.json");
    char *adapter = fsdp_path_join(options->name, "adapter_config.json");
    const bool yes = config && adapter && !fsdp_path_is_file(config) && fsdp_path_is_file(adapter);
    fsdp_free(config);
    fsdp_free(adapter);
    return yes;
}

/* Find out which model and which adapter the options name. Set m->name, m->lora and
 * m->adapter_dir. */
static fsdp_status find_base(fsdp_model *m, const fsdp_model_options *options)
{
    const bool only_adapter = names_adapter(options);
    if (only_adapter && options->adapter)
        return fsdp_error(FSDP_ERR_INVALID,
                          "--model %s: is the folder of an adapter, and --adapter %s names one, "
                          "too: --model must name their base model",
                          options->name, options->adapter);
    const char *dir = only_adapter ? options->name : options->adapter;
    if (dir) {
        if (!(m->adapter_dir = fsdp_strdup(dir)))
            return FSDP_ERR_NOMEM;
        FSDP_TRY(fsdp_lora_file_read(dir, &m->adapter_file));
        m->lora = fsdp_lora_file_config(m->adapter_file);
    }
    if (only_adapter)
        return fsdp_lora_find_base(m->adapter_file, dir, &m->name);
    m->name = fsdp_strdup(options->name);
    return m->name ? FSDP_OK : FSDP_ERR_NOMEM;
}

static fsdp_status add_adapter(fsdp_model *m, const fsdp_model_options *options)
{
    if (m->lora && options->lora)
        return fsdp_error(FSDP_ERR_INVALID,
                          "%s: is an adapter: a second one (--lora-r) cannot be added to it; merge "
                          "it into its model first, with 'fsdp checkpoint merge-adapter'",
                          m->adapter_dir);
    if (options->lora)
        m->lora = options->lora;
    if (!m->lora)
        return FSDP_OK;
    const fsdp_status status = fsdp_lora_apply(m->module, m->lora);
    if (m->adapter_dir)
        fsdp_error_context(status, "%s", m->adapter_dir);
    return status;
}

static fsdp_status convert_to_float8(fsdp_model *m, const fsdp_model_options *options)
{
    return options->float8
               ? fsdp_convert_to_float8_training(m->module, options->float8, &m->n_float8)
               : FSDP_OK;
}

/* Store weights in 4 bits if the options or config.json ask for it. If the files with the weights
 * are not opened (for a plan, for example), config.json decides which weights are in NF4. */
static fsdp_status quantize(const fsdp_model *m, const fsdp_model_options *options,
                            const fsdp_pretrained *p)
{
    fsdp_quantize_file file = {0};
    fsdp_status status = m->dir ? fsdp_quantize_file_read(m->dir, &file) : FSDP_OK;
    const fsdp_quantize_options *how = options->quantize;
    if (status == FSDP_OK && how && file.is_quantized && p->weights)
        status = fsdp_error(FSDP_ERR_INVALID,
                            "--load-in-4bit: %s is in NF4 already (quantization_config of its "
                            "config.json), and is loaded so without this option",
                            m->name);
    if (status == FSDP_OK && !how && file.is_quantized && !p->weights)
        how = &file.options;
    if (status == FSDP_OK && (how || file.is_quantized))
        status = fsdp_quantize_apply(m->module, how, p->weights, p->config.type->base_prefix,
                                     m->lora != NULL);
    fsdp_quantize_file_fini(&file);
    return status;
}

static fsdp_status open_pretrained(const fsdp_model *m, const fsdp_model_options *options,
                                   fsdp_pretrained *p)
{
    const fsdp_status status = fsdp_pretrained_open(m->name, options->from_config, p);
    if (strcmp(m->name, options->name) != 0)
        fsdp_error_context(status,
                           "%s: an adapter, whose base model is needed (--model MODEL "
                           "--adapter %s names another folder of it)",
                           options->name, options->name);
    return status;
}

/* Do the part of fsdp_model_open() that needs no other ranks: find the folder, read the
 * configuration and the headers of the weights, and build the module tree. p->weights is NULL if
 * the weights will be drawn at random. */
static fsdp_status prepare_model(const fsdp_model_options *options, fsdp_model *m,
                                 fsdp_pretrained *p)
{
    if (options->name) {
        FSDP_TRY(find_base(m, options));
        FSDP_TRY(open_pretrained(m, options, p));
        if (!(m->dir = fsdp_strdup(p->dir)))
            return FSDP_ERR_NOMEM;
        FSDP_TRY(choose_head(options, &p->config));
        if (m->adapter_dir && !options->num_labels)
            FSDP_TRY(fsdp_lora_fit_head(m->adapter_dir, &p->config));
        FSDP_TRY(choose_labels(options, m, &p->config));
        FSDP_TRY(read_text_prefix(m, &p->config));
        p->ignore_mismatched_sizes = options->ignore_mismatched_sizes;
        FSDP_TRY(check_classifier(p, options));
    } else {
        p->config = *options->config;
    }
    m->config = p->config;
    if (options->set_dropout)
        fsdp_model_config_set_dropout(&m->config, options->dropout);
    m->info = fsdp_model_config_info(&m->config);
    FSDP_TRY(fsdp_model_create(&m->config, &m->module));
    FSDP_TRY(add_adapter(m, options));
    FSDP_TRY(convert_to_float8(m, options));
    FSDP_TRY(quantize(m, options, p));
    FSDP_TRY(freeze_all(m, options));
    FSDP_TRY(fsdp_named_sharding_create(&options->named, m->module, &m->named));
    if (p->weights) {
        const fsdp_load_options load = fsdp_pretrained_load_options(p, options->seed);
        FSDP_TRY(fsdp_module_note_dtypes(m->module, p->weights, &load));
    }
    if (options->activation_checkpointing)
        return fsdp_apply_activation_checkpointing(m->module, is_block_below, &m->info,
                                                   &options->checkpointing);
    return FSDP_OK;
}

enum {
    NAMES_SHOWN = 4
};

/* On rank 0, log "`what`: a, b, c, d and 7 more". */
static void warn_of_list(const fsdp_model *m, const char *what, char *const *names, size_t n)
{
    fsdp_str list = {0};
    int rank = fsdp_group_rank(m->group);
    if (!n || rank != 0)
        return;
    for (size_t i = 0; i < n && i < NAMES_SHOWN; i++)
        fsdp_str_printf(&list, "%s%s", i ? ", " : "", names[i]);
    if (n > NAMES_SHOWN)
        fsdp_str_printf(&list, " and %zu more", n - NAMES_SHOWN);
    char *text = fsdp_str_take(&list);
    fsdp_log("model", FSDP_LOG_WARN, -1, 1, "%s: %s: %s", m->dir ? m->dir : "model", what,
             text ? text : "several");
    fsdp_free(text);
}

/* Log which weights were initialized at random and which weights were not used, as transformers
 * does. A weight that was initialized at random must be trained before the model's output means
 * anything. Unused weights may mean that config.json does not belong to the weights. */
static void warn_of_names(const fsdp_model *m)
{
    warn_of_list(m, "these weights are not in the files and were newly drawn", m->report.fresh,
                 m->report.n_fresh);
    warn_of_list(m, "these weights have another shape in the files and were newly drawn",
                 m->report.mismatched, m->report.n_mismatched);
    warn_of_list(m,
                 "the model that config.json describes has no use for these weights of the files",
                 m->report.unexpected, m->report.n_unexpected);
}

static bool is_said_to_be_frozen(const fsdp_model_options *options, const char *name)
{
    for (size_t i = 0; i < options->n_frozen; i++)
        if (begins_with(name, options->frozen[i]))
            return true;
    return false;
}

/* Warn if the prefixes in options->frozen match some names of a tied parameter, but not all. A tied
 * parameter is one tensor, so it is frozen or trained under all of its names. */
static fsdp_status warn_of_tied(const fsdp_model *m, const fsdp_model_options *options)
{
    fsdp_parameter_list list;
    fsdp_name_list frozen = {0}, trained = {0};
    if (!options->n_frozen)
        return FSDP_OK;
    FSDP_TRY(fsdp_module_parameters(m->module, true, &list));
    fsdp_status status = FSDP_OK;
    for (size_t i = 0; i < list.n && status == FSDP_OK; i++) {
        const bool is_trained = fsdp_parameter_requires_grad(list.items[i].parameter);
        if (is_trained == is_said_to_be_frozen(options, list.items[i].name))
            status = fsdp_name_list_add(is_trained ? &trained : &frozen, list.items[i].name);
    }
    if (status == FSDP_OK) {
        warn_of_list(
            m, "--frozen-prefixes freezes these names too, which are tied to a frozen parameter",
            frozen.items, frozen.n);
        warn_of_list(m,
                     "--frozen-prefixes does not freeze these names, which are tied to a parameter "
                     "of another name",
                     trained.items, trained.n);
    }
    fsdp_name_list_fini(&frozen);
    fsdp_name_list_fini(&trained);
    fsdp_parameter_list_free(&list);
    return status;
}

/* Load the values of the model, or initialize them at random. Collective. On the meta device there
 * are no values. */
static fsdp_status fill_values(fsdp_model *m, const fsdp_pretrained *p, uint64_t seed,
                               const fsdp_device *device)
{
    if (fsdp_device_is_meta(device))
        return fsdp_module_init(m->module, seed);
    FSDP_TRY(fsdp_pretrained_load(p, m->module, m->group, seed, &m->report));
    if (p->name_prefix && fsdp_group_rank(m->group) == 0)
        fsdp_log("model", FSDP_LOG_WARN, -1, 1,
                 "%s: all names of its weights begin with '%s', which was removed", m->dir,
                 p->name_prefix);
    if (p->wrapped_name && fsdp_group_rank(m->group) == 0)
        fsdp_log(
            "model", FSDP_LOG_WARN, -1, 1,
            "%s: what wrappers of modules added to the names of its weights was removed, as in "
            "'%s'",
            m->dir, p->wrapped_name);
    if (p->translated_from && fsdp_group_rank(m->group) == 0)
        fsdp_log("model", FSDP_LOG_WARN, -1, 1,
                 "%s: its weights are those of %s: their tensors got the names and the order of "
                 "rows of a %s",
                 m->dir, p->translated_from, m->config.type->root_class);
    warn_of_names(m);
    return FSDP_OK;
}

/* Assume that the weights of the base model have the dtype that config.json names, so that frozen
 * parameters are stored in this dtype. Call this for a plan of a model with an adapter if the
 * weights of the base model are not there. */
static fsdp_status assume_dtype(const fsdp_model *m)
{
    fsdp_parameter_list list;
    FSDP_TRY(fsdp_module_parameters(m->module, false, &list));
    for (size_t i = 0; i < list.n; i++) {
        fsdp_parameter *p = list.items[i].parameter;
        if (fsdp_parameter_requires_grad(p) || p->loaded)
            continue;
        p->loaded = true;
        p->loaded_dtype = m->info.dtype;
    }
    fsdp_parameter_list_free(&list);
    return FSDP_OK;
}

fsdp_status fsdp_model_open(const fsdp_model_options *options, fsdp_group *group,
                            fsdp_device *device, fsdp_model **model)
{
    fsdp_model *m = fsdp_calloc(1, sizeof *m);
    fsdp_pretrained pretrained = {0};
    fsdp_status status = m ? prepare_model(options, m, &pretrained) : fsdp_error_nomem();
    if (status == FSDP_OK && m->lora && !pretrained.weights && fsdp_device_is_meta(device))
        status = assume_dtype(m);
    status = fsdp_agree(group, status);
    if (status == FSDP_OK) {
        m->group = group;
        status = fsdp_agree(group, shard(m, options, device));
    }
    if (status == FSDP_OK)
        status = fill_values(m, &pretrained, options->seed, device);
    if (status == FSDP_OK && m->adapter_dir && !fsdp_device_is_meta(device))
        status = fsdp_lora_load(m->module, m->adapter_dir, group);
    if (status == FSDP_OK && options->keeps_norms && !fsdp_device_is_meta(device))
        status = fsdp_lora_keep_norms(m->module, true);
    if (status == FSDP_OK)
        status = warn_of_tied(m, options);
    fsdp_pretrained_close(&pretrained);
    if (status != FSDP_OK) {
        fsdp_model_close(m);
        return status;
    }
    *model = m;
    return FSDP_OK;
}

void fsdp_model_close(fsdp_model *m)
{
    if (!m)
        return;
    fsdp_load_report_free(&m->report);
    fsdp_label_names_free(m->label_names, m->n_label_names);
    fsdp_module_destroy(m->module);
    fsdp_named_sharding_destroy(m->named);
    fsdp_lora_file_destroy(m->adapter_file);
    fsdp_free(m->adapter_dir);
    fsdp_free(m->name);
    fsdp_free(m->text_prefix);
    fsdp_free(m->dir);
    fsdp_free(m);
}

/* --- keeping units gathered --- */

typedef struct hold_walk {
    bool on;
} hold_walk;

static fsdp_status hold_unit(const char *path, fsdp_module *module, void *arg)
{
    (void)path;
    const hold_walk *walk = arg;
    if (!fsdp_module_is_unit(module))
        return FSDP_OK;
    return walk->on ? fsdp_unit_unshard(module) : fsdp_unit_reshard(module);
}

fsdp_status fsdp_model_hold_unsharded(const fsdp_model *model, bool on)
{
    hold_walk walk = {.on = on};
    return fsdp_module_visit(model->module, hold_unit, &walk);
}
