/* Internals of modules and parameters. */
#pragma once
#include <stddef.h>

#include <fsdp/nn.h>

#include "src/autograd/autograd.h"
#include "src/nn/slice.h"

/* The part of a parameter that this rank has. */
typedef struct fsdp_shard {
    int dim;            /* the dimension that is divided among the ranks */
    int64_t begin, end; /* this rank has entries [begin, end) of dimension `dim` */
    fsdp_group *group;  /* the ranks over which the parameter is sharded; NULL: every rank has the
                           whole parameter */
} fsdp_shard;

typedef struct fsdp_parameter_owner fsdp_parameter_owner;
/* Functions of a layer above (src/fsdp) that owns the memory of a parameter. */
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
    int refs;                /* number of modules that have the parameter */
    const fsdp_module *home; /* the first module that had the parameter, for messages; NULL after
                                that module was destroyed */
    int ndim;
    int64_t shape[FSDP_MAX_DIMS]; /* shape of the whole parameter */
    fsdp_init init;
    fsdp_grad_sink sink; /* sink.grad is the local gradient, sharded or not */
    fsdp_tensor *data;   /* the leaf that operations read; NULL before the parameter has memory */
    fsdp_tensor *local;  /* own rows of the master weights, for the optimizer; the same tensor as
                            `data` if not sharded */
    fsdp_parameter_owner *owner; /* NULL: the parameter owns its memory and is not sharded */
    void *extension; /* state of the parameter's all-gather (src/fsdp), opaque here; owned; NULL if
                        there is none */
    bool loaded;     /* the parameter has values from a file, or is about to get them */
    fsdp_dtype loaded_dtype; /* dtype of the values in the file; a frozen parameter is kept in this
                                dtype if that saves memory */
    bool values_are_due; /* a loader is about to write all values, so old values need not be kept */
};

static inline fsdp_parameter *fsdp_parameter_of_sink(fsdp_grad_sink *sink)
{
    return (fsdp_parameter *)(void *)((char *)sink - offsetof(fsdp_parameter, sink));
}

struct fsdp_module {
    char *class_name, *name;
    char *extra_repr; /* text in the parentheses when the module is printed; NULL: derived from the
                         shapes */
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
    void (*hooks_destroy[FSDP_MAX_HOOKS])(fsdp_region_hooks *hooks); /* NULL: borrowed */
    int n_hooks;
    bool checkpointed; /* the module's forward runs again in backward */
    fsdp_activation_checkpointing_options checkpointing;
    void *fsdp_state; /* state of src/fsdp, opaque here */
    /* Allocate the memory of the module's unit on `device` if the unit is on meta. The pointer is
     * NULL if fsdp_state is NULL. */
    fsdp_status (*to_empty)(void *fsdp_state, fsdp_device *device);
};

/* Add hooks to a module. Hooks run in the order in which they were added, but post_forward hooks in
 * reverse order. `destroy` may be NULL. */
FSDP_MUST_CHECK fsdp_status fsdp_module_add_hooks(fsdp_module *m, fsdp_region_hooks *hooks,
                                                  void (*destroy)(fsdp_region_hooks *hooks));

/* Give `p` its tensors and retain both: operations read `data`, and the optimizer updates
 * `local`. */
void fsdp_parameter_set_tensors(fsdp_parameter *p, fsdp_tensor *data, fsdp_tensor *local);
/* Return the part of `p` that this rank has. */
fsdp_shard fsdp_parameter_shard(const fsdp_parameter *p);
/* Return this rank's rows of `p` in the copy that operations will read, one block of *dtype values,
 * or NULL if no copy is kept after the write. Called once per write of `local`, after the write has
 * begun, by code that then writes all rows in the block too. */
void *fsdp_parameter_own_rows_of_copy(const fsdp_parameter *p, fsdp_dtype *dtype);
/* Apply the pending dtypes: the owners store parameters in the dtypes that freezing, unfreezing, or
 * a load that is about to begin requires. Collective. */
FSDP_MUST_CHECK fsdp_status
fsdp_parameters_apply_pending_dtypes(const fsdp_parameter_list *parameters);
/* Write the dotted path of `m` below its root to `text` [bytes], and return `text`. The path of the
 * root is "". If a path does not fit, only its end is written, which may be "". */
const char *fsdp_module_path(const fsdp_module *m, char *text, size_t bytes);
/* Return FSDP_ERR_STATE. The message names the first parameter of m's tree that is on meta, and
 * gives the number of the others. */
FSDP_MUST_CHECK fsdp_status fsdp_module_meta_error(const fsdp_module *m);
/* Return this rank's part of the parameter as a slice. */
static inline fsdp_slice fsdp_parameter_slice(const fsdp_parameter *p)
{
    const fsdp_shard shard = fsdp_parameter_shard(p);
    return fsdp_slice_of(p->ndim, p->shape, shard.dim, shard.begin, shard.end);
}
/* Set the own rows of parameter `name` to the values that fsdp_module_init() gives them. Called
 * during a write of `local`. */
void fsdp_parameter_draw(fsdp_parameter *p, const char *name, uint64_t seed);
/* Return the key of a parameter's random numbers. */
uint64_t fsdp_parameter_key(uint64_t seed, const char *name);

/* Note [Input of the first layer]. A checkpointed layer keeps its input, and runs again with this
 * input in backward. The input of the first layer is computed from ids by lookups, a sum, a norm
 * and dropout, which together are less work than one matrix product. A checkpointed first layer
 * therefore calls the embeddings itself, and in backward the embeddings are computed again from the
 * ids. Only the other layers then keep an input, a tensor [T, D] for each layer. The embeddings'
 * weight belongs to a unit around the layers, so it is unsharded when the first layer runs again.
 * There are three exceptions, in which the first layer does not call the embeddings: if they are a
 * unit of their own, which would have to be gathered in backward; if they are checkpointed
 * themselves; and if the model has only one layer. */

/* Whether the first layer of `layers`, a ModuleList, calls the embeddings itself. The last layer
 * may be called with another forward than its own, so `layers` must have more than one.
 * `embeddings` is NULL if the embeddings are not a module that is called. */
bool fsdp_first_layer_embeds(const fsdp_module *layers, const fsdp_module *embeddings);
/* Compute the embeddings [T, D] of the forward's tokens with the weights of module `m`. */
typedef fsdp_tensor *fsdp_embed_fn(fsdp_scope *s, const fsdp_module *m);
/* Call a first layer that calls the embeddings itself. This is fsdp_module_call() with the layer's
 * own forward, but in.t[0] becomes embed(s, m). That input is cast as the hooks of the layer and of
 * the modules between `m` and the layer cast their inputs. */
fsdp_args fsdp_module_call_embedding(fsdp_scope *s, fsdp_module *layer, const fsdp_module *m,
                                     fsdp_embed_fn *embed, fsdp_args in);
