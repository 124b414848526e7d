/* An observer of what units do with their memory, in program order. The memory plan of a run
 * (src/plan/plan.c) is one. An observer changes nothing. */
#pragma once
#include <fsdp/fsdp.h>

typedef enum fsdp_unit_event {
    FSDP_UNIT_GATHER,  /* Own rows were written: the all-gather is under way. Not reported where
                          operations read the master itself, because nothing is written then. */
    FSDP_UNIT_UNSHARD, /* The peers' rows have arrived. Bytes of the all-gather; 0: none. */
    FSDP_UNIT_RESHARD,
    FSDP_UNIT_POST,       /* A gradient buffer, or a section, was posted. */
    FSDP_UNIT_REDUCE,     /* Own rows of the oldest posted buffer were summed. Bytes of the
                             reduce-scatter; 0 without peers. */
    FSDP_UNIT_ALL_REDUCE, /* They were summed over the replicas, if there are any. */
} fsdp_unit_event;

typedef struct fsdp_unit_observer {
    /* `module` is that of the unit. */
    void (*event)(void *self, const fsdp_module *module, fsdp_unit_event event, uint64_t bytes);
    void *self;
} fsdp_unit_observer;

/* Make every unit below `root` report to `observer` (borrowed) from now on; NULL: to none. */
void fsdp_observe_units(fsdp_module *root, const fsdp_unit_observer *observer);
