/* Internals of T5: the structs and the forwards of its modules. t5_create.c builds the modules,
 * t5.c runs them, and t5_decode.c runs them one token at a time. */
#pragma once
#include <fsdp/models.h>

#include "src/models/builder.h"

enum {
    FSDP_T5_MAX_LAYERS = 3 /* layers of a decoder block: self-attention, cross-attention,
                            * feed-forward */
};

struct fsdp_decode_cache; /* in t5_decode.c */

/* The struct of the root. A cache cannot be passed as a module argument. So while a decoding call
 * runs, the member `cache` points to the cache of this call. Only one call of the root runs at a
 * time. */
typedef struct fsdp_t5 {
    fsdp_t5_config config;
    fsdp_parameter *head; /* weight of lm_head; equal to `shared` if the head is tied */
    fsdp_parameter *shared;
    fsdp_module *encoder, *decoder, *lm_head; /* lm_head is a module, so it can be an FSDP unit */
    struct fsdp_decode_cache *cache;          /* cache of the current decoding step; NULL: none */
} fsdp_t5;

typedef struct fsdp_t5_stack {
    fsdp_t5 *root;
    bool decoder;
    fsdp_parameter *embed_tokens, *final_layer_norm;
    fsdp_module *blocks; /* the ModuleList */
} fsdp_t5_stack;

typedef struct fsdp_t5_block {
    fsdp_t5 *root;
    bool decoder;
    int64_t index;
    fsdp_module *layers[FSDP_T5_MAX_LAYERS];
    int n_layers;
} fsdp_t5_block;

/* The struct of T5LayerSelfAttention, T5LayerCrossAttention and T5LayerFF. Parameters that a layer
 * does not have are NULL. */
typedef struct fsdp_t5_layer {
    fsdp_t5 *root;
    bool decoder;
    int64_t block; /* index of the block that contains the layer */
    fsdp_parameter *layer_norm;
    fsdp_parameter *relative_attention_bias;
    fsdp_layer q, k, v, o;
    fsdp_layer wi, wi_0, wi_1, wo;
} fsdp_t5_layer;

/* Forwards (t5.c). A block takes x [T, D], position_bias and, in a decoder, the encoder's output.
 * It returns x and position_bias. The first block gets NULL as position_bias and computes it. In
 * umT5, every block computes its own position_bias, and blocks return only x. */
void fsdp_t5_stack_forward(fsdp_scope *s, fsdp_module *self, const fsdp_args *in, fsdp_args *out);
void fsdp_t5_block_forward(fsdp_scope *s, fsdp_module *self, const fsdp_args *in, fsdp_args *out);
void fsdp_t5_self_attention_forward(fsdp_scope *s, fsdp_module *self, const fsdp_args *in,
                                    fsdp_args *out);
void fsdp_t5_cross_attention_forward(fsdp_scope *s, fsdp_module *self, const fsdp_args *in,
                                     fsdp_args *out);
void fsdp_t5_ff_forward(fsdp_scope *s, fsdp_module *self, const fsdp_args *in, fsdp_args *out);

/* --- functions that training and decoding share --- */
/* Return x normalized by one of the model's RMS norms. */
fsdp_tensor *fsdp_t5_norm(fsdp_scope *s, const fsdp_t5 *t5, fsdp_tensor *x,
                          const fsdp_parameter *weight);
/* Return x + dropout(y), and drop y. In float16, infinite sums are clamped to finite values. */
fsdp_tensor *fsdp_t5_residual(fsdp_scope *s, const fsdp_t5 *t5, fsdp_tensor *x, fsdp_tensor *y);
/* The forward of lm_head, which computes logits [T, V] from x [T, D]. */
void fsdp_t5_head_forward(fsdp_scope *s, fsdp_module *self, const fsdp_args *in, fsdp_args *out);
/* Return the logits [T, V] for the decoder's output [T, D]. */
fsdp_tensor *fsdp_t5_head(fsdp_scope *s, const fsdp_t5 *t5, fsdp_tensor *hidden);
/* Return the position bias for distances below `span`. `layer` must be a self-attention layer that
 * has a relative_attention_bias. Such a layer is in the first block of each stack or, in umT5, in
 * every block. */
fsdp_tensor *fsdp_t5_position_bias(fsdp_scope *s, const fsdp_t5_layer *layer, int64_t span);
/* Return the results of self-attention: x and, except in umT5, position_bias, which the next block
 * needs. In umT5, position_bias is dropped. */
fsdp_args fsdp_t5_attended(fsdp_scope *s, const fsdp_t5_layer *layer, fsdp_tensor *x,
                           fsdp_tensor *position_bias);
/* Return dropout(x) with the model's rate, and drop x if the result is another tensor. */
fsdp_tensor *fsdp_t5_dropout(fsdp_scope *s, const fsdp_t5 *t5, fsdp_tensor *x);
