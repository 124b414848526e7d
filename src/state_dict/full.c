/* Gathers the whole tensors of a sharded state dict, one at a time, and puts them into a full state
 * dict or passes them to a callback. */
#include <fsdp/dtensor.h>

#include "src/comm/agree.h"
#include "src/state_dict/state_dict.h"
#include "src/tensor/tensor.h"

/* Check that there is enough memory for the whole tensor: allocate this memory, and free it again.
 * fsdp_full_tensor(), which needs the same memory, should then not run out of memory. */
static fsdp_status try_memory(const fsdp_tensor *t)
{
    fsdp_tensor *whole;
    if (!fsdp_is_dtensor(t))
        return FSDP_OK;
    FSDP_TRY(fsdp_tensor_create(fsdp_tensor_device(t), t->dtype, t->ndim, fsdp_dtensor_shape(t),
                                FSDP_TAG_COMM, &whole));
    fsdp_tensor_release(whole);
    return FSDP_OK;
}

/* Gather the whole tensor of an entry. If `wants` is true, call `consume` with the entry and its
 * whole tensor. Collective. */
static fsdp_status stream_entry(const fsdp_state_entry *entry, fsdp_group *group, bool wants,
                                fsdp_state_dict_stream_fn *consume, void *arg)
{
    fsdp_state_entry whole = *entry;
    fsdp_status status = FSDP_OK;
    if (entry->tensor) {
        FSDP_TRY(fsdp_agree(group, try_memory(entry->tensor)));
        FSDP_TRY(fsdp_full_tensor(entry->tensor, &whole.tensor));
    }
    if (wants)
        status = consume(&whole, arg);
    if (entry->tensor)
        fsdp_tensor_release(whole.tensor);
    return fsdp_agree(group, status);
}

static fsdp_status stream(const fsdp_state_dict *dict, fsdp_group *group, bool wants,
                          fsdp_state_dict_stream_fn *consume, void *arg)
{
    for (size_t i = 0; i < fsdp_state_dict_count(dict); i++)
        FSDP_TRY(stream_entry(fsdp_state_dict_at(dict, i), group, wants, consume, arg));
    return FSDP_OK;
}

fsdp_status fsdp_state_dict_stream(const fsdp_state_dict *dict, fsdp_group *group,
                                   fsdp_state_dict_stream_fn *consume, void *arg)
{
    return stream(dict, group, !group || fsdp_group_rank(group) == 0, consume, arg);
}

/* Add a copy of the entry to the full dict `arg`. The tensor is copied, because a full dict does
 * not share memory with the module. */
static fsdp_status keep_whole(const fsdp_state_entry *entry, void *arg)
{
    fsdp_tensor *copy;
    if (!entry->tensor)
        return fsdp_state_dict_put_value(arg, entry->keys, entry->n_keys, entry->value);
    FSDP_TRY(fsdp_tensor_to(entry->tensor, entry->tensor->dtype, FSDP_TAG_COMM, &copy));
    fsdp_status status = fsdp_state_dict_put_tensor(arg, entry->keys, entry->n_keys, copy);
    fsdp_tensor_release(copy);
    return status;
}

static fsdp_status to_full(const fsdp_state_dict *sharded, const fsdp_state_dict_options *o,
                           fsdp_state_dict **full)
{
    fsdp_state_dict *whole = NULL;
    bool wants = !(o->cpu_offload || o->rank0_only) || fsdp_state_rank(o) == 0;
    fsdp_status status = fsdp_agree(o->group, fsdp_state_dict_create(&whole));
    if (status == FSDP_OK)
        status = stream(sharded, o->group, wants, keep_whole, whole);
    if (status != FSDP_OK) {
        fsdp_state_dict_destroy(whole);
        return status;
    }
    *full = whole;
    return FSDP_OK;
}

fsdp_status fsdp_state_hand_out(fsdp_status status, fsdp_state_dict *sharded,
                                const fsdp_state_dict_options *o, fsdp_state_dict **dict)
{
    if (!o->full_state_dict) {
        if (status == FSDP_OK)
            *dict = sharded;
        return status;
    }
    status = fsdp_agree(o->group, status);
    if (status == FSDP_OK)
        status = to_full(sharded, o, dict);
    fsdp_state_dict_destroy(sharded);
    return status;
}
