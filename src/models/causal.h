/* What all causal language models share: loss, logits, and decoding one token at a time.
 *
 * A model's root has a struct whose first member is fsdp_causal_lm. Its body is a module whose
 * forward takes no arguments and returns last_hidden [T, D], after the last norm. The body gets its
 * tokens from fsdp_causal_input_of() and calls fsdp_causal_attention(), so training, prompts and
 * single tokens share one forward. The head, loss and decoding are here. Embedding and head are
 * called as modules, so each can be an FSDP unit of its own.
 *
 * Note [Rows that are read]. A loss reads only the rows of last_hidden that have a label, and
 * generation reads only the last row of each prompt. The rows before the first row that is read,
 * for example those of a masked prompt, are needed only for the keys and values of the last layer.
 * So a body has a second forward. In that forward, the last layer computes queries, and everything
 * after attention, only for the first row that is read and for the rows after it in the same
 * sequence. These are the last rows of the sequence, as causal attention requires, so each of them
 * sees the same keys as in the first forward. The rows that are left out would have zero gradients
 * anyway. Both forwards read parameters in the same order, so ranks that train together need not
 * choose the same forward. */
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
    int32_t span;         /* upper bound: all positions are below it */
    fsdp_kv_cache *cache; /* keys and values of earlier tokens; each layer appends those of the
                             current tokens. NULL: not decoding */
} fsdp_causal_input;

/* The rows that a forward computes: n of its tokens (Note [Rows that are read]), or all of them. */
typedef struct fsdp_causal_rows {
    int32_t n;
    const int32_t *rows;         /* [n], ascending; NULL: all */
    const int32_t *position_ids; /* [n] */
    const int32_t *q_offsets;    /* [n_sequences + 1] */
    int32_t *memory;             /* owned; contains the arrays above. NULL: they are borrowed */
} fsdp_causal_rows;

typedef struct fsdp_causal_lm {
    fsdp_module *body, *lm_head;
    fsdp_forward_fn *read_forward;     /* the body's second forward: returns [n, D] */
    fsdp_parameter *head;              /* weight of lm_head [V, D]; may be the embedding's weight */
    int64_t n_layers;                  /* number of layers that call fsdp_causal_attention() */
    const fsdp_causal_input *decoding; /* input of the current decoding call; NULL: none */
} fsdp_causal_lm;

/* Add the embedding, as child `name` of a body. Its forward returns the embeddings [T, D] of the
 * current tokens. The head uses the same weight, unless fsdp_causal_build_head() gives it one of
 * its own. */
fsdp_module *fsdp_causal_build_embedding(fsdp_builder *b, fsdp_module *body, const char *name,
                                         fsdp_causal_lm *lm, int64_t rows, int64_t width,
                                         fsdp_init init);
/* Add child lm_head to a root whose body is complete. If `tied` is true, lm_head shares the
 * embedding's weight. */
void fsdp_causal_build_head(fsdp_builder *b, fsdp_module *root, fsdp_causal_lm *lm, bool tied,
                            int64_t rows, int64_t width, double std);

/* Return the tokens that are being decoded or, outside of decoding, those of the scope's batch. */
fsdp_causal_input fsdp_causal_input_of(const fsdp_scope *s, const fsdp_causal_lm *lm);

/* Return all rows or, if `read` is true, only the rows that are read. During decoding, that is the
 * last row of each sequence. Otherwise it is, in each sequence, the first row with a label and all
 * rows after it. The caller frees the result with fsdp_causal_rows_fini(). If there is not enough
 * memory, the scope fails and the result has all rows. */
fsdp_causal_rows fsdp_causal_rows_find(fsdp_scope *s, const fsdp_causal_lm *lm, bool read);
void fsdp_causal_rows_fini(fsdp_causal_rows *rows);
/* Gather `rows` from x [T, D]. The result is x itself if `rows` are all rows of x, else a new
 * tensor [n, D]. The caller releases the result with fsdp_causal_rows_drop(), which does nothing if
 * the result is x. */
fsdp_tensor *fsdp_causal_rows_of(fsdp_scope *s, const fsdp_causal_rows *rows, fsdp_tensor *x);
void fsdp_causal_rows_drop(fsdp_scope *s, const fsdp_causal_rows *rows, fsdp_tensor *of_x);

/* Compute attention of the current tokens to themselves and to earlier tokens. The keys and values
 * of earlier tokens are in the cache of `layer`. k and v have a row for each current token. q has
 * the rows that options.q_offsets describes. Besides q_offsets, the caller sets the options that
 * depend on the model: heads, kv_heads, window, scale, dropout_p. This function sets all others. */
fsdp_tensor *fsdp_causal_attention(fsdp_scope *s, const fsdp_causal_lm *lm, int64_t layer,
                                   fsdp_tensor *q, fsdp_tensor *k, fsdp_tensor *v,
                                   fsdp_attention_options options);

/* Members for the table of a causal model (model_type.h). */
fsdp_tensor *fsdp_causal_loss(fsdp_scope *s, fsdp_module *model, float factor);
fsdp_model_outputs fsdp_causal_logits(fsdp_scope *s, fsdp_module *model);
extern const fsdp_decoder fsdp_causal_decoder;
