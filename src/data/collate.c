/* Examples into one packed batch. */
#include <fsdp/data.h>

#include <inttypes.h>

#include "src/base/alloc.h"

static fsdp_status gather(const fsdp_dataset *dataset, const int64_t *indices, int32_t count,
                          fsdp_example *examples, fsdp_batch_row *rows)
{
    for (int32_t i = 0; i < count; i++) {
        FSDP_TRY(fsdp_dataset_get(dataset, indices[i], &examples[i]));
        const fsdp_token_list *source = &examples[i].source, *labels = &examples[i].labels;
        if (source->len > INT32_MAX || labels->len > INT32_MAX)
            return fsdp_error(FSDP_ERR_INVALID, "example %" PRId64 ": more than 2^31 tokens",
                              indices[i]);
        rows[i] = (fsdp_batch_row){
            .source = source->ids,
            .labels = labels->ids,
            .source_len = (int32_t)source->len,
            .labels_len = (int32_t)labels->len,
        };
    }
    return FSDP_OK;
}

fsdp_status fsdp_collate(const fsdp_dataset *dataset, const int64_t *indices, int32_t count,
                         int32_t decoder_start_token_id, int32_t pad_token_id, fsdp_batch **out)
{
    if (count < 0)
        return fsdp_error(FSDP_ERR_INVALID, "a batch of %d examples", (int)count);
    fsdp_example *examples = fsdp_calloc((size_t)count, sizeof *examples);
    fsdp_batch_row *rows = fsdp_calloc((size_t)count, sizeof *rows);
    fsdp_status status =
        examples && rows ? gather(dataset, indices, count, examples, rows) : FSDP_ERR_NOMEM;
    if (status == FSDP_OK)
        status = fsdp_batch_create(rows, count, decoder_start_token_id, pad_token_id, out);
    for (int32_t i = 0; examples && i < count; i++)
        fsdp_example_fini(&examples[i]);
    fsdp_free(examples);
    fsdp_free(rows);
    return status;
}
