/**
 * @file
 * Scopes, tapes, differentiable operations and backward.
 *
 * An operation is a function that takes a scope and tensors, and returns a tensor that the scope
 * owns. The scope records the first failure of an operation. After that, operations in the scope do
 * nothing and return NULL, so the caller need only check fsdp_scope_status() at the end. If the
 * scope has a tape, an operation on tensors that require a gradient adds a node to the tape.
 * fsdp_backward() runs the hand-written backward of each node, newest first.
 *
 * The sequences of a batch are packed without padding. An activation is [T, D] and has one row for
 * each token of the batch. An array of offsets gives the first row of each sequence.
 *
 * Legend: T tokens of all sequences, D model width, F feed-forward width, V vocabulary, H heads, K
 * head width.
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
/** The inputs or the outputs of a module's forward: n borrowed tensors. */
typedef struct fsdp_args {
    fsdp_tensor *t[FSDP_MAX_ARGS];
    int n;
} fsdp_args;

/** @name Tape @{ */
/** Create a tape. Each rank needs its own. A tape collects the nodes of forwards until
 * fsdp_backward() uses and removes them. */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_tape_create(fsdp_tape **tape);
/** Reset and free the tape. Call this before destroying the modules that ran on the tape. Accepts
 * NULL. */
FSDP_API void fsdp_tape_destroy(fsdp_tape *tape);
/**
 * Remove all nodes and release the tensors that the nodes saved. This cancels a forward whose
 * backward has not run. Units that took part in that forward drop what they kept for its backward.
 * They also drop all gradients of the unfinished step: the sums of earlier micro-steps, and
 * gradients that fsdp_linear_cross_entropy() has added in a forward on another tape. If gradients
 * from a forward on another tape were dropped, the next backward on that tape returns
 * FSDP_ERR_STATE. The values of parameters do not change. A module call that fails calls this
 * function itself.
 */
FSDP_API void fsdp_tape_reset(fsdp_tape *tape);
/** @} */

/** Options of one forward. A field that is 0 or NULL has its default. */
typedef struct fsdp_scope_options {
    bool training; /**< enables dropout */
    uint64_t seed; /**< seed of dropout, used together with step and micro_batch */
    uint32_t step; /**< index of the optimizer step; used in messages and for random numbers */
    uint32_t micro_batch; /**< index of this rank's micro-batch in the step: micro_step * world_size
                             + rank */
    /** With gradient accumulation, an optimizer step has n_micro_steps micro-steps (0 means 1).
     * micro_step is the index of the micro-step that this forward belongs to. */
    int micro_step, n_micro_steps;
    const struct fsdp_batch *batch; /**< borrowed until backward has ended; may be NULL */
    /** Smoothing of the labels in fsdp_cross_entropy() and fsdp_linear_cross_entropy(), in [0, 1).
     * The loss of a label is (1 - label_smoothing) times its -log softmax, plus label_smoothing
     * times the mean of -log softmax over all classes, as in transformers' LabelSmoother. 0: none.
     */
    float label_smoothing;
} fsdp_scope_options;

/**
 * Open a scope for one forward.
 * @param tape    borrowed; NULL: no gradients (torch.no_grad)
 * @param options NULL: all defaults; copied
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_scope_open(fsdp_device *device, fsdp_tape *tape,
                                                     const fsdp_scope_options *options,
                                                     fsdp_scope **scope);
/** Free the scope and release every tensor that it owns. Tensors that must live longer must have
 * been retained. Accepts NULL. */
FSDP_API void fsdp_scope_close(fsdp_scope *scope);
/** Return the status of the first failure in the scope, and set fsdp_last_error() to its message.
 * Return FSDP_OK if nothing has failed. */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_scope_status(const fsdp_scope *scope);
/** Record a failure in the scope: `status` and the message of fsdp_last_error(). No effect if the
 * scope has failed already. */
FSDP_API void fsdp_scope_fail(fsdp_scope *scope, fsdp_status status);
FSDP_API fsdp_device *fsdp_scope_device(const fsdp_scope *scope);
FSDP_API const fsdp_scope_options *fsdp_scope_get_options(const fsdp_scope *scope);
/** Release a tensor that the scope owns. This saves memory, because fsdp_scope_close() would
 * release the tensor only later. If backward needs the tensor, the tape has another reference to
 * it, and the tensor still exists after this call. */
FSDP_API void fsdp_drop(fsdp_scope *scope, fsdp_tensor *tensor);

/** If `on` is true, make `tensor` a leaf: backward computes its gradient. If `on` is false, undo
 * this and drop the gradient. */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_tensor_set_requires_grad(fsdp_tensor *tensor, bool on);
/** Get the gradient of a leaf. It is float32 and has the leaf's shape. Return NULL if no backward
 * has computed it since fsdp_tensor_zero_grad(). Borrowed. */
FSDP_API fsdp_tensor *fsdp_tensor_grad(const fsdp_tensor *tensor);
FSDP_API void fsdp_tensor_zero_grad(fsdp_tensor *tensor);

/**
 * Compute the gradients of the leaves that `roots` depend on and add them to the leaves' existing
 * gradients. The tape is empty afterwards.
 *
 * @param grads [n] gradients of the roots, each with its root's shape and dtype. NULL, or a NULL
 *              entry: the gradient is 1, and the root must have one element
 * @return the first failure, e.g. FSDP_ERR_INVALID for wrong roots or grads. FSDP_ERR_STATE if an
 *         fsdp_linear_cross_entropy() on the tape has a sharded weight and no root depends on the
 *         result of that operation. After a failure, the tape is reset as by fsdp_tape_reset().
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_backward(fsdp_tape *tape, fsdp_tensor *const *roots,
                                                   fsdp_tensor *const *grads, int n);

/**
 * @name Activation offload
 * With activation checkpointing, each call of a module keeps some tensors for backward. Backward
 * runs the calls again, the last one first. An activation offload is a temporary file for the kept
 * tensors (fsdp_activation_checkpointing_options.offload). In forward, a background thread writes
 * the tensors of a call to the file. In backward, while one call runs again, the thread already
 * reads the tensors of the call that will run again next. The file has no name in the file system,
 * so it disappears when the process ends. @{
 */
typedef struct fsdp_activation_offload fsdp_activation_offload;

/** A field that is 0 or NULL has its default. */
typedef struct fsdp_activation_offload_options {
    const char *dir;  /**< folder of the file, created if missing; default: $TMPDIR if it is set,
                         else /tmp */
    size_t min_bytes; /**< tensors of fewer bytes stay in memory; default 65536 */
} fsdp_activation_offload_options;

/**
 * Create the file of one rank. Several modules may use the same file.
 * @param offload out: owned by the caller; must outlive every tape on which these modules run
 * @return FSDP_ERR_IO or FSDP_ERR_NOT_FOUND; the message names the folder. If the disk becomes
 *         full, the forward that needs the space fails.
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_activation_offload_create(
    const fsdp_activation_offload_options *options, fsdp_activation_offload **offload);
FSDP_API void
fsdp_activation_offload_destroy(fsdp_activation_offload *offload); /**< accepts NULL */
/** Return the largest size that the file has had so far, in bytes. */
FSDP_API int64_t fsdp_activation_offload_peak(const fsdp_activation_offload *offload);
/** @} */

/**
 * @name Operations
 * Unless a comment says otherwise, inputs and results are contiguous and have one floating dtype.
 * @{
 */

/** torch.nn.functional.linear: y [T, N] = x [T, D] w^T + bias, with w [N, D] and bias [N] or NULL.
 * x may have any number of dimensions before D. */
FSDP_API fsdp_tensor *fsdp_linear(fsdp_scope *s, fsdp_tensor *x, fsdp_tensor *w, fsdp_tensor *bias);
/** torchao.float8's recipes: how the operands of the three products of a linear layer are scaled.
 */
typedef enum fsdp_float8_recipe {
    /** "tensorwise": one scale for each tensor. x and w are cast to e4m3fn, and the gradient of y
     * is cast to e5m2. */
    FSDP_FLOAT8_TENSORWISE,
    /** "rowwise": in a product, each row of the left operand and each column of the right operand
     * has one scale. Scales are rounded down to powers of two. All operands are cast to e4m3fn. */
    FSDP_FLOAT8_ROWWISE,
    /** "rowwise_with_gw_hp": as FSDP_FLOAT8_ROWWISE, but w has one scale in the product that gives
     * the gradient of x, and the gradient of w is computed without float8. */
    FSDP_FLOAT8_ROWWISE_WITH_GW_HP,
} fsdp_float8_recipe;
/** torchao's Float8Linear: fsdp_linear() with products of 8-bit floats, whose sums are float32. The
 * scales are computed from x, w and the gradient of y in each call. Fails with FSDP_ERR_UNSUPPORTED
 * on a device that does not compute in float8. */
FSDP_API fsdp_tensor *fsdp_float8_linear(fsdp_scope *s, fsdp_tensor *x, fsdp_tensor *w,
                                         fsdp_tensor *bias, fsdp_float8_recipe recipe);
/** transformers' Conv1D (GPT-2): y [T, N] = x [T, D] w + bias, with bias [N] or NULL. w is [D, N],
 * the transpose of the w of fsdp_linear(). */
FSDP_API fsdp_tensor *fsdp_conv1d(fsdp_scope *s, fsdp_tensor *x, fsdp_tensor *w, fsdp_tensor *bias);
/**
 * torch.nn.functional.embedding: look up rows of weight [V, D] by id.
 * @param ids         [n] each in [0, V); in host memory, copied
 * @param padding_idx lookups of this id are left out of the weight's gradient; -1: no lookup is
 *                    left out
 * @return [n, D]
 */
FSDP_API fsdp_tensor *fsdp_embedding(fsdp_scope *s, const int32_t *ids, int64_t n,
                                     fsdp_tensor *weight, int32_t padding_idx);
/** x / sqrt(mean(x^2) + eps) * w over the last dimension (Zhang & Sennrich 2019), with w [D]. The
 * size of the last dimension may also be a multiple of D. Then each vector of D elements is
 * normalized on its own. Qwen3 normalizes each head of its queries in this way. If w is float32,
 * the result is float32, too, as in transformers. */
FSDP_API fsdp_tensor *fsdp_rms_norm(fsdp_scope *s, fsdp_tensor *x, fsdp_tensor *w, float eps);
/** torch.nn.functional.layer_norm: (x - mean) / sqrt(variance + eps) * w + bias over the last
 * dimension, with the population variance (Ba et al. 2016). w [D] and bias [D] (or NULL) share one
 * dtype, which may differ from x's. */
FSDP_API fsdp_tensor *fsdp_layer_norm(fsdp_scope *s, fsdp_tensor *x, fsdp_tensor *w,
                                      fsdp_tensor *bias, float eps);
/** fsdp_add() returns x + y and fsdp_mul() returns x * y, element by element. The shapes must be
 * equal. If the dtypes differ, the result is float32, as in PyTorch. @{ */
FSDP_API fsdp_tensor *fsdp_add(fsdp_scope *s, fsdp_tensor *x, fsdp_tensor *y);
FSDP_API fsdp_tensor *fsdp_mul(fsdp_scope *s, fsdp_tensor *x, fsdp_tensor *y);
/** @} */
/** fsdp_add() for callers that do not read x afterwards. When activation checkpointing runs a
 * forward again, the sum reuses x's memory if nothing else refers to x. */
FSDP_API fsdp_tensor *fsdp_add_(fsdp_scope *s, fsdp_tensor *x, fsdp_tensor *y);
FSDP_API fsdp_tensor *fsdp_scale(fsdp_scope *s, fsdp_tensor *x, float factor);
FSDP_API fsdp_tensor *fsdp_relu(fsdp_scope *s, fsdp_tensor *x);
/** torch.relu_: the result reuses x's memory if nothing else refers to x. Do not read x
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
 * Dropout (Srivastava et al. 2014): each element of the result is 0 with probability p, else x's
 * element divided by 1 - p. Returns x itself if p is 0 or the scope is not training. The choice
 * depends only on the scope's seed, step and micro_batch, the number of earlier dropouts in the
 * scope, and the element's index. p is rounded to a multiple of 2^-16.
 */
FSDP_API fsdp_tensor *fsdp_dropout(fsdp_scope *s, fsdp_tensor *x, float p);
/**
 * Compute x + dropout(y) in one operation. The result has the same bits as fsdp_add(x,
 * fsdp_dropout(y, p)). x and y must have the same shape. Do not read y afterwards: when activation
 * checkpointing runs a forward again, the result may use y's memory if nothing else refers to y. p
 * must be in [0, 1].
 */
FSDP_API fsdp_tensor *fsdp_add_dropout_(fsdp_scope *s, fsdp_tensor *x, fsdp_tensor *y, float p);
/**
 * If x is float16 and has an infinite element, clamp all elements to [-64512, 64512] (finfo.max -
 * 1000, rounded), as transformers' T5Block does after each layer. Clamped elements get no gradient.
 * The result reuses x's memory if nothing else refers to x; do not read x afterwards. If x is not
 * float16, the result is x itself.
 */
FSDP_API fsdp_tensor *fsdp_clamp_infinite_(fsdp_scope *s, fsdp_tensor *x);
/**
 * Return the same bits as fsdp_dropout(fsdp_relu_(x), p). This function keeps only one tensor for
 * backward instead of two, and its backward draws no random numbers. x may have any shape. The
 * result reuses x's memory if nothing else refers to x; do not read x afterwards. p must be in [0,
 * 1].
 */
FSDP_API fsdp_tensor *fsdp_relu_dropout_(fsdp_scope *s, fsdp_tensor *x, float p);
/** Return the same bits as fsdp_dropout(fsdp_geglu(gate, up), p). This function does not keep the
 * result of geglu: backward computes it again. `gate` and `up` must have the same shape and dtype.
 * p must be in [0, 1]. */
FSDP_API fsdp_tensor *fsdp_geglu_dropout(fsdp_scope *s, fsdp_tensor *gate, fsdp_tensor *up,
                                         float p);

/**
 * torch.Tensor.to(dtype): convert x, rounding to nearest even. Returns x itself if its dtype is
 * `dtype`. If x is not a leaf, backward converts the gradient back to x's dtype. If x is a leaf,
 * backward adds the gradient to the leaf's gradient and does not convert it.
 * @param dtype float32, bfloat16 or float16
 */
FSDP_API fsdp_tensor *fsdp_cast(fsdp_scope *s, fsdp_tensor *x, fsdp_dtype dtype);

/** A field that is 0 or NULL has its default. The arrays are borrowed for the call. */
typedef struct fsdp_attention_options {
    /** `heads` is the number of heads of q. kv_heads is the number of heads of k and v; default
     * `heads`. */
    int64_t heads, kv_heads;
    /** [n_sequences + 1] Sequence i has rows [q_offsets[i], q_offsets[i + 1]) of q. */
    const int32_t *q_offsets;
    /** [n_sequences + 1] Sequence i has rows [kv_offsets[i], kv_offsets[i + 1]) of k and v. NULL: k
     * and v have the same offsets as q (q_offsets). */
    const int32_t *kv_offsets;
    /** [n_sequences] Sequence i has rows [kv_offsets[i], kv_ends[i]) of k and v. This field is for
     * k and v that have unused rows between the sequences. NULL: each sequence ends where the next
     * one begins. Must be NULL if gradients are needed. */
    const int32_t *kv_ends;
    int64_t n_sequences;
    /** For each query, mask the keys at later positions. If a sequence has n keys and only m < n
     * queries, the queries are at the positions of the last m keys. */
    bool causal;
    int64_t window;  /**< for each query, also mask the keys that are `window` or more positions
                        before it; 0: no window */
    float scale;     /**< q k^T is multiplied by this; default 1 / sqrt(K). T5 uses 1. */
    float dropout_p; /**< probability of dropout of the attention weights, in [0, 1); 0 is used
                        unless the scope is training */
} fsdp_attention_options;

/**
 * Multi-head attention over packed sequences: softmax(scale q k^T + position_bias) v, separately
 * for each sequence. If all keys of a query are masked, the query's result is 0.
 *
 * @param q             [Tq, H * K]
 * @param k, v          [Tk, kv_heads * K]
 * @param position_bias [H, 2 * span - 1] float32 from fsdp_relative_position_bias(), or NULL. For a
 *                      query at position i and a key at position j, the value in column (j - i) +
 *                      span - 1 is added to their score.
 * @return [Tq, H * K]
 */
FSDP_API fsdp_tensor *fsdp_attention(fsdp_scope *s, fsdp_tensor *q, fsdp_tensor *k, fsdp_tensor *v,
                                     fsdp_tensor *position_bias,
                                     const fsdp_attention_options *options);

/**
 * Rotary position embedding (Su et al. 2021, arXiv 2104.09864). As in transformers' Llama, elements
 * j and j + K/2 of a head form a pair, for j < K/2. The pair is rotated by an angle that depends on
 * j and on the token's position.
 *
 * The result is x cos + rotate_half(x) sin, computed in float32 and rounded once. The table gets no
 * gradient.
 *
 * @param x         [T, heads * K], K even
 * @param table     [P, K] float32: column j < K/2 of row p is cos(p inv_freq[j]), column K/2 + j is
 *                  sin(p inv_freq[j])
 * @param positions [T] position of each token, in [0, P); in host memory, copied
 * @return [T, heads * K]
 */
FSDP_API fsdp_tensor *fsdp_rope(fsdp_scope *s, fsdp_tensor *x, fsdp_tensor *table,
                                const int32_t *positions, int64_t heads);

/**
 * T5's relative position bias (Raffel et al. 2020, section 2.1). A distance is the position of a
 * key minus the position of a query, and is in (-span, span). Each distance belongs to a bucket,
 * and each bucket has a row of weight [buckets, H]. For each distance, look up the row of its
 * bucket.
 *
 * @param bidirectional true in the encoder: half of the buckets are for keys after the query
 * @return [H, 2 * span - 1] float32
 */
FSDP_API fsdp_tensor *fsdp_relative_position_bias(fsdp_scope *s, fsdp_tensor *weight, int64_t span,
                                                  int64_t max_distance, bool bidirectional);
/** Return the bucket to which a distance (key - query) belongs, as in transformers' T5Attention. */
FSDP_API int64_t fsdp_relative_position_bucket(int64_t distance, bool bidirectional,
                                               int64_t buckets, int64_t max_distance);

/**
 * The output embedding and the loss of a language model in one operation. The logits are x w^T. The
 * result is `factor` times the sum, over the rows of x, of -log softmax(x w^T)[label].
 *
 * Only some rows of the logits are in memory at a time (at most 352 on a CPU). If gradients are
 * needed, forward computes the gradients of x and w together with the loss, and assumes that the
 * gradient of the result will be 1. So use `factor` to scale the loss, and do not scale the result.
 * If w is a sharded parameter, forward also adds w's gradient to the gradients of w's unit. After
 * such a forward, the program must call fsdp_backward() with a root that depends on the result, or
 * call fsdp_tape_reset(). A scope without a tape computes only the loss.
 *
 * @param x      [T, D]; nothing is computed for ignored rows
 * @param w      [V, D]
 * @param labels [T] each in [0, V), or negative (-100): the row is ignored; in host memory, copied
 * @param factor 1 for a sum; 1 / number of labels for a mean
 * @return a float32 scalar
 */
FSDP_API fsdp_tensor *fsdp_linear_cross_entropy(fsdp_scope *s, fsdp_tensor *x, fsdp_tensor *w,
                                                const int32_t *labels, float factor);
/** fsdp_linear_cross_entropy(), but the gradient of x reuses x's memory if nothing else refers to
 * x. Do not read x afterwards. */
FSDP_API fsdp_tensor *fsdp_linear_cross_entropy_(fsdp_scope *s, fsdp_tensor *x, fsdp_tensor *w,
                                                 const int32_t *labels, float factor);
/** fsdp_linear_cross_entropy_() for a head with a bias, as BERT's: the logits are x w^T + bias.
 * @param bias [V], of the dtype of x and w; NULL: the head has no bias */
FSDP_API fsdp_tensor *fsdp_linear_cross_entropy_bias_(fsdp_scope *s, fsdp_tensor *x, fsdp_tensor *w,
                                                      fsdp_tensor *bias, const int32_t *labels,
                                                      float factor);
/**
 * torch.nn.functional.cross_entropy for a classification head with few classes. The result is
 * `factor` times the sum, over the rows, of -log softmax(logits)[label]. The gradient of the result
 * may have any value.
 *
 * @param logits [T, V]; V classes
 * @param labels [T] each in [0, V), or negative (-100): the row is ignored; in host memory, copied
 * @param factor 1 for a sum; 1 / number of labels for a mean
 * @return a float32 scalar
 */
FSDP_API fsdp_tensor *fsdp_cross_entropy(fsdp_scope *s, fsdp_tensor *logits, const int32_t *labels,
                                         float factor);
/**
 * torch.nn.functional.mse_loss for a head with few outputs. The result is `factor` times the sum,
 * over the rows, of the mean of (logits - targets)^2. The gradient of the result may have any
 * value.
 *
 * @param logits  [T, V] float32
 * @param targets [T, V]; NaN in the first column: the row is ignored; in host memory, copied
 * @param factor  1 for a sum; 1 / number of rows for the mean that torch computes
 * @return a float32 scalar
 */
FSDP_API fsdp_tensor *fsdp_mse_loss(fsdp_scope *s, fsdp_tensor *logits, const float *targets,
                                    float factor);
/** torch.nn.functional.binary_cross_entropy_with_logits, with the arguments of fsdp_mse_loss(). */
FSDP_API fsdp_tensor *fsdp_binary_cross_entropy_with_logits(fsdp_scope *s, fsdp_tensor *logits,
                                                            const float *targets, float factor);
/** x.sum(): return the sum of all elements, a float32 scalar. */
FSDP_API fsdp_tensor *fsdp_sum(fsdp_scope *s, fsdp_tensor *x);
/** Return a tensor [n, ...] whose row i is row rows[i] of x [T, ...]. The n entries of `rows` must
 * be in [0, T) and all different. `rows` is in host memory and is copied. */
FSDP_API fsdp_tensor *fsdp_gather_rows(fsdp_scope *s, fsdp_tensor *x, const int32_t *rows,
                                       int64_t n);
/**
 * Mean pooling. Row i of the result is the mean of rows [offsets[i], offsets[i + 1]) of x [T, D],
 * summed in float32. If offsets[i] equals offsets[i + 1], row i of the result is zeros.
 *
 * @param offsets [n + 1] ascending from 0 to T; in host memory, copied
 * @return [n, D]
 */
FSDP_API fsdp_tensor *fsdp_segment_mean(fsdp_scope *s, fsdp_tensor *x, const int32_t *offsets,
                                        int64_t n);

enum {
    FSDP_MAX_CHUNKS = 8
};
/**
 * torch.chunk(x, n, dim=-1): split x along its last dimension into n equal parts, each contiguous.
 * If backward has no gradient for a part, the gradient of x is 0 in the elements of that part.
 *
 * @param n   in [1, FSDP_MAX_CHUNKS]; the size of x's last dimension must be a multiple of n
 * @param out [n] the parts; all NULL if the scope has failed
 */
FSDP_API void fsdp_chunk(fsdp_scope *s, fsdp_tensor *x, int n, fsdp_tensor **out);
/** @} */

#ifdef __cplusplus
}
#endif
