/* Anonymous memory as a file descriptor, and checks of descriptors that come from another
 * process. */
#pragma once
#include <stddef.h>

#include <fsdp/base.h>

/* Create a close-on-exec memfd of `bytes`, whose size can never change. All of its memory is
 * allocated now, so that a lack of memory causes FSDP_ERR_NOMEM here and not SIGBUS later. `what`
 * is for error messages. */
FSDP_MUST_CHECK fsdp_status fsdp_memfd_create(const char *what, size_t bytes, int *fd);
/* Map all `bytes` of a memfd, shared, for reading and writing. */
FSDP_MUST_CHECK fsdp_status fsdp_memfd_map(const char *what, int fd, size_t bytes, void **data);
/* Return FSDP_ERR_FORMAT unless `fd` is a memfd of fixed size that belongs to this user. Set *bytes
 * to its size. */
FSDP_MUST_CHECK fsdp_status fsdp_memfd_check(const char *what, int fd, size_t *bytes);
/* Return FSDP_ERR_FORMAT unless `fd` is a socket of type SOCK_SEQPACKET whose other end belongs to
 * this user. */
FSDP_MUST_CHECK fsdp_status fsdp_socket_check(const char *what, int fd);

/* Send one message with one descriptor. Never blocks. */
FSDP_MUST_CHECK fsdp_status fsdp_fd_send(int socket, const void *message, size_t size, int fd);
/* Receive one message with one descriptor. Never blocks. The caller owns `*fd`, which is
 * close-on-exec. Returns FSDP_ERR_COMM if no complete message has arrived. */
FSDP_MUST_CHECK fsdp_status fsdp_fd_receive(int socket, void *message, size_t size, int *fd);
