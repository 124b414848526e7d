/**
 * @file
 * Tokenizers: text to ids and back, as transformers' T5Tokenizer and LlamaTokenizer (Llama 2) do
 * it.
 *
 * The pieces are SentencePiece's (T5's spiece.model, unigram; Llama 2's tokenizer.model, BPE with
 * byte fallback); T5's sentinels <extra_id_0> .. <extra_id_99> lie
 * above them in falling order, so that with 32,000 pieces <extra_id_0> is 32099 and <extra_id_99>
 * is 32000. A tokenizer is constant once open: any number of threads may use one at a time.
 */
#pragma once
#include <stddef.h>
#include <stdint.h>

#include <fsdp/base.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fsdp_tokenizer fsdp_tokenizer;

/** A growing list of ids. Start with {0}; kept and reused by the caller, so that a loop over texts
 * does not allocate. */
typedef struct fsdp_token_list {
    int32_t *ids;
    size_t len, cap; /**< ids in use, ids that fit */
} fsdp_token_list;

/** Replace what the list holds by a copy of ids [count]. FSDP_ERR_NOMEM leaves it as it was. */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_token_list_set(fsdp_token_list *list, const int32_t *ids,
                                                         size_t count);
/** Free what the list holds and empty it. */
FSDP_API void fsdp_token_list_fini(fsdp_token_list *list);

/** Flags of fsdp_tokenizer_decode(). */
enum {
    FSDP_DECODE_SKIP_SPECIAL = 1, /**< leave out <pad>, </s>, <unk> and the <extra_id_*> */
    FSDP_DECODE_SKIP_UNKNOWN = 2, /**< leave out ids that are no token, as tokenizers does: a model
                                       whose vocabulary is padded (T5's 32128) may generate them */
};

/**
 * Open a tokenizer of T5 or Llama 2.
 *
 * The number of T5's sentinels is extra_ids of a tokenizer_config.json beside the model, 100
 * without one. Llama 3's tokenizer.model, of another format, is not read. Tokens that the
 * tokenizer_config.json or an added_tokens.json adds to the model's are known, but not encoded.
 *
 * @param path a folder that holds spiece.model or tokenizer.model (a Hugging Face model directory),
 *             or such a file
 * @param out  new tokenizer, ended by fsdp_tokenizer_close()
 * @return FSDP_ERR_NOT_FOUND if there is neither folder nor file; FSDP_ERR_UNSUPPORTED if the
 * folder holds only a tokenizer.json, or the model is neither unigram nor BPE; FSDP_ERR_FORMAT if
 *         the file is no SentencePiece model or lacks </s> or <unk>.
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_tokenizer_open(const char *path, fsdp_tokenizer **out);

/** Accepts NULL. */
FSDP_API void fsdp_tokenizer_close(fsdp_tokenizer *tokenizer);

/**
 * Append the ids of a text and </s> to `list`.
 *
 * Special tokens written in the text (<pad>, </s>, <unk>, <extra_id_7>) become their ids; the text
 * around them is encoded piece by piece, each part as if it stood alone.
 *
 * @param text       [length] bytes of UTF-8; need not end in NUL
 * @param max_length most ids to append, </s> included: the text's own ids are cut to max_length -
 * 1; 0: no limit
 * @return FSDP_ERR_INVALID if the text is not UTF-8 (naming the byte) or max_length is negative;
 *         FSDP_ERR_UNSUPPORTED if it has an added token (see fsdp_tokenizer_open()). The list is
 *         then unchanged
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_tokenizer_encode(const fsdp_tokenizer *tokenizer,
                                                           const char *text, size_t length,
                                                           int max_length, fsdp_token_list *list);

/**
 * The text of ids, as T5Tokenizer.decode(..., clean_up_tokenization_spaces=False) gives it.
 *
 * @param ids   [count]
 * @param flags FSDP_DECODE_*, or 0
 * @param text  out: NUL-terminated, freed with fsdp_text_free()
 * @return FSDP_ERR_INVALID naming an id outside [0, vocab_size), unless FSDP_DECODE_SKIP_UNKNOWN
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_tokenizer_decode(const fsdp_tokenizer *tokenizer,
                                                           const int32_t *ids, size_t count,
                                                           unsigned flags, char **text);

/** Free a text that this library returned. Accepts NULL. */
FSDP_API void fsdp_text_free(char *text);

/** Pieces and sentinels: 32,100 for T5. A model's vocab_size may be larger (32,128), never smaller.
 */
FSDP_API int32_t fsdp_tokenizer_vocab_size(const fsdp_tokenizer *tokenizer);
/** How many of these are sentinels, T5's <extra_id_0> ...: the last ids, counting down; T5: 100. */
FSDP_API int32_t fsdp_tokenizer_extra_ids(const fsdp_tokenizer *tokenizer);
/** Id of the <s> that a text to be continued begins with; Llama: 1. -1 if the model has none, as
 * T5's, or add_bos_token of its tokenizer_config.json is false. Encoding does not put it. */
FSDP_API int32_t fsdp_tokenizer_bos_id(const fsdp_tokenizer *tokenizer);
/** Id of <pad>, or -1 if the model has none; T5: 0, which also starts the decoder. */
FSDP_API int32_t fsdp_tokenizer_pad_id(const fsdp_tokenizer *tokenizer);
/** Id of </s>; T5: 1. */
FSDP_API int32_t fsdp_tokenizer_eos_id(const fsdp_tokenizer *tokenizer);
/** Id of <unk>; T5: 2. */
FSDP_API int32_t fsdp_tokenizer_unk_id(const fsdp_tokenizer *tokenizer);
/** The spiece.model that was opened, to be copied beside a saved model; borrowed. */
FSDP_API const char *fsdp_tokenizer_path(const fsdp_tokenizer *tokenizer);

#ifdef __cplusplus
}
#endif
