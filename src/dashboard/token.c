/* Makes tokens: see server.h. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "src/dashboard/server.h"

fsdp_status fsdp_server_make_token(char token[FSDP_SERVER_TOKEN])
{
    unsigned char random[(FSDP_SERVER_TOKEN - 1) / 2];
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
        return fsdp_error(FSDP_ERR_IO, "getrandom: %s", strerror(errno));
    for (size_t i = 0; i < sizeof random; i++)
        snprintf(token + 2 * i, 3, "%02x", random[i]);
    return FSDP_OK;
}
