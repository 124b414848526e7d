/* The model of a tokenizer: splits one piece of normalised text into tokens of a vocabulary. BPE,
 * WordPiece, Unigram and WordLevel are models, as in the tokenizers library. A model knows nothing
 * of the steps before it (added tokens, normalizer, pre-tokenizer) and after it (post-processor,
 * decoder).
 *
 * A model does not change after it was loaded, so several threads may use it at the same time. What
 * one thread needs while it encodes (queues, a cache of words) is in a fsdp_token_work.
 *
 * Models are made by fsdp_token_model_from_json() (model_json.h) and by the loaders of files in
 * bpe.h, wordpiece.h, tiktoken.h and sentencepiece_model.h. */
#pragma once
#include <fsdp/text.h>

/* A token, and the part of a piece of text that became this token. */
typedef struct fsdp_token_span {
    int32_t id;
    uint32_t begin, end; /* the bytes [begin, end) of the piece. See Note [Offsets of bytes] */
} fsdp_token_span;

/* Note [Offsets of bytes]. Spans are those of the tokenizers library, whose models differ:
 * - Unigram with byte fallback: all tokens of an unknown text have the bytes of the whole text.
 * - BPE with byte fallback: each token has one byte, also if this is a part of a character.
 * - BPE without an unknown token leaves out characters that the vocabulary does not contain. The
 *   spans of the tokens after such a character begin and end too early by its length.
 * Everywhere else, the spans of a piece follow one another without gaps. A span that ends beyond
 * its piece in the tokenizers library ends with the piece here. */

/* Initialise with {0}. */
typedef struct fsdp_token_spans {
    fsdp_token_span *items;
    size_t len, cap;
} fsdp_token_spans;

void fsdp_token_spans_fini(fsdp_token_spans *spans);

enum {
    FSDP_TOKEN_PIECE_MAX = INT32_MAX /* largest length of a piece in bytes */
};

typedef struct fsdp_token_work fsdp_token_work;

typedef struct fsdp_token_model fsdp_token_model;
struct fsdp_token_model {
    const struct fsdp_token_model_ops *ops;
    /* Differs for models that split pieces differently. A fsdp_token_work recognises by it whether
     * the words of its cache were split by this model. */
    uint64_t fingerprint;
};

/* The functions of a kind of model. */
typedef struct fsdp_token_model_ops {
    const char *type; /* its name in tokenizer.json: "BPE", "WordPiece", "Unigram", "WordLevel" */
    /* Append the tokens of `piece` [length], 0 < length <= FSDP_TOKEN_PIECE_MAX, well-formed UTF-8
     * unless the model works on bytes (fsdp_bpe_options.raw_bytes). The time is at most
     * proportional to length * log(length). If this fails, the list is unchanged. */
    fsdp_status (*encode)(const fsdp_token_model *model, fsdp_token_work *work, const char *piece,
                          size_t length, fsdp_token_spans *spans);
    /* Like encode(), but append only the ids, which is faster. */
    fsdp_status (*encode_ids)(const fsdp_token_model *model, fsdp_token_work *work,
                              const char *piece, size_t length, fsdp_token_list *list);
    /* Return the id of the token `text` [length], or -1. */
    int32_t (*id_of)(const fsdp_token_model *model, const char *text, size_t length);
    /* Return the text of a token and set *length; NULL if the model has no token with this id. The
     * text belongs to the model and ends in NUL. Here and in id_of, texts are spelled as in the
     * vocabulary, also if the model works on bytes: fsdp_byte_alphabet_to_bytes() converts them to
     * bytes for a decoder. */
    const char *(*text_of)(const fsdp_token_model *model, int32_t id, size_t *length);
    /* Return the largest id + 1. */
    int32_t (*size)(const fsdp_token_model *model);
    /* Return the id of the unknown token, or -1 if there is none. */
    int32_t (*unk_id)(const fsdp_token_model *model);
    void (*destroy)(fsdp_token_model *model); /* `model` is not NULL */
} fsdp_token_model_ops;

/* Accepts NULL. */
void fsdp_token_model_destroy(fsdp_token_model *model);

/* Create the scratch memory and the cache of words that one thread needs to encode with any model.
 * The cache has a bounded size. A fsdp_token_work may be used with several models in turn, but each
 * change of the model empties the cache. */
FSDP_MUST_CHECK fsdp_status fsdp_token_work_create(fsdp_token_work **out);
void fsdp_token_work_destroy(fsdp_token_work *work); /* accepts NULL */
