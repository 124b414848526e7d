/* The model of a tokenizer: splits a piece of text into tokens of a vocabulary. As in the
 * tokenizers library, the models are BPE, WordPiece, Unigram and WordLevel. Before the model, added
 * tokens are found, the normalizer changes the text, and the pre-tokenizer splits it into pieces.
 * After the model come the post-processor and the decoder. The model does not depend on these
 * parts.
 *
 * A model does not change after it has been loaded, so several threads may use it at the same time.
 * The memory that a thread needs to encode (queues, a cache of words) is in a fsdp_token_work.
 *
 * Models are created by fsdp_token_model_from_json() (model_json.h) and by the functions in bpe.h,
 * wordpiece.h, tiktoken.h and sentencepiece_model.h that load files. */
#pragma once
#include <fsdp/text.h>

/* A token, and the part of a piece of text that became this token. */
typedef struct fsdp_token_span {
    int32_t id;
    uint32_t begin, end; /* bytes [begin, end) of the piece; see Note [Offsets of bytes] */
} fsdp_token_span;

/* Note [Offsets of bytes]. Spans are the same as in the tokenizers library. In general, the spans
 * of a piece follow one another without gaps. There are three exceptions:
 * - Unigram with byte fallback: if an unknown text becomes several byte pieces, each of them has
 *   the span of the whole text.
 * - BPE with byte fallback: each byte piece has the span of its byte, even if the byte is only a
 *   part of a character.
 * - BPE without an unknown token leaves out characters that the vocabulary does not contain. The
 *   spans of the tokens after such a character are too low by the character's length. If a span of
 *   the tokenizers library ends beyond the end of its piece, it ends at the end of the piece
 *   here. */

/* A list of spans. Initialize it with {0}. */
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
    /* A number that differs between models that split pieces differently. A fsdp_token_work
     * compares it to find out whether the words in its cache were split by this model. */
    uint64_t fingerprint;
};

/* The functions of one kind of model. */
typedef struct fsdp_token_model_ops {
    const char *type; /* its name in tokenizer.json: "BPE", "WordPiece", "Unigram", "WordLevel" */
    /* Append the tokens of `piece` [length], 0 < length <= FSDP_TOKEN_PIECE_MAX. The piece must be
     * well-formed UTF-8, unless the model works on bytes (fsdp_bpe_options.raw_bytes). The time is
     * at most proportional to length * log(length). If this fails, *spans is unchanged. */
    fsdp_status (*encode)(const fsdp_token_model *model, fsdp_token_work *work, const char *piece,
                          size_t length, fsdp_token_spans *spans);
    /* Like encode(), but append only the ids, which is faster. */
    fsdp_status (*encode_ids)(const fsdp_token_model *model, fsdp_token_work *work,
                              const char *piece, size_t length, fsdp_token_list *list);
    /* Return the id of the token whose text is `text` [length], or -1 if there is none. */
    int32_t (*id_of)(const fsdp_token_model *model, const char *text, size_t length);
    /* Return the text of a token and set *length. Return NULL if the model has no token with this
     * id. The text belongs to the model and ends with NUL. In text_of() and id_of(), a text is
     * spelled as in the vocabulary. For a model that works on bytes, this is the spelling in
     * GPT-2's alphabet, which fsdp_byte_alphabet_to_bytes() converts to bytes. */
    const char *(*text_of)(const fsdp_token_model *model, int32_t id, size_t *length);
    /* Return the largest id of a token, + 1. */
    int32_t (*size)(const fsdp_token_model *model);
    /* Return the id of the unknown token, or -1 if there is none. */
    int32_t (*unk_id)(const fsdp_token_model *model);
    void (*destroy)(fsdp_token_model *model); /* `model` is not NULL */
} fsdp_token_model_ops;

/* Destroy a model. Accepts NULL. */
void fsdp_token_model_destroy(fsdp_token_model *model);

/* Create the scratch memory and the cache of words that one thread needs to encode. The size of the
 * cache is bounded. A fsdp_token_work may be used with several models in turn, but each change of
 * the model empties the cache. */
FSDP_MUST_CHECK fsdp_status fsdp_token_work_create(fsdp_token_work **out);
void fsdp_token_work_destroy(fsdp_token_work *work); /* accepts NULL */
