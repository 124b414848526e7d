/* Writes values into existing tensors, for all functions that load a state dict. */
#include "src/state_dict/state_dict.h"
#include "src/tensor/tensor.h"

/* Ranks wait for each other whenever a write of a tensor begins (fsdp_tensor_begin_write()). The
 * tensors of a unit are adjacent in the dict, and fsdp_writing_next() combines adjacent tensors of
 * the same unit into one write. So ranks do not wait for each other for each tensor, but only once
 * per unit. */
fsdp_status fsdp_state_dict_fill(const fsdp_state_dict *dict, fsdp_state_fill_fn *fill, void *arg)
{
    fsdp_status status = FSDP_OK, writes = FSDP_OK;
    fsdp_writing writing = {0};
    for (size_t i = 0; i < fsdp_state_dict_count(dict) && writes == FSDP_OK; i++) {
        fsdp_tensor *to = fsdp_state_dict_at(dict, i)->tensor;
        if (!to)
            continue;
        writes = fsdp_writing_next(&writing, to);
        if (status == FSDP_OK)
            status = writes == FSDP_OK ? fill(arg, i, to) : writes;
    }
    fsdp_writing_end(&writing);
    return status;
}
