/* Creates shared buffers and discards their pages. The transport provides the memory of a buffer.
 * This memory begins with the lanes of the phase protocol (phase_record.h), and the data
 * follows. */
#include <string.h>

#include "src/base/alloc.h"
#include "src/comm/cards/cards.h"
#include "src/comm/cards/exchange.h"
#include "src/comm/phase.h"
#include "src/tensor/device.h"

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

/* A buffer that is being created. The fields have the same values on all ranks, except `made`. */
typedef struct request {
    fsdp_group *group;
    const fsdp_device *device; /* the data is in this device's memory; NULL: in host memory */
    uint32_t number;
    size_t lanes_bytes, bytes;
    fsdp_shared_buffer *made; /* this rank's buffer; NULL if this rank is out of memory */
} request;

/* Return true if each rank creates the buffer's data on its own card. */
static bool creates_mirror(const request *r)
{
    return r->device && r->group->exchange;
}

static size_t exchange_bytes(const request *r)
{
    const bool needs = creates_mirror(r) && r->group->exchange->host_bytes;
    return needs ? r->group->exchange->host_bytes(r->group) : 0;
}

/* Return the bytes of host memory that are surely written. A card exchange asks for as much memory
 * as the largest unit could need, of which most buffers use a small part. */
static size_t least_host_bytes(const request *r)
{
    return r->lanes_bytes + (r->device ? 0 : r->bytes);
}

static size_t host_bytes(const request *r)
{
    return least_host_bytes(r) + exchange_bytes(r);
}

static fsdp_status create_on_device(const request *r, fsdp_comm_offer *offer)
{
    fsdp_comm_device_memory *m = &r->made->on_device;
    m->ops = r->device->ops->shared_memory;
    m->device = r->device;
    m->is_owner = true;
    FSDP_TRY(m->ops->create(r->device->ordinal, r->bytes, &m->data, &m->handle));
    if (offer)
        offer->on_device = m->handle;
    return FSDP_OK;
}

/* Create the memory that this rank contributes to the buffer. The first rank of each host
 * (`is_root`) creates the host memory, and the device memory unless there are mirrors. If there are
 * mirrors, each rank creates its own. */
static fsdp_status create_memory(const request *r, bool is_root, fsdp_comm_offer *offer)
{
    if (is_root && (host_bytes(r) || !r->device))
        FSDP_TRY(r->group->ops->memory_create(r->group, host_bytes(r), least_host_bytes(r),
                                              &r->made->memory, offer));
    return r->device && (is_root || creates_mirror(r)) ? create_on_device(r, offer) : FSDP_OK;
}

static fsdp_status attach_to_mirrors(const request *r)
{
    const fsdp_group *group = r->group;
    fsdp_comm_device_memory *m = &r->made->on_device;
    fsdp_phase_lane *lanes = r->made->memory.data;
    fsdp_shared_memory_handle *handles = fsdp_calloc((size_t)group->world_size, sizeof *handles);
    if (!handles)
        return fsdp_error_nomem();
    for (int i = 0; i < group->world_size; i++)
        handles[i] = offer_of(r->group, i)->on_device;
    const fsdp_status status = group->exchange->attach(r->group, m, handles);
    for (int i = 0; i < group->world_size && m->mirrors; i++)
        if (i != group->rank)
            atomic_fetch_add(&lanes[i].attached, 1);
    fsdp_free(handles);
    return status;
}

/* Attach to the memory of the buffer that other ranks have created. */
static fsdp_status attach_memory(const request *r, bool is_root, const fsdp_comm_offer *offer)
{
    fsdp_comm_device_memory *m = &r->made->on_device;
    if (!is_root)
        FSDP_TRY(r->group->ops->memory_attach(r->group, host_bytes(r), offer, &r->made->memory));
    if (creates_mirror(r))
        return r->group->exchange->attach ? attach_to_mirrors(r) : FSDP_OK;
    if (!r->device || is_root)
        return FSDP_OK;
    m->ops = r->device->ops->shared_memory;
    m->device = r->device;
    m->handle = offer->on_device;
    FSDP_TRY(m->ops->attach(r->device->ordinal, &m->handle, &m->data));
    fsdp_phase_lane *lanes = r->made->memory.data;
    atomic_fetch_add(&lanes[0].attached, 1);
    return FSDP_OK;
}

static void wrote_offer(fsdp_group *group)
{
    fsdp_phase_wrote(&group->scratch, FSDP_ALL_READERS,
                     (size_t)group->rank * FSDP_SCRATCH_SLOT_BYTES, sizeof(fsdp_comm_offer));
}

/* Return true if all ranks that create memory have created it. */
static bool is_created(const request *r, int root)
{
    for (int i = 0; i < r->group->world_size; i++)
        if ((i == root || creates_mirror(r)) && offer_of(r->group, i)->status != FSDP_OK)
            return false;
    return true;
}

/* Create the memory of a buffer on all ranks. The first rank of each host creates it in a WRITE
 * phase, and the other ranks of the host map it in the READ phase that follows. If ranks have
 * mirrors, each rank creates its own in the WRITE phase. In a second pair of phases, the ranks
 * exchange their results. So a buffer exists on all ranks or on none. */
static fsdp_status share_memory(const request *r)
{
    fsdp_group *group = r->group;
    const uint32_t number = r->number;
    const size_t bytes = r->lanes_bytes + r->bytes;
    fsdp_comm_offer *own = offer_of(group, group->rank);
    fsdp_status status = r->made ? FSDP_OK : fsdp_error_nomem();
    const int root = fsdp_group_local_root(group);
    const bool is_root = group->rank == root;
    const bool creates = is_root || creates_mirror(r);
    FSDP_TRY(begin_memory(&group->scratch, FSDP_PHASE_WRITE, number, bytes));
    if (creates) {
        if (status == FSDP_OK)
            status = create_memory(r, is_root, own);
        set_offer_status(own, status);
        wrote_offer(group);
    }
    fsdp_phase_end(&group->scratch);

    FSDP_TRY(begin_memory(&group->scratch, FSDP_PHASE_READ, number, bytes));
    if (is_created(r, root) && status == FSDP_OK)
        status = attach_memory(r, is_root, offer_of(group, root));
    fsdp_phase_end(&group->scratch);

    FSDP_TRY(begin_memory(&group->scratch, FSDP_PHASE_WRITE, number, bytes));
    if (!is_root || creates_mirror(r)) {
        set_offer_status(own, status);
        wrote_offer(group);
    }
    fsdp_phase_end(&group->scratch);

    FSDP_TRY(begin_memory(&group->scratch, FSDP_PHASE_READ, number, bytes));
    status = common_status(group, bytes);
    fsdp_phase_end(&group->scratch);
    return status;
}

/* Set *number to the number of a new buffer. All ranks have created the same buffers so far, so all
 * get the same number or the same error. */
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

/* Free a buffer whose creation has failed on some rank. If peers may still use device memory that
 * this rank created, fsdp_shared_buffers_sweep() frees the buffer later. */
static void abandon(fsdp_group *group, fsdp_shared_buffer *made)
{
    made->group = group;
    made->lanes = made->memory.data;
    const bool is_owner = made->on_device.data && made->on_device.is_owner;
    if (!is_owner && fsdp_shared_buffer_release_device(made)) {
        fsdp_shared_buffer_free(made);
        return;
    }
    made->next = group->detached;
    group->detached = made;
}

static fsdp_status create(request *r)
{
    fsdp_group *group = r->group;
    if (group->ops->without_peers)
        return fsdp_error(FSDP_ERR_UNSUPPORTED,
                          "shared buffer of %zu bytes: the ranks of a plan "
                          "share none: it is for the meta device",
                          r->bytes);
    r->lanes_bytes = group->control ? fsdp_phase_lanes_bytes(group->world_size) : 0;
    if (r->bytes > PTRDIFF_MAX - r->lanes_bytes - FSDP_COMM_PAGE)
        return fsdp_error(FSDP_ERR_NOMEM, "shared buffer of %zu bytes: too large", r->bytes);
    if (r->device && fsdp_group_spans_hosts(group))
        return fsdp_error(
            FSDP_ERR_UNSUPPORTED,
            "shared buffer of %zu bytes: the ranks are on %d hosts, and the memory of "
            "a card is shared on one host only: train with --device cpu, or on one "
            "host",
            r->bytes, group->world_size / group->local_world_size);
    if (r->device)
        FSDP_TRY(fsdp_group_find_cards(group, r->device));
    if (creates_mirror(r) && group->exchange->open && !group->exchange_state)
        FSDP_TRY(group->exchange->open(group, r->device));
    FSDP_TRY(take_number(group, &r->number));
    fsdp_shared_buffers_sweep(group, false);
    r->made = fsdp_calloc(1, sizeof *r->made);
    fsdp_status status;
    if (group->control)
        status = share_memory(r);
    else
        status = r->made ? create_memory(r, true, NULL) : fsdp_error_nomem();
    if (status != FSDP_OK && r->made)
        abandon(group, r->made);
    return status;
}

fsdp_status fsdp_shared_buffer_create_on(fsdp_group *group, const fsdp_device *device, size_t bytes,
                                         fsdp_shared_buffer **buffer)
{
    request r = {.group = group, .bytes = bytes};
    if (device && device->ops->shared_memory)
        r.device = device;
    FSDP_TRY(create(&r));
    fsdp_shared_buffer *made = r.made;
    if (group->ops->memory_agreed)
        group->ops->memory_agreed(&made->memory);
    made->lanes = group->control ? made->memory.data : NULL;
    made->data =
        r.device ? made->on_device.data : (unsigned char *)made->memory.data + r.lanes_bytes;
    made->bytes = bytes;
    if (exchange_bytes(&r))
        made->exchange_memory = (unsigned char *)made->memory.data + r.lanes_bytes;
    made->number = r.number;
    group->refs++;
    const fsdp_status status = fsdp_shared_buffer_link(group, made);
    if (status != FSDP_OK) { /* peers may already use the buffer and wait for this rank */
        fsdp_group_abort(group, status);
        fsdp_shared_buffer_destroy(made);
        return status;
    }
    *buffer = made;
    return FSDP_OK;
}

fsdp_status fsdp_shared_buffer_create(fsdp_group *group, size_t bytes, fsdp_shared_buffer **buffer)
{
    return fsdp_shared_buffer_create_on(group, NULL, bytes, buffer);
}

/* Discard all bytes except the first `keep` bytes of each part. Each rank of this host accounts for
 * one part of the memory. Only whole pages are discarded, and a page that belongs to two parts is
 * kept. */
static void discard_parts(const fsdp_shared_buffer *buffer, size_t keep)
{
    const fsdp_group *group = buffer->group;
    const size_t parts = keep ? (size_t)group->local_world_size : 1, part = buffer->bytes / parts;
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
 * reading it. So each discard first waits until all ranks have ended the previous discard. */
fsdp_status fsdp_shared_buffer_discard(fsdp_shared_buffer *buffer, size_t keep)
{
    const fsdp_group *group = buffer->group;
    if (!buffer->lanes || buffer->on_device.data ||
        (buffer->discarded == buffer->written && buffer->kept <= keep))
        return FSDP_OK;
    FSDP_TRY(fsdp_phase_wait_for_all(buffer, buffer->discard_ended, FSDP_KIND_BUFFER));
    FSDP_TRY(begin_memory(buffer, FSDP_PHASE_READ, buffer->number, buffer->bytes));
    if (group->ops->buffer_flush && fsdp_group_spans_hosts(group))
        group->ops->buffer_flush(buffer);
    _Atomic uint32_t *discarding = &buffer->lanes[0].discarding;
    if (atomic_fetch_add(discarding, 1) + 1 == (uint32_t)group->local_world_size) {
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
