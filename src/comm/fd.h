/* Shared memory as memfds, and sockets that pass file descriptors on. Descriptors that come from
 * another process are checked. */
#pragma once
#include <stddef.h>

#include <fsdp/base.h>

/* Create a close-on-exec memfd of `bytes` bytes, whose size can never change. All of its memory is
 * allocated now. So a lack of memory causes FSDP_ERR_NOMEM here instead of SIGBUS later. Error
 * messages begin with `what`. */
FSDP_MUST_CHECK fsdp_status fsdp_memfd_create(const char *what, size_t bytes, int *fd);
/* Do what fsdp_memfd_create() does, but let the kernel allocate each page when it is first written.
 * Use this if some pages are never written. Return FSDP_ERR_NOMEM if less than `least` bytes are
 * available now. If memory runs out later, the kernel kills processes. */
FSDP_MUST_CHECK fsdp_status fsdp_memfd_create_sparse(const char *what, size_t bytes, size_t least,
                                                     int *fd);
/* Map all `bytes` of a memfd with MAP_SHARED, for reading and writing. */
FSDP_MUST_CHECK fsdp_status fsdp_memfd_map(const char *what, int fd, size_t bytes, void **data);
/* Check that `fd` is a memfd of fixed size that belongs to this user, and set *bytes to its size.
 * If not, return FSDP_ERR_FORMAT. */
FSDP_MUST_CHECK fsdp_status fsdp_memfd_check(const char *what, int fd, size_t *bytes);
/* Check that `fd` is a socket of type SOCK_SEQPACKET, and that the process at its other end belongs
 * to this user. If not, return FSDP_ERR_FORMAT. */
FSDP_MUST_CHECK fsdp_status fsdp_socket_check(const char *what, int fd);

/* Send one message with one descriptor. Never blocks. */
FSDP_MUST_CHECK fsdp_status fsdp_fd_send(int socket, const void *message, size_t size, int fd);
/* Receive one message with one descriptor. Never blocks: if no complete message has arrived, return
 * FSDP_ERR_COMM. The caller owns `*fd`, which is close-on-exec. */
FSDP_MUST_CHECK fsdp_status fsdp_fd_receive(int socket, void *message, size_t size, int *fd);
