/* The transport "shm": ranks are processes of one host. Each shared buffer is a memfd that the
 * first rank of the host creates and sends to the other ranks of the host, over sockets that the
 * ranks inherit from the launcher (rendezvous.h). A process maps only memory that belongs to its
 * own user and whose size cannot change. A descriptor is closed after its memory has been mapped,
 * so the limit on open files does not limit the number of buffers. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "src/base/alloc.h"
#include "src/comm/agree.h"
#include "src/comm/fd.h"
#include "src/comm/group.h"
#include "src/comm/rendezvous.h"
#include "src/comm/shm.h"

/* The message that accompanies a descriptor. The descriptor is the memfd of a buffer, or a socket
 * for a new group. */
typedef struct fd_message {
    uint64_t magic, number;
    uint64_t detail; /* memfd: its size in bytes; socket: the rank at its other end */
} fd_message;
static const uint64_t buffer_magic = 0x6673647062756600u, socket_magic = 0x66736470736b7400u;

/* ---- buffers ---- */

fsdp_status fsdp_shm_memory_create(fsdp_group *group, size_t bytes, size_t least,
                                   fsdp_comm_memory *memory, fsdp_comm_offer *offer)
{
    fsdp_shm *shm = group->impl;
    fd_message message = {buffer_magic, ++shm->sent, bytes};
    int fd;
    offer->number = message.number;
    if (fsdp_group_spans_hosts(group)) /* see Note [Memory on several hosts] in shm.h */
        least /= (size_t)(group->world_size / group->local_world_size);
    FSDP_TRY(least < bytes ? fsdp_memfd_create_sparse("shm", bytes, least, &fd)
                           : fsdp_memfd_create("shm", bytes, &fd));
    fsdp_status status = fsdp_memfd_map("shm", fd, bytes, &memory->data);
    memory->bytes = bytes;
    for (int r = 0; status == FSDP_OK && r < group->world_size; r++) {
        if (r == group->rank || !fsdp_group_is_here(group, r))
            continue;
        status = fsdp_fd_send(shm->sockets[r], &message, sizeof message, fd);
        fsdp_error_context(status, "shm: to rank %d", r);
    }
    close(fd);
    return status;
}

/* Receive the message with this magic and number, and its descriptor, from rank `root`, the first
 * rank of this host. Rank `root` sent the message before it ended a WRITE phase, and this rank has
 * waited for the end of that phase. So the message has arrived. Messages about a buffer or a split
 * that failed are skipped. */
static fsdp_status receive_fd(fsdp_shm *shm, int root, uint64_t magic, uint64_t number,
                              fd_message *message, int *fd)
{
    for (;;) {
        FSDP_TRY(fsdp_fd_receive(shm->sockets[root], message, sizeof *message, fd));
        if (message->magic == magic && message->number == number)
            return FSDP_OK;
        close(*fd);
        bool other = message->magic == (magic == buffer_magic ? socket_magic : buffer_magic);
        if (!other && (message->magic != magic || message->number > number))
            return fsdp_error(FSDP_ERR_COMM, "shm: a message that is not for this rank's request");
    }
}

fsdp_status fsdp_shm_memory_attach(fsdp_group *group, size_t bytes, const fsdp_comm_offer *offer,
                                   fsdp_comm_memory *memory)
{
    size_t size;
    int fd;
    fd_message message;
    FSDP_TRY(receive_fd(group->impl, fsdp_group_local_root(group), buffer_magic, offer->number,
                        &message, &fd));
    fsdp_status status = fsdp_memfd_check("shm", fd, &size);
    if (status == FSDP_OK && size != bytes)
        status = fsdp_error(FSDP_ERR_COMM, "shm: a buffer of %zu bytes came instead of %zu", size,
                            bytes);
    if (status == FSDP_OK)
        status = fsdp_memfd_map("shm", fd, bytes, &memory->data);
    memory->bytes = bytes;
    close(fd);
    return status;
}

void fsdp_shm_memory_release(fsdp_comm_memory *memory)
{
    munmap(memory->data, memory->bytes);
}

/* Remove the pages from the memfd, and so from the mappings of all ranks. If the kernel refuses,
 * the pages are kept, which costs memory but does no harm. */
void fsdp_shm_memory_discard(void *pages, size_t bytes)
{
    (void)madvise(pages, bytes, MADV_REMOVE);
}

/* ---- joining ---- */

void fsdp_shm_destroy(fsdp_shm *shm)
{
    if (!shm)
        return;
    for (int r = 0; shm->sockets && r < shm->world_size; r++)
        if (shm->sockets[r] >= 0)
            close(shm->sockets[r]);
    if (shm->control_fd >= 0)
        close(shm->control_fd);
    fsdp_free(shm->sockets);
    fsdp_free(shm);
}

static void close_group(fsdp_group *group)
{
    if (!group->members) { /* a group that was split off uses the heartbeat and the control block of
                              the world */
        fsdp_heartbeat_stop(group->heartbeat);
        munmap(group->control, fsdp_comm_control_bytes(group->world_size));
    }
    fsdp_shm_destroy(group->impl);
}

static fsdp_status malformed_rendezvous(const char *text)
{
    return fsdp_error(FSDP_ERR_INVALID,
                      "environment: " FSDP_RENDEZVOUS_ENV " is '%s', which `fsdp launch` of this "
                      "version does not pass for this rank",
                      text);
}

/* Read the next number of a blank-separated list. */
static bool next_number(const char **text, int *number)
{
    char *end;
    errno = 0;
    long value = strtol(*text, &end, 10);
    if (end == *text || errno || value < 0 || value > 1 << 30)
        return false;
    *text = end;
    *number = (int)value;
    return true;
}

/* Parse world->rendezvous, which lists the descriptors that this rank inherited (rendezvous.h). The
 * list may be wrong and name other open files of this process, which this rank must not close. So
 * this function only stores the numbers. take_descriptors() checks all descriptors before this rank
 * owns them. */
static fsdp_status parse_rendezvous(const fsdp_comm_world *world, fsdp_shm *shm, int *control_fd)
{
    const char *text = world->rendezvous;
    int version = 0;
    if (!next_number(&text, &version) || version != 1 || !next_number(&text, control_fd))
        return malformed_rendezvous(world->rendezvous);
    for (int r = 0; r < world->world_size; r++)
        if (r != world->rank && (r == 0 || world->rank == 0) &&
            !next_number(&text, &shm->sockets[r]))
            return malformed_rendezvous(world->rendezvous);
    return *text ? malformed_rendezvous(world->rendezvous) : FSDP_OK;
}

static fsdp_status take_descriptors(const fsdp_comm_world *world, fsdp_shm *shm, size_t *bytes)
{
    int control_fd = -1;
    fsdp_status status = parse_rendezvous(world, shm, &control_fd);
    if (status == FSDP_OK)
        status = fsdp_memfd_check(FSDP_RENDEZVOUS_ENV, control_fd, bytes);
    for (int r = 0; status == FSDP_OK && r < world->world_size; r++)
        if (shm->sockets[r] >= 0)
            status = fsdp_socket_check(FSDP_RENDEZVOUS_ENV, shm->sockets[r]);
    if (status != FSDP_OK) {
        for (int r = 0; r < world->world_size; r++)
            shm->sockets[r] = -1;
        return status;
    }
    shm->control_fd = control_fd;
    fcntl(control_fd, F_SETFD, FD_CLOEXEC);
    for (int r = 0; r < world->world_size; r++)
        if (shm->sockets[r] >= 0)
            fcntl(shm->sockets[r], F_SETFD, FD_CLOEXEC);
    return FSDP_OK;
}

fsdp_status fsdp_shm_create(int world_size, fsdp_shm **out)
{
    fsdp_shm *shm = fsdp_calloc(1, sizeof *shm);
    if (!shm)
        return fsdp_error_nomem();
    shm->world_size = world_size;
    shm->control_fd = -1;
    shm->sockets = fsdp_calloc((size_t)world_size, sizeof *shm->sockets);
    if (!shm->sockets) {
        fsdp_free(shm);
        return fsdp_error_nomem();
    }
    for (int r = 0; r < world_size; r++)
        shm->sockets[r] = -1;
    *out = shm;
    return FSDP_OK;
}

static fsdp_status map_control(const fsdp_comm_world *world, fsdp_shm *shm, size_t bytes,
                               fsdp_comm_control **out)
{
    void *mapped;
    FSDP_TRY(fsdp_memfd_map(FSDP_RENDEZVOUS_ENV, shm->control_fd, bytes, &mapped));
    fsdp_comm_control *control = mapped;
    fsdp_status status = fsdp_comm_control_verify(control, bytes, world->world_size);
    if (status == FSDP_OK && atomic_exchange(&control->board[world->rank].joined, 1))
        status = fsdp_error(FSDP_ERR_STATE, "rank %d has joined before", world->rank);
    if (status != FSDP_OK) {
        munmap(mapped, bytes);
        return status;
    }
    close(shm->control_fd);
    shm->control_fd = -1;
    *out = control;
    return FSDP_OK;
}

/* Fill in `shm` and `group`. After a failure, the caller releases what they contain: if
 * group->control is set, it is a mapping of *control_bytes bytes. */
static fsdp_status join_world(const fsdp_comm_world *world, fsdp_shm *shm, fsdp_group *group,
                              size_t *control_bytes)
{
    FSDP_TRY(take_descriptors(world, shm, control_bytes));
    FSDP_TRY(map_control(world, shm, *control_bytes, &group->control));
    group->impl = shm;
    group->rank = world->rank;
    group->world_size = world->world_size;
    group->local_rank = world->local_rank;
    group->local_world_size = world->local_world_size;
    FSDP_TRY(fsdp_group_init(group, &fsdp_comm_shm));
    return fsdp_heartbeat_start(group->control, group->rank, group->stall_s, &group->heartbeat);
}

static fsdp_status open_group(const fsdp_comm_world *world, fsdp_group **out)
{
    size_t control_bytes = 0;
    fsdp_shm *shm = NULL;
    if (world->local_world_size != world->world_size || world->local_rank != world->rank)
        return fsdp_error(FSDP_ERR_UNSUPPORTED,
                          "WORLD_SIZE is %d and LOCAL_WORLD_SIZE %d: shm joins ranks of one host",
                          world->world_size, world->local_world_size);
    if (!world->rendezvous)
        return fsdp_error(FSDP_ERR_UNSUPPORTED,
                          "WORLD_SIZE is %d, but " FSDP_RENDEZVOUS_ENV " is not set: start the "
                          "ranks with `fsdp launch -n %d ...` instead of torchrun or by hand",
                          world->world_size, world->world_size);
    FSDP_TRY(fsdp_shm_create(world->world_size, &shm));
    fsdp_group *group = fsdp_calloc(1, sizeof *group);
    fsdp_status status = group ? join_world(world, shm, group, &control_bytes) : fsdp_error_nomem();
    if (status == FSDP_OK) {
        *out = group;
        return FSDP_OK;
    }
    if (group && group->control)
        munmap(group->control, control_bytes);
    fsdp_shm_destroy(shm);
    fsdp_free(group);
    return status;
}

/* ---- groups that are split off ---- */

/* `fd` is one end of a socket pair between ranks `to` and `peer` of the parent. Send it to rank
 * `to`, or store it in `own` if this rank is `to`. */
static fsdp_status hand_over(fsdp_group *parent, fsdp_shm *own, int to, int peer,
                             const fsdp_group *group, int fd)
{
    const fsdp_shm *shm = parent->impl;
    const fd_message message = {socket_magic, parent->n_split, (uint64_t)peer};
    if (to == parent->rank) {
        int at = fsdp_group_rank_of_world(group, fsdp_group_world_rank(parent, peer));
        own->sockets[at] = fd;
        return FSDP_OK;
    }
    fsdp_status status = fsdp_fd_send(shm->sockets[to], &message, sizeof message, fd);
    fsdp_error_context(status, "shm: to rank %d", fsdp_group_world_rank(parent, to));
    close(fd);
    return status;
}

/* Called on the first rank of the parent on each host. All rank numbers here are ranks in the
 * parent. If rank r is in a new group with other ranks, roots[r] is the first rank of that group on
 * r's host. Otherwise roots[r] is -1. On each host, a new group needs one socket pair between its
 * first rank there and each of its other ranks there. Create these pairs, and send the two ends of
 * each pair to its two ranks. */
static fsdp_status send_sockets(fsdp_group *parent, const int *roots, const fsdp_group *group,
                                fsdp_shm *own)
{
    for (int r = 0; r < parent->world_size; r++) {
        int pair[2];
        if (roots[r] < 0 || roots[r] == r || !fsdp_group_is_here(parent, r))
            continue;
        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0)
            return fsdp_error(FSDP_ERR_IO, "shm: socketpair: %s", strerror(errno));
        fsdp_status status = hand_over(parent, own, roots[r], r, group, pair[0]);
        if (status != FSDP_OK) {
            close(pair[1]);
            return status;
        }
        FSDP_TRY(hand_over(parent, own, r, roots[r], group, pair[1]));
    }
    return FSDP_OK;
}

static fsdp_status receive_socket(fsdp_group *parent, const fsdp_group *group, fsdp_shm *own)
{
    fd_message message;
    int fd;
    FSDP_TRY(receive_fd(parent->impl, fsdp_group_local_root(parent), socket_magic, parent->n_split,
                        &message, &fd));
    const int peer = (int)message.detail;
    const int at = message.detail < (uint64_t)parent->world_size
                       ? fsdp_group_rank_of_world(group, fsdp_group_world_rank(parent, peer))
                       : -1;
    if (at < 0 || own->sockets[at] >= 0) {
        close(fd);
        return fsdp_error(FSDP_ERR_COMM, "shm: a socket to rank %d, which is no peer", peer);
    }
    own->sockets[at] = fd;
    return FSDP_OK;
}

/* Receive this rank's sockets in the new group. The first rank of the group on a host gets a socket
 * to every other rank of the group on that host. Every other rank gets one socket to the first
 * rank. */
static fsdp_status receive_sockets(fsdp_group *parent, const fsdp_group *group, fsdp_shm *own)
{
    const bool is_first = group && group->local_rank == 0;
    const int n = !group || group->local_world_size == 1 ? 0
                  : is_first                             ? group->local_world_size - 1
                                                         : 1;
    for (int i = 0; i < n; i++)
        FSDP_TRY(receive_socket(parent, group, own));
    return FSDP_OK;
}

fsdp_status fsdp_shm_connect(fsdp_group *parent, fsdp_group *group)
{
    fsdp_shm *own = NULL;
    const int first = group ? fsdp_group_local_root(group) : -1;
    int root = group ? fsdp_group_rank_of_world(parent, group->members[first]) : -1;
    int *roots = fsdp_calloc((size_t)parent->world_size, sizeof *roots);
    fsdp_status status = roots ? FSDP_OK : FSDP_ERR_NOMEM;
    if (status == FSDP_OK && group)
        status = fsdp_shm_create(group->world_size, &own);
    if (own)
        group->impl = own;
    status = fsdp_agree(parent, status);
    if (status == FSDP_OK)
        status = fsdp_all_gather(parent, &root, sizeof root, roots);
    const bool sends = parent->local_rank == 0;
    if (status == FSDP_OK)
        status = fsdp_agree(parent, sends ? send_sockets(parent, roots, group, own) : FSDP_OK);
    if (status == FSDP_OK)
        status = fsdp_agree(parent, sends ? FSDP_OK : receive_sockets(parent, group, own));
    fsdp_free(roots);
    return status;
}

const fsdp_comm_ops fsdp_comm_shm = {
    .name = "shm",
    .open = open_group,
    .memory_create = fsdp_shm_memory_create,
    .memory_attach = fsdp_shm_memory_attach,
    .memory_release = fsdp_shm_memory_release,
    .memory_discard = fsdp_shm_memory_discard,
    .connect = fsdp_shm_connect,
    .close = close_group,
};
