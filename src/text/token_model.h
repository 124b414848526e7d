/* The model of a tokenizer: splits one piece of normalised text into tokens of a vocabulary. BPE,
 * WordPiece, Unigram and WordLevel are models, as in the tokenizers library. What happens before
 * (added tokens, normalizer, pre-tokenizer) and after (post-processor, decoder) is not known here.
 *
 * A model does not change after it was loaded, so several threads may use it at the same time. What
 * one thread needs while it encodes (queues, a cache of words) is in a fsdp_token_work. */
#pragma once
#include <fsdp/text.h>

/* One token of a piece. */
typedef struct fsdp_token_span {
    int32_t id;
    uint32_t begin, end; /* its bytes in the piece: [begin, end). With byte fallback, the tokens of
                            one character all have the bytes of that character */
} fsdp_token_span;

/* Initialise with {0}. */
typedef struct fsdp_token_spans {
    fsdp_token_span *items;
    size_t len, cap;
} fsdp_token_spans;

void fsdp_token_spans_fini(fsdp_token_spans *spans);

typedef struct fsdp_token_work fsdp_token_work;

typedef struct fsdp_token_model fsdp_token_model;
struct fsdp_token_model {
    const struct fsdp_token_model_ops *ops;
};

/* The functions of a kind of model. */
typedef struct fsdp_token_model_ops {
    const char *type; /* its name in tokenizer.json: "BPE", "WordPiece", "Unigram", "WordLevel" */
    /* Append the tokens of `piece` [length], length > 0, well-formed UTF-8 unless the model works
     * on bytes (fsdp_bpe_options.raw_bytes). The time is at most proportional to length *
     * log(length). */
    fsdp_status (*encode)(const fsdp_token_model *model, fsdp_token_work *work, const char *piece,
                          size_t length, fsdp_token_spans *spans);
    /* Return the id of the token `text` [length], or -1. */
    int32_t (*id_of)(const fsdp_token_model *model, const char *text, size_t length);
    /* Return the text of a token and set *length; NULL if the model has no token with this id.
     * The text is the model's and ends in NUL. */
    const char *(*text_of)(const fsdp_token_model *model, int32_t id, size_t *length);
    /* Return the largest id + 1. */
    int32_t (*size)(const fsdp_token_model *model);
    /* Return the id for what the vocabulary does not contain, or -1 if there is none. */
    int32_t (*unk_id)(const fsdp_token_model *model);
    void (*destroy)(fsdp_token_model *model);
} fsdp_token_model_ops;

/* What one thread needs to encode with any model. Its cache of words has a bounded size. */
FSDP_MUST_CHECK fsdp_status fsdp_token_work_create(fsdp_token_work **out);
void fsdp_token_work_destroy(fsdp_token_work *work); /* accepts NULL */
