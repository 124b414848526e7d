/* Gives tensors of Lit-LLaMA and LitGPT the names and the rows that Hugging Face's Llama has.
 *
 * Note [Weights of Lit-LLaMA and LitGPT]. Both programs call the blocks of a model transformer.h.N
 * and keep the projections of query, key and value in one tensor. They differ in the names and in
 * the order of the rows of this tensor:
 *
 * - Lit-LLaMA (attn.c_attn) stacks query, key and value. Its rotary embedding rotates elements 2i
 *   and 2i + 1 of a head together. Hugging Face's rotates elements i and i + head_dim / 2, so the
 *   rows of query and key change their order within a head.
 * - LitGPT since 0.5.4 (attn.qkv) stacks query, key and value.
 * - Older versions of LitGPT and Lit-GPT (attn.attn) have one group of rows for each key head: the
 *   query heads that use this key head, then the key head, then its value head.
 *
 * The embedding and lm_head may have more rows than the vocabulary has tokens: the size of the
 * vocabulary is rounded up to a multiple of 64 or of 512. The additional rows belong to no token
 * and are left out. */
#pragma once
#include <fsdp/hf.h>

#include "src/base/arena.h"

typedef enum fsdp_lit_format {
    FSDP_LIT_NONE, /* the names are not those of Lit-LLaMA or LitGPT */
    FSDP_LIT_LLAMA,
    FSDP_LIT_GPT,
} fsdp_lit_format;

/* Return the name of a format for messages, as a static string. */
const char *fsdp_lit_format_name(fsdp_lit_format format);
/* Find out from names [n] which program saved the weights. */
fsdp_lit_format fsdp_lit_recognize(const char *const *names, size_t n);

/* The model that the weights must have, from its config.json. */
typedef struct fsdp_lit_model {
    const char *config; /* for messages: the model's folder */
    int64_t n_heads;    /* num_attention_heads */
    int64_t n_kv_heads; /* num_key_value_heads; divides n_heads */
    int64_t head_dim;   /* even */
    int64_t vocab_size;
} fsdp_lit_model;

typedef struct fsdp_lit_tensor {
    const char *name;
    const int64_t *shape; /* [ndim] */
    int ndim;
} fsdp_lit_tensor;

/* Which rows of a tensor become the rows of a new tensor. The new tensor consists of heads of
 * head_dim rows each. */
typedef struct fsdp_row_order {
    int64_t first;           /* the old row at which head 0 begins */
    int64_t head_dim;        /* number of rows of a head */
    int64_t heads_per_group; /* number of heads that are adjacent in the old tensor */
    int64_t group_rows;      /* number of old rows from the beginning of a group to the next one */
    bool pairs;              /* old row 2i of a head becomes row i, and old row 2i + 1 becomes row
                                head_dim / 2 + i */
} fsdp_row_order;

/* Return the old row that becomes row `row`. */
int64_t fsdp_row_order_at(const fsdp_row_order *order, int64_t row);
/* Return a count n >= 1 such that the rows row ... row + n - 1 of the new tensor are adjacent, in
 * this order, in the old tensor, too. The number of adjacent rows may be greater than n. The end of
 * the new tensor is not considered, so the caller limits n to the rows that are left. */
int64_t fsdp_row_order_run(const fsdp_row_order *order, int64_t row);

/* A tensor with its name in Hugging Face's model. */
typedef struct fsdp_lit_part {
    const char *name;
    size_t from;      /* index of the old tensor */
    int64_t shape[2]; /* [ndim] */
    int ndim;         /* ndim of the old tensor: 1 or 2 */
    fsdp_row_order order;
} fsdp_lit_part;

typedef struct fsdp_lit_parts {
    fsdp_lit_part *items; /* [n] */
    size_t n;
} fsdp_lit_parts;

/* Describe the tensors of Hugging Face's model that `tensors` [n] contain. `arena` owns the result.
 * If all names have the same prefix before "transformer." or "lm_head.", this prefix is removed.
 *
 * @param label the checkpoint, for messages
 * @return FSDP_ERR_INVALID if a name is unknown, or if the rows of a tensor do not fit `model`. The
 *         message names the tensor and both numbers */
FSDP_MUST_CHECK fsdp_status fsdp_lit_translate(const char *label, fsdp_lit_format format,
                                               const fsdp_lit_model *model,
                                               const fsdp_lit_tensor *tensors, size_t n,
                                               fsdp_arena *arena, fsdp_lit_parts *parts);

/* Replace the tensors of a reader by the tensors of Hugging Face's model that they contain. A
 * tensor whose rows change their order is copied into memory, which the reader owns. Call this at
 * most once, and not together with fsdp_checkpoint_unwrap_names().
 *
 * @param names [fsdp_checkpoint_count()] the names of the tensors without the parts that wrappers
 *              add
 * @return the errors of fsdp_lit_translate() */
FSDP_MUST_CHECK fsdp_status fsdp_checkpoint_translate_lit(fsdp_checkpoint_reader *reader,
                                                          const char *const *names,
                                                          fsdp_lit_format format,
                                                          const fsdp_lit_model *model);
