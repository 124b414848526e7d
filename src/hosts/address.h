/* Endpoints (host and port) at which the launchers of a job meet. A host is a name, or an IPv4 or
 * IPv6 address. */
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
/* Set *is_local to true if endpoint->host is this machine. */
FSDP_MUST_CHECK fsdp_status fsdp_endpoint_is_local(const fsdp_endpoint *endpoint, bool *is_local);
/* Listen on the endpoint's port, and set *fd to the socket. If endpoint->host is a numeric address
 * of this machine, listen only on this address, otherwise on all addresses. If another process
 * listens there already, set *in_use to true and *fd to -1. */
FSDP_MUST_CHECK fsdp_status fsdp_endpoint_listen(const fsdp_endpoint *endpoint, int *fd,
                                                 bool *in_use);
/* Connect to the endpoint, and set *fd to the socket. Try each address of the host for at most
 * `timeout_s` seconds. If no address accepts the connection, for example because no process listens
 * there yet, or if the name server does not answer, set *fd to -1 and return FSDP_OK;
 * fsdp_last_error() then says why. `from` is the
 * address of this machine from which to connect; NULL: any address.
 * @return FSDP_ERR_NOT_FOUND if the host has no address */
FSDP_MUST_CHECK fsdp_status fsdp_endpoint_connect(const fsdp_endpoint *endpoint, const char *from,
                                                  double timeout_s, int *fd);
/* Set *port to a port at which no process of this machine listens now. */
FSDP_MUST_CHECK fsdp_status fsdp_free_port(int *port);
