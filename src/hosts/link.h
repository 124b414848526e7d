/* A connection between two launchers that have proved to each other that they know the job secret.
 *
 * Note [How launchers authenticate]. All other launchers connect to the first launcher of the job.
 * A launcher that connects sends a random nonce. The first launcher answers with a nonce of its own
 * and the HMAC of both nonces under the secret. The other launcher checks this HMAC, and answers
 * with an HMAC of its own. The two launchers put different words in front of the nonces, so neither
 * HMAC can be a copy of the other. Each message after that carries an HMAC of its direction, its
 * number and its bytes. The key of this HMAC is derived from the secret and both nonces. So nothing
 * can be inserted, repeated, reordered or changed. Messages are not encrypted; they contain no
 * secret.
 *
 * All calls return at once: the connection does not block. To wait until a link can send or
 * receive, poll its `fd` for the events that fsdp_link_events() returns. */
#pragma once
#include "src/hosts/message.h"
#include "src/hosts/secret.h"

enum {
    FSDP_NONCE_BYTES = 32,
    FSDP_PEER_TEXT = 80
};

typedef enum fsdp_link_stage {
    FSDP_LINK_HELLO,     /* the first launcher waits for the nonce of the other launcher */
    FSDP_LINK_CHALLENGE, /* the other launcher waits for the first launcher's nonce and HMAC */
    FSDP_LINK_PROOF,     /* the first launcher waits for the HMAC of the other launcher */
    FSDP_LINK_OPEN       /* both launchers are authenticated */
} fsdp_link_stage;

typedef struct fsdp_link {
    int fd;        /* -1: closed. Owned */
    bool is_first; /* this end is the first launcher */
    fsdp_link_stage stage;
    fsdp_job_secret secret;
    uint8_t nonces[2 * FSDP_NONCE_BYTES]; /* the nonce of the launcher that connected, then the
                                             nonce of the first launcher */
    uint8_t session[FSDP_MAC_BYTES];      /* key of the messages */
    uint64_t n_sent, n_received;
    fsdp_str in, out; /* bytes that have arrived, and bytes that could not be sent yet */
    double opened_s, heard_s, sent_s; /* times (fsdp_clock_s()) when the link was opened, last
                                         received bytes, and last sent some */
    char peer[FSDP_PEER_TEXT];        /* address and port of the other end */
} fsdp_link;

/* Begin to authenticate over the connected socket `fd`, which the link owns from now on. */
FSDP_MUST_CHECK fsdp_status fsdp_link_init(fsdp_link *link, int fd, bool is_first,
                                           const fsdp_job_secret *secret);
/* Close the link. Accepts {0} with fd -1, and a link that is closed already. */
void fsdp_link_close(fsdp_link *link);
/* Return the events for which to poll the socket. */
short fsdp_link_events(const fsdp_link *link);
/* Send the bytes that wait to be sent, read the bytes that have arrived, and continue to
 * authenticate.
 * @return FSDP_ERR_COMM if the connection has ended; FSDP_ERR_FORMAT if the other end does not know
 * the secret or has sent something that the protocol does not allow. The link then does not work
 * any more. */
FSDP_MUST_CHECK fsdp_status fsdp_link_pump(fsdp_link *link);
/* Set *message to the next message. If no message has arrived completely, set *taken to false. The
 * caller frees the message. Errors are those of fsdp_link_pump(). */
FSDP_MUST_CHECK fsdp_status fsdp_link_take(fsdp_link *link, fsdp_hosts_message *message,
                                           bool *taken);
/* Send a message. If the socket does not accept it now, keep it until fsdp_link_pump(). The link
 * must be open. */
FSDP_MUST_CHECK fsdp_status fsdp_link_send(fsdp_link *link, const fsdp_hosts_message *message);
/* Send a sign of life if nothing was sent for a second. */
FSDP_MUST_CHECK fsdp_status fsdp_link_ping(fsdp_link *link);
/* Wait until all unsent messages have been sent, but at most `timeout_s` seconds. */
void fsdp_link_drain(fsdp_link *link, double timeout_s);
/* Write the address of this machine that the connection uses to `text`; "" if it is unknown. */
void fsdp_link_own_address(const fsdp_link *link, char *text, size_t size);
