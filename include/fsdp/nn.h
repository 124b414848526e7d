/**
 * @file
 * Modules: a tree of objects with names, classes, parameters and a forward, like torch.nn.Module.
 *
 * A model builds its tree without memory: parameters only have a shape and an initialisation. Then
 * either fsdp_fully_shard() gives each rank its rows, or fsdp_module_to_empty() allocates whole
 * parameters. After that fsdp_module_init() initialises them, or a checkpoint is loaded into them.
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

/** Initial values of a parameter: N(mean, std), or mean everywhere if std is 0. */
typedef struct fsdp_init {
    float mean, std;
    bool has_zero_row; /**< set row zero_row to 0: torch.nn.Embedding's padding_idx */
    int64_t zero_row;
} fsdp_init;

/** @param class_name the Hugging Face class ("T5Block"), used by wrap policies; copied */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_module_create(const char *class_name,
                                                        fsdp_module **module);
/** Destroys all children, too. A parameter that another module shares is kept. Accepts NULL. */
FSDP_API void fsdp_module_destroy(fsdp_module *module);
/**
 * Add `child` to `parent`, which then owns `child`. If this fails, `child` is destroyed, unless it
 * already has a parent.
 * @param name copied; FSDP_ERR_INVALID if another child has this name, or it is empty or contains a
 *             dot
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_module_add_child(fsdp_module *parent, const char *name,
                                                           fsdp_module *child);
/** Add a parameter of shape [ndim], ndim >= 1; *parameter is borrowed. */
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
 * Set what fsdp_module_print() shows in the parentheses of a module without children, like torch's
 * extra_repr(): "p=0.1, inplace=False" for a Dropout. Default: derived from the shapes of a layer's
 * parameters.
 * @param text copied
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_module_set_extra_repr(fsdp_module *module,
                                                                const char *text);
/** Find the module at a dotted path below `module`, e.g. "encoder.block.0"; "" is `module` itself.
 * NULL if there is none. */
FSDP_API fsdp_module *fsdp_module_find(fsdp_module *module, const char *path);

/** A function that fsdp_module_visit() calls for the module itself (path "") and for every module
 * below it, parents first. */
typedef fsdp_status fsdp_module_visit_fn(const char *path, fsdp_module *module, void *arg);
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_module_visit(fsdp_module *module,
                                                       fsdp_module_visit_fn *visit, void *arg);

typedef struct fsdp_named_parameter {
    const char *name; /**< fully qualified, borrowed from the list */
    fsdp_parameter *parameter;
} fsdp_named_parameter;

/** Parameters in PyTorch's order: a module's own parameters, then its children's. */
typedef struct fsdp_parameter_list {
    fsdp_named_parameter *items;
    size_t n;
} fsdp_parameter_list;

/**
 * @param duplicates false: each parameter once, under its first name (named_parameters());
 *        true: every name (state_dict())
 * @param list out: freed with fsdp_parameter_list_free()
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_module_parameters(fsdp_module *module, bool duplicates,
                                                            fsdp_parameter_list *list);
FSDP_API void fsdp_parameter_list_free(fsdp_parameter_list *list);

/** @name Parameters @{ */
/** Get the tensor that operations read: the whole parameter, in the compute dtype. NULL if it has
 * no memory yet. Borrowed. */
FSDP_API fsdp_tensor *fsdp_parameter_data(const fsdp_parameter *parameter);
/** Get the tensor that optimizers update: this rank's rows of the master weights. It is the tensor
 * of fsdp_parameter_data() if the parameter is not sharded. Read its elements between
 * fsdp_tensor_begin_read() and fsdp_tensor_end_read(). */
FSDP_API fsdp_tensor *fsdp_parameter_local(const fsdp_parameter *parameter);
/** Get the gradient: float32, with the shape of fsdp_parameter_local(); NULL if backward computed
 * none. Borrowed. */
FSDP_API fsdp_tensor *fsdp_parameter_grad(const fsdp_parameter *parameter);
FSDP_API int fsdp_parameter_ndim(const fsdp_parameter *parameter);
/** Get the shape [ndim] of the whole parameter. */
FSDP_API const int64_t *fsdp_parameter_shape(const fsdp_parameter *parameter);
FSDP_API int64_t fsdp_parameter_numel(const fsdp_parameter *parameter);
FSDP_API bool fsdp_parameter_requires_grad(const fsdp_parameter *parameter);
/**
 * Freeze (false) or unfreeze (true) a parameter, on all ranks, between steps. A frozen parameter
 * has no gradient. After fully_shard it also has no master weights: it is stored in the dtype in
 * which it was loaded. The memory changes only in the next forward. If a parameter is no longer
 * frozen, its master weights are then created from its stored values. If it is frozen now, its
 * master weights are dropped, unless bits would be lost.
 */
FSDP_API void fsdp_parameter_set_requires_grad(fsdp_parameter *parameter, bool on);
/** Get the part of the parameter that fsdp_parameter_local() has: entries [begin, end) of the
 * sharded dimension. The sharded dimension is 0 (rows), unless shard_placement_fn chose another
 * one. @{ */
FSDP_API void fsdp_parameter_rows(const fsdp_parameter *parameter, int64_t *begin, int64_t *end);
FSDP_API int fsdp_parameter_shard_dim(const fsdp_parameter *parameter);
/** @} */
/** Get the ranks over which the parameter is sharded; NULL if it is not sharded. */
FSDP_API fsdp_group *fsdp_parameter_group(const fsdp_parameter *parameter);
/** @} */

/**
 * torch.nn.Module.to_empty(), except that values in real memory are kept. Parameters that have no
 * memory yet are allocated on `device`, whole and in float32. Parameters on the meta device move to
 * `device` in their dtype, sharded or not, together with the other parameters of their units. The
 * contents of these parameters are then undefined: load or initialise them. Parameters in real
 * memory stay there and keep their values.
 *
 * Collective if sharded. State dicts refer to the new memory afterwards. Gradients are dropped.
 *
 * @return FSDP_ERR_STATE if a unit on meta is unsharded or being written. FSDP_ERR_NOMEM: some
 *         parameters may have moved already, and the call may be repeated.
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_module_to_empty(fsdp_module *module, fsdp_device *device);
/**
 * Initialise all parameters. Element i of parameter `name` is a function of (seed, name, i), so it
 * does not depend on the world size. Collective if sharded.
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_module_init(fsdp_module *module, uint64_t seed);
FSDP_API void fsdp_module_zero_grad(fsdp_module *module);

/**
 * Activation checkpointing (Chen et al. 2016, arXiv 1604.06174), like PyTorch's checkpoint_wrapper:
 * calls of the module keep only their inputs and run again in backward. Losses and gradients have
 * the same bits as without it, even with dropout. May be nested, and may be changed at any time
 * between steps.
 *
 * The first layer of a model does not even keep its input: it runs the embeddings again, too. It
 * does keep its input if the embeddings are a unit or are checkpointed themselves, or if the model
 * has only one layer.
 */
FSDP_API void fsdp_module_set_activation_checkpointing(fsdp_module *module, bool on);

/** What a checkpointed call keeps in addition to its inputs. */
typedef enum fsdp_activation_checkpointing_kind {
    FSDP_CHECKPOINT_FULL, /**< nothing: torchtitan's mode "full" */
    FSDP_CHECKPOINT_OP,   /**< results of attention and of every second linear layer; the second
                               run computes only the rest. Like torchtitan's selective_ac_option
                               "op" */
} fsdp_activation_checkpointing_kind;

/** Zero means default. */
typedef struct fsdp_activation_checkpointing_options {
    fsdp_activation_checkpointing_kind kind;
    int every; /**< fsdp_apply_activation_checkpointing(): checkpoint only every n-th of the modules
                    that check_fn selects, like torchtitan's selective_ac_option; 2: the 2nd, 4th,
                    ...; 0: all */
    fsdp_activation_offload *offload; /**< file to which the tensors that calls keep are moved;
                                           NULL: they stay in memory. Borrowed */
    /** true: the second run computes everything again. Default: it stops as soon as backward has
     * all that it needs, as in torch.utils.checkpoint. Tensors that the module creates after the
     * stopping point have no data, so the module's code cannot read them. */
    bool no_early_stop;
} fsdp_activation_checkpointing_options;

/** Enable activation checkpointing with options (copied; NULL: all defaults). */
FSDP_API void fsdp_module_set_activation_checkpointing_options(
    fsdp_module *module, const fsdp_activation_checkpointing_options *options);

typedef bool fsdp_module_check_fn(const char *path, const fsdp_module *module, void *arg);
/** A check_fn: is `module` of the class `class_name` (a const char *)? */
FSDP_API bool fsdp_check_class(const char *path, const fsdp_module *module, void *class_name);
/**
 * torch.distributed.algorithms._checkpoint.checkpoint_wrapper.apply_activation_checkpointing():
 * call check_fn for `root` and all modules below it, parents first, and enable activation
 * checkpointing for the modules for which it returns true.
 * @param options NULL: all defaults
 * @return FSDP_ERR_INVALID for a negative options->every
 */
FSDP_API FSDP_MUST_CHECK fsdp_status
fsdp_apply_activation_checkpointing(fsdp_module *root, fsdp_module_check_fn *check_fn, void *arg,
                                    const fsdp_activation_checkpointing_options *options);

/**
 * @name Forwards of custom modules
 * A model is written once, for one device, without any code for sharding:
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
 * A forward reads its inputs from `in` and sets `out` to results that `s` owns. Failures are
 * recorded in the scope (fsdp_scope_fail()); operations in a failed scope return NULL and do
 * nothing. Inputs that are not tensors come from the scope's batch or the module's impl.
 */
typedef void fsdp_forward_fn(fsdp_scope *s, fsdp_module *self, const fsdp_args *in, fsdp_args *out);
/**
 * Set the module's forward. A module without a forward only holds parameters and children.
 *
 * @param forward fsdp_module_call() calls it once, and once more if the call is recomputed in
 *                backward
 * @param impl    the module's own data
 * @param destroy frees impl together with the module; NULL: impl is borrowed
 */
FSDP_API void fsdp_module_set_forward(fsdp_module *module, fsdp_forward_fn *forward, void *impl,
                                      void (*destroy)(void *impl));
/** Get the impl of fsdp_module_set_forward(); NULL if there is none. Borrowed. */
FSDP_API void *fsdp_module_impl(const fsdp_module *module);
/**
 * Call a module. Its hooks gather its parameters, recompute checkpointed calls, and reduce
 * gradients. When the forward returns, the tensors that it created are released, except its results
 * and what backward needs. For a call without a backward, use a scope without a tape, or call
 * fsdp_tape_reset() afterwards.
 *
 * @param forward NULL: the module's own forward. Any other function runs with the same hooks, like
 *                a method registered by register_fsdp_forward_method.
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
 * Layers have no forward of their own. The module around them calls the functions below, and the
 * layers belong to the unit of that module. @{
 */
/** torch.nn.Linear: "weight" [out, in], and "bias" [out] if `bias` is true. */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_linear_create(int64_t in, int64_t out, bool bias,
                                                        fsdp_init init, fsdp_module **module);
/** torch.nn.Embedding: "weight" [rows, width]. */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_embedding_create(int64_t rows, int64_t width,
                                                           fsdp_init init, fsdp_module **module);
/** Create a module with one "weight" [width], e.g. T5LayerNorm. The weight is initially init.mean
 * everywhere. */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_norm_create(const char *class_name, int64_t width,
                                                      fsdp_init init, fsdp_module **module);
/** torch.nn.LayerNorm: "weight" [width], initially ones, and "bias" [width], initially zeros. */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_layer_norm_create(int64_t width, fsdp_module **module);
/** Apply an operation with the parameters of a layer: fsdp_linear() (with the bias if there is
 * one), fsdp_embedding() without padding_idx, or fsdp_layer_norm(). @{ */
FSDP_API fsdp_tensor *fsdp_linear_forward(fsdp_scope *s, const fsdp_module *linear, fsdp_tensor *x);
FSDP_API fsdp_tensor *fsdp_embedding_forward(fsdp_scope *s, const fsdp_module *embedding,
                                             const int32_t *ids, int64_t n);
FSDP_API fsdp_tensor *fsdp_layer_norm_forward(fsdp_scope *s, const fsdp_module *norm,
                                              fsdp_tensor *x, float eps);
/** @} */
/** Get the parameter `name` of the module itself, not of modules below it; NULL if there is
 * none. */
FSDP_API fsdp_parameter *fsdp_module_parameter(const fsdp_module *module, const char *name);
/** @} */

#ifdef __cplusplus
}
#endif
