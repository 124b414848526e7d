/* What the readers and writers of config.json share. Getters' messages name file, key and value. */
#pragma once
#include <stddef.h>

#include "src/base/json.h"

/* A dimension is at most this: products of two, times an element's size, stay below 2^63. */
#define FSDP_CONFIG_MAX_DIM ((int64_t)1 << 28)

/* Open `path`, a config.json or the directory that holds it. */
FSDP_MUST_CHECK fsdp_status fsdp_config_open(const char *path, fsdp_json **doc);

/* FSDP_ERR_UNSUPPORTED: well-formed, but nothing else than `supported` is handled. */
FSDP_MUST_CHECK fsdp_status fsdp_config_unsupported(fsdp_json_node root, const char *key,
                                                    const char *supported);
/* A required dimension, 1 or more. `alias`, may be NULL, is another name of it; with both there,
 * they must agree: which of them counts depends on the reader. */
FSDP_MUST_CHECK fsdp_status fsdp_config_dim(fsdp_json_node root, const char *key, const char *alias,
                                            int64_t *value);
/* An optional one; null counts as absent. */
FSDP_MUST_CHECK fsdp_status fsdp_config_opt_dim(fsdp_json_node root, const char *key,
                                                int64_t absent, int64_t *value);
/* A probability in [0, 1); a number greater than 0; one of 0 or more. */
FSDP_MUST_CHECK fsdp_status fsdp_config_probability(fsdp_json_node root, const char *key,
                                                    double absent, double *value);
FSDP_MUST_CHECK fsdp_status fsdp_config_positive(fsdp_json_node root, const char *key,
                                                 double absent, double *value);
FSDP_MUST_CHECK fsdp_status fsdp_config_not_negative(fsdp_json_node root, const char *key,
                                                     double absent, double *value);
/* An id below vocab_size, `absent` if it is missing or null. Of a list, the first. */
FSDP_MUST_CHECK fsdp_status fsdp_config_token(fsdp_json_node root, const char *key,
                                              int64_t vocab_size, int64_t absent, int64_t *value);
/* The same, but null is none, -1; so is an `absent` that is no id. */
FSDP_MUST_CHECK fsdp_status fsdp_config_nullable_token(fsdp_json_node root, const char *key,
                                                       int64_t vocab_size, int64_t absent,
                                                       int64_t *value);
/* bos or eos: as fsdp_config_nullable_token(), but an id may lie beyond the vocabulary, since then
 * it just never comes, and an empty list is none. */
FSDP_MUST_CHECK fsdp_status fsdp_config_end_token(fsdp_json_node root, const char *key,
                                                  int64_t vocab_size, int64_t absent,
                                                  int64_t *value);
/* A switch that must be `value` where it is given: other values would change the numbers. */
FSDP_MUST_CHECK fsdp_status fsdp_config_must_be(fsdp_json_node root, const char *key, bool value);
/* "dtype" or "torch_dtype"; float32 if neither is there. */
FSDP_MUST_CHECK fsdp_status fsdp_config_dtype(fsdp_json_node root, fsdp_dtype *dtype);
/* Keys that change what any model computes, and are refused: quantization_config, pruned_heads. */
FSDP_MUST_CHECK fsdp_status fsdp_config_refuse_unsupported(fsdp_json_node root);

/* --- required dimensions, by a table --- */
typedef struct fsdp_config_field {
    const char *key, *alias; /* alias: transformers' general name of it (attribute_map), or NULL */
    size_t offset;           /* of its int64_t in the model's own struct */
} fsdp_config_field;
/* Each as fsdp_config_dim() reads it, into the struct `config`. */
FSDP_MUST_CHECK fsdp_status fsdp_config_read_dims(fsdp_json_node root,
                                                  const fsdp_config_field *fields, size_t n,
                                                  void *config);
/* Where an alias is what the document says, it is the one to change. */
void fsdp_config_set_dims(fsdp_json_node root, const fsdp_config_field *fields, size_t n,
                          const void *config);

/* `name` without "organisation/" in front of it. */
const char *fsdp_config_bare_name(const char *name, const char *organisation);

/* Both spellings, where the document has them. */
void fsdp_config_set_dtype(fsdp_json_node root, fsdp_dtype dtype);
/* null for -1. Lists are left: they begin with what was read; so are negative ids, which count from
 * the end. */
void fsdp_config_set_token(fsdp_json_node root, const char *key, int64_t value);
