/* libFuzzer over the metadata of torch.distributed.checkpoint: `make fuzz FUZZ_S=60`. If the
 * metadata load, chunks are within their tensors. */
#include <stdlib.h>

#include "src/dcp/dcp_metadata.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void check_item(const fsdp_dcp_item *item)
{
    int64_t numel = 0;
    for (size_t i = 0; i < item->n_chunks; i++) {
        const fsdp_dcp_chunk *chunk = &item->chunks[i];
        numel += chunk->numel;
        for (int d = 0; d < item->ndim; d++)
            if (chunk->offsets[d] < 0 || chunk->sizes[d] < 0 ||
                chunk->offsets[d] + chunk->sizes[d] > item->shape[d])
                abort();
    }
    if (numel != item->numel)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    fsdp_dcp_metadata *metadata;
    if (fsdp_dcp_metadata_create("f", data, bytes, &metadata) == FSDP_OK) {
        for (size_t i = 0; i < fsdp_dcp_metadata_count(metadata); i++)
            check_item(fsdp_dcp_metadata_at(metadata, i));
        fsdp_dcp_metadata_destroy(metadata);
    }
    return 0;
}
