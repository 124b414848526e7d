/* Anonymous memory as a file descriptor, and checks of descriptors that come from another
 * process. */
#pragma once
#include <stddef.h>

#include <fsdp/base.h>

/* Create a memfd of `bytes`, close-on-exec, whose size can never change. The memory is allocated
 * now, so that lack of memory is FSDP_ERR_NOMEM here instead of SIGBUS later. `what` is for error
 * messages. */
FSDP_MUST_CHECK fsdp_status fsdp_memfd_create(const char *what, size_t bytes, int *fd);
/* Map all `bytes` of a memfd, shared, for reading and writing. */
FSDP_MUST_CHECK fsdp_status fsdp_memfd_map(const char *what, int fd, size_t bytes, void **data);
/* FSDP_ERR_FORMAT unless `fd` is a memfd of fixed size that belongs to this user. */
FSDP_MUST_CHECK fsdp_status fsdp_memfd_check(const char *what, int fd, size_t *bytes);
/* FSDP_ERR_FORMAT unless `fd` is a socket of the expected type whose other end belongs to this
 * user. */
FSDP_MUST_CHECK fsdp_status fsdp_socket_check(const char *what, int fd);

/* Send one message with one descriptor. Never blocks. */
FSDP_MUST_CHECK fsdp_status fsdp_fd_send(int socket, const void *message, size_t size, int fd);
/* Receive such a message. `*fd` is close-on-exec and owned by the caller. FSDP_ERR_COMM if no whole
 * message has arrived. */
FSDP_MUST_CHECK fsdp_status fsdp_fd_receive(int socket, void *message, size_t size, int *fd);
