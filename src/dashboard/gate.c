/* See gate.h. */
#include "src/dashboard/gate.h"

#include <stddef.h>
#include <string.h>
#include <strings.h>

#include "src/base/assert.h"

static bool is_port(const char *text)
{
    if (!*text)
        return true;
    if (*text != ':')
        return false;
    const size_t n = strspn(text + 1, "0123456789");
    return n > 0 && n <= 5 && !text[1 + n];
}

bool fsdp_gate_host(const char *host)
{
    static const char *const names[] = {"127.0.0.1", "localhost", "[::1]"};
    for (size_t i = 0; host && i < FSDP_LENGTH(names); i++) {
        const size_t n = strlen(names[i]);
        if (strncasecmp(host, names[i], n) == 0 && is_port(host + n))
            return true;
    }
    return false;
}

const char *fsdp_gate_path(const char *path, const char *token)
{
    const size_t n = strlen(token);
    unsigned char differs = 0;
    if (path[0] != '/' || strnlen(path + 1, n) < n)
        return NULL;
    for (size_t i = 0; i < n; i++)
        differs |= (unsigned char)(path[1 + i] ^ token[i]);
    return differs || path[1 + n] != '/' ? NULL : path + n + 2;
}

bool fsdp_gate_number(const char *text, long long *value)
{
    long long sum = 0;
    size_t n = 0;
    for (; text && text[n] >= '0' && text[n] <= '9' && n < 16; n++)
        sum = sum * 10 + (text[n] - '0');
    if (n == 0 || n > 15 || text[n])
        return false;
    *value = sum;
    return true;
}
