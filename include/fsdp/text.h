/**
 * @file
 * Tokenizers convert text to ids and back. The ids are the same as those of the fast tokenizers of
 * transformers (the tokenizers library).
 *
 * A tokenizer is read from a tokenizer.json, or from one of the older kinds of files: a
 * SentencePiece model (T5's spiece.model, Llama 2's tokenizer.model), tiktoken's file (Llama 3's
 * tokenizer.model), vocab.json with merges.txt (GPT-2) or vocab.txt (BERT).
 *
 * An open tokenizer does not change, so several threads may use it at the same time.
 */
#pragma once
#include <stddef.h>
#include <stdint.h>

#include <fsdp/base.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fsdp_tokenizer fsdp_tokenizer;

/** A list of ids that grows as needed. Initialize it with {0}. A loop over texts can use the same
 * list for all texts. The list then seldom allocates memory. */
typedef struct fsdp_token_list {
    int32_t *ids;
    size_t len, cap; /**< len: number of ids in the list; cap: number of ids that its memory can
                          hold */
} fsdp_token_list;

/** Replace the contents of the list by a copy of ids [count]. On FSDP_ERR_NOMEM, the list is
 * unchanged. */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_token_list_set(fsdp_token_list *list, const int32_t *ids,
                                                         size_t count);
/** Free the memory of the list and empty it. */
FSDP_API void fsdp_token_list_fini(fsdp_token_list *list);

/* ---- opening ---- */

/**
 * Open a tokenizer.
 *
 * A folder is searched for tokenizer.json, spiece.model, tokenizer.model, vocab.json with
 * merges.txt, and vocab.txt, in this order. tokenizer_config.json, special_tokens_map.json and
 * added_tokens.json next to the file are read as transformers reads them: they add tokens, name the
 * special ones, and say whether a text begins with <s> (add_bos_token) and ends with </s>
 * (add_eos_token).
 *
 * A tokenizer.json describes all steps of encoding. A tokenizer from another file encodes like the
 * class that tokenizer_class in tokenizer_config.json names. Without that field, it encodes like T5
 * for a SentencePiece unigram model, Llama 2 for a SentencePiece BPE model, Llama 3 for tiktoken's
 * file, GPT-2 for vocab.json, and BERT for vocab.txt.
 *
 * A text that contains a special token ("</s>") gets the token's id, as in transformers, unless
 * split_special_tokens in tokenizer_config.json is true.
 *
 * @param path one of these files, or a folder with one (a Hugging Face model directory)
 * @param out  new tokenizer, closed with fsdp_tokenizer_close()
 * @return FSDP_ERR_NOT_FOUND if `path` does not exist or the folder has no such file;
 *         FSDP_ERR_UNSUPPORTED if a part of the tokenizer is not supported, or needs a library that
 *         this build does not have; FSDP_ERR_FORMAT if a file is broken, or if the file gives a
 *         token another id than the tokenizers library would. The message contains file, field and
 *         value.
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_tokenizer_open(const char *path, fsdp_tokenizer **out);

/** Accepts NULL. */
FSDP_API void fsdp_tokenizer_close(fsdp_tokenizer *tokenizer);

/* ---- encoding ---- */

/**
 * Append the ids of a text to `list`, with the special tokens that the model expects: T5 appends
 * </s>, GPT-2 nothing, Llama puts <s> before the text, and BERT [CLS] before and [SEP] after it.
 *
 * @param text       [length] bytes of UTF-8; need not end in NUL
 * @param max_length largest number of ids to append, including special tokens. If the text has more
 *                   ids, its end is left out, or its beginning if truncation_side in
 *                   tokenizer_config.json is "left". 0: no limit
 * @return FSDP_ERR_INVALID if the text is not UTF-8, or if max_length is negative or less than the
 *         number of special tokens. After an error, the list has the same ids as before
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_tokenizer_encode(const fsdp_tokenizer *tokenizer,
                                                           const char *text, size_t length,
                                                           int max_length, fsdp_token_list *list);

/** Like fsdp_tokenizer_encode(), but without adding special tokens (add_special_tokens=False). A
 * special token that the text contains still becomes its id. */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_tokenizer_encode_text(const fsdp_tokenizer *tokenizer,
                                                                const char *text, size_t length,
                                                                int max_length,
                                                                fsdp_token_list *list);

/** Which text of a pair is truncated if both together are too long, as in transformers. */
typedef enum fsdp_truncation {
    FSDP_TRUNCATION_LONGEST_FIRST, /**< remove tokens from the longer text until both are equally
                                        long, then from both */
    FSDP_TRUNCATION_ONLY_FIRST,
    FSDP_TRUNCATION_ONLY_SECOND,
} fsdp_truncation;

/** What offsets count. */
typedef enum fsdp_offset_unit {
    FSDP_OFFSETS_NONE,       /**< no offsets; this is faster */
    FSDP_OFFSETS_CHARACTERS, /**< Unicode code points, as in Python */
    FSDP_OFFSETS_BYTES,
} fsdp_offset_unit;

/** If all fields are zero, special tokens are added, the length is not limited, and no offsets are
 * returned. */
typedef struct fsdp_encode_options {
    bool no_special_tokens;
    int max_length; /**< largest length of the whole result; 0: no limit */
    fsdp_truncation truncation;
    bool truncate_left; /**< truncate a text at its beginning, not at its end. If truncation_side in
                             tokenizer_config.json is "left", this is always done */
    fsdp_offset_unit offsets;
} fsdp_encode_options;

/** A part [begin, end) of one of the texts; {0, 0} for special tokens that were added. */
typedef struct fsdp_token_offset {
    uint32_t begin, end;
} fsdp_token_offset;

/** The result for one text or a pair of texts. Initialize it with {0}. It can be used for several
 * calls. */
typedef struct fsdp_encoding {
    fsdp_token_list ids;
    int32_t *type_ids;          /**< [ids.len]: token_type_ids */
    fsdp_token_offset *offsets; /**< [ids.len] unless options.offsets is FSDP_OFFSETS_NONE */
    int8_t *texts; /**< [ids.len]: 0: first text, 1: second text, -1: special token that
                        was added */
    size_t type_ids_cap, offsets_cap, texts_cap;
} fsdp_encoding;

FSDP_API void fsdp_encoding_fini(fsdp_encoding *encoding);

/**
 * Encode a text or a pair of texts, and replace the contents of `encoding` by the result.
 *
 * @param pair    [pair_length]: the second text, or NULL
 * @param options NULL: all zero
 * @return as fsdp_tokenizer_encode(). Also FSDP_ERR_INVALID if `truncation` names one text, and the
 *         result would be longer than max_length even without all tokens of this text. After an
 *         error, the contents of `encoding` are unspecified
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_tokenizer_encode_pair(
    const fsdp_tokenizer *tokenizer, const char *text, size_t length, const char *pair,
    size_t pair_length, const fsdp_encode_options *options, fsdp_encoding *encoding);

/* ---- decoding ---- */

/** Flags of fsdp_tokenizer_decode(). */
enum {
    FSDP_DECODE_SKIP_SPECIAL = 1, /**< leave out special tokens: <s>, </s>, [CLS], <extra_id_*> */
    FSDP_DECODE_SKIP_UNKNOWN = 2, /**< leave out ids outside [0, vocab_size), as the tokenizers
                                       library does. A model with a padded vocabulary (T5's 32128)
                                       may generate such ids */
    FSDP_DECODE_CLEAN_UP = 4, /**< clean_up_tokenization_spaces=True: "a , b ." becomes "a, b.". As
                                   in transformers, this has no effect on BPE tokenizers */
    FSDP_DECODE_CONFIGURED = 8, /**< the same as FSDP_DECODE_CLEAN_UP if tokenizer_config.json has
                                     "clean_up_tokenization_spaces": true; otherwise no effect */
    /** The flags that give the text of decode(ids, skip_special_tokens=True) of transformers. */
    FSDP_DECODE_TEXT = FSDP_DECODE_SKIP_SPECIAL | FSDP_DECODE_SKIP_UNKNOWN | FSDP_DECODE_CONFIGURED
};

/**
 * Convert ids to text, as decode() of transformers does. With flags 0, the text is that of
 * clean_up_tokenization_spaces=False. NUL characters are left out of the text.
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

/* ---- properties ---- */

/** Return the largest id + 1: 32,100 for T5. The vocab_size of a model may be larger (T5: 32,128),
 * but not smaller. */
FSDP_API int32_t fsdp_tokenizer_vocab_size(const fsdp_tokenizer *tokenizer);
/** Return the number of sentinels <extra_id_0>, <extra_id_1>, ...; T5: 100. The id of sentinel i is
 * fsdp_tokenizer_first_sentinel() - i. */
FSDP_API int32_t fsdp_tokenizer_extra_ids(const fsdp_tokenizer *tokenizer);
/** Return the id of <extra_id_0>; T5: 32,099. Return -1 if there is none. */
FSDP_API int32_t fsdp_tokenizer_first_sentinel(const fsdp_tokenizer *tokenizer);

/** Return the id of the token that encoding puts before each text: <s> (1) for Llama, [CLS] for
 * BERT. Return -1 if encoding puts no token, or several tokens, before a text. */
FSDP_API int32_t fsdp_tokenizer_bos_id(const fsdp_tokenizer *tokenizer);
/** Return the id of <pad>, or -1 if the tokenizer has none; T5: 0, which is also the decoder's
 * first input. */
FSDP_API int32_t fsdp_tokenizer_pad_id(const fsdp_tokenizer *tokenizer);
/** Return the id of the token that marks the end of a text, or -1 if the tokenizer has none; T5: 1,
 * </s>; GPT-2: 50256, <|endoftext|>. Encoding appends this id only for models that expect it: see
 * fsdp_tokenizer_appends_eos(). */
FSDP_API int32_t fsdp_tokenizer_eos_id(const fsdp_tokenizer *tokenizer);
/** Return true if fsdp_tokenizer_encode() ends with the eos id (T5). */
FSDP_API bool fsdp_tokenizer_appends_eos(const fsdp_tokenizer *tokenizer);
/** Return the id of <unk>, or -1; T5: 2. */
FSDP_API int32_t fsdp_tokenizer_unk_id(const fsdp_tokenizer *tokenizer);

enum {
    FSDP_UNKNOWN_EXAMPLES = 5, /**< largest number of examples in an fsdp_unknown_examples */
    FSDP_UNKNOWN_BYTES = 32    /**< size of an example, with its NUL */
};

/** Characters and words that become the unknown token, as messages show them: "'ø'" with the
 * quotes, or "U+200B". They are normalized as the tokenizer normalizes texts. Long words are cut.
 * An empty text ends the list, unless the list is full. */
typedef struct fsdp_unknown_examples {
    char items[FSDP_UNKNOWN_EXAMPLES][FSDP_UNKNOWN_BYTES];
} fsdp_unknown_examples;

/** Return the id of a special token by its name in transformers ("bos_token", "eos_token",
 * "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"), or of any token by its text
 * ("<|im_end|>"). Return -1 if there is none. */
FSDP_API int32_t fsdp_tokenizer_token_id(const fsdp_tokenizer *tokenizer, const char *name);
/** Return the text of a token as the vocabulary spells it, NUL-terminated, or NULL if there is no
 * such id; borrowed. */
FSDP_API const char *fsdp_tokenizer_token_text(const fsdp_tokenizer *tokenizer, int32_t id);
/** Return true if FSDP_DECODE_SKIP_SPECIAL leaves out this id. */
FSDP_API bool fsdp_tokenizer_is_special(const fsdp_tokenizer *tokenizer, int32_t id);
/** Return model_max_length of tokenizer_config.json, or 0 if there is no limit. */
FSDP_API int64_t fsdp_tokenizer_model_max_length(const fsdp_tokenizer *tokenizer);
/** Return true if transformers' tokenizer(text, pair) returns token_type_ids. model_input_names in
 * tokenizer_config.json decides. If that field is missing, tokenizer_class decides: the result is
 * true for the classes of BERT's family. If both are missing, the result is true if the tokenizer
 * was read from a tokenizer.json or a vocab.txt. */
FSDP_API bool fsdp_tokenizer_returns_type_ids(const fsdp_tokenizer *tokenizer);
/** Return the path of the file that was opened; borrowed. */
FSDP_API const char *fsdp_tokenizer_path(const fsdp_tokenizer *tokenizer);

#ifdef __cplusplus
}
#endif
