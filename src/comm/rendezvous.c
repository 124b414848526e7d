/* The launcher's side of the shm transport; see rendezvous.h. */
#include "src/comm/rendezvous.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "src/base/alloc.h"
#include "src/comm/control.h"
#include "src/comm/fd.h"

struct fsdp_rendezvous {
    int world_size;
    int control_fd; /* -1 once closed */
    fsdp_comm_control *control;
    size_t control_bytes;
    /* [world_size] Item r: the two ends of the socket pair between ranks 0 and r; -1 if closed, or
     * if r is 0. */
    int (*pairs)[2];
};

enum {
    DIGITS = 12 /* maximum number of characters of an int with its sign and a separator */
};

static fsdp_status create_sockets(fsdp_rendezvous *rendezvous)
{
    const int world_size = rendezvous->world_size;
    rendezvous->pairs = fsdp_calloc((size_t)world_size, sizeof *rendezvous->pairs);
    if (!rendezvous->pairs)
        return fsdp_error_nomem();
    for (int r = 0; r < world_size; r++)
        rendezvous->pairs[r][0] = rendezvous->pairs[r][1] = -1;
    for (int r = 1; r < world_size; r++)
        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, rendezvous->pairs[r]) != 0)
            return fsdp_error(FSDP_ERR_IO, "rendezvous: socketpair for rank %d: %s", r,
                              strerror(errno));
    return FSDP_OK;
}

static fsdp_status create_control(fsdp_rendezvous *rendezvous)
{
    const size_t bytes = rendezvous->control_bytes;
    void *mapped;
    FSDP_TRY(fsdp_memfd_create("rendezvous", bytes, &rendezvous->control_fd));
    FSDP_TRY(fsdp_memfd_map("rendezvous", rendezvous->control_fd, bytes, &mapped));
    rendezvous->control = mapped;
    fsdp_comm_control_init(rendezvous->control, rendezvous->world_size);
    return FSDP_OK;
}

fsdp_status fsdp_rendezvous_create(int world_size, fsdp_rendezvous **rendezvous)
{
    if (world_size < 1 || world_size > FSDP_COMM_MAX_RANKS)
        return fsdp_error(FSDP_ERR_INVALID, "world_size is %d, not between 1 and %d", world_size,
                          FSDP_COMM_MAX_RANKS);
    fsdp_rendezvous *made = fsdp_calloc(1, sizeof *made);
    if (!made)
        return fsdp_error_nomem();
    made->world_size = world_size;
    made->control_fd = -1;
    made->control_bytes = fsdp_comm_control_bytes(world_size);
    fsdp_status status = create_sockets(made);
    if (status == FSDP_OK)
        status = create_control(made);
    if (status == FSDP_OK)
        *rendezvous = made;
    else
        fsdp_rendezvous_destroy(made);
    return status;
}

static void close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

void fsdp_rendezvous_forked(fsdp_rendezvous *rendezvous)
{
    close_fd(&rendezvous->control_fd);
    for (int r = 0; r < rendezvous->world_size; r++)
        for (int end = 0; end < 2; end++)
            close_fd(&rendezvous->pairs[r][end]);
}

void fsdp_rendezvous_destroy(fsdp_rendezvous *rendezvous)
{
    if (!rendezvous)
        return;
    if (rendezvous->pairs)
        fsdp_rendezvous_forked(rendezvous);
    if (rendezvous->control)
        munmap(rendezvous->control, rendezvous->control_bytes);
    fsdp_free(rendezvous->pairs);
    fsdp_free(rendezvous);
}

/* ---- environment and descriptors of a child ---- */

/* Return true if `end` of socket pair `pair` belongs to `rank`. In pair r, end 0 belongs to rank 0,
 * and end 1 belongs to rank r. */
static bool is_end_of_rank(int rank, int pair, int end)
{
    return end == 0 ? rank == 0 : rank == pair;
}

size_t fsdp_rendezvous_env_size(const fsdp_rendezvous *rendezvous)
{
    return (size_t)(rendezvous->world_size + 2) * DIGITS;
}

void fsdp_rendezvous_child_env(const fsdp_rendezvous *rendezvous, int rank, char *value,
                               size_t size)
{
    size_t at = (size_t)snprintf(value, size, "1 %d", rendezvous->control_fd);
    for (int r = 1; r < rendezvous->world_size; r++)
        if (at < size && (rank == 0 || rank == r))
            at += (size_t)snprintf(value + at, size - at, " %d", rendezvous->pairs[r][rank != 0]);
}

static void survive_exec(int fd)
{
    int flags = fcntl(fd, F_GETFD);
    if (flags >= 0)
        fcntl(fd, F_SETFD, flags & ~FD_CLOEXEC);
}

void fsdp_rendezvous_child(fsdp_rendezvous *rendezvous, int rank)
{
    survive_exec(rendezvous->control_fd);
    for (int r = 1; r < rendezvous->world_size; r++)
        for (int end = 0; end < 2; end++)
            if (is_end_of_rank(rank, r, end))
                survive_exec(rendezvous->pairs[r][end]);
            else
                close_fd(&rendezvous->pairs[r][end]);
}

/* ---- failures ---- */

void fsdp_rendezvous_abort(fsdp_rendezvous *rendezvous, int rank, const char *how)
{
    fsdp_comm_failure failure = {.rank = rank,
                                 .status = FSDP_ERR_COMM,
                                 .kind = FSDP_FAILURE_DIED,
                                 .at = fsdp_comm_place_get(&rendezvous->control->board[rank].at)};
    fsdp_comm_copy_text(failure.message, sizeof failure.message, how);
    (void)fsdp_comm_control_abort(rendezvous->control, rendezvous->world_size, &failure);
}

bool fsdp_rendezvous_failure(const fsdp_rendezvous *rendezvous, fsdp_rendezvous_report *report)
{
    fsdp_comm_failure first;
    if (!fsdp_comm_control_failure(rendezvous->control, &first))
        return false;
    *report = (fsdp_rendezvous_report){
        .rank = first.rank, .status = (fsdp_status)first.status, .step = first.at.step};
    fsdp_comm_copy_text(report->unit, sizeof report->unit, first.at.unit);
    fsdp_comm_copy_text(report->call, sizeof report->call, first.at.call);
    fsdp_comm_copy_text(report->message, sizeof report->message, first.message);
    fsdp_comm_failure_describe(&first, report->text, sizeof report->text);
    return true;
}

fsdp_rank_state fsdp_rendezvous_rank_state(const fsdp_rendezvous *rendezvous, int rank)
{
    const fsdp_comm_board *board = &rendezvous->control->board[rank];
    if (atomic_load(&board->left))
        return FSDP_RANK_LEFT;
    return atomic_load(&board->joined) ? FSDP_RANK_JOINED : FSDP_RANK_STARTING;
}
