/* The code that all causal language models share: for the loss, for logits, and for decoding one
 * token at a time.
 *
 * A model consists of a root, a body and a head. The struct of the root begins with an
 * fsdp_causal_lm. The body is a module whose forward takes no arguments and returns last_hidden [T,
 * D], the output of the last norm. The body gets its tokens from fsdp_causal_input_of() and calls
 * fsdp_causal_attention(). So the same forward is used for training, for prompts and for single
 * tokens. Embedding and head are called as modules, so each of them can be an FSDP unit.
 *
 * Note [Rows that are read]. A loss reads only the rows of last_hidden that have a label.
 * Generation reads only the last row of each prompt. A sequence often begins with rows that are not
 * read, for example with a prompt that has no labels. In the last layer, the rows before the first
 * row that is read are needed only to compute keys and values. So a body has a second forward,
 * `read_forward`, besides its ordinary forward. In read_forward, the last layer computes keys and
 * values for all rows of a sequence. It computes queries, and everything after attention, only for
 * the first row that is read and all later rows. Causal attention assumes that the last query of a
 * sequence belongs to its last key, the query before it to the key before that, and so on. In
 * read_forward this is true, because the queries are those of the last rows of the sequence. So
 * each query sees the same keys as in the ordinary forward. For the rows that are left out, the
 * gradients would be zero anyway. Both forwards read parameters in the same order, so ranks that
 * train together may use different forwards. */
#pragma once
#include "src/models/builder.h"
#include "src/models/kv_cache.h"
#include "src/models/model_type.h"
#include "src/nn/module.h"

/* The tokens of a forward, packed by sequence. The batch or the decoder owns the arrays. */
typedef struct fsdp_causal_input {
    const int32_t *ids, *position_ids; /* [tokens] */
    const int32_t *q_offsets;          /* [n_sequences + 1] */
    int32_t tokens, n_sequences;
    int32_t span; /* a number that is greater than all position_ids */
    /* The cache of the keys and values of earlier tokens. Each layer appends the keys and values of
     * the current tokens to it. NULL if the forward is not for decoding. */
    fsdp_kv_cache *cache;
} fsdp_causal_input;

/* The n rows for which a forward computes results: all rows of the input, or only those that are
 * read (Note [Rows that are read]). */
typedef struct fsdp_causal_rows {
    int32_t n;
    const int32_t *rows;         /* [n] indices of the rows, ascending; NULL: all rows */
    const int32_t *position_ids; /* [n] */
    const int32_t *q_offsets;    /* [n_sequences + 1] */
    int32_t *memory; /* owned, contains the arrays above; NULL: the arrays are borrowed */
} fsdp_causal_rows;

typedef struct fsdp_causal_lm {
    fsdp_module *body, *lm_head;
    /* forward of the body that computes only the rows that are read: [n, D] */
    fsdp_forward_fn *read_forward;
    fsdp_parameter *head;              /* weight of lm_head [V, D]; may be the embedding's weight */
    int64_t n_layers;                  /* number of layers that call fsdp_causal_attention() */
    const fsdp_causal_input *decoding; /* input of the current decoding call; NULL: none */
} fsdp_causal_lm;

/* Add the embedding, as child `name` of a body. Its forward returns the embeddings [T, D] of the
 * current tokens. The head uses the weight of the embedding, unless fsdp_causal_build_head() gives
 * it a separate weight. */
fsdp_module *fsdp_causal_build_embedding(fsdp_builder *b, fsdp_module *body, const char *name,
                                         fsdp_causal_lm *lm, int64_t rows, int64_t width,
                                         fsdp_init init);
/* Add child lm_head to `root`, whose body must be complete. If `tied` is true, lm_head shares the
 * embedding's weight. Otherwise it gets a separate weight [rows, width]. */
void fsdp_causal_build_head(fsdp_builder *b, fsdp_module *root, fsdp_causal_lm *lm, bool tied,
                            int64_t rows, int64_t width, double std);

/* Return the input of the current decoding call. If there is no decoding call, return the tokens of
 * the scope's batch. */
fsdp_causal_input fsdp_causal_input_of(const fsdp_scope *s, const fsdp_causal_lm *lm);

/* Return all rows or, if `read` is true, only the rows that are read. While decoding, the last row
 * of each sequence is read. Otherwise, the first row with a label and all later rows of each
 * sequence are read. The caller frees the result with fsdp_causal_rows_fini(). If there is not
 * enough memory, the scope fails and the result has all rows. */
fsdp_causal_rows fsdp_causal_rows_find(fsdp_scope *s, const fsdp_causal_lm *lm, bool read);
void fsdp_causal_rows_fini(fsdp_causal_rows *rows);
/* Gather `rows` from x [T, D]. The result is x itself if `rows` has all rows, otherwise a new
 * tensor [n, D]. The caller releases the result with fsdp_causal_rows_drop(), which has no effect
 * if the result is x. */
fsdp_tensor *fsdp_causal_rows_of(fsdp_scope *s, const fsdp_causal_rows *rows, fsdp_tensor *x);
void fsdp_causal_rows_drop(fsdp_scope *s, const fsdp_causal_rows *rows, fsdp_tensor *of_x);

/* Compute attention in layer number `layer`. The current tokens attend to themselves and, while
 * decoding, also to earlier tokens, whose keys and values are in the cache. k and v have a row for
 * each current token. q may have fewer rows; options.q_offsets says which rows of q belong to which
 * sequence. The caller sets q_offsets and the options that depend on the model: heads, kv_heads,
 * window, scale, dropout_p. This function sets the other options. */
fsdp_tensor *fsdp_causal_attention(fsdp_scope *s, const fsdp_causal_lm *lm, int64_t layer,
                                   fsdp_tensor *q, fsdp_tensor *k, fsdp_tensor *v,
                                   fsdp_attention_options options);

/* Functions for the table (model_type.h) of each causal model. */
fsdp_tensor *fsdp_causal_loss(fsdp_scope *s, fsdp_module *model, float factor);
fsdp_model_outputs fsdp_causal_logits(fsdp_scope *s, fsdp_module *model);
extern const fsdp_decoder fsdp_causal_decoder;
