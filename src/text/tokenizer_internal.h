/* The parts of a tokenizer, for the files tokenizer*.c.
 *
 * A tokenizer is a chain of parts: added tokens, normalizer, pre-tokenizer, model, post-processor,
 * decoder. src/text/models has the models and the files in which they are stored, and
 * src/text/parts has the other parts.
 *
 * How a text is encoded: First, tokenizer_encode.c finds the added tokens. The text between two of
 * them is a section. The normalizer changes each section. Then the added tokens that are searched
 * in normalized text are found in the section. The pre-tokenizer splits the rest of the section
 * into pieces, and passes each piece to the model, which appends the piece's ids. Finally, the
 * post-processor adds special tokens. Alignments with the original text are kept only if offsets
 * are wanted or if the ids depend on the alignments (always_tracked). */
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

/* The roles that transformers gives to special tokens: "bos_token" and so on. */
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

/* The memory that one thread needs to encode with a tokenizer. */
typedef struct fsdp_tokenizer_work {
    struct fsdp_tokenizer_work *next; /* the next element of fsdp_work_pool.free_works */
    fsdp_token_work *model;
    fsdp_normalizer_work *normalizer;
    fsdp_pre_tokenizer_work *pre;
    fsdp_token_spans spans;
    fsdp_token_sequence sequences[2];
} fsdp_tokenizer_work;

/* A pool of fsdp_tokenizer_work objects. free_works is a list of those that no thread uses now. */
typedef struct fsdp_work_pool {
    pthread_mutex_t mutex;
    fsdp_tokenizer_work *free_works;
} fsdp_work_pool;

struct fsdp_tokenizer {
    char *path; /* the file that contains the vocabulary */
    fsdp_char_classes *classes;
    /* NULL: the tokenizer has no normalizer; likewise, `pre`, `post` and `decoder` may be NULL */
    fsdp_normalizer *normalizer;
    fsdp_pre_tokenizer *pre;
    fsdp_post_processor *post;
    fsdp_token_decoder *decoder;
    fsdp_token_model *model;
    fsdp_added_tokens *added;
    fsdp_work_pool *pool;
    /* alignments are kept even if no offsets are wanted, because the ids depend on alignments */
    bool always_tracked;
    bool split_special_tokens, truncate_left;
    bool clean_up; /* clean_up_tokenization_spaces of tokenizer_config.json */
    /* true: clean_up applies to BPE, too (the key of tokenizer_config.json that begins with
     * clean_up_tokenization_spaces_for_bpe) */
    bool clean_up_bpe;
    bool returns_type_ids;            /* see fsdp_tokenizer_returns_type_ids() */
    int64_t model_max_length;         /* 0: no limit */
    int32_t named[FSDP_NAMED_TOKENS]; /* ids; -1: the tokenizer has no such token */
    int32_t first_sentinel, extra_ids;
};

/* ---- tokenizer_work.c ---- */
FSDP_MUST_CHECK fsdp_status fsdp_work_pool_create(fsdp_work_pool **out);
void fsdp_work_pool_destroy(fsdp_work_pool *pool); /* accepts NULL */
/* Take a fsdp_tokenizer_work from the pool. If all are in use, create one. */
FSDP_MUST_CHECK fsdp_status fsdp_work_pool_take(fsdp_work_pool *pool, fsdp_tokenizer_work **out);
void fsdp_work_pool_give(fsdp_work_pool *pool, fsdp_tokenizer_work *work);

/* ---- tokenizer_parts.c ---- */
/* Create all parts of the tokenizer from `root`, the object of a tokenizer.json. If `model` is not
 * NULL, it is the tokenizer's model, and `root` needs no "model". The tokenizer takes ownership of
 * `model`, even on failure. Set tokenizer->path before this call. After it, tokens can be added
 * until fsdp_tokenizer_finish() is called. */
FSDP_MUST_CHECK fsdp_status fsdp_tokenizer_make_parts(fsdp_tokenizer *tokenizer,
                                                      fsdp_json_node root, fsdp_token_model *model);
/* Replace the post-processor by the one in `root`, or remove it if `root` has none. */
FSDP_MUST_CHECK fsdp_status fsdp_tokenizer_set_post_processor(fsdp_tokenizer *tokenizer,
                                                              fsdp_json_node root);
/* Like fsdp_tokenizer_set_post_processor(), but parse `text`, the JSON of an object
 * {"post_processor": ...}, and free it. Return FSDP_ERR_NOMEM if `text` is NULL. */
FSDP_MUST_CHECK fsdp_status fsdp_tokenizer_parse_post_processor(fsdp_tokenizer *tokenizer,
                                                                char *text);
/* Complete the tokenizer, after its parts have been created and all tokens have been added: find
 * T5's sentinels, check the ids of the post-processor, and create the pool. */
FSDP_MUST_CHECK fsdp_status fsdp_tokenizer_finish(fsdp_tokenizer *tokenizer);

/* ---- tokenizer_config.c ---- */
/* The configuration files in the folder of the vocabulary. A file that does not exist is NULL. */
typedef struct fsdp_tokenizer_files {
    fsdp_json *config;      /* tokenizer_config.json */
    fsdp_json *special_map; /* special_tokens_map.json */
    fsdp_json *added;       /* added_tokens.json */
} fsdp_tokenizer_files;

FSDP_MUST_CHECK fsdp_status fsdp_tokenizer_files_read(const char *folder,
                                                      fsdp_tokenizer_files *files);
void fsdp_tokenizer_files_fini(fsdp_tokenizer_files *files);
enum {
    FSDP_TOKENIZER_CLASS_BYTES = 64 /* size of `name` in fsdp_tokenizer_class() */
};
/* Set `name` to the tokenizer_class in tokenizer_config.json, without "Fast" at its end, or to ""
 * if there is no tokenizer_class. */
FSDP_MUST_CHECK fsdp_status fsdp_tokenizer_class(const fsdp_tokenizer_files *files,
                                                 char name[FSDP_TOKENIZER_CLASS_BYTES]);
/* Add the tokens of `files`, and find the special tokens by their names, as transformers does.
 * tokenizer_json is the root of the tokenizer.json, or an absent node. */
FSDP_MUST_CHECK fsdp_status fsdp_tokenizer_configure(fsdp_tokenizer *tokenizer,
                                                     const fsdp_tokenizer_files *files,
                                                     fsdp_json_node tokenizer_json);

/* Replace the post-processor by one that adds the bos token before each text if `bos` is true, and
 * the eos token after each text if `eos` is true. A token that the tokenizer does not have is not
 * added. */
FSDP_MUST_CHECK fsdp_status fsdp_tokenizer_set_bos_and_eos(fsdp_tokenizer *tokenizer, bool bos,
                                                           bool eos);

/* ---- tokenizer_family.c: tokenizers without a tokenizer.json ---- */
/* Load the file tokenizer->path, and create the tokenizer's parts as the family's class in
 * transformers does. The file is a SentencePiece model or a tiktoken file for _load_model(), a
 * vocab.txt for _load_vocab_txt(), and a vocab.json with a merges.txt next to it for
 * _load_vocab_json(). */
FSDP_MUST_CHECK fsdp_status fsdp_tokenizer_load_model(fsdp_tokenizer *tokenizer,
                                                      const fsdp_tokenizer_files *files);
FSDP_MUST_CHECK fsdp_status fsdp_tokenizer_load_vocab_txt(fsdp_tokenizer *tokenizer,
                                                          const fsdp_tokenizer_files *files);
FSDP_MUST_CHECK fsdp_status fsdp_tokenizer_load_vocab_json(fsdp_tokenizer *tokenizer,
                                                           const fsdp_tokenizer_files *files);
