/* An observer of what units do with their memory, in program order: the memory plan of a run
 * (src/plan/plan.c). It changes nothing. */
#pragma once
#include <fsdp/fsdp.h>

typedef enum fsdp_unit_event {
    FSDP_UNIT_GATHER,  /* Own rows are written: the all-gather is under way. Not reported where the
                          master itself is read, since nothing is written then. */
    FSDP_UNIT_UNSHARD, /* it has arrived; bytes of the all-gather, 0 where none is needed */
    FSDP_UNIT_RESHARD,
    FSDP_UNIT_POST,       /* a section of its gradients, or all, is handed to the peers */
    FSDP_UNIT_REDUCE,     /* own rows of the oldest of these are summed; bytes of the
                             reduce-scatter, 0 without peers */
    FSDP_UNIT_ALL_REDUCE, /* and over replicas, where there are some */
} fsdp_unit_event;

typedef struct fsdp_unit_observer {
    /* `module` is the unit's. */
    void (*event)(void *self, const fsdp_module *module, fsdp_unit_event event, uint64_t bytes);
    void *self;
} fsdp_unit_observer;

/* Every unit of `root` reports to `observer` (borrowed) from now on; NULL: to none. */
void fsdp_observe_units(fsdp_module *root, const fsdp_unit_observer *observer);
