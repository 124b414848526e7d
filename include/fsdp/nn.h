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
/** What optimizers update: this rank's rows of the master. The same tensor if not sharded. */
FSDP_API fsdp_tensor *fsdp_parameter_local(const fsdp_parameter *parameter);
/** float32, shape of local; NULL if backward gave none. Borrowed. */
FSDP_API fsdp_tensor *fsdp_parameter_grad(const fsdp_parameter *parameter);
FSDP_API int fsdp_parameter_ndim(const fsdp_parameter *parameter);
/** Of the whole parameter. */
FSDP_API const int64_t *fsdp_parameter_shape(const fsdp_parameter *parameter);
FSDP_API int64_t fsdp_parameter_numel(const fsdp_parameter *parameter);
FSDP_API bool fsdp_parameter_requires_grad(const fsdp_parameter *parameter);
FSDP_API void fsdp_parameter_set_requires_grad(fsdp_parameter *parameter, bool on);
/** Rows [begin, end) of dimension 0 that local holds. */
FSDP_API void fsdp_parameter_rows(const fsdp_parameter *parameter, int64_t *begin, int64_t *end);
/** The ranks it is sharded over; NULL if it is not. */
FSDP_API fsdp_group *fsdp_parameter_group(const fsdp_parameter *parameter);
/** @} */

/** Allocate every parameter that has no memory, whole, float32. Contents are undefined. */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_module_to_empty(fsdp_module *module, fsdp_device *device);
/**
 * Draw all parameters: element i of parameter `name` is a function of (seed, name, i), so it does
 * not depend on the world size. Collective if sharded.
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_module_init(fsdp_module *module, uint64_t seed);
FSDP_API void fsdp_module_zero_grad(fsdp_module *module);

/** @name Layers: modules of one parameter, or two @{ */
/** torch.nn.Linear: "weight" [out, in], "bias" [out] if bias. */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_linear_create(int64_t in, int64_t out, bool bias,
                                                        fsdp_init init, fsdp_module **module);
/** torch.nn.Embedding: "weight" [rows, width]. */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_embedding_create(int64_t rows, int64_t width,
                                                           fsdp_init init, fsdp_module **module);
/** A module of one "weight" [width], e.g. T5LayerNorm, ones at first times init.mean. */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_norm_create(const char *class_name, int64_t width,
                                                      fsdp_init init, fsdp_module **module);
/** The parameter `name` of the module itself; NULL if it has none. */
FSDP_API fsdp_parameter *fsdp_module_parameter(const fsdp_module *module, const char *name);
/** @} */

#ifdef __cplusplus
}
#endif
