/* See link.h. */
#include "src/hosts/link.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/clock.h"
#include "src/hosts/big_endian.h"

static const char magic[] = "fsdphost"; /* sent without its NUL */
static const double PING_S = 1.0;

enum {
    MAGIC_BYTES = sizeof magic - 1,
    VERSION_BYTES = 4,
    HELLO_BYTES = MAGIC_BYTES + VERSION_BYTES + FSDP_NONCE_BYTES,
    CHALLENGE_BYTES = HELLO_BYTES + FSDP_MAC_BYTES,
    LENGTH_BYTES = 4,
    /* If the other end does not read, messages wait in the memory of this process, up to this
     * number of bytes. */
    MOST_WAITING = 4 * FSDP_HOSTS_MESSAGE_BYTES
};

/* ---- bytes ---- */

static fsdp_status out_of_memory_if(bool failed)
{
    return failed ? fsdp_error_nomem() : FSDP_OK;
}

/* Remove the first n bytes. */
static void consume(fsdp_str *s, size_t n)
{
    memmove(s->data, s->data + n, s->len - n);
    s->len -= n;
    s->data[s->len] = 0;
}

static fsdp_status peer_error(const fsdp_link *link, fsdp_status status, const char *what)
{
    return fsdp_error(status, "%s: %s", link->peer, what);
}

static fsdp_status flush(fsdp_link *link)
{
    while (link->out.len) {
        const ssize_t n = send(link->fd, link->out.data, link->out.len, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return FSDP_OK;
        if (n < 0)
            return peer_error(link, FSDP_ERR_COMM, strerror(errno));
        consume(&link->out, (size_t)n);
    }
    return FSDP_OK;
}

/* Read what has arrived, but at most one message and its frame. This limits the memory that a peer
 * can occupy. Set *at_end to true if the peer has closed the connection. */
static fsdp_status receive(fsdp_link *link, bool *at_end)
{
    const size_t most = link->stage == FSDP_LINK_OPEN
                            ? LENGTH_BYTES + FSDP_HOSTS_MESSAGE_BYTES + FSDP_MAC_BYTES
                            : CHALLENGE_BYTES;
    char bytes[16384];
    *at_end = false;
    while (link->in.len < most) {
        const size_t room = most - link->in.len;
        const ssize_t n = recv(link->fd, bytes, room < sizeof bytes ? room : sizeof bytes, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            break;
        if (n < 0)
            return peer_error(link, FSDP_ERR_COMM, strerror(errno));
        if (n == 0) {
            *at_end = true;
            break;
        }
        link->heard_s = fsdp_clock_s();
        fsdp_str_append(&link->in, bytes, (size_t)n);
    }
    return out_of_memory_if(link->in.failed);
}

/* ---- authentication ---- */

static void mac_of_nonces(const fsdp_link *link, const char *who, uint8_t mac[FSDP_MAC_BYTES])
{
    uint8_t version[VERSION_BYTES];
    fsdp_put_big_endian(version, FSDP_HOSTS_PROTOCOL);
    const fsdp_mac_part parts[] = {
        {who, strlen(who)}, {version, sizeof version}, {link->nonces, sizeof link->nonces}};
    fsdp_mac(link->secret.key, parts, FSDP_LENGTH(parts), mac);
}

static fsdp_status send_hello(fsdp_link *link, uint8_t *nonce)
{
    uint8_t version[VERSION_BYTES];
    if (getrandom(nonce, FSDP_NONCE_BYTES, 0) != FSDP_NONCE_BYTES)
        return fsdp_error(FSDP_ERR_IO, "getrandom: %s", strerror(errno));
    fsdp_put_big_endian(version, FSDP_HOSTS_PROTOCOL);
    fsdp_str_append(&link->out, magic, MAGIC_BYTES);
    fsdp_str_append(&link->out, (const char *)version, sizeof version);
    fsdp_str_append(&link->out, (const char *)nonce, FSDP_NONCE_BYTES);
    return out_of_memory_if(link->out.failed);
}

static fsdp_status send_mac(fsdp_link *link, const char *who)
{
    uint8_t mac[FSDP_MAC_BYTES];
    mac_of_nonces(link, who, mac);
    fsdp_str_append(&link->out, (const char *)mac, sizeof mac);
    return out_of_memory_if(link->out.failed);
}

static void open_session(fsdp_link *link)
{
    mac_of_nonces(link, "session", link->session);
    link->stage = FSDP_LINK_OPEN;
}

/* Check the magic and the protocol version that the other end sent, and copy its nonce to
 * `nonce`. */
static fsdp_status read_hello(fsdp_link *link, uint8_t *nonce)
{
    if (memcmp(link->in.data, magic, MAGIC_BYTES) != 0)
        return peer_error(link, FSDP_ERR_FORMAT, "this is not fsdp launch");
    const uint32_t version = fsdp_get_big_endian(link->in.data + MAGIC_BYTES);
    if (version != FSDP_HOSTS_PROTOCOL)
        return fsdp_error(FSDP_ERR_FORMAT,
                          "%s: fsdp launch there is of another version: its protocol is %u, and "
                          "%u here; install the same version on both hosts",
                          link->peer, version, FSDP_HOSTS_PROTOCOL);
    memcpy(nonce, link->in.data + MAGIC_BYTES + VERSION_BYTES, FSDP_NONCE_BYTES);
    return FSDP_OK;
}

static fsdp_status check_mac(fsdp_link *link, size_t offset, const char *who)
{
    uint8_t expected[FSDP_MAC_BYTES], got[FSDP_MAC_BYTES];
    mac_of_nonces(link, who, expected);
    memcpy(got, link->in.data + offset, sizeof got);
    if (!fsdp_mac_equal(expected, got))
        return peer_error(link, FSDP_ERR_FORMAT,
                          "the job secret there differs: set " FSDP_JOB_SECRET_ENV
                          " to the same value on all hosts");
    return FSDP_OK;
}

static fsdp_status answer_hello(fsdp_link *link)
{
    FSDP_TRY(read_hello(link, link->nonces));
    FSDP_TRY(send_hello(link, link->nonces + FSDP_NONCE_BYTES));
    FSDP_TRY(send_mac(link, "first"));
    consume(&link->in, HELLO_BYTES);
    link->stage = FSDP_LINK_PROOF;
    return FSDP_OK;
}

static fsdp_status answer_challenge(fsdp_link *link)
{
    FSDP_TRY(read_hello(link, link->nonces + FSDP_NONCE_BYTES));
    FSDP_TRY(check_mac(link, HELLO_BYTES, "first"));
    FSDP_TRY(send_mac(link, "other"));
    consume(&link->in, CHALLENGE_BYTES);
    open_session(link);
    return FSDP_OK;
}

static fsdp_status accept_proof(fsdp_link *link)
{
    FSDP_TRY(check_mac(link, 0, "other"));
    consume(&link->in, FSDP_MAC_BYTES);
    open_session(link);
    return FSDP_OK;
}

static fsdp_status authenticate(fsdp_link *link)
{
    if (link->stage == FSDP_LINK_HELLO && link->in.len >= HELLO_BYTES)
        FSDP_TRY(answer_hello(link));
    if (link->stage == FSDP_LINK_CHALLENGE && link->in.len >= CHALLENGE_BYTES)
        FSDP_TRY(answer_challenge(link));
    if (link->stage == FSDP_LINK_PROOF && link->in.len >= FSDP_MAC_BYTES)
        FSDP_TRY(accept_proof(link));
    return FSDP_OK;
}

/* ---- messages ---- */

static void mac_of_message(const fsdp_link *link, bool from_first, uint64_t number,
                           const char *bytes, size_t size, uint8_t mac[FSDP_MAC_BYTES])
{
    uint8_t head[1 + 8];
    head[0] = from_first;
    fsdp_put_big_endian(head + 1, (uint32_t)(number >> 32));
    fsdp_put_big_endian(head + 5, (uint32_t)number);
    const fsdp_mac_part parts[] = {{head, sizeof head}, {bytes, size}};
    fsdp_mac(link->session, parts, FSDP_LENGTH(parts), mac);
}

fsdp_status fsdp_link_send(fsdp_link *link, const fsdp_hosts_message *message)
{
    fsdp_str encoded = {0};
    uint8_t mac[FSDP_MAC_BYTES], length[LENGTH_BYTES];
    FSDP_ASSERT(link->stage == FSDP_LINK_OPEN);
    fsdp_hosts_encode(message, &encoded);
    fsdp_status status = out_of_memory_if(encoded.failed);
    if (status == FSDP_OK && encoded.len > FSDP_HOSTS_MESSAGE_BYTES)
        status = fsdp_error(FSDP_ERR_INVALID, "a message of %zu bytes is too long: at most %d",
                            encoded.len, FSDP_HOSTS_MESSAGE_BYTES);
    if (status == FSDP_OK && link->out.len + encoded.len > MOST_WAITING)
        status = peer_error(link, FSDP_ERR_COMM, "does not read its messages");
    if (status == FSDP_OK) {
        mac_of_message(link, link->is_first, link->n_sent++, encoded.data, encoded.len, mac);
        fsdp_put_big_endian(length, (uint32_t)encoded.len);
        fsdp_str_append(&link->out, (const char *)length, sizeof length);
        fsdp_str_append(&link->out, encoded.data, encoded.len);
        fsdp_str_append(&link->out, (const char *)mac, sizeof mac);
        link->sent_s = fsdp_clock_s();
        status = out_of_memory_if(link->out.failed);
    }
    fsdp_str_fini(&encoded);
    return status == FSDP_OK ? flush(link) : status;
}

/* Return true if fsdp_link_take() would return a message or an error. */
static bool has_message(const fsdp_link *link)
{
    if (link->stage != FSDP_LINK_OPEN || link->in.len < LENGTH_BYTES)
        return false;
    const size_t size = fsdp_get_big_endian(link->in.data);
    return size > FSDP_HOSTS_MESSAGE_BYTES || link->in.len >= LENGTH_BYTES + size + FSDP_MAC_BYTES;
}

fsdp_status fsdp_link_take(fsdp_link *link, fsdp_hosts_message *message, bool *taken)
{
    uint8_t expected[FSDP_MAC_BYTES], got[FSDP_MAC_BYTES];
    *taken = false;
    if (!has_message(link))
        return FSDP_OK;
    const size_t size = fsdp_get_big_endian(link->in.data);
    if (size > FSDP_HOSTS_MESSAGE_BYTES)
        return peer_error(link, FSDP_ERR_FORMAT, "sent a message that is too long");
    const char *bytes = link->in.data + LENGTH_BYTES;
    mac_of_message(link, !link->is_first, link->n_received, bytes, size, expected);
    memcpy(got, bytes + size, sizeof got);
    if (!fsdp_mac_equal(expected, got))
        return peer_error(link, FSDP_ERR_FORMAT, "sent a message that is not authentic");
    FSDP_TRY(fsdp_hosts_decode(bytes, size, message));
    link->n_received++;
    consume(&link->in, LENGTH_BYTES + size + FSDP_MAC_BYTES);
    *taken = true;
    return FSDP_OK;
}

fsdp_status fsdp_link_ping(fsdp_link *link)
{
    const fsdp_hosts_message ping = {.kind = FSDP_HOSTS_PING};
    if (link->stage != FSDP_LINK_OPEN || fsdp_clock_s() - link->sent_s < PING_S)
        return FSDP_OK;
    return fsdp_link_send(link, &ping);
}

/* ---- the connection ---- */

static void name_peer(fsdp_link *link)
{
    struct sockaddr_storage address;
    socklen_t size = sizeof address;
    char host[NI_MAXHOST], port[NI_MAXSERV];
    snprintf(link->peer, sizeof link->peer, "a launcher");
    if (getpeername(link->fd, (struct sockaddr *)&address, &size) != 0 ||
        getnameinfo((struct sockaddr *)&address, size, host, sizeof host, port, sizeof port,
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0)
        return;
    const bool mapped = strncmp(host, "::ffff:", 7) == 0; /* an IPv4 address on an IPv6 socket */
    const bool is_ipv6 = !mapped && strchr(host, ':');
    snprintf(link->peer, sizeof link->peer, "%s%.46s%s:%.8s", is_ipv6 ? "[" : "",
             host + (mapped ? 7 : 0), is_ipv6 ? "]" : "", port);
}

fsdp_status fsdp_link_init(fsdp_link *link, int fd, bool is_first, const fsdp_job_secret *secret)
{
    const int on = 1, flags = fcntl(fd, F_GETFL);
    const double now = fsdp_clock_s();
    *link = (fsdp_link){.fd = fd,
                        .is_first = is_first,
                        .stage = is_first ? FSDP_LINK_HELLO : FSDP_LINK_CHALLENGE,
                        .secret = *secret,
                        .opened_s = now,
                        .heard_s = now,
                        .sent_s = now};
    name_peer(link);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on,
                     sizeof on); /* fails on a socket pair, which does not need it */
    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0)
        return fsdp_error(FSDP_ERR_IO, "fcntl: %s", strerror(errno));
    if (is_first)
        return FSDP_OK;
    FSDP_TRY(send_hello(link, link->nonces));
    return flush(link);
}

void fsdp_link_close(fsdp_link *link)
{
    if (link->fd >= 0)
        close(link->fd);
    link->fd = -1;
    fsdp_str_fini(&link->in);
    fsdp_str_fini(&link->out);
    explicit_bzero(&link->secret, sizeof link->secret);
    explicit_bzero(link->session, sizeof link->session);
}

short fsdp_link_events(const fsdp_link *link)
{
    return (short)(POLLIN | (link->out.len ? POLLOUT : 0));
}

fsdp_status fsdp_link_pump(fsdp_link *link)
{
    bool at_end;
    FSDP_TRY(flush(link));
    FSDP_TRY(receive(link, &at_end));
    FSDP_TRY(authenticate(link));
    FSDP_TRY(flush(link));
    /* Messages that arrived before the connection ended are still read, because one of them may say
     * why it ended. An incomplete message is ignored, because its rest will not arrive. */
    if (at_end && has_message(link))
        return FSDP_OK;
    return at_end ? peer_error(link, FSDP_ERR_COMM, "closed the connection") : FSDP_OK;
}

void fsdp_link_drain(fsdp_link *link, double timeout_s)
{
    const double end_s = fsdp_clock_s() + timeout_s;
    while (link->fd >= 0 && link->out.len && fsdp_clock_s() < end_s) {
        struct pollfd polled = {.fd = link->fd, .events = POLLOUT};
        if (poll(&polled, 1, 50) > 0 && flush(link) != FSDP_OK)
            return;
    }
}

void fsdp_link_own_address(const fsdp_link *link, char *text, size_t size)
{
    struct sockaddr_storage address;
    socklen_t length = sizeof address;
    char host[NI_MAXHOST];
    *text = 0;
    if (getsockname(link->fd, (struct sockaddr *)&address, &length) == 0 &&
        getnameinfo((struct sockaddr *)&address, length, host, sizeof host, NULL, 0,
                    NI_NUMERICHOST) == 0)
        snprintf(text, size, "%s", strncmp(host, "::ffff:", 7) == 0 ? host + 7 : host);
}
