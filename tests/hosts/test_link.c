/* Connections between launchers: only both ends with the same secret meet, and what they send
 * cannot be changed. */
#include <unistd.h>

#include "src/base/alloc_testing.h"
#include "tests/hosts/links.h"

static const char secret[] = "a secret of 26 characters";

static const int32_t one = 1;
static const fsdp_hosts_message idle = {.kind = FSDP_HOSTS_IDLE, .ints = &one, .n_ints = 1};

static void close_both(fsdp_link *a, fsdp_link *b)
{
    fsdp_link_close(a);
    fsdp_link_close(b);
}

TEST(launchers_with_the_same_secret_meet_and_talk)
{
    fsdp_link first, other;
    fsdp_hosts_message got;
    bool taken;
    NEEDS_NETTLE();
    ASSERT_OK(link_pair(secret, secret, &first, &other));
    ASSERT_OK(link_meet(&first, &other));
    ASSERT_INT(first.stage, FSDP_LINK_OPEN);
    ASSERT_INT(other.stage, FSDP_LINK_OPEN);
    for (int i = 0; i < 3; i++) {
        ASSERT_OK(fsdp_link_send(&first, &idle));
        ASSERT_OK(fsdp_link_send(&other, &idle));
    }
    for (int i = 0; i < 3; i++) {
        fsdp_link *const ends[] = {&first, &other};
        for (int end = 0; end < 2; end++) {
            ASSERT_OK(fsdp_link_pump(ends[end]));
            ASSERT_OK(fsdp_link_take(ends[end], &got, &taken));
            ASSERT(taken);
            ASSERT_INT(got.kind, FSDP_HOSTS_IDLE);
            fsdp_hosts_message_fini(&got);
        }
    }
    ASSERT_OK(fsdp_link_take(&first, &got, &taken));
    ASSERT(!taken);
    fsdp_link_close(&other);
    ASSERT_ERROR(fsdp_link_pump(&first), FSDP_ERR_COMM, "closed the connection");
    fsdp_link_close(&first);
}

/* Neither end may send a message before it knows that the other one has the secret: the end that
 * connects finds out first, and the first launcher never opens. */
TEST(another_secret_is_refused)
{
    fsdp_link first, other;
    NEEDS_NETTLE();
    ASSERT_OK(link_pair(secret, "another secret of the same job", &first, &other));
    ASSERT_ERROR(link_meet(&first, &other), FSDP_ERR_FORMAT, "the job secret there differs");
    ASSERT_INT(first.stage, FSDP_LINK_PROOF);
    ASSERT_INT(other.stage, FSDP_LINK_CHALLENGE);
    close_both(&first, &other);
}

/* The first launcher is asked with its own answer: what it sends is not what it accepts. */
TEST(an_answer_cannot_be_reflected)
{
    fsdp_link first, other;
    char bytes[76];
    NEEDS_NETTLE();
    ASSERT_OK(link_pair(secret, secret, &first, &other));
    ASSERT_OK(fsdp_link_pump(&first));
    ASSERT_INT(recv(other.fd, bytes, sizeof bytes, MSG_WAITALL), sizeof bytes);
    ASSERT_INT(send(other.fd, bytes + 44, 32, 0), 32);
    ASSERT_ERROR(fsdp_link_pump(&first), FSDP_ERR_FORMAT, "the job secret there differs");
    close_both(&first, &other);
}

TEST(garbage_is_refused)
{
    static const char *const garbage[] = {"GET / HTTP/1.1\r\nHost: host0:29500\r\n\r\n......",
                                          "fsdphost\0\0\0\377................................"};
    static const char *const reasons[] = {"this is not fsdp launch", "of another version"};
    NEEDS_NETTLE();
    for (int i = 0; i < 2; i++) {
        fsdp_link first, other;
        ASSERT_OK(link_pair(secret, secret, &first, &other));
        char hello[44];
        ASSERT_INT(recv(first.fd, hello, sizeof hello, 0), 44);
        ASSERT_INT(send(other.fd, garbage[i], 44, 0), 44);
        ASSERT_ERROR(fsdp_link_pump(&first), FSDP_ERR_FORMAT, reasons[i]);
        close_both(&first, &other);
    }
}

/* Change each byte of a message on its way. */
TEST(a_changed_message_is_refused)
{
    fsdp_link first, other;
    fsdp_hosts_message got;
    bool taken;
    char bytes[4 + 13 + 32];
    NEEDS_NETTLE();
    for (size_t i = 0; i < sizeof bytes; i++) {
        ASSERT_OK(link_pair(secret, secret, &first, &other));
        ASSERT_OK(link_meet(&first, &other));
        ASSERT_OK(fsdp_link_send(&other, &idle));
        ASSERT_INT(recv(first.fd, bytes, sizeof bytes, 0), sizeof bytes);
        bytes[i] ^= 1;
        ASSERT_INT(send(other.fd, bytes, sizeof bytes, 0), sizeof bytes);
        ASSERT_OK(fsdp_link_pump(&first));
        if (fsdp_link_take(&first, &got, &taken) == FSDP_OK)
            ASSERT(!taken && i < 4); /* a longer message, of which the end is missing */
        close_both(&first, &other);
    }
}

TEST(a_repeated_message_is_refused)
{
    fsdp_link first, other;
    fsdp_hosts_message got;
    bool taken;
    char bytes[4 + 13 + 32];
    NEEDS_NETTLE();
    ASSERT_OK(link_pair(secret, secret, &first, &other));
    ASSERT_OK(link_meet(&first, &other));
    ASSERT_OK(fsdp_link_send(&other, &idle));
    ASSERT_INT(recv(first.fd, bytes, sizeof bytes, 0), sizeof bytes);
    for (int i = 0; i < 2; i++)
        ASSERT_INT(send(other.fd, bytes, sizeof bytes, 0), sizeof bytes);
    ASSERT_OK(fsdp_link_pump(&first));
    ASSERT_OK(fsdp_link_take(&first, &got, &taken));
    ASSERT(taken);
    fsdp_hosts_message_fini(&got);
    ASSERT_ERROR(fsdp_link_take(&first, &got, &taken), FSDP_ERR_FORMAT, "not authentic");
    close_both(&first, &other);
}

/* A peer that claims a long message cannot make this end keep more than one message in memory. */
/* The messages that arrived are read, and then the end is an error, although a part of another
 * message is left. */
TEST(the_end_of_a_connection_within_a_message_is_noticed)
{
    fsdp_link first, other;
    fsdp_hosts_message got;
    bool taken;
    NEEDS_NETTLE();
    ASSERT_OK(link_pair(secret, secret, &first, &other));
    ASSERT_OK(link_meet(&first, &other));
    ASSERT_OK(fsdp_link_send(&other, &idle));
    const char part[60] = {0, 0, 1, 0}; /* the head of a message of 256 bytes */
    ASSERT_INT(write(other.fd, part, sizeof part), sizeof part);
    fsdp_link_close(&other);
    ASSERT_OK(fsdp_link_pump(&first));
    ASSERT_OK(fsdp_link_take(&first, &got, &taken));
    ASSERT(taken && got.kind == FSDP_HOSTS_IDLE);
    fsdp_hosts_message_fini(&got);
    ASSERT_INT(fsdp_link_pump(&first), FSDP_ERR_COMM);
    fsdp_link_close(&first);
}

TEST(a_message_that_is_too_long_is_refused)
{
    fsdp_link first, other;
    fsdp_hosts_message got;
    bool taken;
    static const unsigned char length[64] = {0x00, 0x10, 0x00, 0x01};
    NEEDS_NETTLE();
    ASSERT_OK(link_pair(secret, secret, &first, &other));
    ASSERT_OK(link_meet(&first, &other));
    ASSERT_INT(send(other.fd, length, sizeof length, 0), sizeof length);
    ASSERT_OK(fsdp_link_pump(&first));
    ASSERT_ERROR(fsdp_link_take(&first, &got, &taken), FSDP_ERR_FORMAT, "too long");
    close_both(&first, &other);
}

static fsdp_status meet_and_send(fsdp_link *first, fsdp_link *other)
{
    FSDP_TRY(link_meet(first, other));
    FSDP_TRY(fsdp_link_send(other, &idle));
    FSDP_TRY(fsdp_link_pump(first));
    fsdp_hosts_message got;
    bool taken;
    FSDP_TRY(fsdp_link_take(first, &got, &taken));
    if (taken)
        fsdp_hosts_message_fini(&got);
    return FSDP_OK;
}

TEST(without_memory_links_fail_and_leak_nothing)
{
    NEEDS_NETTLE();
    fsdp_status status = FSDP_ERR_NOMEM;
    for (int n = 1; status != FSDP_OK && n < 100; n++) {
        fsdp_link first = {.fd = -1}, other = {.fd = -1};
        fsdp_alloc_fail_at(n);
        status = link_pair(secret, secret, &first, &other);
        if (status == FSDP_OK)
            status = meet_and_send(&first, &other);
        fsdp_alloc_fail_at(0);
        if (status != FSDP_OK)
            ASSERT_INT(status, FSDP_ERR_NOMEM);
        close_both(&first, &other);
    }
    ASSERT_INT(status, FSDP_OK);
}
