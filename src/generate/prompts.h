/* What to generate from: texts, or ids that need no tokenizer. */
#pragma once
#include <fsdp/text.h>

typedef struct fsdp_prompt {
    char *text; /* as given, without prefix; NULL if only ids were given. Owned */
    fsdp_token_list ids;
} fsdp_prompt;

/* Start with {0}. */
typedef struct fsdp_prompts {
    fsdp_prompt *items;
    size_t n, cap;
    size_t n_cut; /* those of which max_length left out the end */
    char *note;   /* keys of rows of ids that are not used; NULL: none */
} fsdp_prompts;

void fsdp_prompts_free(fsdp_prompts *prompts);

/* How texts become ids: `prefix` is put before each; at most max_length ids (0: no limit). A text
 * that a causal model is to continue begins with <s>, if there is one, and has no end. */
typedef struct fsdp_prompt_encoding {
    const fsdp_tokenizer *tokenizer;
    const char *prefix;
    int max_length;
    bool to_continue;
} fsdp_prompt_encoding;

FSDP_MUST_CHECK fsdp_status fsdp_prompts_add_text(fsdp_prompts *prompts,
                                                  const fsdp_prompt_encoding *encoding,
                                                  const char *text);
/* Each line of a file, empty ones too: the i-th prompt is line i. Errors name path and line. */
FSDP_MUST_CHECK fsdp_status fsdp_prompts_read_texts(fsdp_prompts *prompts,
                                                    const fsdp_prompt_encoding *encoding,
                                                    const char *path);
/* How rows of ids are read: max_length as above; where it cuts a row that ends with eos_id, that
 * stays its end (-1: plainly cut). */
typedef struct fsdp_prompt_ids {
    int64_t vocab_size;
    int max_length;
    int32_t eos_id;
} fsdp_prompt_ids;

/* Rows of ids below vocab_size: a JSON array of rows, or a row a line; a row is [1, 2] or
 * {"input_ids": [1, 2]}, of which an "attention_mask" beside them keeps those with a one. Other
 * keys are noted, or refused as fsdp_dataset_open() refuses them; targets are noted alone. */
FSDP_MUST_CHECK fsdp_status fsdp_prompts_read_ids(fsdp_prompts *prompts,
                                                  const fsdp_prompt_ids *rows, const char *path);
