/* Messages to other hosts; see exchange.h. */
#include <stddef.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/comm/mpi/exchange.h"

/* A message to one rank, and the bytes that follow it. */
struct fsdp_mpi_outgoing {
    fsdp_mpi_outgoing *next;
    int to; /* world rank */
    fsdp_mpi_message message;
    size_t header_bytes;
    fsdp_mpi_entry *entry;  /* NULL: no bytes follow */
    fsdp_mpi_range *ranges; /* [message.n_ranges] in buffer->data */
    fsdp_mpi_handle *requests;
    size_t n_requests, n_posted, n_done;
    bool is_posted;
};

static void drop(fsdp_mpi_outgoing *o)
{
    if (o->entry)
        atomic_fetch_sub(&o->entry->sending, 1);
    fsdp_free(o->ranges);
    fsdp_free(o->requests);
    fsdp_free(o);
}

void fsdp_mpi_drop_outgoing(fsdp_mpi_outgoing *list)
{
    for (fsdp_mpi_outgoing *next; list; list = next) {
        next = list->next;
        drop(list);
    }
}

void fsdp_mpi_append(fsdp_mpi_outgoing ***end, fsdp_mpi_outgoing *list)
{
    **end = list;
    while (**end)
        *end = &(**end)->next;
}

/* ---- creating messages ---- */

static bool is_on(const fsdp_group *group, int rank, int host)
{
    return fsdp_group_host(group, rank) == host;
}

/* This rank exchanges messages with one member of the group on `host`, its partner. Return the
 * partner's world rank, or -1 if the group has no member on `host`. If both hosts have the same
 * number of members, each member has a partner of its own. */
static int partner_on(const fsdp_group *group, int host)
{
    int n = 0, k = 0;
    for (int r = 0; r < group->world_size; r++)
        n += is_on(group, r, host);
    for (int r = 0; r < group->world_size && n; r++)
        if (is_on(group, r, host) && k++ == group->local_rank % n)
            return fsdp_group_world_rank(group, r);
    return -1;
}

/* Collect in `ranges` the written ranges that ranks on `host` read. Return the number of ranges. */
static size_t collect_ranges(const fsdp_shared_buffer *buffer, int host, fsdp_mpi_range *ranges)
{
    size_t n = 0;
    for (size_t i = 0; i < buffer->n_ranges; i++) {
        const fsdp_written_range *w = &buffer->ranges[i];
        if (w->reader != FSDP_ALL_READERS && !is_on(buffer->group, w->reader, host))
            continue;
        if (n && ranges[n - 1].offset + ranges[n - 1].bytes == w->offset)
            ranges[n - 1].bytes += w->bytes;
        else
            ranges[n++] = (fsdp_mpi_range){w->offset, w->bytes};
    }
    return n;
}

static size_t n_pieces(const fsdp_mpi_range *ranges, size_t n)
{
    size_t pieces = 0;
    for (size_t i = 0; i < n; i++)
        pieces += (ranges[i].bytes + FSDP_MPI_PIECE_BYTES - 1) / FSDP_MPI_PIECE_BYTES;
    return pieces;
}

static fsdp_status add_ranges(fsdp_mpi_outgoing *o, fsdp_mpi_entry *entry, int host)
{
    fsdp_shared_buffer *buffer = entry->buffer;
    fsdp_mpi_message *m = &o->message;
    if (buffer->n_ranges) {
        o->ranges = fsdp_calloc(buffer->n_ranges, sizeof *o->ranges);
        if (!o->ranges)
            return fsdp_error_nomem();
    }
    m->n_ranges = (uint32_t)collect_ranges(buffer, host, o->ranges);
    if (m->n_ranges && m->n_ranges <= FSDP_MPI_INLINE_RANGES)
        memcpy(m->ranges, o->ranges, m->n_ranges * sizeof *m->ranges);
    o->n_requests = n_pieces(o->ranges, m->n_ranges) + (m->n_ranges > FSDP_MPI_INLINE_RANGES);
    for (size_t i = 0; i < m->n_ranges && m->record.info.kind != FSDP_KIND_BUFFER; i++)
        buffer->group->counters.moved_bytes += o->ranges[i].bytes;
    o->header_bytes = offsetof(fsdp_mpi_message, ranges) +
                      (m->n_ranges <= FSDP_MPI_INLINE_RANGES ? m->n_ranges : 0) * sizeof *m->ranges;
    return FSDP_OK;
}

static fsdp_status create_message(const fsdp_mpi_world *w, fsdp_mpi_entry *entry,
                                  fsdp_mpi_kind kind, uint64_t count, int host,
                                  fsdp_mpi_outgoing **out)
{
    const fsdp_shared_buffer *buffer = entry->buffer;
    const fsdp_group *group = buffer->group;
    const uint64_t phase = kind == FSDP_MPI_ENDED ? count - 1 : count;
    fsdp_mpi_outgoing *o = fsdp_calloc(1, sizeof *o);
    if (!o)
        return fsdp_error_nomem();
    o->to = partner_on(group, host);
    o->message = (fsdp_mpi_message){
        .kind = (uint32_t)kind,
        .source = w->rank,
        .buffer = buffer->number,
        .rank = group->rank,
        .count = count,
        .record = buffer->lanes[group->rank].ring[phase % FSDP_PHASE_RING],
    };
    o->header_bytes = offsetof(fsdp_mpi_message, ranges);
    fsdp_status status = kind == FSDP_MPI_ENDED ? add_ranges(o, entry, host) : FSDP_OK;
    if (status == FSDP_OK) {
        o->n_requests++;
        o->requests = fsdp_calloc(o->n_requests, sizeof *o->requests);
        status = o->requests ? FSDP_OK : fsdp_error_nomem();
    }
    if (status != FSDP_OK) {
        drop(o);
        return status;
    }
    if (o->message.n_ranges) {
        o->entry = entry;
        atomic_fetch_add(&entry->sending, 1);
    }
    *out = o;
    return FSDP_OK;
}

fsdp_status fsdp_mpi_create_messages(const fsdp_mpi_world *w, fsdp_mpi_entry *entry,
                                     fsdp_mpi_kind kind, uint64_t count, fsdp_mpi_outgoing **list)
{
    fsdp_mpi_outgoing *made = NULL, **end = &made;
    for (int host = 0; host < w->n_hosts; host++) {
        if (host == w->host || partner_on(entry->buffer->group, host) < 0)
            continue;
        const fsdp_status status = create_message(w, entry, kind, count, host, end);
        if (status != FSDP_OK) {
            fsdp_mpi_drop_outgoing(made);
            return status;
        }
        end = &(*end)->next;
    }
    *list = made;
    return FSDP_OK;
}

/* ---- sending ---- */

static bool send(fsdp_mpi_progress *p, fsdp_mpi_outgoing *o, const void *data, size_t bytes,
                 uint32_t tag)
{
    const int code = p->world.abi->isend(p->world.comm, data, (int)bytes, o->to, (int)tag,
                                         &o->requests[o->n_posted]);
    if (code) {
        fsdp_mpi_break(p, "MPI_Isend", code);
        return false;
    }
    o->n_posted++;
    return true;
}

static bool send_range(fsdp_mpi_progress *p, fsdp_mpi_outgoing *o, const fsdp_mpi_range *range)
{
    const unsigned char *data = (const unsigned char *)o->entry->buffer->data + range->offset;
    for (uint64_t at = 0, n; at < range->bytes; at += n) {
        const uint64_t left = range->bytes - at;
        n = left < FSDP_MPI_PIECE_BYTES ? left : FSDP_MPI_PIECE_BYTES;
        if (!send(p, o, data + at, n, o->message.tag))
            return false;
    }
    return true;
}

/* Send everything at once. MPI itself holds long messages back until the receiver has posted a
 * receive for them. */
static void post(fsdp_mpi_progress *p, fsdp_mpi_outgoing *o)
{
    fsdp_mpi_message *m = &o->message;
    o->is_posted = true;
    m->tag = 1 + p->next_tag++ % FSDP_MPI_LAST_TAG;
    bool ok = send(p, o, m, o->header_bytes, FSDP_MPI_HEADER_TAG);
    if (ok && m->n_ranges > FSDP_MPI_INLINE_RANGES)
        ok = send(p, o, o->ranges, m->n_ranges * sizeof *o->ranges, m->tag);
    for (size_t i = 0; ok && i < m->n_ranges; i++)
        ok = send_range(p, o, &o->ranges[i]);
}

/* Return true if all sends of the message are complete. */
static bool is_complete(fsdp_mpi_progress *p, fsdp_mpi_outgoing *o)
{
    while (o->n_done < o->n_posted) {
        bool done;
        const int code = p->world.abi->test(&o->requests[o->n_done], &done, NULL);
        if (code)
            fsdp_mpi_break(p, "MPI_Test", code);
        if (code || !done)
            return false;
        o->n_done++;
        p->was_active = true;
    }
    return true;
}

/* Return true if the message may be sent. After a failure, messages about phases are not sent any
 * more: the buffer may not exist any more, and the other hosts know of the failure. */
static bool may_post(const fsdp_mpi_progress *p, const fsdp_mpi_outgoing *o)
{
    const bool is_phase =
        o->message.kind == FSDP_MPI_ANNOUNCED || o->message.kind == FSDP_MPI_ENDED;
    return !is_phase || !p->sent_failure;
}

void fsdp_mpi_advance_outgoing(fsdp_mpi_progress *p, fsdp_mpi_outgoing *queued)
{
    fsdp_mpi_append(&p->sending_end, queued);
    for (fsdp_mpi_outgoing **at = &p->sending, *o; !p->is_broken && (o = *at) != NULL;) {
        if (!o->is_posted && may_post(p, o))
            post(p, o);
        if (p->is_broken || !is_complete(p, o)) {
            at = &o->next;
            continue;
        }
        *at = o->next;
        if (!*at)
            p->sending_end = at;
        drop(o);
    }
}

void fsdp_mpi_notify_hosts(fsdp_mpi_progress *p, const fsdp_mpi_message *message)
{
    fsdp_mpi_outgoing *list = NULL, **end = &list;
    for (int host = 0; host < p->world.n_hosts; host++) {
        if (host == p->world.host)
            continue;
        fsdp_mpi_outgoing *o = fsdp_calloc(1, sizeof *o);
        fsdp_mpi_handle *requests = fsdp_calloc(1, sizeof *requests);
        if (!o || !requests) {
            fsdp_free(o);
            fsdp_free(requests);
            fsdp_mpi_drop_outgoing(list);
            fsdp_mpi_give_up(p, fsdp_error_nomem());
            return;
        }
        o->to = fsdp_mpi_partner(&p->world, host);
        o->message = *message;
        o->message.source = p->world.rank;
        o->header_bytes = sizeof o->message;
        o->requests = requests;
        o->n_requests = 1;
        *end = o;
        end = &o->next;
    }
    fsdp_mpi_advance_outgoing(p, list);
}
