/* Prompts: texts, or ids that need no tokenizer. */
#pragma once
#include <fsdp/text.h>

typedef struct fsdp_prompt {
    char *text; /* the text as given, without the prefix; NULL if ids were given; owned */
    fsdp_token_list ids;
} fsdp_prompt;

/* The prompts of a run; initially {0}. */
typedef struct fsdp_prompts {
    fsdp_prompt *items;
    size_t n, cap;
    size_t n_cut; /* prompts that were cut to max_length */
    char *note;   /* names the unused keys in rows of ids; NULL: none; owned */
} fsdp_prompts;

void fsdp_prompts_free(fsdp_prompts *prompts);

/* How texts become ids. `prefix` is put before each text, and a text is cut to max_length ids (0:
 * no limit). If `to_continue` is true, a causal model will continue the text. Its ids then begin
 * with <s>, if the tokenizer has it, and have no end token. */
typedef struct fsdp_prompt_encoding {
    const fsdp_tokenizer *tokenizer;
    const char *prefix;
    int max_length;
    bool to_continue;
} fsdp_prompt_encoding;

FSDP_MUST_CHECK fsdp_status fsdp_prompts_add_text(fsdp_prompts *prompts,
                                                  const fsdp_prompt_encoding *encoding,
                                                  const char *text);
/* Read a file. Each line becomes a prompt, even an empty line, so the i-th prompt is line i. Error
 * messages name path and line. */
FSDP_MUST_CHECK fsdp_status fsdp_prompts_read_texts(fsdp_prompts *prompts,
                                                    const fsdp_prompt_encoding *encoding,
                                                    const char *path);
/* How rows of ids are read. A row is cut to max_length ids (0: no limit). If a row that ends with
 * eos_id is cut, the last id that is kept is replaced by eos_id. If eos_id is -1, no id is
 * replaced. */
typedef struct fsdp_prompt_ids {
    int64_t vocab_size;
    int max_length;
    int32_t eos_id;
} fsdp_prompt_ids;

/* Read rows of ids, which must be below vocab_size. The file is a JSON array of rows, or has one
 * row per line. A row is [1, 2] or {"input_ids": [1, 2]}. If an object also has "attention_mask",
 * only the ids whose mask is one are kept. Other keys are listed in prompts->note. A key that
 * fsdp_dataset_open() would refuse is an error, unless it is the key of a target, such as "labels".
 */
FSDP_MUST_CHECK fsdp_status fsdp_prompts_read_ids(fsdp_prompts *prompts,
                                                  const fsdp_prompt_ids *rows, const char *path);
