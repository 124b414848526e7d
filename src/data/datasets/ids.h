/* Functions for the ids of a row from any kind of file. */
#pragma once
#include <fsdp/data.h>

typedef struct fsdp_id_list {
    const int32_t *ids; /* [len], borrowed */
    size_t len;
} fsdp_id_list;

/* Return the id of </s>: options->eos_id, or the tokenizer's, or -1 if it is unknown. */
int32_t fsdp_ids_eos(const fsdp_dataset_options *options);
/* Truncate a list to `length` ids (0: no limit). If the list ends with `eos`, the truncated list
 * also ends with `eos`, as when the tokenizer truncates text. Labels may have FSDP_IGNORE_INDEX
 * after their last </s>. Such labels are treated as if they ended with that </s>. */
void fsdp_ids_cut(fsdp_token_list *list, size_t length, int32_t eos);
/* Decode the ids of a row to the texts that fsdp_dataset_texts() returns. Returns
 * FSDP_ERR_UNSUPPORTED if there is no tokenizer, or if the task has no texts. */
FSDP_MUST_CHECK fsdp_status fsdp_ids_texts(const fsdp_tokenizer *tokenizer, fsdp_task task,
                                           fsdp_id_list source, fsdp_id_list labels,
                                           char **source_text, char **target_text);
