/* The parts of a tokenizer, for the files tokenizer*.c.
 *
 * More than 25 source files: a tokenizer is a chain of parts (added tokens, normalizer,
 * pre-tokenizer, model, post-processor, decoder), each part and each kind of model has a file or
 * two of its own, and there is one for each kind of file in which a tokenizer is stored.
 *
 * How a text is encoded: tokenizer_encode.c finds the added tokens; the normalizer changes each
 * part between them; added tokens of another kind are found in the changed part; the pre-tokenizer
 * gives what is between them, piece by piece, to the model, which appends ids. The post-processor
 * adds special tokens. Alignments with the original text are kept only if offsets are wanted. */
#pragma once
#include <pthread.h>

#include <fsdp/text.h>

#include "src/base/json.h"
#include "src/text/added_tokens.h"
#include "src/text/normalizer.h"
#include "src/text/post_processor.h"
#include "src/text/pre_tokenizer.h"
#include "src/text/token_decoder.h"
#include "src/text/token_model.h"

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

/* What one thread needs to encode. */
typedef struct fsdp_tokenizer_work {
    struct fsdp_tokenizer_work *next; /* in the pool */
    fsdp_token_work *model;
    fsdp_normalizer_work *normalizer;
    fsdp_pre_tokenizer_work *pre;
    fsdp_token_spans spans;
    fsdp_token_sequence sequences[2];
} fsdp_tokenizer_work;

/* Works that no thread uses at the moment. */
typedef struct fsdp_work_pool {
    pthread_mutex_t mutex;
    fsdp_tokenizer_work *free_works;
} fsdp_work_pool;

struct fsdp_tokenizer {
    char *path; /* the file with the vocabulary */
    fsdp_char_classes *classes;
    fsdp_normalizer *normalizer; /* NULL: none; also the three below */
    fsdp_pre_tokenizer *pre;
    fsdp_post_processor *post;
    fsdp_token_decoder *decoder;
    fsdp_token_model *model;
    fsdp_added_tokens *added;
    fsdp_work_pool *pool;
    bool always_tracked; /* ids depend on alignments */
    bool split_special_tokens, clean_up, truncate_left;
    bool returns_type_ids;            /* see fsdp_tokenizer_returns_type_ids() */
    int64_t model_max_length;         /* 0: none */
    int32_t named[FSDP_NAMED_TOKENS]; /* ids; -1: the tokenizer has no such token */
    int32_t first_sentinel, extra_ids;
};

/* ---- tokenizer_work.c ---- */
FSDP_MUST_CHECK fsdp_status fsdp_work_pool_create(fsdp_work_pool **out);
void fsdp_work_pool_destroy(fsdp_work_pool *pool); /* accepts NULL */
/* Take a work from the pool, or create one. */
FSDP_MUST_CHECK fsdp_status fsdp_work_pool_take(fsdp_work_pool *pool, fsdp_tokenizer_work **out);
void fsdp_work_pool_give(fsdp_work_pool *pool, fsdp_tokenizer_work *work);

/* ---- tokenizer_parts.c ---- */
/* Make all parts but the model from `root`, an object like a tokenizer.json without "model". The
 * tokenizer takes ownership of `model`, also on failure. If `model` is NULL, it is made from
 * "model". Set `path` before. Added tokens can be added until fsdp_tokenizer_finish(). */
FSDP_MUST_CHECK fsdp_status fsdp_tokenizer_make_parts(fsdp_tokenizer *tokenizer,
                                                      fsdp_json_node root, fsdp_token_model *model);
/* Replace the post-processor by the one in `root`, or by none. */
FSDP_MUST_CHECK fsdp_status fsdp_tokenizer_set_post_processor(fsdp_tokenizer *tokenizer,
                                                              fsdp_json_node root);
/* The same for the text of an object {"post_processor": ...}, which is freed. Return FSDP_ERR_NOMEM
 * if it is NULL. */
FSDP_MUST_CHECK fsdp_status fsdp_tokenizer_parse_post_processor(fsdp_tokenizer *tokenizer,
                                                                char *text);
/* Compute what depends on several parts. */
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
/* Set *name to tokenizer_class without "Fast" at its end, or to "". The text is in `buffer`. */
enum {
    FSDP_TOKENIZER_CLASS_BYTES = 64
};
FSDP_MUST_CHECK fsdp_status fsdp_tokenizer_class(const fsdp_tokenizer_files *files,
                                                 char name[FSDP_TOKENIZER_CLASS_BYTES]);
/* Add the tokens of these files and find the named ones, as transformers does. */
FSDP_MUST_CHECK fsdp_status fsdp_tokenizer_configure(fsdp_tokenizer *tokenizer,
                                                     const fsdp_tokenizer_files *files,
                                                     fsdp_json_node tokenizer_json);

/* Replace the post-processor by one that adds the bos token before and the eos token after each
 * text, if they are wanted and exist. */
FSDP_MUST_CHECK fsdp_status fsdp_tokenizer_set_bos_and_eos(fsdp_tokenizer *tokenizer, bool bos,
                                                           bool eos);

/* ---- tokenizer_family.c: tokenizers without a tokenizer.json ---- */
/* Make a tokenizer from the file tokenizer->path, and set its parts as transformers' class of the
 * family does: a SentencePiece model or tiktoken's file, vocab.txt, or vocab.json (with merges.txt
 * next to it). */
FSDP_MUST_CHECK fsdp_status fsdp_tokenizer_load_model(fsdp_tokenizer *tokenizer,
                                                      const fsdp_tokenizer_files *files);
FSDP_MUST_CHECK fsdp_status fsdp_tokenizer_load_vocab_txt(fsdp_tokenizer *tokenizer,
                                                          const fsdp_tokenizer_files *files);
FSDP_MUST_CHECK fsdp_status fsdp_tokenizer_load_vocab_json(fsdp_tokenizer *tokenizer,
                                                           const fsdp_tokenizer_files *files);
