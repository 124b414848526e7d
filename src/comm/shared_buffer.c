/* Creates shared buffers and discards their pages. The transport provides the memory of a buffer.
 * This memory begins with the lanes of the phase protocol (phase_record.h), and the data
 * follows. */
#include <string.h>

#include "src/base/alloc.h"
#include "src/comm/phase.h"

/* Begin a phase for the creation of a buffer or for a discard of its pages. `number` and `bytes`
 * describe this buffer. A creation uses phases of the scratch buffer, and a discard uses phases of
 * the buffer itself. */
static fsdp_status begin_memory(fsdp_shared_buffer *buffer, fsdp_phase phase, uint32_t number,
                                size_t bytes)
{
    return fsdp_phase_begin_record(buffer, &(fsdp_phase_record){.info = {.unit = number,
                                                                         .kind = FSDP_KIND_BUFFER,
                                                                         .dtype = FSDP_DTYPE_U8,
                                                                         .bytes = bytes},
                                                                .phase = (uint16_t)phase,
                                                                .collective = 1});
}

static fsdp_comm_offer *offer_of(fsdp_group *group, int rank)
{
    return (fsdp_comm_offer *)(void *)((unsigned char *)group->scratch.data +
                                       (size_t)rank * FSDP_SCRATCH_SLOT_BYTES);
}

static void set_offer_status(fsdp_comm_offer *offer, fsdp_status status)
{
    offer->status = (int32_t)status;
    fsdp_comm_copy_text(offer->message, sizeof offer->message,
                        status == FSDP_OK ? "" : fsdp_last_error());
}

/* Return the error of the first rank that failed to create or map the memory. */
static fsdp_status common_status(fsdp_group *group, size_t bytes)
{
    for (int rank = 0; rank < group->world_size; rank++) {
        const fsdp_comm_offer *offer = offer_of(group, rank);
        if (offer->status == FSDP_OK)
            continue;
        char message[sizeof offer->message];
        fsdp_comm_copy_text(message, sizeof message, offer->message);
        return fsdp_error((fsdp_status)offer->status, "shared buffer of %zu bytes: rank %d: %s",
                          bytes, rank, message);
    }
    return FSDP_OK;
}

/* Create the memory of a buffer on all ranks. Rank 0 creates it in a WRITE phase, and the others
 * map it in the READ phase that follows. In a second pair of phases, the ranks exchange their
 * results. So a buffer exists on all ranks or on none. `able` is false if this rank is out of
 * memory. */
static fsdp_status share_memory(fsdp_group *group, uint32_t number, size_t bytes, bool able,
                                fsdp_comm_memory *memory)
{
    fsdp_comm_offer *own = offer_of(group, group->rank);
    fsdp_status status = able ? FSDP_OK : fsdp_error_nomem();
    FSDP_TRY(begin_memory(&group->scratch, FSDP_PHASE_WRITE, number, bytes));
    if (group->rank == 0) {
        if (status == FSDP_OK)
            status = group->ops->memory_create(group, bytes, memory, own);
        set_offer_status(own, status);
    }
    fsdp_phase_end(&group->scratch);

    FSDP_TRY(begin_memory(&group->scratch, FSDP_PHASE_READ, number, bytes));
    const fsdp_comm_offer *offer = offer_of(group, 0);
    if (group->rank != 0 && offer->status == FSDP_OK) {
        fsdp_status attached = group->ops->memory_attach(group, bytes, offer, memory);
        if (status == FSDP_OK)
            status = attached;
    }
    fsdp_phase_end(&group->scratch);

    FSDP_TRY(begin_memory(&group->scratch, FSDP_PHASE_WRITE, number, bytes));
    if (group->rank != 0)
        set_offer_status(own, status);
    fsdp_phase_end(&group->scratch);

    FSDP_TRY(begin_memory(&group->scratch, FSDP_PHASE_READ, number, bytes));
    status = common_status(group, bytes);
    fsdp_phase_end(&group->scratch);
    return status;
}

/* Get the number of a new buffer. All ranks have created the same buffers so far, so all get the
 * same number or the same error. */
static fsdp_status take_number(fsdp_group *group, uint32_t *number)
{
    const uint32_t limit = (1u << FSDP_BUFFER_BITS) - 1;
    if (group->control && (group->next_buffer & limit) == 0)
        return fsdp_error(FSDP_ERR_UNSUPPORTED,
                          "shared buffer: this group of %d ranks has made %u already, which is the "
                          "maximum for a group",
                          group->world_size, limit);
    *number = group->next_buffer++;
    return FSDP_OK;
}

fsdp_status fsdp_shared_buffer_create(fsdp_group *group, size_t bytes, fsdp_shared_buffer **buffer)
{
    uint32_t number = 0;
    size_t lanes = group->control ? fsdp_phase_lanes_bytes(group->world_size) : 0;
    fsdp_comm_memory memory = {0};
    fsdp_shared_buffer *made = NULL;
    fsdp_status status;
    if (group->ops->without_peers)
        return fsdp_error(FSDP_ERR_UNSUPPORTED,
                          "shared buffer of %zu bytes: the ranks of a plan "
                          "share none: it is for the meta device",
                          bytes);
    if (bytes > PTRDIFF_MAX - lanes - FSDP_COMM_PAGE)
        return fsdp_error(FSDP_ERR_NOMEM, "shared buffer of %zu bytes: too large", bytes);
    FSDP_TRY(take_number(group, &number));
    made = fsdp_calloc(1, sizeof *made);
    if (group->control)
        status = share_memory(group, number, lanes + bytes, made != NULL, &memory);
    else
        status = made ? group->ops->memory_create(group, bytes, &memory, NULL) : fsdp_error_nomem();
    if (status != FSDP_OK) {
        if (memory.data)
            group->ops->memory_release(&memory);
        fsdp_free(made);
        return status;
    }
    if (group->ops->memory_agreed)
        group->ops->memory_agreed(&memory);
    made->memory = memory;
    made->lanes = group->control ? memory.data : NULL;
    made->data = (unsigned char *)memory.data + lanes;
    made->bytes = bytes;
    made->number = number;
    fsdp_shared_buffer_link(group, made);
    group->refs++;
    *buffer = made;
    return FSDP_OK;
}

/* Discard all bytes but the first `keep` of each part. Only whole pages are discarded, and a page
 * that belongs to two parts is kept. */
static void discard_parts(const fsdp_shared_buffer *buffer, size_t keep)
{
    const fsdp_group *group = buffer->group;
    const size_t parts = keep ? (size_t)group->world_size : 1, part = buffer->bytes / parts;
    char *data = buffer->data;
    for (size_t i = 0; i < parts; i++) {
        const size_t begin = i * part + keep + FSDP_COMM_PAGE - 1;
        const size_t from = begin - begin % FSDP_COMM_PAGE;
        const size_t to =
            i + 1 < parts ? (i + 1) * part - (i + 1) * part % FSDP_COMM_PAGE : buffer->bytes;
        if (from < to)
            group->ops->memory_discard(data + from, to - from);
    }
}

/* A discard is a READ phase: a rank begins it after its last read, and the next WRITE phase waits
 * until all ranks have ended it. But two discards may follow each other without a WRITE phase in
 * between. Then a fast rank could begin the second discard before a slow rank has begun the first.
 * The fast rank would be counted twice, and memory would be discarded while the slow rank is still
 * reading it. So each discard first waits until all ranks have ended the previous one. */
fsdp_status fsdp_shared_buffer_discard(fsdp_shared_buffer *buffer, size_t keep)
{
    const fsdp_group *group = buffer->group;
    if (!buffer->lanes || (buffer->discarded == buffer->written && buffer->kept <= keep))
        return FSDP_OK;
    FSDP_TRY(fsdp_phase_wait_for_all(buffer, buffer->discard_ended, FSDP_KIND_BUFFER));
    FSDP_TRY(begin_memory(buffer, FSDP_PHASE_READ, buffer->number, buffer->bytes));
    _Atomic uint32_t *discarding = &buffer->lanes[0].discarding;
    if (atomic_fetch_add(discarding, 1) + 1 == (uint32_t)group->world_size) {
        atomic_store(discarding, 0);
        if (group->ops->memory_discard)
            discard_parts(buffer, keep);
    }
    buffer->discarded = buffer->written;
    buffer->kept = keep;
    fsdp_phase_end(buffer);
    buffer->discard_ended = buffer->ended;
    return FSDP_OK;
}

void *fsdp_shared_buffer_data(fsdp_shared_buffer *buffer)
{
    return buffer->data;
}
