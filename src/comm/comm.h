/* Process groups inside the library: shared buffers and their phases. <fsdp/comm.h> has the
 * collectives on small arrays.
 *
 * Note [Phases]. Everything that peers read (float32 master weights, a bfloat16 copy, a pool
 * buffer, a gradient buffer) is in a shared buffer. On each buffer, every rank of the group runs
 * the same sequence of phases. In a WRITE phase, a rank writes its own part of the buffer. In a
 * READ phase, a rank may read the whole buffer. A rank's READ phase begins when every rank has
 * ended the WRITE phase before it. A rank's WRITE phase begins when every rank has ended all
 * earlier phases. The state is one 64-bit counter per rank and buffer: the number of phases of the
 * buffer that the rank has ended. fsdp_phase_begin() waits for the counters of the peers.
 * fsdp_phase_end() increments this rank's counter with release semantics and wakes peers that wait
 * for it. There is no other lock.
 *
 * FSDP_PHASE_REWRITE is for a computation in several stages. Between stages, a rank waits only for
 * the ranks of its host, or only for the bytes that it reads.
 *
 * If the ranks of a group are on several hosts, each host has its own memory for the buffer, with
 * the counters of all ranks. In a WRITE phase, a rank declares with fsdp_phase_wrote() which bytes
 * it writes. When the phase ends, the bytes and the counter are sent to the other hosts, where the
 * counter becomes visible after the bytes. Bytes that a rank of another host has written, but has
 * not declared for a rank of this host, are undefined on this host.
 *
 * Every phase has an fsdp_phase_info. A rank compares its info with the infos of its peers for the
 * phase with the same number. If two ranks have different infos, all ranks return an error that
 * says what these two ranks do ("rank 1 begins ... of unit 3, but rank 0 began ... of unit 4"). A
 * rank that fails posts its failure (rank, step, unit, call, message) and sets the abort word
 * (control.h). Every wait polls the abort word. So the peers soon return FSDP_ERR_COMM with this
 * message. */
#pragma once
#include <fsdp/comm.h>
#include <fsdp/tensor.h>

typedef struct fsdp_shared_buffer fsdp_shared_buffer;

typedef enum fsdp_phase {
    FSDP_PHASE_WRITE,
    FSDP_PHASE_READ,
    /* A further WRITE phase. It is for bytes that are computed from what the ranks of this host
     * wrote in the previous phase, or from what this rank read in the previous phase. A REWRITE
     * phase begins when the ranks of this host have ended the previous phase. It does not wait for
     * ranks of other hosts. So a rank may write only bytes that ranks of this host wrote, and bytes
     * that no other rank has read or written since the last FSDP_PHASE_WRITE. No other rank may
     * read or write these bytes in the REWRITE phase. */
    FSDP_PHASE_REWRITE
} fsdp_phase;

/* What a rank does in a phase. It must be equal on all ranks. */
typedef struct fsdp_phase_info {
    /* In a phase of an FSDP unit, the number of the unit. In a collective of <fsdp/comm.h>, the
     * number of the collective. When a buffer is created or its pages are discarded, the number of
     * the buffer. */
    uint32_t unit;
    uint32_t step;
    uint16_t kind;  /* fsdp_comm_kind */
    uint16_t dtype; /* fsdp_dtype */
    uint64_t bytes; /* size of the whole tensors, even if no bytes are copied */
} fsdp_phase_info;

typedef fsdp_comm_kind fsdp_phase_kind;

/* Create a buffer with `bytes` of zero-filled, page-aligned memory that all ranks map. Collective:
 * every rank creates the same buffers in the same order. In a world of size 1, a buffer is plain
 * memory, and phases cost nothing. Return FSDP_ERR_UNSUPPORTED on all ranks if the group has
 * already created 65535 buffers. */
FSDP_MUST_CHECK fsdp_status fsdp_shared_buffer_create(fsdp_group *group, size_t bytes,
                                                      fsdp_shared_buffer **buffer);
/* Create a buffer whose data is in the memory of `device`. The devices of all ranks must be of the
 * same kind. For a CPU, this is fsdp_shared_buffer_create(). For a GPU, phases do not wait for
 * kernels, so a rank must call fsdp_phase_send() before it ends a phase. If each rank has a card of
 * its own, each rank has its own memory for the data: Note [Several cards] in cards/exchange.h. */
FSDP_MUST_CHECK fsdp_status fsdp_shared_buffer_create_on(fsdp_group *group,
                                                         const fsdp_device *device, size_t bytes,
                                                         fsdp_shared_buffer **buffer);
/* Unmap this rank's view of the buffer. Not collective. Accepts NULL. */
void fsdp_shared_buffer_destroy(fsdp_shared_buffer *buffer);
void *fsdp_shared_buffer_data(fsdp_shared_buffer *buffer);
/* Return pages of the buffer to the system. The data consists of equal parts, one for each rank of
 * the group on this host. The first `keep` bytes of each part stay, and the pages after them are
 * discarded: their content is undefined until the next WRITE phase. `keep` must be a multiple of
 * the page size. Collective; call this between phases. Each rank calls this after its last read,
 * and does not wait for the reads of its peers. The rank that calls this last discards the pages
 * for all ranks. If the ranks are threads, no memory is returned. No effect if the data is on a
 * card, or if the previous discard kept at most `keep` bytes of each part and no WRITE phase has
 * followed it. */
FSDP_MUST_CHECK fsdp_status fsdp_shared_buffer_discard(fsdp_shared_buffer *buffer, size_t keep);

/* Create the device of this rank for a command. options->local_rank is ignored; this rank's number
 * on its host is used instead. If options->name is NULL, $FSDP_DEVICE gives the name; the default
 * is auto (Note [Choosing a device] in src/tensor/cards.h). If options->threads is 0, the number of
 * threads is the one that fsdp_default_threads() chooses. If a rank fails, all ranks return its
 * error. Collective. */
FSDP_MUST_CHECK fsdp_status fsdp_rank_device_create(fsdp_group *group,
                                                    const fsdp_device_options *options,
                                                    fsdp_device **device);

/* Begin a phase: see Note [Phases]. Return FSDP_ERR_STATE if this rank has not ended the previous
 * phase of the buffer. */
FSDP_MUST_CHECK fsdp_status fsdp_phase_begin(fsdp_shared_buffer *buffer, fsdp_phase phase,
                                             const fsdp_phase_info *info);
/* Declare that this rank writes the `bytes` bytes at `offset` in the open WRITE or REWRITE phase.
 * They must be written when the phase ends. Rank `reader` of the group, or every rank if `reader`
 * is FSDP_ALL_READERS, reads these bytes in the next READ phases. Ranks of other hosts, and ranks
 * on other cards, get these bytes and no others. No effect if all ranks share the buffer's memory,
 * or if no phase has begun. If memory runs out, the failure is posted, and the next phases of all
 * ranks fail. */
enum {
    FSDP_ALL_READERS = -1
};
void fsdp_phase_wrote(fsdp_shared_buffer *buffer, int reader, size_t offset, size_t bytes);
/* Do what fsdp_phase_wrote() does, but the reader reads the bytes at the offset `to` of its own
 * memory. `to` may differ from `offset` only if each rank has its own memory on its own card. */
void fsdp_phase_wrote_for(fsdp_shared_buffer *buffer, int reader, size_t offset, size_t to,
                          size_t bytes);
/* Call this for a buffer on a device after the last kernel of a phase was started. It begins to
 * send the bytes that this rank has declared (fsdp_phase_wrote()) to their readers on other cards.
 * Return true if the caller must wait for its kernels before it ends the phase. */
bool fsdp_phase_send(fsdp_shared_buffer *buffer);
/* Return true if the bytes of other ranks arrive in the stream of this rank's kernels. These bytes
 * may arrive after the READ phase has begun. So host code must wait for the kernels before it reads
 * them. */
bool fsdp_phase_arrives_late(const fsdp_shared_buffer *buffer);
/* End the phase that this rank has begun. No effect if fsdp_phase_begin() failed. */
void fsdp_phase_end(fsdp_shared_buffer *buffer);

/* Return true if no rank of the group from `begin` to `rank` - 1 is on the host of `rank`. */
bool fsdp_group_is_first_of_host(const fsdp_group *group, int begin, int rank);

/* Return the address of the group's counters, which keep changing. fsdp_group_get_counters()
 * returns a copy of the counters. */
const fsdp_comm_counters *fsdp_group_counters(const fsdp_group *group);
/* Give rank 0 the data of all ranks: copy `send` [bytes] of each rank, in rank order, to `recv`
 * [world_size * bytes] on rank 0. On other ranks, `recv` is not used and may be NULL. If `group` is
 * NULL, there is only this rank. Collective. */
FSDP_MUST_CHECK fsdp_status fsdp_gather(fsdp_group *group, const void *send, size_t bytes,
                                        void *recv);
/* Bytes that one rank sends to another rank in fsdp_exchange_pieces(). */
typedef struct fsdp_piece {
    int reader; /* the rank of the group that gets the bytes */
    const void *data;
    size_t bytes; /* at most FSDP_PIECE_BYTES */
} fsdp_piece;
enum {
    FSDP_PIECE_BYTES = 1 << 18
};
/* Each rank sends `pieces` [n] to other ranks or to itself, and gets `recv_bytes` bytes in `recv`.
 * At most one rank may send a piece to a given rank, and the reader must know the size of the
 * piece. If no rank sends a piece to this rank, recv_bytes is 0. A piece is sent to another host
 * only if its reader is on that host. Collective. */
FSDP_MUST_CHECK fsdp_status fsdp_exchange_pieces(fsdp_group *group, const fsdp_piece *pieces,
                                                 size_t n, void *recv, size_t recv_bytes);
/* Return true if the ranks of the group are on several hosts. Return false if `group` is NULL. */
bool fsdp_group_is_on_several_hosts(const fsdp_group *group);
/* Return true if no rank below `rank` is on the host of `rank`. Return true if `group` is NULL. */
bool fsdp_group_leads_host(const fsdp_group *group, int rank);
/* Return the text "host NAME (ranks 2 to 3)". NAME is the host of `rank`, and the ranks are those
 * of the group on this host. */
typedef struct fsdp_host_text {
    char text[320];
} fsdp_host_text;
fsdp_host_text fsdp_group_host_text(const fsdp_group *group, int rank);
/* Return the name of the host of `rank`. The text is valid until the group is destroyed. Return ""
 * if the transport knows no names. */
const char *fsdp_group_host_name(const fsdp_group *group, int rank);
/* Count a collective that FSDP2 would run here. Call this where this library needs no phase,
 * because every rank can already read what the collective would give it. */
void fsdp_group_count(fsdp_group *group, fsdp_phase_kind kind, uint64_t logical_bytes);

/* What a rank is doing: the step, unit and call. Error messages about the rank contain them. */
typedef struct fsdp_comm_location {
    _Alignas(8) uint32_t step;
    char unit[64], call[32]; /* "" if unknown */
} fsdp_comm_location;
/* Record what this rank is doing. If the rank fails, diverges or dies, the error messages of all
 * ranks contain the recorded step, unit and call. This function is cheap. */
void fsdp_group_at(fsdp_group *group, uint32_t step, const char *unit, const char *call);
/* Return the location that was last recorded with fsdp_group_at(). */
fsdp_comm_location fsdp_group_location(const fsdp_group *group);

/* Post a failure that concerns several ranks, such as a divergence. Its message is
 * fsdp_last_error(), which must already name these ranks. Another failure may have been posted
 * before this one. All ranks report the failure that was posted first. Return the status that the
 * caller must return. */
FSDP_MUST_CHECK fsdp_status fsdp_group_fail(fsdp_group *group, fsdp_status status);
/* Return the error of the failure that was posted first. Return FSDP_OK if there is none or `group`
 * is NULL. If a rank posts a failure before it ends a phase, all ranks that have waited for the end
 * of that phase see the failure. */
FSDP_MUST_CHECK fsdp_status fsdp_group_check(const fsdp_group *group);
/* Return true if a peer has died, has been stopped or has left the group. A peer that has failed or
 * diverged but still runs does not count. Return false if `group` is NULL. */
bool fsdp_group_has_lost_peer(const fsdp_group *group);

/* Set the number of threads with which each rank computes. Waits spin only if every thread of every
 * rank has a core of its own. */
void fsdp_group_set_threads(fsdp_group *group, int threads);
