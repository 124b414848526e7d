/**
 * @file
 * Scopes, tapes, differentiable operations and backward.
 *
 * An operation is a function of a scope and tensors, and returns a tensor that the scope owns. The
 * scope keeps the first failure. Later operations do nothing and return NULL, so the caller checks
 * fsdp_scope_status() once, at the end. If the scope has a tape, operations whose inputs require a
 * gradient add a node to it. fsdp_backward() runs the hand-written backward of each node, newest
 * first.
 *
 * Activations are packed without padding: they are [T, D], where T is the number of tokens of all
 * sequences, and offsets give the first row of each sequence.
 *
 * Legend: T tokens, D model width, F feed-forward width, V vocabulary, H heads, K head width.
 */
#pragma once
#include <fsdp/base.h>
#include <fsdp/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fsdp_scope fsdp_scope;
typedef struct fsdp_tape fsdp_tape;
struct fsdp_batch;

enum {
    FSDP_MAX_ARGS = 8
};
/** Inputs and outputs of a module's forward: n borrowed tensors. */
typedef struct fsdp_args {
    fsdp_tensor *t[FSDP_MAX_ARGS];
    int n;
} fsdp_args;

/** @name Tape @{ */
/** Create a tape. Each rank needs one. A tape holds the nodes of one step, and the step's backward
 * empties it. */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_tape_create(fsdp_tape **tape);
/** Resets the tape, so destroy it before the modules that ran on it. Accepts NULL. */
FSDP_API void fsdp_tape_destroy(fsdp_tape *tape);
/**
 * Remove all nodes and release the tensors they saved. This cancels a forward that was not followed
 * by a backward. Sharded modules then drop what they keep for that forward, and also all gradients
 * of the unfinished step: the sums of earlier micro-steps, and gradients that losses on other tapes
 * have already added (fsdp_linear_cross_entropy()). A later backward on one of those tapes returns
 * FSDP_ERR_STATE. Parameters keep their values. If a module call fails, it resets the tape itself.
 */
FSDP_API void fsdp_tape_reset(fsdp_tape *tape);
/** @} */

/** Options of one forward. Zero means default. */
typedef struct fsdp_scope_options {
    bool training;                  /**< enables dropout */
    uint64_t seed;                  /**< seed of dropout, used together with step and micro_batch */
    uint32_t step;                  /**< optimizer step; used in messages and for random numbers */
    uint32_t micro_batch;           /**< its index in the step: micro_step * world_size + rank */
    int micro_step, n_micro_steps;  /**< gradient accumulation: index of the micro-step, and number
                                         of micro-steps (0 means 1) */
    const struct fsdp_batch *batch; /**< borrowed until backward has ended; may be NULL */
} fsdp_scope_options;

/**
 * @param tape    NULL: no gradients (torch.no_grad)
 * @param options NULL: all defaults; copied
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_scope_open(fsdp_device *device, fsdp_tape *tape,
                                                     const fsdp_scope_options *options,
                                                     fsdp_scope **scope);
/** Releases every tensor that the scope owns; retain those that must live longer. Accepts NULL. */
FSDP_API void fsdp_scope_close(fsdp_scope *scope);
/** Return the first failure in the scope, with its message as fsdp_last_error(); FSDP_OK if there
 * was none. */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_scope_status(const fsdp_scope *scope);
/** Record a failure in the scope, with fsdp_last_error() as its message. No effect if the scope has
 * failed already. */
FSDP_API void fsdp_scope_fail(fsdp_scope *scope, fsdp_status status);
FSDP_API fsdp_device *fsdp_scope_device(const fsdp_scope *scope);
FSDP_API const fsdp_scope_options *fsdp_scope_get_options(const fsdp_scope *scope);
/** Release an intermediate tensor before the scope closes. The tape keeps what backward needs. */
FSDP_API void fsdp_drop(fsdp_scope *scope, fsdp_tensor *tensor);

/** on = true: make `tensor` a leaf, for which backward computes a gradient. on = false: undo this
 * and drop the gradient. */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_tensor_set_requires_grad(fsdp_tensor *tensor, bool on);
/** Get the gradient of a leaf: float32, with the tensor's shape; NULL before the first backward.
 * Borrowed.
 */
FSDP_API fsdp_tensor *fsdp_tensor_grad(const fsdp_tensor *tensor);
FSDP_API void fsdp_tensor_zero_grad(fsdp_tensor *tensor);

/**
 * Compute the gradients of the leaves that `roots` depend on and add them to the leaves' existing
 * gradients. The tape is empty afterwards.
 *
 * @param grads [n] gradients of the roots, each with its root's shape and dtype. If grads or an
 *              entry is NULL, the gradient is 1, and the root must have one element
 * @return the first failure, e.g. invalid roots or grads. After a failure, the tape is as after
 *         fsdp_tape_reset(). FSDP_ERR_STATE if the tape has an fsdp_linear_cross_entropy() with a
 *         sharded weight, and no root depends on its result.
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_backward(fsdp_tape *tape, fsdp_tensor *const *roots,
                                                   fsdp_tensor *const *grads, int n);

/**
 * @name Activation offload
 * A file to which checkpointed calls (fsdp_module_set_activation_checkpointing_options()) move the
 * tensors that they keep. A background thread writes the file. Backward runs the calls again in the
 * opposite order. While one call runs again, the thread reads back the tensors of the next call to
 * run. The file has no name in the file system, so nothing remains after the process has ended. @{
 */
typedef struct fsdp_activation_offload fsdp_activation_offload;

/** Zero means default. */
typedef struct fsdp_activation_offload_options {
    const char *dir;  /**< folder of the file, created if missing; NULL: $TMPDIR, else /tmp */
    size_t min_bytes; /**< smaller tensors stay in memory; 0: 65536 */
} fsdp_activation_offload_options;

/**
 * Create the file of one rank. Several modules may use the same file.
 * @param offload out: owned by the caller; must outlive every tape with calls that use it
 * @return FSDP_ERR_IO or FSDP_ERR_NOT_FOUND naming the folder. A full disk is reported by the
 *         forward that needs the space.
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_activation_offload_create(
    const fsdp_activation_offload_options *options, fsdp_activation_offload **offload);
FSDP_API void
fsdp_activation_offload_destroy(fsdp_activation_offload *offload); /**< accepts NULL */
/** The largest size of the file so far, in bytes. */
FSDP_API int64_t fsdp_activation_offload_peak(const fsdp_activation_offload *offload);
/** @} */

/**
 * @name Operations
 * Unless stated otherwise, inputs and results are contiguous and have the same floating dtype.
 * @{
 */

/** torch.nn.functional.linear: y [T, N] = x [T, D] w^T + bias, with w [N, D] and bias [N] or NULL.
 * T may be several dimensions, or none. */
FSDP_API fsdp_tensor *fsdp_linear(fsdp_scope *s, fsdp_tensor *x, fsdp_tensor *w, fsdp_tensor *bias);
/** transformers' Conv1D (GPT-2): y [T, N] = x [T, D] w + bias, with bias [N] or NULL. w [D, N] is
 * the transpose of fsdp_linear()'s. */
FSDP_API fsdp_tensor *fsdp_conv1d(fsdp_scope *s, fsdp_tensor *x, fsdp_tensor *w, fsdp_tensor *bias);
/**
 * torch.nn.functional.embedding: look up rows of weight [V, D] by id.
 * @param ids         [n] in [0, V), host memory, copied
 * @param padding_idx tokens with this id add nothing to the weight's gradient; -1: there is no such
 *                    id
 * @return [n, D]
 */
FSDP_API fsdp_tensor *fsdp_embedding(fsdp_scope *s, const int32_t *ids, int64_t n,
                                     fsdp_tensor *weight, int32_t padding_idx);
/** x / sqrt(mean(x^2) + eps) * w over the last dimension (Zhang & Sennrich 2019), with w [D]. If w
 * is float32, so is the result, as in transformers. */
FSDP_API fsdp_tensor *fsdp_rms_norm(fsdp_scope *s, fsdp_tensor *x, fsdp_tensor *w, float eps);
/** torch.nn.functional.layer_norm: (x - mean) / sqrt(variance + eps) * w + bias over the last
 * dimension, with the population variance (Ba et al. 2016). w [D] and bias [D] (or NULL) share one
 * dtype, which may differ from x's. */
FSDP_API fsdp_tensor *fsdp_layer_norm(fsdp_scope *s, fsdp_tensor *x, fsdp_tensor *w,
                                      fsdp_tensor *bias, float eps);
/** Element-wise x + y and x * y for equal shapes. If the dtypes differ, the result is float32, as
 * in PyTorch. @{ */
FSDP_API fsdp_tensor *fsdp_add(fsdp_scope *s, fsdp_tensor *x, fsdp_tensor *y);
FSDP_API fsdp_tensor *fsdp_mul(fsdp_scope *s, fsdp_tensor *x, fsdp_tensor *y);
/** @} */
/** fsdp_add() for callers that do not read x afterwards. When a checkpointed module runs again in
 * backward, the sum reuses x's memory if nothing else refers to it. */
FSDP_API fsdp_tensor *fsdp_add_(fsdp_scope *s, fsdp_tensor *x, fsdp_tensor *y);
FSDP_API fsdp_tensor *fsdp_scale(fsdp_scope *s, fsdp_tensor *x, float factor);
FSDP_API fsdp_tensor *fsdp_relu(fsdp_scope *s, fsdp_tensor *x);
/** torch.relu_: the result reuses x's memory if nothing else refers to it. Do not read x
 * afterwards. */
FSDP_API fsdp_tensor *fsdp_relu_(fsdp_scope *s, fsdp_tensor *x);
/** gelu_new: 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) (Hendrycks & Gimpel 2016). */
FSDP_API fsdp_tensor *fsdp_gelu_new(fsdp_scope *s, fsdp_tensor *x);
/** x * Phi(x), with Phi the CDF of the normal distribution (Hendrycks & Gimpel 2016, arXiv
 * 1606.08415). */
FSDP_API fsdp_tensor *fsdp_gelu(fsdp_scope *s, fsdp_tensor *x);
/** x / (1 + e^-x). */
FSDP_API fsdp_tensor *fsdp_silu(fsdp_scope *s, fsdp_tensor *x);
FSDP_API fsdp_tensor *fsdp_tanh(fsdp_scope *s, fsdp_tensor *x);
/** gelu_new(gate) * up (GEGLU; Shazeer 2020, arXiv 2002.05202). */
FSDP_API fsdp_tensor *fsdp_geglu(fsdp_scope *s, fsdp_tensor *gate, fsdp_tensor *up);
/** silu(gate) * up (SwiGLU; Shazeer 2020, arXiv 2002.05202). */
FSDP_API fsdp_tensor *fsdp_swiglu(fsdp_scope *s, fsdp_tensor *gate, fsdp_tensor *up);
/**
 * Set each element of x to zero with probability p and divide the others by 1 - p (Srivastava et
 * al. 2014). Returns x itself if p is 0 or the scope is not training. The mask is a function of
 * (seed, step, micro_batch, call number, element). p is rounded to a multiple of 2^-16.
 */
FSDP_API fsdp_tensor *fsdp_dropout(fsdp_scope *s, fsdp_tensor *x, float p);
/**
 * float16: if any element is infinite, clamp x to +-64512 (finfo.max - 1000, rounded), as
 * transformers' T5Block does after each layer. Clamped elements get no gradient. The result reuses
 * x's memory if nothing else refers to it; do not read x afterwards. Other dtypes: returns x
 * itself.
 */
FSDP_API fsdp_tensor *fsdp_clamp_infinite_(fsdp_scope *s, fsdp_tensor *x);
/**
 * fsdp_dropout(fsdp_relu_(x), p), with the same bits. One result is kept for backward instead of
 * two, and backward draws no random numbers. x may have any shape. The result reuses x's memory if
 * nothing else refers to it. The scope fails unless p is in [0, 1].
 */
FSDP_API fsdp_tensor *fsdp_relu_dropout_(fsdp_scope *s, fsdp_tensor *x, float p);
/** fsdp_dropout(fsdp_geglu(gate, up), p), with the same bits. Backward recomputes the result of
 * geglu instead of keeping it. gate and up have the same shape and dtype. The scope fails unless p
 * is in [0, 1]. */
FSDP_API fsdp_tensor *fsdp_geglu_dropout(fsdp_scope *s, fsdp_tensor *gate, fsdp_tensor *up,
                                         float p);

/**
 * torch.Tensor.to(dtype): convert x, rounding to nearest even. Returns x itself if it has that
 * dtype already. The gradient is converted back to x's dtype. If x is a leaf, the gradient is
 * instead added to the leaf's gradient without this rounding.
 * @param dtype float32, bfloat16 or float16
 */
FSDP_API fsdp_tensor *fsdp_cast(fsdp_scope *s, fsdp_tensor *x, fsdp_dtype dtype);

/** Zero means default. */
typedef struct fsdp_attention_options {
    int64_t heads, kv_heads;   /**< kv_heads 0: the same as heads */
    const int32_t *q_offsets;  /**< [n_sequences + 1] first rows of the sequences in q, copied */
    const int32_t *kv_offsets; /**< [n_sequences + 1] first rows of the sequences in k and v,
                                    copied; NULL: q_offsets */
    /** [n_sequences] end of each sequence's rows in k and v. Needed if k and v have unused rows
     * between sequences. NULL: each sequence ends where the next one begins. Must be NULL if
     * gradients are needed. */
    const int32_t *kv_ends;
    int64_t n_sequences;
    /** Mask keys after the query. If a sequence has fewer queries than keys, the queries are at the
     * positions of the last keys. */
    bool causal;
    int64_t window;  /**< > 0: also mask keys that are `window` or more positions before the
                          query */
    float scale;     /**< q k^T is multiplied by this; 0 means 1 / sqrt(K). T5 uses 1. */
    float dropout_p; /**< dropout of the probabilities, if the scope is training */
} fsdp_attention_options;

/**
 * Multi-head attention over packed sequences: softmax(scale q k^T + position_bias) v, separately
 * for each sequence. The result of a query that sees no key is 0.
 *
 * @param q             [Tq, H * K]
 * @param k, v          [Tk, kv_heads * K]
 * @param position_bias [H, 2 * span - 1] float32 from fsdp_relative_position_bias(), or NULL. The
 *                      value in column (key - query) + span - 1 is added to the score
 * @return [Tq, H * K]
 */
FSDP_API fsdp_tensor *fsdp_attention(fsdp_scope *s, fsdp_tensor *q, fsdp_tensor *k, fsdp_tensor *v,
                                     fsdp_tensor *position_bias,
                                     const fsdp_attention_options *options);

/**
 * Rotary position embedding (Su et al. 2021, arXiv 2104.09864). As in transformers' Llama, elements
 * j and j + K/2 of a head form a pair, which is rotated by an angle that depends on j and the
 * position.
 *
 * y = x cos + rotate_half(x) sin, computed in float32 and rounded once. The table gets no gradient.
 *
 * @param x         [T, heads * K], K even
 * @param table     [P, K] float32: column j < K/2 of row p is cos(p inv_freq[j]), column K/2 + j is
 *                  sin(p inv_freq[j])
 * @param positions [T] in [0, P), host memory, copied
 * @return [T, heads * K]
 */
FSDP_API fsdp_tensor *fsdp_rope(fsdp_scope *s, fsdp_tensor *x, fsdp_tensor *table,
                                const int32_t *positions, int64_t heads);

/**
 * T5's relative position bias (Raffel et al. 2020, section 2.1): for every distance key - query in
 * (-span, span), look up the row of weight [buckets, H] that belongs to the distance's bucket.
 *
 * @param bidirectional true in the encoder: half of the buckets are for keys after the query
 * @return [H, 2 * span - 1] float32
 */
FSDP_API fsdp_tensor *fsdp_relative_position_bias(fsdp_scope *s, fsdp_tensor *weight, int64_t span,
                                                  int64_t max_distance, bool bidirectional);
/** Return the bucket of one distance (key - query), as in transformers' T5Attention. */
FSDP_API int64_t fsdp_relative_position_bucket(int64_t distance, bool bidirectional,
                                               int64_t buckets, int64_t max_distance);

/**
 * The output embedding and the loss of a language model in one operation. The logits are x w^T, and
 * the result is factor * sum over rows of -log softmax(x w^T)[label].
 *
 * At most 352 rows of logits are in memory at a time. If gradients are needed, forward also
 * computes the gradients of x and w. The gradient of the result must therefore be 1: scale the loss
 * with `factor`, not afterwards. If w is a sharded parameter, forward adds w's gradient to the
 * gradients of its unit, and fsdp_backward() on this tape must reach the result. To evaluate the
 * loss without a backward, use a scope without a tape, or call fsdp_tape_reset() afterwards.
 *
 * @param x      [T, D]; rows whose label is negative are not computed
 * @param w      [V, D]
 * @param labels [T] in [0, V), or negative: ignored (-100); host memory, copied
 * @param factor 1 for a sum; 1 / number of labels for a mean
 * @return [] float32
 */
FSDP_API fsdp_tensor *fsdp_linear_cross_entropy(fsdp_scope *s, fsdp_tensor *x, fsdp_tensor *w,
                                                const int32_t *labels, float factor);
/** fsdp_linear_cross_entropy(), but the gradient of x reuses x's memory if nothing else refers to
 * it. Do not read x afterwards. */
FSDP_API fsdp_tensor *fsdp_linear_cross_entropy_(fsdp_scope *s, fsdp_tensor *x, fsdp_tensor *w,
                                                 const int32_t *labels, float factor);
/**
 * torch.nn.functional.cross_entropy for a classification head with few classes: factor * sum over
 * rows of -log softmax(logits)[label]. The gradient of the result may have any value.
 *
 * @param logits [T, V]; kept for backward
 * @param labels [T] below V, or negative: ignored (-100); host memory, copied
 * @param factor 1 for a sum; 1 / number of labels for a mean
 * @return [] float32
 */
FSDP_API fsdp_tensor *fsdp_cross_entropy(fsdp_scope *s, fsdp_tensor *logits, const int32_t *labels,
                                         float factor);
/** x.sum(): the sum of all elements, in float32. @return [] float32 */
FSDP_API fsdp_tensor *fsdp_sum(fsdp_scope *s, fsdp_tensor *x);
/** out[i] = x[rows[i]]. The n entries of `rows` are in [0, T), and no two are equal. `rows` is in
 * host memory and is copied. */
FSDP_API fsdp_tensor *fsdp_gather_rows(fsdp_scope *s, fsdp_tensor *x, const int32_t *rows,
                                       int64_t n);
/**
 * Mean pooling, one mean for each segment: out[i] is the mean of rows [offsets[i], offsets[i + 1])
 * of x [T, D], summed in float32; zero for a segment without rows.
 *
 * @param offsets [n + 1] ascending from 0 to T, host memory, copied
 * @return [n, D]
 */
FSDP_API fsdp_tensor *fsdp_segment_mean(fsdp_scope *s, fsdp_tensor *x, const int32_t *offsets,
                                        int64_t n);

enum {
    FSDP_MAX_CHUNKS = 8
};
/**
 * torch.chunk(x, n, dim=-1): split x along its last dimension into n equal parts, each contiguous.
 * Where a part gets no gradient, the gradient of x is 0.
 *
 * @param n   in [1, FSDP_MAX_CHUNKS], a divisor of x's last dimension
 * @param out [n] the parts; all NULL if the scope has failed
 */
FSDP_API void fsdp_chunk(fsdp_scope *s, fsdp_tensor *x, int n, fsdp_tensor **out);
/** @} */

#ifdef __cplusplus
}
#endif
