/* Prompts: texts, or ids that need no tokenizer. */
#pragma once
#include <fsdp/text.h>

typedef struct fsdp_prompt {
    char *text; /* as given, without prefix; NULL if only ids were given; owned */
    fsdp_token_list ids;
} fsdp_prompt;

/* Start with {0}. */
typedef struct fsdp_prompts {
    fsdp_prompt *items;
    size_t n, cap;
    size_t n_cut; /* prompts that were cut to max_length */
    char *note;   /* names the unused keys of rows of ids; NULL: none */
} fsdp_prompts;

void fsdp_prompts_free(fsdp_prompts *prompts);

/* How texts become ids: `prefix` is put before each; at most max_length ids (0: no limit). A text
 * to be continued by a causal model begins with <s>, if the tokenizer has it, and has no end token.
 */
typedef struct fsdp_prompt_encoding {
    const fsdp_tokenizer *tokenizer;
    const char *prefix;
    int max_length;
    bool to_continue;
} fsdp_prompt_encoding;

FSDP_MUST_CHECK fsdp_status fsdp_prompts_add_text(fsdp_prompts *prompts,
                                                  const fsdp_prompt_encoding *encoding,
                                                  const char *text);
/* Each line of a file becomes a prompt, empty lines too: the i-th prompt is line i. Errors name
 * path and line. */
FSDP_MUST_CHECK fsdp_status fsdp_prompts_read_texts(fsdp_prompts *prompts,
                                                    const fsdp_prompt_encoding *encoding,
                                                    const char *path);
/* How rows of ids are read. max_length as above; if it cuts a row that ends with eos_id, the last
 * id kept is replaced by eos_id (-1: plainly cut). */
typedef struct fsdp_prompt_ids {
    int64_t vocab_size;
    int max_length;
    int32_t eos_id;
} fsdp_prompt_ids;

/* Reads rows of ids below vocab_size: a JSON array of rows, or one row a line. A row is [1, 2] or
 * {"input_ids": [1, 2]}; an "attention_mask" next to them keeps the ids with a one. Other keys are
 * noted, or refused as fsdp_dataset_open() refuses them; targets are only noted. */
FSDP_MUST_CHECK fsdp_status fsdp_prompts_read_ids(fsdp_prompts *prompts,
                                                  const fsdp_prompt_ids *rows, const char *path);
