/* The tape, its nodes and regions, and the gradients of leaves. */
#include <string.h>

#include "src/autograd/derived.h"
#include "src/autograd/early_stop.h"
#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/clock.h"
#include "src/base/philox.h"

fsdp_status fsdp_tape_create(fsdp_tape **tape)
{
    fsdp_tape *t = fsdp_calloc(1, sizeof *t);
    if (!t)
        return FSDP_ERR_NOMEM;
    /* The generation is random, so that tensors of another tape are not mistaken for tensors of
     * this tape. */
    t->generation = fsdp_mix64((uint64_t)fsdp_clock_ns() ^ fsdp_mix64((uint64_t)(uintptr_t)t));
    *tape = t;
    return FSDP_OK;
}

static void free_host(const fsdp_op *op, void *host)
{
    if (host && op->host_destroy)
        op->host_destroy(host);
    else
        fsdp_free(host);
}

void fsdp_node_release_saved(const fsdp_tape *tape, fsdp_node *n, int i)
{
    fsdp_tensor_release(n->saved[i]);
    n->saved[i] = NULL;
    if (n->from[i])
        fsdp_derived_end_read(tape->nodes[n->from[i] - 1].derived);
    n->from[i] = 0;
}

static void release_reader(fsdp_tensor *leaf)
{
    fsdp_grad_sink *sink = leaf ? leaf->sink : NULL;
    if (sink && sink->n_readers)
        sink->n_readers--;
    fsdp_tensor_release(leaf);
}

fsdp_status fsdp_leaf_list_add(fsdp_leaf_list *list, fsdp_tensor *leaf)
{
    if (!FSDP_GROW(list->items, list->cap, list->n + 1))
        return FSDP_ERR_NOMEM;
    list->items[list->n++] = fsdp_tensor_retain(leaf);
    leaf->sink->n_readers++;
    return FSDP_OK;
}

/* Return the index of `leaf` in the list, or list->n if the list does not contain it. */
static size_t find_leaf(const fsdp_leaf_list *list, const fsdp_tensor *leaf)
{
    size_t i = 0;
    while (i < list->n && list->items[i] != leaf)
        i++;
    return i;
}

/* Remove one entry for `leaf` from the list. Return false if the list is NULL or contains no such
 * entry. */
static bool remove_leaf(fsdp_leaf_list *list, fsdp_tensor *leaf)
{
    const size_t i = list ? find_leaf(list, leaf) : 0;
    if (!list || i == list->n)
        return false;
    memmove(list->items + i, list->items + i + 1, (--list->n - i) * sizeof *list->items);
    release_reader(leaf);
    return true;
}

void fsdp_leaf_list_clear(fsdp_leaf_list *list)
{
    while (list->n)
        release_reader(list->items[--list->n]);
    fsdp_free(list->items);
    *list = (fsdp_leaf_list){0};
}

void fsdp_node_clear(const fsdp_tape *tape, fsdp_node *n)
{
    for (int i = 0; i < n->n_saved; i++)
        fsdp_node_release_saved(tape, n, i);
    for (int i = 0; i < n->n_in; i++)
        release_reader(n->in[i].leaf);
    fsdp_derived_destroy(n->derived);
    free_host(n->op, n->host);
    n->n_saved = n->n_in = 0;
    n->derived = NULL;
    n->host = NULL;
}

void fsdp_tape_clear(fsdp_tape *tape)
{
    for (size_t i = tape->n_nodes; i-- > 0;)
        fsdp_node_clear(tape, &tape->nodes[i]);
    tape->n_nodes = tape->n_regions = 0;
    tape->open_region = 0;
    tape->generation++;
}

void fsdp_tape_cancel(fsdp_tape *tape)
{
    for (size_t i = tape->n_regions; i-- > 0;) {
        fsdp_region *r = &tape->regions[i];
        for (int h = r->n_hooks; h-- > 0;) {
            r->hooks[h]->reached = 0;
            if (r->hooks[h]->cancel)
                r->hooks[h]->cancel(r->hooks[h]->self, true);
        }
    }
}

void fsdp_tape_reset(fsdp_tape *tape)
{
    fsdp_tape_cancel(tape);
    fsdp_tape_clear(tape);
}

void fsdp_tape_destroy(fsdp_tape *tape)
{
    if (!tape)
        return;
    fsdp_tape_reset(tape);
    fsdp_free(tape->nodes);
    fsdp_free(tape->regions);
    fsdp_free(tape);
}

static bool is_leaf(const fsdp_tensor *t)
{
    return t->sink && t->sink->requires_grad;
}

static bool has_node(const fsdp_tape *tape, const fsdp_tensor *t)
{
    return t->node && t->generation == tape->generation;
}

bool fsdp_needs_grad(const fsdp_scope *s, const fsdp_tensor *t)
{
    const fsdp_tape *tape = s->run->tape;
    return tape && t && (is_leaf(t) || has_node(tape, t));
}

bool fsdp_is_recorded(const fsdp_scope *s, const fsdp_tensor *t)
{
    return s->run->counting || s->run->stopping || fsdp_needs_grad(s, t);
}

/* Record in the leaf's sink whether an operation reads the whole leaf or only some of its rows. The
 * code that owns the leaf's target reads this record. */
static void record_read(const fsdp_record_args *args, fsdp_grad_sink *sink)
{
    if (args->op->reads_rows) {
        sink->looked_up = true;
        sink->lookups += args->rows;
    } else {
        sink->read_whole = true;
    }
}

/* Record that a new node reads `leaf`. If a checkpointed part runs for the second time, its first
 * run has already called record_read() for the leaves in expected_leaves, so do not call it again
 * for these leaves. */
static void record_use(const fsdp_scope *s, const fsdp_record_args *args, fsdp_tensor *leaf)
{
    leaf->sink->n_readers++;
    if (!remove_leaf(s->run->expected_leaves, leaf))
        record_read(args, leaf->sink);
}

static void fill_node(const fsdp_scope *s, fsdp_node *n, const fsdp_record_args *args,
                      uint32_t need)
{
    *n = (fsdp_node){.op = args->op,
                     .region = s->run->tape->open_region,
                     .need = need,
                     .n_in = args->n_in,
                     .n_out = args->n_out,
                     .n_saved = args->n_saved,
                     .wrote = args->wrote,
                     .n_dropped = args->wrote ? args->wrote->sink->n_dropped : 0,
                     .host = args->host};
    for (int i = 0; i < args->n_in; i++) {
        fsdp_tensor *t = args->in[i];
        if (!(need >> i & 1))
            continue;
        if (has_node(s->run->tape, t)) {
            n->in[i].node = t->node;
            n->in[i].output = t->output;
        } else {
            n->in[i].leaf = fsdp_tensor_retain(t);
            record_use(s, args, t);
        }
    }
    for (int i = 0; i < args->n_saved; i++)
        if (fsdp_is_derived(s, args->saved[i])) {
            n->from[i] = args->saved[i]->node;
            fsdp_derived_begin_read(args->saved[i]->derived);
        } else {
            n->saved[i] = fsdp_tensor_retain(args->saved[i]);
        }
    if (args->options_bytes)
        memcpy(n->options, args->options, args->options_bytes);
}

/* Called for an operation during the first run of a checkpointed part, while the tape is hidden.
 * The operation records no node now, because the second run will record one. Instead, add the
 * leaves that the operation reads to hidden_leaves. Also call record_read() for each of these
 * leaves that is not in expected_leaves. If expected_leaves is not empty, this first run is inside
 * the second run of an enclosing part. The first run of the enclosing part has then already called
 * record_read() for the leaves in expected_leaves. */
static void record_hidden_uses(fsdp_scope *s, const fsdp_record_args *args)
{
    for (int i = 0; i < args->n_in && s->run->hidden_leaves && fsdp_scope_ok(s); i++)
        if (args->in[i] && is_leaf(args->in[i]) &&
            fsdp_scope_check(s, fsdp_leaf_list_add(s->run->hidden_leaves, args->in[i])) &&
            !remove_leaf(s->run->expected_leaves, args->in[i]))
            record_read(args, args->in[i]->sink);
}

static bool keeps_all(const fsdp_node *n)
{
    for (int i = 0; i < n->n_saved; i++)
        if (n->from[i])
            return false;
    return true;
}

void fsdp_record(fsdp_scope *s, const fsdp_record_args *args)
{
    FSDP_ASSERT(args->options_bytes <= FSDP_OPTION_BYTES);
    fsdp_trace_lap(fsdp_op_category(args->op), args->op->name,
                   s->run->recomputing ? "recomputation" : NULL);
    fsdp_early_stop_count(s, args);
    record_hidden_uses(s, args);
    uint32_t need = 0;
    for (int i = 0; i < args->n_in; i++)
        if (fsdp_needs_grad(s, args->in[i]))
            need |= 1u << i;
    fsdp_tape *tape = s->run->tape;
    bool wanted = tape && (need || args->reads_leaves);
    if (!wanted || !fsdp_scope_ok(s) || !args->out[0]) {
        free_host(args->op, args->host);
        return;
    }
    if (!FSDP_GROW(tape->nodes, tape->cap_nodes, tape->n_nodes + 1)) {
        fsdp_scope_fail(s, FSDP_ERR_NOMEM);
        free_host(args->op, args->host);
        return;
    }
    fill_node(s, &tape->nodes[tape->n_nodes++], args, need);
    for (int i = 0; i < args->n_out; i++) {
        args->out[i]->node = (uint32_t)tape->n_nodes;
        args->out[i]->generation = tape->generation;
        args->out[i]->output = (uint16_t)i;
    }
    fsdp_node *n = &tape->nodes[tape->n_nodes - 1];
    if (!args->op->derive || !keeps_all(n) ||
        !fsdp_scope_check(s, fsdp_derived_create(n, args->out[0], s->run->recomputing)))
        return;
    if (fsdp_early_stop_is_reached(s->run))
        fsdp_derived_hold(n->derived);
}

uint32_t fsdp_region_begin(fsdp_scope *s, fsdp_region_hooks *const *hooks, int n_hooks)
{
    fsdp_tape *tape = s->run->tape;
    if (!tape || !fsdp_scope_ok(s))
        return 0;
    if (!FSDP_GROW(tape->regions, tape->cap_regions, tape->n_regions + 1)) {
        fsdp_scope_fail(s, FSDP_ERR_NOMEM);
        return 0;
    }
    fsdp_region *r = &tape->regions[tape->n_regions++];
    *r = (fsdp_region){.first = (uint32_t)tape->n_nodes,
                       .end = UINT32_MAX,
                       .parent = tape->open_region,
                       .n_hooks = n_hooks};
    FSDP_ASSERT(n_hooks <= FSDP_MAX_HOOKS);
    for (int i = 0; i < n_hooks; i++)
        r->hooks[i] = hooks[i];
    tape->open_region = (uint32_t)tape->n_regions;
    return tape->open_region;
}

void fsdp_region_end(fsdp_scope *s, uint32_t region)
{
    fsdp_tape *tape = s->run->tape;
    if (!tape || !region)
        return;
    fsdp_region *r = &tape->regions[region - 1];
    r->end = (uint32_t)tape->n_nodes;
    tape->open_region = r->parent;
}

void fsdp_region_set_name(fsdp_scope *s, uint32_t region, const char *class_name, const char *name)
{
    if (!region)
        return;
    s->run->tape->regions[region - 1].class_name = class_name;
    s->run->tape->regions[region - 1].name = name;
}

/* --- leaves --- */

fsdp_status fsdp_grad_sink_default_target(fsdp_grad_sink *self, fsdp_tensor *leaf,
                                          fsdp_tensor **dst, float *beta)
{
    *beta = self->grad ? 1.0f : 0.0f;
    if (!self->grad)
        FSDP_TRY(fsdp_tensor_create(leaf->storage->device, FSDP_DTYPE_F32, leaf->ndim, leaf->shape,
                                    FSDP_TAG_GRAD, &self->grad));
    *dst = self->grad;
    return FSDP_OK;
}

fsdp_status fsdp_grad_target(fsdp_tensor *leaf, fsdp_tensor **dst, float *beta)
{
    if (!leaf->sink)
        return fsdp_error(FSDP_ERR_STATE, "a parameter was sharded or destroyed between its "
                                          "forward and its backward");
    return leaf->sink->target(leaf->sink, leaf, dst, beta);
}

fsdp_status fsdp_grad_target_of_next_node(const fsdp_scope *s, fsdp_tensor *leaf, fsdp_tensor **dst,
                                          float *beta)
{
    const fsdp_leaf_list *expected = s->run->expected_leaves;
    const bool is_counted = expected && find_leaf(expected, leaf) < expected->n;
    leaf->sink->n_readers += !is_counted;
    const fsdp_status status = fsdp_grad_target(leaf, dst, beta);
    leaf->sink->n_readers -= !is_counted;
    return status;
}

bool fsdp_grad_steal(fsdp_tensor *leaf, fsdp_tensor *grad)
{
    fsdp_grad_sink *sink = leaf->sink;
    if (!sink || sink->target != fsdp_grad_sink_default_target || sink->grad || grad->refs > 1)
        return false;
    sink->grad = fsdp_tensor_retain(grad);
    return true;
}

static void destroy_own_sink(fsdp_grad_sink *sink)
{
    fsdp_tensor_release(sink->grad);
    fsdp_free(sink);
}

fsdp_status fsdp_tensor_set_requires_grad(fsdp_tensor *t, bool on)
{
    if (!fsdp_dtype_is_floating(t->dtype))
        return fsdp_error(FSDP_ERR_INVALID, "a tensor of %s cannot have a gradient",
                          fsdp_dtype_name(t->dtype));
    if (!t->sink) {
        if (!on)
            return FSDP_OK;
        t->sink = fsdp_calloc(1, sizeof *t->sink);
        if (!t->sink)
            return FSDP_ERR_NOMEM;
        t->sink->target = fsdp_grad_sink_default_target;
        t->sink_destroy = destroy_own_sink;
    }
    t->sink->requires_grad = on;
    if (!on)
        fsdp_tensor_zero_grad(t);
    return FSDP_OK;
}

fsdp_tensor *fsdp_tensor_grad(const fsdp_tensor *t)
{
    return t->sink ? t->sink->grad : NULL;
}

void fsdp_tensor_zero_grad(fsdp_tensor *t)
{
    if (!t->sink)
        return;
    fsdp_tensor_release(t->sink->grad);
    t->sink->grad = NULL;
}
