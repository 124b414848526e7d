/* Inside of modules and parameters. */
#pragma once
#include <stddef.h>

#include <fsdp/nn.h>

#include "src/autograd/autograd.h"
#include "src/nn/slice.h"

struct fsdp_parameter {
    int refs;                /* modules that name it */
    const fsdp_module *home; /* the first of them, for messages; NULL once that is gone */
    int ndim;
    int64_t shape[FSDP_MAX_DIMS]; /* of the whole parameter */
    fsdp_init init;
    fsdp_grad_sink sink; /* sink.grad is the local gradient, sharded or not */
    fsdp_tensor *data;   /* the leaf that operations read; NULL before memory was given */
    fsdp_tensor *local;  /* the optimizer's: own rows of the master; == data if not sharded */
    int shard_dim;       /* the dimension of which local holds */
    int64_t row_begin, row_end; /* entries [row_begin, row_end) */
    fsdp_group *group;          /* it is sharded over; NULL: not sharded */
    void *owner;                /* the unit it belongs to (src/fsdp), opaque here; NULL: none */
    void *extension;            /* of its all-gather (src/fsdp), opaque here; owned; NULL: none */
    fsdp_status (*settle)(void *owner); /* see fsdp_parameters_settle(); NULL without an owner */
    void *(*mirror)(fsdp_parameter *p,
                    fsdp_dtype *dtype); /* see fsdp_parameter_mirror(); or NULL */
    bool loaded;                        /* it has, or is about to have, values of a file: in */
    fsdp_dtype loaded_dtype;            /* which a frozen parameter is kept if that saves memory */
    bool values_are_due; /* a loader is about to write all of it: old values do not count */
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
    void *fsdp_state; /* src/fsdp's, opaque here */
    /* Make the memory of the unit anew on `device` if it lies on meta; NULL without a state. */
    fsdp_status (*to_empty)(void *fsdp_state, fsdp_device *device);
};

/* Outermost first in forward. destroy may be NULL. */
FSDP_MUST_CHECK fsdp_status fsdp_module_add_hooks(fsdp_module *m, fsdp_region_hooks *hooks,
                                                  void (*destroy)(fsdp_region_hooks *hooks));

/* Give p memory: data (retained) is what operations read, local (retained) the optimizer's rows
 * [row_begin, row_end) over group; entries of another dimension if shard_dim is set after it. */
void fsdp_parameter_set_tensors(fsdp_parameter *p, fsdp_tensor *data, fsdp_tensor *local,
                                int64_t row_begin, int64_t row_end, fsdp_group *group);
/* Own rows of p in a copy that operations will read, in one piece of *dtype; NULL: none outlives
 * the write. Asked once for a write of local that has begun, by whoever then writes all of them. */
void *fsdp_parameter_mirror(fsdp_parameter *p, fsdp_dtype *dtype);
/* Have the memory of owners follow what was frozen, unfrozen or will be loaded. Collective. */
FSDP_MUST_CHECK fsdp_status fsdp_parameters_settle(const fsdp_parameter_list *parameters);
/* What m's hooks make of an input that its forward did not get but made: x, or another tensor, and
 * x is dropped. */
fsdp_tensor *fsdp_module_cast_input(fsdp_scope *s, const fsdp_module *m, fsdp_tensor *x);
/* The dotted path of m below its root, "" for the root or if it is too long for `text` [bytes]. */
const char *fsdp_module_path(const fsdp_module *m, char *text, size_t bytes);
/* FSDP_ERR_STATE naming the parameters of m's tree that are on meta. */
FSDP_MUST_CHECK fsdp_status fsdp_module_meta_error(const fsdp_module *m);
/* This rank's part of it. */
static inline fsdp_slice fsdp_parameter_slice(const fsdp_parameter *p)
{
    return fsdp_slice_of(p->ndim, p->shape, p->shard_dim, p->row_begin, p->row_end);
}
/* Give the own rows of parameter `name` their values of fsdp_module_init(), within a write of
 * local. */
void fsdp_parameter_draw(fsdp_parameter *p, const char *name, uint64_t seed);
/* Key of a parameter's random numbers. */
uint64_t fsdp_parameter_key(uint64_t seed, const char *name);
