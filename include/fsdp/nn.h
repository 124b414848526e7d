/**
 * @file
 * Modules: a tree with names, classes, parameters and a forward, as torch.nn.Module.
 *
 * A model builds its tree without memory: parameters have shapes and an initialisation only. Then
 * either fsdp_fully_shard() gives each rank its rows, or fsdp_module_to_empty() allocates them
 * whole; after that fsdp_module_init() draws them, or a checkpoint is loaded into them.
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

/** Values of a fresh parameter: N(mean, std), or mean everywhere if std is 0. */
typedef struct fsdp_init {
    float mean, std;
    bool has_zero_row; /**< row zero_row is 0: torch.nn.Embedding's padding_idx */
    int64_t zero_row;
} fsdp_init;

/**
 * @param class_name the Hugging Face class ("T5Block"): wrap policies name it; copied
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_module_create(const char *class_name,
                                                        fsdp_module **module);
/** With all children; parameters that others share live on. Accepts NULL. */
FSDP_API void fsdp_module_destroy(fsdp_module *module);
/**
 * `child` belongs to `parent` from here on, also when this fails (it is destroyed then), unless it
 * has a parent already.
 * @param name copied; FSDP_ERR_INVALID if taken, empty or with a dot
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_module_add_child(fsdp_module *parent, const char *name,
                                                           fsdp_module *child);
/** A parameter [shape] of the module, at least one dimension; *parameter is borrowed. */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_module_add_parameter(fsdp_module *module,
                                                               const char *name, int ndim,
                                                               const int64_t *shape, fsdp_init init,
                                                               fsdp_parameter **parameter);
/** The same parameter under a further name (tied weights). */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_module_share_parameter(fsdp_module *module,
                                                                 const char *name,
                                                                 fsdp_parameter *parameter);
FSDP_API const char *fsdp_module_class(const fsdp_module *module);
FSDP_API fsdp_module *fsdp_module_parent(const fsdp_module *module);
FSDP_API int fsdp_module_n_children(const fsdp_module *module);
FSDP_API fsdp_module *fsdp_module_child(const fsdp_module *module, int i);
/** Name within the parent; "" for a root. */
FSDP_API const char *fsdp_module_name(const fsdp_module *module);
/**
 * What fsdp_module_print() shows in the parentheses of a module without children, as torch's
 * extra_repr() gives it: "p=0.1, inplace=False" of a Dropout. Default: what the shapes of a layer's
 * parameters say.
 * @param text copied
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_module_set_extra_repr(fsdp_module *module,
                                                                const char *text);
/** By dotted path, e.g. "encoder.block.0"; "" is the module itself. NULL if there is none. */
FSDP_API fsdp_module *fsdp_module_find(fsdp_module *module, const char *path);

/** Called for the module itself ("") and everything below it, parents first. */
typedef fsdp_status fsdp_module_visit_fn(const char *path, fsdp_module *module, void *arg);
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_module_visit(fsdp_module *module,
                                                       fsdp_module_visit_fn *visit, void *arg);

typedef struct fsdp_named_parameter {
    const char *name; /**< fully qualified, borrowed from the list */
    fsdp_parameter *parameter;
} fsdp_named_parameter;

/** In PyTorch's order: a module's own parameters, then its children's. */
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
/** What operations read: whole, in the compute dtype. NULL before memory was given. Borrowed. */
FSDP_API fsdp_tensor *fsdp_parameter_data(const fsdp_parameter *parameter);
/** What optimizers update: this rank's rows of the master. The same tensor if not sharded. Its
 * elements are read between fsdp_tensor_begin_read() and _end_read(). */
FSDP_API fsdp_tensor *fsdp_parameter_local(const fsdp_parameter *parameter);
/** float32, shape of local; NULL if backward gave none. Borrowed. */
FSDP_API fsdp_tensor *fsdp_parameter_grad(const fsdp_parameter *parameter);
FSDP_API int fsdp_parameter_ndim(const fsdp_parameter *parameter);
/** Of the whole parameter. */
FSDP_API const int64_t *fsdp_parameter_shape(const fsdp_parameter *parameter);
FSDP_API int64_t fsdp_parameter_numel(const fsdp_parameter *parameter);
FSDP_API bool fsdp_parameter_requires_grad(const fsdp_parameter *parameter);
/**
 * A frozen parameter has no gradient, and after fully_shard no master either: it is stored in the
 * dtype that it was loaded in. To be set alike on all ranks, between steps; memory follows in the
 * next forward, which makes the master of what was unfrozen from its stored values, and gives up
 * that of what was frozen if no bit is lost.
 */
FSDP_API void fsdp_parameter_set_requires_grad(fsdp_parameter *parameter, bool on);
/** Entries [begin, end) that local holds: of dimension 0, rows, unless shard_placement_fn said
 * otherwise. @{ */
FSDP_API void fsdp_parameter_rows(const fsdp_parameter *parameter, int64_t *begin, int64_t *end);
FSDP_API int fsdp_parameter_shard_dim(const fsdp_parameter *parameter);
/** @} */
/** The ranks it is sharded over; NULL if it is not. */
FSDP_API fsdp_group *fsdp_parameter_group(const fsdp_parameter *parameter);
/** @} */

/**
 * Give parameters memory on `device`: whole, float32, where they have none yet. What lies on the
 * meta device moves to `device` as it is, sharded or not, in its dtype; so do the units around
 * `module`. Contents are undefined then: load or init. What has real memory keeps it, values too.
 *
 * Collective if sharded. State dicts taken before show the new memory; gradients are dropped.
 *
 * @return FSDP_OK; FSDP_ERR_STATE if a unit on meta is unsharded or being written;
 *         FSDP_ERR_NOMEM, after which some have moved, and it may be called again.
 *
 * torch.nn.Module.to_empty(), which would drop values of real memory, too.
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_module_to_empty(fsdp_module *module, fsdp_device *device);
/**
 * Draw all parameters: element i of parameter `name` is a function of (seed, name, i), so it does
 * not depend on the world size. Collective if sharded.
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_module_init(fsdp_module *module, uint64_t seed);
FSDP_API void fsdp_module_zero_grad(fsdp_module *module);

/**
 * Activation checkpointing (Chen et al. 2016, arXiv 1604.06174), as PyTorch's checkpoint_wrapper:
 * calls of the module keep their inputs alone, and run again in backward. Losses and gradients are
 * the same in every bit, dropout included. May be nested, and set at any time between steps. The
 * first of a model's layers gets no input to keep where it can call the embeddings itself, which
 * then run again with it; not where they are a unit or checkpointed themselves, nor if it is the
 * only layer.
 */
FSDP_API void fsdp_module_set_activation_checkpointing(fsdp_module *module, bool on);

/** What a checkpointed call keeps beside its inputs. */
typedef enum fsdp_activation_checkpointing_kind {
    FSDP_CHECKPOINT_FULL, /**< nothing: torchtitan's mode "full" */
    FSDP_CHECKPOINT_OP,   /**< results of attention and of every second linear layer: the second run
                               computes the rest alone. As torchtitan's selective_ac_option "op" */
} fsdp_activation_checkpointing_kind;

/** Zero means default. */
typedef struct fsdp_activation_checkpointing_options {
    fsdp_activation_checkpointing_kind kind;
    int every; /**< fsdp_apply_activation_checkpointing(): of the modules that it finds every so
                    many, the 2nd, 4th, ... for 2: torchtitan's selective_ac_option; 0: each */
    fsdp_activation_offload *offload; /**< where calls keep what they keep; NULL: in memory.
                                           Borrowed */
    bool no_early_stop; /**< compute all again. As a rule the second run stops where backward has
                             what it needs, as torch.utils.checkpoint does, and a tensor that the
                             module makes after that has no data for its own code to read */
} fsdp_activation_checkpointing_options;

/** The same with options (NULL: all defaults; copied). */
FSDP_API void fsdp_module_set_activation_checkpointing_options(
    fsdp_module *module, const fsdp_activation_checkpointing_options *options);

typedef bool fsdp_module_check_fn(const char *path, const fsdp_module *module, void *arg);
/** A check_fn: is the module of the class `class_name`, a const char *? */
FSDP_API bool fsdp_check_class(const char *path, const fsdp_module *module, void *class_name);
/**
 * Turn it on for the modules of `root`, itself included, of which check_fn says so, parents first:
 * torch.distributed.algorithms._checkpoint.checkpoint_wrapper.apply_activation_checkpointing().
 * @param options NULL: all defaults
 * @return FSDP_ERR_INVALID for a negative options->every
 */
FSDP_API FSDP_MUST_CHECK fsdp_status
fsdp_apply_activation_checkpointing(fsdp_module *root, fsdp_module_check_fn *check_fn, void *arg,
                                    const fsdp_activation_checkpointing_options *options);

/** @name Forwards: modules of one's own
 * A model is written once, for one device, and not a word of it is about sharding:
 *
 *     static void block_forward(fsdp_scope *s, fsdp_module *self, const fsdp_args *in,
 *                               fsdp_args *out)
 *     {
 *         const block *b = fsdp_module_impl(self);
 *         fsdp_tensor *h = fsdp_gelu(s, fsdp_linear_forward(s, b->w1, in->t[0]));
 *         *out = (fsdp_args){.t = {fsdp_linear_forward(s, b->w2, h)}, .n = 1};
 *     }
 * @{ */
/**
 * Reads its inputs from `in` and puts results that `s` owns into `out`. A failure goes into the
 * scope (fsdp_scope_fail); operations in a scope that has failed return NULL and do nothing.
 * What is no tensor comes with the scope's batch or with the module's impl.
 */
typedef void fsdp_forward_fn(fsdp_scope *s, fsdp_module *self, const fsdp_args *in, fsdp_args *out);
/**
 * Say what the module computes; without a forward it only holds parameters and children.
 *
 * @param forward called by fsdp_module_call(), once for each call and once more where it is
 *                recomputed
 * @param impl    the module's own data
 * @param destroy ends impl with the module; NULL: it is borrowed
 */
FSDP_API void fsdp_module_set_forward(fsdp_module *module, fsdp_forward_fn *forward, void *impl,
                                      void (*destroy)(void *impl));
/** The impl of fsdp_module_set_forward(); NULL without one. Borrowed. */
FSDP_API void *fsdp_module_impl(const fsdp_module *module);
/**
 * Call a module: its hooks gather its parameters, run again what is checkpointed, reduce gradients.
 * Intermediates of the forward are released when it returns, as far as backward does not need them.
 * A call that no backward follows is made without a tape, or fsdp_tape_reset() comes after it.
 *
 * @param forward NULL: the module's own. Any other function is one more method that runs as forward
 *                does: register_fsdp_forward_method.
 * @return results, owned by s; none after a failure, which is the scope's
 */
FSDP_API fsdp_args fsdp_module_call(fsdp_scope *s, fsdp_module *module, fsdp_forward_fn *forward,
                                    fsdp_args in);
/** One tensor in, one out, through the module's own forward. */
FSDP_API fsdp_tensor *fsdp_module_call1(fsdp_scope *s, fsdp_module *module, fsdp_tensor *x);
/** fsdp_parameter_data(), or NULL with the scope failed if it has no memory yet. */
FSDP_API fsdp_tensor *fsdp_read(fsdp_scope *s, const fsdp_parameter *parameter);
/** @} */

/** @name Layers: modules of one parameter, or two
 * They have no forward of their own: the module around them reads them by the functions below, and
 * they belong to its unit. @{ */
/** torch.nn.Linear: "weight" [out, in], "bias" [out] if bias. */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_linear_create(int64_t in, int64_t out, bool bias,
                                                        fsdp_init init, fsdp_module **module);
/** torch.nn.Embedding: "weight" [rows, width]. */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_embedding_create(int64_t rows, int64_t width,
                                                           fsdp_init init, fsdp_module **module);
/** A module of one "weight" [width], e.g. T5LayerNorm, ones at first times init.mean. */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_norm_create(const char *class_name, int64_t width,
                                                      fsdp_init init, fsdp_module **module);
/** torch.nn.LayerNorm: "weight" [width] ones, "bias" [width] zeros. */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_layer_norm_create(int64_t width, fsdp_module **module);
/** What the layers compute, from their parameters: fsdp_linear() with the bias if there is one,
 * fsdp_embedding() without padding_idx, fsdp_layer_norm(). @{ */
FSDP_API fsdp_tensor *fsdp_linear_forward(fsdp_scope *s, const fsdp_module *linear, fsdp_tensor *x);
FSDP_API fsdp_tensor *fsdp_embedding_forward(fsdp_scope *s, const fsdp_module *embedding,
                                             const int32_t *ids, int64_t n);
FSDP_API fsdp_tensor *fsdp_layer_norm_forward(fsdp_scope *s, const fsdp_module *norm,
                                              fsdp_tensor *x, float eps);
/** @} */
/** The parameter `name` of the module itself; NULL if it has none. */
FSDP_API fsdp_parameter *fsdp_module_parameter(const fsdp_module *module, const char *name);
/** @} */

#ifdef __cplusplus
}
#endif
