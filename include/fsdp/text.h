/**
 * @file
 * Tokenizers convert text to ids and back, like transformers' T5Tokenizer and LlamaTokenizer (Llama
 * 2).
 *
 * The pieces of a tokenizer come from a SentencePiece model: T5's spiece.model (unigram) or Llama
 * 2's tokenizer.model (BPE with byte fallback). The ids of T5's sentinels <extra_id_0> ..
 * <extra_id_99> come after the ids of the pieces, in descending order: with 32,000 pieces,
 * <extra_id_0> is 32099 and <extra_id_99> is 32000. An open tokenizer does not change, so several
 * threads may use it at the same time.
 */
#pragma once
#include <stddef.h>
#include <stdint.h>

#include <fsdp/base.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fsdp_tokenizer fsdp_tokenizer;

/** A list of ids that grows as needed. Initialise it with {0}. A loop over texts can use the same
 * list for all texts. The list then seldom allocates memory. */
typedef struct fsdp_token_list {
    int32_t *ids;
    size_t len, cap; /**< len: number of ids in the list; cap: number of ids for which there is
                          memory */
} fsdp_token_list;

/** Replace the contents of the list by a copy of ids [count]. On FSDP_ERR_NOMEM, the list is
 * unchanged. */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_token_list_set(fsdp_token_list *list, const int32_t *ids,
                                                         size_t count);
/** Free the memory of the list and empty it. */
FSDP_API void fsdp_token_list_fini(fsdp_token_list *list);

/** Flags of fsdp_tokenizer_decode(). */
enum {
    FSDP_DECODE_SKIP_SPECIAL = 1, /**< leave out <s>, </s>, <pad>, <unk> and <extra_id_*> */
    FSDP_DECODE_SKIP_UNKNOWN = 2, /**< leave out ids outside [0, vocab_size), as the tokenizers
                                       library does. A model with a padded vocabulary (T5's 32128)
                                       may generate such ids */
};

/**
 * Open a tokenizer of T5 or Llama 2.
 *
 * If the model is unigram (T5), the number of sentinels is extra_ids in a tokenizer_config.json
 * next to the model, or 100 if that file or key is missing. Llama 3's tokenizer.model is not a
 * SentencePiece model and is not supported. Added tokens are tokens that a tokenizer_config.json or
 * added_tokens.json adds to the model. A text that contains an added token cannot be encoded,
 * unless that token is also a special token or a piece of the model.
 *
 * @param path a spiece.model or tokenizer.model, or a folder with one of these files (a Hugging
 *             Face model directory)
 * @param out  new tokenizer, closed with fsdp_tokenizer_close()
 * @return FSDP_ERR_NOT_FOUND if `path` does not exist or the folder has no model;
 *         FSDP_ERR_UNSUPPORTED if the folder has only a tokenizer.json, or if the model is neither
 *         unigram nor BPE; FSDP_ERR_FORMAT if the file is not a SentencePiece model, or if the
 *         model has no </s> or no <unk>.
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_tokenizer_open(const char *path, fsdp_tokenizer **out);

/** Accepts NULL. */
FSDP_API void fsdp_tokenizer_close(fsdp_tokenizer *tokenizer);

/**
 * Append the ids of a text and </s> to `list`.
 *
 * A special token in the text (e.g. </s> or <extra_id_7>) becomes its id. The parts of the text
 * between special tokens are encoded separately.
 *
 * @param text       [length] bytes of UTF-8; need not end in NUL
 * @param max_length largest number of ids to append, including </s>. If the text has more than
 *                   max_length - 1 ids, the rest is left out. 0: no limit
 * @return FSDP_ERR_INVALID if the text is not UTF-8 or max_length is negative; FSDP_ERR_UNSUPPORTED
 *         if the text contains an added token (see fsdp_tokenizer_open()). After an error, the list
 *         has the same ids as before
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_tokenizer_encode(const fsdp_tokenizer *tokenizer,
                                                           const char *text, size_t length,
                                                           int max_length, fsdp_token_list *list);

/**
 * T5Tokenizer.decode(..., clean_up_tokenization_spaces=False): convert ids to text.
 *
 * @param ids   [count]
 * @param flags FSDP_DECODE_*, or 0
 * @param text  out: NUL-terminated, freed with fsdp_text_free()
 * @return FSDP_ERR_INVALID if an id is outside [0, vocab_size) and FSDP_DECODE_SKIP_UNKNOWN is not
 *         set
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_tokenizer_decode(const fsdp_tokenizer *tokenizer,
                                                           const int32_t *ids, size_t count,
                                                           unsigned flags, char **text);

/** Free a text that this library returned. Accepts NULL. */
FSDP_API void fsdp_text_free(char *text);

/** Return the number of pieces and sentinels together: 32,100 for T5. The vocab_size of a model may
 * be larger (T5: 32,128), but not smaller. */
FSDP_API int32_t fsdp_tokenizer_vocab_size(const fsdp_tokenizer *tokenizer);
/** Return the number of sentinels <extra_id_0>, <extra_id_1>, ...; T5: 100. The sentinels have the
 * largest ids, in descending order. */
FSDP_API int32_t fsdp_tokenizer_extra_ids(const fsdp_tokenizer *tokenizer);
/** Return the id of <s>; Llama: 1. Return -1 if the tokenizer has no <s> (T5), or if add_bos_token
 * in its tokenizer_config.json is false. fsdp_tokenizer_encode() does not add <s>. To let a model
 * continue a text, the caller must put <s> before the text. */
FSDP_API int32_t fsdp_tokenizer_bos_id(const fsdp_tokenizer *tokenizer);
/** Return the id of <pad>, or -1 if the tokenizer has none; T5: 0, which is also the decoder's
 * first input. */
FSDP_API int32_t fsdp_tokenizer_pad_id(const fsdp_tokenizer *tokenizer);
/** Return the id of </s>; T5: 1. */
FSDP_API int32_t fsdp_tokenizer_eos_id(const fsdp_tokenizer *tokenizer);
/** Return the id of <unk>; T5: 2. */
FSDP_API int32_t fsdp_tokenizer_unk_id(const fsdp_tokenizer *tokenizer);
/** Return the path of the SentencePiece model that was opened, so that it can be copied next to a
 * saved model; borrowed. */
FSDP_API const char *fsdp_tokenizer_path(const fsdp_tokenizer *tokenizer);

#ifdef __cplusplus
}
#endif
