/* The control block: its layout, the abort word that the first failure sets, and the message with
 * which all ranks report this failure. */
#include "src/comm/control.h"

#include <stdio.h>
#include <string.h>

#include "src/base/assert.h"
#include "src/base/cpus.h"
#include "src/comm/phase_record.h"

/* Change this number whenever the layout changes, so that builds with different layouts never share
 * a block. */
static const uint64_t control_magic = 0x6673647063740005u;

static size_t round_up(size_t bytes, size_t to)
{
    return (bytes + to - 1) / to * to;
}

void fsdp_comm_copy_text(char *to, size_t size, const char *from)
{
    size_t length = from ? strnlen(from, size - 1) : 0;
    if (length)
        memcpy(to, from, length);
    to[length] = 0;
}

size_t fsdp_comm_control_scratch_offset(int world_size)
{
    return round_up(sizeof(fsdp_comm_control) + ((size_t)world_size + 1) * sizeof(fsdp_comm_board),
                    FSDP_COMM_PAGE);
}

size_t fsdp_comm_control_bytes(int world_size)
{
    return fsdp_comm_control_scratch_offset(world_size) + fsdp_phase_lanes_bytes(world_size) +
           (size_t)world_size * FSDP_SCRATCH_SLOT_BYTES;
}

void fsdp_comm_control_init(fsdp_comm_control *control, int world_size)
{
    control->magic = control_magic;
    control->world_size = (uint32_t)world_size;
    control->cores = (uint32_t)fsdp_available_cpus();
    control->bytes = fsdp_comm_control_bytes(world_size);
}

fsdp_status fsdp_comm_control_verify(const fsdp_comm_control *control, size_t bytes, int world_size)
{
    if (bytes != fsdp_comm_control_bytes(world_size))
        return fsdp_error(FSDP_ERR_FORMAT,
                          "rendezvous: the control block has %zu bytes, expected %zu for %d ranks",
                          bytes, fsdp_comm_control_bytes(world_size), world_size);
    if (control->magic != control_magic || control->world_size != (uint32_t)world_size ||
        control->bytes != bytes)
        return fsdp_error(FSDP_ERR_FORMAT, "rendezvous: the control block is not of this build or "
                                           "not of this job: launcher and ranks must be the same "
                                           "version of fsdp");
    return FSDP_OK;
}

bool fsdp_comm_control_abort(fsdp_comm_control *control, int board,
                             const fsdp_comm_failure *failure)
{
    fsdp_comm_board *own = &control->board[board];
    uint32_t none = 0;
    if (atomic_exchange(&own->recorded, 1))
        return false;
    own->failure = *failure;
    return atomic_compare_exchange_strong(&control->abort, &none, (uint32_t)board + 1);
}

static void end_texts(fsdp_comm_location *at)
{
    at->unit[sizeof at->unit - 1] = 0;
    at->call[sizeof at->call - 1] = 0;
}

void fsdp_comm_place_set(fsdp_comm_place *place, const fsdp_comm_location *at)
{
    uint64_t words[FSDP_LENGTH(place->words)];
    memcpy(words, at, sizeof words);
    for (size_t i = 0; i < FSDP_LENGTH(words); i++)
        atomic_store_explicit(&place->words[i], words[i], memory_order_relaxed);
}

fsdp_comm_location fsdp_comm_place_get(const fsdp_comm_place *place)
{
    uint64_t words[FSDP_LENGTH(place->words)];
    fsdp_comm_location at;
    for (size_t i = 0; i < FSDP_LENGTH(words); i++)
        words[i] = atomic_load_explicit(&place->words[i], memory_order_relaxed);
    memcpy(&at, words, sizeof at);
    end_texts(&at);
    return at;
}

bool fsdp_comm_control_failure(const fsdp_comm_control *control, fsdp_comm_failure *failure)
{
    uint32_t first = atomic_load_explicit(&control->abort, memory_order_acquire);
    if (first == 0 || first > control->world_size + 1)
        return false;
    *failure = control->board[first - 1].failure;
    end_texts(&failure->at);
    failure->message[sizeof failure->message - 1] = 0;
    return true;
}

void fsdp_comm_location_describe(const fsdp_comm_location *at, char *text, size_t size)
{
    text[0] = 0;
    if (at->step || at->unit[0] || at->call[0])
        snprintf(text, size, " in step %u%s%s%s%s", at->step, at->unit[0] ? ", unit " : "",
                 at->unit, at->call[0] ? ", " : "", at->call);
}

void fsdp_comm_failure_describe(const fsdp_comm_failure *failure, char *text, size_t size)
{
    char where[160];
    if (failure->kind == FSDP_FAILURE_OF_ALL) {
        fsdp_comm_copy_text(text, size, failure->message);
        return;
    }
    fsdp_comm_location_describe(&failure->at, where, sizeof where);
    if (failure->kind == FSDP_FAILURE_DIED)
        snprintf(text, size, "rank %d died (%s)%s", failure->rank, failure->message, where);
    else if (failure->kind == FSDP_FAILURE_STOPPED)
        snprintf(text, size, "rank %d%s: %s", failure->rank, where, failure->message);
    else
        snprintf(text, size, "rank %d failed%s: %s", failure->rank, where, failure->message);
}

fsdp_status fsdp_comm_control_error(const fsdp_comm_control *control)
{
    fsdp_comm_failure first;
    char text[1024];
    if (!fsdp_comm_control_failure(control, &first))
        return fsdp_error(FSDP_ERR_COMM, "the process group was aborted");
    fsdp_comm_failure_describe(&first, text, sizeof text);
    return fsdp_error(FSDP_ERR_COMM, "%s", text);
}
