/* Inside of modules and parameters; how a forward is called through hooks. */
#pragma once
#include <fsdp/nn.h>

#include "src/autograd/autograd.h"

/* A forward reads its inputs from `in` and puts results that s owns into `out`. */
typedef void fsdp_forward_fn(fsdp_scope *s, fsdp_module *self, const fsdp_args *in, fsdp_args *out);

struct fsdp_parameter {
    int refs; /* modules that name it */
    int ndim;
    int64_t shape[FSDP_MAX_DIMS]; /* of the whole parameter */
    fsdp_init init;
    fsdp_grad_sink sink; /* sink.grad is the local gradient, sharded or not */
    fsdp_tensor *data;   /* the leaf that operations read; NULL before memory was given */
    fsdp_tensor *local;  /* the optimizer's: own rows of the master; == data if not sharded */
    int64_t row_begin, row_end;
    fsdp_group *group; /* it is sharded over; NULL: not sharded */
    void *owner;       /* the unit it belongs to (src/fsdp), opaque here; NULL: none */
};

struct fsdp_module {
    char *class_name, *name;
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
    void *fsdp_state; /* src/fsdp's, opaque here */
};

/* impl is freed with the module by destroy (may be NULL: borrowed). */
void fsdp_module_set_forward(fsdp_module *m, fsdp_forward_fn *forward, void *impl,
                             void (*destroy)(void *impl));
/* Outermost first in forward. destroy may be NULL. */
FSDP_MUST_CHECK fsdp_status fsdp_module_add_hooks(fsdp_module *m, fsdp_region_hooks *hooks,
                                                  void (*destroy)(fsdp_region_hooks *hooks));

/* Open a child scope and a region, run hooks and fn (NULL: the module's own forward), keep the
 * results in s. After a failure the result is empty and s has failed. */
fsdp_args fsdp_module_call(fsdp_scope *s, fsdp_module *m, fsdp_forward_fn *fn, fsdp_args in);

/* One tensor in, one out. */
static inline fsdp_tensor *fsdp_module_call1(fsdp_scope *s, fsdp_module *m, fsdp_tensor *x)
{
    return fsdp_module_call(s, m, NULL, (fsdp_args){.t = {x}, .n = 1}).t[0];
}

/* The leaf that an operation reads, or NULL with the scope failed if it has no memory. */
fsdp_tensor *fsdp_read(fsdp_scope *s, const fsdp_parameter *p);

/* Give p memory: data (retained) is what operations read, local (retained) the optimizer's rows
 * [row_begin, row_end) over group. */
void fsdp_parameter_set_tensors(fsdp_parameter *p, fsdp_tensor *data, fsdp_tensor *local,
                                int64_t row_begin, int64_t row_end, fsdp_group *group);
/* Key of a parameter's random numbers. */
uint64_t fsdp_parameter_key(uint64_t seed, const char *name);
