/* The public face of process groups: checks arguments, picks the transport, and makes shared
 * buffers out of the transport's memory. */
#include <stdlib.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/philox.h"
#include "src/comm/heap.h"
#include "src/comm/phase.h"

static const double default_timeout_s = 600;
static const int64_t spin_limit_ns = 25000;

/* ---- life of a group ---- */

static fsdp_status read_timeout(int64_t *timeout_ns)
{
    const char *text = getenv("FSDP_TIMEOUT_S");
    double seconds = default_timeout_s;
    if (text && *text) {
        char *end;
        seconds = strtod(text, &end);
        if (*end || !(seconds > 0) || seconds > 1e9)
            return fsdp_error(FSDP_ERR_INVALID,
                              "FSDP_TIMEOUT_S is '%s', not a positive number of seconds", text);
    }
    *timeout_ns = (int64_t)(seconds * 1e9);
    return FSDP_OK;
}

static void link_buffer(fsdp_group *group, fsdp_shared_buffer *buffer)
{
    buffer->group = group;
    buffer->next = group->buffers;
    buffer->place = &group->buffers;
    if (buffer->next)
        buffer->next->place = &buffer->next;
    group->buffers = buffer;
}

static void unlink_buffer(fsdp_shared_buffer *buffer)
{
    *buffer->place = buffer->next;
    if (buffer->next)
        buffer->next->place = buffer->place;
}

fsdp_status fsdp_group_init(fsdp_group *group, const fsdp_comm_ops *ops)
{
    FSDP_TRY(read_timeout(&group->timeout_ns));
    group->ops = ops;
    group->refs = 1;
    group->next_buffer = 1;
    if (!group->control)
        return FSDP_OK;
    fsdp_shared_buffer *scratch = &group->scratch;
    unsigned char *base =
        (unsigned char *)group->control + fsdp_comm_control_scratch_offset(group->world_size);
    scratch->lanes = (fsdp_phase_lane *)(void *)base;
    scratch->data = base + fsdp_phase_lanes_bytes(group->world_size);
    scratch->bytes = (size_t)group->world_size * FSDP_SCRATCH_SLOT_BYTES;
    link_buffer(group, scratch);
    fsdp_group_set_threads(group, 1);
    atomic_store(&group->control->board[group->rank].joined, 1);
    return FSDP_OK;
}

void fsdp_group_release(fsdp_group *group)
{
    if (--group->refs > 0)
        return;
    group->ops->close(group);
    fsdp_free(group);
}

void fsdp_destroy_process_group(fsdp_group *group)
{
    if (!group)
        return;
    if (group->control)
        atomic_store(&group->control->board[group->rank].left, 1);
    fsdp_group_release(group);
}

int fsdp_group_rank(const fsdp_group *group)
{
    return group->rank;
}

int fsdp_group_world_size(const fsdp_group *group)
{
    return group->world_size;
}

int fsdp_group_local_rank(const fsdp_group *group)
{
    return group->local_rank;
}

int fsdp_group_local_world_size(const fsdp_group *group)
{
    return group->local_world_size;
}

const char *fsdp_group_backend(const fsdp_group *group)
{
    return group->ops->name;
}

const fsdp_comm_counters *fsdp_group_counters(const fsdp_group *group)
{
    return &group->counters;
}

void fsdp_group_set_threads(fsdp_group *group, int threads)
{
    if (group->control)
        group->spin_ns =
            (int64_t)group->world_size * threads <= group->control->cores ? spin_limit_ns : 0;
}

void fsdp_group_set_timeout_ms(fsdp_group *group, int64_t timeout_ms)
{
    group->timeout_ns = timeout_ms * 1000000;
}

void fsdp_group_set_delay(fsdp_group *group, uint64_t seed, uint32_t max_us)
{
    group->delay_seed = fsdp_mix64(seed);
    group->delay_count = 0;
    group->delay_max_us = max_us;
}

void fsdp_group_test_skip_writer_wait(fsdp_group *group, bool skip)
{
    group->test_skip_writer_wait = skip;
}

/* ---- joining ---- */

fsdp_status fsdp_init_process_group(const char *backend, fsdp_group **group)
{
    const char *world = getenv("WORLD_SIZE");
    (void)backend;
    if (world && strcmp(world, "1") != 0)
        return fsdp_error(FSDP_ERR_UNSUPPORTED,
                          "WORLD_SIZE is %s, but this process was not started by `fsdp launch`",
                          world);
    return fsdp_local_open(group);
}

/* ---- failure ---- */

static void copy_text(char *to, size_t size, const char *from)
{
    size_t length = from ? strnlen(from, size - 1) : 0;
    if (length)
        memcpy(to, from, length);
    to[length] = 0;
}

void fsdp_group_at(fsdp_group *group, uint32_t step, const char *unit, const char *call)
{
    if (!group->control)
        return;
    fsdp_comm_location *at = &group->control->board[group->rank].at;
    at->step = step;
    copy_text(at->unit, sizeof at->unit, unit);
    copy_text(at->call, sizeof at->call, call);
}

void fsdp_group_post(fsdp_group *group, fsdp_status status, bool shared)
{
    if (!group->control)
        return;
    fsdp_comm_failure failure = {.rank = group->rank,
                                 .status = (int32_t)status,
                                 .shared = shared,
                                 .at = group->control->board[group->rank].at};
    copy_text(failure.message, sizeof failure.message, fsdp_last_error());
    fsdp_comm_control_abort(group->control, group->rank, &failure);
}

void fsdp_group_abort(fsdp_group *group, fsdp_status status)
{
    if (group && status != FSDP_OK)
        fsdp_group_post(group, status, false);
}

/* ---- shared buffers ---- */

/* A phase of the scratch buffer by which all ranks make buffer `number` of `bytes`. */
static fsdp_status begin_create(fsdp_group *group, fsdp_phase phase, uint32_t number, size_t bytes)
{
    return fsdp_phase_begin_record(&group->scratch,
                                   &(fsdp_phase_record){.info = {.unit = number,
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
    copy_text(offer->message, sizeof offer->message, status == FSDP_OK ? "" : fsdp_last_error());
}

/* The first rank that could not take part decides for all. */
static fsdp_status common_status(fsdp_group *group, size_t bytes)
{
    for (int rank = 0; rank < group->world_size; rank++) {
        const fsdp_comm_offer *offer = offer_of(group, rank);
        if (offer->status == FSDP_OK)
            continue;
        char message[sizeof offer->message];
        copy_text(message, sizeof message, offer->message);
        return fsdp_error((fsdp_status)offer->status, "shared buffer of %zu bytes: rank %d: %s",
                          bytes, rank, message);
    }
    return FSDP_OK;
}

/* Rank 0 makes the memory in a WRITE, the others map it in a READ; a second pair agrees on success,
 * so that a buffer exists on all ranks or on none. */
static fsdp_status share_memory(fsdp_group *group, uint32_t number, size_t bytes, bool able,
                                fsdp_comm_memory *memory)
{
    fsdp_comm_offer *own = offer_of(group, group->rank);
    fsdp_status status = able ? FSDP_OK : fsdp_error_nomem();
    FSDP_TRY(begin_create(group, FSDP_PHASE_WRITE, number, bytes));
    if (group->rank == 0) {
        if (status == FSDP_OK)
            status = group->ops->memory_create(group, bytes, memory, own);
        set_offer_status(own, status);
    }
    fsdp_phase_end(&group->scratch);

    FSDP_TRY(begin_create(group, FSDP_PHASE_READ, number, bytes));
    const fsdp_comm_offer *offer = offer_of(group, 0);
    if (group->rank != 0 && offer->status == FSDP_OK) {
        fsdp_status attached = group->ops->memory_attach(group, bytes, offer, memory);
        if (status == FSDP_OK)
            status = attached;
    }
    fsdp_phase_end(&group->scratch);

    FSDP_TRY(begin_create(group, FSDP_PHASE_WRITE, number, bytes));
    if (group->rank != 0)
        set_offer_status(own, status);
    fsdp_phase_end(&group->scratch);

    FSDP_TRY(begin_create(group, FSDP_PHASE_READ, number, bytes));
    status = common_status(group, bytes);
    fsdp_phase_end(&group->scratch);
    return status;
}

fsdp_status fsdp_shared_buffer_create(fsdp_group *group, size_t bytes, fsdp_shared_buffer **buffer)
{
    uint32_t number = group->next_buffer++;
    size_t lanes = group->control ? fsdp_phase_lanes_bytes(group->world_size) : 0;
    fsdp_comm_memory memory = {0};
    fsdp_shared_buffer *made = NULL;
    fsdp_status status;
    if (bytes > PTRDIFF_MAX - lanes - FSDP_COMM_PAGE)
        return fsdp_error(FSDP_ERR_NOMEM, "shared buffer of %zu bytes: too large", bytes);
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
    made->memory = memory;
    made->lanes = group->control ? memory.data : NULL;
    made->data = (unsigned char *)memory.data + lanes;
    made->bytes = bytes;
    made->number = number;
    link_buffer(group, made);
    group->refs++;
    *buffer = made;
    return FSDP_OK;
}

void fsdp_shared_buffer_destroy(fsdp_shared_buffer *buffer)
{
    if (!buffer)
        return;
    fsdp_group *group = buffer->group;
    unlink_buffer(buffer);
    group->ops->memory_release(&buffer->memory);
    fsdp_free(buffer);
    fsdp_group_release(group);
}

void *fsdp_shared_buffer_data(fsdp_shared_buffer *buffer)
{
    return buffer->data;
}

size_t fsdp_shared_buffer_bytes(const fsdp_shared_buffer *buffer)
{
    return buffer->bytes;
}
