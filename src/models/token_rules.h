/* Reads those settings of generation_config.json that are lists: ids that must not be generated,
 * ids that must be generated, and texts that end a sequence. The settings have the names and
 * meanings of transformers' GenerationConfig. The arrays have fixed sizes, so that a configuration
 * can be copied. */
#pragma once
#include <fsdp/base.h>

#include "src/base/json.h"

enum {
    FSDP_MAX_RULE_IDS = 1024,
    FSDP_MAX_STOP_BYTES = 4096,
    FSDP_END_OF_WORD = -1 /* ends each sequence of fsdp_rule_words */
};

typedef struct fsdp_rule_ids {
    int32_t ids[FSDP_MAX_RULE_IDS];
    int32_t n;
} fsdp_rule_ids;

/* Sequences of ids, each followed by FSDP_END_OF_WORD. */
typedef struct fsdp_rule_words {
    int32_t ids[4 * FSDP_MAX_RULE_IDS];
    int32_t n; /* number of elements in `ids`, including the FSDP_END_OF_WORDs */
} fsdp_rule_words;

/* The setting sequence_bias: sequences of ids, and a number for each. */
typedef struct fsdp_rule_biases {
    fsdp_rule_words words;
    /* [n] one number for each sequence. It is added to the score of the sequence's last id when the
     * ids before this one have just been generated. */
    float biases[FSDP_MAX_RULE_IDS];
    int32_t n; /* number of sequences */
} fsdp_rule_biases;

/* Texts, each followed by a NUL. */
typedef struct fsdp_rule_texts {
    char bytes[FSDP_MAX_STOP_BYTES];
    int32_t n_bytes; /* number of bytes, including the NULs */
} fsdp_rule_texts;

/* The setting exponential_decay_length_penalty, which is the list [start, factor]. */
typedef struct fsdp_length_decay {
    /* the scores of the end-of-sequence ids are raised only after this number of new ids */
    int64_t start;
    /* after `start + i` new ids, |score| * (factor^i - 1) is added to a score; 0: the setting is
     * not used */
    double factor;
} fsdp_length_decay;

/* Each of the functions fsdp_..._read() below sets *out to the value of `key` in `root`. If the key
 * is absent or null, *out is unchanged. Error messages contain file, key and value. */

/* The value must be an id, or a list of ids. */
FSDP_MUST_CHECK fsdp_status fsdp_rule_ids_read(fsdp_json_node root, const char *key,
                                               fsdp_rule_ids *out);
/* The value must be a list of lists of ids. */
FSDP_MUST_CHECK fsdp_status fsdp_rule_words_read(fsdp_json_node root, const char *key,
                                                 fsdp_rule_words *out);
/* The value must be a list of pairs. A pair is a list of ids and a number, for example [[[1, 2],
 * -3.5], [[4], 1.0]]. If a list of ids occurs several times, its last number counts, as in
 * transformers. */
FSDP_MUST_CHECK fsdp_status fsdp_rule_biases_read(fsdp_json_node root, const char *key,
                                                  fsdp_rule_biases *out);
/* The value must be a text, or a list of texts. An empty text is an error, because every generated
 * text contains the empty text. */
FSDP_MUST_CHECK fsdp_status fsdp_rule_texts_read(fsdp_json_node root, const char *key,
                                                 fsdp_rule_texts *out);
FSDP_MUST_CHECK fsdp_status fsdp_length_decay_read(fsdp_json_node root, const char *key,
                                                   fsdp_length_decay *out);

/* Append a text of `length` bytes. Return FSDP_ERR_INVALID if it is empty or contains NUL, and
 * FSDP_ERR_UNSUPPORTED if it does not fit into texts->bytes. */
FSDP_MUST_CHECK fsdp_status fsdp_rule_texts_add(fsdp_rule_texts *texts, const char *text,
                                                size_t length);
/* Return FSDP_ERR_INVALID if one of the ids is not below vocab_size. The error message contains
 * `key`. */
FSDP_MUST_CHECK fsdp_status fsdp_rule_ids_check(const char *key, const int32_t *ids, int32_t n,
                                                int64_t vocab_size);
