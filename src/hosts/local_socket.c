/* See local_socket.h. */
#include "src/hosts/local_socket.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "src/base/alloc.h"
#include "src/hosts/big_endian.h"
#include "src/launch/launch.h"

enum {
    LENGTH_BYTES = 4,
    N_STREAMS = 3 /* stdin, stdout and stderr */
};

static fsdp_status socket_error(const char *what)
{
    return fsdp_error(FSDP_ERR_IO, "the socket of this host's launcher: %s: %s", what,
                      strerror(errno));
}

/* Fill in an abstract address: a NUL, then the name. */
static socklen_t make_address(const char *name, struct sockaddr_un *address)
{
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    const size_t length = strnlen(name, sizeof address->sun_path - 1);
    memcpy(address->sun_path + 1, name, length);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length);
}

fsdp_status fsdp_local_socket_listen(int *fd, char name[FSDP_LOCAL_NAME])
{
    struct sockaddr_un address;
    unsigned char random[12];
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
        return socket_error("getrandom");
    int at = snprintf(name, FSDP_LOCAL_NAME, "fsdp-launch-%d-", (int)getpid());
    for (size_t i = 0; i < sizeof random; i++)
        at += snprintf(name + at, (size_t)(FSDP_LOCAL_NAME - at), "%02x", random[i]);
    const socklen_t size = make_address(name, &address);
    *fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (*fd < 0 || bind(*fd, (struct sockaddr *)&address, size) != 0 || listen(*fd, 1024) != 0)
        return socket_error("listen");
    return FSDP_OK;
}

bool fsdp_local_socket_accept(int listener, int *fd, pid_t *pid)
{
    struct ucred peer;
    for (;;) {
        socklen_t size = sizeof peer;
        *fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (*fd < 0)
            return false;
        if (getsockopt(*fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == geteuid()) {
            *pid = peer.pid;
            return true;
        }
        close(*fd);
    }
}

/* Read what has arrived into *in. */
static fsdp_status receive(int fd, fsdp_str *in, bool *ended)
{
    char bytes[8192];
    for (;;) {
        const ssize_t n = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        *ended = n == 0;
        if (n < 0 && errno != EAGAIN)
            return socket_error("recv");
        if (n <= 0)
            return FSDP_OK;
        fsdp_str_append(in, bytes, (size_t)n);
        if (in->failed)
            return fsdp_error_nomem();
        if (in->len > LENGTH_BYTES + FSDP_HOSTS_MESSAGE_BYTES)
            return FSDP_OK;
    }
}

fsdp_status fsdp_local_socket_take(int fd, fsdp_str *in, fsdp_hosts_message *message, bool *taken,
                                   bool *ended)
{
    *taken = *ended = false;
    FSDP_TRY(receive(fd, in, ended));
    if (in->len < LENGTH_BYTES)
        return FSDP_OK;
    const size_t size = fsdp_get_big_endian(in->data);
    if (size > FSDP_HOSTS_MESSAGE_BYTES)
        return fsdp_error(FSDP_ERR_FORMAT, "a message of %zu bytes is too long", size);
    if (in->len < LENGTH_BYTES + size)
        return FSDP_OK;
    FSDP_TRY(fsdp_hosts_decode(in->data + LENGTH_BYTES, size, message));
    *taken = true;
    *ended = false; /* the caller calls this function again, and that call sets *ended */
    in->len -= LENGTH_BYTES + size;
    memmove(in->data, in->data + LENGTH_BYTES + size, in->len);
    return FSDP_OK;
}

/* Send all bytes. This blocks only for a short time, because the receiver reads at once. */
static fsdp_status send_all(int fd, const char *bytes, size_t n)
{
    while (n) {
        const ssize_t sent = send(fd, bytes, n, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0)
            return socket_error("send");
        bytes += sent;
        n -= (size_t)sent;
    }
    return FSDP_OK;
}

/* Let sends wait, but not forever: a stopped process must not stop its launcher. */
static fsdp_status make_blocking(int fd)
{
    const struct timeval timeout = {.tv_sec = 2};
    const int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fcntl(fd, F_SETFL, flags & ~O_NONBLOCK) != 0 ||
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof timeout) != 0)
        return socket_error("fcntl");
    return FSDP_OK;
}

fsdp_status fsdp_local_socket_send_plan(int fd, const char *bytes, size_t size)
{
    static const int streams[N_STREAMS] = {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO};
    union {
        struct cmsghdr head;
        char bytes[CMSG_SPACE(sizeof streams)];
    } control = {0};
    char length[LENGTH_BYTES];
    fsdp_put_big_endian(length, (uint32_t)size);
    struct iovec part = {.iov_base = length, .iov_len = sizeof length};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof control.bytes};
    control.head.cmsg_level = SOL_SOCKET;
    control.head.cmsg_type = SCM_RIGHTS;
    control.head.cmsg_len = CMSG_LEN(sizeof streams);
    memcpy(CMSG_DATA(&control.head), streams, sizeof streams);
    if (size > FSDP_HOSTS_MESSAGE_BYTES)
        return fsdp_error(FSDP_ERR_INVALID, "the command line is too long: %zu bytes", size);
    FSDP_TRY(make_blocking(fd));
    if (sendmsg(fd, &message, MSG_NOSIGNAL) != (ssize_t)sizeof length)
        return socket_error("sendmsg");
    return send_all(fd, bytes, size);
}

/* ---- for the ranks and agents, which connect to the launcher ---- */

fsdp_status fsdp_local_socket_connect(int *fd)
{
    const char *name = getenv(FSDP_LAUNCH_SOCKET_ENV);
    struct sockaddr_un address;
    if (!name || !*name)
        return fsdp_error(FSDP_ERR_INVALID,
                          "environment: " FSDP_LAUNCH_SOCKET_ENV
                          " is not set: only MPI's daemons run this command, for `fsdp launch`");
    const socklen_t size = make_address(name, &address);
    *fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (*fd >= 0 && connect(*fd, (struct sockaddr *)&address, size) == 0)
        return FSDP_OK;
    fsdp_status status = socket_error("connect");
    if (*fd >= 0)
        close(*fd);
    return status;
}

fsdp_status fsdp_local_socket_send(int fd, const fsdp_hosts_message *message)
{
    fsdp_str encoded = {0};
    char length[LENGTH_BYTES];
    fsdp_hosts_encode(message, &encoded);
    fsdp_status status = encoded.failed ? fsdp_error_nomem() : FSDP_OK;
    if (status == FSDP_OK && encoded.len > FSDP_HOSTS_MESSAGE_BYTES)
        status = fsdp_error(FSDP_ERR_INVALID, "a message of %zu bytes is too long", encoded.len);
    if (status == FSDP_OK) {
        fsdp_put_big_endian(length, (uint32_t)encoded.len);
        status = send_all(fd, length, sizeof length);
    }
    if (status == FSDP_OK)
        status = send_all(fd, encoded.data, encoded.len);
    fsdp_str_fini(&encoded);
    return status;
}

static fsdp_status receive_all(int fd, char *bytes, size_t n)
{
    while (n) {
        const ssize_t got = recv(fd, bytes, n, 0);
        if (got < 0 && errno == EINTR)
            continue;
        if (got == 0)
            return fsdp_error(FSDP_ERR_COMM, "the job is ending: this rank is not started");
        if (got < 0)
            return socket_error("recv");
        bytes += got;
        n -= (size_t)got;
    }
    return FSDP_OK;
}

/* Receive the length of the plan, and with it three descriptors, which become stdin, stdout and
 * stderr. */
static fsdp_status receive_streams(int fd, size_t *size)
{
    int streams[N_STREAMS];
    union {
        struct cmsghdr head;
        char bytes[CMSG_SPACE(sizeof streams)];
    } control = {0};
    char length[LENGTH_BYTES];
    struct iovec part = {.iov_base = length, .iov_len = sizeof length};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof control.bytes};
    const ssize_t n = recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
    if (n <= 0)
        return fsdp_error(FSDP_ERR_COMM, "the job is ending: this rank is not started");
    if (n < LENGTH_BYTES)
        FSDP_TRY(receive_all(fd, length + n, (size_t)(LENGTH_BYTES - n)));
    if (control.head.cmsg_type != SCM_RIGHTS || control.head.cmsg_len != CMSG_LEN(sizeof streams))
        return fsdp_error(FSDP_ERR_FORMAT, "the plan of this rank came without streams");
    memcpy(streams, CMSG_DATA(&control.head), sizeof streams);
    *size = fsdp_get_big_endian(length);
    fsdp_status status = FSDP_OK;
    for (int i = 0; i < N_STREAMS; i++) {
        if (dup2(streams[i], i) < 0)
            status = socket_error("dup2");
        close(streams[i]);
    }
    return status;
}

fsdp_status fsdp_local_socket_receive_plan(int fd, char **bytes, size_t *size)
{
    FSDP_TRY(receive_streams(fd, size));
    if (*size > FSDP_HOSTS_MESSAGE_BYTES)
        return fsdp_error(FSDP_ERR_FORMAT, "a plan of %zu bytes is too long", *size);
    char *plan = fsdp_calloc(*size + 1, 1);
    if (!plan)
        return FSDP_ERR_NOMEM;
    fsdp_status status = receive_all(fd, plan, *size);
    if (status == FSDP_OK)
        *bytes = plan;
    else
        fsdp_free(plan);
    return status;
}
