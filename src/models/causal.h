/* Shared by all causal language models: loss, logits, and decoding one token at a time.
 *
 * A model's root has a struct whose first member is fsdp_causal_lm. Its body is a module whose
 * forward takes no arguments and returns last_hidden [T, D], after the last norm. The body gets its
 * tokens from fsdp_causal_input_of() and calls fsdp_causal_attention(), so training, prompts and
 * single tokens share one forward. The head, loss and decoding are here. Embedding and head are
 * called as modules, so each can be a unit of its own.
 *
 * Note [Rows that are read]. A loss reads only the rows of last_hidden that have a label, and
 * generation reads only the last row of each prompt. The rows before the first row that is read,
 * for example those of a masked prompt, are needed only for the keys and values of the last layer.
 * So a body has a second forward. In each sequence, its last layer computes queries, and all that
 * follows attention, only for the first row that is read and the rows after it. These are the last
 * rows of the sequence, so causal attention sees the same keys. The rows that are left out would
 * have a gradient of zero. Parameters are read in the same order as in the first forward, so ranks
 * that train together may choose either forward, depending on their batches. */
#pragma once
#include "src/models/builder.h"
#include "src/models/kv_cache.h"
#include "src/models/model_type.h"
#include "src/nn/module.h"

/* The tokens of a forward, packed by sequence. Borrowed from the batch or the decoder. */
typedef struct fsdp_causal_input {
    const int32_t *ids, *position_ids; /* [tokens] */
    const int32_t *q_offsets;          /* [n_sequences + 1] */
    int32_t tokens, n_sequences;
    int32_t span;         /* all positions are smaller */
    fsdp_kv_cache *cache; /* keys and values of earlier tokens, to which these are appended; NULL:
                             no earlier tokens */
} fsdp_causal_input;

/* Note [Rows that are read]: n of the forward's tokens, or all of them. */
typedef struct fsdp_causal_rows {
    int32_t n;
    const int32_t *rows;         /* [n], ascending; NULL: all */
    const int32_t *position_ids; /* [n] */
    const int32_t *q_offsets;    /* [n_sequences + 1] */
    int32_t *memory; /* owned; holds the arrays above. NULL: they are borrowed from the input */
} fsdp_causal_rows;

typedef struct fsdp_causal_lm {
    fsdp_module *body, *lm_head;
    fsdp_forward_fn *read_forward;     /* the body's second forward: returns [n, D] */
    fsdp_parameter *head;              /* lm_head's weight [V, D]; may be the embedding's */
    int64_t n_layers;                  /* layers that call fsdp_causal_attention() */
    const fsdp_causal_input *decoding; /* input of the decoder's current call; else NULL */
} fsdp_causal_lm;

/* Add child `name` of a body. It returns the embeddings [T, D] of the forward's tokens. The head
 * uses its weight too, unless lm_head has another one. */
fsdp_module *fsdp_causal_build_embedding(fsdp_builder *b, fsdp_module *body, const char *name,
                                         fsdp_causal_lm *lm, int64_t rows, int64_t width,
                                         fsdp_init init);
/* Add child lm_head of a root whose body is complete. It shares the embedding's weight if
 * `tied`. */
void fsdp_causal_build_head(fsdp_builder *b, fsdp_module *root, fsdp_causal_lm *lm, bool tied,
                            int64_t rows, int64_t width, double std);

/* The scope's batch, or the tokens that are being decoded. */
fsdp_causal_input fsdp_causal_input_of(const fsdp_scope *s, const fsdp_causal_lm *lm);

/* All rows or, with `read`, those that are read: from the first label on, or the last row of each
 * sequence when decoding. Free with fsdp_causal_rows_fini(). If the scope has failed, all rows. */
fsdp_causal_rows fsdp_causal_rows_find(fsdp_scope *s, const fsdp_causal_lm *lm, bool read);
void fsdp_causal_rows_fini(fsdp_causal_rows *rows);
/* The rows of x [T, D]: x itself or a new tensor. Release it with fsdp_causal_rows_drop(), which
 * has no effect on x. */
fsdp_tensor *fsdp_causal_rows_of(fsdp_scope *s, const fsdp_causal_rows *rows, fsdp_tensor *x);
void fsdp_causal_rows_drop(fsdp_scope *s, const fsdp_causal_rows *rows, fsdp_tensor *of_x);

/* Attention of the current tokens to themselves and to earlier ones, which are in the cache of
 * `layer`. q has the rows of q_offsets, k and v have those of all tokens. `options` also has what
 * the model defines: heads, kv_heads, window, scale, dropout_p. */
fsdp_tensor *fsdp_causal_attention(fsdp_scope *s, const fsdp_causal_lm *lm, int64_t layer,
                                   fsdp_tensor *q, fsdp_tensor *k, fsdp_tensor *v,
                                   fsdp_attention_options options);

/* For the table of a causal model (model_type.h). */
fsdp_tensor *fsdp_causal_loss(fsdp_scope *s, fsdp_module *model, float factor);
fsdp_model_outputs fsdp_causal_logits(fsdp_scope *s, fsdp_module *model);
extern const fsdp_decoder fsdp_causal_decoder;
