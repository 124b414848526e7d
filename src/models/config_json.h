/* Functions that the readers and writers of config.json share. Error messages name the file, the
 * key and the value. */
#pragma once
#include <stddef.h>

#include "src/base/json.h"

/* The largest dimension that is accepted. With this limit, the product of two dimensions and the
 * size of an element stays below 2^63. */
#define FSDP_CONFIG_MAX_DIM ((int64_t)1 << 28)

/* Open `path`, which is a config.json or a directory that contains one. */
FSDP_MUST_CHECK fsdp_status fsdp_config_open(const char *path, fsdp_json **doc);

/* Report that the value of `key` is well-formed but not supported: return FSDP_ERR_UNSUPPORTED,
 * with a message that nothing but `supported` is supported. */
FSDP_MUST_CHECK fsdp_status fsdp_config_unsupported(fsdp_json_node root, const char *key,
                                                    const char *supported);
/* Get a required dimension, 1 or more. `alias`, which may be NULL, is another name of the key. If
 * the document has both keys, their values must be equal, because other programs may read either of
 * them. */
FSDP_MUST_CHECK fsdp_status fsdp_config_dim(fsdp_json_node root, const char *key, const char *alias,
                                            int64_t *value);
/* Get an optional dimension; null counts as absent. */
FSDP_MUST_CHECK fsdp_status fsdp_config_opt_dim(fsdp_json_node root, const char *key,
                                                int64_t absent, int64_t *value);
/* Get an optional number; null counts as absent. fsdp_config_probability() accepts numbers that
 * are at least 0 and below 1, fsdp_config_positive() numbers above 0, and
 * fsdp_config_not_negative() numbers that are at least 0. */
FSDP_MUST_CHECK fsdp_status fsdp_config_probability(fsdp_json_node root, const char *key,
                                                    double absent, double *value);
FSDP_MUST_CHECK fsdp_status fsdp_config_positive(fsdp_json_node root, const char *key,
                                                 double absent, double *value);
FSDP_MUST_CHECK fsdp_status fsdp_config_not_negative(fsdp_json_node root, const char *key,
                                                     double absent, double *value);
/* Get a token id below vocab_size, or `absent` if the key is missing or null. If the value is a
 * list, get its first id. */
FSDP_MUST_CHECK fsdp_status fsdp_config_token(fsdp_json_node root, const char *key,
                                              int64_t vocab_size, int64_t absent, int64_t *value);
/* Like fsdp_config_token(), but null means that there is no token (-1). If the key is missing and
 * `absent` is not below vocab_size, the result is also -1. */
FSDP_MUST_CHECK fsdp_status fsdp_config_nullable_token(fsdp_json_node root, const char *key,
                                                       int64_t vocab_size, int64_t absent,
                                                       int64_t *value);
/* Get the id of bos or eos. Like fsdp_config_nullable_token(), but an empty list means that there
 * is no token. An id outside the vocabulary is accepted, because it just never occurs. */
FSDP_MUST_CHECK fsdp_status fsdp_config_end_token(fsdp_json_node root, const char *key,
                                                  int64_t vocab_size, int64_t absent,
                                                  int64_t *value);
/* If the document has the boolean `key`, check that it is `value`. With the other value, the model
 * would compute something that is not supported. */
FSDP_MUST_CHECK fsdp_status fsdp_config_must_be(fsdp_json_node root, const char *key, bool value);
/* Get the dtype from "dtype" or "torch_dtype"; float32 if the document has neither. */
FSDP_MUST_CHECK fsdp_status fsdp_config_dtype(fsdp_json_node root, fsdp_dtype *dtype);
/* Refuse keys that would change what a model computes and that no model supports:
 * quantization_config, pruned_heads. */
FSDP_MUST_CHECK fsdp_status fsdp_config_refuse_unsupported(fsdp_json_node root);

/* --- tables of required dimensions --- */
typedef struct fsdp_config_field {
    const char *key, *alias; /* alias: transformers' general name (attribute_map), or NULL */
    size_t offset;           /* offset of the dimension, an int64_t, in the model's struct */
} fsdp_config_field;
/* Read each dimension as fsdp_config_dim() does, into the struct `config`. */
FSDP_MUST_CHECK fsdp_status fsdp_config_read_dims(fsdp_json_node root,
                                                  const fsdp_config_field *fields, size_t n,
                                                  void *config);
/* Set each dimension, under its alias if the document has only the alias. */
void fsdp_config_set_dims(fsdp_json_node root, const fsdp_config_field *fields, size_t n,
                          const void *config);

/* Return `name` without a leading "organisation/". */
const char *fsdp_config_bare_name(const char *name, const char *organisation);

/* Set those of "dtype" and "torch_dtype" that the document has. If it has neither, set "dtype". */
void fsdp_config_set_dtype(fsdp_json_node root, fsdp_dtype dtype);
/* Set a token id; -1 is written as null. Two forms of an id are kept if the document has them: a
 * list, because its first id is the one that was read, and a negative id, because it counts from
 * the end of the vocabulary. */
void fsdp_config_set_token(fsdp_json_node root, const char *key, int64_t value);
