/* Byte pair encoding (Sennrich et al., "Neural Machine Translation of Rare Words with Subword
 * Units", ACL 2016), with the same ids as in the tokenizers library. A piece is split into
 * characters or bytes. Then pairs of adjacent tokens are merged, one after the other, until no two
 * adjacent tokens have a merge. The next pair is always the one whose merge has the lowest rank. If
 * several pairs have this rank, the leftmost of them is next. */
#pragma once
#include "src/text/models/token_model.h"
#include "src/text/models/vocabulary.h"

/* The fields of a BPE model in tokenizer.json. */
typedef struct fsdp_bpe_options {
    const char *unk_token; /* text of the unknown token. NULL: unknown characters are left out */
    /* put before every token that does not begin a word; NULL or "": none */
    const char *continuing_subword_prefix;
    /* put after the last token of a word; NULL or "": none */
    const char *end_of_word_suffix;
    /* true: adjacent unknown characters together become one unknown token */
    bool fuse_unk;
    /* an unknown character becomes byte pieces such as "<0x0A>", if the vocabulary has one for each
     * of the character's bytes */
    bool byte_fallback;
    bool ignore_merges; /* a piece that is itself a token becomes that token, without any merge */
    /* true: a piece is raw bytes, but the vocabulary spells bytes in GPT-2's alphabet
     * (byte_alphabet.h). The ids are the same as those that the tokenizers library finds for the
     * spelled piece. Spans count the bytes of the raw piece. */
    bool raw_bytes;
} fsdp_bpe_options;

typedef struct fsdp_bpe_merge {
    int32_t left, right, result;
    uint32_t rank; /* lower ranks come first. Several merges may have the same rank */
} fsdp_bpe_merge;

/* Create a model. It takes ownership of `vocabulary`, even on failure. If several merges have the
 * same left and right token, the last of them is used. */
FSDP_MUST_CHECK fsdp_status fsdp_bpe_create(fsdp_vocabulary *vocabulary,
                                            const fsdp_bpe_merge *merges, size_t count,
                                            const fsdp_bpe_options *options,
                                            fsdp_token_model **out);

/* Set *merge to the merge of the tokens with the texts `left` and `right`. The result of the merge
 * is the token whose text is `left` followed by `right` without the continuing_subword_prefix.
 * Return FSDP_ERR_FORMAT if one of these three tokens is not in the vocabulary; the message
 * contains its text. */
FSDP_MUST_CHECK fsdp_status fsdp_bpe_find_merge(const fsdp_vocabulary *vocabulary,
                                                const fsdp_bpe_options *options, const char *left,
                                                size_t left_length, const char *right,
                                                size_t right_length, uint32_t rank,
                                                fsdp_bpe_merge *merge);

/* Load a vocab.json, which is an object that maps texts to ids, and a merges.txt, which has a line
 * "left right" for each merge, in the order of the ranks. Lines of merges.txt that begin with
 * "#version" are skipped. */
FSDP_MUST_CHECK fsdp_status fsdp_bpe_load(const char *vocab_path, const char *merges_path,
                                          const fsdp_bpe_options *options, fsdp_token_model **out);
