/* Reads a SentencePiece model (spiece.model, tokenizer.model) without libsentencepiece. The file is
 * a ModelProto of sentencepiece_model.proto in Protocol Buffers' encoding. */
#pragma once
#include "src/text/models/token_model.h"

typedef enum fsdp_sentencepiece_type {
    FSDP_PIECE_NORMAL = 1,
    FSDP_PIECE_UNKNOWN = 2,
    FSDP_PIECE_CONTROL = 3, /* <s>, </s>, <pad> */
    FSDP_PIECE_USER_DEFINED = 4,
    FSDP_PIECE_UNUSED = 5,
    FSDP_PIECE_BYTE = 6, /* a byte piece, such as <0x0A> */
} fsdp_sentencepiece_type;

typedef struct fsdp_sentencepiece_entry {
    /* [length], UTF-8; points into the contents of the file, so it does not end with NUL */
    const char *text;
    size_t length;
    float score;
    fsdp_sentencepiece_type type;
} fsdp_sentencepiece_entry;

/* The parsed contents of a file. All texts point into the contents of the file. */
typedef struct fsdp_sentencepiece_spec {
    fsdp_sentencepiece_entry *pieces; /* owned; the index is the id */
    size_t count, cap;
    bool is_bpe; /* true: BPE; false: Unigram. fsdp_sentencepiece_parse() refuses other types. */
    bool byte_fallback;
    bool treat_whitespace_as_suffix;
    int32_t unk_id; /* the id of the piece whose type is unknown */
    /* ids of the control pieces that trainer_spec names, usually <s>, </s> and <pad>; -1: there is
     * no such piece */
    int32_t bos_id, eos_id, pad_id;
    /* normalizer_spec */
    const char *normalizer_name; /* [normalizer_name_length], for example "nmt_nfkc" */
    size_t normalizer_name_length;
    const char *precompiled_charsmap; /* [charsmap_bytes]; NULL if it is empty */
    size_t charsmap_bytes;
    bool add_dummy_prefix, remove_extra_whitespaces, escape_whitespaces;
} fsdp_sentencepiece_spec;

/* Parse `model` [bytes], the contents of a file. *out points into `model`, so `model` must stay
 * valid until fsdp_sentencepiece_spec_fini(). Error messages call the file `name`. */
FSDP_MUST_CHECK fsdp_status fsdp_sentencepiece_parse(const char *name, const void *model,
                                                     size_t bytes, fsdp_sentencepiece_spec *out);
void fsdp_sentencepiece_spec_fini(fsdp_sentencepiece_spec *spec); /* accepts {0} */

/* Create the Unigram or BPE model, in the same way as AutoTokenizer of transformers converts the
 * file. All pieces are in the vocabulary. Pieces contain U+2581 instead of spaces, so a
 * pre-tokenizer (Metaspace) must replace the spaces of a text by U+2581. The caller must add the
 * user-defined pieces as added tokens, because these are found in a text before the model sees it.
 * The scores of a Unigram model are those of the file, as double. A BPE model merges two adjacent
 * normal pieces if they form a normal piece: first the pair whose result has the highest score and,
 * if several pairs have this score, the leftmost, like libsentencepiece. */
FSDP_MUST_CHECK fsdp_status fsdp_sentencepiece_model_create(const fsdp_sentencepiece_spec *spec,
                                                            fsdp_token_model **out);
