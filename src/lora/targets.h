/* Chooses the layers of a model that get an adapter, as peft does
 * (peft.tuners.tuners_utils.check_target_module_exists). */
#pragma once
#include <fsdp/lora.h>

#include "src/text/regex/regex.h"

/* Values that peft's LoraConfig has by default. */
enum {
    FSDP_LORA_DEFAULT_R = 8,
    FSDP_LORA_DEFAULT_ALPHA = 8
};

/* A configuration with its regular expressions compiled. */
typedef struct fsdp_lora_targets {
    const fsdp_lora_config *config;
    const char *const *names;     /* target_modules, or the default of the model type */
    bool all_linear;              /* target_pattern is "all-linear" */
    fsdp_regex *target, *exclude; /* NULL: the setting is not a regular expression */
    fsdp_regex **ranks, **alphas; /* [n_rank_pattern] keys of rank_pattern, and
                                     [n_alpha_pattern] keys of alpha_pattern */
    /* [n_lists] the entries of layers_pattern; NULL: the entry is the plain name of a ModuleList,
     * not a regular expression */
    fsdp_regex **lists;
    size_t n_lists;
    bool has_list_patterns; /* an entry of `lists` is not NULL */
    fsdp_regex_work *work;  /* NULL if there is no regular expression */
} fsdp_lora_targets;

/* Return the names of the layers that peft chooses for the type of `model`. Return NULL if peft
 * chooses no layers for this type. */
const char *const *fsdp_lora_default_targets(const fsdp_module *model);
/* Compile the expressions of `config`, which is borrowed. Return FSDP_ERR_INVALID if neither the
 * configuration nor the type of `model` says which layers get an adapter. `targets` must be freed
 * with fsdp_lora_targets_fini(), also after a failure. */
FSDP_MUST_CHECK fsdp_status fsdp_lora_targets_init(fsdp_lora_targets *targets,
                                                   const fsdp_lora_config *config,
                                                   const fsdp_module *model);
void fsdp_lora_targets_fini(fsdp_lora_targets *targets);

/* Return true if `module` is a linear layer: a Linear or Conv1D with a weight matrix. */
bool fsdp_lora_is_linear(const fsdp_module *module);
/* Return true if the module at `path` is the head or a part of it. Heads compute logits and loss in
 * one operation, which does not use adapters. The transform of a BertForMaskedLM runs before the
 * output layer. It is not a part of the head, neither here nor in peft's all-linear. */
bool fsdp_lora_is_head(const char *path);
/* Return the name of the model's classification head, which is always trained and saved with an
 * adapter, as peft does for task_type SEQ_CLS. Return NULL if the model has no classification
 * head. */
const char *fsdp_lora_classifier(const fsdp_module *model);
/* Return true if `path` is `name`, or ends with a dot and `name`. */
bool fsdp_lora_name_matches(const char *path, const char *name);
/* Set *selected to true if the configuration gives the module at `path` an adapter. */
FSDP_MUST_CHECK fsdp_status fsdp_lora_selects(const fsdp_lora_targets *targets, const char *path,
                                              const fsdp_module *module, bool *selected);
/* Set *r and *scaling to the rank and the scaling of the adapter at `path`. */
FSDP_MUST_CHECK fsdp_status fsdp_lora_rank(const fsdp_lora_targets *targets, const char *path,
                                           int64_t *r, double *scaling);
