/* Where the launchers of a job meet: names and addresses, IPv4 and IPv6. */
#pragma once
#include <fsdp/base.h>

enum {
    FSDP_HOST_NAME = 256
};

typedef struct fsdp_endpoint {
    char host[FSDP_HOST_NAME]; /* without the brackets of an IPv6 address */
    int port;
} fsdp_endpoint;

/* Read HOST, HOST:PORT, [IPv6] or [IPv6]:PORT. Without a port, endpoint->port is default_port. */
FSDP_MUST_CHECK fsdp_status fsdp_endpoint_read(const char *text, int default_port,
                                               fsdp_endpoint *endpoint);
/* Set *is_local to true if the host is an address of this machine. */
FSDP_MUST_CHECK fsdp_status fsdp_endpoint_is_local(const fsdp_endpoint *endpoint, bool *is_local);
/* Listen at the port of the endpoint: at its address if the host is given as an address of this
 * machine, else at all addresses. *in_use is set to true, and *fd to -1, if another process listens
 * there. */
FSDP_MUST_CHECK fsdp_status fsdp_endpoint_listen(const fsdp_endpoint *endpoint, int *fd,
                                                 bool *in_use);
/* Connect within `timeout_s`. *fd is set to -1, and the status is FSDP_OK, if no process listens
 * there yet; the error message then says why. `from` is the address of this machine to connect
 * from, or NULL.
 * @return FSDP_ERR_NOT_FOUND if the host has no address */
FSDP_MUST_CHECK fsdp_status fsdp_endpoint_connect(const fsdp_endpoint *endpoint, const char *from,
                                                  double timeout_s, int *fd);
/* Set *port to a port at which no process of this machine listens now. */
FSDP_MUST_CHECK fsdp_status fsdp_free_port(int *port);
