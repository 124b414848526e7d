/* A point in work that goes on elsewhere, which any thread may wait for: cudaEvent_t. Who makes one
 * embeds this and fills both slots. One owner; NULL is a point that has been reached. */
#pragma once
#include <fsdp/base.h>

typedef struct fsdp_event fsdp_event;
struct fsdp_event {
    /* Until what is before it has run; its first failure. */
    fsdp_status (*synchronize)(fsdp_event *event);
    void (*destroy)(fsdp_event *event);
};

static inline FSDP_MUST_CHECK fsdp_status fsdp_event_synchronize(fsdp_event *event)
{
    return event ? event->synchronize(event) : FSDP_OK;
}

static inline void fsdp_event_destroy(fsdp_event *event)
{
    if (event)
        event->destroy(event);
}
