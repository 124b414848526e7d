/* See phase_record.h. */
#include "src/comm/phase_record.h"

#include <stdio.h>

#include "src/base/assert.h"

size_t fsdp_phase_lanes_bytes(int world_size)
{
    size_t bytes = (size_t)world_size * sizeof(fsdp_phase_lane);
    return (bytes + FSDP_COMM_PAGE - 1) / FSDP_COMM_PAGE * FSDP_COMM_PAGE;
}

const char *fsdp_comm_kind_name(fsdp_comm_kind kind)
{
    static const char *const names[] = {
        [FSDP_KIND_ALL_GATHER] = "all_gather",   [FSDP_KIND_REDUCE_SCATTER] = "reduce_scatter",
        [FSDP_KIND_WRITE_SHARD] = "write_shard", [FSDP_KIND_GRADIENT] = "gradient",
        [FSDP_KIND_ALL_REDUCE] = "all_reduce",   [FSDP_KIND_BROADCAST] = "broadcast",
        [FSDP_KIND_BARRIER] = "barrier",         [FSDP_KIND_STATE_DICT] = "state_dict",
        [FSDP_KIND_BUFFER] = "shared_buffer",
    };
    return (size_t)kind < FSDP_LENGTH(names) ? names[kind] : "unknown";
}

void fsdp_phase_describe(const fsdp_phase_record *record, char *text, size_t size)
{
    const fsdp_phase_info *info = &record->info;
    const char *kind = fsdp_comm_kind_name((fsdp_comm_kind)info->kind);
    const char *dtype =
        info->dtype < FSDP_DTYPE_COUNT ? fsdp_dtype_name((fsdp_dtype)info->dtype) : "unknown";
    if (record->collective)
        snprintf(text, size, "%s number %u (%s, %llu bytes, option %u)", kind, info->unit, dtype,
                 (unsigned long long)info->bytes, record->detail);
    else
        snprintf(text, size, "%s of unit %u (%s, %llu bytes, %s) in step %u", kind, info->unit,
                 dtype, (unsigned long long)info->bytes,
                 record->phase == FSDP_PHASE_READ    ? "read"
                 : record->phase == FSDP_PHASE_WRITE ? "write"
                                                     : "rewrite",
                 info->step);
}

bool fsdp_phase_latest(const fsdp_shared_buffer *buffer, int rank, fsdp_phase_record *record)
{
    const fsdp_phase_lane *lane = &buffer->lanes[rank];
    uint64_t begun = atomic_load(&lane->begun);
    if (begun == 0)
        return false;
    *record = lane->ring[(begun - 1) % FSDP_PHASE_RING];
    return true;
}
