/* Creates, maps and checks memfds, and sends file descriptors over sockets. */
#include "src/comm/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/file_growth.h"
#include "src/comm/host_memory.h"

enum {
    SLICE_BYTES =
        256 << 20, /* bytes that are allocated between two checks of the available memory */
    RESERVE_BYTES = 64 << 20 /* bytes that stay free for everything else on the host */
};
static const int fixed_size = F_SEAL_SHRINK | F_SEAL_GROW;

static fsdp_status check_available(const char *what, size_t bytes)
{
    const size_t available = fsdp_host_memory_available();
    if (available < RESERVE_BYTES || bytes > available - RESERVE_BYTES)
        return fsdp_error(FSDP_ERR_NOMEM,
                          "%s: %zu bytes of shared memory are wanted, %zu are available", what,
                          bytes, available);
    return FSDP_OK;
}

/* Allocate the pages of a memfd in slices, and check the available memory before each slice.
 * posix_fallocate() alone would not return an error when memory runs out: it would allocate all
 * memory of the machine. */
static fsdp_status allocate_pages(const char *what, int fd, size_t bytes)
{
    for (size_t at = 0; at < bytes; at += SLICE_BYTES) {
        const size_t left = bytes - at;
        FSDP_TRY(check_available(what, left));
        size_t slice = left < SLICE_BYTES ? left : SLICE_BYTES;
        int error;
        do
            error = fsdp_growing_posix_fallocate(fd, (off_t)at, (off_t)slice);
        while (error == EINTR);
        if (error)
            return fsdp_error(error == ENOSPC || error == ENOMEM ? FSDP_ERR_NOMEM : FSDP_ERR_IO,
                              "%s: cannot allocate %zu bytes of shared memory: %s", what, bytes,
                              strerror(error));
    }
    return FSDP_OK;
}

/* Set the size of a memfd without allocating its pages. */
static fsdp_status set_size(const char *what, int fd, size_t bytes, size_t least)
{
    FSDP_TRY(check_available(what, least));
    if (ftruncate(fd, (off_t)bytes) != 0)
        return fsdp_error(errno == EFBIG || errno == EINVAL ? FSDP_ERR_NOMEM : FSDP_ERR_IO,
                          "%s: cannot make shared memory of %zu bytes: %s", what, bytes,
                          strerror(errno));
    return FSDP_OK;
}

static fsdp_status create(const char *what, size_t bytes, bool is_sparse, size_t least, int *out)
{
    int fd = memfd_create("fsdp", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return fsdp_error(errno == ENOMEM ? FSDP_ERR_NOMEM : FSDP_ERR_IO, "%s: memfd_create: %s",
                          what, strerror(errno));
    fsdp_status status =
        is_sparse ? set_size(what, fd, bytes, least) : allocate_pages(what, fd, bytes);
    if (status != FSDP_OK) {
        close(fd);
        return status;
    }
    if (fcntl(fd, F_ADD_SEALS, fixed_size | F_SEAL_SEAL) != 0) {
        int error = errno;
        close(fd);
        return fsdp_error(FSDP_ERR_IO, "%s: cannot seal the memory: %s", what, strerror(error));
    }
    *out = fd;
    return FSDP_OK;
}

fsdp_status fsdp_memfd_create(const char *what, size_t bytes, int *fd)
{
    return create(what, bytes, false, 0, fd);
}

fsdp_status fsdp_memfd_create_sparse(const char *what, size_t bytes, size_t least, int *fd)
{
    return create(what, bytes, true, least, fd);
}

fsdp_status fsdp_memfd_map(const char *what, int fd, size_t bytes, void **data)
{
    void *mapped = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (mapped == MAP_FAILED)
        return fsdp_error(FSDP_ERR_NOMEM, "%s: cannot map %zu bytes: %s", what, bytes,
                          strerror(errno));
    *data = mapped;
    return FSDP_OK;
}

fsdp_status fsdp_memfd_check(const char *what, int fd, size_t *bytes)
{
    struct stat st;
    if (fstat(fd, &st) != 0)
        return fsdp_error(FSDP_ERR_FORMAT, "%s: file descriptor %d is not open", what, fd);
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || (seals & fixed_size) != fixed_size || st.st_size < 0)
        return fsdp_error(FSDP_ERR_FORMAT,
                          "%s: file descriptor %d is not shared memory of a fixed size", what, fd);
    if (st.st_uid != geteuid())
        return fsdp_error(FSDP_ERR_FORMAT, "%s: the shared memory belongs to user %u, not to %u",
                          what, (unsigned)st.st_uid, (unsigned)geteuid());
    *bytes = (size_t)st.st_size;
    return FSDP_OK;
}

fsdp_status fsdp_socket_check(const char *what, int fd)
{
    int type = 0;
    socklen_t size = sizeof type;
    if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) != 0 || type != SOCK_SEQPACKET)
        return fsdp_error(FSDP_ERR_FORMAT, "%s: file descriptor %d is not the launcher's socket",
                          what, fd);
    struct ucred peer = {0};
    size = sizeof peer;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0)
        return fsdp_error(FSDP_ERR_FORMAT, "%s: file descriptor %d: no peer: %s", what, fd,
                          strerror(errno));
    if (peer.uid != geteuid())
        return fsdp_error(FSDP_ERR_FORMAT, "%s: the peer is user %u, not %u", what,
                          (unsigned)peer.uid, (unsigned)geteuid());
    return FSDP_OK;
}

/* Space for one descriptor, aligned as the macros of cmsg(3) require. */
typedef union fd_control {
    struct cmsghdr header;
    unsigned char bytes[CMSG_SPACE(sizeof(int))];
} fd_control;

fsdp_status fsdp_fd_send(int socket, const void *message, size_t size, int fd)
{
    unsigned char copy[64];
    fd_control control = {0};
    if (size > sizeof copy)
        return fsdp_error(FSDP_ERR_INVALID, "a message of %zu bytes is too long", size);
    memcpy(copy, message, size);
    struct iovec part = {copy, size};
    struct msghdr header = {.msg_iov = &part,
                            .msg_iovlen = 1,
                            .msg_control = control.bytes,
                            .msg_controllen = sizeof control.bytes};
    struct cmsghdr *cmsg = CMSG_FIRSTHDR(&header);
    cmsg->cmsg_level = SOL_SOCKET;
    cmsg->cmsg_type = SCM_RIGHTS;
    cmsg->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(cmsg), &fd, sizeof fd);
    ssize_t sent;
    do
        sent = sendmsg(socket, &header, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (sent < 0 && errno == EINTR);
    if (sent != (ssize_t)size)
        return fsdp_error(FSDP_ERR_COMM, "sendmsg: %s", sent < 0 ? strerror(errno) : "cut short");
    return FSDP_OK;
}

fsdp_status fsdp_fd_receive(int socket, void *message, size_t size, int *out)
{
    fd_control control = {0};
    int fd = -1;
    struct iovec part = {message, size};
    struct msghdr header = {.msg_iov = &part,
                            .msg_iovlen = 1,
                            .msg_control = control.bytes,
                            .msg_controllen = sizeof control.bytes};
    ssize_t got;
    do
        got = recvmsg(socket, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    while (got < 0 && errno == EINTR);
    if (got < 0)
        return fsdp_error(FSDP_ERR_COMM, "recvmsg: %s", strerror(errno));
    const struct cmsghdr *cmsg = CMSG_FIRSTHDR(&header);
    if (cmsg && cmsg->cmsg_level == SOL_SOCKET && cmsg->cmsg_type == SCM_RIGHTS &&
        cmsg->cmsg_len == CMSG_LEN(sizeof fd))
        memcpy(&fd, CMSG_DATA(cmsg), sizeof fd);
    if (fd < 0 || (size_t)got != size || (header.msg_flags & (MSG_TRUNC | MSG_CTRUNC))) {
        if (fd >= 0)
            close(fd);
        return fsdp_error(FSDP_ERR_COMM, "recvmsg: %zd bytes instead of %zu and %s descriptor", got,
                          size, fd < 0 ? "no" : "a");
    }
    *out = fd;
    return FSDP_OK;
}
