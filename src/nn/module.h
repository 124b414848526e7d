/* Internals of modules and parameters. */
#pragma once
#include <stddef.h>

#include <fsdp/nn.h>

#include "src/autograd/autograd.h"
#include "src/nn/slice.h"

struct fsdp_parameter {
    int refs;                /* number of modules that have it */
    const fsdp_module *home; /* the first of them, for messages; NULL after that was destroyed */
    int ndim;
    int64_t shape[FSDP_MAX_DIMS]; /* shape of the whole parameter */
    fsdp_init init;
    fsdp_grad_sink sink;        /* sink.grad is the local gradient, sharded or not */
    fsdp_tensor *data;          /* the leaf that operations read; NULL before it has memory */
    fsdp_tensor *local;         /* own rows of the master weights, for the optimizer; == data if not
                                   sharded */
    int shard_dim;              /* dimension in which local has a part */
    int64_t row_begin, row_end; /* local has the entries [row_begin, row_end) of shard_dim */
    fsdp_group *group;          /* ranks over which it is sharded; NULL: not sharded */
    void *owner;                /* its unit (src/fsdp), opaque here; NULL: none */
    void *extension;            /* state of its all-gather (src/fsdp), opaque here; owned; NULL:
                                   none */
    fsdp_status (*settle)(void *owner); /* see fsdp_parameters_settle(); NULL without an owner */
    void *(*mirror)(fsdp_parameter *p,
                    fsdp_dtype *dtype); /* see fsdp_parameter_mirror(); may be NULL */
    bool loaded;                        /* it has, or is about to get, values from a file */
    fsdp_dtype loaded_dtype;            /* dtype of those values; a frozen parameter is kept in
                                           it if that saves memory */
    bool values_are_due; /* a loader is about to write all values: old ones need not be kept */
};

static inline fsdp_parameter *fsdp_parameter_of_sink(fsdp_grad_sink *sink)
{
    return (fsdp_parameter *)(void *)((char *)sink - offsetof(fsdp_parameter, sink));
}

struct fsdp_module {
    char *class_name, *name;
    char *extra_repr; /* text that is printed in its parentheses; NULL: derived from the shapes */
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
    bool checkpointed; /* its forward runs again in backward */
    fsdp_activation_checkpointing_options checkpointing;
    void *fsdp_state; /* state of src/fsdp, opaque here */
    /* Allocate the memory of the unit on `device` if it is on meta; NULL if there is no state. */
    fsdp_status (*to_empty)(void *fsdp_state, fsdp_device *device);
};

/* Hooks run in the order in which they were added; in post_forward in reverse order. destroy may be
 * NULL. */
FSDP_MUST_CHECK fsdp_status fsdp_module_add_hooks(fsdp_module *m, fsdp_region_hooks *hooks,
                                                  void (*destroy)(fsdp_region_hooks *hooks));

/* Give p memory: data (retained) is read by operations; local (retained) holds the optimizer's rows
 * [row_begin, row_end) over group. If shard_dim is set afterwards, they are entries of that
 * dimension. */
void fsdp_parameter_set_tensors(fsdp_parameter *p, fsdp_tensor *data, fsdp_tensor *local,
                                int64_t row_begin, int64_t row_end, fsdp_group *group);
/* Own rows of p in a copy that operations will read, as one block of *dtype; NULL: no copy outlives
 * the write. Called once per write, after the write of local has begun, by code that then writes
 * all these rows. */
void *fsdp_parameter_mirror(fsdp_parameter *p, fsdp_dtype *dtype);
/* Apply the pending dtypes: adapt the memory of the parameters' units to parameters that were
 * frozen, unfrozen, or will be loaded. Collective. */
FSDP_MUST_CHECK fsdp_status fsdp_parameters_settle(const fsdp_parameter_list *parameters);
/* Apply m's hooks to an input that its forward created itself. Returns x, or another tensor, in
 * which case x is dropped. */
fsdp_tensor *fsdp_module_cast_input(fsdp_scope *s, const fsdp_module *m, fsdp_tensor *x);
/* The dotted path of m below its root; "" for the root, or if it does not fit into `text`
 * [bytes]. */
const char *fsdp_module_path(const fsdp_module *m, char *text, size_t bytes);
/* FSDP_ERR_STATE naming the parameters of m's tree that are on meta. */
FSDP_MUST_CHECK fsdp_status fsdp_module_meta_error(const fsdp_module *m);
/* This rank's part of the parameter. */
static inline fsdp_slice fsdp_parameter_slice(const fsdp_parameter *p)
{
    return fsdp_slice_of(p->ndim, p->shape, p->shard_dim, p->row_begin, p->row_end);
}
/* Set the own rows of parameter `name` to their values of fsdp_module_init(). Called during a write
 * of local. */
void fsdp_parameter_draw(fsdp_parameter *p, const char *name, uint64_t seed);
/* The key of a parameter's random numbers. */
uint64_t fsdp_parameter_key(uint64_t seed, const char *name);
