/* Internals of modules and parameters. */
#pragma once
#include <stddef.h>

#include <fsdp/nn.h>

#include "src/autograd/autograd.h"
#include "src/nn/slice.h"

/* The part of a parameter that this rank has. */
typedef struct fsdp_shard {
    int dim;            /* The dimension that is divided among the ranks. */
    int64_t begin, end; /* The entries of that dimension that this rank has. */
    /* The ranks among which the parameter is divided. NULL: every rank has the whole parameter. */
    fsdp_group *group;
} fsdp_shard;

typedef struct fsdp_adapter fsdp_adapter;
typedef struct fsdp_float8_weight fsdp_float8_weight;
typedef struct fsdp_quantized fsdp_quantized;
typedef struct fsdp_parameter_owner fsdp_parameter_owner;
/* Functions of the object that owns the memory of a parameter. The owner is part of src/fsdp, which
 * is a layer above src/nn. */
typedef struct fsdp_parameter_owner_ops {
    /* See fsdp_parameters_apply_pending_dtypes(). */
    fsdp_status (*apply_pending_dtype)(fsdp_parameter_owner *owner);
    /* See fsdp_parameter_own_rows_of_copy(). */
    void *(*own_rows_of_copy)(fsdp_parameter_owner *owner, fsdp_dtype *dtype);
} fsdp_parameter_owner_ops;
struct fsdp_parameter_owner {
    const fsdp_parameter_owner_ops *ops;
    fsdp_shard shard;
};

struct fsdp_parameter {
    int refs; /* number of modules that have this parameter */
    /* The first module that had this parameter, for messages. NULL once that module has been
     * destroyed. */
    const fsdp_module *home;
    int ndim;
    int64_t shape[FSDP_MAX_DIMS]; /* shape of the whole parameter */
    fsdp_init init;
    /* sink.grad is the gradient of this rank's shard, or of the whole parameter if it is not
     * sharded. */
    fsdp_grad_sink sink;
    fsdp_tensor *data; /* the leaf that operations read; NULL before the parameter has memory */
    /* This rank's rows of the master weights, which the optimizer updates. Equal to `data` if the
     * parameter is not sharded. */
    fsdp_tensor *local;
    fsdp_parameter_owner *owner; /* NULL: the parameter is not sharded, and owns its memory */
    /* The functions of an all-gather extension (src/fsdp/storage_extension.c), opaque here. Owned;
     * NULL: none. */
    void *extension;
    fsdp_adapter *adapter; /* Note [Adapters] in src/nn/adapter.h. Owned; NULL: none */
    /* Note [Float8 weights] in src/nn/float8_weight.h. Owned; NULL: products are not float8 */
    fsdp_float8_weight *float8;
    /* The parameter is stored in 4 bits: Note [Quantized parameters] in src/nn/quantized.h. Owned;
     * NULL: it is stored in a floating-point dtype. */
    fsdp_quantized *quantized;
    /* Operations read only rows that they look up: the parameter is the weight of an Embedding, and
     * no module of another class has it. */
    bool only_looked_up;
    /* The parameter is a matrix of an adapter. The files of a base model do not contain it. */
    bool in_adapter;
    /* true once a load has written the values, and also while a load is about to write them */
    bool loaded;
    /* The dtype that the values have in the file from which they were loaded. A frozen parameter is
     * stored in this dtype if that saves memory. */
    fsdp_dtype loaded_dtype;
    /* True if a load is about to write all values, so that the old values need not be preserved. */
    bool values_are_due;
};

static inline fsdp_parameter *fsdp_parameter_of_sink(fsdp_grad_sink *sink)
{
    return (fsdp_parameter *)(void *)((char *)sink - offsetof(fsdp_parameter, sink));
}

struct fsdp_module {
    char *class_name, *name;
    /* The text in parentheses after the class when the module is printed. NULL: a text made from
     * the shapes of the module's parameters. */
    char *extra_repr;
    fsdp_module *parent;
    fsdp_module **children;
    size_t n_children, cap_children;
    struct {
        char *name;
        fsdp_parameter *parameter;
    } * params;
    size_t n_params, cap_params;
    fsdp_forward_fn *forward;
    void *impl; /* the model's own struct: parameters of layers, configuration */
    void (*impl_destroy)(void *impl);
    fsdp_region_hooks *hooks[FSDP_MAX_HOOKS];
    /* Item i frees hooks[i]. NULL: hooks[i] is borrowed. */
    void (*hooks_destroy[FSDP_MAX_HOOKS])(fsdp_region_hooks *hooks);
    int n_hooks;
    bool checkpointed; /* the module's forward runs again in backward */
    fsdp_activation_checkpointing_options checkpointing;
    void *fsdp_state; /* state of src/fsdp, opaque here */
    /* Allocate the memory of the module's unit on `device` if the unit is on meta. to_empty is NULL
     * if fsdp_state is NULL. */
    fsdp_status (*to_empty)(void *fsdp_state, fsdp_device *device);
};

/* Add hooks to m. pre_forward hooks run in the order in which they were added, post_forward hooks
 * in reverse order. fsdp_module_destroy() calls `destroy` with the hooks; `destroy` may be NULL. */
FSDP_MUST_CHECK fsdp_status fsdp_module_add_hooks(fsdp_module *m, fsdp_region_hooks *hooks,
                                                  void (*destroy)(fsdp_region_hooks *hooks));

/* Set and retain the tensors of p. Operations read `data`, and the optimizer updates `local`. */
void fsdp_parameter_set_tensors(fsdp_parameter *p, fsdp_tensor *data, fsdp_tensor *local);
/* Return the part of `p` that this rank has. */
fsdp_shard fsdp_parameter_shard(const fsdp_parameter *p);
/* Operations may read a kept copy of the parameter instead of the master weights (Note [Kept
 * copies] in src/fsdp/param_storage.h). Return the address of this rank's rows in this copy, and
 * set *dtype to the dtype of the copy. Return NULL if there is no such copy, or if this rank's rows
 * are not contiguous in the copy. Call this once per write of p->local, after the write has begun.
 * If the result is not NULL, the caller must write all these rows to the copy. */
void *fsdp_parameter_own_rows_of_copy(const fsdp_parameter *p, fsdp_dtype *dtype);
/* Apply the pending dtypes. A pending dtype is the dtype in which a parameter is to be stored next.
 * A parameter gets a pending dtype when it is frozen or unfrozen, or when a load is about to begin.
 * From this call on, the owner of the parameter stores the parameter in the pending dtype.
 * Collective. */
FSDP_MUST_CHECK fsdp_status
fsdp_parameters_apply_pending_dtypes(const fsdp_parameter_list *parameters);
/* Write the dotted path of m below its root to `text` [bytes] and return `text`. The root's path is
 * "". If the path is too long, write only its end, or "" if the name of m alone is too long. */
const char *fsdp_module_path(const fsdp_module *m, char *text, size_t bytes);
/* Write the dotted path of `m` below its root, followed by a dot, and return the number of
 * characters. If the path is too long, write only its end. */
size_t fsdp_module_write_path(const fsdp_module *m, char *text, size_t bytes);
/* Return FSDP_ERR_STATE because parameters of the tree that contains m are on meta. The message
 * names one of them, and says how many more there are. */
FSDP_MUST_CHECK fsdp_status fsdp_module_meta_error(const fsdp_module *m);
/* Return this rank's part of the parameter as a slice. */
static inline fsdp_slice fsdp_parameter_slice(const fsdp_parameter *p)
{
    const fsdp_shard shard = fsdp_parameter_shard(p);
    return fsdp_slice_of(p->ndim, p->shape, shard.dim, shard.begin, shard.end);
}
/* Set this rank's rows of p to the initial values that fsdp_module_init() draws for a parameter
 * with this name and seed. A write of p->local must be open. */
FSDP_MUST_CHECK fsdp_status fsdp_parameter_draw(fsdp_parameter *p, const char *name, uint64_t seed);
/* Return the key of the random numbers with which the parameter `name` is initialized. */
uint64_t fsdp_parameter_key(uint64_t seed, const char *name);

/* Note [Input of the first layer]. A checkpointed layer keeps its input, because backward runs the
 * layer's forward a second time. The input of the first layer is the embeddings. They are computed
 * from ids by lookups, a sum, a norm and dropout, which is less work than one matrix product. So a
 * checkpointed first layer does not keep the embeddings. It calls the module of the embeddings
 * itself, in forward and again when backward recomputes the layer. This saves the memory of a
 * tensor [T, D]. The weight of the embeddings belongs to a unit that encloses the layers, so it is
 * unsharded while the layer is recomputed.
 *
 * The layer does not call the embeddings if they are a unit of their own, because that unit would
 * have to be gathered for the recomputation. The layer also does not call the embeddings if they
 * are checkpointed themselves, or if the model has only one layer. */

/* Return true if the first layer of the ModuleList `layers` computes the embeddings itself (Note
 * [Input of the first layer]). `embeddings` is the module of the embeddings, or NULL if the model
 * computes them without calling a module. The result is false in a model with only one layer, which
 * is both the first and the last layer. The reason is that a model may replace the forward of its
 * last layer, and fsdp_module_call_embedding() would always call the layer's own forward. */
bool fsdp_first_layer_embeds(const fsdp_module *layers, const fsdp_module *embeddings);
/* Compute the embeddings [T, D] of the current forward's tokens with module `m`. */
typedef fsdp_tensor *fsdp_embed_fn(fsdp_scope *s, const fsdp_module *m);
/* Call the first layer of a model. If fsdp_first_layer_embeds() is true, this function must be used
 * instead of fsdp_module_call(). The two functions differ in one way: the layer's first input is
 * not in.t[0] but the embeddings, which embed(s, m) returns. The embeddings do not exist yet when
 * the pre_forward hooks run, so these hooks cannot cast them. The cast_inputs hooks of the modules
 * on the path from m down to the layer cast them instead, except the hooks of m itself. */
fsdp_args fsdp_module_call_embedding(fsdp_scope *s, fsdp_module *layer, const fsdp_module *m,
                                     fsdp_embed_fn *embed, fsdp_args in);
