/* Shared by the readers and writers of config.json. Messages of getters name file, key and
 * value. */
#pragma once
#include <stddef.h>

#include "src/base/json.h"

/* A dimension is at most this: products of two, times an element's size, stay below 2^63. */
#define FSDP_CONFIG_MAX_DIM ((int64_t)1 << 28)

/* Open `path`, which is a config.json or the directory that has it. */
FSDP_MUST_CHECK fsdp_status fsdp_config_open(const char *path, fsdp_json **doc);

/* FSDP_ERR_UNSUPPORTED: the value is well-formed, but only `supported` is supported. */
FSDP_MUST_CHECK fsdp_status fsdp_config_unsupported(fsdp_json_node root, const char *key,
                                                    const char *supported);
/* Get a required dimension, 1 or more. `alias`, which may be NULL, is another name of the key. If
 * both are there, they must agree, because readers differ in which of them they use. */
FSDP_MUST_CHECK fsdp_status fsdp_config_dim(fsdp_json_node root, const char *key, const char *alias,
                                            int64_t *value);
/* Get an optional dimension; null counts as absent. */
FSDP_MUST_CHECK fsdp_status fsdp_config_opt_dim(fsdp_json_node root, const char *key,
                                                int64_t absent, int64_t *value);
/* Get a probability in [0, 1), a number greater than 0, or a number of 0 or more. */
FSDP_MUST_CHECK fsdp_status fsdp_config_probability(fsdp_json_node root, const char *key,
                                                    double absent, double *value);
FSDP_MUST_CHECK fsdp_status fsdp_config_positive(fsdp_json_node root, const char *key,
                                                 double absent, double *value);
FSDP_MUST_CHECK fsdp_status fsdp_config_not_negative(fsdp_json_node root, const char *key,
                                                     double absent, double *value);
/* Get an id below vocab_size, or `absent` if it is missing or null. In a list the first id
 * counts. */
FSDP_MUST_CHECK fsdp_status fsdp_config_token(fsdp_json_node root, const char *key,
                                              int64_t vocab_size, int64_t absent, int64_t *value);
/* The same, but null means none (-1), and so does an `absent` that is not an id. */
FSDP_MUST_CHECK fsdp_status fsdp_config_nullable_token(fsdp_json_node root, const char *key,
                                                       int64_t vocab_size, int64_t absent,
                                                       int64_t *value);
/* Get bos or eos. As fsdp_config_nullable_token(), but an id may be outside the vocabulary, since
 * it just never occurs then, and an empty list means none. */
FSDP_MUST_CHECK fsdp_status fsdp_config_end_token(fsdp_json_node root, const char *key,
                                                  int64_t vocab_size, int64_t absent,
                                                  int64_t *value);
/* A switch that must be `value` if it is given: with another value the numbers would differ. */
FSDP_MUST_CHECK fsdp_status fsdp_config_must_be(fsdp_json_node root, const char *key, bool value);
/* "dtype" or "torch_dtype"; float32 if neither is there. */
FSDP_MUST_CHECK fsdp_status fsdp_config_dtype(fsdp_json_node root, fsdp_dtype *dtype);
/* Refuse keys that change what any model computes and are not supported: quantization_config,
 * pruned_heads. */
FSDP_MUST_CHECK fsdp_status fsdp_config_refuse_unsupported(fsdp_json_node root);

/* --- required dimensions, from a table --- */
typedef struct fsdp_config_field {
    const char *key, *alias; /* alias: the general name (attribute_map), or NULL */
    size_t offset;           /* of its int64_t in the model's struct */
} fsdp_config_field;
/* Read each as fsdp_config_dim() does, into the struct `config`. */
FSDP_MUST_CHECK fsdp_status fsdp_config_read_dims(fsdp_json_node root,
                                                  const fsdp_config_field *fields, size_t n,
                                                  void *config);
/* Set each dimension, under its alias if that is the name in the document. */
void fsdp_config_set_dims(fsdp_json_node root, const fsdp_config_field *fields, size_t n,
                          const void *config);

/* `name` without a leading "organisation/". */
const char *fsdp_config_bare_name(const char *name, const char *organisation);

/* Set both spellings, as far as the document has them. */
void fsdp_config_set_dtype(fsdp_json_node root, fsdp_dtype dtype);
/* -1 is written as null. Lists are not changed, because they begin with the value that was read;
 * nor are negative ids, which count from the end. */
void fsdp_config_set_token(fsdp_json_node root, const char *key, int64_t value);
