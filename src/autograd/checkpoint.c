/* See checkpoint.h. */
#include "src/autograd/checkpoint.h"
#include "src/autograd/derived.h"
#include "src/autograd/early_stop.h"

#include <string.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/philox.h"

/* Results that the first run of a checkpointed part keeps, in the order in which they were
 * computed. */
typedef struct fsdp_kept {
    fsdp_activation_offload *offload;
    uint64_t number; /* number of the checkpointed call; passed to fsdp_stash_put() */
    struct kept_result {
        const fsdp_op *op;
        /* Number of the operation that computed these results, counted in the first run (Note
         * [Early stop] in early_stop.h). */
        uint32_t number;
        /* Results that stash_latest() has not stored yet. Only the last item of the list can have
         * such results. In all other items, these pointers are NULL. */
        fsdp_tensor *latest[FSDP_MAX_RECALLED];
        /* The stored results; NULL if backward does not need them. */
        fsdp_stashed *results[FSDP_MAX_RECALLED];
    } * items;
    /* next: index of the first item that the second run, in backward, has not used yet. */
    size_t n, cap, next;
    /* products: number of matrix products that the first run, in forward, has computed so far.
     * products_again: number of matrix products that the second run, in backward, has reached so
     * far. */
    uint64_t products, products_again;
} fsdp_kept;

/* The data that the node of a checkpointed part stores so that the part can run a second time in
 * backward. */
typedef struct segment {
    _Alignas(16) unsigned char self[FSDP_SEGMENT_SELF_BYTES];
    fsdp_segment_fn *run;
    fsdp_scope_options options;
    uint64_t rng_calls; /* value of fsdp_run.rng_calls before the first run */
    fsdp_dtype buffer_dtype;
    float loss_factor; /* value of fsdp_run.loss_factor before the first run */
    fsdp_tape *tape;   /* the outer tape */
    /* [n_out]: output k of the node is result number `result[k]` of the part. */
    int result[FSDP_MAX_OUT];
    /* inputs[i] is input i of the part, as stored. It is NULL if the part has no input i, or if the
     * node itself saves input i. The node itself saves inputs that are derived results, unless
     * activations are offloaded. */
    fsdp_stashed *inputs[FSDP_MAX_IN];
    fsdp_leaf_list leaves; /* leaves that the second run, in backward, will read */
    bool keeps_results;
    /* The results that the first run keeps. kept.offload and kept.number are also used to store
     * `inputs`. */
    fsdp_kept kept;
    fsdp_early_stop stop;
} segment;

static void drop_results(struct kept_result *item)
{
    for (int i = 0; i < FSDP_MAX_RECALLED; i++) {
        fsdp_tensor_release(item->latest[i]);
        fsdp_stash_drop(item->results[i]);
        item->latest[i] = NULL;
        item->results[i] = NULL;
    }
}

static void segment_destroy(void *host)
{
    segment *g = host;
    fsdp_leaf_list_clear(&g->leaves);
    /* Drop the newest items first, because the offload file is a stack. */
    for (size_t i = g->kept.n; i-- > 0;)
        drop_results(&g->kept.items[i]);
    for (int i = FSDP_MAX_IN; i-- > 0;)
        fsdp_stash_drop(g->inputs[i]);
    fsdp_free(g->kept.items);
    fsdp_free(g);
}

/* --- kept results --- */

/* Return true if the first run keeps the results of operation `op`, which is an attention or a
 * matrix product. As in torchtitan, the results of every attention are kept, and those of every
 * second product: the first, the third, and so on. *products is the number of products before this
 * operation. If `op` is a product, *products is incremented. */
static bool is_kept(const fsdp_op *op, uint64_t *products)
{
    return op->kind != FSDP_OP_MATMUL || (*products)++ % 2 == 0;
}

/* Take the results that the last item still has in `latest`, and store them. This is called when
 * the next results are kept, or when the first run has ended. It is not called earlier, because
 * backward may not need the results of the part's last item, and only the end of the first run
 * shows this. In that case, stash_last() drops the results before it calls this function, so they
 * are never written to the file. */
static void stash_latest(fsdp_scope *s, fsdp_kept *kept)
{
    struct kept_result *item = kept->n ? &kept->items[kept->n - 1] : NULL;
    for (int i = 0; i < FSDP_MAX_RECALLED && item && item->latest[i]; i++) {
        if (fsdp_scope_ok(s))
            (void)fsdp_scope_check(
                s, fsdp_stash_put(kept->offload, kept->number, item->latest[i], &item->results[i]));
        fsdp_tensor_release(item->latest[i]);
        item->latest[i] = NULL;
    }
}

void fsdp_selective_save(fsdp_scope *s, const fsdp_op *op, fsdp_tensor *const *out, int n)
{
    fsdp_kept *kept = s->run->keeping;
    if (!kept || !fsdp_scope_ok(s) || !is_kept(op, &kept->products))
        return;
    FSDP_ASSERT(n <= FSDP_MAX_RECALLED);
    stash_latest(s, kept);
    if (!FSDP_GROW(kept->items, kept->cap, kept->n + 1)) {
        fsdp_scope_fail(s, FSDP_ERR_NOMEM);
        return;
    }
    struct kept_result *item = &kept->items[kept->n++];
    *item = (struct kept_result){.op = op, .number = s->run->counting->n + 1};
    for (int i = 0; i < n; i++)
        item->latest[i] = fsdp_tensor_retain(out[i]);
}

/* Create a second tensor over t's memory, for use in the second run of the part, in backward. The
 * second run records nodes, and recording sets the fields `node`, `generation` and `output` of a
 * tensor. These three fields of `t` itself must keep their values. */
static fsdp_tensor *new_alias(fsdp_scope *s, fsdp_tensor *t)
{
    fsdp_tensor *alias = NULL;
    if (!fsdp_scope_ok(s) || !fsdp_scope_check(s, fsdp_tensor_view(t, t->ndim, t->shape, &alias)))
        return NULL;
    return fsdp_scope_own(s, alias);
}

bool fsdp_selective_reuse(fsdp_scope *s, const fsdp_op *op, fsdp_tensor **out, int n)
{
    fsdp_kept *kept = s->run->recalling;
    if (!kept || !fsdp_scope_ok(s) || !is_kept(op, &kept->products_again))
        return false;
    struct kept_result *item = kept->next < kept->n ? &kept->items[kept->next++] : NULL;
    if (!item || item->op != op) {
        fsdp_scope_error(s, op->name, "its checkpointed module computed %s here the first time",
                         item ? item->op->name : "nothing");
        return true;
    }
    if (!item->results[0])
        return false;
    for (int i = 0; i < n; i++) {
        fsdp_tensor *t = NULL;
        if (fsdp_scope_check(s, fsdp_stash_get(item->results[i], &t)))
            out[i] = new_alias(s, t);
        fsdp_tensor_release(t);
    }
    drop_results(item);
    return true;
}

/* --- the second run --- */

/* The function target() for a leaf of the inner tape. The second run creates such a leaf for each
 * input of the part that needs a gradient. It also records a node of source_op with the leaf as
 * input, and the part reads the output of this node instead of its input. The output shares the
 * memory of the leaf, so nothing is copied. */
static fsdp_status input_target(fsdp_grad_sink *self, fsdp_tensor *leaf, fsdp_tensor **dst,
                                float *beta)
{
    *beta = self->grad ? 1.0f : 0.0f;
    if (!self->grad)
        FSDP_TRY(fsdp_tensor_create(leaf->storage->device, leaf->dtype, leaf->ndim, leaf->shape,
                                    FSDP_TAG_ACTIVATION, &self->grad));
    *dst = self->grad;
    return FSDP_OK;
}

static void input_destroy(fsdp_grad_sink *sink)
{
    fsdp_tensor_release(sink->grad);
    fsdp_free(sink);
}

static void source_backward(fsdp_scope *s, const fsdp_node *n, fsdp_tensor *const *grad_out,
                            fsdp_tensor **grad_in)
{
    (void)s, (void)n;
    grad_in[0] = grad_out[0];
}

static const fsdp_op source_op = {.name = "checkpoint input", .backward = source_backward};

/* One input of a checkpointed part, in the form that the part's second run needs. */
typedef struct inner_input {
    /* The leaf of the inner tape that collects the gradient of the input. NULL if the input needs
     * no gradient. Also NULL if an earlier input is the same tensor; then the leaf of the earlier
     * input collects the gradients of both. */
    fsdp_tensor *leaf;
    fsdp_tensor *read; /* the tensor that is passed to the part in place of the input */
} inner_input;

static inner_input add_input(fsdp_scope *s, fsdp_tensor *t, bool wants_grad)
{
    fsdp_tensor *alias = t ? new_alias(s, t) : NULL;
    if (!wants_grad || !alias)
        return (inner_input){.read = alias};
    fsdp_grad_sink *sink = fsdp_calloc(1, sizeof *sink);
    if (!sink) {
        fsdp_scope_fail(s, FSDP_ERR_NOMEM);
        return (inner_input){0};
    }
    sink->requires_grad = true;
    sink->target = input_target;
    alias->sink = sink;
    alias->sink_destroy = input_destroy;
    fsdp_tensor *read = new_alias(s, t);
    if (read)
        fsdp_record(s, &(fsdp_record_args){
                           .op = &source_op, .in = {alias}, .n_in = 1, .out = {read}, .n_out = 1});
    return (inner_input){.leaf = alias, .read = read};
}

/* Get input i of the checkpointed part, owned by s. Return NULL if there is no such input or if the
 * scope fails. */
static fsdp_tensor *kept_input(fsdp_scope *s, const fsdp_node *n, int i)
{
    const segment *g = n->host;
    fsdp_tensor *t = NULL;
    if (n->saved[i])
        return fsdp_scope_keep(s, n->saved[i]);
    if (!g->inputs[i] || !fsdp_scope_ok(s) ||
        !fsdp_scope_check(s, fsdp_stash_get(g->inputs[i], &t)))
        return NULL;
    return fsdp_scope_own(s, t);
}

/* The roots of the inner tape's backward, and their gradients. */
typedef struct root_list {
    fsdp_tensor *roots[FSDP_MAX_OUT + FSDP_MAX_IN], *grads[FSDP_MAX_OUT + FSDP_MAX_IN];
    int n;
} root_list;

/* Add `root` and its gradient `grad` to the list. Do nothing if `grad` is NULL, or if `root` has no
 * node on the inner tape: such a root depends on nothing that needs a gradient. */
static void add_root(root_list *list, const fsdp_tape *tape, fsdp_tensor *root, fsdp_tensor *grad)
{
    if (!grad || !root->node || root->generation != tape->generation)
        return;
    list->roots[list->n] = root;
    list->grads[list->n++] = grad;
}

/* Replace a result of the part by a tensor that has the same place on the tape but no memory,
 * because backward does not read the values of the part's results. A result that is one of the
 * part's inputs is not replaced. */
static void drop_values(fsdp_scope *s, const fsdp_args *in, fsdp_tensor **result)
{
    fsdp_tensor *t = *result, *without = NULL;
    for (int i = 0; i < in->n; i++)
        if (in->t[i] == t)
            return;
    if (!t || !fsdp_scope_check(s, fsdp_tensor_without_memory(t->storage->device, t->dtype, t->ndim,
                                                              t->shape, &without)))
        return;
    without->node = t->node;
    without->generation = t->generation;
    without->output = t->output;
    *result = fsdp_scope_own(s, without);
    fsdp_derived_release(t->derived);
    fsdp_drop(s, t);
}

/* Inputs i and k are equal if they are the same tensor and both need a gradient. Return the index
 * of the first input that equals input i; this is i itself if no earlier input equals it. Equal
 * inputs share one leaf of the inner tape. So the gradients of all readers of the tensor are added
 * in the order of the inner tape, as they would be without checkpointing. */
static int same_input(const fsdp_node *n, int i)
{
    for (int k = 0; k < i && (n->need >> i & 1); k++)
        if ((n->need >> k & 1) && n->in[k].node == n->in[i].node &&
            n->in[k].output == n->in[i].output && n->in[k].leaf == n->in[i].leaf)
            return k;
    return i;
}

/* Run the part again, and then the backward of the inner tape. The roots of this backward are the
 * part's results and some of its inputs. An input is a root if operations that come after the part
 * in forward have also read it. Backward has already run these operations. so_far[i] is the sum of
 * the gradients of input i that they have computed, and the part adds its own gradient of input i
 * to this sum. */
static fsdp_status run_second_time(const fsdp_node *n, fsdp_scope *s, fsdp_tape *tape,
                                   fsdp_tensor *const *grad_out, fsdp_tensor *const *so_far,
                                   inner_input *inputs)
{
    segment *g = n->host;
    fsdp_args in = {.n = n->n_in}, out = {.n = 0};
    root_list list = {.n = 0};
    s->run->rng_calls = g->rng_calls;
    s->run->buffer_dtype = g->buffer_dtype;
    s->run->loss_factor = g->loss_factor;
    s->run->recomputing = true;
    s->run->recalling = g->keeps_results ? &g->kept : NULL;
    FSDP_TRY(fsdp_offload_read_ahead(g->kept.offload, g->kept.number));
    for (int i = 0; i < n->n_in; i++) {
        const int same = same_input(n, i);
        inputs[i] = same < i ? (inner_input){.read = inputs[same].read}
                             : add_input(s, kept_input(s, n, i), n->need >> i & 1);
        in.t[i] = inputs[i].read;
    }
    fsdp_early_stop_begin_second(&g->stop, s->run);
    s->run->expected_leaves = &g->leaves;
    if (fsdp_scope_ok(s))
        g->run(s, g->self, &in, &out);
    s->run->expected_leaves = NULL;
    fsdp_early_stop_end_second(s->run);
    fsdp_leaf_list_clear(&g->leaves);
    FSDP_TRY(fsdp_scope_status(s));
    for (int k = 0; k < n->n_out; k++)
        drop_values(s, &in, &out.t[g->result[k]]);
    FSDP_TRY(fsdp_scope_status(s));
    for (int k = 0; k < n->n_out; k++)
        add_root(&list, tape, out.t[g->result[k]], grad_out[k]);
    for (int i = 0; i < n->n_in; i++)
        if (inputs[i].leaf)
            add_root(&list, tape, inputs[i].read, so_far[i]);
    return fsdp_backward_inside(tape, list.roots, list.grads, list.n, g->tape);
}

static void checkpoint_backward(fsdp_scope *s, const fsdp_node *n, fsdp_tensor *const *grad_out,
                                fsdp_tensor **grad_in)
{
    const segment *g = n->host;
    inner_input inputs[FSDP_MAX_IN] = {0};
    fsdp_tape *tape = NULL;
    fsdp_scope *inner = NULL;
    fsdp_status status = fsdp_tape_create(&tape);
    if (status == FSDP_OK)
        status = fsdp_scope_open(s->run->device, tape, &g->options, &inner);
    if (status == FSDP_OK)
        status = run_second_time(n, inner, tape, grad_out, grad_in, inputs);
    for (int i = 0; i < n->n_in && status == FSDP_OK; i++)
        if (inputs[i].leaf && inputs[i].leaf->sink->grad)
            grad_in[i] = fsdp_scope_keep(s, inputs[i].leaf->sink->grad);
    fsdp_scope_fail(s, status);
    fsdp_scope_close(inner);
    fsdp_tape_destroy(tape);
}

static const fsdp_op checkpoint_op = {.name = "checkpoint",
                                      .backward = checkpoint_backward,
                                      .continues = true,
                                      .host_destroy = segment_destroy};

/* --- the first run --- */

/* Return true if result i of the part is an output of the part's node. A result that is one of the
 * part's inputs is not an output, nor is a result that is the same tensor as an earlier result. A
 * leaf is not an output either, because its gradient always goes to the leaf's own target. */
static bool is_output(const fsdp_args *in, const fsdp_args *out, int i)
{
    for (int k = 0; k < in->n; k++)
        if (in->t[k] == out->t[i])
            return false;
    for (int k = 0; k < i; k++)
        if (out->t[k] == out->t[i])
            return false;
    return out->t[i] && !out->t[i]->sink && fsdp_dtype_is_floating(out->t[i]->dtype);
}

static void record_segment(fsdp_scope *s, segment *g, const fsdp_args *in, const fsdp_args *out)
{
    fsdp_record_args args = {
        .op = &checkpoint_op, .n_in = in->n, .n_saved = in->n, .host = g, .reads_leaves = true};
    for (int i = 0; i < in->n; i++) {
        args.in[i] = in->t[i];
        args.saved[i] = g->inputs[i] ? NULL : in->t[i];
    }
    for (int i = 0; i < out->n; i++)
        if (is_output(in, out, i)) {
            g->result[args.n_out] = i;
            args.out[args.n_out++] = out->t[i];
        }
    fsdp_record(s, &args);
}

/* Create the state of a checkpointed part and store the part's inputs in it. Without offload,
 * inputs that are derived results are not stored here, because the node saves them. Return NULL if
 * the scope fails. */
static segment *new_segment(fsdp_scope *s, const fsdp_checkpoint_options *options,
                            const fsdp_args *in)
{
    segment *g = fsdp_calloc(1, sizeof *g);
    fsdp_status status = g ? FSDP_OK : FSDP_ERR_NOMEM;
    if (g) {
        g->keeps_results = options->keeps_results;
        g->stop.is_off = options->no_early_stop;
        g->kept.offload = options->offload;
        status = fsdp_offload_begin_call(options->offload, &g->kept.number);
    }
    for (int i = 0; i < in->n && status == FSDP_OK; i++)
        if (in->t[i] && (options->offload || !fsdp_is_derived(s, in->t[i])))
            status = fsdp_stash_put(options->offload, g->kept.number, in->t[i], &g->inputs[i]);
    if (fsdp_scope_check(s, status))
        return g;
    if (g)
        segment_destroy(g);
    return NULL;
}

/* Called when the first run of the part, in forward, has ended. Store the results of the last item
 * if backward needs them; otherwise drop them. */
static void stash_last(fsdp_scope *s, segment *g)
{
    fsdp_kept *kept = &g->kept;
    if (kept->n && !g->stop.is_off && kept->items[kept->n - 1].number > g->stop.needed)
        drop_results(&kept->items[kept->n - 1]);
    stash_latest(s, kept);
}

/* Run the part for the first time. Nothing is recorded on the tape. */
static void run_first_time(fsdp_scope *s, segment *g, const fsdp_args *in, fsdp_args *out)
{
    fsdp_run *r = s->run;
    fsdp_kept *keeping = r->keeping;
    const uint64_t mark = fsdp_mix64(g->tape->generation ^ fsdp_mix64((uint64_t)(uintptr_t)g));
    r->tape = NULL;
    r->hidden_tape = g->tape;
    r->hidden_leaves = &g->leaves;
    r->keeping = g->keeps_results ? &g->kept : NULL;
    fsdp_early_stop_begin_first(&g->stop, r, mark, in);
    g->run(s, g->self, in, out);
    fsdp_early_stop_end_first(r);
    r->tape = g->tape;
    r->hidden_tape = NULL;
    r->hidden_leaves = NULL;
    r->keeping = keeping;
    stash_last(s, g);
}

void fsdp_checkpoint(fsdp_scope *s, const fsdp_checkpoint_options *options, fsdp_segment_fn *run,
                     const void *self, size_t self_bytes, const fsdp_args *in, fsdp_args *out)
{
    static const fsdp_checkpoint_options defaults = {0};
    if (!s->run->tape) {
        /* There is no tape, so this call is not checkpointed now. But if operations are being
         * counted (run->counting), this call is in the first run of an enclosing checkpointed part,
         * and it will be checkpointed in the second run of that part. The second run must then not
         * stop early. */
        if (s->run->counting)
            s->run->counting->is_off = true;
        run(s, self, in, out);
        return;
    }
    segment *g = new_segment(s, options ? options : &defaults, in);
    if (!g)
        return;
    FSDP_ASSERT(self_bytes <= sizeof g->self);
    memcpy(g->self, self, self_bytes);
    g->run = run;
    g->options = s->run->options;
    g->rng_calls = s->run->rng_calls;
    g->buffer_dtype = s->run->buffer_dtype;
    g->loss_factor = s->run->loss_factor;
    g->tape = s->run->tape;
    run_first_time(s, g, in, out);
    record_segment(s, g, in, out);
}
