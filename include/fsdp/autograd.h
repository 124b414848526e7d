/**
 * @file
 * Scopes, tapes, differentiable operations and backward.
 *
 * Operations are expressions: they take a scope and return a tensor that the scope owns. The first
 * failure stays in the scope; later operations do nothing and return NULL, and the caller checks
 * fsdp_scope_status() once. With a tape, operations whose inputs need a gradient leave a node on
 * it, and fsdp_backward() runs the nodes' hand-written backwards, newest first.
 *
 * Activations are packed: [T, D] with T the tokens of all sequences, and offsets that say where a
 * sequence begins. Nothing is ever padded.
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
/** What a module's forward is given and what it returns: n tensors, borrowed. */
typedef struct fsdp_args {
    fsdp_tensor *t[FSDP_MAX_ARGS];
    int n;
} fsdp_args;

/** @name Tape @{ */
/** One per rank; nodes of a step, emptied by its backward. */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_tape_create(fsdp_tape **tape);
/** Resets it first, so before the modules that ran on it. Accepts NULL. */
FSDP_API void fsdp_tape_destroy(fsdp_tape *tape);
/**
 * Forget all nodes and release what they saved. A forward that was not followed by a backward is
 * cancelled: sharded modules drop what they hold for it, also sums of earlier micro-steps and what
 * losses of other tapes have added (fsdp_linear_cross_entropy()), whose backward is FSDP_ERR_STATE
 * then; parameters are kept. A module call that fails resets the tape itself.
 */
FSDP_API void fsdp_tape_reset(fsdp_tape *tape);
/** @} */

/** What one forward runs with. Zero means default. */
typedef struct fsdp_scope_options {
    bool training;                  /**< dropout on */
    uint64_t seed;                  /**< of dropout, with step and leaf */
    uint32_t step;                  /**< optimizer step, for messages and random numbers */
    uint32_t leaf;                  /**< micro_step * world_size + rank: the micro-batch */
    int micro_step, n_micro_steps;  /**< gradient accumulation: this one of how many (0: of 1) */
    const struct fsdp_batch *batch; /**< borrowed until the backward has ended; may be NULL */
} fsdp_scope_options;

/**
 * @param tape NULL: no gradients (torch.no_grad)
 * @param options NULL: all defaults; copied
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_scope_open(fsdp_device *device, fsdp_tape *tape,
                                                     const fsdp_scope_options *options,
                                                     fsdp_scope **scope);
/** Releases every tensor it owns: retain what is to live longer. Accepts NULL. */
FSDP_API void fsdp_scope_close(fsdp_scope *scope);
/** The first failure of an operation in it, with its message; FSDP_OK if none. */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_scope_status(const fsdp_scope *scope);
/** Put a failure into the scope, unless it has one; `status`'s message is fsdp_last_error(). */
FSDP_API void fsdp_scope_fail(fsdp_scope *scope, fsdp_status status);
FSDP_API fsdp_device *fsdp_scope_device(const fsdp_scope *scope);
FSDP_API const fsdp_scope_options *fsdp_scope_get_options(const fsdp_scope *scope);
/** Hand back an intermediate before the scope closes. What backward needs stays with the tape. */
FSDP_API void fsdp_drop(fsdp_scope *scope, fsdp_tensor *tensor);

/** Let the gradient of `tensor` be computed; it is a leaf then. Off: it is forgotten. */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_tensor_set_requires_grad(fsdp_tensor *tensor, bool on);
/** Of a leaf: float32, the tensor's shape; NULL before the first backward. Borrowed. */
FSDP_API fsdp_tensor *fsdp_tensor_grad(const fsdp_tensor *tensor);
FSDP_API void fsdp_tensor_zero_grad(fsdp_tensor *tensor);

/**
 * Compute gradients of the leaves that `roots` depend on; they add to what the leaves have. The
 * tape is empty afterwards.
 *
 * @param grads gradients of the roots, of their shape and dtype; NULL (or NULL entries): one, for
 *        a root of one element
 * @return the first failure, also of roots or grads that do not fit, after which hooks were
 *         cancelled and the tape is empty. FSDP_ERR_STATE if a fsdp_linear_cross_entropy() of a
 *         sharded weight is on the tape and no root depends on it.
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_backward(fsdp_tape *tape, fsdp_tensor *const *roots,
                                                   fsdp_tensor *const *grads, int n);

/** @name Activation offload
 * A file to which checkpointed calls (fsdp_module_set_activation_checkpointing_options()) move what
 * they keep. Written and read by a thread of its own, one call ahead of its use; it has no name, so
 * nothing is left of it. @{ */
typedef struct fsdp_activation_offload fsdp_activation_offload;

/** Zero means default. */
typedef struct fsdp_activation_offload_options {
    const char *dir;  /**< folder of the file, made if it is missing; NULL: $TMPDIR, else /tmp */
    size_t min_bytes; /**< smaller tensors stay in memory; 0: 65536 */
} fsdp_activation_offload_options;

/**
 * For one rank; several modules may share it.
 * @param offload out: owned by the caller; outlives every tape that holds calls which use it
 * @return FSDP_ERR_IO or FSDP_ERR_NOT_FOUND naming the folder. A disk that is full is an error of
 *         the forward that needs the room.
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_activation_offload_create(
    const fsdp_activation_offload_options *options, fsdp_activation_offload **offload);
FSDP_API void
fsdp_activation_offload_destroy(fsdp_activation_offload *offload); /**< accepts NULL */
/** Bytes that the file has needed at most. */
FSDP_API int64_t fsdp_activation_offload_peak(const fsdp_activation_offload *offload);
/** @} */

/** @name Operations
 * Inputs are contiguous and of one floating dtype unless said otherwise; results are too. @{ */

/** y [T, N] = x [T, D] w^T + bias: torch.nn.functional.linear. w [N, D], bias [N] or NULL. T may be
 * no or several dimensions. */
FSDP_API fsdp_tensor *fsdp_linear(fsdp_scope *s, fsdp_tensor *x, fsdp_tensor *w, fsdp_tensor *bias);
/** transformers' Conv1D (GPT-2): y [T, N] = x [T, D] w + bias, w [D, N] as fsdp_linear()'s
 * transposed, bias [N] or NULL. */
FSDP_API fsdp_tensor *fsdp_conv1d(fsdp_scope *s, fsdp_tensor *x, fsdp_tensor *w, fsdp_tensor *bias);
/**
 * Rows of weight [V, D] by id: torch.nn.functional.embedding.
 * @param ids [n] in [0, V), host memory, copied
 * @param padding_idx tokens of this id give the weight no gradient; -1: none
 * @return [n, D]
 */
FSDP_API fsdp_tensor *fsdp_embedding(fsdp_scope *s, const int32_t *ids, int64_t n,
                                     fsdp_tensor *weight, int32_t padding_idx);
/** x / sqrt(mean(x^2) + eps) * w over the last dimension (Zhang & Sennrich 2019). w [D]. A float32
 * w makes the result float32, as in transformers. */
FSDP_API fsdp_tensor *fsdp_rms_norm(fsdp_scope *s, fsdp_tensor *x, fsdp_tensor *w, float eps);
/** (x - mean) / sqrt(variance + eps) * w + bias over the last dimension, the variance that of the
 * population (Ba et al. 2016): torch.nn.functional.layer_norm. w [D], bias [D] or NULL, of one
 * dtype, which need not be x's. */
FSDP_API fsdp_tensor *fsdp_layer_norm(fsdp_scope *s, fsdp_tensor *x, fsdp_tensor *w,
                                      fsdp_tensor *bias, float eps);
/** Element-wise, equal shapes; of two dtypes the result is float32, as in PyTorch. @{ */
FSDP_API fsdp_tensor *fsdp_add(fsdp_scope *s, fsdp_tensor *x, fsdp_tensor *y);
FSDP_API fsdp_tensor *fsdp_mul(fsdp_scope *s, fsdp_tensor *x, fsdp_tensor *y);
/** @} */
/** fsdp_add(), after which x is not read any more: in the second run of a checkpointed module the
 * sum lies where x was, if nobody else has that memory. */
FSDP_API fsdp_tensor *fsdp_add_(fsdp_scope *s, fsdp_tensor *x, fsdp_tensor *y);
FSDP_API fsdp_tensor *fsdp_scale(fsdp_scope *s, fsdp_tensor *x, float factor);
FSDP_API fsdp_tensor *fsdp_relu(fsdp_scope *s, fsdp_tensor *x);
/** The same in x's own memory, as torch.relu_, if nobody else holds that: x is not read any more.
 */
FSDP_API fsdp_tensor *fsdp_relu_(fsdp_scope *s, fsdp_tensor *x);
/** gelu_new: 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) (Hendrycks & Gimpel 2016). */
FSDP_API fsdp_tensor *fsdp_gelu_new(fsdp_scope *s, fsdp_tensor *x);
/** x * Phi(x), Phi the normal distribution's (Hendrycks & Gimpel 2016, arXiv 1606.08415). */
FSDP_API fsdp_tensor *fsdp_gelu(fsdp_scope *s, fsdp_tensor *x);
/** x / (1 + e^-x). */
FSDP_API fsdp_tensor *fsdp_silu(fsdp_scope *s, fsdp_tensor *x);
FSDP_API fsdp_tensor *fsdp_tanh(fsdp_scope *s, fsdp_tensor *x);
/** gelu_new(gate) * up (GEGLU; Shazeer 2020, arXiv 2002.05202). */
FSDP_API fsdp_tensor *fsdp_geglu(fsdp_scope *s, fsdp_tensor *gate, fsdp_tensor *up);
/** silu(gate) * up (SwiGLU; Shazeer 2020, arXiv 2002.05202). */
FSDP_API fsdp_tensor *fsdp_swiglu(fsdp_scope *s, fsdp_tensor *gate, fsdp_tensor *up);
/**
 * x with elements zeroed with probability p and the rest divided by 1 - p. x itself if p is 0 or
 * the scope is not training. The mask is a function of (seed, step, leaf, call number, element);
 * it has p to a multiple of 2^-16 (Srivastava et al. 2014).
 */
FSDP_API fsdp_tensor *fsdp_dropout(fsdp_scope *s, fsdp_tensor *x, float p);
/** float16: where any element is infinite, x clamped to +-64512 (finfo.max - 1000, rounded), as
 * transformers' T5Block does after each layer; no gradient passes what was clamped. In x's own
 * memory if nothing else holds that: x is not read any more. x itself in other dtypes. */
FSDP_API fsdp_tensor *fsdp_clamp_infinite_(fsdp_scope *s, fsdp_tensor *x);
/** fsdp_dropout(fsdp_relu_(x), p), with the same bits: one result is kept for backward, not two,
 * and backward draws no random numbers. x of any shape, in whose memory the result is if nobody
 * else holds that; the scope fails unless p is in [0, 1]. */
FSDP_API fsdp_tensor *fsdp_relu_dropout_(fsdp_scope *s, fsdp_tensor *x, float p);
/** fsdp_dropout(fsdp_geglu(gate, up), p), with the same bits: backward makes the result again,
 * where it would else be kept. gate and up of one shape and dtype; the scope fails unless p is in
 * [0, 1]. */
FSDP_API fsdp_tensor *fsdp_geglu_dropout(fsdp_scope *s, fsdp_tensor *gate, fsdp_tensor *up,
                                         float p);

/**
 * torch.Tensor.to(dtype): x rounded to nearest even, x itself if it has the dtype already. The
 * gradient is given back in x's dtype; a leaf's is added up without that rounding.
 * @param dtype float32, bfloat16 or float16
 */
FSDP_API fsdp_tensor *fsdp_cast(fsdp_scope *s, fsdp_tensor *x, fsdp_dtype dtype);

/** Zero means default. */
typedef struct fsdp_attention_options {
    int64_t heads, kv_heads;   /**< kv_heads 0: as heads */
    const int32_t *q_offsets;  /**< [n_sequences + 1] rows of q by sequence, copied */
    const int32_t *kv_offsets; /**< likewise for k and v; NULL: as q_offsets */
    /** [n_sequences]: where each one's rows of k and v end, if there is room behind them. NULL: at
     * the next one's begin. Not with gradients. */
    const int32_t *kv_ends;
    int64_t n_sequences;
    /** A key after the query is not seen. Where a sequence has fewer queries than keys they stand
     * at its last keys. */
    bool causal;
    int64_t window;  /**< > 0: nor is a key `window` or more before the query */
    float scale;     /**< of q k^T; 0: 1 / sqrt(K). T5 uses 1 */
    float dropout_p; /**< on the probabilities, when the scope is training */
} fsdp_attention_options;

/**
 * Multi-head attention over packed sequences: softmax(scale q k^T + position_bias) v, each
 * sequence by itself. A query that sees no key gives 0.
 *
 * @param q [Tq, H * K]
 * @param k, v [Tk, kv_heads * K]
 * @param position_bias [H, 2 * span - 1] float32 from fsdp_relative_position_bias(), or NULL:
 *        column (key - query) + span - 1 is added to the score
 * @return [Tq, H * K]
 */
FSDP_API fsdp_tensor *fsdp_attention(fsdp_scope *s, fsdp_tensor *q, fsdp_tensor *k, fsdp_tensor *v,
                                     fsdp_tensor *position_bias,
                                     const fsdp_attention_options *options);

/**
 * Rotary position embedding (Su et al. 2021, arXiv 2104.09864) with the pairs of transformers'
 * Llama: elements j and j + K/2 of a head are turned by the angle of their position and j.
 *
 * y = x cos + rotate_half(x) sin, in float32 and rounded once. The table gets no gradient.
 *
 * @param x [T, heads * K], K even
 * @param table [P, K] float32: column j < K/2 of row p is cos(p inv_freq[j]), column K/2 + j is
 *        sin(p inv_freq[j])
 * @param positions [T] in [0, P), host memory, copied
 * @return [T, heads * K]
 */
FSDP_API fsdp_tensor *fsdp_rope(fsdp_scope *s, fsdp_tensor *x, fsdp_tensor *table,
                                const int32_t *positions, int64_t heads);

/**
 * T5's bias by distance (Raffel et al. 2020, section 2.1): weight [buckets, H], gathered for every
 * distance key - query in (-span, span).
 *
 * @param bidirectional true in the encoder: half of the buckets are for keys after the query
 * @return [H, 2 * span - 1] float32
 */
FSDP_API fsdp_tensor *fsdp_relative_position_bias(fsdp_scope *s, fsdp_tensor *weight, int64_t span,
                                                  int64_t max_distance, bool bidirectional);
/** The bucket of one distance (key - query), as in transformers' T5Attention. */
FSDP_API int64_t fsdp_relative_position_bucket(int64_t distance, bool bidirectional,
                                               int64_t buckets, int64_t max_distance);

/**
 * The head and its loss in one operation: sum over rows of -log softmax(x w^T)[label] * factor.
 *
 * Logits exist for 352 rows at a time, or fewer; with gradients on, forward already computes those
 * of x and w. So the result's gradient must be 1: scale by `factor`, not afterwards. Where w is a
 * sharded parameter, its gradient adds to the unit's in forward, and the tape's fsdp_backward()
 * must come to the result. A loss that is only looked at is computed without a tape, or
 * fsdp_tape_reset() follows it.
 *
 * @param x [T, D]; rows whose label is negative are not computed
 * @param w [V, D]
 * @param labels [T] in [0, V), or negative: ignored (-100); host memory, copied
 * @param factor 1 for a sum; 1 / labels for a mean
 * @return [] float32
 */
FSDP_API fsdp_tensor *fsdp_linear_cross_entropy(fsdp_scope *s, fsdp_tensor *x, fsdp_tensor *w,
                                                const int32_t *labels, float factor);
/** The same with the gradient of x in x's own memory, if nobody else holds that: x is not read any
 * more. */
FSDP_API fsdp_tensor *fsdp_linear_cross_entropy_(fsdp_scope *s, fsdp_tensor *x, fsdp_tensor *w,
                                                 const int32_t *labels, float factor);
/**
 * Sum over rows of -log softmax(logits)[label] * factor, for the few classes of a classification
 * head: torch.nn.functional.cross_entropy. Backward takes any gradient of the result.
 *
 * @param logits [T, V]; kept for backward
 * @param labels [T] below V, or negative: ignored (-100); host memory, copied
 * @param factor 1 for a sum; 1 / labels for a mean
 * @return [] float32
 */
FSDP_API fsdp_tensor *fsdp_cross_entropy(fsdp_scope *s, fsdp_tensor *logits, const int32_t *labels,
                                         float factor);
/** Sum of all elements, in float32: x.sum(). @return [] float32 */
FSDP_API fsdp_tensor *fsdp_sum(fsdp_scope *s, fsdp_tensor *x);
/** out[i] = x[rows[i]]: rows [n] in [0, T), host memory, copied, each at most once. */
FSDP_API fsdp_tensor *fsdp_gather_rows(fsdp_scope *s, fsdp_tensor *x, const int32_t *rows,
                                       int64_t n);
/**
 * Means of rows, one for each segment (mean pooling): out[i] is the mean of rows
 * [offsets[i], offsets[i + 1]) of x [T, D], summed in float32; zero for a segment without rows.
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
 * n equal parts of x along its last dimension, each contiguous: torch.chunk(x, n, dim=-1). A part
 * that gets no gradient counts as one of zeros.
 *
 * @param n in [1, FSDP_MAX_CHUNKS], a divisor of x's last dimension
 * @param out [n] the parts; all NULL when the scope has failed
 */
FSDP_API void fsdp_chunk(fsdp_scope *s, fsdp_tensor *x, int n, fsdp_tensor **out);
/** @} */

#ifdef __cplusplus
}
#endif
