/* The card exchange "copy": after a rank has written bytes, it copies them to the mirrors (Note
 * [Several cards] in exchange.h) of the ranks that read these bytes.
 *
 * The copies are in the stream of the rank's kernels, and the rank waits for its stream before it
 * ends the phase. A mirror is written only while no rank reads it: the WRITE phase began after all
 * ranks had ended their READ phases, and a rank ends a READ phase when its kernels have run. */
#include "src/base/alloc.h"
#include "src/comm/cards/exchange.h"
#include "src/tensor/device.h"

static fsdp_status attach(fsdp_group *group, fsdp_comm_device_memory *memory,
                          const fsdp_shared_memory_handle *handles)
{
    memory->mirrors = fsdp_calloc((size_t)group->world_size, sizeof *memory->mirrors);
    if (!memory->mirrors)
        return fsdp_error_nomem();
    for (int r = 0; r < group->world_size; r++) {
        fsdp_comm_mirror *m = &memory->mirrors[r];
        m->handle = handles[r];
        if (r != group->rank)
            FSDP_TRY(memory->ops->attach_other(memory->device->ordinal, &m->handle, &m->data));
    }
    return FSDP_OK;
}

static void send_range(const fsdp_shared_buffer *buffer, const fsdp_written_range *range,
                       int reader)
{
    const fsdp_comm_device_memory *m = &buffer->on_device;
    if (reader != buffer->group->rank)
        m->ops->copy_to_other(m->device, (char *)m->mirrors[reader].data + range->to,
                              (const char *)m->data + range->offset, range->bytes);
}

static void send(fsdp_shared_buffer *buffer)
{
    fsdp_group *group = buffer->group;
    for (size_t i = 0; i < buffer->n_ranges; i++) {
        const fsdp_written_range *range = &buffer->ranges[i];
        const bool all = range->reader == FSDP_ALL_READERS;
        const int first = all ? 0 : range->reader, end = all ? group->world_size : first + 1;
        for (int r = first; r < end; r++)
            send_range(buffer, range, r);
        group->counters.moved_bytes +=
            range->bytes * (size_t)(all ? end - 1 : first != group->rank);
    }
}

const fsdp_card_exchange fsdp_card_exchange_copy = {
    .name = "copy", .attach = attach, .send = send, .ends_after_kernels = true};
