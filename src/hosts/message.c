/* See message.h. An encoded message is the kind (1 byte), the number of integers and of texts (4
 * bytes each), the integers (4 bytes each), and for each text its length (4 bytes), its bytes and a
 * NUL. Numbers are big-endian. */
#include "src/hosts/message.h"

#include <string.h>

#include "src/base/alloc.h"
#include "src/hosts/big_endian.h"

enum {
    MOST_INTS = FSDP_HOSTS_MAX + 2048,
    MOST_TEXTS = 16384,
    HEAD_BYTES = 9
};

/* How many integers and texts a message of each kind may have. */
static const struct {
    int least_ints, most_ints, least_texts, most_texts;
} shapes[FSDP_HOSTS_KINDS] = {
    [FSDP_HOSTS_JOIN] = {5, 5, 4, MOST_TEXTS},
    [FSDP_HOSTS_OUTPUT] = {0, 0, 1, 1},
    [FSDP_HOSTS_DAEMON_ENDED] = {2, 2, 0, 0},
    [FSDP_HOSTS_FAILED] = {3, 3, 1, 1},
    [FSDP_HOSTS_SIGNALLED] = {1, 1, 0, 0},
    [FSDP_HOSTS_QUIET] = {2, 2, 1, 1},
    [FSDP_HOSTS_IDLE] = {1, 1, 0, 0},
    [FSDP_HOSTS_REFUSED] = {1, 1, 1, 1},
    [FSDP_HOSTS_WELCOME] = {0, 0, 1, 1},
    [FSDP_HOSTS_START] = {5, 4 + FSDP_HOSTS_MAX, 1, 1},
    [FSDP_HOSTS_DAEMON] = {0, 0, 1, MOST_TEXTS},
    [FSDP_HOSTS_STOP] = {2, 2, 0, 0},
    [FSDP_HOSTS_KILL] = {1, 1, 0, 0},
    [FSDP_HOSTS_FINISH] = {1, 1, 1, 1},
    [FSDP_HOSTS_PING] = {0, 0, 0, 0},
    [FSDP_HOSTS_RANK] = {4, 4, 0, 0},
    [FSDP_HOSTS_PLAN] = {15, MOST_INTS, 7, MOST_TEXTS},
    [FSDP_HOSTS_RESULT] = {3, 3, 1, 1},
    [FSDP_HOSTS_AGENT] = {0, 0, 2, MOST_TEXTS},
};

static void add_number(fsdp_str *out, uint32_t value)
{
    char bytes[4];
    fsdp_put_big_endian(bytes, value);
    fsdp_str_append(out, bytes, sizeof bytes);
}

void fsdp_hosts_encode(const fsdp_hosts_message *message, fsdp_str *out)
{
    const char kind = (char)message->kind;
    fsdp_str_append(out, &kind, 1);
    add_number(out, (uint32_t)message->n_ints);
    add_number(out, (uint32_t)message->n_texts);
    for (int i = 0; i < message->n_ints; i++)
        add_number(out, (uint32_t)message->ints[i]);
    for (int i = 0; i < message->n_texts; i++) {
        const size_t length = strlen(message->texts[i]);
        add_number(out, (uint32_t)length);
        fsdp_str_append(out, message->texts[i], length + 1);
    }
}

/* Check the texts, which begin at `at` and end at `end`. Return false if they are not exactly
 * `n_texts` texts. */
static bool check_texts(const unsigned char *at, const unsigned char *end, int n_texts)
{
    for (int i = 0; i < n_texts; i++) {
        if (end - at < 5)
            return false;
        const uint32_t length = fsdp_get_big_endian(at);
        at += 4;
        if (length >= (size_t)(end - at) || memchr(at, 0, length) || at[length])
            return false;
        at += length + 1;
    }
    return at == end;
}

static bool check_shape(const unsigned char *bytes, size_t size)
{
    if (size < HEAD_BYTES || size > FSDP_HOSTS_MESSAGE_BYTES || bytes[0] < 1 ||
        bytes[0] >= FSDP_HOSTS_KINDS)
        return false;
    const uint32_t n_ints = fsdp_get_big_endian(bytes + 1),
                   n_texts = fsdp_get_big_endian(bytes + 5);
    const int kind = bytes[0];
    if (n_ints > MOST_INTS || n_texts > MOST_TEXTS || (int)n_ints < shapes[kind].least_ints ||
        (int)n_ints > shapes[kind].most_ints || (int)n_texts < shapes[kind].least_texts ||
        (int)n_texts > shapes[kind].most_texts || size - HEAD_BYTES < 4 * (size_t)n_ints)
        return false;
    return check_texts(bytes + HEAD_BYTES + 4 * n_ints, bytes + size, (int)n_texts);
}

fsdp_status fsdp_hosts_decode(const void *bytes, size_t size, fsdp_hosts_message *message)
{
    const unsigned char *from = bytes;
    if (!check_shape(from, size))
        return fsdp_error(FSDP_ERR_FORMAT, "not a message of fsdp launch (%zu bytes)", size);
    const size_t n_ints = fsdp_get_big_endian(from + 1), n_texts = fsdp_get_big_endian(from + 5);
    const size_t text_bytes = size - HEAD_BYTES - 4 * n_ints;
    /* One block: the pointers, the integers, and the texts with their lengths. */
    char *block =
        fsdp_calloc(n_texts * sizeof(char *) + n_ints * sizeof(int32_t) + text_bytes + 1, 1);
    if (!block)
        return FSDP_ERR_NOMEM;
    const char **texts = (const char **)(void *)block;
    int32_t *ints = (int32_t *)(void *)(block + n_texts * sizeof(char *));
    char *copy = (char *)(ints + n_ints);
    for (size_t i = 0; i < n_ints; i++)
        ints[i] = (int32_t)fsdp_get_big_endian(from + HEAD_BYTES + 4 * i);
    memcpy(copy, from + HEAD_BYTES + 4 * n_ints, text_bytes);
    for (size_t i = 0; i < n_texts; i++) {
        texts[i] = copy + 4;
        copy += 4 + strlen(copy + 4) + 1;
    }
    *message = (fsdp_hosts_message){.kind = (fsdp_hosts_kind)from[0],
                                    .n_ints = (int)n_ints,
                                    .n_texts = (int)n_texts,
                                    .ints = ints,
                                    .texts = texts,
                                    .memory = block};
    return FSDP_OK;
}

void fsdp_hosts_message_fini(fsdp_hosts_message *message)
{
    fsdp_free(message->memory);
    *message = (fsdp_hosts_message){0};
}
