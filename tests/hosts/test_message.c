/* Messages of launchers: what is written is read again, and everything else is refused. */
#include "src/base/alloc.h"
#include "src/base/alloc_testing.h"
#include "src/hosts/message.h"
#include "tests/test.h"

static const char *const words[] = {"host", "", "a text with spaces"};
static const int32_t numbers[] = {-1, 2147483647, 0};
static const fsdp_hosts_message failed = {
    .kind = FSDP_HOSTS_FAILED, .ints = numbers, .n_ints = 3, .texts = words, .n_texts = 1};

TEST(a_message_is_read_as_it_was_written)
{
    const fsdp_hosts_message daemon = {.kind = FSDP_HOSTS_DAEMON, .texts = words, .n_texts = 3};
    const fsdp_hosts_message *const sent[] = {&failed, &daemon};
    for (size_t k = 0; k < 2; k++) {
        fsdp_str bytes = {0};
        fsdp_hosts_message got;
        fsdp_hosts_encode(sent[k], &bytes);
        ASSERT_OK(fsdp_hosts_decode(bytes.data, bytes.len, &got));
        ASSERT_INT(got.kind, sent[k]->kind);
        ASSERT_INT(got.n_ints, sent[k]->n_ints);
        ASSERT_INT(got.n_texts, sent[k]->n_texts);
        for (int i = 0; i < got.n_ints; i++)
            ASSERT_INT(got.ints[i], sent[k]->ints[i]);
        for (int i = 0; i < got.n_texts; i++)
            ASSERT_STR(got.texts[i], sent[k]->texts[i]);
        fsdp_hosts_message_fini(&got);
        fsdp_str_fini(&bytes);
    }
}

/* Cut the message off at each byte, change each byte, and add one. The bytes are in a block of
 * their own, so that sanitizers see reads beyond the end. */
TEST(damaged_messages_are_refused_or_are_other_messages)
{
    fsdp_str bytes = {0};
    fsdp_hosts_message got;
    fsdp_hosts_encode(&failed, &bytes);
    for (size_t n = 0; n <= bytes.len + 1; n++) {
        char *copy = fsdp_calloc(n ? n : 1, 1);
        memcpy(copy, bytes.data, n < bytes.len ? n : bytes.len);
        if (n != bytes.len)
            ASSERT_ERROR(fsdp_hosts_decode(copy, n, &got), FSDP_ERR_FORMAT, "not a message");
        for (size_t i = 0; n == bytes.len && i < n; i++) {
            const char right = copy[i];
            for (int value = 0; value < 256; value++) {
                copy[i] = (char)value;
                if (fsdp_hosts_decode(copy, n, &got) == FSDP_OK)
                    fsdp_hosts_message_fini(&got);
            }
            copy[i] = right;
        }
        fsdp_free(copy);
    }
    fsdp_str_fini(&bytes);
}

TEST(a_kind_has_its_numbers_and_texts)
{
    const fsdp_hosts_message wrong[] = {
        {.kind = FSDP_HOSTS_FAILED, .ints = numbers, .n_ints = 2, .texts = words, .n_texts = 1},
        {.kind = FSDP_HOSTS_FAILED, .ints = numbers, .n_ints = 3, .texts = words, .n_texts = 2},
        {.kind = FSDP_HOSTS_PING, .ints = numbers, .n_ints = 1},
        {.kind = FSDP_HOSTS_DAEMON},
        {.kind = FSDP_HOSTS_KINDS},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        fsdp_str bytes = {0};
        fsdp_hosts_message got;
        fsdp_hosts_encode(&wrong[i], &bytes);
        ASSERT_ERROR(fsdp_hosts_decode(bytes.data, bytes.len, &got), FSDP_ERR_FORMAT,
                     "not a message");
        fsdp_str_fini(&bytes);
    }
}

TEST(no_memory_is_an_error)
{
    fsdp_str bytes = {0};
    fsdp_hosts_message got;
    fsdp_hosts_encode(&failed, &bytes);
    fsdp_alloc_fail_at(1);
    const fsdp_status status = fsdp_hosts_decode(bytes.data, bytes.len, &got);
    fsdp_alloc_fail_at(0);
    ASSERT_INT(status, FSDP_ERR_NOMEM);
    fsdp_str_fini(&bytes);
}
