/* Generates the outputs for a range of the prompts of a run. */
#include "src/base/alloc.h"
#include "src/comm/agree.h"
#include "src/generate/generate_run_internal.h"

static fsdp_status make_batch(const generate_run *g, size_t first, size_t n, fsdp_batch **batch)
{
    fsdp_batch_row *rows = fsdp_calloc(n, sizeof *rows);
    if (!rows)
        return FSDP_ERR_NOMEM;
    for (size_t i = 0; i < n; i++)
        rows[i] = (fsdp_batch_row){.source = g->prompts.items[first + i].ids.ids,
                                   .source_len = (int32_t)g->prompts.items[first + i].ids.len};
    fsdp_status status = fsdp_batch_create(rows, (int32_t)n, &g->model->info.format, batch);
    fsdp_free(rows);
    return status;
}

fsdp_status fsdp_generate_batch(const generate_run *g, size_t first, size_t n,
                                fsdp_generate_id_fn *on_id, void *arg, fsdp_generated **outputs)
{
    fsdp_batch *batch = NULL;
    fsdp_status status = fsdp_agree(g->group, make_batch(g, first, n, &batch));
    const fsdp_generate_options options = {.config = &g->generation,
                                           .reshard_each_step = g->config->reshard_each_step,
                                           .seed = g->config->seed,
                                           .first_row = (int64_t)(g->turn + first),
                                           .tokenizer = g->tokenizer,
                                           .on_id = on_id,
                                           .arg = arg};
    if (status == FSDP_OK)
        status = fsdp_generate(g->model, g->device, batch, &options, outputs);
    fsdp_batch_release(batch);
    return status;
}
