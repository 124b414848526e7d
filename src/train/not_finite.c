/* See not_finite.h. */
#include "src/train/not_finite.h"

#include <stdio.h>

#include "src/base/alloc.h"
#include "src/nn/module.h"
#include "src/report/human.h"
#include "src/tensor/tensor.h"

/* Set *bad to 1 if this rank's rows of p have a NaN or infinite value, else to 0. Leave *bad
 * unchanged if this rank has no rows of p, or if p is quantized. */
static fsdp_status look_at(const fsdp_parameter *p, float *bad)
{
    const fsdp_tensor *local = fsdp_parameter_local(p);
    bool finite = true;
    /* Weights in NF4 are finite: loading them checks that. */
    if (!fsdp_tensor_numel(local) || p->quantized)
        return FSDP_OK;
    FSDP_TRY(fsdp_tensor_begin_read(local));
    fsdp_status status = fsdp_all_finite(local, &finite);
    fsdp_tensor_end_read(local);
    *bad = finite ? 0.0f : 1.0f;
    return status;
}

fsdp_status fsdp_find_not_finite(const fsdp_train_loop *loop, const fsdp_named_parameter **found)
{
    const fsdp_parameter_list *list = &loop->parameters;
    float *bad = fsdp_calloc(list->n, sizeof *bad);
    fsdp_status status = bad ? FSDP_OK : FSDP_ERR_NOMEM;
    for (size_t i = 0; status == FSDP_OK && i < list->n; i++)
        status = look_at(list->items[i].parameter, &bad[i]);
    if (status == FSDP_OK)
        status = fsdp_all_reduce(loop->group, bad, list->n, FSDP_DTYPE_F32, FSDP_REDUCE_MAX);
    *found = NULL;
    for (size_t i = list->n; status == FSDP_OK && i-- > 0;)
        if (bad[i] != 0.0f)
            *found = &list->items[i];
    fsdp_free(bad);
    return status;
}

/* Return the error of fsdp_not_finite() for the case in which all parameters are finite. */
static fsdp_status not_finite_in_forward(const fsdp_train_loop *loop, const char *what,
                                         int64_t step, double lr)
{
    const bool updated =
        loop->parameters.n &&
        fsdp_optimizer_steps(loop->optimizer, loop->parameters.items[0].parameter) > 0;
    if (loop->in_float16)
        return fsdp_error(FSDP_ERR_NUMERIC, "step %lld: %s; nothing was updated. %s (--bf16)%s",
                          (long long)step + 1, what, fsdp_human_not_finite_advice(FSDP_DTYPE_F16),
                          updated ? ". A smaller --lr may help, too" : "");
    if (!updated)
        return fsdp_error(FSDP_ERR_NUMERIC,
                          "step %lld: %s before any update, although all parameters are finite: "
                          "with these values the forward or backward overflows",
                          (long long)step + 1, what);
    return fsdp_error(FSDP_ERR_NUMERIC,
                      "step %lld: %s (learning rate %g); nothing was updated. A smaller --lr, "
                      "--warmup-steps or --max-grad-norm may help",
                      (long long)step + 1, what, lr);
}

fsdp_status fsdp_not_finite(const fsdp_train_loop *loop, const char *what, int64_t step, double lr)
{
    const fsdp_named_parameter *bad;
    /* Copy `what`, since it may point to the text of fsdp_last_error(), which later calls
     * change. */
    char text[512];
    snprintf(text, sizeof text, "%s", what);
    FSDP_TRY(fsdp_find_not_finite(loop, &bad));
    if (!bad)
        return not_finite_in_forward(loop, text, step, lr);
    const int64_t updates = fsdp_optimizer_steps(loop->optimizer, bad->parameter);
    if (updates == 0)
        return fsdp_error(FSDP_ERR_NUMERIC,
                          "step %lld: %s; parameter %s has values that are not finite, and had "
                          "them when training began",
                          (long long)step + 1, text, bad->name);
    return fsdp_error(FSDP_ERR_NUMERIC,
                      "step %lld: %s; parameter %s has values that are not finite after %lld "
                      "updates (learning rate %g)",
                      (long long)step + 1, text, bad->name, (long long)updates, lr);
}
