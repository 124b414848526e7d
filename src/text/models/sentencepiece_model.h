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
    FSDP_PIECE_BYTE = 6, /* <0x0A> */
} fsdp_sentencepiece_type;

typedef struct fsdp_sentencepiece_entry {
    const char *text; /* [length], UTF-8; a pointer into the contents of the file, without NUL */
    size_t length;
    float score;
    fsdp_sentencepiece_type type;
} fsdp_sentencepiece_entry;

/* The parsed contents of a file. Strings point into the contents that were parsed. */
typedef struct fsdp_sentencepiece_spec {
    fsdp_sentencepiece_entry *pieces; /* owned; the index is the id */
    size_t count, cap;
    bool is_bpe; /* else unigram; other types are refused */
    bool byte_fallback;
    bool treat_whitespace_as_suffix;
    int32_t unk_id;                 /* the piece of type unknown */
    int32_t bos_id, eos_id, pad_id; /* the control pieces with the names in trainer_spec, usually
                                       <s>, </s> and <pad>; -1: there is none */
    /* normalizer_spec */
    const char *normalizer_name; /* [normalizer_name_length], such as "nmt_nfkc" */
    size_t normalizer_name_length;
    const char *precompiled_charsmap; /* [charsmap_bytes]; NULL if it is empty */
    size_t charsmap_bytes;
    bool add_dummy_prefix, remove_extra_whitespaces, escape_whitespaces;
} fsdp_sentencepiece_spec;

/* Parse the contents `model` [bytes] of a file. `out` points into `model` until
 * fsdp_sentencepiece_spec_fini(). Errors call the file `name`. */
FSDP_MUST_CHECK fsdp_status fsdp_sentencepiece_parse(const char *name, const void *model,
                                                     size_t bytes, fsdp_sentencepiece_spec *out);
void fsdp_sentencepiece_spec_fini(fsdp_sentencepiece_spec *spec); /* accepts {0} */

/* Make the Unigram or BPE model, as AutoTokenizer of transformers converts the file: all pieces are
 * in the vocabulary. Pieces contain U+2581 instead of spaces. A pre-tokenizer (Metaspace) must make
 * this replacement in texts, and user-defined pieces must be added tokens, which are found in the
 * text before the model sees it. Unigram scores are the file's, as double. BPE merges two adjacent
 * normal pieces if they form a normal piece: first the pair whose result has the highest score and,
 * among equal scores, the leftmost pair, like libsentencepiece. */
FSDP_MUST_CHECK fsdp_status fsdp_sentencepiece_model_create(const fsdp_sentencepiece_spec *spec,
                                                            fsdp_token_model **out);
