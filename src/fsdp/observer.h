/* Observers are functions that units call, in program order, when they gather, free or reduce. The
 * memory plan (src/plan/plan.c) and the monitor of a run (src/monitor) each install one. An
 * observer does not change what units do. */
#pragma once
#include <fsdp/fsdp.h>

typedef enum fsdp_unit_event {
    FSDP_UNIT_GATHER,  /* A gather has begun: this rank's rows were written to where the peers read
                          them. Not reported if operations read the master weights directly, because
                          the gather then writes nothing. */
    FSDP_UNIT_UNSHARD, /* The peers' rows have arrived. `bytes` is the size of the all-gather; 0 if
                          the unit is not sharded. */
    FSDP_UNIT_LOOK_UP, /* An operation has looked up rows of a frozen table that is not gathered.
                          `bytes` is the size of these rows. */
    FSDP_UNIT_RESHARD, /* Operations can no longer read the unit's parameters. `bytes` is 0. */
    FSDP_UNIT_POST,    /* A gradient buffer, or a section, was posted. `bytes` is the number of
                          bytes that a rank sends to ranks of other hosts. It is the average over
                          all ranks, and assumes that every lookup of an embedding finds a different
                          row. */
    FSDP_UNIT_REDUCE, /* This rank's rows of the posted buffer were summed over the ranks that share
                         it. `bytes` is the size of the reduce-scatter; 0 without peers. */
    FSDP_UNIT_POST_LANES, /* This rank's partial sums were posted to the replicas: Note [Lanes of
                             replicas] in grad_lanes.h. `bytes` is as for FSDP_UNIT_POST. */
    FSDP_UNIT_SUM_LANES,  /* With replicas on more than two hosts: this rank has summed its piece,
                             and sends the sum to the replicas. `bytes` is as for FSDP_UNIT_POST. */
    FSDP_UNIT_ALL_REDUCE, /* This rank's rows were summed over the replicas. `bytes` is the size of
                             the all-reduce. */
} fsdp_unit_event;

typedef struct fsdp_unit_observer {
    /* Called for each event. `module` is the first module of the unit. */
    void (*event)(void *self, const fsdp_module *module, fsdp_unit_event event, uint64_t bytes);
    void *self;
} fsdp_unit_observer;

/* Make all units of `root` and of the modules below it report to `observer`, which is borrowed. If
 * `observer` is NULL, the units report nothing. */
void fsdp_observe_units(fsdp_module *root, const fsdp_unit_observer *observer);
