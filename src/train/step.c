/* See Note [Loss of a step] in step.h. */
#include <math.h>

#include <fsdp/models.h>

#include "src/base/alloc.h"
#include "src/comm/comm.h"
#include "src/train/human.h"
#include "src/train/step.h"

/* What a leaf contributes; gathered over ranks as it is. */
typedef struct leaf_sum {
    double loss; /* sum of its labels' losses, or their mean */
    int64_t labels, tokens, rows;
} leaf_sum;

static void add_batch(leaf_sum *leaf, const fsdp_batch *batch)
{
    leaf->labels = batch->label_tokens;
    leaf->tokens = (int64_t)batch->source_tokens + batch->target_tokens;
    leaf->rows = batch->rows;
}

static float factor_of(const fsdp_train_loop *loop, const fsdp_batch *batch)
{
    return loop->mean_of_means && batch->label_tokens ? 1.0f / (float)batch->label_tokens : 1.0f;
}

/* Leaves of all ranks in leaf order: m = a * W + r. all [micro_steps * W]. */
static fsdp_status gather_leaves(const fsdp_train_loop *loop, const leaf_sum *mine, int micro_steps,
                                 leaf_sum *all)
{
    int world_size = fsdp_group_world_size(loop->group);
    for (int a = 0; a < micro_steps; a++)
        FSDP_TRY(fsdp_all_gather(loop->group, &mine[a], sizeof *mine, &all[a * world_size]));
    return FSDP_OK;
}

/* Add to `result` in leaf order. Its loss is not divided yet. */
static int64_t add_leaves(const leaf_sum *all, int n, fsdp_step_result *result)
{
    int64_t leaves = 0;
    for (int m = 0; m < n; m++) {
        result->loss += all[m].loss;
        result->tokens += all[m].tokens;
        result->labels += all[m].labels;
        result->rows += all[m].rows;
        leaves += all[m].labels > 0;
    }
    return leaves;
}

static double divisor(const fsdp_train_loop *loop, const fsdp_step_result *sum, int64_t leaves)
{
    int64_t n = loop->mean_of_means ? leaves : sum->labels;
    return n > 0 ? (double)n : 1.0;
}

static fsdp_status run_leaf(fsdp_train_loop *loop, const fsdp_batch *batch, int micro_step,
                            bool backward, double *loss)
{
    fsdp_scope_options options = {.training = backward,
                                  .seed = batch->seed,
                                  .step = batch->step,
                                  .leaf = batch->leaf,
                                  .micro_step = micro_step,
                                  .n_micro_steps = loop->micro_steps,
                                  .batch = batch};
    fsdp_scope *s;
    FSDP_TRY(fsdp_scope_open(loop->device, backward ? loop->tape : NULL, &options, &s));
    fsdp_tensor *out = fsdp_t5_loss(s, loop->module, factor_of(loop, batch));
    fsdp_status status = fsdp_scope_status(s);
    if (status == FSDP_OK)
        status = fsdp_tensor_item(out, loss);
    if (status == FSDP_OK && backward)
        status = fsdp_backward(loop->tape, &out, NULL, 1);
    fsdp_scope_close(s);
    if (status != FSDP_OK && backward)
        fsdp_tape_reset(loop->tape);
    return status;
}

/* --- training --- */

static fsdp_status take_batches(const fsdp_train_loop *loop, fsdp_loader *loader,
                                fsdp_batch **batches, leaf_sum *mine)
{
    for (int a = 0; a < loop->micro_steps; a++) {
        FSDP_TRY(fsdp_loader_next(loader, &batches[a]));
        if (!batches[a])
            return fsdp_error(FSDP_ERR_STATE, "the loader ended in the middle of a step");
        add_batch(&mine[a], batches[a]);
    }
    return FSDP_OK;
}

static fsdp_status check_finite(const char *what, double value, int64_t step, double lr)
{
    if (isfinite(value))
        return FSDP_OK;
    return fsdp_error(
        FSDP_ERR_NUMERIC,
        "step %lld: %s is %s (learning rate %g); nothing was updated. A smaller --lr, "
        "--warmup-steps or --max-grad-norm may help",
        (long long)step + 1, what, fsdp_human_not_finite(value), lr);
}

static fsdp_status update(fsdp_train_loop *loop, double lr, int64_t step, fsdp_step_result *result)
{
    double max_norm = loop->max_grad_norm > 0.0 ? loop->max_grad_norm : (double)INFINITY;
    float scale;
    FSDP_TRY(fsdp_clip_grad_norm(&loop->parameters, max_norm, NULL, &result->grad_norm, &scale));
    FSDP_TRY(check_finite("the gradient norm", result->grad_norm, step, lr));
    fsdp_optimizer_set_lr(loop->optimizer, lr);
    FSDP_TRY(fsdp_optimizer_step(loop->optimizer, scale));
    fsdp_module_zero_grad(loop->module);
    return FSDP_OK;
}

static fsdp_status step_on(fsdp_train_loop *loop, fsdp_batch *const *batches, leaf_sum *mine,
                           leaf_sum *all, double lr, int64_t step, fsdp_step_result *result)
{
    int n = loop->micro_steps * fsdp_group_world_size(loop->group);
    FSDP_TRY(gather_leaves(loop, mine, loop->micro_steps, all));
    fsdp_step_result counts = {0};
    int64_t leaves = add_leaves(all, n, &counts);
    double divide = divisor(loop, &counts, leaves);
    FSDP_TRY(fsdp_set_gradient_divide_factor(loop->module, divide));
    for (int a = 0; a < loop->micro_steps; a++)
        FSDP_TRY(run_leaf(loop, batches[a], a, true, &mine[a].loss));
    FSDP_TRY(gather_leaves(loop, mine, loop->micro_steps, all));
    *result = (fsdp_step_result){0};
    (void)add_leaves(all, n, result);
    result->loss /= divide;
    fsdp_group_at(loop->group, (uint32_t)step + 1, "", "optimizer step");
    FSDP_TRY(check_finite("the loss", result->loss, step, lr));
    return update(loop, lr, step, result);
}

fsdp_status fsdp_train_step(fsdp_train_loop *loop, fsdp_loader *loader, double lr, int64_t step,
                            fsdp_step_result *result)
{
    size_t a = (size_t)loop->micro_steps;
    fsdp_batch **batches = fsdp_calloc(a, sizeof(fsdp_batch *));
    leaf_sum *mine = fsdp_calloc(a, sizeof *mine);
    leaf_sum *all = fsdp_calloc(a * (size_t)fsdp_group_world_size(loop->group), sizeof *all);
    fsdp_status status = batches && mine && all ? FSDP_OK : FSDP_ERR_NOMEM;
    if (status == FSDP_OK)
        status = take_batches(loop, loader, batches, mine);
    if (status == FSDP_OK)
        status = step_on(loop, batches, mine, all, lr, step, result);
    for (size_t i = 0; batches && i < a; i++)
        fsdp_batch_release(batches[i]);
    fsdp_free(batches);
    fsdp_free(mine);
    fsdp_free(all);
    return status;
}

/* --- validation --- */

fsdp_status fsdp_validate(fsdp_train_loop *loop, fsdp_loader *loader, void (*each)(void *arg),
                          void *arg, fsdp_step_result *result)
{
    int world_size = fsdp_group_world_size(loop->group);
    leaf_sum *all = fsdp_calloc((size_t)world_size, sizeof *all);
    fsdp_step_result sum = {0};
    int64_t leaves = 0;
    fsdp_status status = all ? FSDP_OK : FSDP_ERR_NOMEM;
    while (status == FSDP_OK) {
        fsdp_batch *batch;
        leaf_sum mine = {0};
        status = fsdp_loader_next(loader, &batch);
        if (status != FSDP_OK || !batch)
            break;
        add_batch(&mine, batch);
        status = run_leaf(loop, batch, 0, false, &mine.loss);
        fsdp_batch_release(batch);
        if (status == FSDP_OK)
            status = gather_leaves(loop, &mine, 1, all);
        if (status != FSDP_OK)
            break;
        leaves += add_leaves(all, world_size, &sum);
        if (each)
            each(arg);
    }
    fsdp_free(all);
    if (status != FSDP_OK)
        return status;
    sum.loss /= divisor(loop, &sum, leaves);
    *result = sum;
    return FSDP_OK;
}
