/* See Note [Derived results] in derived.h. */
#include "src/autograd/derived.h"

#include <string.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"

struct fsdp_derived {
    int refs; /* number of references: one from the node, and one from the result while it exists */
    fsdp_tensor *result; /* borrowed; NULL once the result has been freed */
    /* owned; NULL until it is first needed, and again after the last reader */
    fsdp_tensor *recomputed;
    int readers;   /* number of nodes that have saved the result and will still read it */
    bool for_each; /* release `recomputed` after each reader, not only after the last */
    fsdp_dtype dtype;
    int ndim;
    int64_t shape[FSDP_MAX_DIMS];
};

static void release(fsdp_derived *derived)
{
    if (--derived->refs == 0)
        fsdp_free(derived);
}

static void forget_result(fsdp_derived *derived)
{
    derived->result = NULL;
    release(derived);
}

fsdp_status fsdp_derived_create(fsdp_node *n, fsdp_tensor *result, bool for_each)
{
    FSDP_ASSERT(!result->derived);
    fsdp_derived *derived = fsdp_calloc(1, sizeof *derived);
    if (!derived)
        return FSDP_ERR_NOMEM;
    derived->refs = 2;
    derived->for_each = for_each;
    derived->result = result;
    derived->dtype = result->dtype;
    derived->ndim = result->ndim;
    memcpy(derived->shape, result->shape, sizeof derived->shape);
    result->derived = derived;
    result->derived_forget = forget_result;
    n->derived = derived;
    return FSDP_OK;
}

static void drop_recomputed(fsdp_derived *derived)
{
    fsdp_tensor_release(derived->recomputed);
    derived->recomputed = NULL;
}

void fsdp_derived_destroy(fsdp_derived *derived)
{
    if (!derived)
        return;
    drop_recomputed(derived);
    release(derived);
}

void fsdp_derived_hold(fsdp_derived *derived)
{
    derived->recomputed = fsdp_tensor_retain(derived->result);
}

void fsdp_derived_release(fsdp_derived *derived)
{
    if (derived && derived->readers == 0)
        drop_recomputed(derived);
}

void fsdp_derived_begin_read(fsdp_derived *derived)
{
    derived->readers++;
}

void fsdp_derived_end_read(fsdp_derived *derived)
{
    if (!derived)
        return;
    FSDP_ASSERT(derived->readers > 0);
    if (--derived->readers == 0 || derived->for_each)
        drop_recomputed(derived);
}

bool fsdp_derived_is_wanted(const fsdp_derived *derived)
{
    return derived && derived->readers > 0;
}

bool fsdp_is_derived(const fsdp_scope *s, const fsdp_tensor *t)
{
    const fsdp_tape *tape = s->run->tape;
    return tape && t && t->derived && t->node && t->generation == tape->generation;
}

static void recompute(fsdp_scope *s, const fsdp_node *n)
{
    fsdp_derived *derived = n->derived;
    if (!fsdp_scope_ok(s) ||
        !fsdp_scope_check(s, fsdp_tensor_create(s->run->device, derived->dtype, derived->ndim,
                                                derived->shape, FSDP_TAG_ACTIVATION,
                                                &derived->recomputed)))
        return;
    fsdp_trace_begin(fsdp_op_category(n->op), n->op->name, "recomputation");
    if (fsdp_scope_kernels(s))
        n->op->derive(s, n, derived->recomputed);
    fsdp_trace_end();
}

static fsdp_tensor *get_result(fsdp_scope *s, const fsdp_node *n)
{
    FSDP_ASSERT(n->derived);
    if (n->derived->result)
        return n->derived->result;
    if (!n->derived->recomputed)
        recompute(s, n);
    return n->derived->recomputed;
}

void fsdp_node_restore(fsdp_scope *s, const fsdp_tape *tape, fsdp_node *n)
{
    for (int i = 0; i < n->n_saved && fsdp_scope_ok(s); i++)
        if (n->from[i] && !n->saved[i])
            n->saved[i] = fsdp_tensor_retain(get_result(s, &tape->nodes[n->from[i] - 1]));
}
