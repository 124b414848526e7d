/* Internals of GPT-2: the structs and the forwards of its modules. gpt2_create.c builds the
 * modules, and gpt2.c runs them. */
#pragma once
#include <fsdp/gpt2.h>

#include "src/models/builder.h"
#include "src/models/causal.h"

/* The struct of the root. */
typedef struct fsdp_gpt2 {
    fsdp_causal_lm lm; /* must be first: see causal.h */
    fsdp_gpt2_config config;
} fsdp_gpt2;

/* The struct of GPT2Model. */
typedef struct fsdp_gpt2_body {
    const fsdp_gpt2 *root;
    fsdp_module *wte;
    fsdp_parameter *wpe;
    fsdp_layer ln_f;
    fsdp_module *h; /* the ModuleList */
} fsdp_gpt2_body;

typedef struct fsdp_gpt2_block {
    const fsdp_gpt2 *root;
    fsdp_layer ln_1, ln_2;
    fsdp_module *attn, *mlp;
} fsdp_gpt2_block;

typedef struct fsdp_gpt2_attention {
    const fsdp_gpt2 *root;
    int64_t layer_idx;
    fsdp_layer c_attn, c_proj; /* Conv1Ds */
} fsdp_gpt2_attention;

typedef struct fsdp_gpt2_mlp {
    const fsdp_gpt2 *root;
    fsdp_layer c_fc, c_proj; /* Conv1Ds */
} fsdp_gpt2_mlp;

/* Forwards (gpt2.c). The body takes no arguments; the other modules take x [T, D]. All return [T,
 * D], except fsdp_gpt2_body_of_read_forward(). It returns [n, D]: only the n rows that the head
 * reads (Note [Rows that are read] in causal.h). */
fsdp_forward_fn fsdp_gpt2_body_forward;
fsdp_forward_fn fsdp_gpt2_body_of_read_forward;
fsdp_forward_fn fsdp_gpt2_block_forward;
fsdp_forward_fn fsdp_gpt2_attention_forward;
fsdp_forward_fn fsdp_gpt2_mlp_forward;

/* Create the module tree (gpt2_create.c). */
FSDP_MUST_CHECK fsdp_status fsdp_gpt2_create(const fsdp_gpt2_config *config, fsdp_module **model);
