/* The parts of a tokenizer, for the files tokenizer*.c.
 *
 * A tokenizer is a chain of parts: added tokens, normalizer, pre-tokenizer, model, post-processor,
 * decoder. src/text/models has the models and the files in which they are stored, and
 * src/text/parts has the other parts.
 *
 * How a text is encoded: tokenizer_encode.c finds the added tokens; the normalizer changes each
 * section of text between them; the added tokens that are searched in normalized text are found in
 * the changed section; the pre-tokenizer splits the rest into pieces and gives each piece to the
 * model, which appends its ids. The post-processor adds special tokens. Alignments with the
 * original text are kept only if offsets are wanted. */
#pragma once
#include <pthread.h>

#include <fsdp/text.h>

#include "src/base/json.h"
#include "src/text/models/token_model.h"
#include "src/text/parts/added_tokens.h"
#include "src/text/parts/normalizer.h"
#include "src/text/parts/post_processor.h"
#include "src/text/parts/pre_tokenizer.h"
#include "src/text/parts/token_decoder.h"

/* The names that transformers gives to special tokens: "bos_token" and so on. */
typedef enum fsdp_named_token {
    FSDP_BOS_TOKEN,
    FSDP_EOS_TOKEN,
    FSDP_UNK_TOKEN,
    FSDP_SEP_TOKEN,
    FSDP_PAD_TOKEN,
    FSDP_CLS_TOKEN,
    FSDP_MASK_TOKEN,
    FSDP_NAMED_TOKENS
} fsdp_named_token;

extern const char *const fsdp_named_token_keys[FSDP_NAMED_TOKENS];

/* Buffers that one thread needs to encode. */
typedef struct fsdp_tokenizer_work {
    struct fsdp_tokenizer_work *next; /* the next in the pool's list of unused ones */
    fsdp_token_work *model;
    fsdp_normalizer_work *normalizer;
    fsdp_pre_tokenizer_work *pre;
    fsdp_token_spans spans;
    fsdp_token_sequence sequences[2];
} fsdp_tokenizer_work;

/* The fsdp_tokenizer_work objects that no thread uses at the moment. */
typedef struct fsdp_work_pool {
    pthread_mutex_t mutex;
    fsdp_tokenizer_work *free_works;
} fsdp_work_pool;

struct fsdp_tokenizer {
    char *path; /* the file with the vocabulary */
    fsdp_char_classes *classes;
    fsdp_normalizer *normalizer; /* NULL: none, as for pre, post and decoder */
    fsdp_pre_tokenizer *pre;
    fsdp_post_processor *post;
    fsdp_token_decoder *decoder;
    fsdp_token_model *model;
    fsdp_added_tokens *added;
    fsdp_work_pool *pool;
    bool always_tracked; /* alignments are always kept, because ids depend on them */
    bool split_special_tokens, clean_up, truncate_left;
    bool returns_type_ids;            /* see fsdp_tokenizer_returns_type_ids() */
    int64_t model_max_length;         /* 0: none */
    int32_t named[FSDP_NAMED_TOKENS]; /* ids; -1: the tokenizer has no such token */
    int32_t first_sentinel, extra_ids;
};

/* ---- tokenizer_work.c ---- */
FSDP_MUST_CHECK fsdp_status fsdp_work_pool_create(fsdp_work_pool **out);
void fsdp_work_pool_destroy(fsdp_work_pool *pool); /* accepts NULL */
/* Take a fsdp_tokenizer_work from the pool, or create one if all are in use. */
FSDP_MUST_CHECK fsdp_status fsdp_work_pool_take(fsdp_work_pool *pool, fsdp_tokenizer_work **out);
void fsdp_work_pool_give(fsdp_work_pool *pool, fsdp_tokenizer_work *work);

/* ---- tokenizer_parts.c ---- */
/* Make all parts from `root`, the object of a tokenizer.json. If `model` is not NULL, the tokenizer
 * uses it and takes ownership of it, also on failure; `root` then needs no "model". Set
 * tokenizer->path before this call. Tokens can be added until fsdp_tokenizer_finish(). */
FSDP_MUST_CHECK fsdp_status fsdp_tokenizer_make_parts(fsdp_tokenizer *tokenizer,
                                                      fsdp_json_node root, fsdp_token_model *model);
/* Replace the post-processor by the one in `root`, or remove it if `root` has none. */
FSDP_MUST_CHECK fsdp_status fsdp_tokenizer_set_post_processor(fsdp_tokenizer *tokenizer,
                                                              fsdp_json_node root);
/* Like fsdp_tokenizer_set_post_processor(), but parse `text`, the JSON of an object
 * {"post_processor": ...}, and free it. Return FSDP_ERR_NOMEM if `text` is NULL. */
FSDP_MUST_CHECK fsdp_status fsdp_tokenizer_parse_post_processor(fsdp_tokenizer *tokenizer,
                                                                char *text);
/* Complete a tokenizer whose parts are made and whose tokens are added: find T5's sentinels, check
 * the ids of the post-processor, and create the pool. */
FSDP_MUST_CHECK fsdp_status fsdp_tokenizer_finish(fsdp_tokenizer *tokenizer);

/* ---- tokenizer_config.c ---- */
/* The files next to a vocabulary; each is NULL if it does not exist. */
typedef struct fsdp_tokenizer_files {
    fsdp_json *config;      /* tokenizer_config.json */
    fsdp_json *special_map; /* special_tokens_map.json */
    fsdp_json *added;       /* added_tokens.json */
} fsdp_tokenizer_files;

FSDP_MUST_CHECK fsdp_status fsdp_tokenizer_files_read(const char *folder,
                                                      fsdp_tokenizer_files *files);
void fsdp_tokenizer_files_fini(fsdp_tokenizer_files *files);
/* Copy tokenizer_class, without "Fast" at its end, to `name`; "" if tokenizer_config.json does not
 * name a class. */
enum {
    FSDP_TOKENIZER_CLASS_BYTES = 64
};
FSDP_MUST_CHECK fsdp_status fsdp_tokenizer_class(const fsdp_tokenizer_files *files,
                                                 char name[FSDP_TOKENIZER_CLASS_BYTES]);
/* Add the tokens of `files` and find the named ones, as transformers does. tokenizer_json: the root
 * of the tokenizer.json, or a node that does not exist. */
FSDP_MUST_CHECK fsdp_status fsdp_tokenizer_configure(fsdp_tokenizer *tokenizer,
                                                     const fsdp_tokenizer_files *files,
                                                     fsdp_json_node tokenizer_json);

/* Replace the post-processor by one that adds the bos token before and the eos token after each
 * text, if they are wanted and exist. */
FSDP_MUST_CHECK fsdp_status fsdp_tokenizer_set_bos_and_eos(fsdp_tokenizer *tokenizer, bool bos,
                                                           bool eos);

/* ---- tokenizer_family.c: tokenizers without a tokenizer.json ---- */
/* Load the file tokenizer->path, and set the tokenizer's parts as transformers' class of the family
 * does. The file is a SentencePiece model or tiktoken's file for _load_model(), a vocab.txt for
 * _load_vocab_txt(), and a vocab.json with merges.txt next to it for _load_vocab_json(). */
FSDP_MUST_CHECK fsdp_status fsdp_tokenizer_load_model(fsdp_tokenizer *tokenizer,
                                                      const fsdp_tokenizer_files *files);
FSDP_MUST_CHECK fsdp_status fsdp_tokenizer_load_vocab_txt(fsdp_tokenizer *tokenizer,
                                                          const fsdp_tokenizer_files *files);
FSDP_MUST_CHECK fsdp_status fsdp_tokenizer_load_vocab_json(fsdp_tokenizer *tokenizer,
                                                           const fsdp_tokenizer_files *files);
