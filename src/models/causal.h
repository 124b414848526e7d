/* What all causal language models share: loss, logits, and a token at a time.
 *
 * A model's root keeps a struct whose first member is fsdp_causal_lm. Its body is a module whose
 * forward takes no arguments and gives last_hidden [T, D], after the last norm; it asks
 * fsdp_causal_input_of() for its tokens and runs attention through fsdp_causal_attention(), so that
 * training, prompts and single tokens share one forward. The head and what is around it is here.
 * Embedding and head are called as modules, so that each can be a unit of its own.
 *
 * Note [Rows that are read]. Of last_hidden a loss reads the rows that have a label, and what
 * follows a prompt is asked of the last row of each sequence. Of the rows before, a masked prompt
 * say, the last layer's keys and values are all that is needed. So a body has a second forward, in
 * whose last layer queries, and all that comes after attention, have the rows of each sequence from
 * the first that is read: since these are its last, causal attention sees the same keys. What is
 * left out would get a gradient of zero. Parameters are read in the order of the first forward, so
 * that processes that train together may run either, by their batches. */
#pragma once
#include "src/models/builder.h"
#include "src/models/kv_cache.h"
#include "src/models/model_type.h"
#include "src/nn/module.h"

/* The tokens of a forward, packed sequence by sequence. Borrowed from the batch or the decoder. */
typedef struct fsdp_causal_input {
    const int32_t *ids, *position_ids; /* [tokens] */
    const int32_t *q_offsets;          /* [n_sequences + 1] */
    int32_t tokens, n_sequences;
    int32_t span;         /* positions are below it */
    fsdp_kv_cache *cache; /* of earlier tokens, extended by these; NULL: there are none */
} fsdp_causal_input;

/* Note [Rows that are read]: n of the forward's tokens, or all of them. */
typedef struct fsdp_causal_rows {
    int32_t n;
    const int32_t *rows;         /* [n], ascending; NULL: all */
    const int32_t *position_ids; /* [n] */
    const int32_t *q_offsets;    /* [n_sequences + 1] */
    int32_t *memory;             /* owned: what lies there; NULL: borrowed from the input */
} fsdp_causal_rows;

typedef struct fsdp_causal_lm {
    fsdp_module *body, *lm_head;
    fsdp_forward_fn *read_forward; /* the body's second one: gives [n, D], of rows that are read */
    fsdp_parameter *head;          /* lm_head's weight [V, D], perhaps the embedding's */
    int64_t n_layers;              /* that call fsdp_causal_attention() */
    const fsdp_causal_input *decoding; /* of the decoder's call under way; else NULL */
} fsdp_causal_lm;

/* Child `name` of a body, which gives the embeddings [T, D] of the forward's tokens; its weight is
 * the head's too, unless lm_head gets another. */
fsdp_module *fsdp_causal_build_embedding(fsdp_builder *b, fsdp_module *body, const char *name,
                                         fsdp_causal_lm *lm, int64_t rows, int64_t width,
                                         fsdp_init init);
/* Child lm_head of a root whose body is built: it shares the embedding if `tied`. */
void fsdp_causal_build_head(fsdp_builder *b, fsdp_module *root, fsdp_causal_lm *lm, bool tied,
                            int64_t rows, int64_t width, double std);

/* The scope's batch, or what is being decoded. */
fsdp_causal_input fsdp_causal_input_of(const fsdp_scope *s, const fsdp_causal_lm *lm);

/* All rows, or with `read` those that are: by the labels, or the last of each sequence when it
 * decodes. Ended with fini; all of them with the scope failed. */
fsdp_causal_rows fsdp_causal_rows_find(fsdp_scope *s, const fsdp_causal_lm *lm, bool read);
void fsdp_causal_rows_fini(fsdp_causal_rows *rows);
/* Those of x [T, D]: x itself, or a tensor to be handed back by fsdp_causal_rows_drop(), which has
 * no effect on x. */
fsdp_tensor *fsdp_causal_rows_of(fsdp_scope *s, const fsdp_causal_rows *rows, fsdp_tensor *x);
void fsdp_causal_rows_drop(fsdp_scope *s, const fsdp_causal_rows *rows, fsdp_tensor *of_x);

/* Attention of the tokens at hand to themselves and to earlier ones, which `layer`'s cache holds.
 * q has the rows of q_offsets, k and v those of all tokens; options also say what the model knows:
 * heads, kv_heads, window, scale, dropout_p. */
fsdp_tensor *fsdp_causal_attention(fsdp_scope *s, const fsdp_causal_lm *lm, int64_t layer,
                                   fsdp_tensor *q, fsdp_tensor *k, fsdp_tensor *v,
                                   fsdp_attention_options options);

/* For the table of a causal model (model_type.h). */
fsdp_tensor *fsdp_causal_loss(fsdp_scope *s, fsdp_module *model, float factor);
fsdp_model_outputs fsdp_causal_logits(fsdp_scope *s, fsdp_module *model);
extern const fsdp_decoder fsdp_causal_decoder;
