/* Backward: mark the nodes that the roots reach, then sweep from the newest node to the oldest.
 * See Note [Regions] in autograd.h. */
#include <stdio.h>
#include <string.h>

#include "src/autograd/checkpoint.h"
#include "src/autograd/derived.h"
#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/error.h"
#include "src/tensor/device.h"

typedef struct sweep {
    /* tape: the tape of this backward. outer: NULL, unless `tape` is the inner tape of a
     * checkpointed part; then `outer` is the tape whose backward runs the part again. */
    fsdp_tape *tape, *outer;
    fsdp_device *device;
    fsdp_tensor **grads; /* [n_nodes * FSDP_MAX_OUT] the gradients of each node's outputs */
    bool *reached;       /* [n_nodes] true if a root depends on the node */
    uint32_t *open;      /* index + 1 of each region that the sweep has entered and not left yet,
                            outermost first */
    size_t n_open;
} sweep;

static fsdp_tensor **grad_slot(const sweep *w, uint32_t node, uint16_t output)
{
    return &w->grads[(size_t)(node - 1) * FSDP_MAX_OUT + output];
}

/* --- marking --- */

static void reach_regions(fsdp_tape *tape, uint32_t region)
{
    for (; region && !tape->regions[region - 1].reached;
         region = tape->regions[region - 1].parent) {
        fsdp_region *r = &tape->regions[region - 1];
        r->reached = true;
        for (int h = 0; h < r->n_hooks; h++)
            r->hooks[h]->reached++;
    }
}

static void mark_reached(sweep *w, fsdp_tensor *const *roots, int n)
{
    for (int i = 0; i < n; i++)
        w->reached[roots[i]->node - 1] = true;
    for (size_t i = w->tape->n_nodes; i-- > 0;) {
        const fsdp_node *node = &w->tape->nodes[i];
        if (!w->reached[i])
            continue;
        reach_regions(w->tape, node->region);
        for (int k = 0; k < node->n_in; k++)
            if (node->in[k].node)
                w->reached[node->in[k].node - 1] = true;
    }
}

/* --- gradients already added by forward --- */

static fsdp_status error_missing_gradient(const fsdp_node *n)
{
    return fsdp_error(FSDP_ERR_STATE,
                      "backward: a result of %s got no gradient, but its forward already added to "
                      "the gradient of a sharded parameter: compute values that are not trained on "
                      "without a tape, or call fsdp_tape_reset() afterwards",
                      n->op->name);
}

static fsdp_status check_early_gradient(const fsdp_node *n, bool reached)
{
    if (!reached)
        return error_missing_gradient(n);
    if (n->wrote->sink && n->wrote->sink->n_dropped == n->n_dropped)
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_STATE,
                      "backward: the gradient that %s added to a sharded parameter in forward "
                      "was dropped since, when another forward or backward was cancelled: run the "
                      "forward again",
                      n->op->name);
}

/* Some operations already write gradients of leaves during forward, to the tensors that
 * fsdp_grad_sink.target returns. Fail if backward does not reach the nodes of all these operations,
 * or if the code that supplies `target` has dropped one of these gradients
 * (fsdp_grad_sink.n_dropped). This check is made before any hook is called. The check depends only
 * on data that is the same on all ranks, so either all ranks fail or none does. A NULL `reached`
 * means that backward reaches no node. */
static fsdp_status check_early_gradients(const fsdp_tape *tape, const bool *reached)
{
    for (size_t i = 0; i < tape->n_nodes; i++)
        if (tape->nodes[i].wrote)
            FSDP_TRY(check_early_gradient(&tape->nodes[i], reached && reached[i]));
    return FSDP_OK;
}

/* --- adding gradients --- */

/* Add `grad` to *slot. The tensor in *slot is overwritten with the sum if nothing but the slot
 * refers to this tensor. */
static fsdp_status accumulate(sweep *w, fsdp_tensor **slot, fsdp_tensor *grad)
{
    if (!*slot) {
        *slot = fsdp_tensor_retain(grad);
        return FSDP_OK;
    }
    fsdp_tensor *old = *slot, *sum = old;
    FSDP_ASSERT(old->dtype == grad->dtype);
    if (old->refs > 1 || old->storage->refs > 1)
        FSDP_TRY(fsdp_tensor_create(w->device, old->dtype, old->ndim, old->shape,
                                    FSDP_TAG_ACTIVATION, &sum));
    sum->is_one = false;
    if (w->device->kernels)
        w->device->kernels->add(w->device->context, fsdp_tensor_ptr(sum), fsdp_tensor_ptr(old),
                                fsdp_tensor_ptr(grad), old->dtype, fsdp_tensor_numel(old));
    if (sum != old) {
        fsdp_tensor_release(old);
        *slot = sum;
    }
    return FSDP_OK;
}

/* Add `grad` to `dst`. The two tensors may have different dtypes. */
static fsdp_status add_converted(sweep *w, fsdp_tensor *dst, fsdp_tensor *grad)
{
    fsdp_tensor *same = grad;
    if (grad->dtype != dst->dtype)
        FSDP_TRY(fsdp_tensor_to(grad, dst->dtype, FSDP_TAG_ACTIVATION, &same));
    if (w->device->kernels)
        w->device->kernels->add(w->device->context, fsdp_tensor_ptr(dst), fsdp_tensor_ptr(dst),
                                fsdp_tensor_ptr(same), dst->dtype, fsdp_tensor_numel(dst));
    if (same != grad)
        fsdp_tensor_release(same);
    return FSDP_OK;
}

/* An operation has returned the gradient `grad` for a leaf. Add it to the leaf's target. */
static fsdp_status accumulate_leaf(sweep *w, fsdp_tensor *leaf, fsdp_tensor *grad)
{
    fsdp_tensor *dst;
    float beta;
    FSDP_TRY(fsdp_grad_target(leaf, &dst, &beta));
    if (beta != 0.0f)
        return add_converted(w, dst, grad);
    if (w->device->kernels)
        w->device->kernels->cast(w->device->context, fsdp_tensor_ptr(dst), dst->dtype,
                                 fsdp_tensor_ptr(grad), grad->dtype, fsdp_tensor_numel(grad));
    return FSDP_OK;
}

static fsdp_status pass_gradients_on(sweep *w, const fsdp_node *node, fsdp_tensor *const *grad_in)
{
    for (int i = 0; i < node->n_in; i++) {
        if (!grad_in[i] || !(node->need >> i & 1))
            continue;
        if (node->in[i].leaf)
            FSDP_TRY(accumulate_leaf(w, node->in[i].leaf, grad_in[i]));
        else
            FSDP_TRY(accumulate(w, grad_slot(w, node->in[i].node, node->in[i].output), grad_in[i]));
    }
    return FSDP_OK;
}

/* --- regions --- */

static fsdp_status pre_backward(const fsdp_region *r, fsdp_region_hooks *hooks)
{
    fsdp_trace_begin(FSDP_TRACE_SHARDING, "pre_backward", r->name);
    fsdp_status status = hooks->pre_backward(hooks->self);
    fsdp_trace_end();
    return status;
}

static fsdp_status post_backward(const fsdp_region *r, fsdp_region_hooks *hooks, bool last)
{
    fsdp_trace_begin(FSDP_TRACE_SHARDING, "post_backward", r->name);
    fsdp_status status = hooks->post_backward(hooks->self, last);
    fsdp_trace_end();
    return status;
}

static fsdp_status enter_regions(sweep *w, uint32_t region)
{
    if (!region || w->tape->regions[region - 1].entered)
        return FSDP_OK;
    fsdp_region *r = &w->tape->regions[region - 1];
    FSDP_TRY(enter_regions(w, r->parent));
    r->entered = true;
    w->open[w->n_open++] = region;
    fsdp_trace_begin(FSDP_TRACE_REST, r->class_name ? r->class_name : "region", r->name);
    for (int h = 0; h < r->n_hooks; h++)
        if (r->hooks[h]->pre_backward)
            FSDP_TRY(pre_backward(r, r->hooks[h]));
    return FSDP_OK;
}

/* Leave every open region whose first node has an index of at least `next`. The sweep has passed
 * all nodes of such a region, because from now on it visits only nodes with an index below
 * `next`. */
static fsdp_status leave_regions(sweep *w, size_t next)
{
    while (w->n_open) {
        fsdp_region *r = &w->tape->regions[w->open[w->n_open - 1] - 1];
        if (r->first < next)
            return FSDP_OK;
        w->n_open--;
        r->left = true;
        for (int h = r->n_hooks; h-- > 0;) {
            bool last = --r->hooks[h]->reached == 0;
            if (r->hooks[h]->post_backward)
                FSDP_TRY(post_backward(r, r->hooks[h], last));
        }
        fsdp_trace_end();
        fsdp_device_trace_memory(w->device);
    }
    return FSDP_OK;
}

/* --- the sweep --- */

static bool has_gradient(const sweep *w, size_t i)
{
    for (int o = 0; o < w->tape->nodes[i].n_out; o++)
        if (w->grads[i * FSDP_MAX_OUT + (size_t)o])
            return true;
    return false;
}

static void release_grads(sweep *w, size_t i)
{
    for (size_t o = 0; o < FSDP_MAX_OUT; o++) {
        fsdp_tensor_release(w->grads[i * FSDP_MAX_OUT + o]);
        w->grads[i * FSDP_MAX_OUT + o] = NULL;
    }
}

/* Called for an operation whose backward() itself adds to the gradients of its inputs
 * (fsdp_op.continues). Other operations that read input i may already have computed gradients of
 * it. If input i is the result of a node, move the sum of these gradients to grad_in[i]. */
static void take_current_gradients(sweep *w, fsdp_scope *s, const fsdp_node *node,
                                   fsdp_tensor **grad_in)
{
    for (int i = 0; i < node->n_in; i++) {
        if (!(node->need >> i & 1) || !node->in[i].node)
            continue;
        fsdp_tensor **slot = grad_slot(w, node->in[i].node, node->in[i].output);
        grad_in[i] = fsdp_scope_own(s, *slot);
        *slot = NULL;
    }
}

/* Write the path of the region's module to `text`. It is made from the names of the region and of
 * its parents on this tape. */
static void region_path(const fsdp_tape *tape, uint32_t region, char *text, size_t bytes)
{
    char inner[160] = "";
    *text = '\0';
    for (; region; region = tape->regions[region - 1].parent) {
        const char *name = tape->regions[region - 1].name;
        if (!name || !*name)
            continue;
        snprintf(inner, sizeof inner, "%.60s%s%.90s", name, *text ? "." : "", text);
        snprintf(text, bytes, "%s", inner);
    }
}

/* Prepend the name of the operation that has failed to the error message. If memory was missing,
 * also prepend the path of the operation's module. */
static void name_operation(const fsdp_tape *tape, const fsdp_node *node, fsdp_status status)
{
    char path[160] = "";
    if (status == FSDP_ERR_NOMEM)
        region_path(tape, node->region, path, sizeof path);
    fsdp_error_context(status, "backward of %s%s%s", node->op->name, *path ? " in " : "", path);
}

static fsdp_status run_node_backward(sweep *w, size_t i)
{
    fsdp_node *node = &w->tape->nodes[i];
    fsdp_tensor *grad_in[FSDP_MAX_IN] = {0};
    fsdp_scope *s;
    FSDP_TRY(fsdp_scope_open(w->device, NULL, NULL, &s));
    if (node->op->continues)
        take_current_gradients(w, s, node, grad_in);
    fsdp_node_restore(s, w->tape, node);
    if (fsdp_scope_ok(s) && node->op->backward_first) {
        node->op->backward_first(s, node, &w->grads[i * FSDP_MAX_OUT], grad_in);
        fsdp_node_release_saved(w->tape, node, 0);
    }
    if (fsdp_scope_ok(s))
        node->op->backward(s, node, &w->grads[i * FSDP_MAX_OUT], grad_in);
    fsdp_status status = fsdp_scope_status(s);
    if (status == FSDP_OK)
        status = pass_gradients_on(w, node, grad_in);
    else
        name_operation(w->tape, node, status);
    fsdp_scope_close(s);
    release_grads(w, i); /* not released earlier, because a tensor in grad_in may be one of these
                            gradients */
    fsdp_node_clear(w->tape, node);
    return status;
}

static fsdp_status run_node(sweep *w, size_t i)
{
    const fsdp_op *op = w->tape->nodes[i].op;
    fsdp_trace_begin(fsdp_op_category(op), op->name, "backward");
    fsdp_status status = run_node_backward(w, i);
    fsdp_trace_end();
    return status;
}

static fsdp_status end_backward(fsdp_region_hooks *hooks)
{
    fsdp_trace_begin(FSDP_TRACE_SHARDING, "end_backward", NULL);
    fsdp_status status = hooks->end_backward(hooks->self);
    fsdp_trace_end();
    return status;
}

static fsdp_status end_hooks(fsdp_tape *tape)
{
    for (size_t i = 0; i < tape->n_regions; i++)
        for (int h = 0; h < tape->regions[i].n_hooks; h++)
            tape->regions[i].hooks[h]->ended = false;
    for (size_t i = 0; i < tape->n_regions; i++)
        for (int h = 0; h < tape->regions[i].n_hooks; h++) {
            fsdp_region_hooks *hooks = tape->regions[i].hooks[h];
            bool call = hooks->end_backward && !hooks->ended;
            hooks->ended = true;
            if (call)
                FSDP_TRY(end_backward(hooks));
        }
    return FSDP_OK;
}

/* Give the hooks of an inner tape to the outer tape, so that the outer tape's backward calls
 * end_backward() of these hooks when it ends. A tape refers to hooks only through regions. So for
 * each region of the inner tape that has hooks, add a region without nodes to the outer tape. */
static fsdp_status move_hooks_to_outer(fsdp_tape *outer, const fsdp_tape *tape)
{
    if (!FSDP_GROW(outer->regions, outer->cap_regions, outer->n_regions + tape->n_regions))
        return FSDP_ERR_NOMEM;
    for (size_t i = 0; i < tape->n_regions; i++) {
        fsdp_region *r = &outer->regions[outer->n_regions];
        if (!tape->regions[i].n_hooks)
            continue;
        *r = tape->regions[i];
        r->first = r->end = (uint32_t)outer->n_nodes;
        r->parent = 0;
        outer->n_regions++;
    }
    return FSDP_OK;
}

static fsdp_status run_sweep(sweep *w)
{
    for (size_t i = w->tape->n_nodes; i-- > 0;) {
        FSDP_TRY(leave_regions(w, i + 1));
        if (!w->reached[i])
            continue;
        /* Enter every marked region, even if no gradient has arrived in it. So every rank runs the
         * same hooks, whatever its data is. */
        FSDP_TRY(enter_regions(w, w->tape->nodes[i].region));
        if (has_gradient(w, i))
            FSDP_TRY(run_node(w, i));
        else if (w->tape->nodes[i].wrote)
            return error_missing_gradient(&w->tape->nodes[i]);
    }
    FSDP_TRY(leave_regions(w, 0));
    return w->outer ? move_hooks_to_outer(w->outer, w->tape) : end_hooks(w->tape);
}

static fsdp_status check_root(const fsdp_tape *tape, const fsdp_tensor *root,
                              const fsdp_tensor *grad, int i)
{
    char root_text[FSDP_SHAPE_TEXT], grad_text[FSDP_SHAPE_TEXT];
    if (!root || !root->node || root->generation != tape->generation)
        return fsdp_error(FSDP_ERR_INVALID,
                          "backward: root %d is not on the tape: it depends on no tensor that "
                          "requires a gradient",
                          i);
    fsdp_shape_text(root->ndim, root->shape, root_text);
    if (!grad && fsdp_tensor_numel(root) != 1)
        return fsdp_error(FSDP_ERR_INVALID,
                          "backward: root %d is %s, not a scalar, and no gradient was passed", i,
                          root_text);
    if (!grad)
        return FSDP_OK;
    bool same_shape =
        grad->ndim == root->ndim &&
        memcmp(grad->shape, root->shape, (size_t)root->ndim * sizeof *root->shape) == 0;
    if (!same_shape || grad->dtype != root->dtype)
        return fsdp_error(FSDP_ERR_INVALID,
                          "backward: gradient %d is %s of %s but its root %s of %s", i,
                          fsdp_shape_text(grad->ndim, grad->shape, grad_text),
                          fsdp_dtype_name(grad->dtype), root_text, fsdp_dtype_name(root->dtype));
    if (!fsdp_tensor_is_contiguous(grad) || grad->storage->device != root->storage->device)
        return fsdp_error(FSDP_ERR_INVALID,
                          "backward: gradient %d is not contiguous or on another device", i);
    if (grad->storage->device->kernels && !grad->storage->data && fsdp_tensor_numel(grad))
        return fsdp_error(FSDP_ERR_STATE, "backward: gradient %d has no data", i);
    return FSDP_OK;
}

static fsdp_status check_roots(const fsdp_tape *tape, fsdp_tensor *const *roots,
                               fsdp_tensor *const *grads, int n)
{
    if (n < 1)
        return fsdp_error(FSDP_ERR_INVALID, "backward: no roots");
    for (int i = 0; i < n; i++)
        FSDP_TRY(check_root(tape, roots[i], grads ? grads[i] : NULL, i));
    return FSDP_OK;
}

static fsdp_status seed_roots(sweep *w, fsdp_tensor *const *roots, fsdp_tensor *const *grads, int n)
{
    for (int i = 0; i < n; i++) {
        fsdp_tensor *grad = grads ? fsdp_tensor_retain(grads[i]) : NULL;
        if (!grad) {
            FSDP_TRY(fsdp_tensor_create(w->device, roots[i]->dtype, roots[i]->ndim, roots[i]->shape,
                                        FSDP_TAG_ACTIVATION, &grad));
            if (w->device->kernels)
                w->device->kernels->fill(w->device->context, fsdp_tensor_ptr(grad), grad->dtype,
                                         1.0, fsdp_tensor_numel(grad));
            grad->is_one = true;
        }
        fsdp_status status = accumulate(w, grad_slot(w, roots[i]->node, roots[i]->output), grad);
        fsdp_tensor_release(grad);
        FSDP_TRY(status);
    }
    return FSDP_OK;
}

static fsdp_status sweep_init(sweep *w, fsdp_tape *tape, fsdp_tape *outer, fsdp_device *device)
{
    *w = (sweep){.tape = tape, .outer = outer, .device = device};
    w->grads = fsdp_calloc(tape->n_nodes * FSDP_MAX_OUT, sizeof(fsdp_tensor *));
    w->reached = fsdp_calloc(tape->n_nodes, sizeof(bool));
    w->open = fsdp_calloc(tape->n_regions, sizeof(uint32_t));
    return w->grads && w->reached && w->open ? FSDP_OK : FSDP_ERR_NOMEM;
}

static void sweep_fini(sweep *w)
{
    for (size_t i = 0; w->grads && i < w->tape->n_nodes; i++)
        release_grads(w, i);
    fsdp_free(w->grads);
    fsdp_free(w->reached);
    fsdp_free(w->open);
}

static fsdp_status run_backward(fsdp_tape *tape, fsdp_tensor *const *roots,
                                fsdp_tensor *const *grads, int n, fsdp_tape *outer)
{
    FSDP_TRY(check_roots(tape, roots, grads, n));
    sweep w;
    fsdp_status status = sweep_init(&w, tape, outer, roots[0]->storage->device);
    if (status == FSDP_OK)
        status = seed_roots(&w, roots, grads, n);
    if (status == FSDP_OK) {
        mark_reached(&w, roots, n);
        status = check_early_gradients(tape, w.reached);
    }
    if (status == FSDP_OK)
        status = run_sweep(&w);
    sweep_fini(&w);
    return status;
}

/* Run the backward of an inner tape that has no roots. Such a backward reaches no node. It only
 * checks the gradients that forward has already added, and gives the hooks to the outer tape. */
static fsdp_status run_without_roots(fsdp_tape *tape, fsdp_tape *outer)
{
    FSDP_TRY(check_early_gradients(tape, NULL));
    return move_hooks_to_outer(outer, tape);
}

fsdp_status fsdp_backward_inside(fsdp_tape *tape, fsdp_tensor *const *roots,
                                 fsdp_tensor *const *grads, int n, fsdp_tape *outer)
{
    fsdp_status status = outer && n == 0 ? run_without_roots(tape, outer)
                                         : run_backward(tape, roots, grads, n, outer);
    /* Save the error of backward, because fsdp_tape_cancel() may set another error message. */
    fsdp_saved_error error;
    fsdp_error_save(status, &error);
    if (status != FSDP_OK)
        fsdp_tape_cancel(tape);
    fsdp_tape_clear(tape);
    return fsdp_error_restore(&error);
}

fsdp_status fsdp_backward(fsdp_tape *tape, fsdp_tensor *const *roots, fsdp_tensor *const *grads,
                          int n)
{
    fsdp_trace_begin(FSDP_TRACE_REST, "backward", NULL);
    fsdp_status status = fsdp_backward_inside(tape, roots, grads, n, NULL);
    fsdp_trace_end();
    return status;
}
