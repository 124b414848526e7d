/* Messages from other hosts; see exchange.h. */
#include <string.h>
#include <time.h>

#include "src/base/alloc.h"
#include "src/base/clock.h"
#include "src/comm/mpi/exchange.h"
#include "src/comm/phase.h"

/* A message that has arrived, and the bytes that follow it. */
struct fsdp_mpi_incoming {
    fsdp_mpi_incoming *next;
    fsdp_mpi_message message;
    fsdp_mpi_entry *entry;  /* NULL: not looked up yet, or the buffer does not exist any more */
    bool is_found;          /* the buffer was looked up */
    fsdp_mpi_range *ranges; /* [message.n_ranges] */
    bool has_list;          /* `ranges` is complete */
    fsdp_mpi_handle list_request;
    size_t range;              /* index of the range to which the next piece belongs */
    uint64_t at;               /* position in that range */
    fsdp_mpi_handle *requests; /* pieces that are being received */
    size_t n_requests, n_done, cap_requests;
    bool all_posted;
};

static void drop(fsdp_mpi_incoming *in)
{
    if (in->entry)
        atomic_fetch_sub(&in->entry->receiving, 1);
    fsdp_free(in->ranges);
    fsdp_free(in->requests);
    fsdp_free(in);
}

static bool check(fsdp_mpi_progress *p, const char *call, int code)
{
    if (code)
        fsdp_mpi_break(p, call, code);
    return !code;
}

/* ---- the buffer ---- */

static bool is_early(const fsdp_mpi_progress *p, uint32_t number)
{
    for (size_t i = 0; i < p->n_newest; i++)
        if (p->newest[i].group == number >> FSDP_BUFFER_BITS)
            return number > p->newest[i].number;
    return true;
}

/* Find the buffer of a message. Return false if this rank has yet to create it. */
static bool find_entry(fsdp_mpi_progress *p, fsdp_mpi_incoming *in)
{
    const uint32_t number = in->message.buffer;
    pthread_mutex_lock(&p->lock);
    for (size_t i = 0; i < p->n_entries && !in->is_found; i++) {
        if (p->entries[i]->buffer->number != number)
            continue;
        in->entry = p->entries[i];
        atomic_fetch_add(&in->entry->receiving, 1);
        in->is_found = true;
    }
    if (!in->is_found)
        in->is_found = !is_early(p, number);
    pthread_mutex_unlock(&p->lock);
    return in->is_found;
}

/* Return true if the message and its ranges are valid for the buffer. Messages come from ranks of
 * this job, which run the same build. Nevertheless, make sure that nothing outside of the buffer is
 * written. */
static bool is_valid(const fsdp_mpi_incoming *in)
{
    const fsdp_mpi_message *m = &in->message;
    if (!in->entry)
        return true;
    const fsdp_shared_buffer *b = in->entry->buffer;
    bool valid = m->rank >= 0 && m->rank < b->group->world_size && m->rank != b->group->rank &&
                 fsdp_group_world_rank(b->group, m->rank) == m->source;
    for (size_t i = 0; valid && i < m->n_ranges; i++)
        valid = in->ranges[i].offset <= b->bytes &&
                in->ranges[i].bytes <= b->bytes - in->ranges[i].offset;
    return valid;
}

/* ---- receiving bytes ---- */

static bool receive_list(fsdp_mpi_progress *p, fsdp_mpi_incoming *in)
{
    bool done = true;
    int bytes;
    if (in->has_list)
        return true;
    if (!check(p, "MPI_Test", p->world.abi->test(&in->list_request, &done, &bytes)) || !done)
        return false;
    in->has_list = true;
    if ((size_t)bytes != in->message.n_ranges * sizeof *in->ranges)
        fsdp_mpi_give_up(p, fsdp_error(FSDP_ERR_COMM, "mpi: a list of %d bytes came for %u ranges",
                                       bytes, in->message.n_ranges));
    return !p->is_failing;
}

/* Post a receive for the next piece. */
static bool post_piece(fsdp_mpi_progress *p, fsdp_mpi_incoming *in)
{
    const fsdp_mpi_range *range = &in->ranges[in->range];
    const uint64_t left = range->bytes - in->at;
    const uint64_t n = left < FSDP_MPI_PIECE_BYTES ? left : FSDP_MPI_PIECE_BYTES;
    if (!FSDP_GROW(in->requests, in->cap_requests, in->n_requests + 1)) {
        fsdp_mpi_give_up(p, fsdp_error_nomem());
        return false;
    }
    void *to =
        in->entry ? (unsigned char *)in->entry->buffer->data + range->offset + in->at : p->sink;
    if (!check(p, "MPI_Irecv",
               p->world.abi->irecv(p->world.comm, to, (int)n, in->message.source,
                                   (int)in->message.tag, &in->requests[in->n_requests])))
        return false;
    in->n_requests++;
    in->at += n;
    if (in->at == range->bytes) {
        in->range++;
        in->at = 0;
    }
    return true;
}

/* Return true if all bytes have arrived. If the buffer does not exist any more, all pieces are
 * received into the same memory, so they are received one after the other. */
static bool receive_bytes(fsdp_mpi_progress *p, fsdp_mpi_incoming *in)
{
    while (in->range < in->message.n_ranges && (in->entry || in->n_done == in->n_requests))
        if (!post_piece(p, in))
            return false;
    while (in->n_done < in->n_requests) {
        bool done;
        if (!check(p, "MPI_Test", p->world.abi->test(&in->requests[in->n_done], &done, NULL)) ||
            !done)
            return false;
        in->n_done++;
        p->was_active = true;
    }
    return in->range == in->message.n_ranges;
}

static bool needs_buffer(const fsdp_mpi_message *m)
{
    return m->kind == FSDP_MPI_ANNOUNCED || m->kind == FSDP_MPI_ENDED;
}

/* Return true if the message is complete. */
static bool is_complete(fsdp_mpi_progress *p, fsdp_mpi_incoming *in)
{
    if (!needs_buffer(&in->message))
        return true;
    if (!receive_list(p, in) || (!in->is_found && !find_entry(p, in)))
        return false;
    if (in->entry && !in->entry->buffer)
        return false; /* after a failure: nothing more is received or shown */
    if (!in->n_requests && !is_valid(in)) {
        fsdp_mpi_give_up(p, fsdp_error(FSDP_ERR_COMM,
                                       "mpi: rank %d sent a message that does not fit buffer %u",
                                       in->message.source, in->message.buffer));
        return false;
    }
    return receive_bytes(p, in);
}

/* ---- showing what other ranks have done ---- */

/* Show the phase in the sender's lane. `begun` and the record become visible before `ended`.
 * fsdp_phase_compare() posts a divergence itself, so this function does not return its error. */
static void show_phase(const fsdp_mpi_incoming *in)
{
    const fsdp_mpi_message *m = &in->message;
    const fsdp_shared_buffer *buffer = in->entry->buffer;
    const uint64_t n = m->kind == FSDP_MPI_ENDED ? m->count - 1 : m->count;
    fsdp_phase_lane *lane = &buffer->lanes[m->rank];
    if (atomic_load(&lane->begun) <= n) {
        lane->ring[n % FSDP_PHASE_RING] = m->record;
        atomic_store(&lane->begun, n + 1);
        if (fsdp_phase_compare(buffer, m->rank, n) != FSDP_OK)
            return;
    }
    if (m->kind == FSDP_MPI_ENDED)
        fsdp_phase_show_ended(lane, m->count, buffer->group->futex_private);
}

/* Copy the sender's board to this host. The board shows what the sender waits for only if all
 * earlier messages of the sender are complete (`is_latest`). Otherwise, ranks could seem to wait
 * for each other in a circle while bytes are still on their way. A reader may look at the same time
 * (in_circle() in wait.c). So while the fields change, `sequence` is even. */
static void show_board(fsdp_comm_board *board, const fsdp_mpi_board *b, bool is_latest)
{
    atomic_store(&board->joined, b->joined);
    atomic_store(&board->beat, b->beat);
    fsdp_comm_place_set(&board->at, &b->at);
    atomic_store(&board->blocked.sequence, 0);
    atomic_store(&board->blocked.peer, b->peer);
    atomic_store(&board->blocked.number, b->number);
    atomic_store(&board->blocked.target, b->target);
    if (is_latest)
        atomic_store(&board->blocked.sequence, b->sequence);
}

static bool is_rank(const fsdp_mpi_progress *p, int rank)
{
    return rank >= 0 && rank < p->world.world_size;
}

static void show(fsdp_mpi_progress *p, const fsdp_mpi_incoming *in, bool is_latest)
{
    const fsdp_mpi_message *m = &in->message;
    fsdp_comm_board *board = &p->control->board[m->source];
    switch ((fsdp_mpi_kind)m->kind) {
    case FSDP_MPI_ANNOUNCED:
    case FSDP_MPI_ENDED:
        if (in->entry)
            show_phase(in);
        break;
    case FSDP_MPI_BOARD:
        show_board(board, &m->board, is_latest);
        break;
    case FSDP_MPI_FAILURE:
        p->n_failed++;
        if (is_rank(p, m->failure.board) && is_rank(p, m->failure.failure.rank))
            fsdp_comm_control_abort(p->control, m->failure.board, &m->failure.failure);
        break;
    case FSDP_MPI_LEFT:
        atomic_store(&board->left, 1);
        p->n_left++;
        break;
    }
}

/* Return true if an earlier message of the same rank is incomplete and must be shown before this
 * one. For a phase, this is a message about an earlier phase of the same buffer. For the message
 * with which a rank leaves the group, it is any earlier message of the rank. Also set *is_latest to
 * true if the rank has no earlier incomplete message. */
static bool must_wait(const fsdp_mpi_progress *p, const fsdp_mpi_incoming *in, bool *is_latest)
{
    bool waits = false;
    *is_latest = true;
    for (const fsdp_mpi_incoming *e = p->receiving; e != in; e = e->next) {
        if (e->message.source != in->message.source)
            continue;
        *is_latest = false;
        waits |= in->message.kind == FSDP_MPI_LEFT ||
                 (needs_buffer(&in->message) && e->message.buffer == in->message.buffer);
    }
    return waits;
}

static void advance_all(fsdp_mpi_progress *p)
{
    for (fsdp_mpi_incoming **at = &p->receiving, *in; !p->is_failing && (in = *at) != NULL;) {
        bool is_latest;
        if (!is_complete(p, in) || must_wait(p, in, &is_latest)) {
            at = &in->next;
            continue;
        }
        show(p, in, is_latest);
        p->was_active = true;
        *at = in->next;
        if (!*at)
            p->receiving_end = at;
        drop(in);
    }
}

/* ---- headers ---- */

static bool post_inbox(fsdp_mpi_progress *p)
{
    memset(&p->inbox, 0, sizeof p->inbox);
    p->has_inbox =
        check(p, "MPI_Irecv",
              p->world.abi->irecv(p->world.comm, &p->inbox, (int)sizeof p->inbox,
                                  FSDP_MPI_ANY_SOURCE, FSDP_MPI_HEADER_TAG, &p->inbox_request));
    return p->has_inbox;
}

static fsdp_status add_list(fsdp_mpi_progress *p, fsdp_mpi_incoming *in)
{
    const fsdp_mpi_message *m = &in->message;
    in->has_list = m->n_ranges <= FSDP_MPI_INLINE_RANGES;
    if (!m->n_ranges)
        return FSDP_OK;
    in->ranges = fsdp_calloc(m->n_ranges, sizeof *in->ranges);
    if (!in->ranges)
        return fsdp_error_nomem();
    if (in->has_list) {
        memcpy(in->ranges, m->ranges, m->n_ranges * sizeof *m->ranges);
        return FSDP_OK;
    }
    const int code =
        p->world.abi->irecv(p->world.comm, in->ranges, (int)(m->n_ranges * sizeof *in->ranges),
                            m->source, (int)m->tag, &in->list_request);
    return code ? fsdp_mpi_error(p->world.abi, "MPI_Irecv", code) : FSDP_OK;
}

static fsdp_status take_header(fsdp_mpi_progress *p)
{
    const fsdp_mpi_message *m = &p->inbox;
    if (!is_rank(p, m->source) || m->kind > FSDP_MPI_LEFT || m->n_ranges > FSDP_MPI_MOST_RANGES ||
        m->tag < 1 || m->tag > FSDP_MPI_LAST_TAG || (m->kind == FSDP_MPI_ENDED && !m->count) ||
        (m->kind != FSDP_MPI_ENDED && m->n_ranges))
        return fsdp_error(FSDP_ERR_COMM, "mpi: a message came that fsdp has not sent");
    fsdp_mpi_incoming *in = fsdp_calloc(1, sizeof *in);
    if (!in)
        return fsdp_error_nomem();
    in->message = *m;
    const fsdp_status status = add_list(p, in);
    if (status != FSDP_OK) {
        drop(in);
        return status;
    }
    *p->receiving_end = in;
    p->receiving_end = &in->next;
    return FSDP_OK;
}

void fsdp_mpi_advance_incoming(fsdp_mpi_progress *p)
{
    for (bool done = true; done && !p->is_failing;) {
        if (!p->has_inbox && !post_inbox(p))
            return;
        if (!check(p, "MPI_Test", p->world.abi->test(&p->inbox_request, &done, NULL)))
            return;
        if (!done)
            break;
        p->has_inbox = false;
        p->was_active = true;
        const fsdp_status status = take_header(p);
        if (status != FSDP_OK)
            fsdp_mpi_give_up(p, status);
    }
    advance_all(p);
}

bool fsdp_mpi_close_inbox(fsdp_mpi_progress *p)
{
    const int64_t limit_ns = fsdp_clock_ns() + 1000000000;
    bool done = !p->has_inbox;
    if (p->is_broken || (!done && p->world.abi->cancel(&p->inbox_request)))
        return false;
    while (!done && fsdp_clock_ns() < limit_ns) {
        if (p->world.abi->test(&p->inbox_request, &done, NULL))
            return false;
        if (!done)
            nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
    }
    p->has_inbox = false;
    return done;
}
