/* Two ends of a connection between launchers, in one process. */
#pragma once
#include <string.h>
#include <sys/socket.h>

#include "src/hosts/link.h"
#include "tests/test.h"

#ifdef FSDP_HAVE_NETTLE
#define NEEDS_NETTLE() ((void)0)
#else
#define NEEDS_NETTLE() SKIP("built without nettle")
#endif

static inline fsdp_status link_pair(const char *first_secret, const char *other_secret,
                                    fsdp_link *first, fsdp_link *other)
{
    fsdp_job_secret a, b;
    int ends[2];
    FSDP_TRY(fsdp_job_secret_of_text(first_secret, &a));
    FSDP_TRY(fsdp_job_secret_of_text(other_secret, &b));
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0)
        return fsdp_error(FSDP_ERR_IO, "socketpair");
    FSDP_TRY(fsdp_link_init(first, ends[0], true, &a));
    return fsdp_link_init(other, ends[1], false, &b);
}

/* Let both ends authenticate. Return the status of the end that fails first. */
static inline fsdp_status link_meet(fsdp_link *first, fsdp_link *other)
{
    for (int i = 0; i < 4; i++) {
        FSDP_TRY(fsdp_link_pump(first));
        FSDP_TRY(fsdp_link_pump(other));
    }
    return FSDP_OK;
}
