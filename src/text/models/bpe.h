/* Byte pair encoding (Sennrich et al., "Neural Machine Translation of Rare Words with Subword
 * Units", ACL 2016), id for id as in the tokenizers library. A piece is split into characters or
 * bytes, and then the adjacent pair of tokens whose merge has the lowest rank is merged, the first
 * such pair if there are several, until no pair has a merge. */
#pragma once
#include "src/text/models/token_model.h"
#include "src/text/models/vocabulary.h"

/* The fields of a BPE model in tokenizer.json. */
typedef struct fsdp_bpe_options {
    const char *unk_token; /* text of the unknown token. NULL: unknown characters are left out */
    const char *continuing_subword_prefix; /* begins every token inside a word; NULL or "": none */
    const char *end_of_word_suffix;        /* ends the last token of a word; NULL or "": none */
    bool fuse_unk;                         /* one unknown token for adjacent unknown characters */
    bool byte_fallback; /* unknown characters become byte pieces ("<0x0A>"), if the vocabulary has a
                           piece for each of their bytes */
    bool ignore_merges; /* a piece that is a token becomes that token without any merge */
    /* Pieces are raw bytes, and the vocabulary spells bytes in GPT-2's alphabet (byte_alphabet.h).
     * The ids are those that the tokenizers library gives to the spelled piece, but spans count
     * bytes of the raw piece. */
    bool raw_bytes;
} fsdp_bpe_options;

typedef struct fsdp_bpe_merge {
    int32_t left, right, result;
    uint32_t rank; /* lower ranks come first. Several merges may have the same rank */
} fsdp_bpe_merge;

/* Create a model. It takes ownership of `vocabulary`, also on failure. If several merges have the
 * same left and right, the last one counts. */
FSDP_MUST_CHECK fsdp_status fsdp_bpe_create(fsdp_vocabulary *vocabulary,
                                            const fsdp_bpe_merge *merges, size_t count,
                                            const fsdp_bpe_options *options,
                                            fsdp_token_model **out);

/* Set *merge to the merge of the tokens left and right, whose result is the token with the text of
 * `left` followed by the text of `right` without the continuing_subword_prefix. Return
 * FSDP_ERR_FORMAT if one of the three is not in the vocabulary; the message contains the text. */
FSDP_MUST_CHECK fsdp_status fsdp_bpe_find_merge(const fsdp_vocabulary *vocabulary,
                                                const fsdp_bpe_options *options, const char *left,
                                                size_t left_length, const char *right,
                                                size_t right_length, uint32_t rank,
                                                fsdp_bpe_merge *merge);

/* Load vocab.json (an object from text to id) and merges.txt (a line "left right" for each merge,
 * in the order of their ranks; lines that begin with "#version" are skipped). */
FSDP_MUST_CHECK fsdp_status fsdp_bpe_load(const char *vocab_path, const char *merges_path,
                                          const fsdp_bpe_options *options, fsdp_token_model **out);
