/* See grad_own.h. */
#include "src/fsdp/grad_own.h"

#include "src/base/assert.h"
#include "src/fsdp/grad_reduce.h"
#include "src/fsdp/grad_rows.h"
#include "src/fsdp/grad_sums.h"

void fsdp_grad_own_lay_out(fsdp_grad_buffer *b)
{
    for (size_t i = 0; i < b->n_params; i++)
        b->params[i].grad.placed = false;
}

/* --- memory --- */

/* A range [first, end) of parameters whose gradients share one block of memory. If `first` is a
 * matrix, the vectors in the range are skipped. If `first` is a vector, the matrices are skipped.
 */
typedef struct run {
    fsdp_param *first, *end;
    int64_t numel; /* elements of the block, with padding between gradients */
} run;

static bool is_in_run(const run *r, const fsdp_param *p)
{
    return fsdp_param_is_vector(p) == fsdp_param_is_vector(r->first);
}

/* Return the run that begins with p and contains the parameters that are joined with p (Note
 * [Joined products] in src/autograd/joined_linear.h). They are neighbors in the group's memory,
 * where matrices come before vectors. */
static run find_run(const fsdp_grad_buffer *b, fsdp_param *p)
{
    run r = {p, p + 1, fsdp_param_numel(p)};
    int more = p->parameter->sink.n_joined - 1;
    for (fsdp_param *q = p + 1; q < b->params + b->n_params && more > 0; q++) {
        if (!is_in_run(&r, q))
            continue;
        if (!q->grad.in_buffer || q->grad.placed || q->grad.table.most)
            break;
        r.numel = fsdp_aligned_numel(r.numel) + fsdp_param_numel(q);
        r.end = q + 1;
        more--;
    }
    return r;
}

static fsdp_status create_in(const fsdp_tensor *memory, int64_t offset, fsdp_param *p)
{
    FSDP_ASSERT(!p->grad.whole);
    FSDP_TRY(fsdp_tensor_over(memory->storage, FSDP_DTYPE_F32, p->parameter->ndim,
                              p->parameter->shape, offset, &p->grad.whole));
    p->grad.placed = true;
    return FSDP_OK;
}

static fsdp_status create_memory(const fsdp_grad_buffer *b, int64_t numel, fsdp_tensor **memory)
{
    return (b->context->comm->depth ? fsdp_tensor_create_in_forward : fsdp_tensor_create)(
        b->context->device, FSDP_DTYPE_F32, 1, &numel, FSDP_TAG_GRAD, memory);
}

/* Create the gradients of p and of the other parameters in its run. */
static fsdp_status create_whole(const fsdp_grad_buffer *b, fsdp_param *p)
{
    const run r = find_run(b, p);
    int64_t offset = 0;
    fsdp_tensor *memory;
    FSDP_TRY(create_memory(b, r.numel, &memory));
    fsdp_status status = FSDP_OK;
    for (fsdp_param *q = r.first; q < r.end && status == FSDP_OK; q++) {
        if (!is_in_run(&r, q))
            continue;
        status = create_in(memory, offset, q);
        offset += fsdp_aligned_numel(fsdp_param_numel(q));
    }
    fsdp_tensor_release(memory);
    return status;
}

/* --- gradients --- */

static bool is_complete(const fsdp_param *p)
{
    return p->grad.touched && p->parameter->sink.n_readers == 0;
}

fsdp_status fsdp_grad_own_make_place(fsdp_grad_buffer *b, fsdp_param *p)
{
    for (size_t i = 0; i < b->n_params && fsdp_grad_buffer_syncs(b); i++)
        if (&b->params[i] != p && is_complete(&b->params[i]))
            FSDP_TRY(fsdp_grad_hand_over(b, &b->params[i]));
    return p->grad.whole || p->grad.table.most ? FSDP_OK : create_whole(b, p);
}

fsdp_status fsdp_grad_own_widen(fsdp_grad_buffer *b, fsdp_param *p)
{
    FSDP_TRY(create_whole(b, p));
    if (p->grad.touched && b->context->device->kernels)
        fsdp_grad_rows_spread(b, p, fsdp_tensor_ptr(p->grad.table.rows), p->grad.whole);
    fsdp_grad_rows_close(p);
    return FSDP_OK;
}

fsdp_status fsdp_grad_own_post(fsdp_grad_buffer *b)
{
    for (size_t i = 0; i < b->n_params; i++)
        if (b->params[i].grad.touched)
            FSDP_TRY(fsdp_grad_hand_over(b, &b->params[i]));
    fsdp_grad_own_drop(b);
    return FSDP_OK;
}

void fsdp_grad_own_drop(fsdp_grad_buffer *b)
{
    for (size_t i = 0; i < b->n_params; i++) {
        fsdp_param *p = &b->params[i];
        fsdp_grad_rows_close(p);
        fsdp_tensor_release(p->grad.whole);
        p->grad.whole = NULL;
        p->grad.touched = false;
    }
}
