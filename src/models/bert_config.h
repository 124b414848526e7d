/* Reads and writes config.json of BERT. Also has the presets: configurations of published
 * models. */
#pragma once
#include <fsdp/bert.h>

#include "src/base/json.h"

/* The values of problem_type in config.json, indexed by fsdp_problem_type; NULL-terminated. */
extern const char *const fsdp_problem_type_names[];

/* Read the configuration from an open document. If `classifier` is true, also check the keys that
 * matter only for a classification head. */
FSDP_MUST_CHECK fsdp_status fsdp_bert_config_parse(fsdp_json *doc, bool classifier,
                                                   fsdp_bert_config *config);
void fsdp_bert_config_set(fsdp_json_node root, const fsdp_bert_config *config, bool classifier);

#define FSDP_BERT_PRESETS "bert-base-uncased (bert-base), bert-large-uncased, bert-base-cased"
/* Get the configuration of the preset `name`. Returns FSDP_ERR_NOT_FOUND, without a message, if
 * there is no such preset. */
fsdp_status fsdp_bert_config_find_preset(const char *name, fsdp_bert_config *config);
