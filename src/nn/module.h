/* Inside of modules and parameters. */
#pragma once
#include <stddef.h>

#include <fsdp/nn.h>

#include "src/autograd/autograd.h"
#include "src/nn/slice.h"

/* The part of a parameter that this rank has. */
typedef struct fsdp_shard {
    int dim;            /* The dimension that is cut. */
    int64_t begin, end; /* This rank's entries of that dimension. */
    fsdp_group *group;  /* The parameter is sharded over it; NULL: every rank has it whole. */
} fsdp_shard;

typedef struct fsdp_parameter_owner fsdp_parameter_owner;
/* What a layer above (src/fsdp) does for a parameter whose memory it owns. */
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
    int refs;                /* Modules that name it. */
    const fsdp_module *home; /* The first of them, for messages; NULL once that is gone. */
    int ndim;
    int64_t shape[FSDP_MAX_DIMS]; /* Of the whole parameter. */
    fsdp_init init;
    fsdp_grad_sink sink; /* sink.grad is the local gradient, sharded or not. */
    fsdp_tensor *data;   /* The leaf that operations read; NULL before memory was given. */
    fsdp_tensor *local;  /* The optimizer's: own rows of the master; == data if not sharded. */
    fsdp_parameter_owner *owner; /* NULL: it owns its memory, and every rank has it whole. */
    void *extension;             /* Its all-gather's (src/fsdp), opaque here; owned; or NULL. */
    bool loaded;                 /* It has, or is about to have, the values of a file. */
    fsdp_dtype loaded_dtype;     /* Their dtype: a frozen parameter may be stored in it. */
    bool values_are_due;         /* All of it is about to be written: old values do not count. */
};

static inline fsdp_parameter *fsdp_parameter_of_sink(fsdp_grad_sink *sink)
{
    return (fsdp_parameter *)(void *)((char *)sink - offsetof(fsdp_parameter, sink));
}

struct fsdp_module {
    char *class_name, *name;
    char *extra_repr; /* what is printed in its parentheses; NULL: what the shapes say */
    fsdp_module *parent;
    fsdp_module **children;
    size_t n_children, cap_children;
    struct {
        char *name;
        fsdp_parameter *parameter;
    } * params;
    size_t n_params, cap_params;
    fsdp_forward_fn *forward;
    void *impl; /* the model's own struct: layers' parameters, configuration */
    void (*impl_destroy)(void *impl);
    fsdp_region_hooks *hooks[FSDP_MAX_HOOKS];
    void (*hooks_destroy[FSDP_MAX_HOOKS])(fsdp_region_hooks *hooks); /* NULL: borrowed */
    int n_hooks;
    bool checkpointed; /* its forward runs again in backward */
    fsdp_activation_checkpointing_options checkpointing;
    void *fsdp_state; /* src/fsdp's, opaque here. */
    /* Give a unit on meta its memory on `device`; NULL without a state. */
    fsdp_status (*to_empty)(void *fsdp_state, fsdp_device *device);
};

/* Outermost first in forward. destroy may be NULL. */
FSDP_MUST_CHECK fsdp_status fsdp_module_add_hooks(fsdp_module *m, fsdp_region_hooks *hooks,
                                                  void (*destroy)(fsdp_region_hooks *hooks));

/* Give p memory: data (retained) is what operations read, local (retained) the optimizer's. */
void fsdp_parameter_set_tensors(fsdp_parameter *p, fsdp_tensor *data, fsdp_tensor *local);
/* The part of p that this rank has. */
fsdp_shard fsdp_parameter_shard(const fsdp_parameter *p);
/* This rank's rows in a copy that operations will read, contiguous and of *dtype; NULL: no copy
 * outlives the write. Called once in a write of `local`; the caller then writes all of these rows.
 */
void *fsdp_parameter_own_rows_of_copy(const fsdp_parameter *p, fsdp_dtype *dtype);
/* Have owners store parameters in the dtypes that freezing, unfreezing or a load that is about to
 * begin ask for. Collective. */
FSDP_MUST_CHECK fsdp_status
fsdp_parameters_apply_pending_dtypes(const fsdp_parameter_list *parameters);
/* The dotted path of m below its root, "" for the root or if it is too long for `text` [bytes]. */
const char *fsdp_module_path(const fsdp_module *m, char *text, size_t bytes);
/* FSDP_ERR_STATE naming the parameters of m's tree that are on meta. */
FSDP_MUST_CHECK fsdp_status fsdp_module_meta_error(const fsdp_module *m);
/* This rank's part of it. */
static inline fsdp_slice fsdp_parameter_slice(const fsdp_parameter *p)
{
    const fsdp_shard shard = fsdp_parameter_shard(p);
    return fsdp_slice_of(p->ndim, p->shape, shard.dim, shard.begin, shard.end);
}
/* Give the own rows of parameter `name` their values of fsdp_module_init(), within a write of
 * local. */
void fsdp_parameter_draw(fsdp_parameter *p, const char *name, uint64_t seed);
/* Key of a parameter's random numbers. */
uint64_t fsdp_parameter_key(uint64_t seed, const char *name);

/* Note [Input of the first layer]. A checkpointed layer keeps its input, and runs again with it.
 * The first layer's input is made of ids, by lookups, a sum, a norm, dropout: less work than a
 * single product. So a checkpointed first layer calls the embeddings itself, and both are computed
 * again from the ids: one tensor [T, D] less of as many as there are layers. The unit that has the
 * embeddings' weight is around the layers, and so it is unsharded in the second run. Embeddings
 * that are a unit of their own would have to be gathered for it, and are not called within a layer;
 * nor are those that are checkpointed themselves, nor those of a model of one layer. */

/* Is it so in `layers`, a ModuleList, of which the last may have a forward of its own? `embeddings`
 * NULL: they are no module that is called. */
bool fsdp_first_layer_embeds(const fsdp_module *layers, const fsdp_module *embeddings);
/* The embeddings [T, D] of the forward's tokens, by module `m`. */
typedef fsdp_tensor *fsdp_embed_fn(fsdp_scope *s, const fsdp_module *m);
/* fsdp_module_call() of such a first layer, by its own forward: in.t[0] becomes embed(s, m), which
 * is cast as the hooks of the layer and of the modules between m and the layer cast their inputs.
 */
fsdp_args fsdp_module_call_embedding(fsdp_scope *s, fsdp_module *layer, const fsdp_module *m,
                                     fsdp_embed_fn *embed, fsdp_args in);
