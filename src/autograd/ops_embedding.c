/* Looks up rows of a table by id. Backward needs only the ids and not the table, so backward can
 * run while the table's parameter is resharded. */
#include "src/autograd/ops.h"
#include "src/base/alloc.h"

typedef struct embedding_options {
    /* `shape` is the shape of the weight, [V, D]. */
    int64_t tokens, shape[2];
    fsdp_dtype dtype;
    int32_t padding_idx;
} embedding_options;

/* Try to add the gradient row by row: if the leaf's sink provides a table for the gradients of
 * single rows, add the gradient to this table. Return false if there is no such table. */
static bool add_to_rows(fsdp_scope *s, const fsdp_node *n, const fsdp_tensor *grad_out)
{
    const embedding_options *o = (const embedding_options *)n->options;
    const fsdp_tensor *leaf = n->in[0].leaf;
    fsdp_grad_rows to = {0};
    if (!leaf || !leaf->sink || !leaf->sink->rows || !fsdp_scope_ok(s))
        return false;
    if (!fsdp_scope_check(s, leaf->sink->rows(leaf->sink, n->host, o->tokens, o->padding_idx, &to)))
        return true;
    const fsdp_kernels *k = fsdp_scope_kernels(s);
    if (k && to.table)
        k->embedding_backward(fsdp_scope_context(s), fsdp_tensor_ptr(to.table), to.table->dtype,
                              1.0f, fsdp_tensor_ptr(grad_out), o->dtype, to.index, o->tokens,
                              o->shape[1], to.table->shape[0], to.unused_row);
    fsdp_free(to.index);
    return to.table != NULL;
}

static void embedding_backward(fsdp_scope *s, const fsdp_node *n, fsdp_tensor *const *grad_out,
                               fsdp_tensor **grad_in)
{
    const embedding_options *o = (const embedding_options *)n->options;
    if (add_to_rows(s, n, grad_out[0]))
        return;
    fsdp_grad_destination dw = fsdp_input_grad_destination(s, n, 0, o->dtype, 2, o->shape, grad_in);
    const fsdp_kernels *k = fsdp_scope_kernels(s);
    if (k && dw.tensor)
        k->embedding_backward(fsdp_scope_context(s), fsdp_tensor_ptr(dw.tensor), dw.tensor->dtype,
                              dw.beta, fsdp_tensor_ptr(grad_out[0]), o->dtype, n->host, o->tokens,
                              o->shape[1], o->shape[0], o->padding_idx);
}

static const fsdp_op embedding_op = {
    .name = "embedding", .backward = embedding_backward, .reads_rows = true};

static bool check_ids(fsdp_scope *s, const int32_t *ids, int64_t n, int64_t vocab)
{
    for (int64_t t = 0; t < n; t++) {
        if (ids[t] >= 0 && ids[t] < vocab)
            continue;
        fsdp_scope_error(s, "embedding", "id %d at token %lld is outside of [0, %lld)", (int)ids[t],
                         (long long)t, (long long)vocab);
        return false;
    }
    return true;
}

fsdp_tensor *fsdp_embedding(fsdp_scope *s, const int32_t *ids, int64_t n, fsdp_tensor *weight,
                            int32_t padding_idx)
{
    char text[FSDP_SHAPE_TEXT];
    if (!fsdp_check_floats(s, "embedding", &weight, (const char *const[]){"weight"}, 1))
        return NULL;
    if (weight->ndim != 2 || n < 0) {
        fsdp_scope_error(s, "embedding", "%lld ids and weight %s, not [V, D]", (long long)n,
                         fsdp_shape_text(weight->ndim, weight->shape, text));
        return NULL;
    }
    if (padding_idx < -1 || padding_idx >= weight->shape[0]) {
        fsdp_scope_error(s, "embedding", "padding_idx is %d, not in [-1, %lld)", (int)padding_idx,
                         (long long)weight->shape[0]);
        return NULL;
    }
    if (!check_ids(s, ids, n, weight->shape[0]))
        return NULL;
    embedding_options o = {.tokens = n,
                           .shape = {weight->shape[0], weight->shape[1]},
                           .dtype = weight->dtype,
                           .padding_idx = padding_idx};
    fsdp_tensor *out = fsdp_new(s, weight->dtype, 2, (const int64_t[]){n, o.shape[1]});
    const fsdp_kernels *k = fsdp_scope_kernels(s);
    if (k)
        k->embedding(fsdp_scope_context(s), fsdp_tensor_ptr(out), out->dtype,
                     fsdp_tensor_ptr(weight), weight->dtype, ids, n, o.shape[1]);
    fsdp_note_lookups(weight, n);
    if (!fsdp_scope_ok(s) || !fsdp_is_recorded(s, weight))
        return out;
    int32_t *copy = fsdp_copy_ids(s, ids, n);
    if (!copy)
        return NULL;
    fsdp_record(s, &(fsdp_record_args){.op = &embedding_op,
                                       .in = {weight},
                                       .n_in = 1,
                                       .out = {out},
                                       .n_out = 1,
                                       .options = &o,
                                       .options_bytes = sizeof o,
                                       .host = copy,
                                       .rows = n});
    return out;
}
