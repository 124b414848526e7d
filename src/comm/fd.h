/* Memory as a file descriptor without a name, and what makes a descriptor of others trustworthy. */
#pragma once
#include <stddef.h>

#include <fsdp/base.h>

/* A memfd of `bytes`, allocated now (lack of memory is FSDP_ERR_NOMEM here and no SIGBUS later),
 * which nobody can shrink or grow; close-on-exec. `what` is for error messages. */
FSDP_MUST_CHECK fsdp_status fsdp_memfd_create(const char *what, size_t bytes, int *fd);
/* Map all `bytes` of a memfd, shared, for reading and writing. */
FSDP_MUST_CHECK fsdp_status fsdp_memfd_map(const char *what, int fd, size_t bytes, void **data);
/* FSDP_ERR_FORMAT unless `fd` is such a memfd, belongs to this user, and cannot change its size. */
FSDP_MUST_CHECK fsdp_status fsdp_memfd_check(const char *what, int fd, size_t *bytes);
/* FSDP_ERR_FORMAT unless `fd` is a socket of the expected type whose other end is this user's. */
FSDP_MUST_CHECK fsdp_status fsdp_socket_check(const char *what, int fd);

/* One message with one descriptor; never blocks. */
FSDP_MUST_CHECK fsdp_status fsdp_fd_send(int socket, const void *message, size_t size, int fd);
/* `*fd` is close-on-exec and the caller's. FSDP_ERR_COMM if no whole message is there. */
FSDP_MUST_CHECK fsdp_status fsdp_fd_receive(int socket, void *message, size_t size, int *fd);
