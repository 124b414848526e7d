/* Functions for reading and writing config.json, shared by all models. Error messages contain the
 * file, the key and the value. */
#pragma once
#include <stddef.h>

#include "src/base/json.h"

/* The largest dimension that is accepted. With this limit, dimension * dimension * (bytes of an
 * element) is always below 2^63. */
#define FSDP_CONFIG_MAX_DIM ((int64_t)1 << 28)

/* Open `path`, which is a config.json or a directory that contains one. */
FSDP_MUST_CHECK fsdp_status fsdp_config_open(const char *path, fsdp_json **doc);

/* Return FSDP_ERR_UNSUPPORTED for a value of `key` that is well-formed but not supported. The
 * message says that only `supported` is supported. */
FSDP_MUST_CHECK fsdp_status fsdp_config_unsupported(fsdp_json_node root, const char *key,
                                                    const char *supported);
/* Get a required dimension, which must be at least 1. `alias` is another name of the key, or NULL.
 * If the document has both keys, their values must be equal, because another program might read
 * only one of them. */
FSDP_MUST_CHECK fsdp_status fsdp_config_dim(fsdp_json_node root, const char *key, const char *alias,
                                            int64_t *value);
/* Get an optional dimension. If the key is missing or null, *value is set to `absent`. */
FSDP_MUST_CHECK fsdp_status fsdp_config_opt_dim(fsdp_json_node root, const char *key,
                                                int64_t absent, int64_t *value);
/* Get an optional number. If the key is missing or null, *value is set to `absent`.
 * fsdp_config_probability() accepts numbers that are at least 0 and below 1. fsdp_config_positive()
 * accepts numbers above 0. fsdp_config_not_negative() accepts numbers that are at least 0. */
FSDP_MUST_CHECK fsdp_status fsdp_config_probability(fsdp_json_node root, const char *key,
                                                    double absent, double *value);
FSDP_MUST_CHECK fsdp_status fsdp_config_positive(fsdp_json_node root, const char *key,
                                                 double absent, double *value);
FSDP_MUST_CHECK fsdp_status fsdp_config_not_negative(fsdp_json_node root, const char *key,
                                                     double absent, double *value);
/* Get a token id, which must be below vocab_size. If the value is a list, get its first id. If the
 * key is missing or null, *value is set to `absent`. */
FSDP_MUST_CHECK fsdp_status fsdp_config_token(fsdp_json_node root, const char *key,
                                              int64_t vocab_size, int64_t absent, int64_t *value);
/* Get the id of an optional token, as fsdp_config_token() does. *value is set to -1 if the model
 * has no such token. This is so in two cases: the value of the key is null or -1, or the key is
 * missing and `absent` is not in the vocabulary. */
FSDP_MUST_CHECK fsdp_status fsdp_config_nullable_token(fsdp_json_node root, const char *key,
                                                       int64_t vocab_size, int64_t absent,
                                                       int64_t *value);
/* Get the id of the bos or eos token, as fsdp_config_nullable_token() does, with two differences.
 * If the value is an empty list, *value is set to -1. An id outside the vocabulary is accepted,
 * because such an id never occurs in a sequence and so does no harm. */
FSDP_MUST_CHECK fsdp_status fsdp_config_end_token(fsdp_json_node root, const char *key,
                                                  int64_t vocab_size, int64_t absent,
                                                  int64_t *value);
/* Return FSDP_ERR_UNSUPPORTED if the document has the boolean `key` and its value is not `value`,
 * because the model would then have to compute something that is not supported. */
FSDP_MUST_CHECK fsdp_status fsdp_config_must_be(fsdp_json_node root, const char *key, bool value);
/* Get the dtype from "dtype" or, if that is missing, from "torch_dtype". The default is float32. */
FSDP_MUST_CHECK fsdp_status fsdp_config_dtype(fsdp_json_node root, fsdp_dtype *dtype);
/* Refuse pruned_heads, and a quantization_config other than NF4 by bitsandbytes. They would change
 * what a model computes, and no model supports them. */
FSDP_MUST_CHECK fsdp_status fsdp_config_refuse_unsupported(fsdp_json_node root);

/* --- tables of required dimensions --- */
typedef struct fsdp_config_field {
    const char *key, *alias; /* alias: transformers' general name (attribute_map), or NULL */
    size_t offset;           /* offset of the dimension, an int64_t, in the model's struct */
} fsdp_config_field;
/* Read the dimensions into the struct `config`, each with fsdp_config_dim(). */
FSDP_MUST_CHECK fsdp_status fsdp_config_read_dims(fsdp_json_node root,
                                                  const fsdp_config_field *fields, size_t n,
                                                  void *config);
/* Write the dimensions of the struct `config` to the document. Each dimension is written under its
 * key, with one exception: if the document has only the alias of the dimension, the dimension is
 * written under the alias. */
void fsdp_config_set_dims(fsdp_json_node root, const fsdp_config_field *fields, size_t n,
                          const void *config);

/* Return `name` without a leading "organization/". */
const char *fsdp_config_bare_name(const char *name, const char *organization);

/* Set "dtype" and "torch_dtype", but only those that the document has. If it has neither, set
 * "dtype". */
void fsdp_config_set_dtype(fsdp_json_node root, fsdp_dtype dtype);
/* Set the token id `key` to `value`. -1 is written as null. But do not overwrite two kinds of
 * values of the document. A list is kept, because `value` is the first id of this list. A negative
 * id, which counts from the end of the vocabulary, is kept, because it means the same id as
 * `value`. */
void fsdp_config_set_token(fsdp_json_node root, const char *key, int64_t value);
