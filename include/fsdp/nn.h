/**
 * @file
 * Modules: a tree of objects with names, classes, parameters and a forward, like torch.nn.Module.
 *
 * A model first builds its tree without memory: a parameter has only a shape and an initialization.
 * Next, fsdp_fully_shard() allocates each rank's rows of the parameters, or fsdp_module_to_empty()
 * allocates whole parameters. Finally, fsdp_module_init() initializes the parameters, or a
 * checkpoint is loaded into them.
 */
#pragma once
#include <fsdp/autograd.h>
#include <fsdp/base.h>
#include <fsdp/comm.h>
#include <fsdp/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fsdp_module fsdp_module;
typedef struct fsdp_parameter fsdp_parameter;

/** Initial values of a parameter: drawn from N(mean, std), or all equal to `mean` if std is 0. If
 * `bound` is not 0, drawn from the uniform distribution on [-bound, bound), whatever mean and std
 * are. */
typedef struct fsdp_init {
    float mean, std;
    float bound;
    bool has_zero_row; /**< true: row zero_row is initially 0, like row padding_idx of a
                          torch.nn.Embedding; no effect if `bound` is not 0 */
    int64_t zero_row;
} fsdp_init;

/**
 * Create a module without parameters, children or a forward.
 * @param class_name the Hugging Face class ("T5Block"), by which wrap policies find it; copied
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_module_create(const char *class_name,
                                                        fsdp_module **module);
/** Destroy the module and all modules below it. A parameter that several modules have is freed
 * together with the last of them. Accepts NULL. */
FSDP_API void fsdp_module_destroy(fsdp_module *module);
/**
 * Add `child` to `parent`, which then owns `child`. If this fails, `child` is destroyed, unless
 * `child` already has a parent, or is `parent` itself or a module above `parent`
 * (FSDP_ERR_INVALID).
 * @param name copied. FSDP_ERR_INVALID if the name is empty, contains a dot, or is already the name
 *             of a child or parameter of `parent`
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_module_add_child(fsdp_module *parent, const char *name,
                                                           fsdp_module *child);
/** Create a parameter with the dimensions `shape` [ndim], ndim >= 1, and add it to the module.
 * *parameter is borrowed; `parameter` may be NULL. */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_module_add_parameter(fsdp_module *module,
                                                               const char *name, int ndim,
                                                               const int64_t *shape, fsdp_init init,
                                                               fsdp_parameter **parameter);
/** Add an existing parameter under an additional name (tied weights). */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_module_share_parameter(fsdp_module *module,
                                                                 const char *name,
                                                                 fsdp_parameter *parameter);
FSDP_API const char *fsdp_module_class(const fsdp_module *module);
FSDP_API fsdp_module *fsdp_module_parent(const fsdp_module *module);
FSDP_API int fsdp_module_n_children(const fsdp_module *module);
FSDP_API fsdp_module *fsdp_module_child(const fsdp_module *module, int i);
/** Return the module's name within its parent; "" for a root. */
FSDP_API const char *fsdp_module_name(const fsdp_module *module);
/**
 * Set the text that fsdp_module_print() prints in the parentheses of a module without children,
 * like torch's extra_repr(): "p=0.1, inplace=False" for a Dropout. The default text is made from
 * the shapes of the module's parameters.
 * @param text copied
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_module_set_extra_repr(fsdp_module *module,
                                                                const char *text);
/** Find the module at a dotted path below `module`, e.g. "encoder.block.0"; "" is `module` itself.
 * Return NULL if there is none. */
FSDP_API fsdp_module *fsdp_module_find(fsdp_module *module, const char *path);

/** A function that fsdp_module_visit() calls. `path` is the dotted path of `module` below the
 * module at which the visit began. */
typedef fsdp_status fsdp_module_visit_fn(const char *path, fsdp_module *module, void *arg);
/** Call `visit` for `module` (with path "") and for every module below it, parents before children.
 * If `visit` fails, stop and return its failure. */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_module_visit(fsdp_module *module,
                                                       fsdp_module_visit_fn *visit, void *arg);

typedef struct fsdp_named_parameter {
    const char *name; /**< dotted path, borrowed from the list */
    fsdp_parameter *parameter;
} fsdp_named_parameter;

/** Parameters in PyTorch's order: those of a module itself, then those of its children. */
typedef struct fsdp_parameter_list {
    fsdp_named_parameter *items;
    size_t n;
} fsdp_parameter_list;

/**
 * List the parameters of `module` and of all modules below it.
 * @param duplicates false: each parameter once, under its first name (named_parameters());
 *        true: every name (state_dict())
 * @param list out: freed with fsdp_parameter_list_free()
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_module_parameters(fsdp_module *module, bool duplicates,
                                                            fsdp_parameter_list *list);
FSDP_API void fsdp_parameter_list_free(fsdp_parameter_list *list);

/** @name Parameters @{ */
/** Get the tensor that operations read: the whole parameter, in the compute dtype. Return NULL if
 * the parameter has no memory yet. Borrowed. */
FSDP_API fsdp_tensor *fsdp_parameter_data(const fsdp_parameter *parameter);
/** Get the tensor that optimizers update: this rank's rows of the master weights. If the parameter
 * is not sharded, this is the tensor of fsdp_parameter_data(). Read its elements only between
 * fsdp_tensor_begin_read() and fsdp_tensor_end_read(). */
FSDP_API fsdp_tensor *fsdp_parameter_local(const fsdp_parameter *parameter);
/** Get the gradient. It is float32 and has the shape of fsdp_parameter_local(). Return NULL if no
 * backward has computed it since gradients were last released. Borrowed. */
FSDP_API fsdp_tensor *fsdp_parameter_grad(const fsdp_parameter *parameter);
FSDP_API int fsdp_parameter_ndim(const fsdp_parameter *parameter);
/** Get the shape [ndim] of the whole parameter. */
FSDP_API const int64_t *fsdp_parameter_shape(const fsdp_parameter *parameter);
FSDP_API int64_t fsdp_parameter_numel(const fsdp_parameter *parameter);
FSDP_API bool fsdp_parameter_requires_grad(const fsdp_parameter *parameter);
/**
 * Freeze (`on` is false) or unfreeze (`on` is true) a parameter. All ranks must make the call,
 * between two steps. A frozen parameter gets no gradient.
 *
 * A unit stores a trainable parameter in the dtype of the master weights. It stores a frozen
 * parameter in the dtype in which the parameter was loaded, unless that dtype is wider than the
 * dtype of the master weights. This call does not change the memory of a parameter in a unit; the
 * next forward of the unit does. That forward converts an unfrozen parameter to the dtype of the
 * master weights. It converts a frozen parameter to the dtype in which it was loaded, but only if
 * no value changes.
 */
FSDP_API void fsdp_parameter_set_requires_grad(fsdp_parameter *parameter, bool on);
/** Get the range of entries that this rank owns. The tensor of fsdp_parameter_local() has the
 * entries [*begin, *end) of the whole parameter along dimension fsdp_parameter_shard_dim(). */
FSDP_API void fsdp_parameter_rows(const fsdp_parameter *parameter, int64_t *begin, int64_t *end);
/** Return the dimension along which the parameter is sharded. This is 0 (rows), unless
 * shard_placement_fn chose another one. */
FSDP_API int fsdp_parameter_shard_dim(const fsdp_parameter *parameter);
/** Get the group of the ranks over which the parameter is sharded; NULL if it is not sharded. */
FSDP_API fsdp_group *fsdp_parameter_group(const fsdp_parameter *parameter);
/** @} */

/**
 * Allocate memory on `device` for all parameters that have no memory or are on the meta device. A
 * parameter without memory gets float32 memory for the whole parameter. A parameter on the meta
 * device moves to `device`, and keeps its dtype and its sharding. If it belongs to a unit, all
 * parameters of the unit move. The contents of the new memory are undefined: load or initialize
 * them. Parameters in real memory stay there and keep their values, unlike with
 * torch.nn.Module.to_empty().
 *
 * Collective if parameters are sharded. After the call, existing state dicts refer to the new
 * memory. The gradients of parameters that move are dropped.
 *
 * @return FSDP_ERR_STATE if a unit on meta is unsharded or being written. After FSDP_ERR_NOMEM some
 *         parameters may have moved already; the call may be repeated.
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_module_to_empty(fsdp_module *module, fsdp_device *device);
/**
 * Initialize all parameters. The value of element i of a parameter depends only on `seed`, the
 * parameter's name and i, not on the world size. Collective if parameters are sharded.
 * @return FSDP_ERR_STATE if a parameter has no memory; FSDP_ERR_UNSUPPORTED if one is stored in NF4
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_module_init(fsdp_module *module, uint64_t seed);
FSDP_API void fsdp_module_zero_grad(fsdp_module *module);

/**
 * Enable or disable activation checkpointing (Chen et al. 2016, arXiv 1604.06174), like PyTorch's
 * checkpoint_wrapper: a call of the module keeps only its inputs, and backward runs the call again.
 * Losses and gradients have the same bits as without activation checkpointing, even with dropout. A
 * module with activation checkpointing may contain other such modules. `on` may change between any
 * two steps.
 *
 * A call of a model's first layer keeps nothing: backward runs the embeddings again to compute the
 * input of this layer. There are three exceptions, in which the input is kept: the embeddings are a
 * unit; the embeddings have activation checkpointing themselves; the model has only one layer.
 */
FSDP_API void fsdp_module_set_activation_checkpointing(fsdp_module *module, bool on);

/** What a call of a module with activation checkpointing keeps for backward. */
typedef enum fsdp_activation_checkpointing_kind {
    FSDP_CHECKPOINT_FULL, /**< only the inputs of the call; torchtitan's mode "full" */
    /** The inputs of the call, the results of attention, and the results of every second linear
     * layer. Backward does not compute the kept results again. This is torchtitan's
     * selective_ac_option "op". */
    FSDP_CHECKPOINT_OP,
} fsdp_activation_checkpointing_kind;

/** A field that is 0 or NULL has its default. */
typedef struct fsdp_activation_checkpointing_options {
    fsdp_activation_checkpointing_kind kind;
    /** Checkpoint only every n-th of the modules that check_fn selects. For example, 2 checkpoints
     * the 2nd, the 4th, the 6th and so on. Default: all of them. Used only by
     * fsdp_apply_activation_checkpointing(). In torchtitan this is selective_ac_option. */
    int every;
    /** File to which calls move the tensors that they keep. NULL: these tensors stay in memory.
     * Borrowed. */
    fsdp_activation_offload *offload;
    /** Backward runs a call of the module a second time. true: the second run computes everything
     * that the first run has computed. Default: the second run stops computing as soon as backward
     * has the tensors that it needs, as in torch.utils.checkpoint. The module's code still runs to
     * its end. But the tensors that it creates after this point have no data, so the code must not
     * read their elements. */
    bool no_early_stop;
} fsdp_activation_checkpointing_options;

/** Enable activation checkpointing with options (copied; NULL: all defaults). */
FSDP_API void fsdp_module_set_activation_checkpointing_options(
    fsdp_module *module, const fsdp_activation_checkpointing_options *options);

typedef bool fsdp_module_check_fn(const char *path, const fsdp_module *module, void *arg);
/** A check_fn for fsdp_apply_activation_checkpointing(). Returns true if the class of `module` is
 * `class_name` (a const char *). */
FSDP_API bool fsdp_check_class(const char *path, const fsdp_module *module, void *class_name);
/**
 * torch.distributed.algorithms._checkpoint.checkpoint_wrapper.apply_activation_checkpointing():
 * call check_fn for `root` and all modules below it, parents first. Enable activation checkpointing
 * for each module for which check_fn returns true.
 * @param options NULL: all defaults
 * @return FSDP_ERR_INVALID for a negative options->every
 */
FSDP_API FSDP_MUST_CHECK fsdp_status
fsdp_apply_activation_checkpointing(fsdp_module *root, fsdp_module_check_fn *check_fn, void *arg,
                                    const fsdp_activation_checkpointing_options *options);

/**
 * @name Forwards of custom modules
 * The forward of a module does not deal with sharding. The same code runs on one rank and on many:
 *
 *     static void block_forward(fsdp_scope *s, fsdp_module *self, const fsdp_args *in,
 *                               fsdp_args *out)
 *     {
 *         const block *b = fsdp_module_impl(self);
 *         fsdp_tensor *h = fsdp_gelu(s, fsdp_linear_forward(s, b->w1, in->t[0]));
 *         *out = (fsdp_args){.t = {fsdp_linear_forward(s, b->w2, h)}, .n = 1};
 *     }
 *
 * @{
 */
/**
 * The forward of a module. It reads its inputs from `in` and sets `out` to results that `s` owns.
 * It reports a failure with fsdp_scope_fail(). After a failure, operations in the scope do nothing
 * and return NULL. Inputs that are not tensors come from the scope's batch
 * (fsdp_scope_options.batch) or from the module's own data (fsdp_module_impl()).
 */
typedef void fsdp_forward_fn(fsdp_scope *s, fsdp_module *self, const fsdp_args *in, fsdp_args *out);
/**
 * Set the module's forward. A module without a forward only holds parameters and children.
 *
 * @param forward called by fsdp_module_call(), and with activation checkpointing once more in
 *                backward
 * @param impl    the module's own data
 * @param destroy frees impl when the module is destroyed; NULL: impl is borrowed
 */
FSDP_API void fsdp_module_set_forward(fsdp_module *module, fsdp_forward_fn *forward, void *impl,
                                      void (*destroy)(void *impl));
/** Get the `impl` that was passed to fsdp_module_set_forward(); NULL if there is none. Borrowed. */
FSDP_API void *fsdp_module_impl(const fsdp_module *module);
/**
 * Call a module. If the module is a unit, the call gathers its parameters first, and backward
 * reduces their gradients. When the forward returns, the tensors that it has created are released,
 * except its results and what backward needs. For a call without a backward, use a scope without a
 * tape, or call fsdp_tape_reset() afterwards.
 *
 * @param forward NULL: the module's own forward. Any other function is called in the same way. (In
 *                PyTorch, such a function must be registered with register_fsdp_forward_method().)
 * @return results, owned by s; none if the scope has failed
 */
FSDP_API fsdp_args fsdp_module_call(fsdp_scope *s, fsdp_module *module, fsdp_forward_fn *forward,
                                    fsdp_args in);
/** Call the module's own forward with one tensor as input and one as output. */
FSDP_API fsdp_tensor *fsdp_module_call1(fsdp_scope *s, fsdp_module *module, fsdp_tensor *x);
/** Return fsdp_parameter_data(). If the parameter has no memory yet, fail the scope and return
 * NULL. */
FSDP_API fsdp_tensor *fsdp_read(fsdp_scope *s, const fsdp_parameter *parameter);
/** @} */

/**
 * @name Layers: modules with one or two parameters
 * A layer has no forward of its own. Instead, the forward of the module around the layer passes the
 * layer to one of the functions below. The layer's parameters belong to the unit of the module
 * around it. @{
 */
/** Create a torch.nn.Linear with "weight" [out, in] and, if `bias` is true, "bias" [out]. `init` is
 * for the weight; the bias is initially zeros. */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_linear_create(int64_t in, int64_t out, bool bias,
                                                        fsdp_init init, fsdp_module **module);
/** Create a torch.nn.Embedding with "weight" [rows, width]. */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_embedding_create(int64_t rows, int64_t width,
                                                           fsdp_init init, fsdp_module **module);
/** Create a layer with one "weight" [width], e.g. a T5LayerNorm. With init.std 0, all initial
 * values are init.mean. */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_norm_create(const char *class_name, int64_t width,
                                                      fsdp_init init, fsdp_module **module);
/** Create a torch.nn.LayerNorm with "weight" [width], initially ones, and "bias" [width], initially
 * zeros. */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_layer_norm_create(int64_t width, fsdp_module **module);
/** Return fsdp_linear() of x with the layer's weight and bias (if there is a bias). */
FSDP_API fsdp_tensor *fsdp_linear_forward(fsdp_scope *s, const fsdp_module *linear, fsdp_tensor *x);
/** Return fsdp_embedding() of ids [n] with the layer's weight and without a padding_idx. */
FSDP_API fsdp_tensor *fsdp_embedding_forward(fsdp_scope *s, const fsdp_module *embedding,
                                             const int32_t *ids, int64_t n);
/** Return fsdp_layer_norm() of x with the layer's weight and bias (if there is a bias). */
FSDP_API fsdp_tensor *fsdp_layer_norm_forward(fsdp_scope *s, const fsdp_module *norm,
                                              fsdp_tensor *x, float eps);
/** Get the parameter called `name` of the module itself, not of a module below it. Return NULL if
 * there is none. */
FSDP_API fsdp_parameter *fsdp_module_parameter(const fsdp_module *module, const char *name);
/** @} */

#ifdef __cplusplus
}
#endif
