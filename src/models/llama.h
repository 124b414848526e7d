/* Internals of Llama: the structs and the forwards of its modules. llama_create.c builds the
 * modules, and llama.c runs them. */
#pragma once
#include <fsdp/llama.h>

#include "src/models/builder.h"
#include "src/models/causal.h"
#include "src/models/rope.h"

/* The struct of the root. */
typedef struct fsdp_llama {
    fsdp_causal_lm lm; /* must be first: see causal.h */
    fsdp_llama_config config;
} fsdp_llama;

/* The struct of LlamaModel. */
typedef struct fsdp_llama_body {
    const fsdp_llama *root;
    fsdp_parameter *norm;
    fsdp_module *embed_tokens;
    fsdp_module *layers; /* the ModuleList */
    fsdp_rotary *rotary; /* owned by the module rotary_emb */
} fsdp_llama_body;

typedef struct fsdp_llama_layer {
    const fsdp_llama *root;
    fsdp_parameter *input_layernorm, *post_attention_layernorm;
    fsdp_module *self_attn, *mlp;
} fsdp_llama_layer;

typedef struct fsdp_llama_attention {
    const fsdp_llama *root;
    int64_t layer_idx, window; /* window: number of tokens that a query sees; 0: all earlier
                                * tokens */
    fsdp_layer q_proj, k_proj, v_proj, o_proj;
    fsdp_parameter *q_norm, *k_norm; /* [head_dim]; NULL except in Qwen3 */
} fsdp_llama_attention;

typedef struct fsdp_llama_mlp {
    fsdp_layer gate_proj, up_proj, down_proj;
} fsdp_llama_mlp;

/* Forwards (llama.c). The body takes no arguments. A layer and its attention take x [T, D] and the
 * rotary table, and the feed-forward takes x. All forwards return [T, D], except
 * fsdp_llama_body_of_read_forward(). It returns [n, D]: only the n rows that the head reads (Note
 * [Rows that are read] in causal.h). */
void fsdp_llama_body_forward(fsdp_scope *s, fsdp_module *self, const fsdp_args *in, fsdp_args *out);
void fsdp_llama_body_of_read_forward(fsdp_scope *s, fsdp_module *self, const fsdp_args *in,
                                     fsdp_args *out);
void fsdp_llama_layer_forward(fsdp_scope *s, fsdp_module *self, const fsdp_args *in,
                              fsdp_args *out);
void fsdp_llama_attention_forward(fsdp_scope *s, fsdp_module *self, const fsdp_args *in,
                                  fsdp_args *out);
void fsdp_llama_mlp_forward(fsdp_scope *s, fsdp_module *self, const fsdp_args *in, fsdp_args *out);

/* Create the module tree (llama_create.c). */
FSDP_MUST_CHECK fsdp_status fsdp_llama_create(const fsdp_llama_config *config, fsdp_module **model);
