/* Rotary position embedding (Su et al. 2021). The transpose of a rotation is the inverse rotation,
 * so backward runs the same kernel with negated angles. */
#include "src/autograd/ops.h"

typedef struct rope_options {
    int64_t tokens, heads, head_dim;
} rope_options;

static void rotate(fsdp_scope *s, const rope_options *o, fsdp_tensor *out, const fsdp_tensor *x,
                   const fsdp_tensor *table, const int32_t *positions, bool inverse)
{
    const fsdp_kernels *k = fsdp_scope_kernels(s);
    if (k)
        k->rope(fsdp_scope_context(s), fsdp_tensor_ptr(out), fsdp_tensor_ptr(x), x->dtype,
                fsdp_tensor_ptr(table), positions, o->tokens, o->heads, o->head_dim, inverse);
}

static void rope_backward(fsdp_scope *s, const fsdp_node *n, fsdp_tensor *const *grad_out,
                          fsdp_tensor **grad_in)
{
    fsdp_tensor *dx = fsdp_input_grad_in_place(s, n, 0, grad_out[0], grad_in);
    rotate(s, (const rope_options *)n->options, dx, grad_out[0], n->saved[0], n->host, true);
}

static const fsdp_op rope_op = {.name = "rope", .backward = rope_backward};

static bool check_shapes(fsdp_scope *s, const fsdp_tensor *x, const fsdp_tensor *table,
                         int64_t heads)
{
    char x_text[FSDP_SHAPE_TEXT], table_text[FSDP_SHAPE_TEXT];
    const char *op = rope_op.name;
    fsdp_shape_text(x->ndim, x->shape, x_text);
    fsdp_shape_text(table->ndim, table->shape, table_text);
    if (table->dtype != FSDP_DTYPE_F32)
        fsdp_scope_error(s, op, "table is %s, not float32", fsdp_dtype_name(table->dtype));
    else if (x->ndim != 2 || heads < 1 || x->shape[1] % heads)
        fsdp_scope_error(s, op, "x is %s, not [T, heads * K] with %lld heads", x_text,
                         (long long)heads);
    else if (x->shape[1] / heads % 2)
        fsdp_scope_error(s, op, "x is %s: heads of %lld elements have no pairs", x_text,
                         (long long)(x->shape[1] / heads));
    else if (table->ndim != 2 || table->shape[1] != x->shape[1] / heads)
        fsdp_scope_error(s, op, "x is %s of %lld heads but table is %s, not [P, %lld]", x_text,
                         (long long)heads, table_text, (long long)(x->shape[1] / heads));
    return fsdp_scope_ok(s);
}

static bool check_positions(fsdp_scope *s, const int32_t *positions, int64_t n, int64_t n_table)
{
    for (int64_t t = 0; t < n; t++)
        if (positions[t] < 0 || positions[t] >= n_table) {
            fsdp_scope_error(s, rope_op.name, "position %d at token %lld is outside of [0, %lld)",
                             (int)positions[t], (long long)t, (long long)n_table);
            return false;
        }
    return true;
}

fsdp_tensor *fsdp_rope(fsdp_scope *s, fsdp_tensor *x, fsdp_tensor *table, const int32_t *positions,
                       int64_t heads)
{
    if (!fsdp_check_inputs(s, rope_op.name, (fsdp_tensor *const[]){x, table}, 2) ||
        !fsdp_check_float(s, rope_op.name, x, "x") || !check_shapes(s, x, table, heads) ||
        !check_positions(s, positions, x->shape[0], table->shape[0]))
        return NULL;
    rope_options o = {.tokens = x->shape[0], .heads = heads, .head_dim = x->shape[1] / heads};
    fsdp_tensor *out = fsdp_new(s, x->dtype, 2, x->shape);
    rotate(s, &o, out, x, table, positions, false);
    if (!fsdp_scope_ok(s) || !fsdp_is_recorded(s, x))
        return out;
    int32_t *copy = fsdp_copy_ids(s, positions, o.tokens);
    if (!copy)
        return NULL;
    fsdp_record(s, &(fsdp_record_args){.op = &rope_op,
                                       .in = {x},
                                       .n_in = 1,
                                       .saved = {table},
                                       .n_saved = 1,
                                       .out = {out},
                                       .n_out = 1,
                                       .options = &o,
                                       .options_bytes = sizeof o,
                                       .host = copy});
    return out;
}
