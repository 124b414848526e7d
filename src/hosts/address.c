/* See address.h. */
#include "src/hosts/address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    BACKLOG = 512
};

fsdp_status fsdp_endpoint_read(const char *text, int default_port, fsdp_endpoint *endpoint)
{
    const bool bracketed = *text == '[';
    const char *host = text + bracketed;
    const char *colon = strrchr(text, ':');
    size_t length = bracketed ? strcspn(host, "]") : strlen(host);
    const char *port = NULL;
    if (bracketed && host[length] == ']' && host[length + 1] == ':')
        port = host + length + 2;
    else if (!bracketed && colon && strchr(text, ':') == colon) {
        /* There is one colon, so a port follows it. A text with several colons and no brackets
         * would be an IPv6 address without a port. */
        port = colon + 1;
        length = (size_t)(colon - host);
    }
    char *end;
    long number = default_port;
    if (port) {
        number = strtol(port, &end, 10);
        if (end == port || *end || number < 0 || number > 65535)
            return fsdp_error(FSDP_ERR_INVALID, "'%s': '%s' is not a port", text, port);
    }
    const bool closed = !bracketed || (host[length] == ']' && (port || !host[length + 1]));
    if (length == 0 || length >= sizeof endpoint->host || !closed)
        return fsdp_error(FSDP_ERR_INVALID, "'%s' is not HOST:PORT", text);
    snprintf(endpoint->host, sizeof endpoint->host, "%.*s", (int)length, host);
    endpoint->port = (int)number;
    return FSDP_OK;
}

static bool is_numeric(const char *host)
{
    struct in6_addr address;
    return inet_pton(AF_INET, host, &address) == 1 || inet_pton(AF_INET6, host, &address) == 1 ||
           strchr(host, '%'); /* a link-local address with its interface */
}

/* Look up the addresses of a host, which the caller frees with freeaddrinfo(). Return FSDP_ERR_COMM
 * if the name server did not answer, so that a later call may succeed, and FSDP_ERR_NOT_FOUND if
 * the host has no address. */
static fsdp_status resolve(const char *host, int port, struct addrinfo **found)
{
    char service[16];
    const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    snprintf(service, sizeof service, "%d", port);
    const int error = getaddrinfo(host, service, &hints, found);
    if (error)
        return fsdp_error(error == EAI_AGAIN ? FSDP_ERR_COMM : FSDP_ERR_NOT_FOUND,
                          "%s: this host has no address: %s", host,
                          error == EAI_SYSTEM ? strerror(errno) : gai_strerror(error));
    return FSDP_OK;
}

static int open_socket(const struct addrinfo *at)
{
    return socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
}

/* Return true if a socket can be bound to the address, with any port. */
static bool can_bind(const struct addrinfo *at)
{
    struct sockaddr_storage any_port;
    memcpy(&any_port, at->ai_addr, at->ai_addrlen);
    if (at->ai_family == AF_INET)
        ((struct sockaddr_in *)&any_port)->sin_port = 0;
    else
        ((struct sockaddr_in6 *)&any_port)->sin6_port = 0;
    const int fd = open_socket(at);
    const bool bound = fd >= 0 && bind(fd, (struct sockaddr *)&any_port, at->ai_addrlen) == 0;
    if (fd >= 0)
        close(fd);
    return bound;
}

fsdp_status fsdp_endpoint_is_local(const fsdp_endpoint *endpoint, bool *is_local)
{
    struct addrinfo *found;
    FSDP_TRY(resolve(endpoint->host, endpoint->port, &found));
    *is_local = false;
    for (const struct addrinfo *at = found; at; at = at->ai_next)
        *is_local |= can_bind(at);
    freeaddrinfo(found);
    return FSDP_OK;
}

/* Listen at one address. Return the socket. On failure, return -1 and set errno. */
static int listen_at(int family, const struct sockaddr *address, socklen_t size)
{
    const int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), on = 1, off = 0;
    if (fd < 0)
        return -1;
    if (family == AF_INET6) /* so that a socket at :: accepts IPv4, too */
        (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
        bind(fd, address, size) == 0 && listen(fd, BACKLOG) == 0)
        return fd;
    const int error = errno;
    close(fd);
    errno = error;
    return -1;
}

static int listen_everywhere(int port)
{
    const struct sockaddr_in6 any6 = {
        .sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port), .sin6_addr = IN6ADDR_ANY_INIT};
    const struct sockaddr_in any4 = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    const int fd = listen_at(AF_INET6, (const struct sockaddr *)&any6, sizeof any6);
    if (fd >= 0 || errno == EADDRINUSE)
        return fd;
    return listen_at(AF_INET, (const struct sockaddr *)&any4, sizeof any4);
}

fsdp_status fsdp_endpoint_listen(const fsdp_endpoint *endpoint, int *fd, bool *in_use)
{
    struct addrinfo *found;
    FSDP_TRY(resolve(endpoint->host, endpoint->port, &found));
    /* On the first host, /etc/hosts may translate its own name to 127.0.1.1, which other hosts
     * cannot use. So listen on all addresses, unless the user gave an address instead of a name. */
    *fd = is_numeric(endpoint->host) && can_bind(found)
              ? listen_at(found->ai_family, found->ai_addr, found->ai_addrlen)
              : listen_everywhere(endpoint->port);
    const int error = errno;
    freeaddrinfo(found);
    *in_use = *fd < 0 && error == EADDRINUSE;
    if (*fd < 0 && !*in_use)
        return fsdp_error(FSDP_ERR_IO, "%s:%d: cannot listen: %s", endpoint->host, endpoint->port,
                          strerror(error));
    return FSDP_OK;
}

/* Bind the socket to this machine's address `from`; NULL: do nothing. Return false on failure, or
 * if `from` is not of the socket's address family. */
static bool bind_to(int fd, int family, const char *from)
{
    struct addrinfo *found;
    if (!from)
        return true;
    if (resolve(from, 0, &found) != FSDP_OK) {
        errno = EADDRNOTAVAIL;
        return false;
    }
    bool bound = false;
    errno = EADDRNOTAVAIL; /* the error if `from` has no address of the family */
    for (const struct addrinfo *at = found; at && !bound; at = at->ai_next)
        bound = at->ai_family == family && bind(fd, at->ai_addr, at->ai_addrlen) == 0;
    freeaddrinfo(found);
    return bound;
}

/* Return true if the socket is connected to itself. This can happen if a process connects to a port
 * of its own machine at which no process listens. The system may then choose this same port as the
 * port of the connecting socket. */
static bool is_self_connected(int fd)
{
    struct sockaddr_storage here = {0}, there = {0};
    socklen_t here_size = sizeof here, there_size = sizeof there;
    return getsockname(fd, (struct sockaddr *)&here, &here_size) == 0 &&
           getpeername(fd, (struct sockaddr *)&there, &there_size) == 0 &&
           here_size == there_size && memcmp(&here, &there, here_size) == 0;
}

/* Connect to one address, from this machine's address `from` (NULL: any). Return the socket. On
 * failure, return -1 and set errno. */
static int connect_to(const struct addrinfo *at, const char *from, double timeout_s)
{
    const int fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int error = 0;
    socklen_t size = sizeof error;
    if (fd < 0)
        return -1;
    if (!bind_to(fd, at->ai_family, from))
        error = errno;
    else if (connect(fd, at->ai_addr, at->ai_addrlen) != 0)
        error = errno;
    if (error == EINPROGRESS) {
        struct pollfd polled = {.fd = fd, .events = POLLOUT};
        const int ready = poll(&polled, 1, (int)(timeout_s * 1e3));
        if (ready <= 0 || getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0)
            error = ready == 0 ? ETIMEDOUT : errno;
    }
    if (!error && is_self_connected(fd))
        error = ECONNREFUSED;
    if (!error)
        return fd;
    close(fd);
    errno = error;
    return -1;
}

fsdp_status fsdp_endpoint_connect(const fsdp_endpoint *endpoint, const char *from, double timeout_s,
                                  int *fd)
{
    struct addrinfo *found;
    const fsdp_status resolved = resolve(endpoint->host, endpoint->port, &found);
    int error = 0;
    *fd = -1;
    if (resolved != FSDP_OK)
        return resolved == FSDP_ERR_COMM ? FSDP_OK : resolved;
    for (const struct addrinfo *at = found; at && *fd < 0; at = at->ai_next) {
        *fd = connect_to(at, from, timeout_s);
        error = errno;
    }
    freeaddrinfo(found);
    if (*fd < 0)
        (void)fsdp_error(FSDP_ERR_COMM, "%s:%d: %s", endpoint->host, endpoint->port,
                         strerror(error));
    return FSDP_OK;
}

fsdp_status fsdp_free_port(int *port)
{
    struct sockaddr_storage address = {0};
    socklen_t size = sizeof address;
    const int fd = listen_everywhere(0);
    if (fd < 0 || getsockname(fd, (struct sockaddr *)&address, &size) != 0) {
        const int error = errno;
        if (fd >= 0)
            close(fd);
        return fsdp_error(FSDP_ERR_IO, "cannot find a free port: %s", strerror(error));
    }
    close(fd);
    *port = ntohs(address.ss_family == AF_INET ? ((struct sockaddr_in *)&address)->sin_port
                                               : ((struct sockaddr_in6 *)&address)->sin6_port);
    return FSDP_OK;
}
