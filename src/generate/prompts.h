/* Reads prompts for `fsdp generate`: texts, which a tokenizer encodes, or ids. */
#pragma once
#include <fsdp/text.h>

#include "src/generate/chat_prompt.h"
#include "src/data/files/input.h"

typedef struct fsdp_prompt {
    /* the text that was given, without the prefix; NULL: ids were given; owned */
    char *text;
    char *conversation; /* the row of a conversation, as JSON; NULL: the prompt is not a
                           conversation; owned */
    /* the row's id under its own key (fsdp_prompt_id_keys), as JSON: {"id": 7}; NULL: the row has
     * none, or fsdp_prompt_encoding.keep_ids is false; owned */
    char *id;
    fsdp_token_list ids;
} fsdp_prompt;

/* The prompts of a run; initially {0}. */
typedef struct fsdp_prompts {
    fsdp_prompt *items;
    size_t n, cap;
    size_t n_cut;              /* number of prompts that were cut to max_length */
    size_t n_prefixed;         /* number of prompts that were given a prefix that is not empty */
    size_t n_special;          /* number of prompts whose texts contain special tokens */
    size_t special;            /* index of the first prompt whose text contains special tokens */
    const char *special_token; /* a special token in the text of prompt `special`; NULL: none;
                                  borrowed from the tokenizer */
    size_t n_unknown;          /* number of prompts with characters or words that the tokenizer does
                                * not know */
    size_t unknown;            /* index of the first prompt with such characters or words */
    fsdp_unknown_examples unknown_examples; /* some of the unknown characters and words */
    char *note;                             /* lists the unused keys of rows; NULL: none; owned */
} fsdp_prompts;

void fsdp_prompts_free(fsdp_prompts *prompts);

/* How texts become ids. `prefix` is put before each text. If the result has more than max_length
 * ids, only the first max_length ids are used. If max_length is 0, there is no limit. `to_continue`
 * is true if a causal model is to continue the text. Then the ids begin with <s>, if the tokenizer
 * has it, and do not end with </s>. */
typedef struct fsdp_prompt_encoding {
    const fsdp_tokenizer *tokenizer;
    const char *prefix;
    /* true: if a text already begins with the prefix, the prefix is not put before it again */
    bool prefix_once;
    int max_length;
    bool to_continue;
    const fsdp_chat_prompts *chat; /* NULL: texts are not rendered as user messages */
    const char *text_column;       /* column or key of the text in a row; NULL: a default */
    bool keep_ids;                 /* set fsdp_prompt.id, because the output can have it */
} fsdp_prompt_encoding;

/* The keys under which rows may have an id, in the order of preference: "id", "idx", "guid"; NULL
 * after the last one. */
extern const char *const fsdp_prompt_id_keys[];
/* Return the first of fsdp_prompt_id_keys that the row has, or NULL. */
const char *fsdp_prompt_id_key(fsdp_json_node row);
/* Set the id of the last prompt to the value of `key` in `row`. No effect if `key` is NULL. */
FSDP_MUST_CHECK fsdp_status fsdp_prompts_set_id(fsdp_prompts *prompts, const char *key,
                                                fsdp_json_node row);
/* Set the id of the last prompt to a text. */
FSDP_MUST_CHECK fsdp_status fsdp_prompts_set_text_id(fsdp_prompts *prompts, const char *key,
                                                     const char *text);

/* Append `note` to prompts->note. NULL: nothing to append. The function frees `note`. */
FSDP_MUST_CHECK fsdp_status fsdp_prompts_add_note(fsdp_prompts *prompts, char *note);
FSDP_MUST_CHECK fsdp_status fsdp_prompts_add_text(fsdp_prompts *prompts,
                                                  const fsdp_prompt_encoding *encoding,
                                                  const char *text);
/* Append the conversation in `row`. The prompt keeps no reference to `row`. */
FSDP_MUST_CHECK fsdp_status fsdp_prompts_add_conversation(fsdp_prompts *prompts,
                                                          const fsdp_prompt_encoding *encoding,
                                                          fsdp_json_node row);
/* Read a prompt from each row or line of the file `path`. The file may be compressed or a pipe; "-"
 * is standard input. Files of Arrow, JSON and CSV have rows, and are recognized by their name or
 * their first bytes. In any other file, each line is a prompt, even an empty line. A prompt is a
 * text or, if encoding->chat is not NULL and the row has messages, a conversation.
 * (prompt_rows.c) */
FSDP_MUST_CHECK fsdp_status fsdp_prompts_read_file(fsdp_prompts *prompts,
                                                   const fsdp_prompt_encoding *encoding,
                                                   const char *path);
/* Read a file of conversations: JSON lines, an array of JSON, or Arrow. (prompt_rows.c) */
FSDP_MUST_CHECK fsdp_status fsdp_prompts_read_messages(fsdp_prompts *prompts,
                                                       const fsdp_prompt_encoding *encoding,
                                                       const char *path);
/* Read an open file in which each line is a prompt, even an empty line. Error messages contain
 * `path` and the line. */
FSDP_MUST_CHECK fsdp_status fsdp_prompts_read_texts(fsdp_prompts *prompts,
                                                    const fsdp_prompt_encoding *encoding,
                                                    const char *path, fsdp_input *input);
/* How rows of ids are read. A row is cut to its first max_length ids, or not at all if max_length
 * is 0. If a row that ends with eos_id is cut, its new last id is replaced by eos_id. If eos_id is
 * -1, no id is replaced. */
typedef struct fsdp_prompt_ids {
    int64_t vocab_size;
    int max_length;
    int32_t eos_id;
    bool keep_ids; /* see fsdp_prompt_encoding */
} fsdp_prompt_ids;

/* Read rows of ids, which must be below vocab_size. The file is a JSON array of rows, or has one
 * row per line, or is an Arrow file or folder (src/data/arrow/folder.h). If an Arrow folder has
 * several splits, the validation split is read. A row is [1, 2] or {"input_ids": [1, 2]}. If an
 * object also has "attention_mask", only the ids whose mask is 1 are used. All other keys are
 * unused, and prompts->note lists them. An unused key for targets, such as "labels", is never an
 * error. Any other unused key is an error here if it is an error in fsdp_dataset_open(). */
FSDP_MUST_CHECK fsdp_status fsdp_prompts_read_ids(fsdp_prompts *prompts,
                                                  const fsdp_prompt_ids *rows, const char *path);
