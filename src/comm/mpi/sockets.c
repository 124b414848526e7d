/* See sockets.h. */
#include "src/comm/mpi/sockets.h"

#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "src/base/clock.h"
#include "src/comm/control.h"
#include "src/comm/fd.h"

static const int64_t limit_ns = 60000000000;
static const uint64_t hello_magic = 0x6673647068656c01u, control_magic = 0x6673647063746c01u;

/* What a rank sends first, and the message that accompanies the control block. */
typedef struct hello {
    uint64_t magic;
    int32_t rank;
} hello;

static fsdp_status socket_error(const char *what)
{
    return fsdp_error(FSDP_ERR_IO, "mpi: %s: %s", what, strerror(errno));
}

static fsdp_status wait_readable(int fd, int64_t deadline_ns, const char *what)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    for (;;) {
        const int64_t left_ms = (deadline_ns - fsdp_clock_ns()) / 1000000;
        const int ready = poll(&p, 1, left_ms > 0 ? (int)left_ms : 0);
        if (ready > 0)
            return FSDP_OK;
        if (ready < 0 && errno != EINTR)
            return socket_error("poll");
        if (ready == 0)
            return fsdp_error(FSDP_ERR_TIMEOUT, "mpi: waited %lld s for %s",
                              (long long)(limit_ns / 1000000000), what);
    }
}

fsdp_status fsdp_mpi_listen(int ranks, int *listener, fsdp_mpi_address *address)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    socklen_t size = sizeof name;
    const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return socket_error("socket");
    /* A name of zero length lets the kernel choose an abstract one. */
    if (bind(fd, (struct sockaddr *)&name, offsetof(struct sockaddr_un, sun_path)) != 0 ||
        listen(fd, ranks) != 0 || getsockname(fd, (struct sockaddr *)&name, &size) != 0) {
        const fsdp_status status = socket_error("listen");
        close(fd);
        return status;
    }
    const size_t length = size - offsetof(struct sockaddr_un, sun_path) - 1;
    if (length < 1 || length > sizeof address->name) {
        close(fd);
        return fsdp_error(FSDP_ERR_IO, "mpi: the kernel chose a socket name of %zu bytes", length);
    }
    address->length = (uint8_t)length;
    memcpy(address->name, name.sun_path + 1, length);
    *listener = fd;
    return FSDP_OK;
}

/* Accept one connection. Set *fd to -1 if it is not from a rank of this job. */
static fsdp_status accept_rank(int listener, const fsdp_mpi_world *w, const fsdp_shm *shm,
                               int64_t deadline_ns, int *fd, int *rank)
{
    hello from = {0};
    FSDP_TRY(wait_readable(listener, deadline_ns, "the other ranks of this host"));
    *fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (*fd < 0)
        return errno == EAGAIN || errno == ECONNABORTED || errno == EINTR ? FSDP_OK
                                                                          : socket_error("accept");
    /* fsdp_socket_check() rejects processes of other users. A rank sends its hello at once. */
    struct pollfd p = {.fd = *fd, .events = POLLIN};
    const bool is_rank = fsdp_socket_check("mpi", *fd) == FSDP_OK && poll(&p, 1, 1000) == 1 &&
                         recv(*fd, &from, sizeof from, MSG_DONTWAIT) == (ssize_t)sizeof from &&
                         from.magic == hello_magic && from.rank > w->rank &&
                         from.rank < w->rank + w->ranks_per_host && shm->sockets[from.rank] < 0;
    *rank = from.rank;
    if (!is_rank) {
        close(*fd);
        *fd = -1;
    }
    return FSDP_OK;
}

/* Create the control block, and send it to the other ranks of this host. */
static fsdp_status send_control(const fsdp_mpi_world *w, fsdp_shm *shm)
{
    const size_t bytes = fsdp_comm_control_bytes(w->world_size);
    const hello message = {.magic = control_magic, .rank = w->rank};
    void *mapped;
    FSDP_TRY(fsdp_memfd_create("mpi", bytes, &shm->control_fd));
    FSDP_TRY(fsdp_memfd_map("mpi", shm->control_fd, bytes, &mapped));
    fsdp_comm_control_init(mapped, w->world_size);
    if (w->is_test) /* imagined hosts share the cores of one machine */
        ((fsdp_comm_control *)mapped)->cores /= (uint32_t)w->n_hosts;
    munmap(mapped, bytes);
    for (int r = w->rank + 1; r < w->rank + w->ranks_per_host; r++)
        FSDP_TRY(fsdp_fd_send(shm->sockets[r], &message, sizeof message, shm->control_fd));
    return FSDP_OK;
}

fsdp_status fsdp_mpi_accept_ranks(int listener, const fsdp_mpi_world *w, fsdp_shm *shm)
{
    const int64_t deadline_ns = fsdp_clock_ns() + limit_ns;
    for (int n = 1; n < w->ranks_per_host;) {
        int fd, rank;
        FSDP_TRY(accept_rank(listener, w, shm, deadline_ns, &fd, &rank));
        if (fd < 0)
            continue;
        shm->sockets[rank] = fd;
        n++;
    }
    return send_control(w, shm);
}

fsdp_status fsdp_mpi_connect_to(const fsdp_mpi_address *address, const fsdp_mpi_world *w,
                                fsdp_shm *shm)
{
    const int first = w->rank - w->local_rank;
    const hello own = {.magic = hello_magic, .rank = w->rank};
    hello answer;
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    memcpy(name.sun_path + 1, address->name, address->length);
    const socklen_t size =
        (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + address->length);
    const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return socket_error("socket");
    shm->sockets[first] = fd;
    if (connect(fd, (struct sockaddr *)&name, size) != 0)
        return fsdp_error(FSDP_ERR_IO,
                          "mpi: rank %d cannot connect to rank %d, which MPI says is on the same "
                          "host: %s (ranks of one host must not be in different containers)",
                          w->rank, first, strerror(errno));
    FSDP_TRY(fsdp_socket_check("mpi", fd));
    if (send(fd, &own, sizeof own, MSG_NOSIGNAL) != (ssize_t)sizeof own)
        return socket_error("send");
    FSDP_TRY(wait_readable(fd, fsdp_clock_ns() + limit_ns, "the first rank of this host"));
    FSDP_TRY(fsdp_fd_receive(fd, &answer, sizeof answer, &shm->control_fd));
    return answer.magic == control_magic && answer.rank == first
               ? FSDP_OK
               : fsdp_error(FSDP_ERR_COMM, "mpi: rank %d sent no control block", first);
}
