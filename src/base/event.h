/* An event: a point in asynchronous work that any thread may wait for, like cudaEvent_t. An
 * implementation embeds this struct in a struct of its own and sets both function pointers. An
 * event has one owner, which destroys the event. A NULL pointer is an event that has already
 * occurred. */
#pragma once
#include <fsdp/base.h>

typedef struct fsdp_event fsdp_event;
struct fsdp_event {
    /* Wait until all work before the event has run. Return the first failure of that work. */
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
